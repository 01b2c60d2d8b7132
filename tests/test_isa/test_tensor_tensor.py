"""``tensor_tensor`` against NumPy: float32 arithmetic, exact integers on GpSimd, bits as they are."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from neurosim.engines import Engine
from neurosim.errors import UnknownBehavior

F = np.float32


def extreme(pick, zero):
    """Return IEEE 754-2019's maximum or minimum: NaN wins, -0 is less than +0."""

    def op(a, b):
        y = np.where((a == 0) & (b == 0), zero(np.signbit(a), np.signbit(b)), pick(a, b))
        return y.astype(F)

    return op


def signed_zero(minus):
    return np.where(minus, F(-0.0), F(0.0))


ARITHMETIC = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": extreme(np.maximum, lambda a, b: signed_zero(a & b)),
    "minimum": extreme(np.minimum, lambda a, b: signed_zero(a | b)),
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater_equal": np.greater_equal,
    "greater": np.greater,
    "less_equal": np.less_equal,
    "less": np.less,
    "logical_and": lambda a, b: (a != 0) & (b != 0),
    "logical_or": lambda a, b: (a != 0) | (b != 0),
    "logical_xor": lambda a, b: (a != 0) ^ (b != 0),
}
BITS = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}


def combiner(op, dtype=None, buffer=nl.sbuf, engine=nisa.engine.unknown, shape=None):
    def body(a, b):
        made = nl.ndarray(shape or a.shape, dtype or a.dtype, buffer)
        nisa.tensor_tensor(dst=made, data1=a, data2=b, op=getattr(nl, op), engine=engine)
        return made

    return body


def pairs(special):
    """Return two arrays that hold every pair of special values."""
    a, b = (grid.ravel().reshape(1, -1) for grid in np.meshgrid(special, special))
    return a, b


@pytest.mark.parametrize("engine", [nisa.engine.unknown, nisa.engine.vector, nisa.engine.gpsimd])
@pytest.mark.parametrize("op", ARITHMETIC)
def test_float32_on_all_pairs_of_special_values(machine, special, op, engine):
    """A6: one policy for NaN and signed zeros, the same on both engines."""
    a, b = pairs(special)
    with np.errstate(all="ignore"):
        expected = ARITHMETIC[op](a, b).astype(F)
    machine.assert_same(machine.outputs(combiner(op, engine=engine), a, b), expected)


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "maximum", "less", "logical_and"])
@pytest.mark.parametrize(
    "source", [ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2, np.int8]
)
@pytest.mark.parametrize("target", [nl.float32, nl.bfloat16, nl.float8_e4m3fn, nl.int16, nl.uint8, nl.bool_])
def test_widens_operates_and_rounds_once(machine, rng, op, source, target):
    a, b = (rng.integers(-100, 100, (8, 40)).astype(F) / 7 for _ in range(2))
    a, b = a.astype(source), b.astype(source)
    expected = ARITHMETIC[op](machine.single(a), machine.single(b)).astype(F)
    machine.assert_same(machine.outputs(combiner(op, target), a, b), machine.rounded(expected, target.numpy))


def test_bfloat16_values_not_patterns(machine):
    """A4: arithmetic and comparisons see values, not bit patterns."""
    a = np.array([[2.5, -5.0]], ml_dtypes.bfloat16)
    b = np.array([[2.0, -2.0]], ml_dtypes.bfloat16)
    np.testing.assert_array_equal(machine.outputs(combiner("add"), a, b).astype(F), [[4.5, -7.0]])
    np.testing.assert_array_equal(machine.outputs(combiner("less"), a, b).astype(F), [[0.0, 1.0]])


def test_dtypes_may_differ_between_operands(machine, rng):
    a = rng.standard_normal((4, 16)).astype(F)
    b = rng.integers(-100, 100, (4, 16)).astype(np.int16)
    expected = (a + b.astype(F)).astype(ml_dtypes.bfloat16)
    machine.assert_same(machine.outputs(combiner("add", nl.bfloat16), a, b), expected)


@pytest.mark.parametrize("op", ARITHMETIC)
def test_in_place_is_the_same(machine, special, op):
    """C4: dst may be one of the inputs."""
    a, b = pairs(special)

    def body(x, y):
        nisa.tensor_tensor(dst=x, data1=x, data2=y, op=getattr(nl, op))
        return x

    def other(x, y):
        nisa.tensor_tensor(dst=y, data1=x, data2=y, op=getattr(nl, op))
        return y

    expected = machine.outputs(combiner(op), a, b)
    machine.assert_same(machine.outputs(body, a, b), expected)
    machine.assert_same(machine.outputs(other, a, b), expected)


def test_views_as_operands(machine, rng):
    """C11, M6: steps on every operand, and broadcasting by a step of zero."""
    a, b = rng.standard_normal((4, 24)).astype(F), rng.standard_normal((4, 6)).astype(F)

    def body(x, y):
        made = nl.ndarray((4, 6, 4), nl.float32, nl.sbuf)
        nisa.memset(dst=made, value=7.0)
        nisa.tensor_tensor(
            dst=made[:, :, ::2],
            data1=x.reshape((4, 6, 4))[:, :, 1::2],
            data2=y.expand_dim(2).broadcast(2, 2),
            op=nl.multiply,
        )
        return made

    expected = np.full((4, 6, 4), 7, F)
    expected[:, :, ::2] = a.reshape(4, 6, 4)[:, :, 1::2] * b[:, :, None]
    machine.assert_same(machine.outputs(body, a, b), expected)


def test_shapes_need_equal_elements_only(machine, rng):
    a, b = rng.standard_normal((4, 12)).astype(F), rng.standard_normal((4, 3, 4)).astype(F)
    got = machine.outputs(combiner("add", shape=(4, 2, 6)), a, b)
    machine.assert_same(got, (a + b.reshape(4, 12)).reshape(4, 2, 6))


# -- integers ---------------------------------------------------------------------------------------------------------

INTS = np.array([0, 1, -1, 2**24 + 1, -(2**24) - 1, 2**31 - 1, -(2**31), 12345678, -7], np.int64)
EXACT = [op for op in ARITHMETIC if op != "divide"]


def int_pairs(dtype):
    values = (INTS & 0xFFFFFFFF).astype(np.uint32).view(dtype)
    return tuple(grid.ravel().reshape(1, -1) for grid in np.meshgrid(values, values))


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
@pytest.mark.parametrize("op", EXACT)
def test_32_bit_integers_are_exact_by_default(machine, op, dtype):
    """A2: "native integer arithmetic" on GpSimd when all tiles are int32 or uint32."""
    a, b = int_pairs(dtype)
    oracle = {"maximum": np.maximum, "minimum": np.minimum}.get(op, ARITHMETIC[op])
    wide = oracle(a.astype(np.int64), b.astype(np.int64)).astype(np.int64)
    expected = (wide & 0xFFFFFFFF).astype(np.uint32).view(dtype)
    result = machine.run(combiner(op), a, b)
    machine.assert_same(result.outputs, expected)
    assert result.program.record(2).signature.engines == {Engine.gpsimd}


@pytest.mark.parametrize("op", ["add", "multiply", "maximum", "equal"])
def test_32_bit_integers_go_through_float32_on_vector(machine, op):
    a, b = int_pairs(np.int32)
    expected = machine.rounded(ARITHMETIC[op](a.astype(F), b.astype(F)).astype(F), np.int32)
    result = machine.run(combiner(op, engine=nisa.engine.vector), a, b)
    machine.assert_same(result.outputs, expected)
    assert result.program.record(2).signature.engine is Engine.vector


def test_psum_sends_integers_to_vector(machine):
    """The automatic dispatch to GpSimd falls back to Vector, and so through float32, when a tile is in PSUM."""
    a, b = np.full((1, 4), 2**24 + 1, np.int32), np.zeros((1, 4), np.int32)
    result = machine.run(combiner("add"), a, b, psum={0})
    np.testing.assert_array_equal(result.outputs, 2**24)
    assert result.program.record(3).signature.engines == {Engine.vector}


def test_narrow_integers_go_through_float32(machine):
    a, b = np.array([[100, -100]], np.int8), np.array([[100, -100]], np.int8)
    np.testing.assert_array_equal(machine.outputs(combiner("add"), a, b), [[127, -128]])


@pytest.mark.parametrize("op", ["divide", "power"])
def test_integer_division_is_not_guessed(machine, op):
    """The manual does not say how GpSimd rounds an integer quotient or power."""
    a, b = int_pairs(np.int32)
    text = machine.refused(combiner(op), a, b, error=UnknownBehavior)
    assert f"nl.{op}" in text
    assert "int32" in text


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32])
@pytest.mark.parametrize("op", BITS)
def test_bit_operators(machine, rng, op, dtype):
    limits = np.iinfo(dtype)
    a, b = (rng.integers(limits.min, limits.max, (8, 32), dtype, endpoint=True) for _ in range(2))
    machine.assert_same(machine.outputs(combiner(op), a, b), BITS[op](a, b))


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint32])
def test_shifts_are_logical(machine, rng, dtype):
    """The operator table: arithmetic shift right is not supported, right_shift fills with zeros."""
    bits = 8 * np.dtype(dtype).itemsize
    limits = np.iinfo(dtype)
    a = rng.integers(limits.min, limits.max, (8, 32), dtype, endpoint=True)
    b = rng.integers(0, bits, (8, 32)).astype(dtype)
    unsigned = f"u{a.itemsize}"
    left = np.left_shift(a.view(unsigned), b.view(unsigned)).view(dtype)
    right = np.right_shift(a.view(unsigned), b.view(unsigned)).view(dtype)
    machine.assert_same(machine.outputs(combiner("left_shift"), a, b), left)
    machine.assert_same(machine.outputs(combiner("right_shift"), a, b), right)


def test_bits_of_floats_through_a_view(machine):
    a = np.array([[1.5, -2.5, np.nan, -0.0]], F)
    mask = np.full((1, 4), 0x7FFFFFFF, np.uint32)

    def body(x, y):
        made = nl.ndarray(x.shape, nl.float32, nl.sbuf)
        nisa.tensor_tensor(dst=made.view(nl.uint32), data1=x.view(nl.uint32), data2=y, op=nl.bitwise_and)
        return made

    assert machine.outputs(body, a, mask).tobytes() == np.abs(a).tobytes()


# -- bool -------------------------------------------------------------------------------------------------------------


def test_bool_in_bool_out(machine):
    """K2: logical operators on truth values, and on numbers that are neither 0 nor 1."""
    a, b = np.array([[True, True, False, False]]), np.array([[True, False, True, False]])
    for op in ("logical_and", "logical_or", "logical_xor"):
        machine.assert_same(machine.outputs(combiner(op), a, b), ARITHMETIC[op](a, b))
    x = np.array([[-1, 2, np.nan, -0.0, 0.0]], F)
    y = np.array([[2, 0.5, 1, 1, np.nan]], F)
    machine.assert_same(machine.outputs(combiner("logical_and", nl.bool_), x, y), np.array([[1, 1, 1, 0, 0]], bool))


# -- power ------------------------------------------------------------------------------------------------------------


def test_power_runs_on_gpsimd(machine, rng):
    a = rng.uniform(0.1, 4, (4, 32)).astype(F)
    b = rng.uniform(-3, 3, (4, 32)).astype(F)
    result = machine.run(combiner("power"), a, b)
    np.testing.assert_allclose(result.outputs, a.astype(np.float64) ** b, rtol=3e-7)
    assert result.program.record(2).signature.engines == {Engine.gpsimd}
    assert "nl.power runs on GpSimd only" in machine.refused(combiner("power", engine=nisa.engine.vector), a, b)
    assert "nl.power runs there" in machine.refused(combiner("power"), a, b, psum={1})


# -- memories and refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("psum", [(), {0}, {1}])
@pytest.mark.parametrize("buffer", [nl.sbuf, nl.psum])
def test_at_most_one_input_in_psum(machine, rng, psum, buffer):
    a, b = rng.standard_normal((4, 16)).astype(F), rng.standard_normal((4, 16)).astype(F)
    machine.assert_same(machine.outputs(combiner("add", buffer=buffer), a, b, psum=psum), a + b)


def test_refuses_two_inputs_in_psum(machine):
    array = np.zeros((4, 16), F)
    text = machine.refused(combiner("add"), array, array, psum={0, 1})
    assert "tensor_tensor: data1 and data2 are both in PSUM" in text
    assert "nisa.tensor_copy" in text


@pytest.mark.parametrize(
    ("body", "shapes", "message"),
    [
        (combiner("add"), ((4, 8), (4, 1)), "data1 has 8 elements per partition and data2 has 1"),
        (combiner("add"), ((4, 8), (5, 8)), "data1 has 4 partitions and data2 has 5"),
        (combiner("add", shape=(4, 9)), ((4, 8), (4, 8)), "dst has 9 elements per partition and data1 has 8"),
        (combiner("exp"), ((4, 8), (4, 8)), "op=nl.exp is not a binary operator"),
        (combiner("abs"), ((4, 8), (4, 8)), "op=nl.abs is not a binary operator"),
        (combiner("invert"), ((4, 8), (4, 8)), "op=nl.invert is not a binary operator"),
        (combiner("bitwise_and"), ((4, 8), (4, 8)), "nl.bitwise_and takes integers of one size"),
        (combiner("add", engine=nisa.engine.scalar), ((4, 8), (4, 8)), "tensor_tensor: cannot run on"),
        (combiner("abs_max"), ((4, 8), (4, 8)), "nl.abs_max needs NeuronCore-v4"),
        (combiner("abs_min"), ((4, 8), (4, 8)), "nl.abs_min needs NeuronCore-v4"),
    ],
)
def test_refuses(machine, body, shapes, message):
    text = machine.refused(body, *(np.zeros(shape, F) for shape in shapes))
    assert text.startswith("tensor_tensor: ")
    assert message in text


def test_implicit_broadcast_says_which_view_to_write(machine):
    """M6: NKI does not broadcast by itself."""
    text = machine.refused(combiner("add"), np.zeros((4, 8), F), np.zeros((4, 1), F))
    assert "NKI does not broadcast by itself: make the extents equal with .broadcast()" in text


def test_refuses_bits_of_different_sizes(machine):
    text = machine.refused(combiner("bitwise_or"), np.zeros((4, 8), np.int32), np.zeros((4, 8), np.int16))
    assert "takes integers of one size" in text


def test_refuses_gpsimd_with_psum(machine):
    array = np.zeros((4, 16), F)
    text = machine.refused(combiner("add", engine=nisa.engine.gpsimd), array, array, psum={0})
    assert "tensor_tensor: GpSimd does not reach PSUM" in text


def test_refuses_numbers_and_strings(machine):
    array = np.zeros((4, 16), F)
    text = machine.refused(lambda a: nisa.tensor_tensor(dst=a, data1=a, data2=1.0, op=nl.add), array)
    assert "tensor_tensor: data2 is 1.0 (float); it must be a tensor" in text
    text = machine.refused(lambda a: nisa.tensor_tensor(dst=a, data1=a, data2=a, op="add"), array)
    assert "op='add' is not a binary operator" in text
    text = machine.refused(lambda a: nisa.tensor_tensor(dst=a, data1=a, data2=a, op=np.add), array)
    assert "is not a binary operator" in text
