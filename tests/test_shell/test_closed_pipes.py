"""Commands whose reader goes away: their files are there, and they end without a word."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from neurosim import cli

KERNEL = f"{Path(__file__).parents[2] / 'kernels' / 'softmax.py'}:softmax"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_ends_a_command_without_a_word_and_the_files_are_there(
    tmp_path: Path, unbuffered: str
) -> None:
    words = f"profile {KERNEL} 128x512:float32 --no-values --save p.neurosim --perfetto t.json --json s.json"
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "neurosim", *words.split()],
            cwd=tmp_path,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    said = [line for line in done.stderr.splitlines() if "neurosim: compiling" not in line]
    assert (done.returncode, said) == (141, [])
    assert all((tmp_path / name).stat().st_size for name in ("p.neurosim", "t.json", "s.json"))


@pytest.mark.parametrize("words", [f"profile {KERNEL}", f"precision {KERNEL}", f"diff {KERNEL} {KERNEL}"])
def test_files_are_written_before_anything_is_printed(
    tmp_path: Path, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    with contextlib.suppress(BrokenPipeError, SystemExit, io.UnsupportedOperation), monkeypatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setattr(sys, "stdout", Closed())
        cli.app([*words.split(), "128x64:float32", "--json", "s.json"])
    assert json.loads((tmp_path / "s.json").read_text())
