"""``tensor_reduce`` against NumPy, in ascending order with one float32 accumulator per output."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from neurosim.engines import Engine
from neurosim.errors import UnknownBehavior

F = np.float32


def pick(a, b, larger):
    """Return IEEE 754-2019's maximum or minimum of two float32 arrays."""
    zero = np.where(np.signbit(a) & np.signbit(b) if larger else np.signbit(a) | np.signbit(b), F(-0.0), F(0.0))
    return np.where((a == 0) & (b == 0), zero, np.maximum(a, b) if larger else np.minimum(a, b)).astype(F)


STEPS = {
    "add": lambda a, b: a + b,
    "multiply": lambda a, b: a * b,
    "maximum": lambda a, b: pick(a, b, True),
    "minimum": lambda a, b: pick(a, b, False),
    "logical_and": lambda a, b: ((a != 0) & (b != 0)).astype(F),
    "logical_or": lambda a, b: ((a != 0) | (b != 0)).astype(F),
    "logical_xor": lambda a, b: ((a != 0) ^ (b != 0)).astype(F),
}


def folded(op, data):
    """Reduce the last axis of float32 data, one element after the other."""
    result = data[..., 0]
    with np.errstate(all="ignore"):
        for index in range(1, data.shape[-1]):
            result = STEPS[op](result, data[..., index]).astype(F)
    return result


def reducer(op, axis, shape, dtype=None, buffer=nl.sbuf, **options):
    def body(tile):
        made = nl.ndarray(shape, dtype or tile.dtype, buffer)
        nisa.tensor_reduce(dst=made, op=getattr(nl, op), data=tile, axis=axis, **options)
        return made

    return body


@pytest.mark.parametrize("op", ["add", "multiply", "maximum", "minimum"])
def test_one_axis_in_ascending_order(machine, rng, op):
    data = rng.standard_normal((128, 300)).astype(F)
    machine.assert_same(machine.outputs(reducer(op, 1, (128, 1)), data), folded(op, data)[:, None])


@pytest.mark.parametrize("op", ["logical_and", "logical_or", "logical_xor"])
def test_logical(machine, rng, op):
    data = rng.integers(0, 2, (64, 7)).astype(F) * F(-2.5)
    data[0] = np.nan
    machine.assert_same(machine.outputs(reducer(op, 1, (64, 1)), data), folded(op, data)[:, None])


@pytest.mark.parametrize("op", ["add", "multiply", "maximum", "minimum"])
def test_special_values(machine, special, op):
    """A6: NaN wins wherever it stands; -0 is less than +0."""
    pairs = np.stack([grid.ravel() for grid in np.meshgrid(special, special)], axis=-1)
    data = np.concatenate([pairs, pairs[:, ::-1]], axis=1)[:128]
    machine.assert_same(machine.outputs(reducer(op, 1, (128, 1)), data), folded(op, data)[:, None])


@pytest.mark.parametrize(
    ("axis", "outer"),
    [(3, (2, 3)), ((3,), (2, 3)), (-1, (2, 3)), ([2, 3], (2,)), ((3, 2), (2,)), ((1, 2, 3), ()), ((-1, -2), (2,))],
)
@pytest.mark.parametrize("keepdims", [False, True])
def test_axes(machine, rng, axis, outer, keepdims):
    """A 4D tile (P, D1, D2, D3): the documentation's valid axes."""
    data = rng.standard_normal((5, 2, 3, 4)).astype(F)
    shape = (5, *outer, *(1,) * (3 - len(outer) if keepdims else 0)) if outer or keepdims else (5, 1)
    got = machine.outputs(reducer("add", axis, shape, keepdims=keepdims), data)
    expected = folded("add", data.reshape(5, int(np.prod(outer, initial=1)), -1))
    machine.assert_same(got, expected.reshape(shape))


@pytest.mark.parametrize("negate", [False, True])
def test_negate(machine, rng, negate):
    data = rng.standard_normal((4, 9)).astype(F)
    got = machine.outputs(reducer("maximum", 1, (4, 1), negate=negate), data)
    machine.assert_same(got, data.max(axis=1, keepdims=True) * F(-1.0 if negate else 1.0))


def test_negated_zero_and_rounding(machine):
    """negate multiplies by -1.0 before the result is rounded to dst."""
    data = np.array([[1.0, -1.0], [300.0, -0.5]], F)
    machine.assert_same(machine.outputs(reducer("add", 1, (2, 1), negate=True), data), np.array([[-0.0], [-299.5]], F))
    got = machine.outputs(reducer("add", 1, (2, 1), nl.int8, negate=True), data)
    np.testing.assert_array_equal(got, [[0], [-128]])


@pytest.mark.parametrize("source", [ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3, np.int8, np.int32, np.bool_])
@pytest.mark.parametrize("target", [nl.float32, nl.bfloat16, nl.int16])
def test_sums_in_float32_and_rounds_once(machine, rng, source, target):
    data = rng.integers(0, 90, (16, 60)).astype(F).astype(source)
    got = machine.outputs(reducer("add", 1, (16, 1), target), data)
    machine.assert_same(got, machine.rounded(folded("add", machine.single(data))[:, None], target.numpy))


@pytest.mark.parametrize("op", ["bitwise_and", "bitwise_or", "bitwise_xor"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32])
def test_bit_operators(machine, rng, op, dtype):
    limits = np.iinfo(dtype)
    data = rng.integers(limits.min, limits.max, (8, 2, 5), dtype, endpoint=True)
    expected = getattr(np, op).reduce(data, axis=2)
    machine.assert_same(machine.outputs(reducer(op, 2, (8, 2)), data), expected)


def test_views(machine, rng):
    """A stepped, permuted input into a column of a wider tile."""
    data = rng.standard_normal((4, 6, 8)).astype(F)

    def body(tile):
        made = nl.ndarray((4, 6, 3), nl.float32, nl.sbuf)
        nisa.memset(dst=made, value=0.0)
        nisa.tensor_reduce(dst=made[:, 0:4, 1], op=nl.add, data=tile[:, ::2, ::2].permute((0, 2, 1)), axis=2)
        return made

    expected = np.zeros((4, 6, 3), F)
    expected[:, 0:4, 1] = folded("add", data[:, ::2, ::2].transpose(0, 2, 1))
    machine.assert_same(machine.outputs(body, data), expected)


@pytest.mark.parametrize("psum", [(), {0}])
@pytest.mark.parametrize("buffer", [nl.sbuf, nl.psum])
def test_memories(machine, rng, psum, buffer):
    data = rng.standard_normal((4, 8)).astype(F)
    got = machine.outputs(reducer("maximum", 1, (4, 1), buffer=buffer), data, psum=psum)
    machine.assert_same(got, data.max(axis=1, keepdims=True))


def test_a_reduction_over_one_element(machine):
    data = np.array([[-0.0], [5.0]], F)
    machine.assert_same(machine.outputs(reducer("add", 1, (2, 1)), data), data)


def test_subtract_is_not_guessed(machine):
    """The table of operators allows it as a reduction; nothing says what is subtracted from what."""
    text = machine.refused(reducer("subtract", 1, (4, 1)), np.ones((4, 8), F), error=UnknownBehavior)
    assert "subtract" in text


def test_runs_on_vector(machine):
    result = machine.run(reducer("add", 1, (4, 1)), np.ones((4, 8), F))
    signature = result.program.record(1).signature
    assert signature.engines == {Engine.vector}
    assert signature.work[0].elements == 8


@pytest.mark.parametrize(
    ("op", "axis", "shape", "message"),
    [
        ("add", 0, (4, 1), "only the last free axes can be reduced, and never partitions"),
        ("add", (0, 1, 2), (4, 1), "never partitions"),
        ("add", 1, (4, 8), "axis=1: only the last free axes"),
        ("add", (), (4, 1), "axis=()"),
        ("add", 3, (4, 1), "axis=3 of a tile with 3 axes"),
        ("add", -4, (4, 1), "axis=-4 of a tile with 3 axes"),
        ("add", 1.0, (4, 1), "axis=1.0 of a tile"),
        ("add", None, (4, 1), "axis=None of a tile"),
        ("add", (2, 2), (4, 1), "axis=(2, 2)"),
        ("add", 2, (4, 1), "dst has 1 elements per partition; the result has 6"),
        ("add", (1, 2), (4, 6), "dst has 6 elements per partition; the result has 1"),
        ("add", 2, (5, 6), "dst has 5 partitions and data has 4"),
        ("divide", 2, (4, 6), "op=nl.divide is no reduction"),
        ("equal", 2, (4, 6), "op=nl.equal is no reduction"),
        ("exp", 2, (4, 6), "op=nl.exp is no reduction"),
        ("bitwise_and", 2, (4, 6), "nl.bitwise_and takes integers of one dtype"),
    ],
)
def test_refuses(machine, op, axis, shape, message):
    text = machine.refused(reducer(op, axis, shape), np.zeros((4, 6, 8), F))
    assert text.startswith("tensor_reduce: ")
    assert message in text


def test_advice_names_the_shape(machine):
    """F1: reduce into the wrong shape says which one is right."""
    text = machine.refused(reducer("add", 2, (4, 8)), np.zeros((4, 6, 8), F))
    assert "allocate dst with shape (4, 6)" in text
    text = machine.refused(reducer("add", 2, (4, 8), keepdims=True), np.zeros((4, 6, 8), F))
    assert "allocate dst with shape (4, 6, 1)" in text


def test_refuses_negated_bits(machine):
    text = machine.refused(reducer("bitwise_or", 1, (4, 1), negate=True), np.zeros((4, 8), np.int32))
    assert "no negate=" in text
