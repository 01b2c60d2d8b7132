"""The command line in this process, which spares starting one: what it prints and the code that it ends with."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import NamedTuple

import pytest

from neurosim import cli


class Done(NamedTuple):
    """What a command came to, named as a finished process names it."""

    returncode: int
    stdout: str
    stderr: str


def command(*words: str, folder: Path | None = None) -> Done:
    """Run neurosim with these words, in ``folder`` if one is given."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["neurosim", *words])
        if folder is not None:
            patch.chdir(folder)
        try:
            cli.main()
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Done(code, out.getvalue(), err.getvalue())
