"""What is shipped, and what must not be."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("neurosim", "isa", "kernels", "benchmarks", "tests", ".ci")
SUFFIXES = {".py", ".md", ".toml", ".yaml", ".json", ".txt", ""}


def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def texts() -> Iterator[Path]:
    # `.git` is a file in a worktree, and no part of the project
    yield from (p for p in ROOT.iterdir() if p.is_file() and p.suffix in SUFFIXES and p.name != ".git")
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix in SUFFIXES and "__pycache__" not in path.parts:
                yield path


def test_no_file_names_a_place_of_one_machine() -> None:
    place = re.compile(r"(?<![\w.])/(?:work|tmp|root|home|Users)/\w")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if place.search(line)
    ]
    assert found == []


def test_the_readme_says_how_to_install_and_test() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first_screen = "\n".join(text.splitlines()[:20])
    assert "pip install -e '.[test]' && neurosim demo" in first_screen
    assert "pip install -e '.[test]' && pytest" in text


def test_the_changelog_has_a_place_for_changed_results() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "### Values changed" in text
    assert "### Times changed" in text


def test_the_version_stands_once_and_is_known_at_run_time() -> None:
    import neurosim

    assert neurosim.__version__ == project()["version"]


@pytest.mark.slow
def test_the_wheel_holds_what_a_user_needs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"neurosim/cli.py", "neurosim/_kernels/matmul.py", "neurosim/_kernels/attention.py"} <= names
    assert {"isa/__init__.py", "isa/devices/trn2.toml", "neurosim/py.typed", "isa/py.typed"} <= names
    assert {"isa/manual/examples.toml", "isa/manual/README.md", "neurosim/pytest_plugin.py"} <= names
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"neurosim", "isa", f"neurosim_npu-{project()['version']}.dist-info"}
