"""Functions of ``nki.language`` that make several instructions, or move, choose and multiply tiles."""

from __future__ import annotations

import math

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import neurosim
from neurosim.errors import (
    CapacityExceeded,
    IllegalCall,
    IllegalOperand,
    KernelError,
    NkiValidationError,
    UnknownBehavior,
    Unsupported,
)

F = np.float32
A = np.array([[1.5, -2.0, 3.0, -0.25], [0.5, 4.0, -1.0, 8.0]], F)
CUBE = np.random.default_rng(3).standard_normal((4, 3, 5)).astype(F)
EDGES = np.array([0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 3.999, -1e-45, 8388607.5, 8388608.0, -8388609.0, 3e9, -3e38], F)
ODD = np.array([[np.inf, -np.inf, np.nan]], F)


def recorded(function, *arrays, **options):
    """Run a function of tiles; return its result as an array, and the mnemonics of what it recorded."""

    def kernel(*tensors):
        tile = function(*[nl.load(tensor) for tensor in tensors])
        if tile.buffer is nl.psum:
            copy = nl.ndarray(tile.shape, tile.dtype)
            nisa.tensor_copy(dst=copy, src=tile, name="out")
            tile = copy
        out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    result = neurosim.simulate(kernel, **options)(*arrays)
    names = [r.signature.instruction for r in result.program if r.name != "out"]
    return result.outputs, names[len(arrays) : -1]


def computed(function, *arrays, **options):
    return recorded(function, *arrays, **options)[0]


# -- integers nearby --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc"])
def test_rounding_is_exact(name):
    tile = np.concatenate([EDGES, -EDGES])[None]
    reference = getattr(np, name)
    np.testing.assert_array_equal(computed(getattr(nl, name), tile), reference(tile))
    np.testing.assert_array_equal(computed(getattr(nl, name), ODD), ODD)


@settings(max_examples=40, deadline=None)
@given(hnp.arrays(F, (3, 17), elements=st.floats(width=32, allow_nan=False)))
def test_rounding_of_anything(values):
    for name in ("floor", "ceil", "trunc"):
        np.testing.assert_array_equal(computed(getattr(nl, name), values), getattr(np, name)(values))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_rounding_of_every_half(dtype):
    """All finite values of 16 bits."""
    values = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    values = values[np.isfinite(values.astype(F))][: 120 * 512].reshape(120, -1)
    for name in ("floor", "ceil", "trunc"):
        expected = getattr(np, name)(values.astype(F))
        np.testing.assert_array_equal(computed(getattr(nl, name), values).astype(F), expected)


def test_rounding_to_integers_and_of_integers():
    got = computed(lambda a: nl.floor(a, dtype=nl.int32), EDGES[None, :8])
    np.testing.assert_array_equal(got, np.floor(EDGES[None, :8]).astype(np.int32))
    integers = np.array([[-5, 7]], np.int16)
    for function in (nl.floor, nl.ceil, nl.trunc):
        np.testing.assert_array_equal(computed(function, integers), integers)


def test_negative():
    np.testing.assert_array_equal(computed(nl.negative, A), -A)
    assert computed(lambda a: nl.negative(a, nl.float16), A).dtype == np.float16


# -- trigonometry -----------------------------------------------------------------------------------------------------


def angles(limit):
    rng = np.random.default_rng(7)
    around = np.arange(-40, 40) * (math.pi / 4)
    spread = [rng.uniform(-top, top, 4000) for top in (1.0, 8.0, 200.0, limit)]
    every = np.concatenate([around, around + 1e-4, [0.0, 1e-30, limit, -limit, 9.0], *spread]).astype(F)
    return every[: len(every) // 128 * 128].reshape(128, -1)


@pytest.mark.parametrize(("name", "reference"), [("sin", np.sin), ("cos", np.cos)])
def test_sine_and_cosine_hold_far_beyond_pi(name, reference):
    x = angles(2.0**17)
    error = np.abs(computed(getattr(nl, name), x).astype(np.float64) - reference(x.astype(np.float64)))
    assert error.max() <= 2.0**-22


@pytest.mark.filterwarnings("error")
def test_sine_stays_within_the_range_of_the_activation():
    for function in (nl.sin, nl.cos, nl.arctan):  # no warning, and a value for each
        assert np.isfinite(computed(function, angles(2.0**17))).all()


def test_sine_of_small_numbers_is_as_good_as_the_activation():
    x = np.array([[1e-30, -1e-10, 1e-3, 0.7]], F)
    np.testing.assert_array_equal(computed(nl.sin, x), np.sin(x.astype(np.float64)).astype(F))


def test_tangent():
    x = angles(1000.0)
    exact = np.tan(x.astype(np.float64))
    error = np.abs(computed(nl.tan, x).astype(np.float64) - exact)
    far = np.abs(exact) < 1000  # nearer to a pole, the error of the cosine is no longer small beside the cosine
    assert far.mean() > 0.95
    assert (error <= 2.0**-22 * (1 + exact**2))[far].all()


def test_inverse_tangent():
    x = angles(1e6)
    x[0, :6] = [np.inf, -np.inf, 1.0, -1.0, 3e38, 1e-40]
    error = np.abs(computed(nl.arctan, x).astype(np.float64) - np.arctan(x.astype(np.float64)))
    assert error.max() <= 2.0**-22


def test_sine_counts_turns_exactly():
    """A multiple of 2 pi next to 2**17 whose sine is the error of the multiple itself."""
    x = np.array([[F(20000 * 2 * math.pi)]], F)
    np.testing.assert_allclose(computed(nl.sin, x), np.sin(x.astype(np.float64)), rtol=0, atol=2.0**-23)


# -- which instructions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "instructions"),
    [
        (nl.rsqrt, ["tensor_scalar"]),
        (nl.copy, ["tensor_copy"]),
        (nl.reciprocal, ["reciprocal"]),
        (nl.exp, ["activation"]),
        (lambda a: nl.add(a, 1.0), ["tensor_scalar"]),
        (lambda a: nl.add(a, a), ["tensor_tensor"]),
        (lambda a: nl.sum(a, 1), ["tensor_reduce"]),
        (lambda a: nl.mean(a, 1), ["tensor_reduce", "tensor_scalar"]),
        (nl.softmax, ["tensor_reduce", "activation_reduce", "reciprocal", "tensor_scalar"]),
        (nl.transpose, ["nc_transpose"]),
        (lambda a: nl.matmul(a, a, transpose_x=True), ["nc_matmul"]),
        (lambda a: nl.broadcast_to(a[0:1], (40, 4)), ["memset", "nc_matmul", "activation"]),
        (lambda a: nl.broadcast_to(a[0:1, 0:2], (40, 2)), ["memset", "nc_matmul", "activation"]),
        (lambda a: nl.broadcast_to(a[0:1, ::2], (40, 2)), ["nc_stream_shuffle", "nc_stream_shuffle"]),
    ],
)
def test_what_is_recorded(function, instructions):
    assert recorded(function, A)[1] == instructions


def test_rsqrt_by_version():
    """NKI 0.5 moved it to GpSimd, which reads no PSUM."""
    values = np.array([[4.0, 0.25, 3.0]], F)
    for version, instruction, engine in (("0.4", "activation", "scalar"), ("0.5", "tensor_scalar", "gpsimd")):

        def kernel(x):
            nl.rsqrt(nl.load(x))

        program = neurosim.simulate(kernel, nki_version=version)(values).program
        signature = program.record(1).signature
        assert (signature.instruction, signature.engine.name) == (instruction, engine)

    def from_psum(x):
        tile = nl.ndarray(x.shape, nl.float32, nl.psum)
        nisa.tensor_copy(dst=tile, src=nl.load(x))
        return nl.rsqrt(tile)

    with pytest.raises(IllegalOperand, match="in PSUM, which GpSimd does not reach"):
        neurosim.simulate(from_psum)(values)
    with pytest.raises(IllegalOperand, match="an output must be in HBM"):
        neurosim.simulate(from_psum, nki_version="0.3")(values)


def test_copy_by_version():
    """NKI 0.6 made it bit-accurate, and let it leave PSUM."""
    large = np.array([[2**24 + 1, 5]], np.int32)
    np.testing.assert_array_equal(computed(nl.copy, large), large)
    np.testing.assert_array_equal(computed(nl.copy, large, nki_version="0.5"), [[2**24, 5]])

    def matmul(a):
        return nl.copy(nl.matmul(a, a, True))

    np.testing.assert_array_equal(computed(matmul, A), A.T @ A)
    with pytest.raises(IllegalOperand, match=r"before NKI 0\.6 nl\.copy stays in one memory"):
        computed(matmul, A, nki_version="0.4")


# -- reductions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [2, -1, [2], (1, 2), [2, 1]])
@pytest.mark.parametrize("keepdims", [False, True])
def test_means(axis, keepdims):
    axes = tuple(axis) if isinstance(axis, (list, tuple)) else axis
    wanted = CUBE.astype(np.float64).mean(axis=axes, keepdims=keepdims)
    wanted = wanted[:, None] if wanted.ndim == 1 else wanted
    got = computed(lambda a: nl.mean(a, axis, keepdims=keepdims), CUBE)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=0, atol=3e-7)


@pytest.mark.parametrize("axis", [2, (1, 2)])
def test_variances_keep_their_axes(axis):
    wanted = CUBE.astype(np.float64).var(axis=axis, keepdims=True)
    for keepdims in (False, True):
        got = computed(lambda a, keep=keepdims: nl.var(a, axis, keepdims=keep), CUBE)
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=2e-6)
    assert (computed(lambda a: nl.var(a, 1), np.full((3, 700), 1e4, F)) < 1e-3).all()


def test_all():
    values = np.array([[1, 2, 0], [3, 4, 5]], np.int32)
    np.testing.assert_array_equal(computed(lambda a: nl.all(a, axis=1), values), [[0], [1]])
    assert computed(lambda a: nl.all(a, 1, dtype=nl.uint8), values).dtype == np.uint8


def test_sums_in_integers_and_other_dtypes():
    values = np.array([[1, 2, 4], [3, 4, 5]], np.int32)
    np.testing.assert_array_equal(computed(lambda a: nl.sum(a, 1), values), [[7], [12]])
    assert computed(lambda a: nl.mean(a, 1, dtype=nl.float16), values).dtype == np.float16


@settings(max_examples=25, deadline=None)
@given(
    hnp.arrays(F, hnp.array_shapes(min_dims=2, max_dims=4, max_side=6), elements=st.floats(-50, 50, width=32)),
    st.data(),
)
def test_softmax_of_any_axes(values, data):
    count = data.draw(st.integers(1, values.ndim - 1))
    axes = tuple(range(values.ndim - count, values.ndim))
    x = values.astype(np.float64)
    powers = np.exp(x - x.max(axis=axes, keepdims=True))
    wanted = powers / powers.sum(axis=axes, keepdims=True)
    got = computed(lambda a: nl.softmax(a, axes), values)
    assert got.shape == values.shape
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=1e-30)


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("axis", [(1, 2), 2])
def test_rms_norm(axis, rows):
    weight = np.random.default_rng(5).standard_normal((rows, 3, 5)).astype(F)
    n = 15 if isinstance(axis, tuple) else 5
    x = CUBE.astype(np.float64)
    wanted = x / np.sqrt((x**2).sum(axis=axis, keepdims=True) / n + 1e-3) * weight
    got = computed(lambda a, w: nl.rms_norm(a, w, axis, n, epsilon=1e-3), CUBE, weight)
    np.testing.assert_allclose(got, wanted, rtol=2e-6)
    coarse = computed(
        lambda a, w: nl.rms_norm(a, w, axis, n, 1e-3, nl.bfloat16, compute_dtype=nl.bfloat16), CUBE, weight
    )
    assert coarse.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(coarse.astype(F), wanted, rtol=0.05, atol=1e-3)
    assert (coarse.astype(F) != got).any()


# -- choosing and moving ----------------------------------------------------------------------------------------------


def test_where():
    condition = (A > 0).astype(F)
    np.testing.assert_array_equal(computed(nl.where, condition, A, -A), np.where(A > 0, A, -A))
    np.testing.assert_array_equal(computed(lambda c, a: nl.where(c, a, 0.0), condition, A), np.where(A > 0, A, 0))
    np.testing.assert_array_equal(computed(lambda c, a: nl.where(c, 7, a), condition, A), np.where(A > 0, 7, A))
    np.testing.assert_array_equal(computed(lambda c: nl.where(c, 1, 2), condition), np.where(A > 0, 1, 2))
    column = np.array([[10.0], [20.0]], F)
    np.testing.assert_array_equal(computed(nl.where, condition, column, A), np.where(A > 0, column, A))
    half = computed(lambda c, a: nl.where(c, a, a, dtype=nl.float16), condition, A)
    assert half.dtype == np.float16
    integers = A.astype(np.int32)
    got = computed(lambda c, a: nl.where(c, a, 0.0), condition, integers)
    np.testing.assert_array_equal(got, np.where(A > 0, integers, 0))


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_broadcasts_of_any_shape(data):
    shape = tuple(data.draw(st.integers(1, 5)) for _ in range(data.draw(st.integers(1, 3))))
    rows = data.draw(st.integers(1, 128))
    small = tuple(data.draw(st.sampled_from([1, extent])) for extent in shape)
    first = data.draw(st.sampled_from([1, rows]))
    x = np.random.default_rng(0).standard_normal((first, *small)).astype(ml_dtypes.bfloat16)
    got = computed(lambda a: nl.broadcast_to(a, (rows, *shape)), x)
    np.testing.assert_array_equal(got, np.broadcast_to(x, (rows, *shape)))


@pytest.mark.parametrize("dtype", [F, ml_dtypes.bfloat16, np.float16, np.int32])
def test_a_broadcast_over_banks_keeps_every_value(dtype):
    x = (np.random.default_rng(1).standard_normal((1, 3, 400)) * 1000).astype(dtype)
    np.testing.assert_array_equal(computed(lambda a: nl.broadcast_to(a, (100, 3, 400)), x), np.repeat(x, 100, 0))


def test_broadcast_of_what_has_the_shape_already():
    def kernel(x):
        tile = nl.load(x)
        assert nl.broadcast_to(tile, tile.shape) is tile
        assert nl.broadcast_to(tile, tile.shape, dtype=nl.float16).dtype == nl.float16
        assert nl.expand_dims(tile, 1).shape == (2, 1, 4)
        assert nl.expand_dims(tile, -1).shape == (2, 4, 1)

    neurosim.simulate(kernel)(A)


@pytest.mark.parametrize("chip", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("transpose_x", [False, True])
def test_matmul(transpose_x, chip):
    rng = np.random.default_rng(1)
    x, y = (rng.integers(-8, 8, shape).astype(F) for shape in ((96, 64), (64 if not transpose_x else 96, 200)))
    got = computed(lambda a, b: nl.matmul(a, b, transpose_x), x, y, chip=chip)
    np.testing.assert_array_equal(got, (x.T if transpose_x else x) @ y)


def test_transpose():
    x = np.arange(96 * 64, dtype=np.float32).reshape(96, 64)
    np.testing.assert_array_equal(computed(nl.transpose, x), x.T)
    cast = computed(lambda a: nl.transpose(a, dtype=nl.bfloat16), x)
    np.testing.assert_array_equal(cast, x.T.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int16])
@pytest.mark.parametrize("shape", [(128, 128), (512, 32), (7, 5)])
def test_load_transpose2d(shape, dtype):
    x = np.arange(math.prod(shape)).reshape(shape).astype(dtype)

    def kernel(a):
        tile = nl.load_transpose2d(a, dtype=nl.float32)
        out = nl.ndarray(tile.shape, tile.dtype, nl.shared_hbm)
        nl.store(out, tile)
        return out

    np.testing.assert_array_equal(neurosim.simulate(kernel)(x).outputs, x.T.astype(F))


@pytest.mark.parametrize("dtype", [np.uint32, np.int32, np.uint16])
def test_gather_flattened(dtype):
    data = np.random.default_rng(2).standard_normal((16, 6, 4)).astype(F)
    indices = np.random.default_rng(3).integers(0, 24, (16, 50)).astype(dtype)
    got = computed(nl.gather_flattened, data, indices)
    np.testing.assert_array_equal(got, np.take_along_axis(data.reshape(16, 24), indices.astype(np.int64), axis=1))
    assert computed(lambda d, i: nl.gather_flattened(d, i, dtype=nl.float16), data, indices).dtype == np.float16


# -- constants --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.uint8])
def test_identity_matrices(dtype):
    def kernel():
        tile = nl.shared_identity_matrix(100, dtype=np.dtype(dtype).name)
        own = nl.ndarray((100, 100), tile.dtype)
        assert nl.shared_identity_matrix(100, tile.dtype, dst=own) is own
        out = nl.ndarray((2, 100, 100), tile.dtype, nl.shared_hbm)
        nl.store(out[0], tile)
        nl.store(out[1], own)
        return out

    got = neurosim.simulate(kernel)().outputs
    np.testing.assert_array_equal(got, np.stack([np.eye(100, dtype=dtype)] * 2))


def test_constants(tmp_path):
    np.save(tmp_path / "a.npy", A)
    table = A.copy()

    def kernel():
        constants = nl.shared_constant(table), nl.shared_constant(str(tmp_path / "a.npy"))
        table[...] = 0  # later changes are not seen
        assert constants[0].buffer is nl.shared_hbm
        return constants

    result = neurosim.simulate(kernel)()
    for output in result.outputs:
        np.testing.assert_array_equal(output, A)
    assert len(result.program) == 0


@pytest.mark.parametrize("shape", [(3,), (5, 7), (130, 5), (2, 3, 128, 100), (128, 9001)])
@pytest.mark.parametrize("dtype", [nl.float32, nl.uint8])
def test_hbm_is_filled_too(shape, dtype):
    got = neurosim.simulate(lambda: nl.full(shape, 3, dtype, buffer=nl.shared_hbm))().outputs
    np.testing.assert_array_equal(got, np.full(shape, 3))


def test_device_print(capsys):
    def kernel(x):
        nl.device_print("seen", nl.load(x))
        nl.device_print("there", x)

    neurosim.simulate(kernel)(A)
    printed = capsys.readouterr().out
    assert printed.startswith("seen ")
    assert "\nthere " in printed
    assert printed.count("8.") == 2


def test_device_print_without_values(capsys):
    neurosim.simulate(lambda x: nl.device_print("p", nl.load(x)), values=False)(neurosim.spec((2, 4), nl.float32))
    assert capsys.readouterr().out == "p sbuf_2 [2, 4] float32 in SBUF\nnot computed\n"


# -- everywhere -------------------------------------------------------------------------------------------------------

FUNCTIONS = {
    "floor": nl.floor,
    "trunc": nl.trunc,
    "sin": nl.sin,
    "tan": nl.tan,
    "arctan": nl.arctan,
    "softmax": nl.softmax,
    "mean": lambda a: nl.mean(a, 1),
    "var": lambda a: nl.var(a, 1),
    "all": lambda a: nl.all(a, 1),
    "where": lambda a: nl.where(a, a, 1.0),
    "rms_norm": lambda a: nl.rms_norm(a, a, 1, 64),
    "broadcast_to": lambda a: nl.broadcast_to(a[0:1], (128, 64)),
    "gather_flattened": lambda a: nl.gather_flattened(a, nl.full((128, 4), 3, nl.uint32)),
    "matmul": lambda a: nl.copy(nl.matmul(a, a, True)),
    "transpose": lambda a: nl.copy(nl.transpose(a)),
    "add": lambda a: nl.add(a, a),
    "rsqrt": lambda a: nl.rsqrt(nl.abs(a)),
}
WIDE = np.random.default_rng(9).standard_normal((128, 64)).astype(F)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_views_give_the_bits_of_whole_tiles(name):
    def kernel(x):
        spread = nl.zeros((128, 128), nl.float32)
        nisa.dma_copy(dst=spread[:, 1:128:2], src=x)
        outputs = []
        for tile in (nl.load(x), spread[:, 1:128:2]):
            result = FUNCTIONS[name](tile)
            outputs.append(nl.ndarray(result.shape, result.dtype, nl.shared_hbm))
            nl.store(outputs[-1], result)
        return outputs

    whole, view = neurosim.simulate(kernel)(WIDE).outputs
    assert whole.tobytes() == view.tobytes()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("chip", ["trn1", "trn2", "trn3"])
def test_every_chip_has_the_instructions(chip):
    def kernel(x):
        for function in FUNCTIONS.values():
            function(nl.load(x))

    assert neurosim.profile(kernel, chip)(WIDE).timeline.makespan_ps > 0


def test_constants_on_two_cores():
    def kernel(x):
        identity = nl.shared_identity_matrix(128, nl.float32)
        out = nl.ndarray((2, 128, 64), x.dtype, nl.shared_hbm)
        nl.store(out[nl.program_id(0)], nl.copy(nl.matmul(identity, nl.load(x), transpose_x=True)))
        return out

    np.testing.assert_array_equal(neurosim.simulate(kernel)[2](WIDE).outputs, np.stack([WIDE, WIDE]))


# -- what makes no sense ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (lambda a: nl.floor(3.5), IllegalOperand, r"nl\.floor: x is 3\.5"),
        (lambda a: nl.cos(a, dtype="real"), IllegalOperand, "not an NKI dtype"),
        (lambda a: nl.prelu(a), Unsupported, "the name of an operator, and no function"),
        (lambda a: nl.add(a), IllegalCall, r"missing a required argument: 'y'"),
        (lambda a: nl.exp(a, mask=1), IllegalCall, "nl.exp has no parameter 'mask'"),
        (lambda a: nl.mean(a, axis=0), IllegalOperand, "never partitions"),
        (lambda a: nl.mean(a, axis=2), IllegalOperand, r"axis=2 of"),
        (lambda a: nl.sum(a, axis=()), IllegalOperand, r"axis=\(\)"),
        (lambda a: nl.sum(a, axis=True), IllegalOperand, "axis=True"),
        (lambda a: nl.var(a, 1, keepdims="yes"), IllegalOperand, "keepdims='yes' is not a bool"),
        (lambda a: nl.softmax(nl.expand_dims(a, 1), axis=1), IllegalOperand, "only the last free axes"),
        (lambda a: nl.rms_norm(a, a, 1, 0), IllegalOperand, "n=0"),
        (lambda a: nl.rms_norm(a, a, 1, 4, compute_dtype=nl.int32), IllegalOperand, "int32 is not a float"),
        (lambda a: nl.where(a, "x", a), IllegalOperand, "nl.where of 'x'"),
        (lambda a: nl.broadcast_to(a, (2, 8)), IllegalOperand, r"to shape \(2, 8\)"),
        (lambda a: nl.broadcast_to(a, (2, 4, 1)), IllegalOperand, "the number of axes stays"),
        (lambda a: nl.broadcast_to(a, "ab"), IllegalOperand, "not made of ints"),
        (lambda a: nl.expand_dims(a, 0), KernelError, "partition"),
        (lambda a: nl.transpose(nl.expand_dims(a, 1)), IllegalOperand, "it must have 2"),
        (lambda a: nl.matmul(a, a), IllegalOperand, "x has 4 elements to sum over, and y has 2"),
        (lambda a: nl.matmul(a, a, transpose_x=1), IllegalOperand, "not a bool"),
        (lambda a: nl.load_transpose2d(a), IllegalOperand, "give an HBM tensor of two axes"),
        (lambda a: nl.gather_flattened(a, a, axis=1), UnknownBehavior, "not what another axis means"),
        (lambda a: nl.shared_constant(3.0), IllegalOperand, "give a NumPy array"),
        (lambda a: nl.shared_constant(np.zeros(3)), IllegalOperand, "float64 is not an NKI dtype"),
        (lambda a: nl.shared_constant("nowhere.npy"), IllegalOperand, "cannot read an array from nowhere.npy"),
        (lambda a: nl.shared_constant(np.zeros((0, 3), F)), IllegalOperand, "needs an element"),
        (lambda a: nl.shared_identity_matrix(0), IllegalOperand, "n=0"),
        (lambda a: nl.shared_identity_matrix(200), NkiValidationError, "200 partitions"),
        (lambda a: nl.shared_identity_matrix(4, nl.float32, dst=a), IllegalOperand, "dst is"),
        (lambda a: nl.device_print(3, a), IllegalOperand, "is not a string"),
        (lambda a: nl.device_print("p", 3), IllegalOperand, "it prints tensors"),
    ],
)
def test_what_makes_no_sense(function, error, words):
    def kernel(x):
        function(nl.load(x))

    with pytest.raises(error, match=words) as caught:
        neurosim.simulate(kernel)(A)
    assert caught.value.where
    assert not isinstance(caught.value, CapacityExceeded)


@pytest.mark.parametrize("name", ["floor", "sin", "softmax", "mean", "where", "matmul", "shared_constant", "add"])
def test_nothing_works_outside_of_a_kernel(name):
    function = getattr(nl, name)
    with pytest.raises(KernelError, match=f"nl.{name} was called outside of a kernel"):
        function(*[A] * (3 if name == "where" else 2 if name in ("matmul", "mean", "add") else 1))


def test_an_hbm_tensor_is_no_tile():
    with pytest.raises(IllegalOperand, match="is in HBM"):
        neurosim.simulate(lambda x: nl.floor(x))(A)
