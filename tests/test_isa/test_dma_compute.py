"""dma_compute: sums in the DMA engines, and rows of HBM that are added to in place."""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neurosim
from neurosim.errors import IllegalOperand, OutOfBounds, Uninitialized, UnknownBehavior

BFLOAT16 = nl.bfloat16.numpy


def run(kernel, *arrays, chip="trn2", **keywords):
    return neurosim.simulate(kernel, chip=chip)(*arrays, **keywords).outputs


def load(array):
    tile = nl.ndarray(array.shape, dtype=array.dtype)
    nisa.dma_copy(dst=tile, src=array)
    return tile


def store(tile):
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def column(values):
    return np.array(values, np.int32).reshape(-1, 1)


def summed(*arrays, dtype=None, **options):
    tile = nl.ndarray(arrays[0].shape, dtype=dtype or arrays[0].dtype)
    nisa.dma_compute(dst=tile, srcs=list(arrays), reduce_op=nl.add, **options)
    return store(tile)


def scalar_sum(values, dtype):
    """The scalar twin: each sum rounds to float32, the result once to its format."""
    total = np.float32(values[0])
    for value in values[1:]:
        total = np.float32(total + np.float32(value))
    return np.dtype(dtype).type(total)


@given(seed=st.integers(0, 2**16), count=st.integers(1, 16), dtype=st.sampled_from([np.float32, BFLOAT16, np.float16]))
def test_the_sum_is_the_scalar_twin_s(seed, count, dtype):
    random = np.random.default_rng(seed)
    arrays = [(random.standard_normal((3, 5)) * 10.0 ** random.integers(-3, 4)).astype(dtype) for _ in range(count)]
    out = run(summed, *arrays)
    expected = [[scalar_sum([array[p, i] for array in arrays], dtype) for i in range(5)] for p in range(3)]
    assert (out == np.array(expected, dtype)).all()


def test_sources_are_added_from_the_first_to_the_last():
    big, small = np.full((1, 1), 2.0**24, np.float32), np.ones((1, 1), np.float32)
    assert run(summed, big, small, small, -big)[0, 0] == 0
    assert run(summed, small, small, big, -big)[0, 0] == 2


def test_formats_mix_and_round_once():
    a, b = np.full((2, 2), 1, BFLOAT16), np.full((2, 2), 2.0**-8, np.float32)
    assert (run(summed, a, b, dtype=nl.float32) == 1 + 2.0**-8).all()
    assert (run(summed, a, b, b) == np.float32(1 + 2.0**-7)).all()  # in bfloat16 each of the two would be lost


def test_integers_go_through_float32():
    a = np.array([[2**24 + 1, 3]], np.int32)
    assert (run(summed, a, np.zeros_like(a)) == [[2**24, 3]]).all()


def test_one_source_is_a_copy():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert (run(summed, a) == a).all()


def test_dst_may_be_one_of_the_sources_and_in_hbm():
    def kernel(a, b):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=a)
        nisa.dma_compute(dst=out, srcs=(out, load(b)), reduce_op=nl.add, scales=(1.0, 1.0))
        return out

    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert (run(kernel, a, a * 10) == a * 11).all()


def test_all_is_read_before_anything_is_written():
    def kernel(a):
        tile = load(a)
        nisa.dma_compute(dst=tile[:, 1:4], srcs=[tile[:, 0:3], tile[:, 1:4]], reduce_op=nl.add)
        return store(tile)

    assert (run(kernel, np.array([[1, 2, 3, 4]], np.float32)) == [[1, 3, 5, 7]]).all()


def add_to_rows(table, index, values, **options):
    """dst(HBM)[indices] += src(SBUF)"""
    out = nl.ndarray(table.shape, dtype=table.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=table)
    rows = out.vector_select(0, load(index))
    nisa.dma_compute(dst=rows, srcs=[load(values), rows], reduce_op=nl.add, **options)
    return out


def add_rows(table, index, values, **options):
    """dst(SBUF) += src(HBM)[indices]"""
    tile = load(values)
    nisa.dma_compute(dst=tile, srcs=[table.vector_select(0, load(index)), tile], reduce_op=nl.add, **options)
    return store(tile)


TABLE = np.arange(40 * 6, dtype=np.float32).reshape(40, 6)
VALUES = np.arange(5 * 6, dtype=np.float32).reshape(5, 6) * 1000


@given(order=st.permutations(range(40)))
def test_rows_of_hbm_are_added_to(order):
    index = order[:5]
    expected = TABLE.copy()
    for lane, row in enumerate(index):
        for i in range(6):
            expected[row, i] = np.float32(expected[row, i] + VALUES[lane, i])
    assert (run(add_to_rows, TABLE, column(index), VALUES) == expected).all()


@given(index=st.lists(st.integers(0, 39), min_size=5, max_size=5))
def test_gathered_rows_are_added(index):
    """Also a row that is read twice."""
    assert (run(add_rows, TABLE, column(index), VALUES) == TABLE[index] + VALUES).all()


def test_other_rows_keep_their_bits():
    table = TABLE.copy()
    table[7] = np.nan
    out = run(add_to_rows, table, column([1, 2, 3, 4, 5]), VALUES)
    assert (out.view(np.uint32)[6:] == table.view(np.uint32)[6:]).all()


@pytest.mark.parametrize("bad", [-1, 40, 2**31 - 1])
@pytest.mark.parametrize("kernel", [add_to_rows, add_rows])
def test_an_index_out_of_range_names_lane_index_and_limit(kernel, bad):
    with pytest.raises(OutOfBounds) as error:
        run(kernel, TABLE, column([3, bad, 5, 6, 7]), VALUES)
    assert f"index {bad} of lane 1" in str(error.value)
    assert "40 indices are valid: 0 to 39" in str(error.value)


def test_skip_leaves_rows_as_they_were():
    index = column([3, -1, 5, 2**30, 7])
    valid = [0, 2, 4]
    out = run(add_to_rows, TABLE, index, VALUES, oob_mode=nisa.oob_mode.skip)
    expected = TABLE.copy()
    expected[[3, 5, 7]] += VALUES[valid]
    assert (out == expected).all()
    out = run(add_rows, TABLE, index, VALUES, oob_mode=nisa.oob_mode.skip)
    expected = VALUES.copy()
    expected[valid] += TABLE[[3, 5, 7]]
    assert (out == expected).all()


def test_two_rows_with_one_index_have_no_documented_sum():
    with pytest.raises(UnknownBehavior, match="two rows of dst have index 9"):
        run(add_to_rows, TABLE, column([3, 9, 5, 9, 7]), VALUES)


def test_the_same_pattern_elsewhere_is_not_in_place():
    """What is the same operand belongs to the signature: a call that differs in nothing else is refused."""

    def kernel(table, index, values):
        out = nl.ndarray(table.shape, dtype=table.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=table)
        idx, tile = load(index), load(values)
        other = load(index)
        rows = out.vector_select(0, idx)
        nisa.dma_compute(dst=rows, srcs=[rows, tile], reduce_op=nl.add)
        nisa.dma_compute(dst=rows, srcs=[out.vector_select(0, other), tile], reduce_op=nl.add)
        return out

    with pytest.raises(IllegalOperand, match="dst is not one of srcs") as error:
        run(kernel, TABLE, column([1, 2, 3, 4, 5]), VALUES)
    assert "srcs[0]" in str(error.value)


def test_a_single_tensor_is_no_list():
    def kernel(a):
        tile = load(a)
        nisa.dma_compute(dst=tile, srcs=tile, reduce_op=nl.add)
        return store(tile)

    with pytest.raises(IllegalOperand, match="srcs is no list of 1 to 16 tensors"):
        run(kernel, TABLE)


def test_an_entry_that_is_no_tensor_is_named():
    def kernel(a, entry):
        tile = load(a)
        nisa.dma_compute(dst=tile, srcs=[tile, entry], reduce_op=nl.add)
        return store(tile)

    with pytest.raises(IllegalOperand, match=r"srcs\[1\] is 2.0 \(float\); it must be a tensor"):
        run(kernel, TABLE, 2.0)


def test_holes_travel_through_sums():
    def kernel(a):
        tile = nl.ndarray(a.shape, dtype=a.dtype)
        nisa.dma_copy(dst=tile[0:1], src=a[0:1])
        nisa.dma_compute(dst=tile, srcs=[tile, a], reduce_op=nl.add)
        return store(tile)

    with pytest.raises(Uninitialized, match=r"\[1:40, 0:6\]"):
        run(kernel, TABLE)


def cost(kernel, chip, *arrays):
    """Descriptors, bytes of each and generation of the one dma_compute of a kernel."""
    program = neurosim.profile(kernel, chip=chip)(*arrays).program
    signature = next(entry for entry in program.signatures if entry.instruction == "dma_compute")
    (work,) = signature.work
    return signature.engine.name, work.generation, work.descriptors * work.descriptor_bytes, work.read_bytes


def test_two_sources_take_twice_the_movement_of_a_copy():
    """Documented: half of the throughput before NeuronCore-v4. Rings without indices are static, as documented."""
    arrays = (TABLE, TABLE)
    assert cost(summed, "trn2", *arrays) == ("sync", "none", 2 * TABLE.nbytes, 2 * TABLE.nbytes)
    assert cost(summed, "trn2", TABLE) == ("sync", "none", TABLE.nbytes, TABLE.nbytes)


def test_rows_come_from_software_descriptors_and_trn3_adds_near_memory():
    arrays = (TABLE, column([1, 2, 3, 4, 5]), VALUES)
    assert cost(add_rows, "trn2", *arrays) == ("gpsimd", "swdge", 2 * VALUES.nbytes, VALUES.nbytes)
    assert cost(add_rows, "trn3", *arrays) == ("gpsimd", "swdge", VALUES.nbytes, VALUES.nbytes)
    assert cost(add_to_rows, "trn3", *arrays) == ("gpsimd", "swdge", 2 * VALUES.nbytes, VALUES.nbytes)


def test_longer_sums_take_longer():
    long = np.zeros((128, 4096), np.float32)
    times = [
        neurosim.profile(summed, chip="trn2", values=False)(*[long] * count).timeline.makespan_ps for count in (1, 2, 4)
    ]
    assert times[0] < times[1] < times[2]
