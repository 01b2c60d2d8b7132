"""Tensors with addresses: who aliases whom, and what older ones leave beside newer ones."""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import IllegalOperand, OutOfBounds, Uninitialized

F = np.float32


def run(kernel, *arrays, **options):
    return neurosim.simulate(kernel, **options)(*arrays).outputs


def store(tile):
    """Store an SBUF tile into a new output."""
    out = nl.ndarray(tile.shape, tile.dtype, nl.shared_hbm, name="out")
    nisa.dma_copy(dst=out, src=tile)
    return out


def line_of(function, offset):
    return f"tests/test_execution/test_addresses.py:{function.__code__.co_firstlineno + offset}"


def psum_copy(tile):
    copy = nl.ndarray(tile.shape, tile.dtype, nl.sbuf)
    nisa.tensor_copy(dst=copy, src=tile)
    return copy


def addressed(shape, address, dtype=nl.float32, buffer=nl.sbuf, name=""):
    return nl.ndarray(shape, dtype, buffer, name=name, address=address)


@pytest.mark.parametrize("buffer", [nl.sbuf, nl.psum])
def test_tensors_with_addresses_alias(buffer):
    """The same bytes under two names and dtypes; reading through the one that wrote last is fine."""
    array = np.arange(16, dtype=np.int32).reshape(4, 4) + 2**24

    def kernel(a):
        one = addressed((4, 8), (0, 64), nl.int32, buffer)
        tile = nl.load(a)
        nisa.tensor_copy(dst=one[:, 4:8], src=tile)
        nisa.tensor_copy(dst=one[:, 0:4], src=tile)
        return store(psum_copy(one) if buffer is nl.psum else one)

    np.testing.assert_array_equal(run(kernel, array), np.hstack([array, array]))


def test_reading_what_another_tensor_overwrote():
    """An error that names both tensors and their lines."""

    def kernel():
        first = addressed((4, 64), (0, 0), name="first")
        second = addressed((4, 64), (0, 128), name="second")
        nisa.memset(dst=first, value=1.0)
        nisa.memset(dst=second, value=2.0)
        nisa.reciprocal(dst=second, data=second)
        nisa.reciprocal(dst=first[:, 0:32], data=first[:, 0:32])
        nisa.reciprocal(dst=first, data=first)

    with pytest.raises(Uninitialized) as caught:
        run(kernel)
    text = str(caught.value)
    assert "data first [4, 64] float32 in SBUF was overwritten through second[4, 64] float32 in SBUF" in text
    assert "first allocated at " in text
    assert "second allocated at " in text
    assert line_of(kernel, 7) in caught.value.where[0]


def test_writing_again_takes_the_bytes_back():
    def kernel():
        first = addressed((4, 4), (0, 0))
        second = addressed((4, 4), (0, 0))
        for value in (1.0, 2.0, 3.0):
            nisa.memset(dst=first, value=value)
            nisa.reciprocal(dst=first, data=first)
            nisa.memset(dst=second, value=value)
            nisa.reciprocal(dst=second, data=second)
        return store(second)

    np.testing.assert_array_equal(run(kernel), np.full((4, 4), F(1) / F(3)))


def test_a_new_tensor_begins_unwritten_also_where_another_was():
    """B6: the stale contents of a reused place do not count."""

    def kernel():
        old = addressed((4, 16), (0, 0))
        nisa.memset(dst=old, value=1.0)
        new = addressed((4, 8), (0, 32), name="new")
        nisa.reciprocal(dst=new, data=new)

    with pytest.raises(Uninitialized, match=r"data new \[4, 8\] float32 in SBUF was not written since .*\[4, 16\]"):
        run(kernel)


@pytest.mark.parametrize("rows", [4, 8])
def test_what_is_left_of_an_older_tensor_travels_as_bytes_that_nobody_wrote(rows):
    """Padding that a newer tensor leaves as it was may be moved about; it is no result."""

    def kernel():
        old = addressed((8, 16), (0, 0), name="old")
        nisa.memset(dst=old, value=1.0)
        new = addressed((8, 16), (0, 0), name="new")
        nisa.memset(dst=new[0:4], value=2.0)
        moved = nl.ndarray((8, 16), F)
        nisa.tensor_copy(dst=moved, src=new)
        return store(moved[0:rows])

    if rows == 4:
        np.testing.assert_array_equal(run(kernel), np.full((4, 16), 2, F))
        return
    with pytest.raises(Uninitialized) as caught:
        run(kernel)
    text = str(caught.value)
    assert "unwritten here: [4:8, 0:16]" in text
    assert "of new[8, 16] float32 in SBUF" in text


def test_an_index_left_of_an_older_tensor_is_refused():
    def kernel(table):
        old = addressed((8, 1), (0, 0), nl.uint32, name="old")
        nisa.memset(dst=old, value=1)
        new = addressed((8, 1), (0, 0), nl.uint32, name="new")
        nisa.memset(dst=new[0:4], value=2)
        chosen = nl.ndarray((8, 3), F)
        nisa.dma_copy(dst=chosen, src=table.vector_select(0, new))

    with pytest.raises(Uninitialized, match=r"index of src new .*: bytes that nobody wrote"):
        run(kernel, np.zeros((16, 3), F))


def test_partitions_of_an_address():
    """Tensors side by side in partitions share nothing."""

    def kernel():
        low = addressed((64, 4), (0, 0))
        high = addressed((64, 4), (64, 0))
        nisa.memset(dst=low, value=1.0)
        nisa.memset(dst=high, value=2.0)
        nisa.tensor_tensor(dst=low, data1=low, data2=high, op=nl.add)
        return store(low), store(high)

    low, high = run(kernel)
    np.testing.assert_array_equal(low, np.full((64, 4), 3, F))
    np.testing.assert_array_equal(high, np.full((64, 4), 2, F))


def test_start_partitions_of_an_address_obey_the_hardware():
    def kernel():
        nisa.memset(dst=addressed((32, 4), (16, 0)), value=1.0)

    with pytest.raises(IllegalOperand, match="covers partitions 16 to 47"):
        run(kernel)


@pytest.mark.parametrize(
    ("shape", "address", "error", "message"),
    [
        ((64, 4), (65, 0), OutOfBounds, r"address \(65, 0\) with 64 partitions of 16 bytes"),
        ((4, 4), (0, 229376 - 15), OutOfBounds, "128 partitions of 229376 bytes"),
        ((4, 4), (-1, 0), OutOfBounds, "address"),
        ((4, 4), (0, -4), OutOfBounds, "address"),
        ((4, 4), 64, IllegalOperand, "give .partition, byte within the partition."),
        ((4, 4), (0, 0, 0), IllegalOperand, "give .partition, byte"),
        ((4, 4), (0, 1.5), IllegalOperand, "give .partition, byte"),
    ],
)
def test_impossible_addresses(shape, address, error, message):
    def kernel():
        addressed(shape, address)

    with pytest.raises(error, match=message) as caught:
        run(kernel)
    assert "tests/test_execution/test_addresses.py:" in caught.value.where[0]


def test_addresses_are_for_on_chip_tensors():
    with pytest.raises(IllegalOperand, match="address= places SBUF and PSUM tensors only"):
        run(lambda: nl.ndarray((4, 4), nl.float32, nl.shared_hbm, address=(0, 0)))


@pytest.mark.parametrize("start", [0, 2, 6])
def test_any_byte_may_be_an_address(start):
    """Elements may begin at any byte of a plane; the values are still theirs."""

    def kernel(a):
        tile = addressed((4, 4), (0, start))
        nisa.dma_copy(dst=tile, src=a)
        nisa.activation(dst=tile, op=nl.copy, data=tile, scale=2.0)
        return store(tile)

    array = np.arange(16, dtype=F).reshape(4, 4)
    np.testing.assert_array_equal(run(kernel, array), array * 2)


def test_a_tensor_keeps_its_bytes_until_another_at_its_address_is_written():
    def kernel():
        old = addressed((4, 16), (0, 0))
        nisa.memset(dst=old, value=1.0)
        addressed((4, 16), (0, 0), name="not yet written")
        return store(old)

    assert (run(kernel) == 1).all()


def test_the_first_matmul_into_each_tensor_overwrites_also_at_one_address():
    """Tiles that take turns at one PSUM address are how kernels buffer by hand."""

    def kernel():
        eye = addressed((8, 8), (0, 0))
        nisa.memset(dst=eye, value=1.0)
        results = []
        tiles = [nl.ndarray((8, 8), nl.float32, nl.psum, address=(0, 0)) for _ in range(2)]
        for tile in tiles:
            nisa.nc_matmul(dst=tile, stationary=eye, moving=eye)
            copy = nl.ndarray((8, 8), nl.float32)
            nisa.tensor_copy(dst=copy, src=tile)
            results.append(store(copy))
        return results

    first, second = run(kernel)
    assert (first == 8).all()
    assert (second == 8).all()


def test_accumulating_onto_another_tensors_bytes_is_refused():
    def kernel():
        eye = addressed((8, 8), (0, 0))
        nisa.memset(dst=eye, value=1.0)
        tiles = [nl.ndarray((8, 8), nl.float32, nl.psum, address=(0, 0)) for _ in range(2)]
        nisa.nc_matmul(dst=tiles[0], stationary=eye, moving=eye)
        nisa.nc_matmul(dst=tiles[1], stationary=eye, moving=eye, accumulate=True)

    with pytest.raises(Uninitialized, match="accumulate=True onto PSUM that nobody wrote"):
        run(kernel)


def test_a_matmul_overwrites_holes_that_another_tensor_left_at_its_address():
    """Transposed rows that nobody wrote lie there, of which the second tensor knows nothing."""

    def kernel():
        half = nl.ndarray((8, 8), nl.float32, nl.sbuf)
        nisa.memset(dst=half[:, 0:4], value=1.0)
        nisa.memset(dst=half[:, 4:8], value=2.0)
        open_rows = nl.ndarray((64, 8), nl.float32, nl.sbuf)
        nisa.memset(dst=open_rows[0:32], value=3.0)
        first = addressed((8, 64), (0, 0), buffer=nl.psum)
        nisa.nc_transpose(dst=first, data=open_rows, engine=nisa.engine.tensor)
        second = addressed((8, 8), (0, 128), buffer=nl.psum)
        nisa.nc_matmul(dst=second, stationary=half, moving=half)
        nisa.nc_matmul(dst=second, stationary=half, moving=half)
        return store(psum_copy(second))

    half = np.repeat(np.array([1, 1, 1, 1, 2, 2, 2, 2], F)[None], 8, axis=0)
    np.testing.assert_array_equal(run(kernel), 2 * half.T @ half)


def test_addressed_tensors_reserve_what_they_cover_and_not_what_lies_below():
    def kernel():
        high = addressed((1, 8), (0, 220000))
        nisa.memset(dst=high, value=1.0)
        tile = nl.ndarray((128, 4096), nl.float32)
        nisa.memset(dst=tile, value=0.0)
        return store(high)

    assert (run(kernel) == 1).all()


@pytest.mark.parametrize("odd", [0, 1, 63])
def test_one_byte_of_another_tensor_is_seen(odd):
    """Bytes are told apart, though wider elements came first: a byte in one partition spoils just that element."""

    def kernel(element):
        wide = addressed((4, 32), (0, 2), nl.bfloat16, name="wide")
        nisa.memset(dst=wide, value=1.0)
        narrow = addressed((1, 1), (0, 2 + odd), nl.uint8, name="narrow")
        nisa.memset(dst=narrow, value=0)
        return store(wide[:, element : element + 1])

    spoilt = odd // 2
    with pytest.raises(Uninitialized, match="overwritten through narrow"):
        run(kernel, spoilt)
    other = (spoilt + 1) % 32
    np.testing.assert_array_equal(run(kernel, other).astype(F), np.ones((4, 1), F))
