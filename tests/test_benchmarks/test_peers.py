"""``benchmarks/peers.py``: rows of simulators that are there, words about those that are not, and values that count."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(FOLDER))
import peers  # noqa: E402
from peer_kernels import runs  # noqa: E402

from neurosim.sweeps.journal import Journal  # noqa: E402

MATMUL = runs.Case("matmul", "bfloat16", 512)
ATTENTION = runs.Case("attention", "float32", 256)


def a_run(**changed):
    plain = peers.Run("matmul float32", 512, "numpy float32", 0, 1, sys.executable, None)
    return plain._replace(**changed)


def rows_of(*options):
    done = subprocess.run([sys.executable, FOLDER / "peers.py", *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_rows_ratios_plot_and_process(tmp_path):
    found, picture = tmp_path / "rows.json", tmp_path / "rows.png"
    command = json.dumps({"matmul bfloat16": f"{sys.executable} -c 1"})
    options = ["--size", "512", "--repeats", "1", "--rounds", "2", "--case", "matmul bfloat16", "--json", found]
    for name in ("neurosim", "neurosim, replayed", "Other", "Triton interpreter"):
        options += ["--only", name]
    if plots := _has("matplotlib"):
        options += ["--plot", picture]
    text = rows_of(*options, "--command", f"Other={command}", "--python", "Triton interpreter=false")
    content = json.loads(found.read_text())
    rows = {row["peer"]: row for row in content["rows"]}
    assert list(rows) == ["neurosim", "neurosim, replayed", "Triton interpreter", "Other"]
    assert rows["neurosim"]["ratio"] == 1
    for name in ("neurosim", "neurosim, replayed", "Other"):
        assert rows[name]["median_s"] == pytest.approx(np.median(rows[name]["times_s"]))
        assert [len(rows[name][times]) for times in ("times_s", "cpu_s")] == [2, 2]
        assert rows[name]["cpu_ratio"] > 0
        assert rows[name]["ratio"] == pytest.approx(rows[name]["median_s"] / rows["neurosim"]["median_s"])
        assert name in text
    assert "missing" in rows["Triton interpreter"]
    assert [len(content[times]) for times in ("process_s", "process_cpu_s")] == [1, 1]
    assert picture.exists() == plots


def _has(name):
    try:
        __import__(name)
    except ImportError:
        return False
    return True


def test_a_command_that_fails_or_does_not_end_is_a_row():
    assert "ends with 3" in peers.command_row("exit 3", 1, 60)["missing"]
    began = time.monotonic()
    late = a_run(command="sleep 60; true").found(0.2)
    assert late == {"missing": "not done in 0.2 s"}
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo no memory >&2; exit 7", "it fails (7): no memory"),
        ("kill -9 $$", "it fails (-9): no word"),
        ("true", "it says nothing that is a row: ''"),
        ("echo hello", "it says nothing that is a row: 'hello'"),
        (None, "it cannot be started: "),
    ],
)
def test_a_peer_that_fails_is_a_row(script, words, tmp_path):
    python = tmp_path / "python"
    if script is not None:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
    assert a_run(python=str(python)).found(60)["missing"].startswith(words)


def test_a_run_that_was_interrupted_goes_on(tmp_path, monkeypatch, capsys):
    begun = []

    def found(run, limit_s):
        if len(begun) == 3:
            raise KeyboardInterrupt
        begun.append(run[2:4])
        if run.peer == "b":
            return {"missing": "not there"} if run.round == 0 else {"times_s": [2.0], "cpu_s": [1.0]}
        return {"times_s": [run.round], "cpu_s": [7.0]}

    monkeypatch.setattr(peers.Run, "found", found)
    chosen = {"case": ["matmul float32"], "only": ["a", "b"], "full": True, "size": 512, "repeats": 1, "rounds": 2}
    options = argparse.Namespace(**chosen, python=[], command=[("a", {}), ("b", {})], limit=60.0)
    kept = tmp_path / "kept.jsonl"
    with Journal(kept) as journal, pytest.raises(KeyboardInterrupt):
        peers.measured(options, journal)
    assert begun == [("a", 0), ("b", 0), ("a", 1)]
    begun.clear()
    with Journal(kept) as journal:
        rows = peers.measured(options, journal)
    assert begun == [("b", 0), ("b", 1)]
    place = {"case": "matmul float32", "size": 512}
    assert rows == [
        place | {"peer": "a", "times_s": [0, 1], "cpu_s": [7.0, 7.0]},
        place | {"peer": "b", "times_s": [2.0], "cpu_s": [1.0]},
    ]


def test_a_kept_run_is_of_the_same_settings(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    key = a_run().key
    assert key == a_run().key
    assert key != a_run(round=1).key
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert key != a_run().key


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--python", "SCALE-Sim"], "'SCALE-Sim' is not NAME=PATH"),
        (["--command", "ONNXim={"], "what follows ONNXim= is no JSON"),
        (["--command", 'ONNXim={"matmul": "true"}'], "its names of matmul bfloat16"),
        (["--size", "0"], "--size must be a multiple of 512"),
        (["--rounds", "0"], "--repeats and --rounds must be 1 or more"),
        (["--only", "nobody"], "no simulator has such a name"),
    ],
)
def test_options_that_mean_nothing(options, words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["peers.py", *options])
    with pytest.raises(SystemExit) as stop:
        peers.main()
    assert words in f"{stop.value.code} {capsys.readouterr().err}"


def test_a_run_of_minutes_is_the_only_one(monkeypatch):
    calls = []
    monkeypatch.setitem(runs.PEERS, "counted", runs.Peer(lambda _: lambda: calls.append(1), "numpy", "time"))
    assert len(runs.timed("counted", MATMUL, 2)["times_s"]) == 2
    assert len(calls) == 3
    monkeypatch.setattr(runs, "LONG_S", -1.0)
    found = runs.timed("counted", MATMUL, 2)
    assert [len(found[times]) for times in ("times_s", "cpu_s")] == [1, 1]
    assert len(calls) == 4


def test_a_peer_that_is_not_installed_is_a_row(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "scalesim", None)
    monkeypatch.setitem(sys.modules, "jax.numpy", None)
    monkeypatch.setitem(sys.modules, "triton_viz", None)
    for name in ("Triton interpreter", "Pallas TPU interpret", "SCALE-Sim", "triton-viz NKI"):
        assert list(runs.timed(name, MATMUL, 1)) == ["missing"]


@pytest.mark.parametrize("case", [MATMUL, ATTENTION])
def test_values_are_checked(case, monkeypatch):
    right = runs.numpy_float32(case)()
    assert float(runs.check(case, right)) < 1e-5
    wrong = right.copy()
    wrong[3, 3] += 0.1 * np.abs(right).max()
    with pytest.raises(runs.Missing, match=r"its values are wrong: 0\.1"):
        runs.check(case, wrong)
    wrong[3, 3] = np.nan
    monkeypatch.setitem(runs.PEERS, "broken", runs.Peer(lambda _: lambda: wrong, "numpy", "values"))
    assert "nan of the largest" in runs.timed("broken", case, 1)["missing"]


def test_ratios_are_to_the_run_of_the_same_size():
    rows = [
        {"case": "c", "size": 2048, "peer": "neurosim", "times_s": [1.0, 2.0, 9.0], "cpu_s": [3.0]},
        {"case": "c", "size": 512, "peer": "neurosim", "times_s": [0.5], "cpu_s": [1.0]},
        {"case": "c", "size": 512, "peer": "slow", "times_s": [4.0], "cpu_s": [2.0]},
        {"case": "c", "size": 2048, "peer": "gone", "missing": "not installed"},
    ]
    found = peers.with_ratios(rows)
    assert [row.get("ratio") for row in found] == [1.0, 1.0, 8.0, None]
    assert [row.get("cpu_ratio") for row in found] == [1.0, 1.0, 2.0, None]
    assert found[0]["median_s"] == 2.0
