"""Two cores: how a kernel is launched on them, what they share, how they take turns and how they end."""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import re
import subprocess
import sys
import threading
from pathlib import Path

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import (
    CapacityExceeded,
    DataRace,
    Deadlock,
    IllegalOperand,
    Unsupported,
    UnwrittenOutput,
)
from neurosim.launch.cores import Cores
from neurosim.shell.loading import load_module

F = np.float32
ROOT = Path(__file__).resolve().parents[2]
two_cores = load_module(Path(__file__).parents[1] / "two_cores.py")
no_thread_stays = two_cores.no_thread_stays
HALVES, exchange, on_two, swapped, tile = (
    two_cores.HALVES,
    two_cores.exchange,
    two_cores.on_two,
    two_cores.swapped,
    two_cores.tile,
)


def run(halves):
    """Run ``swapped`` on both cores anew: a replay has no threads."""
    return neurosim.simulate(swapped, replay=False)[2](halves).outputs


# -- launching --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda x: swapped[2](x),
        lambda x: swapped[(2,)](x),
        lambda x: swapped[nl.nc(2)](x),
        lambda x: swapped[np.int64(2)](x),
        lambda x: nki.simulate(swapped)[2](x),
        lambda x: nki.simulate(swapped[2])(x),
        lambda x: nki.simulate(swapped)[nl.nc(2)](x),
        lambda x: neurosim.simulate(swapped[2])(x).outputs,
        lambda x: neurosim.simulate(swapped)[2](x).outputs,
        lambda x: neurosim.profile(swapped[2])(x).outputs,
        lambda x: neurosim.profile(swapped, "trn3")[2](x).outputs,
        lambda x: swapped.with_schedule([])[2](x),
        lambda x: swapped[2].with_schedule([])(x),
    ],
)
def test_ways_to_launch_on_two_cores(call):
    np.testing.assert_array_equal(call(HALVES), HALVES[::-1])


@pytest.mark.parametrize(
    ("grid", "error", "words"),
    [
        (0, IllegalOperand, "not a number of cores"),
        (-2, IllegalOperand, "not a number of cores"),
        (True, IllegalOperand, "not a number of cores"),
        ("2", IllegalOperand, "not a number of cores"),
        (1.0, IllegalOperand, "not a number of cores"),
        (slice(2), IllegalOperand, "not a number of cores"),
        ((1, 2), Unsupported, "a grid of 2 axes"),
        (3, IllegalOperand, "at most 2 cores"),
        (8, IllegalOperand, "at most 2 cores"),
        (1 << 70, IllegalOperand, "not a number of cores"),
    ],
)
def test_grids_that_cannot_be(grid, error, words):
    with pytest.raises(error, match=words):
        swapped[grid](HALVES)


@pytest.mark.parametrize("chip", ["trn1", "inf2"])
def test_chips_whose_launches_have_one_core(chip):
    with pytest.raises(IllegalOperand, match=rf"launch on {chip} has at most 1 core\b") as caught:
        neurosim.simulate(swapped[2], chip)(HALVES)
    assert "trn2" in str(caught.value)


@pytest.mark.parametrize("count", [0, -1, 2.0, "2", True])
def test_numbers_of_cores_that_cannot_be(count):
    with pytest.raises(IllegalOperand, match="how many cores"):
        nl.nc(count)


def asked(grid):
    found = []

    def body(x):
        found.append((nl.program_id(), nl.program_id(axis=0), nl.num_programs(), nl.program_ndim()))
        found.append((nl.num_programs(None), nl.num_programs(axes=(0,)), nl.num_programs([0])))
        assert all(type(number) is int for answer in found for number in answer)
        out = nl.ndarray((1, 2), nl.float32, nl.shared_hbm)
        if nl.program_id() == 0:
            nl.store(out, nl.load(x))
        return out

    kernel = nki.jit(body)
    (kernel if grid is None else kernel[grid])(np.zeros((1, 2), F))
    return found


def test_programs_know_their_place():
    assert asked(None) == [(0, 0, 1, 0), (1, 1, 1)]
    assert asked(1) == [(0, 0, 1, 1), (1, 1, 1)]
    assert asked(2) == [(0, 0, 2, 1), (2, 2, 2), (1, 1, 2, 1), (2, 2, 2)]


@pytest.mark.parametrize("call", [lambda: nl.program_id(1), lambda: nl.num_programs(2), lambda: nl.program_id("x")])
def test_axes_that_the_grid_lacks(call):
    with pytest.raises(IllegalOperand, match="axis") as caught:
        on_two(lambda x: call(), HALVES)
    assert "test_cores.py" in caught.value.where[0]


def test_an_inner_kernel_is_part_of_its_programs():
    inner = nki.jit(lambda x: nl.load(x[nl.program_id(0)]))

    def body(halves, launch):
        out = nl.ndarray(halves.shape, halves.dtype, nl.shared_hbm)
        nl.store(out[nl.program_id(0)], launch()(halves))
        return out

    for launch in (lambda: inner, lambda: inner[1], lambda: inner[2]):
        np.testing.assert_array_equal(on_two(body, HALVES, launch).outputs, HALVES)
    with pytest.raises(IllegalOperand, match=r"\[2\] within a kernel that was launched as one program"):
        nki.jit(body)(HALVES, lambda: inner[2])


# -- what is shared ---------------------------------------------------------------------------------------------------


def test_sbuf_and_private_memory_belong_to_a_core():
    def body(x):
        out = nl.ndarray((2, 8, 6), nl.float32, nl.shared_hbm)
        mine = nl.ndarray((8, 6), nl.float32, nl.private_hbm, name="scratch")
        also_mine = nl.ndarray((8, 6), nl.float32, nl.hbm)
        placed = nl.ndarray((8, 6), nl.float32, nl.sbuf, address=(0, 0))
        nisa.memset(placed, value=float(nl.program_id(0)))
        nl.store(mine, placed)
        nisa.dma_copy(dst=also_mine, src=mine)
        nisa.core_barrier(out, (0, 1))
        nl.store(out[nl.program_id(0)], nl.load(also_mine))
        return out

    result = on_two(body, HALVES)
    np.testing.assert_array_equal(result.outputs, np.stack([np.zeros((8, 6)), np.ones((8, 6))]))
    storages = [info.name for info in result.program.storages]
    assert storages.count("scratch") == storages.count("SBUF plane") == 2
    assert storages.count("output") == 1


def test_registers_belong_to_a_core():
    """Each begins a sum before the two meet and ends it afterwards."""

    def body(x):
        out = nl.ndarray((2, 8, 1), nl.float32, nl.shared_hbm)
        own = nl.program_id(0)
        mine, total = nl.load(x[own]), tile((8, 1))
        options = {"dst": tile(), "op": nl.copy, "data": mine, "reduce_op": nl.add}
        nisa.activation(**options, reduce_cmd=nisa.reduce_cmd.reset_reduce)
        exchange(mine, tile())
        nisa.activation(**options, reduce_cmd=nisa.reduce_cmd.reduce, reduce_res=total)
        nl.store(out[own], total)
        return out

    np.testing.assert_array_equal(on_two(body, HALVES).outputs, 2 * HALVES.sum(axis=2, keepdims=True))


@pytest.mark.parametrize("name", ["", "both"])
def test_shared_tensors_are_those_of_one_line_or_name(name):
    """In a loop, the first of each core is the first of the other. Names that differ are different tensors."""

    def body(x):
        own, parts = nl.program_id(0), []
        if own and name:  # a name says enough where programs take different ways
            parts = [nl.ndarray((2, 1, 4), nl.float32, nl.shared_hbm, name=f"{name}{trip}") for trip in range(3)]
        else:
            for trip in range(3):
                parts.append(nl.ndarray((2, 1, 4), nl.float32, nl.shared_hbm, name=name and f"{name}{trip}"))
        for trip, part in enumerate(parts):
            row = tile((1, 4))
            nisa.memset(row, value=float(10 * trip + own))
            nl.store(part[own], row)
        return parts

    for trip, part in enumerate(on_two(body, HALVES).outputs):
        np.testing.assert_array_equal(part[:, 0, 0], [10 * trip, 10 * trip + 1])


def test_a_shared_tensor_has_one_shape():
    def body(x):
        return nl.ndarray((2, 3 + nl.program_id(0)), nl.float32, nl.shared_hbm)

    with pytest.raises(IllegalOperand, match=r"\[2, 4\] float32 .* another program .* \[2, 3\] float32") as caught:
        on_two(body, HALVES)
    assert any("there allocated at" in line and "test_cores.py" in line for line in caught.value.numbers)


def test_outputs_are_one_tensor():
    def body(x):
        if nl.program_id(0):
            out = nl.ndarray((2, 3), nl.float32, nl.shared_hbm)
        else:
            out = nl.ndarray((2, 3), nl.float32, nl.shared_hbm)
        return out

    with pytest.raises(IllegalOperand, match="return different tensors as output") as caught:
        on_two(body, HALVES)
    assert len({line.rpartition(" at ")[2] for line in caught.value.numbers}) == 2


@pytest.mark.parametrize(
    "returned", [lambda out: None, lambda out: [out, out], lambda out: {"a": out}, lambda out: out[0]]
)
def test_outputs_have_one_form(returned):
    def body(x):
        out = nl.ndarray((2, 8, 6), nl.float32, nl.shared_hbm)
        nl.store(out[nl.program_id(0)], nl.load(x[0]))
        return returned(out) if nl.program_id(0) else out

    with pytest.raises(IllegalOperand, match="return"):
        on_two(body, HALVES)


def test_an_output_is_written_by_both_together():
    def body(halves, cores):
        out = nl.ndarray(halves.shape, halves.dtype, nl.shared_hbm)
        if nl.program_id(0) in cores:
            nl.store(out[nl.program_id(0)], nl.load(halves[nl.program_id(0)]))
        return out

    np.testing.assert_array_equal(on_two(body, HALVES, (0, 1)).outputs, HALVES)
    with pytest.raises(UnwrittenOutput, match="never fully stored"):
        on_two(body, HALVES, (1,))


def test_inputs_are_shared_and_written_in_place():
    def body(x, config):
        config["seen"] = nl.program_id(0)  # each core has its own dict
        nl.store(x[nl.program_id(0)], nl.load(x[0]))
        return x

    data, config = np.zeros((2, 8, 6), F), {"seen": 5}
    config_before = dict(config)
    with pytest.raises(DataRace):
        on_two(body, data, config)
    assert config == config_before

    def good(x):
        own = nl.program_id(0)
        row = tile()
        nisa.memset(row, value=1.0 + own)
        nl.store(x[own], row)
        return x

    on_two(good, data)
    np.testing.assert_array_equal(data[:, 0, 0], [1, 2])


def test_a_tile_of_another_core_cannot_be_reached():
    smuggled = []

    def body(x):
        smuggled.append(nl.load(x[nl.program_id(0)]))
        nisa.reciprocal(dst=smuggled[0], data=smuggled[0])

    with pytest.raises(IllegalOperand, match="on another core or in another run") as caught:
        on_two(body, HALVES)
    assert "on core 1" in caught.value.numbers


def test_without_values():
    specs = neurosim.spec((2, 8, 6), "float32")
    result = neurosim.simulate(swapped[2], values=False)(specs)
    assert result.outputs == specs
    full = neurosim.simulate(swapped[2])(HALVES)
    assert result.program.listing() == full.program.listing()
    assert [timeline.makespan_ps for timeline in result.timelines.values()] == [
        timeline.makespan_ps for timeline in full.timelines.values()
    ]


# -- taking turns -----------------------------------------------------------------------------------------------------


def test_turns_are_taken_at_meetings_alone():
    order = []

    def body(x):
        out = nl.ndarray((2,), nl.float32, nl.shared_hbm)
        for step in range(3):
            order.append((nl.program_id(0), step))
            nisa.core_barrier(out, (0, 1))
        order.append((nl.program_id(0), 3))

    on_two(body, HALVES)
    assert order == [(0, 0), (1, 0), (1, 1), (0, 1), (0, 2), (1, 2), (1, 3), (0, 3)]


def test_in_the_record_a_meeting_divides_before_from_after():
    program = neurosim.simulate(swapped[2])(HALVES).program
    ((first, count),) = program.meetings
    assert count == 2
    assert [program.cores[first], program.cores[first + 1]] == [0, 1]
    names = [record.signature.instruction for record in program]
    assert names[:first] == ["dma_copy"] * 2
    assert sorted(program.cores[first + 2 :]) == [0, 1]


def test_context_variables_and_numpy_settings_reach_both_cores():
    variable = contextvars.ContextVar("variable", default="unset")
    seen = []

    def body(x):
        seen.append((variable.get(), np.geterr()["divide"]))
        variable.set(f"core {nl.program_id(0)}")
        nisa.core_barrier(nl.ndarray((2,), nl.float32, nl.shared_hbm), (0, 1))
        seen.append(variable.get())

    variable.set("caller")
    with np.errstate(divide="raise"):
        on_two(body, HALVES)
    assert seen == [("caller", "raise"), ("caller", "raise"), "core 1", "core 0"]


def test_a_run_within_a_run_of_two_cores():
    results = []

    def body(x, array):
        results.append(run(array))

    on_two(lambda x: body(x, HALVES), HALVES)
    assert len(results) == 2
    for result in results:
        np.testing.assert_array_equal(result, HALVES[::-1])


def test_runs_on_several_threads_do_not_disturb_each_other():
    found = {}

    def work(number):
        found[number] = run(HALVES + number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        np.testing.assert_array_equal(found[number], HALVES[::-1] + number)


# -- ending -----------------------------------------------------------------------------------------------------------


def deadlocked(body):
    with pytest.raises(Deadlock, match="no core can move") as caught:
        on_two(body, HALVES)
    return [re.sub(r"\S*test_cores.py:\d+", "LINE", line) for line in caught.value.numbers]


def meet(x):
    nisa.core_barrier(x, (0, 1))


@pytest.mark.parametrize("core", [0, 1])
def test_a_core_that_waits_for_one_that_has_ended(core):
    lines = deadlocked(lambda x: meet(x) if nl.program_id(0) == core else None)
    assert lines[1 - core] == f"core {1 - core} has ended"
    assert lines[core] == f"core {core} waits at core_barrier(cores=(0, 1)), LINE  in meet"


def test_cores_that_wait_at_different_meetings():
    def body(x):
        row = nl.load(x[0])
        for pipe in (0, 1) if nl.program_id(0) else (1, 0):
            other = 1 - nl.program_id(0)
            nisa.sendrecv(src=row, dst=tile(), send_to_rank=other, recv_from_rank=other, pipe_id=pipe)

    assert deadlocked(body) == [
        "core 0 waits at sendrecv(pipe_id=1), LINE  in body",
        "core 1 waits at sendrecv(pipe_id=0), LINE  in body",
    ]


def test_a_barrier_is_no_sendrecv():
    lines = deadlocked(lambda x: meet(x) if nl.program_id(0) else exchange(nl.load(x[0]), tile()))
    assert ["sendrecv" in lines[0], "core_barrier" in lines[1]] == [True, True]


@pytest.mark.parametrize("core", [0, 1])
@pytest.mark.parametrize("before", [True, False])
def test_an_error_on_one_core_ends_both(core, before):
    class Mine(Exception):
        pass

    reached = []

    def body(x):
        if before and nl.program_id(0) == core:
            raise Mine("as it was")
        meet(x)
        if nl.program_id(0) == core:
            raise Mine("as it was")
        meet(x)
        reached.append(nl.program_id(0))

    with pytest.raises(Mine, match="as it was") as caught:
        on_two(body, HALVES)
    assert caught.value.__notes__ == [f"on core {core}"]
    assert "body" in [entry.name for entry in caught.traceback]
    assert reached == []
    np.testing.assert_array_equal(run(HALVES), HALVES[::-1])
    with pytest.raises(neurosim.errors.KernelError, match="outside of a kernel"):
        nl.program_id()


@pytest.mark.parametrize("core", [0, 1])
def test_an_error_of_an_instruction_names_line_and_core(core):
    def body(x):
        if nl.program_id(0) == core:
            nisa.reciprocal(dst=tile((8, 6)), data=tile((8, 5)))
        meet(x)

    with pytest.raises(IllegalOperand) as caught:
        on_two(body, HALVES)
    assert "in body" in caught.value.where[0]
    assert f"on core {core}" in str(caught.value)


def test_capacity_is_each_cores_own():
    def body(x, columns):
        big = tile((128, columns))
        nisa.memset(big, value=0.0)
        meet(x)
        nisa.tensor_copy(dst=big, src=big)

    on_two(body, HALVES, 50000)  # 200 KB a partition, on both

    def two(x):
        meet(x)
        if nl.program_id(0) == 0:
            one, other = tile((128, 50000)), tile((128, 50000))
            nisa.memset(one, value=0.0)
            nisa.memset(other, value=0.0)
            nisa.tensor_copy(dst=one, src=other)

    with pytest.raises(CapacityExceeded, match=r"SBUF of core 0"):
        on_two(two, HALVES)


class Interrupted(BaseException):
    """Stands for Ctrl-C, which Python raises in the thread that called."""


@pytest.mark.parametrize("swallows", [False, True])
def test_an_interrupt_of_the_caller_ends_the_core_that_runs(swallows):
    """Core 0 waits in the caller's thread, and core 1 is in a loop that issues nothing."""
    caller = threading.get_ident()
    turns = []

    def body(x):
        if nl.program_id(0) == 0:
            meet(x)
            return
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(caller), ctypes.py_object(Interrupted))
        while True:
            with contextlib.suppress(BaseException if swallows and not turns else ()):
                while True:
                    turns.append(len(turns))
                    threading.Event().wait(0.001)

    # A real signal interrupts the wait for the baton; an exception that is set from outside only arrives after it.
    cores = Cores.run

    def interruptible(self, bodies):
        acquire = self._batons[0].acquire
        self._batons[0].acquire = lambda: all(not acquire(timeout=0.01) for _ in iter(int, 1))
        return cores(self, bodies)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cores, "run", interruptible)
        with pytest.raises(Interrupted):
            on_two(body, HALVES)
    np.testing.assert_array_equal(run(HALVES), HALVES[::-1])


def test_a_thread_that_ends_slowly_is_not_interrupted(monkeypatch):
    """On a busy machine it may take long to get its next turn."""
    hand_over, ended = Cores._hand_over, []

    def slow(self, me):
        hand_over(self, me)
        if me and self._ended[me]:
            threading.Event().wait(0.2)
            ended.append(me)

    monkeypatch.setattr(Cores, "_hand_over", slow)
    np.testing.assert_array_equal(run(HALVES), HALVES[::-1])
    assert ended == [1]


INTERRUPTED = """
import os, signal, threading
import nki, nki.isa as nisa, nki.language as nl, numpy as np

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it

@nki.jit
def kernel(x):
    if nl.program_id(0) == 0:
        nisa.core_barrier(x, (0, 1))  # core 0 waits in the main thread, where Python raises KeyboardInterrupt
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    while True:
        pass

try:
    nki.simulate(kernel)[2](np.zeros((2, 4), np.float32))
except KeyboardInterrupt:
    cores = [thread.name for thread in threading.enumerate() if thread.name.startswith("core")]
    print("interrupted", cores)
"""


def test_ctrl_c_ends_both_cores(tmp_path):
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED, encoding="utf-8")
    command = [sys.executable, "-m", "neurosim.cli", "run", str(script)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.stdout == "interrupted []\n", done.stderr
