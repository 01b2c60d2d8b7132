"""``local_gather`` against the NumPy of its documentation, ``nc_n_gather`` against a loop; indices out of bounds."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from neurosim.engines import Engine
from neurosim.errors import OutOfBounds, Uninitialized


def local(run=1, valid=None, elements=None, dtype=None):
    def body(data, index):
        count = elements or (valid or 16 * index.shape[1]) * run
        made = nl.ndarray((data.shape[0], count), dtype or data.dtype, nl.sbuf)
        nisa.local_gather(made, data, index, num_elem_per_idx=run, num_valid_indices=valid)
        return made

    return body


def gathered():
    def body(data, indices):
        made = nl.ndarray(indices.shape, data.dtype, nl.sbuf)
        nisa.nc_n_gather(dst=made, data=data, indices=indices)
        return made

    return body


def documented(data, index, run=1, valid=None):
    """Each core takes its 16 partitions' indices, along partitions first, for all of its partitions."""
    out = []
    for begin in range(0, len(index), 16):
        flat = index[begin : begin + 16].flatten(order="F")[:valid].astype(np.int64)
        columns = (flat[:, None] + np.arange(run)).reshape(-1)
        out.append(np.take(data[begin : begin + 16].reshape(16, -1), columns, axis=1))
    return np.concatenate(out)


# -- local_gather -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("partitions", [16, 48, 128])
def test_documented_gather(machine, rng, partitions, run):
    data = rng.standard_normal((partitions, 100)).astype(np.float32)
    index = rng.integers(0, 100 - run + 1, (partitions, 3)).astype(np.uint16)
    machine.assert_same(machine.outputs(local(run), data, index), documented(data, index, run))


@pytest.mark.parametrize("valid", [1, 15, 17, 32])
def test_valid_indices_are_the_first(machine, rng, valid):
    """Indices beyond them are not used, even out of bounds."""
    data = rng.standard_normal((32, 40)).astype(np.float32)
    index = rng.integers(0, 39, (32, 2)).astype(np.uint16)
    expected = documented(data, index, 2, valid)
    order = np.arange(32).reshape(2, 16).T  # partitions 0 to 15 of column 0, then of column 1
    for begin in (0, 16):
        index[begin : begin + 16][order >= valid] = 60000
    machine.assert_same(machine.outputs(local(2, valid), data, index), expected)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int32, np.uint8])
def test_bits_move_as_they_are(machine, rng, dtype):
    data = rng.integers(0, 255, (16, 40 * np.dtype(dtype).itemsize), dtype=np.uint8).view(np.dtype(dtype))
    index = rng.integers(0, 39, (16, 4)).astype(np.uint16)
    got = machine.outputs(local(2), data, index)
    np.testing.assert_array_equal(got.view(np.uint8), np.ascontiguousarray(documented(data, index, 2)).view(np.uint8))


def test_free_axes_are_flattened(machine, rng):
    """The documented example: indices count elements, so that blocks of four are at multiples of four."""
    data = rng.standard_normal((128, 32, 4)).astype(np.float32)
    blocks = np.tile(rng.integers(0, 32, (16, 4)), (8, 1))
    got = machine.outputs(local(4, 64), data, (blocks * 4).astype(np.uint16))
    order = blocks[:16].flatten(order="F")
    machine.assert_same(got, data[:, order].reshape(128, 256))


def test_views_of_all_operands(machine, rng):
    data = rng.standard_normal((32, 24)).astype(np.float32)
    index = rng.integers(0, 23, (32, 2)).astype(np.uint16)

    def body(out, data, index):
        made = out((32, 64), nl.float32)
        nisa.local_gather(made, data, index, 2, 32)
        return made

    machine.assert_same(machine.same_from_views(body, data, index), documented(data, index, 2))


def test_an_explicit_pattern_as_destination(machine, rng):
    data = rng.standard_normal((16, 24)).astype(np.float32)
    index = rng.integers(0, 24, (16, 1)).astype(np.uint16)

    def body(data, index):
        made = nl.ndarray((16, 4, 4), nl.float32, nl.sbuf)
        nisa.local_gather(made.ap([[16, 16], [1, 16]]), data, index, num_elem_per_idx=1, num_valid_indices=16)
        return made

    machine.assert_same(machine.outputs(body, data, index).reshape(16, 16), documented(data, index))


@pytest.mark.parametrize(("run", "bad"), [(1, 40), (1, 65535), (4, 37)])
def test_local_index_out_of_bounds(machine, run, bad):
    index = np.zeros((32, 2), np.uint16)
    index[21, 1] = bad
    text = machine.refused(local(run), np.zeros((32, 40), np.float32), index, error=OutOfBounds)
    assert f"local_gather: index[21, 1] is {bad}: " in text
    assert ("4 elements from there are" if run == 4 else "that is") + " out of bounds" in text
    assert "the partition has 40 elements, 0 to 39" in text


# -- nc_n_gather --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int32, np.uint8])
@pytest.mark.parametrize(("elements", "count"), [(1, 7), (100, 30), (600, 1200)])
def test_gather_within_partitions(machine, rng, dtype, elements, count):
    data = rng.integers(0, 200, (6, elements)).astype(dtype)
    indices = rng.integers(0, elements, (6, count)).astype(np.uint32)
    expected = np.array([[row[i] for i in wanted] for row, wanted in zip(data, indices, strict=True)], data.dtype)
    machine.assert_same(machine.outputs(gathered(), data, indices), expected)


def test_flattened_example(machine):
    """The manual's: free axes of data and indices count as one."""
    data = np.arange(1, 9, dtype=np.float32).reshape(2, 2, 2)
    indices = np.array([[[0, 1], [1, 3]], [[3, 3], [1, 0]]], np.uint32)
    got = machine.outputs(gathered(), data, indices)
    np.testing.assert_array_equal(got, [[[1, 2], [2, 4]], [[8, 8], [6, 5]]])


def test_in_place_and_views(machine, rng):
    data = rng.standard_normal((4, 12)).astype(np.float32)
    indices = rng.integers(0, 12, (4, 12)).astype(np.uint32)

    def body(out, data, indices):
        made = out((4, 12), nl.float32)
        nisa.nc_n_gather(made, data, indices)
        return made

    expected = np.take_along_axis(data, indices.astype(np.int64), axis=1)
    machine.assert_same(machine.same_from_views(body, data, indices), expected)

    def in_place(data, indices):
        nisa.nc_n_gather(data, data, indices)
        return data

    machine.assert_same(machine.outputs(in_place, data, indices), expected)


def test_index_out_of_bounds(machine):
    indices = np.zeros((4, 6), np.uint32)
    indices[2, 5] = 2**32 - 1
    indices[3, 1] = 12
    text = machine.refused(gathered(), np.zeros((4, 12), np.float32), indices, error=OutOfBounds)
    assert "nc_n_gather: indices[2, 5] is 4294967295: that is out of bounds" in text
    assert "the partition has 12 elements, 0 to 11" in text


# -- both ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["local_gather", "nc_n_gather"])
def test_holes_are_gathered(machine, name):
    """Only where an index points at them."""

    def body(index):
        part, made = nl.ndarray((16, 8), nl.float32, nl.sbuf), nl.ndarray((16, 16), nl.float32, nl.sbuf)
        nisa.memset(dst=part[:, 0:6], value=1.0)
        if name == "local_gather":
            nisa.local_gather(made, part, index)
        else:
            nisa.nc_n_gather(made, part, index)
        return made

    shape, dtype = ((16, 1), np.uint16) if name == "local_gather" else ((16, 16), np.uint32)
    index = np.full(shape, 5, dtype)
    np.testing.assert_array_equal(machine.outputs(body, index), np.ones((16, 16)))
    index[3] = 6
    rows = "0:16, 3:4" if name == "local_gather" else "3:4, 0:16"
    with pytest.raises(Uninitialized, match=rf"\[{rows}\] \(16 of 256 elements\)"):
        machine.run(body, index)


@pytest.mark.parametrize("name", ["local_gather", "nc_n_gather"])
def test_a_hole_in_the_indices_raises_at_once(machine, name):
    def body(data):
        index = nl.ndarray((16, 2), nl.uint16 if name == "local_gather" else nl.uint32, nl.sbuf)
        nisa.memset(dst=index[:, 0:1], value=0)
        made = nl.ndarray((16, 32 if name == "local_gather" else 2), nl.float32, nl.sbuf)
        getattr(nisa, name)(made, data, index)

    text = machine.refused(body, np.ones((16, 4), np.float32), error=Uninitialized)
    assert f"{name}: {'index' if name == 'local_gather' else 'indices'}" in text


@pytest.mark.parametrize(
    ("body", "data", "index", "message"),
    [
        (local(), (16, 8), ((32, 1), np.uint16), "src_buffer has 16 partitions and index has 32"),
        (local(), (8, 8), ((8, 1), np.uint16), "index has 8 partitions; it must be a multiple of 16"),
        (local(), (16, 8), ((16, 1), np.uint32), "index is uint32; it must be uint16"),
        (local(dtype=nl.bfloat16), (16, 8), ((16, 1), np.uint16), "dst is bfloat16 and src_buffer is float32"),
        (local(3, elements=48), (16, 8), ((16, 1), np.uint16), "num_elem_per_idx 3 is not one of 1, 2, 4, 8, 16, 32"),
        (local(1.0, elements=16), (16, 8), ((16, 1), np.uint16), "num_elem_per_idx 1.0 is not one of"),
        (local(1, 17, 17), (16, 8), ((16, 1), np.uint16), "num_valid_indices 17; index has 16 per core"),
        (local(1, 0, 16), (16, 8), ((16, 1), np.uint16), "num_valid_indices 0; index has 16 per core"),
        (local(1, 2.0, 2), (16, 8), ((16, 1), np.uint16), "num_valid_indices 2.0; index has 16 per core"),
        (local(), (16, 8), ((16, 257), np.uint16), "4112 indices per core; at most 4096"),
        (
            local(2, elements=16),
            (16, 8),
            ((16, 1), np.uint16),
            "dst has 16 elements per partition; 16 indices of 2 elements give 32",
        ),
        (gathered(), (4, 8), ((4, 8), np.int32), "indices is int32; it must be uint32"),
        (gathered(), (2, 8), ((4, 8), np.uint32), "dst has 4 partitions and data has 2"),
    ],
)
def test_refuses(machine, body, data, index, message):
    shape, dtype = index
    name = "nc_n_gather: " if dtype != np.uint16 and "uint32; it must be uint16" not in message else "local_gather: "
    text = machine.refused(body, np.ones(data, np.float32), np.zeros(shape, dtype))
    assert name + message in text


def test_refuses_other_destinations_and_psum(machine):
    data, indices = np.ones((16, 8), np.float32), np.zeros((16, 8), np.uint32)

    def call(rows, columns, dtype, name, index_dtype):
        def body(data, indices):
            index = nl.ndarray((16, 1), nl.uint16, nl.sbuf)
            nisa.memset(dst=index, value=0)
            made = nl.ndarray((rows, columns), dtype, nl.sbuf)
            getattr(nisa, name)(made, data, index if index_dtype == nl.uint16 else indices)

        return body

    text = machine.refused(call(32, 16, nl.float32, "local_gather", nl.uint16), data, indices)
    assert "local_gather: dst has 32 partitions and src_buffer has 16" in text
    text = machine.refused(call(16, 4, nl.float32, "nc_n_gather", nl.uint32), data, indices)
    assert "nc_n_gather: dst has 4 elements per partition and indices has 8" in text
    text = machine.refused(call(16, 8, nl.bfloat16, "nc_n_gather", nl.uint32), data, indices)
    assert "nc_n_gather: dst is bfloat16 and data is float32" in text
    assert "data is in PSUM; it must be in SBUF" in machine.refused(gathered(), data, indices, psum={0})


@pytest.mark.parametrize(("run", "dtype", "cycles"), [(1, np.float32, 8), (4, np.float32, 93), (4, np.uint8, 372)])
def test_time_of_local_gather(machine, run, dtype, cycles):
    """150 + indices · n / C cycles with C = ((28 + 4 n) / (4 n)) / min(4 / bytes, n), as documented."""
    data, index = np.ones((128, 64), dtype), np.zeros((128, 4), np.uint16)
    busy, complete = machine.time("local_gather", local(run), data, index)
    assert busy == pytest.approx((150 + cycles) / 1.2, rel=0.01)
    assert complete == pytest.approx((150 + cycles + 62) / 1.2, rel=0.01)


@pytest.mark.parametrize(("elements", "cycles"), [(100, 250), (512, 662), (1100, 3 * 150 + 1100)])
def test_time_of_n_gather(machine, elements, cycles):
    """An ISA instruction for each 512 elements."""
    data, indices = np.ones((128, 64), np.float32), np.zeros((128, elements), np.uint32)
    assert machine.time("nc_n_gather", gathered(), data, indices)[0] == pytest.approx(cycles / 1.2, rel=1e-3)
    program = machine.run(gathered(), data, indices).program
    engines = [program.record(index).signature.engine for index in range(len(program))]
    assert Engine.gpsimd in engines
