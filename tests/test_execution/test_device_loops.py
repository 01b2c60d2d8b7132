"""Loops that run on the device: what they compute, that they are traced once, and what they take."""

from __future__ import annotations

import json
import warnings

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neurosim
from neurosim.analysis.dependences import Dependence, dependences
from neurosim.analysis.loops import trips
from neurosim.errors import IllegalOperand, UnknownBehavior, Unsupported
from neurosim.program import Program
from neurosim.run import reopen

F = np.float32
ROW = np.arange(1, 9, dtype=F).reshape(1, 8)


def number(value):
    return np.array([[value]], np.int32)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def register_of(x):
    """Return a register with the value of an input of one element."""
    register = nisa.register_alloc()
    nisa.register_load(register, nl.load(x))
    return register


def fori(start, stop, step, body):
    nl.fori_loop(start, stop, body, step)


def dynamic(start, stop, step, body):
    for i in nl.dynamic_range(start, stop, step):
        body(i)


LOOPS = {"fori_loop": fori, "dynamic_range": dynamic}
"""The two ways to write a loop that counts."""


def doubled(loop, start, stop, step=1):
    """Return a kernel that doubles the elements that a loop's variable reaches."""

    def kernel(x, low, high):
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        nl.store(out, nl.load(x))
        tile = nl.ndarray((1, 1), x.dtype)
        bounds = [register_of(bound) if kind == "register" else kind for bound, kind in ((low, start), (high, stop))]

        def body(i):
            nisa.dma_copy(dst=tile, src=x.ap([[8, 1], [1, 1]], scalar_offset=i, indirect_dim=1))
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
            nisa.dma_copy(dst=out[:, nl.ds(i, 1)], src=tile)

        loop(bounds[0], bounds[1], step, body)
        return out

    return kernel


@given(
    name=st.sampled_from(sorted(LOOPS)),
    registers=st.tuples(st.booleans(), st.booleans()),
    start=st.integers(0, 8),
    stop=st.integers(-2, 8),
    step=st.integers(1, 4),
)
def test_a_loop_reaches_what_range_does(name, registers, start, stop, step):
    """M11: bounds as numbers and as registers, no trip, one, and several."""
    low, high = ("register" if given else value for given, value in zip(registers, (start, stop), strict=True))
    expected = ROW.copy()
    expected[0, list(range(start, stop, step))] *= 2
    kernel = doubled(LOOPS[name], low, high, step)
    assert (neurosim.simulate(kernel)(ROW, number(start), number(stop)).outputs == expected).all()


def test_a_range_has_one_bound():
    def kernel(x):
        out = nl.ndarray((1, 1), nl.float32, nl.shared_hbm)
        total = nl.zeros((1, 1), nl.float32)
        for _ in nl.dynamic_range(3):
            nisa.tensor_tensor(dst=total, data1=total, data2=nl.load(x[0:1, 0:1]), op=nl.add)
        nl.store(out, total)
        return out

    assert neurosim.simulate(kernel)(ROW).outputs == 3


def counted_down(loop):
    """Return a kernel that multiplies by 2 as often as a condition says."""

    def kernel(count):
        out = nl.ndarray((1, 1), nl.float32, nl.shared_hbm)
        left, total = nl.load(count), nl.ones((1, 1), nl.float32)
        register = nisa.register_alloc()
        nisa.register_load(register, left)

        def body(r):
            nisa.tensor_scalar(dst=total, data=total, op0=nl.multiply, operand0=2.0)
            nisa.tensor_scalar(dst=left, data=left, op0=nl.subtract, operand0=1)
            nisa.register_load(r, left)
            return r

        loop(register, body)
        nl.store(out, total)
        return out

    return kernel


def while_loop(register, body):
    nl.while_loop(register, body)


def while_statement(register, body):
    while register:
        body(register)


def while_another(register, body):
    """The body returns another register than it was given."""

    def renamed(r):
        body(r)
        other = nisa.register_alloc()
        nisa.register_move(other, r)
        return other

    nl.while_loop(register, renamed)


@pytest.mark.parametrize("loop", [while_loop, while_statement, while_another])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_a_loop_by_condition(loop, count):
    assert neurosim.simulate(counted_down(loop))(number(count)).outputs == 2**count


def test_a_while_loop_leaves_its_first_condition_alone():
    def kernel(x):
        out = nl.ndarray((1, 1), nl.int32, nl.shared_hbm)
        register = nisa.register_alloc(4)

        def body(r):
            nisa.register_move(r, 0)
            return r

        nl.while_loop(register, body)
        nisa.register_store(out, register)
        return out

    assert neurosim.simulate(kernel)(ROW).outputs == 4


# -- traced once ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("name", [*sorted(LOOPS), "while"])
def test_python_runs_a_body_once(name, count):
    """What Python counts beside the loop has the first trip's state in every trip, as on hardware."""
    seen = []

    def kernel(n):
        out = nl.ndarray((1, 1), nl.float32, nl.shared_hbm)
        total, left = nl.zeros((1, 1), nl.float32), nl.load(n)
        register = nisa.register_alloc()
        nisa.register_load(register, left)

        def body(_):
            seen.append(1)
            nisa.tensor_scalar(dst=total, data=total, op0=nl.add, operand0=float(len(seen)))
            nisa.tensor_scalar(dst=left, data=left, op0=nl.subtract, operand0=1)

        if name == "while":
            while register:
                body(register)
                nisa.register_load(register, left)
        else:
            LOOPS[name](0, register, 1, body)
        nl.store(out, total)
        return out

    assert neurosim.simulate(kernel)(number(count)).outputs == count
    assert seen == [1]


def test_a_body_without_a_trip_is_checked():
    def kernel(x):
        nl.fori_loop(0, 0, lambda i: nisa.tensor_copy(dst=nl.ndarray((4, 4), nl.float32), src=nl.load(x)) and None)

    with pytest.raises(IllegalOperand, match="tensor_copy"):
        neurosim.simulate(kernel)(ROW)


def test_a_body_without_a_trip_does_nothing(capsys):
    def kernel(x):
        out, tile = nl.ndarray(x.shape, x.dtype, nl.shared_hbm), nl.load(x)

        def body(i):
            unwritten = nl.ndarray(x.shape, x.dtype)
            first = nisa.tensor_copy(dst=tile, src=unwritten)
            nisa.memset(dst=tile, value=0.0).depends_on(first)
            with nl.no_reorder():
                nl.store(out, unwritten)
            nl.device_print("never", tile)
            nisa.register_load(nisa.register_alloc(), unwritten[0:1, 0:1])
            nl.fori_loop(0, 3, lambda j: nl.store(out, unwritten))

        nl.fori_loop(0, 0, body)
        nl.store(out, tile)
        return out

    result = neurosim.simulate(kernel)(ROW)
    assert (result.outputs == ROW).all()
    assert [record.signature.instruction for record in result.program] == ["dma_copy", "loop", "dma_copy"]
    assert capsys.readouterr().out == ""


def test_tensors_print_in_each_trip(capsys):
    """F8: in order, with each trip's values."""

    def kernel(x):
        tile = nl.zeros((1, 1), nl.float32)

        def body(i):
            nl.device_print("tile", tile)
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
            nl.device_print("variable", i)

        nl.fori_loop(4, 7, body)

    neurosim.simulate(kernel)(ROW)
    printed = capsys.readouterr().out
    assert [line[-4:-2] for line in printed.splitlines() if line.startswith("[[")] == ["0.", "1.", "2."]
    assert [line for line in printed.splitlines() if line.startswith("variable")] == [
        f"variable register i = {value}" for value in (4, 5, 6)
    ]


@pytest.mark.parametrize("outer", sorted(LOOPS))
@pytest.mark.parametrize("inner", sorted(LOOPS))
def test_loops_in_loops(outer, inner):
    """The inner loop's bound is another in each trip, and 0 in the first, where Python traces its body."""

    def kernel(x):
        out = nl.ndarray((1, 1), nl.float32, nl.shared_hbm)
        total, index = nl.zeros((1, 1), nl.float32), nl.ndarray((1, 1), nl.int32)

        def body(i):
            nisa.register_store(index, i)
            bound = nisa.register_alloc()
            nisa.register_load(bound, index)

            def add(j):
                nisa.tensor_scalar(dst=total, data=total, op0=nl.add, operand0=1.0)

            LOOPS[inner](0, bound, 1, add)
            nisa.tensor_scalar(dst=total, data=total, op0=nl.multiply, operand0=2.0)

        LOOPS[outer](0, 4, 1, body)
        nl.store(out, total)
        return out

    expected = 0
    for i in range(4):
        expected = 2 * (expected + i)
    assert neurosim.simulate(kernel)(ROW).outputs == expected


def test_edges_and_blocks_in_a_body():
    """depends_on and no_reorder within a trip hold in each trip, among that trip's records."""

    def kernel(x):
        tiles = [nl.load(x) for _ in range(3)]

        def body(i):
            first = nisa.memset(dst=tiles[0], value=1.0)
            nisa.memset(dst=tiles[1], value=2.0).depends_on(first)
            with nl.no_reorder():
                nisa.memset(dst=tiles[0], value=3.0)
                nisa.memset(dst=tiles[2], value=3.0)

        nl.fori_loop(0, 3, body)

    program = neurosim.simulate(kernel)(ROW).program
    heads = [record.index for record in program if record.signature.instruction == "loop"]
    assert heads == [3, 8, 13, 18]
    assert program.edges == [edge for head in heads[:3] for edge in ((head + 2, head + 1), (head + 4, head + 3))]
    assert [program.record(head + 3).block for head in heads[:3]] == [0, 1, 2]


def test_errors_of_a_later_trip_name_their_own_line():
    def kernel(x):
        tile = nl.ndarray((1, 1), nl.float32)
        for i in nl.dynamic_range(12):
            nisa.dma_copy(dst=tile, src=x[:, nl.ds(i, 1)])

    with pytest.raises(IndexError, match="index 8") as caught:
        neurosim.simulate(kernel)(ROW)
    line = kernel.__code__.co_firstlineno + 3
    assert caught.value.where[0].endswith(f"test_device_loops.py:{line}  in kernel")


def product(trips, inside, accumulate=None):
    """Return a kernel that sums two products of a tile of ones in each trip, and adds them up in SBUF."""

    def kernel(x):
        out = nl.ndarray((4, 4), nl.float32, nl.shared_hbm)
        ones, total = nl.ones((4, 4), nl.float32), nl.zeros((4, 4), nl.float32)
        before = nl.ndarray((4, 4), nl.float32, nl.psum)

        def body(i):
            psum = nl.ndarray((4, 4), nl.float32, nl.psum) if inside else before
            for k in range(2):
                flag = None if accumulate is None else k > 0
                nisa.nc_matmul(dst=psum, stationary=ones, moving=ones, accumulate=flag)
            nisa.tensor_tensor(dst=total, data1=total, data2=psum, op=nl.add)

        nl.fori_loop(0, trips, body)
        nl.store(out, total)
        return out

    return kernel


def test_each_trip_begins_its_own_sums():
    """A tensor of the body is new in each trip: the first product overwrites, the next ones add."""
    assert (neurosim.simulate(product(3, inside=True))(ROW).outputs == 3 * 2 * 4).all()
    assert (neurosim.simulate(product(3, inside=False, accumulate=True))(ROW).outputs == 3 * 2 * 4).all()
    with pytest.raises(UnknownBehavior, match="whether each trip overwrites it or the first one alone"):
        neurosim.simulate(product(3, inside=False))(ROW)


def test_constants_of_a_body_stay():
    def kernel(x):
        out, total = nl.ndarray((1, 8), nl.float32, nl.shared_hbm), nl.zeros((1, 8), nl.float32)

        def body(i):
            constant = nl.load(nl.shared_constant(ROW))
            nisa.tensor_tensor(dst=total, data1=total, data2=constant, op=nl.add)

        nl.fori_loop(0, 3, body)
        nl.store(out, total)
        return out

    assert (neurosim.simulate(kernel)(ROW).outputs == 3 * ROW).all()


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_cores_meet_in_each_trip(trips):
    """Each core repeats its own body; they take turns at the meetings of every trip."""

    def kernel(x):
        out = nl.ndarray((2, 8), nl.float32, nl.shared_hbm)
        core = nl.program_id(0)
        mine, other = nl.load(x), nl.ndarray((1, 8), nl.float32)
        nisa.tensor_scalar(dst=mine, data=mine, op0=nl.add, operand0=float(core))

        def body(i):
            nisa.sendrecv(src=mine, dst=other, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0)
            nisa.tensor_tensor(dst=mine, data1=mine, data2=other, op=nl.add)

        nl.fori_loop(0, trips, body)
        nl.store(out[core : core + 1], mine)
        return out

    expected = [ROW[0], ROW[0] + 1]
    for _ in range(trips):
        expected = [sum(expected)] * 2
    result = neurosim.profile(nki.jit(kernel)[2])(ROW)
    assert (result.outputs == expected).all()
    assert len(result.timelines) == 2
    assert [record.core for record in result.program if record.signature.instruction == "loop"].count(1) == trips + 1


# -- runs without values, and other versions --------------------------------------------------------------------------


def test_runs_without_values_need_known_bounds():
    spec, one = neurosim.spec((1, 8), "float32"), neurosim.spec((1, 1), "int32")
    with_values = neurosim.simulate(doubled(fori, 2, 6))(ROW, number(2), number(6))
    without = neurosim.simulate(doubled(fori, 2, 6), values=False)(spec, one, one)
    assert without.program.listing() == with_values.program.listing()
    assert without.timeline.makespan_ps == with_values.timeline.makespan_ps
    with pytest.raises(Unsupported, match="its value is needed, and this run computes none") as caught:
        neurosim.simulate(doubled(fori, 2, "register"), values=False)(spec, one, one)
    assert caught.value.where
    with pytest.raises(Unsupported, match="its value is needed"):
        neurosim.simulate(counted_down(while_statement), values=False)(one)


@pytest.mark.parametrize("kernel", [doubled(dynamic, 0, 2), counted_down(while_statement)])
def test_the_older_loops_warn(kernel):
    arguments = (ROW, number(0), number(0)) if kernel.__code__.co_argcount == 3 else (number(2),)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        neurosim.simulate(kernel)(*arguments)
        neurosim.simulate(kernel, nki_version="0.5")(*arguments)
    (warning,) = caught
    assert warning.category is DeprecationWarning
    assert warning.filename == __file__
    assert "deprecated since NKI 0.6" in str(warning.message)


@pytest.mark.parametrize("kernel", [doubled(fori, 0, 2), counted_down(while_loop)])
def test_the_newer_loops_came_with_0_6(kernel):
    arguments = (ROW, number(0), number(0)) if kernel.__code__.co_argcount == 3 else (number(2),)
    with pytest.raises(IllegalOperand, match=r"came with NKI 0\.6, and this run asks for 0\.5"):
        neurosim.simulate(kernel, nki_version="0.5")(*arguments)


# -- the record, and time ---------------------------------------------------------------------------------------------


def nested(x):
    """Two trips of three."""
    tile, other = nl.load(x), nl.ndarray(x.shape, x.dtype)

    def outer(i):
        nisa.tensor_copy(dst=other, src=tile)

        def inner(j):
            for _ in range(2):
                nisa.tensor_scalar(dst=other, data=other, op0=nl.add, operand0=1.0)

        nl.fori_loop(0, 3, inner)

    nl.fori_loop(0, 2, outer)
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    nl.store(out, other)
    return out


@pytest.fixture(scope="module")
def result():
    return neurosim.profile(nested)(ROW)


def test_records_know_their_trips(result):
    program = result.program
    paths = [line.partition("; trip ")[2].split(" ")[0] for line in program.listing().splitlines()[1:]]
    inner = [path for j in range(3) for path in (f"0.{j}", f"0.{j}", "0")]
    trip = ["0", "0", *inner]  # the copy, the inner loop's first head, then two records and a head per trip
    assert paths == ["", "", *trip, "", *(path.replace("0", "1", 1) for path in trip), "", ""]


def test_trips_are_loops_of_the_source_too(result):
    """A trip of fori_loop stands before the loops of its body, which begin anew in it."""
    found = [tuple(trip.index for trip in around) for around in trips(result.program)]
    inner = [path for j in range(3) for path in ((0, j, 0), (0, j, 1), (0,))]
    first = [(0,), (0,), *inner]
    assert found == [(), (), *first, (), *((1, *path[1:]) for path in first), (), ()]


def test_nothing_crosses_the_head_of_a_loop(result):
    program, line = result.program, result.timeline
    found = dependences(program)
    heads = [record.index for record in program if record.signature.instruction == "loop"]
    assert len(heads) == 3 + 2 * 4
    for head in heads:
        before = [record for record in range(head) if not any(record < other < head for other in heads)]
        assert {producer for producer, _ in found.of(head)} >= set(before)
        assert max(line.complete_ps[:head]) <= line.start_ps[head]
        assert line.complete_ps[head] <= min(line.start_ps[head + 1 :])
        assert line.complete_ps[head] - line.start_ps[head] == 1000 * result.chip.sequencer.turn_ns
    for record in set(range(heads[0], len(program))) - set(heads):
        head = max(head for head in heads if head < record)
        assert head in {producer for producer, _ in found.of(record)}
    assert (heads[0], Dependence.MEET) in found.of(heads[0] + 1)


def test_each_trip_costs_time():
    """The same trip again and again: the makespan is linear in their number."""
    spans = []
    for count in (1, 2, 3, 9):
        outcome = neurosim.profile(doubled(fori, 0, count, 9))  # one trip whatever the bound
        assert outcome(ROW, number(0), number(0)).timeline.makespan_ps > 0
        spans.append(neurosim.profile(counted_down(while_loop))(number(count)).timeline.makespan_ps)
    per_trip = spans[1] - spans[0]
    assert spans[2] - spans[1] == per_trip
    assert spans[3] - spans[2] == 6 * per_trip
    assert per_trip > 1000 * neurosim.load_chip("trn2").sequencer.turn_ns


def test_a_measured_loop():
    """foxl-ai/kiln, trn1: 64 trips of one instruction take 0.257 ms on the device and 0.161 ms unrolled."""

    def kernel(x, unrolled):
        tile = nl.load(x)
        if unrolled:
            for _ in range(64):
                nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        else:
            for _ in nl.dynamic_range(64):
                nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)

    times = [neurosim.profile(kernel, "trn1")(ROW, unrolled).timeline.makespan_ps for unrolled in (False, True)]
    assert (times[0] - times[1]) / 64 == pytest.approx((0.257 - 0.161) * 1e9 / 64, rel=0.1)


def test_accounts_hold(result):
    line = result.timeline
    for account in line.engines.values():
        assert account.busy_ps + sum(account.stall_ps.values()) + account.idle_ps == line.makespan_ps
        assert min(account.busy_ps, account.idle_ps, *account.stall_ps.values()) >= 0
    assert line.engines["vector"].stall_ps["loop"] > 0
    assert "a loop's trip" in result.report()


def test_traces_have_the_heads(result, tmp_path):
    result.perfetto(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert sum(event.get("name", "").startswith("loop") and event["ph"] == "X" for event in events) == 11


def test_files_keep_the_trips(result, tmp_path):
    result.program.save(tmp_path / "program")
    program = Program.load(tmp_path / "program")
    assert program.trips == result.program.trips
    assert program.trip_ids == result.program.trip_ids
    assert program.listing() == result.program.listing()
    assert reopen(tmp_path / "program").timeline.makespan_ps == result.timeline.makespan_ps


def test_later_trips_take_lists_as_they_were():
    """What Python does to a list after a call is not part of it."""

    def kernel(x):
        tile, total = nl.load(x), nl.zeros((1, 8), nl.float32)

        def body(i):
            srcs = [total, tile]
            nisa.dma_compute(dst=total, srcs=srcs, reduce_op=nl.add)
            srcs.append(tile)

        nl.fori_loop(0, 3, body)
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=total)
        return out

    assert (neurosim.simulate(kernel)(ROW).outputs == 3 * ROW).all()


def test_a_body_that_is_checked_first_records_its_indices():
    """The first trip around it makes none of its own, and later ones take rows that a register chooses."""

    def kernel(x):
        total = nl.zeros((1, 8), nl.float32)

        def inner(j):
            row = nl.ndarray((1, 8), nl.float32)
            nisa.dma_copy(dst=row, src=x[nl.ds(j, 1)])
            nisa.tensor_tensor(dst=total, data1=total, data2=row, op=nl.add)

        nl.fori_loop(0, 4, lambda i: nl.fori_loop(0, i, inner))
        out = nl.ndarray((1, 8), nl.float32, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=total)
        return out

    x = np.arange(32, dtype=F).reshape(4, 8)
    result = neurosim.profile(kernel)(x)
    assert (result.outputs == 3 * x[0] + 2 * x[1] + x[2]).all()
    assert result.timeline.makespan_ps > 0
