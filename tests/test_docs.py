"""The documents are carried out: their code runs, the files that they name exist."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))


def code_of(document):
    """Return the Python blocks of a document."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / document).read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project with the file that the document adds; returns how to run Python there."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "isa", folder / "isa", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("neurosim", "tests", "pyproject.toml"):
        (folder / name).symlink_to(ROOT / name)
    instruction, script = code_of("adding_an_instruction.md")
    (folder / "isa" / "scaled_sum.py").write_text(instruction, encoding="utf-8")
    (folder / "script.py").write_text(script, encoding="utf-8")

    def run(*words):
        environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, *words]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)

    return run


def test_an_instruction_is_added_in_one_step(project):
    done = project("-m", "neurosim.cli", "run", "script.py")
    assert done.returncode == 0, done.stderr


def test_it_has_its_row_and_its_page(project):
    done = project("-m", "neurosim.cli", "isa")
    assert re.search("scaled_sum +vector ", done.stdout), done.stderr
    page = project("-m", "neurosim.cli", "isa", "scaled_sum").stdout
    assert "| `scale` | read | tensor in SBUF or PSUM, or a number | `1.0` |" in page
    for broken in ("dst has 16 partitions", "data2 has 16", "are both in PSUM", "scale is "):
        assert broken in page
    assert "Lanewise (law tensor_tensor, elements 16)" in page


def test_the_generated_tests_hold_for_it(project):
    """The page above shows that its rules have calls that break them."""
    done = project(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_isa/test_generated.py", "-k", "scaled_sum"
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"\b[4-9] passed", done.stdout), done.stdout


@pytest.mark.parametrize("document", DOCS, ids=lambda path: path.name)
def test_files_that_a_document_names_exist(document):
    text = document.read_text(encoding="utf-8")
    linked = [document.parent / link for link in re.findall(r"\]\(([^)#:]+)\)", text)]
    named = [
        ROOT / name
        for name in re.findall(r"`((?:isa|neurosim|kernels|tests|docs)/[\w./]*)`", text)
        if name != "isa/scaled_sum.py"
    ]
    assert [str(path) for path in (*linked, *named) if not path.exists()] == []
    assert linked
    assert named
