"""``benchmarks/validate.py``: its data, its arithmetic, and how far the model is from measurements."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import statistics as stats
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPT = BENCHMARKS / "validate.py"


@pytest.fixture(scope="module", autouse=True)
def importable():
    """Make ``validation`` importable, as it is for the script."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield


def rows():
    from validation.rows import load_rows

    return load_rows()


def run(*options):
    return subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True, check=False)


def held(measured_us, predicted_us, busy=None, **fields):
    """Return a row with an outcome, neither of which was ever run."""
    from validation.running import Outcome
    from validation.statistics import Held

    row = dataclasses.replace(rows()[0], measured_us=measured_us, **fields)
    return Held(row, Outcome(row.id, "own", predicted_us, busy or {"dma": 1.0}, {"dma": ("queue", 0.0)}))


@pytest.mark.parametrize(("name", "count"), [("ROWS", 164), ("HELD_OUT", 62)])
def test_every_row_is_whole(name, count):
    from validation import rows as module
    from validation.rows import tuplify

    found = module.load_rows(getattr(module, name))
    assert len({row.id for row in found}) == len(found) == count
    engines = {"tensor", "vector", "scalar", "gpsimd", "dma", "latency"}
    for row in found:
        assert row.measured_us > 0
        assert row.calls
        assert row.source
        assert set(row.bound) <= engines
        assert row.trust in ("A", "A-", "B", "C")
        assert row.at_most == (row.trust == "C")
        assert len(row.blob) == len(row.commit) == 40
        assert tuplify(row.patches) == row.patches
        assert all((BENCHMARKS.parent / "kernels" / call.file).is_file() for call in row.own)


def test_no_row_that_is_held_out_is_among_those_that_figures_were_fitted_to():
    from validation.rows import HELD_OUT, load_rows

    fitted = {row.id for row in rows()} | {row.blob for row in rows()}
    assert not any(each.id in fitted or each.blob in fitted for each in load_rows(HELD_OUT))


def test_errors_and_medians():
    from validation.statistics import group

    members = [held(100.0, 130.0), held(200.0, 100.0), held(50.0, 50.0)]
    assert [each.error for each in members] == pytest.approx([0.3, -0.5, 0.0])
    found = group("all", members)
    assert (found.rows, found.median, found.bias, found.worst) == pytest.approx((3, 0.3, 0.0, -0.5))


def test_a_bound_is_missed_from_above_only():
    assert held(100.0, 40.0, at_most=True).error == 0.0
    assert held(100.0, 150.0, at_most=True).error == pytest.approx(0.5)
    assert held(100.0, 150.0, at_most=True, bound=("dma",)).hit is None


@pytest.mark.parametrize(
    ("bound", "busy", "hit"),
    [
        (("tensor",), {"tensor": 0.9, "dma": 0.8}, True),
        (("tensor",), {"tensor": 0.8, "dma": 0.9}, False),
        (("vector", "dma"), {"tensor": 0.8, "dma": 0.9}, True),
        (("tensor",), {"tensor": 0.4, "dma": 0.3}, False),
        (("dma", "latency"), {"tensor": 0.4, "dma": 0.3}, True),
        (("latency",), {"tensor": 0.4}, None),
        ((), {"tensor": 0.4}, None),
    ],
)
def test_the_bottleneck(bound, busy, hit):
    assert held(1.0, 1.0, busy, bound=bound).hit is hit


def test_tau_counts_pairs_that_differ():
    from validation.statistics import kendall

    # 100 and 102 have no rank; 200 is right against both, 300 is wrong against 200 and right against the rest
    members = [held(100.0, 9.0), held(102.0, 8.0), held(200.0, 20.0), held(300.0, 10.0)]
    assert kendall(members) == (pytest.approx(3 / 5), 5)
    assert kendall(members[:3]) == (None, 2)
    other = dataclasses.replace(members[3].row, family="another")
    assert kendall([*members[:3], dataclasses.replace(members[3], row=other)]) == (None, 2)


def test_groups_leave_bounds_out():
    from validation.statistics import groups

    members = [held(1.0, 1.0), held(1.0, 2.0, chip="trn9"), held(1.0, 9.0, at_most=True)]
    assert [(each.name, each.rows) for each in groups(members, "chip")] == [("trn1", 1), ("trn9", 1)]


def test_time_in_which_any_dma_engine_moves():
    import numpy as np
    from validation.running import dma_active_ps

    from neurosim.timing.timeline import OP_DTYPE, Op

    ops = np.zeros(4, dtype=OP_DTYPE)
    ops["kind"] = [Op.TRANSFER, Op.TRANSFER, Op.TRIGGER, Op.TRANSFER]
    ops["start_ps"], ops["end_ps"] = [10, 15, 0, 100], [20, 40, 500, 110]
    assert dma_active_ps(type("Timeline", (), {"ops": ops})) == 40
    assert dma_active_ps(type("Timeline", (), {"ops": ops[:0]})) == 0


@pytest.mark.parametrize(
    ("extract", "code"),
    [
        ({"function": "inner"}, "@nki.jit\ndef inner(x):\n    return x\n"),
        ({"first_line": 7, "last_line": 8}, "def outer(x):\n    return 'x'\n"),
        ({"first_line": 11, "last_line": 13}, "def text():\n    return 'x'\n"),
    ],
)
def test_code_out_of_a_page(extract, code):
    from validation.sources import PREAMBLES, taken_out

    page = '''
@nki.jit
def inner(x):
    return x

PAGE = """
  def outer(x):
      return 'x'
"""

code=QQQdef text():
    return \\'x\\'
QQQ,
'''.replace("QQQ", "'" * 3)
    row = dataclasses.replace(rows()[0], dialect="nki", extract=extract, patches=())
    assert taken_out(page, row).removeprefix(PREAMBLES["nki"]).strip() == code.strip()
    with pytest.raises(ValueError, match="is not there"):
        taken_out(page, dataclasses.replace(row, patches=(("nowhere", ""),)))


def test_public_kernels_come_from_a_folder(tmp_path):
    """A clone with the kernel runs, one with another text does not, and neither does one that is not there."""
    from validation.rows import Call
    from validation.running import run_row

    source = b"import nki\nimport nki.isa as nisa\nimport nki.language as nl\n\n\n@nki.jit\ndef double(x):\n"
    source += b"    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n"
    source += b"    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)\n    nisa.dma_copy(dst=tile, src=x)\n"
    source += b"    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)\n"
    source += b"    nisa.dma_copy(dst=out, src=tile)\n    return out\n"
    blob = hashlib.sha1(b"blob %d\0" % len(source) + source).hexdigest()
    row = dataclasses.replace(
        rows()[0],
        chip="trn2",
        dialect="nki",
        repository="somebody/kernels",
        path="a/double.py",
        blob=blob,
        calls=(Call("double", {"x": "128x512:float32"}), Call("double", {"x": "128x64:float32"})),
        launch=False,
    )
    assert run_row(row, "public", None).why_not.startswith("public; give the folder")
    assert run_row(row, "public", tmp_path).why_not.startswith("no kernels/a/double.py; clone somebody/kernels at")
    (tmp_path / "kernels" / "a").mkdir(parents=True)
    (tmp_path / "kernels" / "a" / "double.py").write_bytes(source)
    both = run_row(row, "public", tmp_path)
    assert (both.why_not, both.instructions) == ("", 6)
    first = run_row(dataclasses.replace(row, calls=row.calls[:1]), "public", tmp_path)
    assert 0 < first.predicted_us < both.predicted_us
    second = run_row(dataclasses.replace(row, calls=row.calls[1:]), "public", tmp_path)
    assert both.predicted_us == pytest.approx(first.predicted_us + second.predicted_us)
    for found in ("busy", "stalls"):  # of all launches together
        waits = [getattr(each, found)["vector"] for each in (first, second, both)]
        shares = [wait if found == "busy" else wait[1] for wait in waits]
        spent_us = [share * each.predicted_us for share, each in zip(shares, (first, second, both), strict=True)]
        assert spent_us[2] == pytest.approx(spent_us[0] + spent_us[1])
        assert spent_us[2] > 0
    launched = run_row(dataclasses.replace(row, launch=True), "public", tmp_path)
    assert launched.predicted_us == pytest.approx(both.predicted_us + 20)  # two launches
    rings = run_row(dataclasses.replace(row, static_rings=True), "public", tmp_path)
    assert rings.predicted_us != both.predicted_us
    bad = dataclasses.replace(row, calls=(Call("double", {"x": "256x64:float32"}),))
    assert run_row(bad, "public", tmp_path).why_not.startswith("IllegalOperand: ")
    (tmp_path / "kernels" / "a" / "double.py").write_bytes(source + b"\n")
    assert "is another than that of" in run_row(row, "public", tmp_path).why_not
    beside = tmp_path / f"kernels@{row.commit[:8]}" / "a"  # a repository at two commits
    beside.mkdir(parents=True)
    (beside / "double.py").write_bytes(source)
    assert run_row(row, "public", tmp_path).why_not == ""


@pytest.mark.slow
def test_the_script(tmp_path):
    pytest.importorskip("matplotlib")
    json_file, plot = tmp_path / "rows.json", tmp_path / "plot.svg"
    done = run("--rows", "S2", "--json", str(json_file), "--plot", str(plot))
    assert done.returncode == 0, done.stderr
    assert "by family" in done.stdout
    assert "S2.vector_add" in done.stdout
    found = json.loads(json_file.read_text(encoding="utf-8"))
    (family,) = [each for each in found["families"] if each["name"] == "S2.vector_add"]
    errors = [abs(row["error"]) for row in found["rows"] if row["id"] in ("S2.2", "S2.3", "S2.5")]
    assert family["rows"] == len(errors) == 3
    assert family["median"] == pytest.approx(stats.median(errors))
    for row in found["rows"]:
        assert row["error"] == pytest.approx(row["predicted_us"] / row["measured_us"] - 1)
        assert 0 < max(row["busy"].values()) <= 1
    assert all(found["not_run"].values())
    assert plot.read_text(encoding="utf-8").startswith("<?xml")


def test_what_is_kept_is_not_run_again(tmp_path, monkeypatch):
    from validation import kept
    from validation.running import Outcome

    from neurosim.sweeps.journal import Journal

    file, (row, other) = tmp_path / "kept.jsonl", rows()[:2]
    outcome = Outcome(row.id, "own", 12.5, {"dma": 0.75}, {"dma": ["queue", 0.25]}, 3, 0.5, ["a note"])
    with Journal(file) as journal:
        kept.Kept(journal).put(row, outcome)
    with Journal(file) as journal:
        again = kept.Kept(journal)
        assert again.get(row, "own") == outcome
        assert again.get(row, "public") is again.get(other, "own") is None
        assert again.get(dataclasses.replace(row, chip="trn3"), "own") is None
        monkeypatch.setattr(kept, "own_digest", lambda: "another simulator's")
        assert kept.Kept(journal).get(row, "own") is None


def test_the_script_goes_on_where_it_was(tmp_path):
    file = tmp_path / "kept.jsonl"
    first = run("--rows", "S2.2", "--kept", str(file))
    header, line = file.read_text(encoding="utf-8").splitlines()
    held = json.loads(line)
    assert held["id"] == "S2.2"
    held["predicted_us"] *= 1000
    changed = f"{header}\n{json.dumps(held)}\n"
    file.write_text(changed, encoding="utf-8")
    second = run("--rows", "S2.2", "--kept", str(file))
    assert first.returncode == second.returncode == 0, second.stderr
    assert first.stdout != second.stdout
    assert file.read_text(encoding="utf-8") == changed


def test_how_far_the_model_is():
    """Our own kernels alone, without the two whose programs are long: the error of the median row."""
    from validation.running import run_row
    from validation.statistics import Held

    chosen = [row for row in rows() if row.own and row.family != "M1.matmul_tutorial"]
    members = [Held(row, run_row(row, "own", None)) for row in chosen]
    assert [each.outcome.why_not for each in members] == [""] * len(members)
    assert len(members) >= 10
    assert stats.median(abs(each.error) for each in members) < 0.2, [(each.row.id, each.error) for each in members]


def test_words_that_help():
    assert "no row has such a name" in run("--rows", "no-such-row").stderr
    assert "there is no such folder" in run("--public", "no-such-folder").stderr
