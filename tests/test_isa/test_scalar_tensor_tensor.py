"""``scalar_tensor_tensor`` against two operations written in NumPy."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from neurosim.errors import Uninitialized

SHAPE = (4, 12)
OPS = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "less": np.less,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
}


def fused(op0="multiply", operand0=2.0, op1="add", dtype=None, **options):
    def body(data, operand1, *columns):
        made = nl.ndarray(data.shape, dtype or data.dtype, nl.sbuf)
        nisa.scalar_tensor_tensor(
            dst=made,
            data=data,
            op0=getattr(nl, op0),
            operand0=columns[0] if columns else operand0,
            op1=getattr(nl, op1),
            operand1=operand1,
            **options,
        )
        return made

    return body


def expected(op0, op1, data, operand0, operand1, reverse0=False, reverse1=False):
    with np.errstate(all="ignore"):
        operand0 = np.asarray(operand0, np.float32)
        value = (OPS[op0](operand0, data) if reverse0 else OPS[op0](data, operand0)).astype(np.float32)
        return (OPS[op1](operand1, value) if reverse1 else OPS[op1](value, operand1)).astype(np.float32)


@pytest.mark.parametrize("reverse1", [False, True])
@pytest.mark.parametrize("reverse0", [False, True])
@pytest.mark.parametrize("op1", OPS)
@pytest.mark.parametrize("op0", ["add", "subtract", "divide", "less"])
def test_operators_and_their_sides(machine, rng, op0, op1, reverse0, reverse1):
    data, operand1 = (rng.standard_normal(SHAPE).astype(np.float32) for _ in range(2))
    got = machine.outputs(fused(op0, 0.75, op1, reverse0=reverse0, reverse1=reverse1), data, operand1)
    machine.assert_same(got, expected(op0, op1, data, 0.75, operand1, reverse0, reverse1))


def test_each_operation_rounds(machine):
    """1 + 2⁻¹² squared loses its last bit before the sum takes its ones away."""
    data = np.array([[1 + 2**-12]], np.float32)
    got = machine.outputs(fused("multiply", float(data[0, 0]), "subtract"), data, np.ones((1, 1), np.float32))
    assert got[0, 0] == np.float32(data[0, 0] * data[0, 0]) - np.float32(1)
    assert got[0, 0] != np.float32(float(data[0, 0]) ** 2 - 1)


@pytest.mark.parametrize("target", [np.float32, ml_dtypes.bfloat16, np.int8, np.uint16])
@pytest.mark.parametrize("source", [np.float32, ml_dtypes.bfloat16, np.int32, np.uint8])
def test_dtypes(machine, rng, source, target):
    data, operand1 = (rng.integers(0, 200, SHAPE).astype(source) for _ in range(2))
    got = machine.outputs(fused("multiply", 0.5, "subtract", np.dtype(target)), data, operand1)
    values = expected("multiply", "subtract", machine.single(data), 0.5, machine.single(operand1))
    machine.assert_same(got, machine.rounded(values, target))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_a_column(machine, rng, dtype):
    data, operand1 = (rng.standard_normal(SHAPE).astype(np.float32) for _ in range(2))
    column = rng.standard_normal((4, 1)).astype(dtype)
    got = machine.outputs(fused(), data, operand1, column)
    machine.assert_same(got, expected("multiply", "add", data, machine.single(column), operand1))


def test_specials(machine, special):
    data, operand1 = np.meshgrid(special, special)
    data, operand1 = data.astype(np.float32).copy(), operand1.astype(np.float32).copy()
    got = machine.outputs(fused("multiply", -1.0, "add"), data, operand1)
    machine.assert_same(got, expected("multiply", "add", data, -1.0, operand1))


def test_views(machine, rng):
    data, operand1 = (rng.standard_normal(SHAPE).astype(np.float32) for _ in range(2))
    column = rng.standard_normal((4, 1)).astype(np.float32)

    def body(out, data, operand1, column):
        made = out(SHAPE, nl.bfloat16)
        nisa.scalar_tensor_tensor(made, data, nl.multiply, column, nl.add, operand1)
        return made

    machine.same_from_views(body, data, operand1, column)


@pytest.mark.parametrize("psum", [{0}, {1}, {2}, {0, 2}])
def test_psum_and_in_place(machine, rng, psum):
    data, operand1 = (rng.standard_normal(SHAPE).astype(np.float32) for _ in range(2))
    column = rng.standard_normal((4, 1)).astype(np.float32)

    def body(data, operand1, column):
        nisa.scalar_tensor_tensor(data, data, nl.multiply, column, nl.add, operand1)
        return data

    got = machine.outputs(body, data, operand1, column, psum=psum)
    machine.assert_same(got, expected("multiply", "add", data, column, operand1))


def test_holes_travel_lane_by_lane(machine):
    def body(data, width):
        other = nl.ndarray((2, 4), nl.float32, nl.sbuf)
        nisa.memset(dst=other[:, 0:3], value=1.0)
        made = nl.ndarray((2, 4), nl.float32, nl.sbuf)
        nisa.scalar_tensor_tensor(made, data, nl.multiply, 2.0, nl.add, other)
        again = nl.ndarray((2, width), nl.float32, nl.sbuf)
        nisa.tensor_copy(dst=again, src=made[:, 0:width])
        return again

    data = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(machine.outputs(lambda data: body(data, 3), data), np.full((2, 3), 3))
    with pytest.raises(Uninitialized, match=r"\[0:2, 3:4\] \(2 of 8 elements\)"):
        machine.run(lambda data: body(data, 4), data)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"op0": "bitwise_and"}, "op0=nl.bitwise_and is not an arithmetic operator of two sides"),
        ({"op1": "abs"}, "op1=nl.abs is not an arithmetic operator of two sides"),
        ({"op0": "exp"}, "op0=nl.exp is not an arithmetic operator of two sides"),
        ({"op1": "abs_max"}, "nl.abs_max needs NeuronCore-v4 (trn3)"),
        ({"operand0": None}, "operand0 is None (NoneType); it must be a tensor or a number"),
    ],
)
def test_refuses(machine, options, message):
    ones = np.ones(SHAPE, np.float32)
    assert f"scalar_tensor_tensor: {message}" in machine.refused(fused(**options), ones, ones)


def test_refuses_extents_and_two_tiles_in_psum(machine):
    ones = np.ones(SHAPE, np.float32)
    text = machine.refused(fused(), ones, np.ones((4, 6), np.float32))
    assert "data has 12 elements per partition and operand1 has 6" in text
    assert "operand0 has 4 partitions of 2 elements" in machine.refused(fused(), ones, ones, ones[:, :2].copy())
    assert "data and operand1 are both in PSUM" in machine.refused(fused(), ones, ones, psum={0, 1})
    text = machine.refused(lambda a, b: nisa.scalar_tensor_tensor(a[:, 0:6], a, nl.add, 1.0, nl.add, b), ones, ones)
    assert "dst has 6 elements per partition and data has 12" in text


def test_time(machine):
    """One element per cycle; the documented bfloat16 case is twice as fast, and a column costs 58 cycles."""
    ones = np.ones((128, 512), np.float32)
    column = np.ones((128, 1), np.float32)
    half = ones.astype(ml_dtypes.bfloat16)
    name = "scalar_tensor_tensor"
    assert machine.time(name, fused(), ones, ones)[0] == pytest.approx((60 + 512) / 0.96, rel=1e-3)
    assert machine.time(name, fused(), ones, ones, column)[1] == pytest.approx((150 + 512 + 58) / 0.96, rel=1e-3)
    assert machine.time(name, fused("subtract", 2.0, "multiply"), half, half)[0] == pytest.approx(
        (60 + 256) / 0.96, rel=1e-3
    )
    assert machine.time(name, fused("add", 2.0, "multiply"), half, half)[0] == pytest.approx(
        (60 + 512) / 0.96, rel=1e-3
    )
