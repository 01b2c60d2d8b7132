"""ALU operators: the table, the special values, shapes, and the scalar twin beside every kernel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from neurosim import dtypes
from neurosim.numerics import alu, convert, reference

_SPECIALS = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 1.5, -1.5, np.inf, -np.inf, np.nan, 1e-45, -1e-45]
_SPECIALS += [1.1754944e-38, 3.4028235e38, -3.4028235e38, 16777216.0, -16777215.0, 16777215.0, 0.99999994, 1.0000001]
_SPECIALS += [-0.99999994, 2147483648.0, -2147483648.0, 1 / 3, 7.5, -7.5]
SPECIALS = np.array(_SPECIALS, np.float32)
BINARY = sorted(reference.BINARY)
UNARY = sorted(reference.UNARY)
EXACT = [op for op in BINARY if op != "power"]


def bits(values: NDArray[np.float32]) -> NDArray[np.uint32]:
    return values.view(np.uint32)


def pairs(count: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Every pair of special values, random bit patterns, and random values of like size."""
    rng = np.random.default_rng(7)
    left, right = (grid.reshape(-1) for grid in np.meshgrid(SPECIALS, SPECIALS))
    patterns = rng.integers(0, 1 << 32, (2, count), dtype=np.uint64).astype(np.uint32).view(np.float32)
    values = rng.standard_normal((2, count)).astype(np.float32) * np.float32(10)
    return np.concatenate([left, patterns[0], values[0]]), np.concatenate([right, patterns[1], values[1]])


def twin(op: str, a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.uint32]:
    function = reference.BINARY[op]
    return np.array([reference.bits_of(function(float(x), float(y))) for x, y in zip(a, b, strict=True)], np.uint32)


@pytest.mark.parametrize("op", EXACT)
def test_binary_is_the_twin(op: str) -> None:
    a, b = pairs(2000)
    assert np.array_equal(bits(alu.binary(op, a, b)), twin(op, a, b))


@pytest.mark.parametrize("op", BINARY)
def test_bfloat16_in_one_pass_is_widening_operating_rounding(op: str) -> None:
    """Every code on the left, all of them in another order on the right, and every pair of special values."""
    codes = np.arange(1 << 16).astype(np.uint16)
    others = np.random.default_rng(4).permutation(codes)
    a, b = (convert.narrow(grid.reshape(-1), dtypes.bfloat16) for grid in np.meshgrid(SPECIALS, SPECIALS))
    left = np.concatenate([codes, a.view(np.uint16)]).view(dtypes.bfloat16.numpy)
    right = np.concatenate([others, b.view(np.uint16)]).view(dtypes.bfloat16.numpy)
    wide = alu.binary(op, convert.widen(left, dtypes.bfloat16), convert.widen(right, dtypes.bfloat16))
    want = convert.narrow(wide, dtypes.bfloat16).view(np.uint16)
    assert np.array_equal(alu.binary_bfloat16(op, left, right).view(np.uint16), want)
    assert alu.binary_bfloat16(op, left, right, out=left) is left
    assert np.array_equal(left.view(np.uint16), want)


def test_bfloat16_operands_have_one_shape() -> None:
    a = np.zeros((4, 5), dtypes.bfloat16.numpy)
    with pytest.raises(ValueError, match="do not go together"):
        alu.binary_bfloat16("add", a, a[:, :1])
    with pytest.raises(ValueError, match="out is"):
        alu.binary_bfloat16("add", a, a, np.zeros((4, 5), np.uint16))
    assert np.array_equal(alu.binary_bfloat16("add", a.T, a.T).view(np.uint16), np.zeros((5, 4)))


def power_error(got: NDArray[np.float32], want: NDArray[np.float64]) -> float:
    """The largest error in units in the last place; infinite where a special value is wrong."""
    with np.errstate(all="ignore"):
        near = want.astype(np.float32)
        unit = np.spacing(np.abs(near)).astype(np.float64)
    special = ~np.isfinite(near) | (near == 0)
    same = np.isnan(got) & np.isnan(near) | (got == near) & (np.signbit(got) == np.signbit(near))
    if not same[special].all():
        return math.inf
    error = np.abs(got[~special].astype(np.float64) - want[~special])
    return float(np.max(error / unit[~special]))


def test_power_is_right_to_half_a_unit() -> None:
    rng = np.random.default_rng(3)
    a, b = pairs(3000)
    near_one = (1 + rng.normal(0, 1e-5, 3000)).astype(np.float32)
    base = np.concatenate([a, np.abs(a), near_one, rng.uniform(0, 10, 5000).astype(np.float32)])
    large, small = rng.uniform(-1e7, 1e7, 3000).astype(np.float32), rng.uniform(-40, 40, 5000).astype(np.float32)
    exponent = np.concatenate([b, b, large, small])
    want = np.array([reference.BINARY["power"](float(x), float(y)) for x, y in zip(base, exponent, strict=True)])
    assert power_error(alu.binary("power", base, exponent), want) <= 0.51


@pytest.mark.parametrize("op", UNARY)
def test_unary_is_the_twin(op: str) -> None:
    a, _ = pairs(2000)
    want = np.array([reference.bits_of(reference.UNARY[op](float(x))) for x in a], np.uint32)
    got = alu.unary(op, a)
    assert np.array_equal(bits(got), want)


def test_bypass_copies_bits() -> None:
    a = np.array([0x7F800001, 0xFFFFFFFF, 0x80000000, 1], np.uint32).view(np.float32)
    assert np.array_equal(bits(alu.unary("bypass", a)), bits(a))


@pytest.mark.parametrize(
    ("op", "a", "b", "want"),
    [
        ("maximum", math.nan, 1.0, math.nan),
        ("maximum", 1.0, math.nan, math.nan),
        ("minimum", math.nan, math.nan, math.nan),
        ("minimum", -math.inf, math.nan, math.nan),
        ("maximum", -0.0, 0.0, 0.0),
        ("maximum", 0.0, -0.0, 0.0),
        ("minimum", -0.0, 0.0, -0.0),
        ("minimum", 0.0, -0.0, -0.0),
        ("equal", math.nan, math.nan, 0.0),
        ("not_equal", math.nan, math.nan, 1.0),
        ("equal", 0.0, -0.0, 1.0),
        ("less", -5.0, -2.0, 1.0),
        ("logical_and", -1.0, 2.0, 1.0),
        ("logical_and", math.nan, 1.0, 1.0),
        ("logical_or", -0.0, 0.0, 0.0),
        ("logical_xor", math.nan, 0.0, 1.0),
        ("divide", 1.0, 0.0, math.inf),
        ("divide", -1.0, 0.0, -math.inf),
        ("divide", 0.0, 0.0, math.nan),
        ("add", math.inf, -math.inf, math.nan),
        ("multiply", 0.0, math.inf, math.nan),
        ("multiply", 1e-30, 1e-12, 1e-42),
        ("power", 0.0, 0.0, 1.0),
        ("power", math.nan, 0.0, 1.0),
        ("power", 1.0, math.nan, 1.0),
        ("power", -2.0, 3.0, -8.0),
        ("power", -2.0, 0.5, math.nan),
        ("power", -0.0, -3.0, -math.inf),
        ("power", -math.inf, 3.0, -math.inf),
        ("power", -1.0, math.inf, 1.0),
        ("abs_max", -5.0, 3.0, -5.0),
        ("abs_max", -3.0, 3.0, 3.0),
        ("abs_min", -5.0, 3.0, 3.0),
        ("abs_min", 3.0, -3.0, -3.0),
        ("mod", -7.0, 3.0, 2.0),
        ("mod", 7.0, -3.0, -2.0),
        ("mod", 7.0, math.inf, 7.0),
        ("mod", -7.0, math.inf, math.inf),
        ("fmod", -7.0, 3.0, -1.0),
        ("fmod", 7.0, 0.0, math.nan),
        ("fmod", 3.4028235e38, 3e-45, 0.0),
    ],
)
def test_special_values(op: str, a: float, b: float, want: float) -> None:
    got = alu.binary(op, np.array([[a]], np.float32), np.array([[b]], np.float32))
    expected = reference.CANONICAL_NAN if math.isnan(want) else int(np.float32(want).view(np.uint32))
    assert int(bits(got)[0, 0]) == expected


@pytest.mark.parametrize("op", BINARY)
def test_columns_and_numbers_count_for_a_row(op: str) -> None:
    rng = np.random.default_rng(11)
    wide = rng.choice(SPECIALS, (6, 33))
    column = rng.choice(SPECIALS, (6, 1))
    full = np.ascontiguousarray(np.broadcast_to(column, wide.shape))
    assert np.array_equal(bits(alu.binary(op, wide, column)), bits(alu.binary(op, wide, full)))
    assert np.array_equal(bits(alu.binary(op, column, wide)), bits(alu.binary(op, full, wide)))
    number = np.full(wide.shape, 0.1, np.float32)
    assert np.array_equal(bits(alu.binary(op, wide, 0.1)), bits(alu.binary(op, wide, number)))
    assert np.array_equal(bits(alu.binary(op, 0.1, wide)), bits(alu.binary(op, number, wide)))
    assert np.array_equal(bits(alu.binary(op, column, 0.1)), bits(alu.binary(op, column, number[:, :1])))
    cube = wide[:, :32].reshape(6, 4, 8)
    assert np.array_equal(
        alu.binary(op, cube, column).reshape(6, 32).view("u4"), bits(alu.binary(op, wide, column))[:, :32]
    )


def test_any_layout_gives_the_same() -> None:
    base = np.arange(48, dtype=np.float32).reshape(4, 12)
    want = alu.binary("multiply", base[:, ::2].copy(), base[:, 1::2].copy())
    assert np.array_equal(alu.binary("multiply", base[:, ::2], base[:, 1::2]), want)
    frozen = base[:, ::2].copy()
    frozen.flags.writeable = False
    assert np.array_equal(alu.binary("multiply", frozen, base[:, 1::2]), want)


def test_out_may_be_an_operand() -> None:
    a = np.arange(40, dtype=np.float32).reshape(4, 10)
    want = alu.binary("subtract", a, 3.0)
    assert alu.binary("subtract", a, 3.0, out=a) is a
    assert np.array_equal(a, want)
    assert alu.unary("square", a, out=a) is a
    assert np.array_equal(a, want * want)


def test_shapes_that_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="do not go together"):
        alu.binary("add", np.ones((4, 6), np.float32), np.ones((4, 3), np.float32))
    with pytest.raises(ValueError, match="do not go together"):
        alu.binary("add", np.ones((4, 6), np.float32), np.ones((1, 6), np.float32))


def test_an_out_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="out is"):
        alu.binary("add", np.ones((4, 6), np.float32), 1.0, out=np.empty((4, 5), np.float32))
    with pytest.raises(ValueError, match="out is"):
        alu.unary("abs", np.ones((4, 6), np.float32), out=np.empty((6, 4), np.float32).T)


INTS = np.array([0, 1, -1, 5, -6, 2**31 - 1, -(2**31), 123456789], np.int32)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32])
@pytest.mark.parametrize("op", ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"])
def test_bitvec_operators(op: str, dtype: Any) -> None:
    a = INTS.astype(dtype)
    width = 8 * a.dtype.itemsize
    mask = (1 << width) - 1
    counts = np.array([0, 1, 3, width - 1, width, width + 5, 2, 40], np.int64).astype(dtype)
    functions = {
        "bitwise_and": lambda x, y: x & y,
        "bitwise_or": lambda x, y: x | y,
        "bitwise_xor": lambda x, y: x ^ y,
        "left_shift": lambda x, y: x << y if y < width else 0,
        "right_shift": lambda x, y: x >> y,
    }
    want = [functions[op](int(x) & mask, int(y) & mask) & mask for x, y in zip(a, counts, strict=True)]
    got = alu.binary_bits(op, a, counts)
    assert got.dtype == a.dtype
    assert [int(v) & mask for v in got] == want
    number = alu.binary_bits(op, a, 3)
    assert [int(v) & mask for v in number] == [functions[op](int(x) & mask, 3) & mask for x in a]


def test_bitvec_of_a_column_and_invert() -> None:
    a = np.array([[1, 2, 3], [4, 5, 6]], np.int32)
    assert alu.binary_bits("left_shift", a, np.array([[1], [2]], np.int32)).tolist() == [[2, 4, 6], [16, 20, 24]]
    assert alu.binary_bits("invert", a, 0).tolist() == (~a).tolist()


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "maximum", "minimum", "less", "logical_xor", "equal"])
def test_integers_are_exact(op: str, dtype: Any) -> None:
    left, right = (grid.reshape(-1).astype(dtype) for grid in np.meshgrid(INTS, INTS))
    functions: dict[str, Any] = {
        "add": lambda x, y: x + y,
        "subtract": lambda x, y: x - y,
        "multiply": lambda x, y: x * y,
        "maximum": max,
        "minimum": min,
        "less": lambda x, y: int(x < y),
        "logical_xor": lambda x, y: int(bool(x) != bool(y)),
        "equal": lambda x, y: int(x == y),
    }
    got = alu.binary_int(op, left, right)
    assert got.dtype == left.dtype
    want = [functions[op](int(x), int(y)) & 0xFFFFFFFF for x, y in zip(left, right, strict=True)]
    assert [int(v) & 0xFFFFFFFF for v in got] == want


def test_an_integer_number_counts_modulo_2_32() -> None:
    a = np.array([0x01000001], np.uint32)
    assert alu.binary_int("add", a, 1).tolist() == [0x01000002]
    assert alu.binary_int("add", a.view(np.int32), -2).tolist() == [0x00FFFFFF]


def test_table() -> None:
    assert [op.code for op in alu.ALU.values()] == list(range(len(alu.ALU)))
    assert all(name == op.name for name, op in alu.ALU.items())
    reducing = {name for name, op in alu.ALU.items() if op.reduces}
    assert reducing == {"bitwise_and", "bitwise_or", "bitwise_xor", "add", "subtract", "multiply", "maximum"} | {
        "minimum", "logical_and", "logical_or", "logical_xor"
    }  # fmt: skip
    assert {name for name, op in alu.ALU.items() if op.kind == "arithmetic"} == set(reference.BINARY)
    assert {name for name, op in alu.ALU.items() if op.kind == "unary"} == {*reference.UNARY, "bypass"}
    assert all((op.arity == 1) == (op.kind == "unary" or op.name == "invert") for op in alu.ALU.values())


@pytest.mark.parametrize("op", [name for name, op in alu.ALU.items() if op.commutative and op.kind == "arithmetic"])
def test_commutative_operators_commute(op: str) -> None:
    a, b = pairs(500)
    assert np.array_equal(bits(alu.binary(op, a, b)), bits(alu.binary(op, b, a)))
