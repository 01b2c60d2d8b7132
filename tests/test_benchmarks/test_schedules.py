"""``benchmarks/schedules.py`` as people run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from neurosim.devices import available

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "schedules.py"


def run(*options):
    return subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True, check=False)


def test_a_row_for_each_kernel_on_each_chip():
    done = run("--size", "300x256x513", "--attention", "200x64", "--dtype", "float32")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("matmul 300 × 256 × 513 (M × K × N), attention 200 × 64, float32\n")
    names = ("matmul_tiled", "matmul_hoisted", "matmul_blocked_free", "matmul_blocked", "matmul", "attention")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines if line and line[0] in names] == ["matmul", *names * len(available())]
    assert all(f"{chip}: simulated, not measured" in done.stdout for chip in available())
    assert "╭" not in done.stderr


def test_a_kernel_that_refuses_says_why():
    done = run("--size", "2x2x2", "--attention", "8x129", "--chip", "trn2")
    assert done.returncode == 0, done.stderr
    assert "d is 129; the array has 128" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--size", "2x0x2"), "'2x0x2' is not MxKxN"),
        (("--attention", "2"), "'2' is not SxD"),
        (("--chip", "trn9"), "unknown chip 'trn9'"),
        (("--dtype", "int7"), "not an NKI dtype"),
    ],
)
def test_bad_options(options, message):
    done = run(*options)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_size_of_the_tutorial():
    done = run("--size", "4096x8192x8192", "--chip", "trn2")
    assert done.returncode == 0, done.stderr
    assert "ms" in done.stdout
