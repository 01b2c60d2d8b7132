"""``activation`` and ``activation_reduce``: func(data · scale + bias) in float32, and the accumulator registers."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.engines import Engine
from neurosim.errors import IllegalOperand, Uninitialized
from neurosim.work import AccumulatorRead, Lanewise

F = np.float32
REDUCE = nisa.reduce_cmd

phi = np.vectorize(lambda z: 0.5 * math.erfc(-z / math.sqrt(2)))
density = np.vectorize(lambda z: math.exp(-z * z / 2) / math.sqrt(2 * math.pi))


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def tanh_argument(z):
    return math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)


FUNCTIONS = {
    "copy": lambda z: z,
    "square": np.square,
    "abs": np.abs,
    "sign": np.sign,
    "relu": lambda z: np.maximum(z, 0),
    "sqrt": np.sqrt,
    "rsqrt": lambda z: 1 / np.sqrt(z),
    "reciprocal": lambda z: 1 / z,
    "exp": np.exp,
    "log": np.log,
    "sigmoid": sigmoid,
    "silu": lambda z: z * sigmoid(z),
    "silu_dx": lambda z: sigmoid(z) * (1 + z * (1 - sigmoid(z))),
    "tanh": np.tanh,
    "softplus": lambda z: np.log1p(np.exp(z)),
    "mish": lambda z: z * np.tanh(np.log1p(np.exp(z))),
    "gelu": lambda z: z * phi(z),
    "gelu_dx": lambda z: phi(z) + z * density(z),
    "gelu_apprx_tanh": lambda z: z * sigmoid(2 * tanh_argument(z)),  # (1 + tanh y) / 2, without cancellation
    "gelu_apprx_sigmoid": lambda z: z * sigmoid(1.702 * z),
    "gelu_apprx_sigmoid_dx": lambda z: sigmoid(1.702 * z) * (1 + 1.702 * z * (1 - sigmoid(1.702 * z))),
    "erf": np.vectorize(math.erf),
    "erf_dx": lambda z: 2 / math.sqrt(math.pi) * np.exp(-z * z),
    "sin": np.sin,
    "arctan": np.arctan,
}
POSITIVE = ("sqrt", "rsqrt", "log", "reciprocal")
NARROW = ("sin", "arctan")


def activator(op, dtype=None, buffer=nl.sbuf, shape=None, **options):
    """Apply options; a callable among bias and scale is called with the other tiles."""

    def body(data, *columns):
        made = nl.ndarray(shape or data.shape, dtype or data.dtype, buffer)
        given = {
            name: value(*columns) if name in ("bias", "scale") and callable(value) else value
            for name, value in options.items()
        }
        nisa.activation(dst=made, op=getattr(nl, op), data=data, **given)
        return made

    return body


def domain(rng, op, shape=(16, 64)):
    """Return inputs within the valid range of a function, away from overflow."""
    if op in POSITIVE:
        return np.exp(rng.uniform(-5, 5, shape)).astype(F)
    return rng.uniform(-1.5, 1.5, shape).astype(F) if op in NARROW else rng.uniform(-6, 6, shape).astype(F)


@pytest.mark.parametrize("op", FUNCTIONS)
def test_functions_against_float64(machine, rng, op):
    data = domain(rng, op)
    expected = FUNCTIONS[op](data.astype(np.float64))
    got = machine.outputs(activator(op), data)
    assert got.dtype == F
    np.testing.assert_allclose(got, expected, rtol=3e-7, atol=1e-30 if op != "erf_dx" else 1e-20)


def test_every_documented_function_is_there():
    """The table of activation functions; prelu has no documented slope operand in activation."""
    for op in FUNCTIONS:
        assert repr(getattr(nl, op)) == f"nl.{op}"


@pytest.mark.parametrize("op", FUNCTIONS)
def test_scale_and_bias_come_before_the_function(machine, rng, op):
    """A18: f(2x + 1) for every function, copy included; the product rounds, then the sum."""
    data = domain(rng, op) / F(8)
    argument = ((data * F(2.1)).astype(F) + F(0.3)).astype(F)
    expected = machine.outputs(activator(op), argument)
    machine.assert_same(machine.outputs(activator(op, scale=2.1, bias=0.3), data), expected)
    columns = rng.uniform(0.1, 0.9, (2, 16, 1)).astype(F)
    argument = ((data * columns[0]).astype(F) + columns[1]).astype(F)
    expected = machine.outputs(activator(op), argument)
    got = machine.outputs(activator(op, scale=lambda s, b: s, bias=lambda s, b: b), data, columns[0], columns[1])
    machine.assert_same(got, expected)


def test_product_and_sum_are_not_fused(machine):
    data = np.array([[1 + 2.0**-23]], F)
    got = machine.outputs(activator("copy", scale=1 + 2.0**-23, bias=-(1 + 2.0**-22)), data)
    np.testing.assert_array_equal(got, [[0.0]])


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16, np.int32, np.int8])
def test_bias_of_any_dtype(machine, rng, dtype):
    data = rng.standard_normal((8, 16)).astype(F)
    bias = rng.integers(-50, 50, (8, 1)).astype(dtype)
    machine.assert_same(machine.outputs(activator("copy", bias=lambda b: b), data, bias), data + machine.single(bias))


@pytest.mark.parametrize("source", [ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3, np.int8, np.int32])
@pytest.mark.parametrize("target", [nl.float32, nl.bfloat16, nl.float8_e5m2, nl.int16, nl.bool_])
def test_widens_and_rounds_once(machine, rng, source, target):
    data = rng.integers(-100, 100, (8, 32)).astype(F).astype(source)
    got = machine.outputs(activator("copy", target, scale=0.37), data)
    machine.assert_same(got, machine.rounded(machine.single(data) * F(0.37), target.numpy))


def test_copy_keeps_special_values(machine, special):
    data = special.reshape(1, -1)
    machine.assert_same(machine.outputs(activator("copy"), data), data)


def test_copy_of_each_bfloat16_is_itself_or_the_one_nan(machine):
    codes = np.arange(2**16, dtype=np.uint16).reshape(128, 512)
    got = machine.outputs(activator("copy"), codes.view(ml_dtypes.bfloat16)).view(np.uint16)
    np.testing.assert_array_equal(got, np.where(codes & 0x7FFF > 0x7F80, 0x7FC0, codes))


def test_special_values(machine, special):
    """A17: what the functions do at and beyond their ends; NaN stays NaN, Inf follows the limit."""
    data = np.array([[np.inf, -np.inf, np.nan, 89.0, -104.0, 0.0, -0.0]], F)
    with np.errstate(all="ignore"):
        machine.assert_same(
            machine.outputs(activator("exp"), data), np.array([[np.inf, 0, np.nan, np.inf, 0, 1, 1]], F)
        )
        machine.assert_same(machine.outputs(activator("tanh"), data), np.array([[1, -1, np.nan, 1, -1, 0, -0.0]], F))
        machine.assert_same(machine.outputs(activator("sigmoid"), data)[:, :3], np.array([[1, 0, np.nan]], F))
        machine.assert_same(machine.outputs(activator("relu"), data), np.array([[np.inf, 0, np.nan, 89, 0, 0, 0]], F))


# -- valid ranges -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "inside", "outside"),
    [
        ("sin", [math.pi, -math.pi], [9.0, -3.2]),
        ("arctan", [1.5, -1.5], [2.0, -100.0]),
        ("log", [2.0**-64, 2.0**64], [0.0, -1.0]),
        ("sqrt", [2.0**-116, 2.0**118], [0.0, 2.0**119]),
        ("rsqrt", [2.0**-87, 2.0**97], [0.0, -1.0]),
        ("reciprocal", [2.0**-42, -(2.0**42)], [0.0, 2.0**43]),
    ],
)
def test_inputs_outside_of_the_valid_range_are_counted(machine, op, inside, outside):
    """A17: the hardware is wrong there; the run says how many inputs and where, once an instruction."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        machine.run(activator(op), np.array([inside], F))
    with pytest.warns(nisa.OutOfRangeWarning) as caught:
        machine.run(activator(op), np.array([[*inside, *outside]], F))
    (warning,) = caught
    assert f"activation(op=nl.{op}): 2 inputs outside of the valid range" in str(warning.message)
    assert ("a cubic" if op == "sin" else "neurosim's is the function's") in str(warning.message)
    assert Path(warning.filename) == Path(__file__), "the warning points at the kernel"


def test_the_range_is_that_of_the_scaled_input(machine):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        machine.run(activator("sin", scale=0.25), np.array([[9.0]], F))
    with pytest.warns(nisa.OutOfRangeWarning, match="1 inputs"):
        machine.run(activator("sin", bias=1.0, scale=2.0), np.array([[1.2]], F))


def test_functions_without_a_range_say_nothing(machine):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = machine.outputs(activator("exp", scale=3.0, bias=1.0), np.array([[3e38, -np.inf, np.nan, 0.0]], F))
        np.testing.assert_allclose(found, np.array([[np.inf, 0.0, np.nan, np.e]], F), rtol=2e-7)
        found = machine.outputs(activator("sqrt", scale=3.0), np.array([[np.nan, 1.0]], F))
        np.testing.assert_allclose(found, np.array([[np.nan, np.sqrt(3)]], F), rtol=2e-7)


def test_sin_beyond_pi_is_the_hardware_cubic(machine):
    """nki.api.shared.rst: "sin(9.0) returns ~27.65 (not ~0.41)"."""
    with pytest.warns(nisa.OutOfRangeWarning):
        got = machine.outputs(activator("sin"), np.array([[9.0, -9.0]], F))
    np.testing.assert_allclose(got, [[27.65, -27.65]], rtol=1e-3)


# -- the accumulator registers ----------------------------------------------------------------------------------------


def summed(values):
    """Sum float32 rows in ascending order."""
    total = values[:, 0].copy()
    for column in range(1, values.shape[1]):
        total = total + values[:, column]
    return total[:, None]


def test_reset_reduce_sums_before_rounding(machine, rng):
    data = rng.standard_normal((128, 100)).astype(F)

    def body(tile):
        made = nl.ndarray(tile.shape, nl.bfloat16, nl.sbuf)
        total = nl.ndarray((128, 1), nl.float32, nl.sbuf)
        nisa.activation(
            dst=made, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=total, reduce_cmd=REDUCE.reset_reduce
        )
        return made, total

    made, total = machine.outputs(body, data)
    machine.assert_same(made, np.square(data).astype(ml_dtypes.bfloat16))
    machine.assert_same(total, summed(np.square(data)))


@pytest.mark.parametrize("axes", [(6,), (2, 3), (1, 2, 3)])
def test_sums_over_all_free_axes(machine, rng, axes):
    data = rng.standard_normal((4, *axes)).astype(F)

    def body(tile):
        total = nl.ndarray((4, 1), nl.float32, nl.sbuf)
        made = nl.ndarray(tile.shape, nl.float32, nl.sbuf)
        nisa.activation_reduce(dst=made, op=nl.copy, data=tile, reduce_op=nl.add, reduce_res=total)
        return total

    machine.assert_same(machine.outputs(body, data), summed(data.reshape(4, -1)))


def test_registers_persist_and_add_up(machine, rng):
    """reset_reduce, reduce, reduce, then a read with idle: the registers hold the sum of all three."""
    data = rng.standard_normal((3, 8, 20)).astype(F)

    def body(*tiles):
        made = nl.ndarray(tiles[0].shape, nl.float32, nl.sbuf)
        totals = [nl.ndarray((8, 1), nl.float32, nl.sbuf) for _ in range(2)]
        nisa.activation(dst=made, op=nl.copy, data=tiles[0], reduce_op=nl.add, reduce_cmd=REDUCE.reset_reduce)
        nisa.activation(dst=made, op=nl.copy, data=tiles[1], reduce_op=nl.add, reduce_cmd=REDUCE.reduce)
        nisa.activation(
            dst=made, op=nl.copy, data=tiles[2], reduce_op=nl.add, reduce_res=totals[0], reduce_cmd=REDUCE.reduce
        )
        nisa.activation(dst=made, op=nl.exp, data=tiles[0])  # A19: idle by default, and leaves the registers alone
        nisa.activation(dst=made, op=nl.copy, data=tiles[0], reduce_res=totals[1])
        return totals

    first, second = machine.outputs(body, *data)
    expected = (summed(data[0]) + summed(data[1])) + summed(data[2])
    machine.assert_same(first, expected)
    machine.assert_same(second, expected)


def test_reset_sets_zero(machine, rng):
    data = rng.standard_normal((8, 4)).astype(F)

    def body(tile):
        made = nl.ndarray(tile.shape, nl.float32, nl.sbuf)
        total = nl.ndarray((8, 2), nl.float32, nl.sbuf)
        nisa.activation(dst=made, op=nl.copy, data=tile, reduce_op=nl.add, reduce_cmd=REDUCE.reset_reduce)
        nisa.activation(dst=made, op=nl.copy, data=tile, reduce_cmd=REDUCE.reset, reduce_res=total[:, 0])
        nisa.activation(
            dst=made, op=nl.copy, data=tile, reduce_op=nl.add, reduce_cmd=REDUCE.reduce, reduce_res=total[:, 1]
        )
        return total

    np.testing.assert_array_equal(machine.outputs(body, data), np.hstack([np.zeros((8, 1), F), summed(data)]))


def test_activation_reduce_is_activation_with_reset_reduce(machine, rng):
    data, bias = rng.standard_normal((16, 40)).astype(F), rng.standard_normal((16, 1)).astype(F)

    def body(tile, column):
        made = [nl.ndarray(tile.shape, nl.bfloat16, nl.sbuf) for _ in range(2)]
        totals = [nl.ndarray((16, 1), nl.float32, nl.sbuf) for _ in range(2)]
        options = {"op": nl.exp, "data": tile, "bias": column, "scale": 0.5, "reduce_op": nl.add}
        nisa.activation(dst=made[0], reduce_res=totals[0], reduce_cmd=REDUCE.reset_reduce, **options)
        nisa.activation_reduce(dst=made[1], reduce_res=totals[1], **options)
        return *made, *totals

    one, two, first, second = machine.outputs(body, data, bias)
    machine.assert_same(two, one)
    machine.assert_same(second, first)


def test_activation_reduce_may_keep_its_sum(machine, rng):
    """reduce_res=None keeps the result in the registers; the operand itself must be given."""
    data = rng.standard_normal((4, 8)).astype(F)

    def body(tile):
        made, total = (nl.ndarray(shape, nl.float32, nl.sbuf) for shape in (tile.shape, (4, 1)))
        nisa.activation_reduce(dst=made, op=nl.copy, data=tile, reduce_op=nl.add, reduce_res=None)
        nisa.activation(dst=made, op=nl.copy, data=tile, reduce_res=total)
        return total

    machine.assert_same(machine.outputs(body, data), summed(data))


def test_sum_lands_after_dst(machine, rng):
    """C4: reduce_res within dst: the registers are read out by a second instruction, so the sum wins."""
    data = rng.standard_normal((4, 8)).astype(F)

    def body(tile):
        nisa.activation_reduce(dst=tile, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=tile[:, 0:1])
        return tile

    expected = np.square(data)
    expected[:, 0:1] = summed(np.square(data))
    machine.assert_same(machine.outputs(body, data), expected)


def test_registers_must_be_set_first(machine):
    def body(tile):
        nisa.activation(dst=tile, op=nl.copy, data=tile, reduce_op=nl.add, reduce_cmd=REDUCE.reduce)

    text = machine.refused(body, np.zeros((4, 8), F), error=Uninitialized)
    assert "the accumulator registers of the scalar engine were never set" in text
    assert "reset" in text

    def reader(tile):
        nisa.activation(dst=tile, op=nl.copy, data=tile, reduce_res=tile[:, 0:1])

    machine.refused(reader, np.zeros((4, 8), F), error=Uninitialized)


def test_registers_hold_as_many_lanes_as_were_reset(machine):
    def body(tile):
        nisa.activation(dst=tile[0:64], op=nl.copy, data=tile[0:64], reduce_op=nl.add, reduce_cmd=REDUCE.reset_reduce)
        nisa.activation(dst=tile, op=nl.copy, data=tile, reduce_op=nl.add, reduce_cmd=REDUCE.reduce)

    text = machine.refused(body, np.zeros((128, 8), F), error=Uninitialized)
    assert "accumulator register 64 of the scalar engine holds nothing known" in text


def test_a_hole_stays_in_the_registers(machine):
    """Rows that nobody wrote were summed: a later instruction must not read that sum as a number."""

    def body(tile):
        partial, total = nl.ndarray((128, 8), nl.float32, nl.sbuf), nl.ndarray((128, 1), nl.float32, nl.sbuf)
        nisa.tensor_copy(dst=partial[0:32], src=tile[0:32])
        nisa.activation_reduce(dst=partial, op=nl.copy, data=partial, reduce_op=nl.add, reduce_res=total)
        nisa.activation(dst=tile[0:32], op=nl.copy, data=tile[0:32], reduce_res=total[0:32])  # these are known
        nisa.activation(dst=tile, op=nl.copy, data=tile, reduce_op=nl.add, reduce_res=total, reduce_cmd=REDUCE.reduce)

    text = machine.refused(body, np.zeros((128, 8), F), error=Uninitialized)
    assert "accumulator register 32 of the scalar engine holds nothing known" in text


def test_registers_are_operands_of_the_record(machine):
    """State is an operand: dependences see who writes, adds to and reads the registers."""

    def body(tile):
        nisa.activation(dst=tile, op=nl.copy, data=tile, reduce_op=nl.add, reduce_cmd=REDUCE.reset_reduce)
        nisa.activation(dst=tile, op=nl.copy, data=tile, reduce_op=nl.add, reduce_cmd=REDUCE.reduce)
        nisa.activation(dst=tile, op=nl.copy, data=tile, reduce_res=tile[:, 0:1])
        nisa.activation(dst=tile, op=nl.copy, data=tile)
        return tile

    program = machine.run(body, np.zeros((4, 8), F)).program
    accesses = [
        [pattern.access.name for pattern in record.signature.patterns if pattern.role == "accumulator"]
        for record in program
        if record.signature.instruction == "activation"
    ]
    assert accesses == [["WRITE"], ["ACCUMULATE"], ["READ"], []]


# -- the rest ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("psum", [(), {0}, {1}])
@pytest.mark.parametrize("buffer", [nl.sbuf, nl.psum])
def test_memories(machine, rng, psum, buffer):
    data, bias = rng.standard_normal((4, 8)).astype(F), rng.standard_normal((4, 1)).astype(F)
    body = activator("copy", buffer=buffer, bias=lambda b: b)
    machine.assert_same(machine.outputs(body, data, bias, psum=psum), data + bias)


@pytest.mark.parametrize("op", ["copy", "relu"])
@pytest.mark.parametrize("dtype", [F, ml_dtypes.bfloat16])
def test_in_place_and_overlapping(machine, rng, op, dtype):
    data = np.abs(rng.standard_normal((4, 40))).astype(dtype)

    def body(tile):
        nisa.activation(dst=tile[:, 3:], op=getattr(nl, op), data=tile[:, :-3])
        return tile

    machine.assert_same(machine.outputs(body, data), np.concatenate([data[:, :3], data[:, :-3]], axis=1))


def test_in_place_and_views(machine, rng):
    data = rng.standard_normal((4, 4, 6)).astype(F)

    def body(tile):
        nisa.activation(dst=tile[:, ::2, 1::2], op=nl.relu, data=tile[:, 1::2, ::2])
        return tile

    expected = data.copy()
    expected[:, ::2, 1::2] = np.maximum(data[:, 1::2, ::2], 0)
    machine.assert_same(machine.outputs(body, data), expected)


def test_work(machine):
    def body(tile, column):
        total = nl.ndarray((4, 1), nl.float32, nl.sbuf)
        nisa.activation_reduce(
            dst=tile, op=nl.exp, data=tile, reduce_op=nl.add, reduce_res=total, bias=column, scale=column
        )
        return total

    program = machine.run(body, np.zeros((4, 8), F), np.zeros((4, 1), F)).program
    signature = program.record(2).signature
    stream, read = signature.work
    assert signature.engines == {Engine.scalar}
    assert isinstance(stream, Lanewise)
    assert (stream.elements, stream.pointers) == (8, 2)
    assert isinstance(read, AccumulatorRead)
    assert read.partitions == 4


@pytest.mark.parametrize(
    ("body", "columns", "message"),
    [
        (activator("add"), (), "op=nl.add is not an activation function"),
        (activator("copy", shape=(4, 9)), (), "dst has 9 elements per partition and data has 8"),
        (activator("copy", bias=lambda b: b), (4, 64), "bias has 4 partitions of 64 elements"),
        (activator("copy", scale=lambda b: b), (3, 1), "scale has 3 partitions of 1 elements"),
        (activator("copy", bias="1"), (), "bias is '1' (str); it must be a tensor or a number"),
        (activator("copy", scale=None), (), "scale is None"),
        (activator("copy", reduce_op=nl.add), (), "reduce_op=nl.add without a reduce_cmd that reduces"),
        (activator("copy", reduce_cmd=REDUCE.reset_reduce), (), "reduce_op=None; it must be nl.add"),
        (activator("copy", reduce_op=nl.maximum, reduce_cmd=REDUCE.reset_reduce), (), "reduce_op=nl.maximum"),
        (activator("copy", reduce_op=nl.add, reduce_cmd=REDUCE.load_reduce), (), "activation knows idle, reset"),
        (activator("copy", reduce_cmd="idle"), (), "reduce_cmd='idle'"),
    ],
)
def test_refuses(machine, body, columns, message):
    arrays = [np.zeros((4, 8), F)] + ([np.zeros(columns, F)] if columns else [])
    text = machine.refused(body, *arrays)
    assert text.startswith("activation: ")
    assert message in text


def test_refuses_a_scale_that_is_not_float32(machine):
    """ "The scale parameter must have a float32 data type"."""
    body = activator("copy", scale=lambda s: s)
    text = machine.refused(body, np.zeros((4, 8), F), np.zeros((4, 1), ml_dtypes.bfloat16))
    assert "scale is bfloat16; it must be float32" in text


def test_refuses_a_sum_of_the_wrong_shape(machine):
    def body(tile):
        nisa.activation_reduce(dst=tile, op=nl.copy, data=tile, reduce_op=nl.add, reduce_res=tile)

    text = machine.refused(body, np.zeros((4, 8), F))
    assert "activation_reduce: reduce_res has 4 partitions of 8 elements" in text


def test_a_bias_of_tfloat32_is_refused(machine):
    def body(data):
        bias = nl.full((data.shape[0], 1), 1.0, nl.tfloat32)
        nisa.activation(dst=nl.ndarray(data.shape, nl.float32), op=nl.exp, data=data, bias=bias)

    assert "bias is tfloat32; it must be" in machine.refused(body, np.ones((4, 8), F))


def test_reduction_alone_leaves_dst_one_column():
    """dst may be a view of step 0 where only the sum is wanted, as nki-library's qkv_cte does; the last one stays."""

    def kernel(x):
        data, total = nl.load(x), nl.ndarray((4, 1), nl.float32, nl.sbuf)
        scratch = nl.ndarray((4, 1), nl.float32, nl.sbuf)
        nisa.activation_reduce(
            dst=scratch.ap([[1, 4], [0, 8]]), op=nl.square, data=data, reduce_op=nl.add, reduce_res=total
        )
        outs = [nl.ndarray((4, 1), nl.float32, nl.shared_hbm) for _ in range(2)]
        nl.store(outs[0], total)
        nl.store(outs[1], scratch)
        return tuple(outs)

    data = np.arange(32, dtype=np.float32).reshape(4, 8)
    total, last = neurosim.simulate(kernel)(data).outputs
    np.testing.assert_array_equal(total, (data**2).sum(1, keepdims=True))
    np.testing.assert_array_equal(last, data[:, 7:] ** 2)


def test_one_column_without_a_reduction_is_refused():
    def kernel(x):
        scratch = nl.ndarray((4, 1), nl.float32, nl.sbuf)
        nisa.activation(dst=scratch.ap([[1, 4], [0, 8]]), op=nl.square, data=nl.load(x))

    with pytest.raises(IllegalOperand, match="reaches the same element twice"):
        neurosim.simulate(kernel)(np.ones((4, 8), np.float32))
