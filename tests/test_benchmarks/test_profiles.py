"""``benchmarks/profiles`` as people run them, on little."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import NamedTuple

import pytest

from neurosim.shell.loading import load_module

FOLDER = Path(__file__).parents[2] / "benchmarks" / "profiles"
SMALLEST = {
    "matmul_ladder": ("--size", "256"),
    "attention_schedules": ("--length", "256", "--width", "32", "--blocks", "128", "--groups", "1,2", "--jobs", "1"),
    "dma_descriptors": ("--rows", "128", "--columns", "256", "--least", "16", "--chip", "trn2", "--jobs", "1"),
    "fp8": ("--sizes", "256"),
}


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def run(script, *options):
    """Run a script here, as Python's command line would."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", [f"{script}.py", *options])
        try:
            load_module(FOLDER / f"{script}.py").main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
            err.write("" if isinstance(ended.code, int) else str(ended.code))
    return Done(code, out.getvalue(), err.getvalue())


def cells(text):
    return [line.split() for line in text.splitlines() if line.strip()]


def test_every_script_has_a_smallest_run():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(SMALLEST)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plots")
    found = {}
    for script, options in SMALLEST.items():
        done = run(script, *options, "--plot", str(folder / f"{script}.png"))
        assert done.returncode == 0, done.stderr
        assert (folder / f"{script}.png").read_bytes()[:4] == b"\x89PNG"
        assert "simulated, not measured" in done.stdout
        found[script] = done.stdout
    return found


def test_the_ladder_has_its_rungs_in_order(outputs):
    names = [line[0] for line in cells(outputs["matmul_ladder"])]
    rungs = ["matmul_tiled", "matmul_hoisted", "matmul_blocked_free", "matmul_blocked", "matmul"]
    assert [name for name in names if name.startswith("matmul")] == rungs
    gains = [line for line in cells(outputs["matmul_ladder"]) if "×" in line]
    assert len(gains) == len(rungs) - 1


def test_attention_marks_its_fastest_schedule(outputs):
    lines = cells(outputs["attention_schedules"])
    rows = [line for line in lines if line[:2] in (["128", "1"], ["128", "2"])]
    assert len(rows) == 2
    assert sum("◀" in row for row in rows) == 1


def test_bandwidth_grows_with_descriptors(outputs):
    rows = [line for line in cells(outputs["dma_descriptors"]) if "trn2" in line]
    assert [" ".join(row[:2]) for row in rows] == ["64 B", "128 B", "256 B", "512 B", "1 KiB"]
    rates = [float(row[row.index("trn2") + 3]) for row in rows]
    assert rates == sorted(rates)
    assert rates[-1] > 2 * rates[0]


def test_fp8_moves_half_and_runs_on_later_chips_only(outputs):
    rows = {" ".join(line[1:-9]): line for line in cells(outputs["fp8"]) if line[0] == "256"}
    assert set(rows) == {"bfloat16", "float8", "float8 double_row"}
    moved = {name: float(line[-4]) for name, line in rows.items()}
    assert moved["float8"] == pytest.approx(moved["bfloat16"] / 2, rel=0.01)
    old = run("fp8", "--sizes", "256", "--chip", "trn1")
    assert old.returncode == 0, old.stderr
    assert "float8 double_row: " in old.stdout
    assert "needs NeuronCore-v3" in old.stdout


@pytest.mark.parametrize(
    ("script", "options", "message"),
    [
        ("matmul_ladder", ("--chip", "trn9"), "unknown chip 'trn9'"),
        ("matmul_ladder", ("--dtype", "int7"), "not an NKI dtype"),
        ("attention_schedules", ("--groups", "1,x"), "'1,x' is no list"),
        ("dma_descriptors", ("--chip", "trn9"), "unknown chip 'trn9'"),
        ("fp8", ("--sizes", "0"), "'0' is no list"),
        ("fp8", ("--sizes", "128", "--plot", "a.gif"), "a plot is a .png"),
    ],
)
def test_bad_options(script, options, message):
    done = run(script, *options)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr
