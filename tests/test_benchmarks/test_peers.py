"""``benchmarks/peers.py``: rows of simulators that are there, words about those that are not, and values that count."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(FOLDER))
import peers  # noqa: E402
from peer_kernels import runs  # noqa: E402

MATMUL = runs.Case("matmul", "bfloat16", 512)
ATTENTION = runs.Case("attention", "float32", 256)


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
    assert len(content["process_s"]) == 1
    assert picture.exists() == plots


def _has(name):
    try:
        __import__(name)
    except ImportError:
        return False
    return True


def test_a_command_that_fails_is_a_row():
    assert "ends with 3" in peers.command_row("exit 3", 1)["missing"]


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
