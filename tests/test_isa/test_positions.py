"""nonzero_with_count and sequence_bounds: places, counts and bounds on GpSimd."""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neurosim
from neurosim.errors import IllegalOperand, Uninitialized, UnknownBehavior


def load(array):
    tile = nl.ndarray(array.shape, dtype=array.dtype)
    nisa.dma_copy(dst=tile, src=array)
    return tile


def store(tile):
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def nonzero(table, **options):
    rows, columns = table.shape
    tile = nl.ndarray((rows, columns + 1), dtype=nl.int32)
    nisa.memset(dst=tile, value=77)
    nisa.nonzero_with_count(dst=tile, src=load(table), **options)
    return store(tile)


def places(table, chip="trn2", **options):
    return neurosim.simulate(nonzero, chip=chip)(table, **options).outputs


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_the_manual_s_example(dtype):
    row = np.array([[0, 1, 1, 0, 0, 1, 0, 0]], dtype)
    assert places(row, index_offset=16).tolist() == [[17, 18, 21, -1, -1, -1, -1, -1, 3]]


def test_only_the_first_partition_of_each_core_is_touched():
    out = places(np.ones((48, 3), np.float32))
    assert (out[::16] == [0, 1, 2, 3]).all()
    assert (np.delete(out, [0, 16, 32], axis=0) == 77).all()


def test_what_is_zero():
    row = np.array([[0.0, -0.0, np.nan, np.inf, -1e-45, 0.5]], np.float32)
    assert places(row).tolist() == [[2, 3, 4, 5, -1, -1, 4]]


@given(
    seed=st.integers(0, 2**16),
    columns=st.integers(1, 40),
    rows=st.sampled_from([1, 16, 40]),
    offset=st.integers(-(2**31), 2**31 - 41),
    padding=st.integers(-(2**31), 2**31 - 1),
)
def test_the_scalar_twin(seed, columns, rows, offset, padding):
    table = np.random.default_rng(seed).integers(-1, 2, (rows, columns)).astype(np.float32)
    out = places(table, index_offset=offset, padding_val=padding)
    for row in range(0, rows, 16):
        found = [i + offset for i in range(columns) if table[row, i] != 0]
        assert out[row].tolist() == found + [padding] * (columns - len(found)) + [len(found)]


def test_partitions_that_are_not_written_stay_unwritten():
    def kernel(table):
        tile = nl.ndarray((32, 5), dtype=nl.int32)
        nisa.nonzero_with_count(dst=tile, src=load(table))
        return store(tile)

    with pytest.raises(Uninitialized, match=r"unwritten here: \[1:32, 0:5\] \(150 of 160"):
        neurosim.simulate(kernel)(np.ones((32, 4), np.float32))


def test_partitions_that_are_not_read_need_not_be_written():
    def kernel(table):
        source = nl.ndarray((32, 4), dtype=nl.float32)
        nisa.dma_copy(dst=source[0:1], src=table[0:1])
        tile = nl.ndarray((32, 5), dtype=nl.int32)
        nisa.nonzero_with_count(dst=tile, src=source)
        return store(tile[0:1])

    assert neurosim.simulate(kernel)(np.ones((32, 4), np.float32)).outputs.tolist() == [[0, 1, 2, 3, 4]]


def test_trn1_names_trn2():
    with pytest.raises(IllegalOperand, match=r"needs NeuronCore-v3 \(trn2\)"):
        places(np.ones((1, 4), np.float32), chip="trn1")


@pytest.mark.parametrize("options", [{"index_offset": 2**31 - 3}, {"padding_val": 2**31}, {"index_offset": 0.5}])
def test_numbers_that_do_not_fit(options):
    with pytest.raises(IllegalOperand, match="must fit int32"):
        places(np.ones((1, 4), np.float32), **options)


def bounds_of(ids):
    tile = nl.ndarray((1, 2, ids.shape[1]), dtype=ids.dtype)
    nisa.sequence_bounds(dst=tile, segment_ids=load(ids))
    return store(tile)


def bounds(ids, chip="trn2"):
    return neurosim.simulate(bounds_of, chip=chip)(ids).outputs[0]


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_an_example_by_hand(dtype):
    ids = np.array([[0, 4, 4, 0, 2, 2, 2, 9]], dtype)
    assert bounds(ids).tolist() == [[8, 1, 1, 8, 4, 4, 4, 7], [-1, 3, 3, -1, 7, 7, 7, 8]]


@given(ids=st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_bounds_are_the_scalar_twin_s(ids):
    starts, ends = bounds(np.array([ids], np.int32))
    for i, segment in enumerate(ids):
        first = last = i
        while first > 0 and ids[first - 1] == segment:
            first -= 1
        while last + 1 < len(ids) and ids[last + 1] == segment:
            last += 1
        expected = (len(ids), -1) if segment == 0 else (first, last + 1)
        assert (starts[i], ends[i]) == expected


@pytest.mark.parametrize("bad", [-1, 0.5, np.nan, np.inf])
def test_ids_that_are_no_whole_numbers_are_not_guessed(bad):
    with pytest.raises(UnknownBehavior, match=r"segment_ids\[0, 2\] is "):
        bounds(np.array([[1, 1, bad, 2]], np.float32))
