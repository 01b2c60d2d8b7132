"""``benchmarks/numerics.py`` as people run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "numerics.py"


def run(*options):
    return subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True, check=False)


def test_a_row_for_each_kind_of_work_with_its_ratio():
    done = run("--repeats", "1")
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("│")]
    assert [row.split("│")[1].split(",")[0].strip() for row in rows] == [
        "float32 to bfloat16",
        "float32 to float8_e4m3",
        "float32 to float8_e4m3fn",
        "float32 to float8_e5m2",
        "exp",
        "add",
        "matmul",
        "matmul",
    ]
    assert all(row.split("│")[-2].strip() in ("met", "missed") for row in rows)


def test_bad_options():
    done = run("--repeats", "0")
    assert done.returncode == 2
    assert "--repeats must be at least 1" in done.stderr
