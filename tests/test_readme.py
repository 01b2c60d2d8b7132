"""What README.md and docs/report.md show is what happens."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import numpy as np
import pytest

import neurosim
from neurosim.errors import IllegalOperand
from neurosim.report.words import CAUSES, REASONS
from neurosim.shell.loading import load_module

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
README = DOCUMENTS[0].read_text(encoding="utf-8")
command = load_module(ROOT / "tests" / "test_shell" / "commands.py").command
HEAD = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n"


def block(language: str, words: str) -> str:
    (found,) = (text for text in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if words in text)
    return found


def commands() -> list[str]:
    """Return what documents tell people to type, of neurosim's own commands; the demo has tests of its own."""
    blocks = [text for path in DOCUMENTS for text in re.findall(r"```sh\n(.*?)```", path.read_text("utf-8"), re.DOTALL)]
    lines = [line for text in blocks for line in text.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line.startswith("neurosim ")]


def marked(line: str) -> object:
    return pytest.param(line, marks=pytest.mark.slow) if line.startswith("neurosim sweep") else line


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the files that the README shows, and the one that its second group of commands writes."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "kernels").symlink_to(ROOT / "kernels")
    (folder / "scale.py").write_text(block("python", "# scale.py"), encoding="utf-8")
    (folder / "fast.toml").write_text(block("toml", "[chip.name]"), encoding="utf-8")
    scale = runpy.run_path(str(folder / "scale.py"))["scale"]
    neurosim.simulate(scale, values=False)(neurosim.spec((512, 1024), "bfloat16")).program.save(folder / "scale.nsim")
    return folder


@pytest.mark.parametrize("line", [marked(line) for line in commands()])
def test_commands_that_documents_show(folder, line):
    done = command(*shlex.split(line)[1:], folder=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("words", ["assert_array_equal(result.outputs", "a shape and a dtype, no data"])
def test_scripts_that_the_readme_shows(folder, monkeypatch, capsys, words):
    monkeypatch.syspath_prepend(folder)
    (folder / "script.py").write_text(block("python", words), encoding="utf-8")
    runpy.run_path(str(folder / "script.py"))
    assert "scale on trn2" in (shown := capsys.readouterr().out) or int(shown.split()[1]) > int(shown.split()[0])


@pytest.mark.parametrize(
    ("name", "rows", "cores", "factor"), [("doubled", 256, 1, 2.0), ("halves", 128, 2, 1.0), ("old", 100, 1, 2.0)]
)
def test_kernels_that_the_readme_shows(tmp_path, name, rows, cores, factor):
    source = re.split(rf"\n{name}\[", block("python", f"def {name}("))[0]
    (tmp_path / "shown.py").write_text(HEAD + source, encoding="utf-8")
    kernel = runpy.run_path(str(tmp_path / "shown.py"))[name]
    x = np.arange(rows * 512, dtype=np.float32).reshape(rows, 512)
    simulated = neurosim.simulate(kernel)
    result = (simulated if cores == 1 else simulated[cores])(x)
    np.testing.assert_array_equal(result.outputs, factor * x)


def test_the_device_file_that_the_readme_shows(tmp_path):
    (tmp_path / "fast.toml").write_text(block("toml", "[chip.name]"), encoding="utf-8")
    fast, usual = neurosim.load_chip(tmp_path / "fast.toml"), neurosim.load_chip("trn2")
    assert (fast.name, fast.dma.engine_gb_per_s) == ("fast", 2 * usual.dma.engine_gb_per_s)
    assert fast.dma.load_gb_per_s == 2 * usual.dma.load_gb_per_s
    assert fast.tensor == usual.tensor


def test_the_error_that_the_readme_shows(tmp_path):
    source = f"""{HEAD}def scores(q, k):
    q_tile, k_tile = nl.load(q), nl.load(k)
    product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=product, stationary=q_tile, moving=k_tile)
"""
    (tmp_path / "scores.py").write_text(source, encoding="utf-8")
    kernel = runpy.run_path(str(tmp_path / "scores.py"))["scores"]
    with pytest.raises(IllegalOperand) as caught:
        neurosim.simulate(kernel, values=False)(
            neurosim.spec((128, 192), "bfloat16"), neurosim.spec((128, 512), "bfloat16")
        )
    shown = block("text", "stationary has 192 columns").removeprefix("IllegalOperand: ").rstrip()
    assert str(caught.value).replace(f"{tmp_path}/", "") == shown


def test_all_reasons_and_causes_of_the_report_are_explained():
    text = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \| [^|]+ \|$", text, re.MULTILINE)) == {**REASONS, **CAUSES}
