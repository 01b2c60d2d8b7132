"""Functions of the legacy dialect against NumPy: elementwise, reductions, compounds, and the dtypes of results."""

import ml_dtypes
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim import dtypes
from neurosim.errors import IllegalOperand
from neurosim.nki.legacy.promotion import promoted


def numbers(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def run(body, *arrays, out=None, dtype=np.float32):
    """Return ``body`` of the loaded arrays, stored with a shape and a dtype."""

    @nki.jit(mode="simulation")
    def kernel(*inputs):
        made = body(*[nl.load(entry) for entry in inputs])
        shape = made.shape if out is None else out
        result = nl.ndarray(shape, dtype=made.dtype if dtype is None else dtype, buffer=nl.shared_hbm)
        nl.store(result, made)
        return result

    return kernel(*arrays)


UNARY = {
    "exp": np.exp,
    "square": np.square,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "abs": np.abs,
    "sign": np.sign,
    "sin": np.sin,
    "cos": np.cos,
    "floor": np.floor,
    "ceil": np.ceil,
    "negative": np.negative,
    "reciprocal": np.reciprocal,
    "copy": np.copy,
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    a = numbers(8, 32) * 3
    np.testing.assert_allclose(run(getattr(nl, name), a), UNARY[name](a), rtol=3e-5, atol=3e-6)
    masked = run(
        lambda x: nl.copy(getattr(nl, name)(x, mask=nl.arange(32)[None, :] < 20)[:, 0:20]),
        a,
    )
    np.testing.assert_allclose(masked, UNARY[name](a)[:, :20], rtol=3e-5, atol=3e-6)


def test_roots_and_logarithm():
    a = np.abs(numbers(8, 32)) + 0.5
    for name, expected in (("sqrt", np.sqrt(a)), ("rsqrt", 1 / np.sqrt(a)), ("log", np.log(a))):
        np.testing.assert_allclose(run(getattr(nl, name), a), expected, rtol=1e-5, atol=1e-6)


BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(
    ("left", "right"), [((8, 16), (8, 16)), ((8, 1), (8, 16)), ((8, 16), (1, 16)), ((8, 1), (1, 16))]
)
def test_binary_with_broadcasting(name, left, right):
    a, b = numbers(*left), numbers(*right, seed=1) + 3
    np.testing.assert_allclose(run(getattr(nl, name), a, b), BINARY[name](a, b), rtol=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, side: nisa.tensor_tensor(x, side, nl.subtract),
        nl.subtract,
        lambda x, side: x - side,
        lambda x, side: -nl.subtract(side, x),
    ],
    ids=["tensor_tensor", "nl", "operator", "column first"],
)
@pytest.mark.parametrize("free", [(6,), (5, 6), (8, 6), (2, 3, 4)])
def test_a_column_goes_along_all_free_axes(call, free):
    """A bias of one element on each partition beside rows of pixels; also where NumPy would align 8 with 8."""
    a, bias = numbers(8, *free), numbers(8, 2, seed=1)
    expected = a - bias[:, 1].reshape(8, *(1 for _ in free))
    np.testing.assert_array_equal(run(lambda x, side: call(x, side[:, 1]), a, bias), expected)
    np.testing.assert_array_equal(run(lambda x, side: call(x, side[:, 1:2]), a, bias), expected)


def test_rows_do_not_go_along_an_axis_in_between():
    for free in ((5, 6), (8, 6)):
        with pytest.raises(IllegalOperand, match=r"do not go together|cannot be broadcast"):
            run(lambda x, side: nisa.tensor_tensor(x, side, nl.add), numbers(8, *free), numbers(8, 6))


def test_operators_and_numbers():
    a, b = numbers(8, 16), numbers(8, 16, seed=1)
    np.testing.assert_allclose(run(lambda x, y: 2.0 - x * y + x / 4.0, a, b), 2 - a * b + a / 4, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run(lambda x: 1.0 / (-x), a), -1 / a, rtol=1e-6)
    np.testing.assert_array_equal(run(lambda x, y: x > y, a, b, dtype=np.uint8), (a > b).astype(np.uint8))
    np.testing.assert_array_equal(run(lambda x: x <= 0.0, a, dtype=np.uint8), (a <= 0).astype(np.uint8))
    i = np.random.default_rng(0).integers(0, 1000, (8, 16)).astype(np.int32)
    np.testing.assert_array_equal(run(lambda x: (x >> 2) & 7, i, dtype=np.int32), (i >> 2) & 7)


REDUCTIONS = {"sum": np.sum, "max": np.max, "min": np.min, "mean": np.mean, "var": np.var}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    a = numbers(8, 6, 10)
    expected = REDUCTIONS[name]
    for axis, shape in (((2,), (8, 6)), ((1, 2), (8, 1)), ((-1,), (8, 6))):
        found = run(lambda x, axis=axis: getattr(nl, name)(x, axis=list(axis)), a)
        np.testing.assert_allclose(found, expected(a, axis=axis).reshape(shape), rtol=1e-4, atol=1e-5)
    mask = nl.arange(10)[None, None, :] < 7
    found = run(lambda x: getattr(nl, name)(x, axis=2, mask=mask), a)
    np.testing.assert_allclose(found, expected(a[:, :, :7], axis=2), rtol=1e-4, atol=1e-5)


def test_reductions_of_axes_that_are_not_the_last():
    a = numbers(8, 3, 2, 5, 4)
    found = run(lambda x: nl.sum(x, axis=[2, 4]), a)
    np.testing.assert_allclose(found, a.sum(axis=(2, 4)), rtol=1e-5, atol=1e-5)
    kept = run(lambda x: nisa.tensor_reduce(np.max, x, axis=[1], keepdims=True), a)
    np.testing.assert_array_equal(kept, a.max(axis=1, keepdims=True))


def test_softmax_and_rms_norm():
    a, w = numbers(8, 24), numbers(1, 24, seed=1)
    e = np.exp(a - a.max(axis=1, keepdims=True))
    np.testing.assert_allclose(run(lambda x: nl.softmax(x, axis=[1]), a), e / e.sum(axis=1, keepdims=True), rtol=1e-5)
    b = numbers(8, 4, 6)
    e = np.exp(b - b.max(axis=2, keepdims=True))
    np.testing.assert_allclose(run(lambda x: nl.softmax(x, axis=2), b), e / e.sum(axis=2, keepdims=True), rtol=1e-5)
    expected = a / np.sqrt((a * a).mean(axis=1, keepdims=True) + 1e-6) * w
    np.testing.assert_allclose(run(lambda x, y: nl.rms_norm(x, y, axis=1, n=24), a, w), expected, rtol=1e-5)


def test_where_and_all():
    a, b = numbers(8, 16), numbers(8, 16, seed=1)
    np.testing.assert_array_equal(run(lambda x, y: nl.where(x > y, x, 0.0), a, b), np.where(a > b, a, 0))
    np.testing.assert_array_equal(run(lambda x, y: nl.where(nl.less(x, 0.0), y, x), a, b), np.where(a < 0, b, a))
    c = (np.arange(64).reshape(8, 8) % 9 > 0).astype(np.float32)
    np.testing.assert_array_equal(run(lambda x: nl.all(x, axis=1), c, dtype=np.uint8)[:, 0], c.all(axis=1))


def test_transposes():
    a = numbers(48, 20)
    np.testing.assert_array_equal(run(nl.transpose, a), a.T)
    np.testing.assert_array_equal(run(lambda x: nisa.nc_transpose(x), a), a.T)
    np.testing.assert_array_equal(run(lambda x: nisa.nc_transpose(x, engine=nisa.vector_engine), a[:20]), a[:20].T)

    @nki.jit
    def loaded(x):
        out = nl.ndarray((20, 48), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load_transpose2d(x))
        return out

    np.testing.assert_array_equal(loaded(a), a.T)


@pytest.mark.parametrize("bound", [0, 7])
def test_iota_and_affine_select(bound):
    a = numbers(16, 32)
    i, j = np.arange(16)[:, None], np.arange(32)[None, :]

    def body(x):
        p, f = nl.mgrid[0:16, 0:32]
        return nisa.affine_select(pred=p + bound >= f, on_true_tile=x, on_false_value=-5.0)

    np.testing.assert_array_equal(run(body, a), np.where(i + bound >= j, a, -5))
    made = run(lambda _: nisa.iota(3 * nl.arange(16)[:, None] + nl.arange(32)[None, :] + bound, dtype=nl.int32), a)
    np.testing.assert_array_equal(made, 3 * i + j + bound)


def test_scalar_instructions():
    a, c = numbers(8, 16), numbers(8, 1, seed=1)
    found = run(lambda x, y: nisa.tensor_scalar(x, np.multiply, y, op1=np.add, operand1=2.5), a, c)
    np.testing.assert_allclose(found, a * c + 2.5, rtol=1e-6, atol=1e-6)
    found = run(lambda x, y: nisa.tensor_scalar(x, np.subtract, y, reverse0=True), a, c.astype(ml_dtypes.bfloat16))
    np.testing.assert_allclose(found, c.astype(ml_dtypes.bfloat16).astype(np.float32) - a, rtol=1e-6, atol=1e-6)
    found = run(
        lambda x, y: nisa.scalar_tensor_tensor(data=x, op0=nl.multiply, operand0=y, op1=nl.add, operand1=x), a, c
    )
    np.testing.assert_allclose(found, a * c + a, rtol=1e-6, atol=1e-6)

    def exp_and_sum(x, y):
        total = nl.ndarray((8, 1), dtype=nl.float32)
        nisa.activation_reduce(np.exp, x, reduce_op=np.add, reduce_res=total, bias=y, scale=0.5)
        return total

    np.testing.assert_allclose(run(exp_and_sum, a, c), np.exp(a * 0.5 + c).sum(axis=1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        # every example of the manual, "NKI Type Promotion" and "Weakly Typed Scalar Type Inference"
        (np.int32, np.float16, np.float16),
        (np.float32, nl.bfloat16, np.float32),
        (np.float16, nl.bfloat16, np.float32),
        (nl.float8_e4m3, np.float16, np.float16),
        (nl.float8_e4m3, nl.bfloat16, nl.bfloat16),
        (nl.float8_e4m3, nl.float8_e5m2, nl.bfloat16),
        (np.int16, np.int32, np.int32),
        (np.uint8, np.uint16, np.uint16),
        (np.uint16, np.int32, np.int32),
        (np.int8, np.uint8, np.int16),
        (np.int8, np.uint16, np.int32),
        (np.int32, np.uint32, np.float32),
    ],
)
def test_promotion(one, other, expected):
    class Tile:
        def __init__(self, dtype):
            self.format = dtypes.of(dtype)

    assert promoted(Tile(one), Tile(other)) == promoted(Tile(other), Tile(one)) == dtypes.of(expected)


def test_promotion_with_numbers():
    a = numbers(4, 8).astype(np.float16)
    i = np.arange(32, dtype=np.int8).reshape(4, 8)
    assert run(lambda x: nl.add(x, 1.2), a, dtype=None).dtype == np.float32
    assert run(lambda x: nl.add(x, np.float16(2)), a, dtype=None).dtype == np.float16
    assert run(lambda x: nl.add(x, 2), a, dtype=None).dtype == np.float16
    assert run(lambda x: nl.add(x, 2), i, dtype=None).dtype == np.int32
    assert run(lambda x: nl.add(x, 2, dtype=nl.bfloat16), i, dtype=None).dtype == nl.bfloat16
    assert run(lambda x: nl.greater(x, 2), i, dtype=None).dtype == np.bool_
    with pytest.raises(IllegalOperand, match="is not an NKI dtype"):
        run(lambda x: nl.add(x, 2, dtype=np.float64), i)


def test_load_casts_and_constants():
    a = numbers(4, 8)

    @nki.jit
    def kernel(x):
        out = nl.ndarray((3, 4, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out[0], nl.load(x, dtype=nl.bfloat16))
        nl.store(out[1], nl.load(nl.shared_constant(np.arange(32).reshape(4, 8), dtype=np.float32)))
        nl.store(out[2, :, 0:4], nl.load(nl.shared_identity_matrix(4, dtype=nl.bfloat16)))
        nl.store(out[2, :, 4:8], 7.0)
        return out

    found = kernel(a)
    np.testing.assert_array_equal(found[0], a.astype(ml_dtypes.bfloat16).astype(np.float32))
    np.testing.assert_array_equal(found[1], np.arange(32).reshape(4, 8))
    np.testing.assert_array_equal(found[2], np.hstack([np.eye(4), np.full((4, 4), 7.0)]))


def test_random_numbers_repeat_with_their_seed():
    def draw(seed):
        def body(_):
            nl.random_seed(seed)
            return nl.rand((16, 32))

        return run(body, numbers(4, 4))

    one, again, other = draw(3), draw(3), draw(4)
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    assert 0 <= one.min() < 0.2 < 0.8 < one.max() < 1


@pytest.mark.parametrize(
    ("dtype", "columns", "instructions"),
    [
        (np.float32, 300, ["memset", "nc_matmul"]),
        (np.float32, 512, ["memset", "nc_matmul"]),
        (np.float32, 513, ["memset", *["nc_matmul", "tensor_copy"] * 2]),
        (np.int32, 300, ["dma_copy"]),
    ],
)
def test_broadcasting_along_partitions(dtype, columns, instructions):
    """Float32 is multiplied by ones, in PSUM where it fits into a bank; the rest goes by DMA."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((100, columns), dtype=x.dtype, buffer=nl.shared_hbm)
        row = nl.load(x)
        nl.store(out, nl.add(row.broadcast_to((100, columns)), 0))
        return out

    x = np.arange(columns, dtype=dtype)[None] * 3 - 1000
    result = neurosim.simulate(kernel)(x)
    np.testing.assert_array_equal(result.outputs, np.repeat(x, 100, 0))
    names = [result.program.signatures[i].instruction for i in result.program.signature_ids]
    assert names[1 : 1 + len(instructions)] == instructions
