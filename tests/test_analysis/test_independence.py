"""``affine_range`` promises independent iterations: a report names those that depend on each other, and no others."""

from __future__ import annotations

from pathlib import Path

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neurosim
from neurosim.analysis.independence import carried, note
from neurosim.program import Program

X = np.arange(8 * 16, dtype=np.float32).reshape(8, 16)


def new(columns=16):
    return nl.ndarray((8, columns), nl.float32)


def zeros(columns=16):
    tile = new(columns)
    nisa.memset(tile, value=0.0)
    return tile


def program_of(body, *arguments, **options):
    return neurosim.simulate(body, **options)(*(arguments or (X.copy(),))).program


def found(body, *arguments, **options):
    """Return what each loop's iterations do to each other: (what the later does, what the earlier did)."""
    return [(one.does, one.did) for one in carried(program_of(body, *arguments, **options))]


def line_of(text):
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.strip() == text)


# -- what depends -----------------------------------------------------------------------------------------------------


def running_sum(loop):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        total = nl.ndarray((8, 1), nl.float32)
        nisa.memset(total, value=0.0)
        for column in loop(16):
            x_column = nl.load(x[:, column : column + 1])
            nisa.tensor_tensor(dst=total, data1=total, data2=x_column, op=nl.add)  # adds
            nisa.dma_copy(dst=out[:, column : column + 1], src=total)  # uses
        return out

    return kernel


def test_a_running_sum_needs_its_order_and_both_lines_are_named():
    result = neurosim.profile(running_sum(nl.affine_range))(X)
    np.testing.assert_array_equal(result.outputs, np.cumsum(X, axis=1))  # values are right: here they run in order
    text = result.summary()["notes"]["Loops"]
    adds = line_of("nisa.tensor_tensor(dst=total, data1=total, data2=x_column, op=nl.add)  # adds")
    uses = line_of("nisa.dma_copy(dst=out[:, column : column + 1], src=total)  # uses")
    loop = line_of("for column in loop(16):")
    assert f"affine_range at test_independence.py:{loop}" in text
    assert f"iteration 1 adds to total at test_independence.py:{adds}, which iteration 0 reads" in text
    assert f"reads at test_independence.py:{uses}; use" in text
    assert "use nl.sequential_range" in text
    assert "\nLoops" in result.report()


@pytest.mark.parametrize("loop", [nl.sequential_range, nl.static_range, range])
def test_loops_in_order_promise_nothing(loop):
    result = neurosim.profile(running_sum(loop))(X)
    np.testing.assert_array_equal(result.outputs, np.cumsum(X, axis=1))
    assert "Loops" not in result.summary()["notes"]


def test_a_scan_that_carries_its_last_column():
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        ones, carry = new(4), zeros(1)
        nisa.memset(ones, value=1.0)
        for block in nl.affine_range(4):
            part = nl.load(x[:, 4 * block : 4 * block + 4])
            nisa.tensor_tensor_scan(part, ones, part, carry, nl.multiply, nl.add)
            nisa.tensor_copy(dst=carry, src=part[:, 3:4])
            nl.store(out[:, 4 * block : 4 * block + 4], part)
        return out

    (one,) = carried(program_of(kernel))
    assert (one.does, one.did, one.iterations) == ("reads", "wrote", (0, 1))


def test_through_hbm():
    def kernel(x, distance):
        for row in nl.affine_range(7):
            nl.store(x[row + 1 : row + 2], nl.load(x[row + 1 - distance : row + 2 - distance]))

    assert found(kernel, X.copy(), 1) == [("reads", "wrote")]
    assert found(kernel, X.copy(), 0) == []


def test_a_tile_from_before_the_loop_is_overwritten():
    def kernel(x, fresh):
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        tile = new(4)
        for block in nl.affine_range(4):
            if fresh:
                tile = new(4)
            nisa.dma_copy(dst=tile, src=x[:, 4 * block : 4 * block + 4])
            nl.store(out[:, 4 * block : 4 * block + 4], tile)
        return out

    assert found(kernel, X, False) == [("overwrites", "reads")]
    assert "allocate it in the loop" in note(program_of(kernel, X, False))
    assert found(kernel, X, True) == []


def test_the_last_of_several_writes_wins():
    def kernel(x):
        out = nl.ndarray((8, 4), x.dtype, nl.shared_hbm)
        for block in nl.affine_range(4):
            nl.store(out, nl.load(x[:, 4 * block : 4 * block + 4]))
        return out

    assert found(kernel) == [("overwrites", "wrote")]


# -- sums -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [nl.add, nl.multiply, nl.maximum, nl.minimum])
@pytest.mark.parametrize("first_writes", [False, True])
def test_sums_in_place_are_no_dependence(op, first_writes):
    def kernel(x):
        total = new(4) if first_writes else zeros(4)
        for block in nl.affine_range(4):
            part = nl.load(x[:, 4 * block : 4 * block + 4])
            if first_writes and block == 0:
                nisa.tensor_copy(dst=total, src=part)
            else:
                nisa.tensor_tensor(dst=total, data1=part, data2=total, op=op)
        out = nl.ndarray((8, 4), x.dtype, nl.shared_hbm)
        nl.store(out, total)
        return out

    assert found(kernel) == []


@pytest.mark.parametrize("accumulate", [None, "later"])
def test_sums_in_psum_are_no_dependence(accumulate):
    def kernel(x):
        tile = nl.load(x)
        total = nl.ndarray((16, 16), nl.float32, nl.psum)
        for trip in nl.affine_range(3):
            nisa.nc_matmul(total, tile, tile, accumulate=None if accumulate is None else trip > 0)
        out = nl.ndarray((16, 16), x.dtype, nl.shared_hbm)
        nl.store(out, nl.copy(total))
        return out

    assert found(kernel) == []


@pytest.mark.parametrize("memory", ["sbuf", "psum"])
@pytest.mark.parametrize("when", ["each", "last"])
def test_a_sum_that_is_used_within_the_loop_is_a_dependence(memory, when):
    def kernel(x):
        out = nl.ndarray((16, 16), x.dtype, nl.shared_hbm)
        tile = nl.load(x)
        total = nl.ndarray((16, 16), nl.float32, nl.psum)
        sums = nl.ndarray((16, 16), nl.float32)
        nisa.memset(sums, value=0.0)
        for trip in nl.affine_range(3):
            product = total if memory == "psum" else nl.ndarray((16, 16), nl.float32, nl.psum)
            nisa.nc_matmul(product, tile, tile)
            if memory == "sbuf":
                nisa.tensor_tensor(dst=sums, data1=sums, data2=product, op=nl.add)
            if when == "each" or trip == 2:
                nl.store(out, nl.copy(total) if memory == "psum" else sums)
        return out

    expected = ("reads", "added to") if when == "last" else ("adds to", "reads")
    assert found(kernel) == [expected]


@pytest.mark.parametrize(
    "change",
    [
        lambda total, part: nisa.tensor_tensor(dst=total, data1=part, data2=total, op=nl.subtract),
        lambda total, part: nisa.scalar_tensor_tensor(
            dst=total, data=total, op0=nl.multiply, operand0=0.5, op1=nl.add, operand1=part
        ),
        lambda total, part: nisa.tensor_tensor(dst=total, data1=total, data2=total, op=nl.add),
        lambda total, part: (
            nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add),
            nisa.tensor_scalar(dst=total, data=total, op0=nl.multiply, operand0=0.5),
        ),
    ],
    ids=["subtract", "decay", "double", "add and scale"],
)
def test_what_is_no_sum_in_any_order(change):
    def kernel(x):
        total = zeros(4)
        for block in nl.affine_range(4):
            change(total, nl.load(x[:, 4 * block : 4 * block + 4]))
        out = nl.ndarray((8, 4), x.dtype, nl.shared_hbm)
        nl.store(out, total)
        return out

    assert len(found(kernel)) == 1


# -- which iteration --------------------------------------------------------------------------------------------------


def test_a_loop_that_is_entered_again_begins_anew():
    """Only the outer loop carries something, and it makes no promise."""

    def kernel(x):
        tile = nl.load(x)
        for _ in range(3):
            for column in nl.affine_range(16):
                nisa.activation(dst=tile[:, column : column + 1], op=nl.exp, data=tile[:, column : column + 1])
        nl.store(x, tile)

    assert found(kernel, X.copy() * 0) == []


def test_an_outer_loop_whose_body_is_an_inner_one():
    def kernel(x):
        tile = nl.load(x)
        for _ in nl.affine_range(3):
            for column in range(16):
                nisa.activation(dst=tile[:, column : column + 1], op=nl.exp, data=tile[:, column : column + 1])
        nl.store(x, tile)

    assert found(kernel, X.copy() * 0) == [("reads", "wrote")]


def test_a_loop_that_is_left_early_and_what_comes_behind_it():
    def kernel(x):
        tile = new()
        for trip in nl.affine_range(3):
            nisa.dma_copy(dst=tile, src=x)
            if trip == 0:
                break
        nisa.dma_copy(dst=tile, src=x)
        nl.store(x, tile)

    program = program_of(kernel, X.copy())
    assert [(one.number, one.first, one.end) for one in program.iterations] == [(0, 0, 1)]
    assert carried(program) == []


def test_loops_that_python_runs_through_in_other_ways():
    def kernel(x):
        total = zeros(1)
        for index, column in enumerate(reversed(nl.affine_range(4)[1:])):
            nisa.tensor_scalar(
                dst=total, data=total, op0=nl.add, operand0=float(index + column), op1=nl.multiply, operand1=2.0
            )
        [nisa.memset(total, value=float(value)) for value in nl.affine_range(2)]
        nl.store(x[:, 0:1], total)

    assert found(kernel, X.copy()) == [("reads", "wrote"), ("overwrites", "wrote")]
    numbers = nl.affine_range(2, 11, 3)
    assert list(zip(numbers, reversed(numbers), strict=True)) == [(2, 8), (5, 5), (8, 2)]
    assert (numbers.start, numbers.stop, numbers.step, 5 in numbers, 6 in numbers) == (2, 11, 3, True, False)
    assert (numbers == range(2, 11, 3), hash(numbers) == hash(range(2, 11, 3)), numbers[-1]) == (True, True, 8)
    assert repr(numbers) == "affine_range(2, 11, 3)"


def test_each_core_iterates_by_itself():
    """Core 0 writes what only core 1 reads; the meeting lies between them, and no loop carries it."""

    def kernel(x):
        for trip in nl.affine_range(2):
            tile = new()
            if nl.program_id(0) == trip:
                nisa.dma_copy(dst=tile, src=x)
                nl.store(x, tile)
            nisa.core_barrier(x, (0, 1))

    assert carried(neurosim.simulate(kernel)[2](X.copy()).program) == []

    def own(x):
        tile = new()
        for _ in nl.affine_range(2):
            nisa.dma_copy(dst=tile, src=x)
            nisa.core_barrier(x, (0, 1))

    (one,) = carried(neurosim.simulate(own)[2](X.copy()).program)
    assert (one.does, one.did, one.iterations) == ("overwrites", "wrote", (0, 1))


def test_rows_that_only_the_run_knows_are_left_out():
    def kernel(x, rows):
        index = nl.load(rows)
        for _ in nl.affine_range(2):
            nisa.dma_copy(dst=x.vector_select(0, index), src=nl.load(x[0:2]))

    rows = np.array([[3], [5]], np.int32)
    assert found(kernel, X.copy(), rows) == []

    def indices(x, rows):
        index = nl.ndarray((2, 1), nl.int32)
        for _ in nl.affine_range(2):
            nisa.dma_copy(dst=index, src=rows)
            nisa.dma_copy(dst=x.vector_select(0, index), src=nl.load(x[0:2]))

    assert found(indices, X.copy(), rows) == [("overwrites", "reads")]  # their own place is known


def test_a_saved_program_and_one_without_values_say_the_same(tmp_path):
    program = program_of(running_sum(nl.affine_range), X)
    program.save(tmp_path / "program")
    assert carried(Program.load(tmp_path / "program"))[0].iterations == (0, 1)
    without = program_of(running_sum(nl.affine_range), neurosim.spec(X.shape, "float32"), values=False)
    assert note(without) == note(program) == note(Program.load(tmp_path / "program"))


def test_many_loops_stay_a_line():
    def kernel(x):
        tile = new()
        for _ in nl.affine_range(2):
            nisa.memset(tile, value=1.0)
        for _ in nl.affine_range(2):
            nisa.memset(tile, value=1.0)
        for _ in nl.affine_range(2):
            nisa.memset(tile, value=1.0)
        nl.store(x, tile)

    assert note(program_of(kernel, X.copy())).endswith("; and 1 loop more")


@nki.jit
def independent(x):
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    for block in nl.affine_range(4):
        part = nl.load(x[:, 4 * block : 4 * block + 4])
        for column in nl.affine_range(4):
            nisa.activation(dst=part[:, column : column + 1], op=nl.exp, data=part[:, column : column + 1])
        nl.store(out[:, 4 * block : 4 * block + 4], part)
    return out


def test_a_loop_that_keeps_its_promise():
    assert found(independent) == []
    assert len(program_of(independent).iterations) == 4 + 16


STEP = st.tuples(st.booleans(), st.integers(0, 3), st.integers(-1, 2), st.integers(1, 3))


@settings(max_examples=120, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=3), st.integers(1, 4))
def test_random_loops_are_those_of_a_twin_that_marks_elements(steps, count):
    """Each iteration copies columns of a tile to another and back; the twin knows who touched each column."""

    def spans(iteration):
        for writes, start, shift, width in steps:
            first = max(0, start + shift * iteration)
            yield writes, first, min(first + width, 16)

    def kernel(x):
        shared = nl.load(x)
        for iteration in nl.affine_range(count):
            for writes, first, last in spans(iteration):
                own = new(last - first)
                nisa.memset(own, value=0.0)
                if writes:
                    nisa.tensor_copy(dst=shared[:, first:last], src=own)
                else:
                    nisa.tensor_copy(dst=own, src=shared[:, first:last])

    touched = np.zeros((count, 2, 16), bool)
    for iteration in range(count):
        for writes, first, last in spans(iteration):
            touched[iteration, int(writes), first:last] = True
    depends = any(
        (touched[one, 1] & touched[other].any(axis=0)).any()
        for one in range(count)
        for other in range(count)
        if one != other
    )
    assert bool(found(kernel)) == depends


OPERATION = st.tuples(
    st.sampled_from(["write", "add", "multiply", "read", "scale"]), st.integers(0, 5), st.integers(-1, 1)
)


@settings(max_examples=80, deadline=None)
@given(st.lists(OPERATION, min_size=1, max_size=4), st.integers(2, 4))
def test_what_has_no_note_gives_the_same_in_another_order(operations, count):
    """All but the first iteration turned round; numbers are small and whole, so that sums are exact in any order."""

    def kernel(x, order):
        out = nl.ndarray((8, count * len(operations)), nl.float32, nl.shared_hbm)
        shared = nl.load(x)
        for iteration in order:
            for place, (what, first, shift) in enumerate(operations):
                column = shared[:, (first + shift * iteration) % 6 : (first + shift * iteration) % 6 + 1]
                own = new(1)
                nisa.memset(own, value=float(1 + (iteration + place) % 3))
                if what == "write":
                    nisa.tensor_copy(dst=column, src=own)
                elif what == "read":
                    nisa.tensor_copy(dst=own, src=column)
                elif what == "scale":  # two operators: no sum
                    nisa.tensor_scalar(
                        dst=column, data=column, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=float(iteration)
                    )
                else:
                    nisa.tensor_tensor(dst=column, data1=column, data2=own, op=getattr(nl, what))
                at = iteration * len(operations) + place
                nl.store(out[:, at : at + 1], own)
        nl.store(x, shared)
        return out

    data, turned = np.ones((8, 6), np.float32), np.ones((8, 6), np.float32)
    program = neurosim.simulate(kernel)(data, nl.affine_range(count))
    other = neurosim.simulate(kernel)(turned, [0, *range(count - 1, 0, -1)])
    if not carried(program.program):
        np.testing.assert_array_equal(data, turned)
        np.testing.assert_array_equal(program.outputs, other.outputs)
