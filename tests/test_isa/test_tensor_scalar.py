"""``tensor_scalar`` against NumPy: two float32 operations with numbers or columns, or bits as they are."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from neurosim.devices import load_chip
from neurosim.engines import Engine

F = np.float32
BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
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
UNARY = {
    "abs": np.abs,
    "square": np.square,
    "relu": lambda a: np.where(np.isnan(a), a, np.maximum(a, 0)),
    "sqrt": np.sqrt,
    "reciprocal": lambda a: F(1) / a,
    "logical_not": lambda a: a == 0,
}


def scaler(dtype=None, buffer=nl.sbuf, **options):
    """Apply options; a callable among them is called with the input tiles."""

    def body(data, *columns):
        made = nl.ndarray(data.shape, dtype or data.dtype, buffer)
        given = {
            name: value(*columns) if callable(value) and name.startswith("operand") else value
            for name, value in options.items()
        }
        nisa.tensor_scalar(dst=made, data=data, **given)
        return made

    return body


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize("number", [2.5, -3.0, 0.0, 1e-40, np.inf, np.nan])
def test_one_operator_with_a_number(machine, special, op, number):
    data = special[special != 0].reshape(1, -1)
    with np.errstate(all="ignore"):
        expected = BINARY[op](data, F(number)).astype(F)
    machine.assert_same(machine.outputs(scaler(op0=getattr(nl, op), operand0=number), data), expected)


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize("reverse", [False, True])
def test_one_operator_with_a_column(machine, rng, op, reverse):
    data = rng.integers(-3, 4, (128, 24)).astype(F)
    column = rng.integers(-3, 4, (128, 1)).astype(F)
    with np.errstate(all="ignore"):
        expected = (BINARY[op](column, data) if reverse else BINARY[op](data, column)).astype(F)
    body = scaler(op0=getattr(nl, op), operand0=lambda c: c, reverse0=reverse)
    machine.assert_same(machine.outputs(body, data, column), expected)


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("operand", [None, 0, 0.0])
def test_unary_operators_ignore_their_operand(machine, special, op, operand):
    """ "Must be None or 0 when op0 is a unary operator"."""
    data = special.reshape(1, -1)
    with np.errstate(all="ignore"):
        expected = UNARY[op](data).astype(F)
    chip = load_chip("trn2").replace(chip__generation=4) if op in ("square", "relu") else "trn2"
    machine.assert_same(machine.outputs(scaler(op0=getattr(nl, op), operand0=operand), data, chip=chip), expected)


def test_rsqrt(machine, rng):
    data = rng.uniform(0.01, 100, (8, 64)).astype(F)
    expected = (1 / np.sqrt(data.astype(np.float64))).astype(F)
    for engine in (nisa.engine.unknown, nisa.engine.gpsimd):
        got = machine.outputs(scaler(op0=nl.rsqrt, operand0=0.0, engine=engine), data)
        np.testing.assert_allclose(got, expected, rtol=1.2e-7)


@pytest.mark.parametrize(("op0", "op1"), [("multiply", "add"), ("subtract", "divide"), ("maximum", "minimum")])
@pytest.mark.parametrize("reverse0", [False, True])
@pytest.mark.parametrize("reverse1", [False, True])
def test_two_operators_round_in_between(machine, rng, op0, op1, reverse0, reverse1):
    """(data <op0> operand0) <op1> operand1: each result is rounded to float32, and nothing is fused."""
    data = rng.standard_normal((16, 100)).astype(F)
    column = rng.standard_normal((16, 1)).astype(F)
    number = F(1.7)
    first = BINARY[op0](*((number, data) if reverse0 else (data, number))).astype(F)
    second = BINARY[op1](*((column, first) if reverse1 else (first, column))).astype(F)
    body = scaler(
        op0=getattr(nl, op0),
        operand0=1.7,
        reverse0=reverse0,
        op1=getattr(nl, op1),
        operand1=lambda c: c,
        reverse1=reverse1,
    )
    machine.assert_same(machine.outputs(body, data, column), second)


def test_multiply_then_add_is_not_fused(machine):
    """A fused multiply-add would keep 2**-46."""
    data = np.array([[1 + 2.0**-23]], F)
    body = scaler(op0=nl.multiply, operand0=1 + 2.0**-23, op1=nl.add, operand1=-(1 + 2.0**-22))
    np.testing.assert_array_equal(machine.outputs(body, data), [[0.0]])


@pytest.mark.parametrize(
    "source", [ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3, np.int16, np.uint8, np.int32]
)
@pytest.mark.parametrize("target", [nl.float32, nl.bfloat16, nl.float16, nl.float8_e5m2, nl.int8, nl.uint16, nl.bool_])
def test_widens_and_rounds_once(machine, rng, source, target):
    data = rng.integers(-120, 120, (8, 32)).astype(F).astype(source)
    expected = (machine.single(data) * F(1.37)).astype(F) + F(0.5)
    body = scaler(target, op0=nl.multiply, operand0=1.37, op1=nl.add, operand1=0.5)
    machine.assert_same(machine.outputs(body, data), machine.rounded(expected, target.numpy))


def test_integers_go_through_float32(machine):
    """A2: on Vector, 0x01000001 + 1 is a float32 sum."""
    data = np.array([[0x01000001, 5]], np.uint32)
    np.testing.assert_array_equal(
        machine.outputs(scaler(op0=nl.add, operand0=1), data), [[int(F(0x01000001) + F(1)), 6]]
    )


def test_an_int_is_a_number(machine, rng):
    data = rng.standard_normal((4, 8)).astype(F)
    for number in (3, np.int32(3), np.float32(3), np.float64(3.0)):
        machine.assert_same(machine.outputs(scaler(op0=nl.multiply, operand0=number), data), data * F(3))


def test_numbers_are_rounded_to_float32(machine):
    data = np.array([[0.0]], F)
    got = machine.outputs(scaler(op0=nl.add, operand0=0.1), data)
    machine.assert_same(got, np.array([[0.1]], F))
    got = machine.outputs(scaler(op0=nl.add, operand0=2**24 + 1), data)
    machine.assert_same(got, np.array([[2.0**24]], F))


def test_adding_in_bfloat16_drifts_as_rounding_to_even_does(machine):
    """A12: 100 additions of 1e-3 in a bfloat16 tile, against the same roundings in NumPy."""
    start = np.linspace(-1, 1, 64).astype(ml_dtypes.bfloat16).reshape(1, -1)

    def body(tile):
        for _ in range(100):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1e-3)
        return tile

    expected = start
    for _ in range(100):
        expected = (expected.astype(F) + F(1e-3)).astype(ml_dtypes.bfloat16)
    machine.assert_same(machine.outputs(body, start), expected)


# -- bits -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32])
def test_bit_operators(machine, rng, dtype):
    limits = np.iinfo(dtype)
    data = rng.integers(limits.min, limits.max, (8, 32), dtype, endpoint=True)
    column = rng.integers(limits.min, limits.max, (8, 1), dtype, endpoint=True)
    machine.assert_same(machine.outputs(scaler(op0=nl.bitwise_and, operand0=0x5A), data), data & dtype(0x5A))
    machine.assert_same(machine.outputs(scaler(op0=nl.bitwise_xor, operand0=-1), data), ~data)
    machine.assert_same(machine.outputs(scaler(op0=nl.invert, operand0=None), data), ~data)
    machine.assert_same(machine.outputs(scaler(op0=nl.bitwise_or, operand0=lambda c: c), data, column), data | column)
    unsigned = data.view(f"u{data.itemsize}")
    machine.assert_same(
        machine.outputs(scaler(op0=nl.right_shift, operand0=3, op1=nl.bitwise_and, operand1=7), data),
        ((unsigned >> 3) & 7).view(dtype),
    )
    machine.assert_same(machine.outputs(scaler(op0=nl.left_shift, operand0=2), data), (unsigned << 2).view(dtype))
    got = machine.outputs(scaler(op0=nl.left_shift, operand0=1, reverse0=True), np.arange(8, dtype=dtype).reshape(1, 8))
    machine.assert_same(got, (1 << np.arange(8)).astype(unsigned.dtype).view(dtype).reshape(1, 8))


@pytest.mark.parametrize("op", ["bitwise_and", "left_shift", "invert"])
def test_bit_operators_refuse_floats(machine, op):
    operand = None if op == "invert" else 1
    text = machine.refused(scaler(op0=getattr(nl, op), operand0=operand), np.zeros((4, 8), F))
    assert f"tensor_scalar: nl.{op} takes integers of one size" in text


def test_bit_operators_refuse_other_operands(machine):
    data = np.zeros((4, 8), np.int32)
    assert "operand0 is 1.5" in machine.refused(scaler(op0=nl.bitwise_and, operand0=1.5), data)
    text = machine.refused(scaler(op0=nl.bitwise_and, operand0=lambda c: c), data, np.zeros((4, 1), F))
    assert "operand0 is float32; it must be int32" in text
    text = machine.refused(scaler(nl.int16, op0=nl.bitwise_and, operand0=1), data)
    assert "takes integers of one size" in text


# -- engines ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"op0": nl.multiply, "operand0": 2.0, "op1": nl.add, "operand1": 1.0},
        {"op0": nl.multiply, "operand0": 2.0},
        {"op0": nl.add, "operand0": 2.0},
    ],
)
def test_scalar_runs_three_combinations(machine, rng, options):
    data = rng.standard_normal((4, 8)).astype(F)
    vector = machine.run(scaler(**options), data)
    scalar = machine.run(scaler(engine=nisa.engine.scalar, **options), data)
    machine.assert_same(scalar.outputs, vector.outputs)
    assert scalar.program.record(1).signature.engine is Engine.scalar
    assert vector.program.record(1).signature.engine is Engine.vector


@pytest.mark.parametrize(
    ("engine", "options", "message"),
    [
        ("scalar", {"op0": nl.subtract, "operand0": 1.0}, "Scalar cannot run nl.subtract\n"),
        ("scalar", {"op0": nl.add, "operand0": 1.0, "op1": nl.multiply, "operand1": 1.0}, "nl.add then nl.multiply"),
        ("gpsimd", {"op0": nl.add, "operand0": 1.0}, "GpSimd runs nl.rsqrt only in tensor_scalar"),
        ("gpsimd", {"op0": nl.rsqrt, "operand0": None, "op1": nl.add, "operand1": 1.0}, "GpSimd runs nl.rsqrt only"),
        ("tensor", {"op0": nl.add, "operand0": 1.0}, "tensor_scalar: cannot run on"),
    ],
)
def test_engines_refuse(machine, engine, options, message):
    body = scaler(engine=getattr(nisa.engine, engine), **options)
    assert message in machine.refused(body, np.zeros((4, 8), F))


def test_gpsimd_does_not_reach_psum(machine):
    body = scaler(op0=nl.rsqrt, operand0=0.0, engine=nisa.engine.gpsimd)
    assert "GpSimd does not reach PSUM" in machine.refused(body, np.ones((4, 8), F), psum={0})


# -- operands ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("psum", [(), {0}, {1}, {0, 1}])
@pytest.mark.parametrize("buffer", [nl.sbuf, nl.psum])
def test_memories(machine, rng, psum, buffer):
    data, column = rng.standard_normal((4, 8)).astype(F), rng.standard_normal((4, 1)).astype(F)
    body = scaler(buffer=buffer, op0=nl.add, operand0=lambda c: c)
    machine.assert_same(machine.outputs(body, data, column, psum=psum), data + column)


def test_column_from_a_wider_tile(machine, rng):
    data, columns = rng.standard_normal((4, 8)).astype(F), rng.standard_normal((4, 5)).astype(F)
    body = scaler(op0=nl.subtract, operand0=lambda c: c[:, 3], op1=nl.multiply, operand1=lambda c: c[:, 1:2])
    machine.assert_same(machine.outputs(body, data, columns), (data - columns[:, 3:4]) * columns[:, 1:2])


def test_in_place(machine, rng):
    data = rng.standard_normal((4, 8)).astype(F)

    def body(tile):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.subtract, operand0=tile[:, 0])
        return tile

    machine.assert_same(machine.outputs(body, data), data - data[:, 0:1])


@pytest.mark.parametrize(
    ("options", "columns", "message"),
    [
        ({"op0": nl.add, "operand0": lambda c: c}, (4, 8), "operand0 has 4 partitions of 8 elements"),
        ({"op0": nl.add, "operand0": lambda c: c}, (3, 1), "it must be a number or a tile of shape (4, 1)"),
        ({"op0": nl.add, "operand0": lambda c: c}, (1, 4), "operand0 has 1 partitions of 4 elements"),
        ({"op0": nl.add, "operand0": None}, (), "nl.add needs operand0"),
        ({"op0": nl.abs, "operand0": 3.0}, (), "nl.abs takes one side, and operand0 is 3.0"),
        ({"op0": nl.add, "operand0": "1"}, (), "operand0 is '1' (str); it must be a tensor or a number"),
        ({"op0": nl.add, "operand0": True}, (), "operand0 is True (bool)"),
        ({"op0": nl.add, "operand0": 1.0, "operand1": 2.0}, (), "operand1 is given without op1"),
        ({"op0": nl.add, "operand0": 1.0, "op1": nl.add}, (), "nl.add needs operand1"),
        ({"op0": nl.exp, "operand0": 1.0}, (), "op=nl.exp is not an operator of tensor_scalar"),
        ({"op0": "add", "operand0": 1.0}, (), "op='add' is not an operator"),
        ({"op0": nl.abs_max, "operand0": 1.0}, (), "nl.abs_max needs NeuronCore-v4"),
        ({"op0": nl.square, "operand0": 0.0}, (), "nl.square needs NeuronCore-v4"),
        ({"op0": nl.relu, "operand0": 0.0}, (), "nl.relu needs NeuronCore-v4"),
    ],
)
def test_refuses(machine, options, columns, message):
    arrays = [np.zeros((4, 8), F)] + ([np.zeros(columns, F)] if columns else [])
    text = machine.refused(scaler(**options), *arrays)
    assert text.startswith("tensor_scalar: ")
    assert message in text


def test_refuses_columns_that_are_not_float32(machine):
    body = scaler(op0=nl.add, operand0=lambda c: c)
    text = machine.refused(body, np.zeros((4, 8), F), np.zeros((4, 1), ml_dtypes.bfloat16))
    assert "operand0 is bfloat16; it must be float32" in text


def test_refuses_bit_and_arithmetic_operators_in_one(machine):
    body = scaler(op0=nl.bitwise_and, operand0=1, op1=nl.add, operand1=1.0)
    assert "mix bit and arithmetic operators" in machine.refused(body, np.zeros((4, 8), np.int32))


def test_pointers_are_counted(machine):
    """Columns are fetched before the stream begins; numbers are not."""
    body = scaler(op0=nl.add, operand0=lambda c: c, op1=nl.multiply, operand1=2.0)
    result = machine.run(body, np.zeros((4, 8), F), np.zeros((4, 1), F))
    (work,) = result.program.record(2).signature.work
    assert (work.pointers, work.elements) == (1, 8)
