"""``tensor_partition_reduce``: partitions into one, on GpSimd."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neurosim
from neurosim.errors import Uninitialized

F = np.float32


def reduced(op="add", dtype=None):
    def body(data):
        made = nl.ndarray((1, *data.shape[1:]), dtype or data.dtype, nl.sbuf)
        nisa.tensor_partition_reduce(dst=made, op=getattr(nl, op), data=data)
        return made

    return body


def folded(op, data):
    """Reduce one partition after the other, in float32."""
    step = {"add": np.add, "average": np.add, "maximum": np.maximum}[op]
    total = data[0].astype(F)
    for row in data[1:]:
        total = step(total, row.astype(F)).astype(F)
    return (total / F(len(data)) if op == "average" else total)[None].astype(F)


@pytest.mark.parametrize("op", ["add", "average", "maximum"])
@pytest.mark.parametrize("shape", [(128, 32, 4), (33, 5), (1, 7), (2, 1)])
def test_by_partition(machine, rng, op, shape):
    data = (rng.standard_normal(shape) * 100).astype(F)
    machine.assert_same(machine.outputs(reduced(op), data), folded(op, data))


def test_the_manuals_example(machine, rng):
    data = (rng.random((128, 32, 4)) * 100).astype(F)
    assert np.allclose(machine.outputs(reduced(), data), data.sum(axis=0, keepdims=True))


@pytest.mark.parametrize("op", ["bitwise_or", "bitwise_and"])
@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.uint16])
def test_bits(machine, rng, op, dtype):
    data = rng.integers(0, 256, (64, 12)).astype(dtype) | dtype(1)
    expected = getattr(np, op).reduce(data, axis=0, keepdims=True)
    machine.assert_same(machine.outputs(reduced(op), data), expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e5m2", "int8", "int32", "uint16"])
def test_formats(machine, rng, dtype):
    data = rng.integers(0, 5, (16, 12)).astype(F)
    got = machine.outputs(reduced("average", getattr(nl, dtype)), data)
    machine.assert_same(got, machine.rounded(folded("average", data), got.dtype))
    narrow = machine.rounded(data, got.dtype)
    machine.assert_same(machine.outputs(reduced("add", nl.float32), narrow), folded("add", narrow))


@given(
    op=st.sampled_from(["add", "average", "maximum"]),
    data=st.lists(st.lists(st.floats(width=32), min_size=2, max_size=2), min_size=1, max_size=6),
)
def test_is_the_twin(op, data):
    def kernel(given):
        out = nl.ndarray((1, 2), nl.float32, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=reduced(op)(nl.load(given)))
        return out

    array = np.array(data, F)
    with np.errstate(all="ignore"):
        expected = folded(op, array)
    assert np.array_equal(neurosim.simulate(kernel)(array).outputs, expected, equal_nan=True)


def test_views(machine, rng):
    def body(out, data):
        made = out((1, *data.shape[1:]), nl.float32)
        nisa.tensor_partition_reduce(dst=made, op=nl.add, data=data)
        return made

    data = rng.standard_normal((64, 20)).astype(F)
    machine.assert_same(machine.same_from_views(body, data), folded("add", data))


def test_a_hole_reaches_its_element():
    def kernel(given, first):
        tile, out = nl.ndarray((32, 8), nl.float32, nl.sbuf), nl.ndarray((1, 4), nl.float32, nl.shared_hbm)
        nisa.dma_copy(dst=tile[:, 0:4], src=given)
        made = reduced()(tile)
        nisa.dma_copy(dst=out, src=made[:, first : first + 4])
        return out

    assert neurosim.simulate(kernel)(np.ones((32, 4), F), 0).outputs.tolist() == [[32] * 4]
    with pytest.raises(Uninitialized):
        neurosim.simulate(kernel)(np.ones((32, 4), F), 1)


def test_refuses(machine):
    ones = np.ones((32, 8), F)

    def other(op=nl.add, shape=(1, 8), dtype=nl.float32, buffer=nl.sbuf):
        return lambda data: nisa.tensor_partition_reduce(dst=nl.ndarray(shape, dtype, buffer), op=op, data=data)

    for body, message in (
        (other(nl.multiply), "op=nl.multiply; it must be nl.add or nl.average or nl.maximum"),
        (other(shape=(32, 8)), "dst has 32 partitions of 8 elements; the result has 1 of 8"),
        (other(shape=(1, 4)), "dst has 1 partitions of 4 elements; the result has 1 of 8"),
        (other(nl.bitwise_or), "nl.bitwise_or takes integers of one dtype"),
        (other(buffer=nl.psum), "dst is in PSUM; it must be in SBUF"),
    ):
        assert f"tensor_partition_reduce: {message}" in machine.refused(body, ones)
    mixed = other(nl.bitwise_and, dtype=nl.int16)
    assert "takes integers of one dtype" in machine.refused(mixed, ones.astype(np.int32))
    assert "data is in PSUM" in machine.refused(other(), ones, psum=(0,))
    half = ones.astype(ml_dtypes.bfloat16)
    assert machine.outputs(reduced(), half).tolist() == [[32] * 8]


def test_time(machine):
    """Every partition in turn: about the 110 µs that one report gives for a whole kernel."""
    busy, _ = machine.time("tensor_partition_reduce", reduced(), np.ones((128, 1024), F))
    assert busy == pytest.approx((150 + 128 * 1024) / 1.2, rel=1e-3)


def test_a_maximum_by_its_other_name(machine, rng):
    """nki-library passes ``nl.max``, which is also the reduction of ``nki.language``."""
    data = rng.integers(0, 50, (33, 1)).astype(np.int32)

    def body(tile):
        made = nl.ndarray((1, 1), nl.int32, nl.sbuf)
        nisa.tensor_partition_reduce(made, nl.max, tile)
        lowest = nl.ndarray((33, 1), nl.int32, nl.sbuf)
        nisa.tensor_tensor(dst=lowest, data1=tile, data2=tile, op=nl.min)
        return made, lowest, nl.max(tile, axis=1, keepdims=True)

    made, lowest, same = machine.outputs(body, data)
    assert made.tolist() == [[data.max()]]
    assert np.array_equal(lowest, data)
    assert np.array_equal(same, data)
    assert nl.max == nl.maximum
