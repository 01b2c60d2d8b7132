"""``kernels/matmul.py`` against float64, and bit for bit against the documented order of sums."""

from __future__ import annotations

import ml_dtypes
import nki
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neurosim
from neurosim.shell.loading import load_kernel, packaged_kernel

matmul = load_kernel(f"{packaged_kernel('matmul.py')}:matmul")

F = np.float32
#: explicit bits of the mantissa, and the exponent of the smallest denormal
FORMATS = {
    np.dtype(np.float32): (23, -149),
    np.dtype(ml_dtypes.bfloat16): (7, -133),
    np.dtype(np.float16): (10, -24),
    np.dtype(ml_dtypes.float8_e4m3): (3, -9),
    np.dtype(ml_dtypes.float8_e5m2): (2, -16),
}
DTYPES = [dtype.type for dtype in FORMATS]
SIZES = (1, 2, 31, 32, 33, 127, 128, 129, 300, 511, 513)


def operands(rng, shape, dtype, other=None):
    K, M, N = shape
    return rng.standard_normal((K, M)).astype(dtype), rng.standard_normal((K, N)).astype(other or dtype)


def assert_close(got, a_t, b):
    """Assert that each element is within the roundings of K float32 sums and one store."""
    wide_a, wide_b = a_t.astype(np.float64), b.astype(np.float64)
    exact = wide_a.T @ wide_b
    mantissa, smallest = FORMATS[got.dtype]
    terms = (len(a_t) + 4) * 2.0**-24 * (np.abs(wide_a).T @ np.abs(wide_b))
    store = np.maximum(2.0 ** -(mantissa + 1) * (np.abs(exact) + terms), 2.0 ** (smallest - 1))
    assert got.shape == exact.shape
    wrong = ~(np.abs(got.astype(np.float64) - exact) <= terms + store)
    assert not wrong.any(), f"{wrong.sum()} of {wrong.size}, first at {np.argwhere(wrong)[0]}"


def in_order(a_t, b):
    """Return the product as the tensor engine sums it: per 128 rows of K from zero, then tile after tile."""
    total = None
    for first in range(0, len(a_t), 128):
        part = np.zeros((a_t.shape[1], b.shape[1]), F)
        for k in range(first, min(first + 128, len(a_t))):
            part = part + a_t[k].astype(F)[:, None] * b[k].astype(F)
        total = part if total is None else total + part
    return total


@pytest.mark.parametrize("M", SIZES)
def test_every_pair_of_sizes(M):
    """M1: sizes that are no multiple of a tile, with every dtype in turn."""
    rng = np.random.default_rng(M)
    for index, N in enumerate(SIZES):
        turn = index + SIZES.index(M)
        a_t, b = operands(rng, (SIZES[(3 * turn) % len(SIZES)], M, N), DTYPES[turn % len(DTYPES)])
        assert_close(neurosim.simulate(matmul)(a_t, b).outputs, a_t, b)


@pytest.mark.parametrize("K", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_k(K, dtype):
    a_t, b = operands(np.random.default_rng(K), (K, 33, 130), dtype)
    assert_close(nki.simulate(matmul)(a_t, b), a_t, b)


@settings(max_examples=40)
@given(
    st.integers(1, 400), st.integers(1, 300), st.integers(1, 1100), st.sampled_from(DTYPES), st.integers(0, 2**32 - 1)
)
def test_any_shape_and_dtype(K, M, N, dtype, seed):
    a_t, b = operands(np.random.default_rng(seed), (K, M, N), dtype)
    got = nki.simulate(matmul)(a_t, b)
    assert got.dtype == b.dtype
    assert_close(got, a_t, b)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize("shape", [(128, 128, 512), (300, 129, 70), (513, 5, 640), (1, 1, 1)])
def test_bits_of_the_documented_order(shape, dtype):
    """A22: k ascends within a pass, passes are added in program order; the store rounds once."""
    a_t, b = operands(np.random.default_rng(5), shape, dtype)
    expected = in_order(a_t, b).astype(dtype)
    assert np.isfinite(expected.astype(F)).all()
    assert nki.simulate(matmul)(a_t, b).tobytes() == expected.tobytes()


def test_operands_of_different_narrow_dtypes():
    a_t, b = operands(np.random.default_rng(2), (200, 40, 90), ml_dtypes.float8_e4m3, ml_dtypes.bfloat16)
    got = nki.simulate(matmul)(a_t, b)
    assert got.dtype == ml_dtypes.bfloat16
    assert got.tobytes() == in_order(a_t, b).astype(ml_dtypes.bfloat16).tobytes()


def test_integers_are_exact():
    """Products and sums of small integers need no rounding, in any dtype."""
    rng = np.random.default_rng(8)
    a_t, b = rng.integers(-2, 3, (200, 70)).astype(F), rng.integers(-2, 3, (200, 530)).astype(F)
    exact = a_t.T @ b
    for dtype in (np.float32, ml_dtypes.bfloat16, np.float16):
        got = nki.simulate(matmul)(a_t.astype(dtype), b.astype(dtype))
        np.testing.assert_array_equal(got.astype(F), exact.astype(dtype).astype(F))


def test_nan_and_inf_stay_in_their_row_and_column():
    a_t, b = np.ones((150, 140), ml_dtypes.bfloat16), np.ones((150, 600), ml_dtypes.bfloat16)
    a_t[149, 139], b[0, 599] = np.nan, np.inf
    got = nki.simulate(matmul)(a_t, b).astype(F)
    expected = np.full((140, 600), 150, F)
    expected[:, 599] = np.inf
    expected[139] = np.nan
    np.testing.assert_array_equal(got, expected)


def test_operands_load_once_where_they_fit():
    """K = M = 256, N = 512: two tiles of each operand and two rows of the result, and no byte twice."""
    a_t, b = operands(np.random.default_rng(0), (256, 256, 512), ml_dtypes.bfloat16)
    program = neurosim.simulate(matmul)(a_t, b).program
    moved = [record.signature.work[0] for record in program if record.signature.instruction == "dma_copy"]
    loaded = sum(work.read_bytes for work in moved if work.source.is_hbm)
    assert loaded == a_t.nbytes + b.nbytes
    flops = sum(
        work.flops
        for record in program
        if record.signature.instruction == "nc_matmul"
        for work in record.signature.work
    )
    assert flops == 2 * 256 * 256 * 512


def test_refuses_different_k():
    with pytest.raises(AssertionError, match="a_t has 5 rows and b has 6; both are K"):
        nki.simulate(matmul)(np.ones((5, 4), F), np.ones((6, 4), F))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((2048, 2048, 2048), ml_dtypes.bfloat16),
        ((1000, 1100, 2500), np.float32),
        ((8192, 40, 600), np.float32),
        ((20000, 3, 130), np.float32),
        ((4100, 513, 2049), ml_dtypes.float8_e4m3),
    ],
)
def test_large(shape, dtype):
    a_t, b = operands(np.random.default_rng(1), shape, dtype)
    if dtype is ml_dtypes.float8_e4m3:
        a_t = (a_t.astype(F) / 8).astype(dtype)  # keeps the sums below the largest value, 240
    assert_close(nki.simulate(matmul)(a_t, b), a_t, b)
