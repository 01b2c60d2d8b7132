"""The code that is written for each instruction: calls like an earlier one take a short way, and find the same."""

from __future__ import annotations

import gc
import threading
import traceback
import weakref

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import IllegalCall, IllegalOperand
from neurosim.execution.straight import Functions, source
from neurosim.nki import _catalogue
from neurosim.program import MOST_ROWS

F = np.float32


def tile_of(value=1.0, shape=(4, 4)):
    tile = nl.ndarray(shape, nl.float32, nl.sbuf)
    nisa.memset(dst=tile, value=value)
    return tile


def program_of(body):
    return neurosim.simulate(lambda: body())().program


@pytest.mark.parametrize("name", _catalogue.instructions())
def test_what_is_written_names_each_operand_once_and_has_no_names_of_its_own_that_nki_has(name):
    cls = _catalogue.instructions()[name].instruction
    text = source(cls)
    names = [name for name, _ in cls.declared()]
    assert text.startswith(f"def {name}({names[0]}=")
    assert all(f"    self.{name} = {name}\n" in text for name in names)
    assert not any(name.startswith("_") or name in ("self", "MISSING", "Tensor", "Handle") for name in names)


def test_code_is_written_when_it_is_called_for_the_first_time():
    found = Functions(nisa.tensor_copy.instruction)
    held, before = found.call, found.call.__code__

    def body():
        tile = tile_of()
        for _ in range(2):
            held(dst=tile, src=tile)

    program = program_of(body)
    assert [program.signatures[number].instruction for number in program.signature_ids] == [
        "memset",
        "tensor_copy",
        "tensor_copy",
    ]
    assert found.call is held
    assert held.__code__ is not before
    assert len(set(program.stack_ids)) == 2

    with pytest.raises(IllegalCall, match="tensor_copy: got multiple values for argument 'dst'"):
        program_of(lambda: Functions(nisa.tensor_copy.instruction).call(tile_of(), dst=tile_of()))


def test_parameters_that_are_equal_and_not_the_same_are_other_signatures():
    def body():
        tile = tile_of()
        for _ in range(3):
            for value in (1, 1.0, 0.0, -0.0, 0, F(1), F(-0.0)):
                nisa.memset(dst=tile, value=value)
                nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=value)

    program = program_of(body)
    names = [program.signatures[number].instruction for number in program.signature_ids[1:]]
    assert names == ["memset", "tensor_scalar"] * 21
    first, second, third = (list(program.signature_ids[1 + 14 * trip : 15 + 14 * trip]) for trip in range(3))
    assert first == second == third
    assert len(set(first[::2])) == len(set(first[1::2])) == 7


def test_what_is_equal_to_a_number_is_refused_after_the_number_was_taken():
    def body():
        tile = tile_of()
        for value in (1, 1.0, True):
            nisa.memset(dst=tile, value=value)

    with pytest.raises(IllegalOperand, match="memset: value True is not a number"):
        program_of(body)


def test_views_in_psum_at_other_places_are_other_signatures():
    def body():
        bank = nl.ndarray((4, 1024), nl.float32, nl.psum)
        for begin in (0, 512, 0, 512):
            nisa.memset(dst=bank[:, begin : begin + 512], value=1.0)
        tile = tile_of(shape=(64, 1024))
        for rows, begin in ((0, 0), (0, 512), (32, 0)):
            nisa.memset(dst=tile[rows : rows + 4, begin : begin + 512], value=1.0)

    numbers = list(program_of(body).signature_ids)
    assert numbers[0] == numbers[2] != numbers[1] == numbers[3]
    assert numbers[5] == numbers[6] != numbers[7]


def test_a_view_that_indices_place_is_not_known_by_its_pattern():
    """The same pattern, at a fixed place and then where a register says: both are what they are, in either order."""

    def kernel(x):
        out = nl.ndarray((2, 4), nl.float32, nl.shared_hbm)
        tile = nl.ndarray((2, 4), nl.float32, nl.sbuf)
        for _ in range(2):
            nisa.dma_copy(dst=tile, src=x[0:2, :])
            register = nisa.register_alloc(2)
            nisa.dma_copy(dst=tile, src=x[nl.ds(register, 2), :])
        nisa.dma_copy(dst=out, src=tile)
        return out

    x = np.arange(16, dtype=F).reshape(4, 4)
    np.testing.assert_array_equal(neurosim.simulate(kernel)(x).outputs, x[2:])


# -- where a call stands


def places(program):
    return [tuple(frame.line for frame in program.where(index)) for index in range(1, len(program))]


def test_a_generator_that_goes_on_elsewhere_has_the_call_stack_of_where_it_goes_on():
    def body():
        tile = tile_of()

        def steps():
            while True:
                nisa.tensor_copy(dst=tile, src=tile)
                yield

        running = steps()
        next(running)
        for _ in range(2):
            next(running)

    lines = places(program_of(body))
    assert lines[1] == lines[2]
    assert lines[0][0] == lines[1][0]
    assert lines[1][1] == lines[0][1] + 2


def test_a_helper_that_is_called_twice_has_two_call_stacks():
    def helper(tile):
        for _ in range(2):
            nisa.tensor_copy(dst=tile, src=tile)

    def body():
        tile = tile_of()
        helper(tile)
        nisa.tensor_copy(dst=tile, src=tile)
        helper(tile)

    first, again, between, second, last = places(program_of(body))
    assert first == again != second == last
    assert first[0] == second[0]
    assert (first[1] + 1, first[1] + 2) == (between[0], second[1])


def test_a_run_keeps_no_variable_of_its_kernel():
    kept = []

    class Local:
        pass

    def body():
        local = Local()
        kept.append(weakref.ref(local))
        nisa.tensor_copy(dst=tile_of(), src=tile_of())

    result = neurosim.simulate(lambda: body())()
    gc.collect()
    assert kept[0]() is None
    assert len(result.program) == 3


def test_an_error_shows_the_code_that_is_written():
    call = Functions(nisa.reciprocal.instruction).call

    with pytest.raises(IllegalOperand) as caught:
        program_of(lambda: call(dst=tile_of(), data=None))
    assert "_issue(self" in "".join(traceback.format_tb(caught.tb))


# -- rows and columns


def many():
    tile = tile_of()
    for _ in range(MOST_ROWS + 100):
        nisa.tensor_copy(dst=tile[:, 0:2], src=tile[0:4, 1:3])


def test_rows_become_columns_when_one_is_asked_for_and_when_they_are_many():
    program = neurosim.simulate(lambda: many(), values=False, replay=False)().program
    count = MOST_ROWS + 101
    assert len(program) == count
    assert len(program.signature_ids) == len(program.stack_ids) == len(program.cores) == len(program.blocks) == count
    assert len(program.slot_starts) == count + 1
    assert program.record(count - 1).slots == program.record(1).slots == ((0, 0), (0, 4))
    assert program.rows == []


def test_two_threads_that_ask_at_once_find_the_same_columns():
    program = program_of(lambda: None)
    for number in range(3000):
        program.append(number, [number, 2 * number], 3 * number)
    found, gate = [], threading.Barrier(4)

    def ask(name):
        gate.wait()
        found.append(getattr(program, name)[:])

    threads = [threading.Thread(target=ask, args=(name,)) for name in ("slots", "stack_ids", "slots", "signature_ids")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(len, found)) == [3000, 3000, 6000, 6000]
    assert list(program.slot_starts) == list(range(0, 6001, 2))
    assert list(program.stack_ids) == list(range(0, 9000, 3))


# -- results that are written at once


OVERLAPPING = {
    "tensor_tensor": lambda dst, src, other: nisa.tensor_tensor(dst=dst, data1=src, data2=other, op=nl.add),
    "tensor_tensor, the other": lambda dst, src, other: nisa.tensor_tensor(dst=dst, data1=other, data2=src, op=nl.add),
    "tensor_scalar": lambda dst, src, other: nisa.tensor_scalar(dst=dst, data=src, op0=nl.add, operand0=2.0),
    "tensor_scalar, a column": lambda dst, src, other: nisa.tensor_scalar(
        dst=dst, data=other, op0=nl.add, operand0=src[:, 2:3]
    ),
    "tensor_scalar, twice": lambda dst, src, other: nisa.tensor_scalar(
        dst=dst, data=src, op0=nl.add, operand0=1.0, op1=nl.multiply, operand1=src[:, 3:4]
    ),
    "scalar_tensor_tensor": lambda dst, src, other: nisa.scalar_tensor_tensor(
        dst=dst, data=other, op0=nl.add, operand0=1.0, op1=nl.multiply, operand1=src
    ),
    "activation": lambda dst, src, other: nisa.activation(dst=dst, op=nl.square, data=src),
    "activation, a column": lambda dst, src, other: nisa.activation(
        dst=dst, op=nl.copy, data=other, bias=src[:, 2:3], scale=2.0
    ),
    "reciprocal": lambda dst, src, other: nisa.reciprocal(dst=dst, data=src),
}


@pytest.mark.parametrize("name", OVERLAPPING)
@pytest.mark.parametrize("begin", range(3))
def test_a_result_that_lies_over_its_source_is_what_it_is_beside_it(name, begin):
    """All is read before anything is written, wherever the results go; a row of 9, results at 1 to 6."""

    def kernel(x, apart):
        tile, other, copy = (nl.ndarray((1, 9), nl.float32, nl.sbuf) for _ in range(3))
        for each in (tile, other, copy):
            nisa.dma_copy(dst=each, src=x)
        for _ in range(2):  # the second call is like an earlier one
            nisa.dma_copy(dst=tile, src=x)
            nisa.dma_copy(dst=copy, src=x)
            source = copy if apart else tile
            OVERLAPPING[name](tile[:, 1:7], source[:, begin : begin + 6], other[:, 3:9])
        out = nl.ndarray((1, 9), nl.float32, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    x = np.array([[3, -1.5, 0.25, 7, 2, -9, 0.5, 4, 11]], F)
    over, beside = (neurosim.simulate(kernel, replay=False)(x, apart).outputs for apart in (False, True))
    np.testing.assert_array_equal(over.view(np.uint32), beside.view(np.uint32))
    assert (over[0, 1:7] != x[0, 1:7]).any()
