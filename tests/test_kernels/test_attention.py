"""``kernels/attention.py`` against float64 softmax(q kᵀ / √d) v."""

from __future__ import annotations

import ml_dtypes
import nki
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neurosim
from neurosim.shell.loading import load_kernel, packaged_kernel

attention = load_kernel(f"{packaged_kernel('attention.py')}:attention")

F = np.float32
DTYPES = [np.float32, ml_dtypes.bfloat16, np.float16]
ROUNDING = {np.float32: 2.0**-24, ml_dtypes.bfloat16: 2.0**-8, np.float16: 2.0**-11}
SIZES = (1, 2, 31, 32, 33, 127, 128, 129, 300, 511, 513)
WIDTHS = (1, 3, 32, 64, 127, 128)


def inputs(rng, S_q, S_kv, d, dtype):
    return tuple(rng.standard_normal((rows, d)).astype(dtype) for rows in (S_q, S_kv, S_kv))


def run(q, k, v, **options):
    return nki.simulate(attention)(q, k, v, **options)


def assert_close(got, q, k, v, causal=False):
    """Assert that errors are those of rounded weights, float32 sums and one store."""
    wide_q, wide_k, wide_v = (array.astype(np.float64) for array in (q, k, v))
    scores = wide_q @ wide_k.T / np.sqrt(q.shape[1])
    if causal:
        scores[np.triu_indices(len(q), 1, len(k))] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    exact, spread = weights @ wide_v, weights @ np.abs(wide_v)
    largest = np.abs(scores[np.isfinite(scores)]).max()
    sums = 2.0**-24 * (100 + 8 * largest + 2 * len(k) + 2 * q.shape[1])
    unit = ROUNDING[q.dtype.type]
    bound = (unit + sums) * spread + unit * np.abs(exact) + 2.0**-24
    assert got.dtype == q.dtype
    assert got.shape == q.shape
    error = np.abs(got.astype(np.float64) - exact)
    assert (error <= bound).all(), f"{np.nanmax(error / bound)} of the bound at {np.argmax(error / bound)}"


@pytest.mark.parametrize("S_q", SIZES)
def test_every_pair_of_lengths(S_q):
    rng = np.random.default_rng(S_q)
    for index, S_kv in enumerate(SIZES):
        turn = index + SIZES.index(S_q)
        given_inputs = inputs(rng, S_q, S_kv, WIDTHS[turn % len(WIDTHS)], DTYPES[turn % len(DTYPES)])
        assert_close(run(*given_inputs), *given_inputs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("S", SIZES)
def test_causal(S, dtype):
    given_inputs = inputs(np.random.default_rng(S), S, S, WIDTHS[SIZES.index(S) % len(WIDTHS)], dtype)
    assert_close(run(*given_inputs, causal=True), *given_inputs, causal=True)


@settings(max_examples=25)
@given(
    st.integers(1, 600),
    st.integers(1, 700),
    st.integers(1, 128),
    st.sampled_from(DTYPES),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_any_shape_and_dtype(S_q, S_kv, d, dtype, causal, seed):
    given_inputs = inputs(np.random.default_rng(seed), S_q, S_q if causal else S_kv, d, dtype)
    assert_close(run(*given_inputs, causal=causal), *given_inputs, causal=causal)


def test_large_scores_do_not_overflow():
    """exp of a score of 1000 would; the running maximum keeps the weights in range, also across blocks of keys."""
    q, k, v = inputs(np.random.default_rng(1), 40, 1100, 16, np.float32)
    q *= 100
    k[600:] *= 3  # the maximum moves from block to block
    assert_close(run(q, k, v), q, k, v)


def test_equal_keys_average_the_values():
    q, v = np.ones((5, 8), F), np.arange(48, dtype=F).reshape(6, 8)
    np.testing.assert_allclose(run(q, np.ones((6, 8), F), v), np.tile(v.mean(axis=0), (5, 1)), rtol=1e-6)


def test_the_first_row_sees_one_key():
    q, k, v = inputs(np.random.default_rng(3), 140, 140, 24, np.float32)
    np.testing.assert_array_equal(run(q, k, v, causal=True)[0], v[0])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_bad_row_of_q_stays_in_its_row(value):
    q, k, v = inputs(np.random.default_rng(4), 130, 200, 16, ml_dtypes.bfloat16)
    clean = run(q, k, v)
    q[7, 3] = value
    got = run(q, k, v)
    rows = np.arange(130) != 7
    assert got[rows].tobytes() == clean[rows].tobytes()
    assert np.isnan(got[7].astype(F)).all()


def test_a_bad_key_reaches_the_rows_that_see_it():
    q, k, v = inputs(np.random.default_rng(5), 300, 300, 16, np.float32)
    clean = run(q, k, v, causal=True)
    k[200] = np.nan
    got = run(q, k, v, causal=True)
    assert got[:200].tobytes() == clean[:200].tobytes()
    assert np.isnan(got[200:]).all()


@pytest.mark.parametrize(
    ("shapes", "causal", "message"),
    [
        (((4, 8), (5, 9), (5, 9)), False, "q has 8 columns and k has 9"),
        (((4, 8), (5, 8), (6, 8)), False, "k has shape (5, 8) and v has (6, 8)"),
        (((4, 129), (5, 129), (5, 129)), False, "d is 129; the array has 128 rows"),
        (((4, 8), (5, 8), (5, 8)), True, "causal attention of 4 rows over 5 keys"),
    ],
)
def test_refuses(shapes, causal, message):
    with pytest.raises(AssertionError) as caught:
        run(*(np.ones(shape, F) for shape in shapes), causal=causal)
    assert message in str(caught.value)


def test_causal_skips_blocks_that_nobody_sees():
    """Half of the keys are in the future: the causal kernel multiplies about half as much."""
    given_inputs = inputs(np.random.default_rng(6), 2048, 2048, 64, ml_dtypes.bfloat16)

    def flops(**options):
        specs = [neurosim.spec(array.shape, array.dtype) for array in given_inputs]
        program = neurosim.simulate(attention, values=False)(*specs, **options).program
        return sum(
            work.flops
            for record in program
            if record.signature.instruction == "nc_matmul"
            for work in record.signature.work
        )

    assert flops() == 4 * 2048 * 2048 * 64
    assert 0.5 < flops(causal=True) / flops() < 0.65


@pytest.mark.slow
@pytest.mark.parametrize(
    ("S", "d", "dtype", "causal"),
    [(2048, 128, ml_dtypes.bfloat16, True), (3000, 96, np.float32, False), (20000, 8, ml_dtypes.bfloat16, False)],
)
def test_large(S, d, dtype, causal):
    q, k, v = inputs(np.random.default_rng(9), min(S, 3000), S, d, dtype)
    assert_close(run(q, k, v, causal=causal), q, k, v, causal=causal)
