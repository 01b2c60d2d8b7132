"""What reports and files say of two cores."""

from __future__ import annotations

import contextlib
from pathlib import Path

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import (
    ConfigurationError,
    IllegalOperand,
)
from neurosim.shell.loading import load_module

F = np.float32
two_cores = load_module(Path(__file__).parents[1] / "two_cores.py")
no_thread_stays = two_cores.no_thread_stays
HALVES, exchange, on_two, swapped, tile = (
    two_cores.HALVES,
    two_cores.exchange,
    two_cores.on_two,
    two_cores.swapped,
    two_cores.tile,
)


def test_results_of_one_core_can_be_asked_for():
    result = neurosim.simulate(swapped[2])(HALVES)
    assert sorted(result.timelines) == [0, 1]
    assert [result.summary(core)["core"] for core in (0, 1)] == [0, 1]
    assert "core 1" in result.report(1).splitlines()[0]
    assert "2 cores" in result.report().splitlines()[0]
    with pytest.raises(ConfigurationError, match="ran on cores 0, 1 only"):
        result.summary(2)


def test_the_summary_is_of_both_cores():
    """Core 0 stores twice as much as core 1, so that it ends last; both go through one HBM."""

    def body(x, out):
        own = nl.program_id(0)
        for trip in range(8 if own == 0 else 4):
            nl.store(out[own, trip], nl.load(x[own, trip]))
        return out

    specs = [neurosim.spec((2, 8, 128, 2048), "bfloat16")] * 2
    result = neurosim.simulate(nki.jit(body)[2], values=False, partial_outputs=["output"])(*specs)
    total, cores = result.summary(), [result.summary(core) for core in (0, 1)]
    assert total["core"] == 0
    assert total["makespan_ps"] == cores[0]["makespan_ps"] > cores[1]["makespan_ps"]
    assert result.timeline is result.timelines[0]
    assert total["engines"] == cores[0]["engines"]
    assert total["lines"] == cores[0]["lines"]
    for key in ("read_bytes", "written_bytes"):
        assert total["hbm"][key] == cores[0]["hbm"][key] + cores[1]["hbm"][key]
    assert total["hbm"]["peak_gb_per_s"] == cores[0]["hbm"]["peak_gb_per_s"]
    assert total["instructions"] == 24
    moved_ps = (total["hbm"]["read_bytes"] + total["hbm"]["written_bytes"]) * 1000 / total["hbm"]["peak_gb_per_s"]
    assert total["mbu"] == pytest.approx(moved_ps / total["makespan_ps"])
    assert cores[0]["roofline"]["least_ps"] < cores[0]["makespan_ps"]
    assert round(moved_ps) <= total["roofline"]["least_ps"] <= total["makespan_ps"]
    for core, own in zip(total["cores"], cores, strict=True):
        for account in core["engines"].values():
            assert account["busy_ps"] + sum(account["stall_ps"].values()) + account["idle_ps"] == core["makespan_ps"]
        assert own["cores"] == [core]


def test_a_program_of_two_cores_can_be_saved(tmp_path):
    result = neurosim.simulate(swapped[2])(HALVES)
    result.program.save(tmp_path / "two")
    again = result.program.load(tmp_path / "two")
    assert again.meetings == result.program.meetings
    assert again.listing() == result.program.listing()
    assert "meets" in again.listing()


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1.5, True, None, "1", [1]])
@pytest.mark.parametrize("what", ["pipe_id", "send_to_rank", "cores"])
def test_numbers_that_are_none(what, number):
    def body(x):
        if what == "cores":
            nisa.core_barrier(x, (0, number))
            return
        src = nl.load(x[0])
        given = {"send_to_rank": 1 - nl.program_id(0), "recv_from_rank": 1 - nl.program_id(0), "pipe_id": 0}
        nisa.sendrecv(src=src, dst=tile(), **(given | {what: number}))

    with pytest.raises(IllegalOperand, match=f"{what}=.* is (not an int|no rank)|cores="):
        on_two(body, HALVES)


def test_cores_may_not_be_floats_or_arrays():
    for cores, words in (((0.0, 1.0), "cores="), (np.array([0, 1]), "cores is a NumPy array")):
        with pytest.raises(IllegalOperand, match=words):
            on_two(lambda x, cores=cores: nisa.core_barrier(x, cores), HALVES)


def test_a_core_that_catches_everything_ends_with_the_others():
    """Core 1 fails while core 0 waits; core 0 has bare excepts, and comes to meetings that nobody will reach."""

    def body(x):
        if nl.program_id(0):
            raise ValueError("core 1 fails")
        for _ in range(3):
            with contextlib.suppress(BaseException):
                exchange(nl.load(x[0]), tile())

    with pytest.raises(ValueError, match="core 1 fails"):
        on_two(body, HALVES)


@pytest.mark.parametrize("core", [2, "0", [1]])
def test_cores_that_a_run_lacks(core):
    result = neurosim.simulate(swapped)[2](HALVES)
    for ask in (result.summary, result.report):
        with pytest.raises(ConfigurationError, match="ran on cores 0, 1 only"):
            ask(core)


@pytest.mark.parametrize("times", [{"first_ps": "a"}, {"last_ps": 2.5}, {"last_ps": [1]}])
def test_times_of_a_trace_are_ints(times, tmp_path):
    with pytest.raises(ConfigurationError, match="not made of ints"):
        neurosim.simulate(swapped)[2](HALVES).perfetto(tmp_path / "trace.json", **times)
