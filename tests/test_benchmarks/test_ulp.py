"""``benchmarks/ulp.py`` as people run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "ulp.py"
WITHOUT_SCIPY = f"import runpy, sys; sys.modules['scipy'] = None; runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"


def run(*options):
    return subprocess.run([sys.executable, *options], capture_output=True, text=True, check=False)


def test_rows_of_the_table_are_replaced(tmp_path):
    pytest.importorskip("scipy")
    page = tmp_path / "page.md"
    old = ["| `gone` | 1 |", "| `relu` | 2 |", "| `exp` | 3 |"]
    marks = ("<!-- ulp: begin (python benchmarks/ulp.py --write NUMERICS.md) -->", "<!-- ulp: end -->")
    page.write_text("\n".join(["before", marks[0], *old, marks[1], "after\n"]), encoding="utf-8")
    done = run(SCRIPT, "--stride", "262147", "--only", "relu", "log", "--write", page)
    assert done.returncode == 0, done.stderr
    lines = page.read_text(encoding="utf-8").splitlines()
    assert (lines[0], lines[1], lines[-2], lines[-1]) == ("before", marks[0], marks[1], "after")
    relu, exp, log = (line for line in lines if line.startswith("| `"))
    assert exp == old[2]
    assert relu.startswith("| `relu` | 16,320, 1 in 262147 | 0.0000 |")
    assert relu in done.stdout
    assert log.startswith("| `log` | ")


@pytest.mark.parametrize(
    ("options", "message"),
    [(("--stride", "2"), "--stride must be odd"), (("--only", "cosh"), "invalid choice: 'cosh'")],
)
def test_bad_options(options, message):
    done = run(SCRIPT, *options)
    assert done.returncode == 2
    assert message in done.stderr


def test_options_are_read_before_scipy_is_missed():
    assert run("-c", WITHOUT_SCIPY).stderr.endswith("not installed: pip install -e '.[bench]'\n")
    assert "--stride must be odd" in run("-c", "import sys; sys.argv += ['--stride', '2']; " + WITHOUT_SCIPY).stderr
