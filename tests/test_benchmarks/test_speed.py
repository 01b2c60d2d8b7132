"""``benchmarks/speed.py``: what it measures is what it says, and its table replaces the old one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module", autouse=True)
def importable():
    """Make ``costs`` importable, as it is for the script."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield


def test_the_record_of_an_instruction_takes_no_more_than_it_may():
    from costs.cases import long_program
    from costs.processes import record_bytes

    assert 50 < record_bytes(long_program, 9000) <= 200


def test_tiles_have_one_element_where_an_instruction_takes_that():
    from costs.instructions import _smallest, costs, medians

    assert {tile.shape for tile in next(_smallest("tensor_tensor")).operands.values() if hasattr(tile, "shape")} == {
        (1, 1)
    }
    names = ("tensor_tensor", "nc_matmul", "dma_copy", "bn_stats", "core_barrier")
    found = costs(1, names)
    assert set(found) == {*names[:-1]}  # cores that meet have no cost of their own
    assert found["tensor_tensor"].largest == found["nc_matmul"].largest == found["dma_copy"].largest == (1, 1)
    assert found["bn_stats"].largest[0] == 1
    assert all(cost.call > 0 < cost.viewed for cost in found.values())
    assert min(cost.call for cost in found.values()) <= medians(found)[0] <= max(cost.call for cost in found.values())


def test_both_ways_of_attention_compute_the_same(monkeypatch):
    from costs import cases
    from costs.cases import attention, ratio

    import neurosim

    case = attention(256, 64)
    ours = neurosim.simulate(case.kernel, chip="trn2")(*case.operands).outputs.astype(np.float32)
    np.testing.assert_allclose(ours, case.numpy(), atol=0.01)
    monkeypatch.setattr(cases, "SETTLED_S", 0.0)
    assert ratio(case, 1) > 0


def test_the_table_is_replaced(tmp_path, capsys):
    from costs.figures import BEGIN, END, Figure, show, write

    figures = [Figure("a matmul", 3.14, 4.0), Figure("a call", 12.5, 10.0, "µs"), Figure("told", 0.25, None, "s")]
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    write(page, figures, "a machine")
    lines = page.read_text(encoding="utf-8").splitlines()
    assert (lines[0], lines[1], lines[-2], lines[-1]) == ("before", BEGIN, END, "after")
    assert [line for line in lines if line.startswith("|")] == [
        "| a machine | measured | aim |",
        "|---|---:|---:|",
        "| a matmul | 3.1 × | ≤ 4 × |",
        "| a call | 12.5 µs | ≤ 10 µs |",
        "| told | 0.25 s |  |",
    ]
    show(figures)
    assert "12.5 µs" in capsys.readouterr().out
    page.write_text("no markers", encoding="utf-8")
    with pytest.raises(SystemExit, match="missing"):
        write(page, figures, "a machine")


def test_the_steps_of_timing_are_measured_where_they_are_taken():
    from costs.cases import long_program
    from costs.stages import STAGES, stages

    from neurosim.timing import time

    result = long_program(900)
    before = {name: getattr(module, name) for module, name in STAGES.values()}
    assert list(stages(lambda: time(result.program, result.chip))) == list(STAGES)
    assert {name: getattr(module, name) for module, name in STAGES.values()} == before


def test_what_depends_on_the_program_alone_is_worked_out_once(monkeypatch):
    from costs.cases import long_program

    from neurosim.analysis import dependences, lifetimes
    from neurosim.timing import passes, time

    result = long_program(9000)
    slow = result.chip.replace(tensor__clock_ghz=result.chip.tensor.clock_ghz / 2, sbuf__partition_bytes=1 << 16)
    expected = time(result.program.copy(), slow)[0].makespan_ps
    assert time(result.program, result.chip.replace(sbuf__partition_bytes=1 << 16))[0].makespan_ps < expected
    worked_out = ((dependences, "_compute"), (lifetimes, "_compute"), (lifetimes, "_Walk"), (passes, "_compile"))
    for module, name in worked_out:
        monkeypatch.setattr(module, name, None)  # calling it raises
    assert time(result.program, slow)[0].makespan_ps == expected
