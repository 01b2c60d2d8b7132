"""``kernels/silu.py`` against float64 x / (1 + exp(-x))."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SIZES = st.sampled_from((1, 2, 31, 32, 33, 127, 128, 129, 300, 511, 513))
DTYPES = st.sampled_from((np.float32, ml_dtypes.bfloat16, np.float16))


def check(kernels, x, **options):
    exact = kernels.wide(x) / (1 + np.exp(-kernels.wide(x)))
    error = kernels.gamma(2) * np.abs(exact)  # half a unit in the last place, and a hundredth
    kernels.assert_within(kernels.run("silu.py:silu", x, **options), exact, error, x.dtype)


@settings(max_examples=40)
@given(rows=SIZES, columns=SIZES, dtype=DTYPES, seed=st.integers(0, 2**32 - 1))
def test_any_size(kernels, rows, columns, dtype, seed):
    check(kernels, kernels.normal(seed, rows, columns, dtype=dtype, scale=4))


@pytest.mark.parametrize("shape", [(1,), (127,), (128 * 2048 + 5,), (3, 5, 7, 11)])
def test_any_number_of_axes(kernels, shape):
    check(kernels, kernels.normal(1, *shape))


def test_on_each_chip(kernels):
    for chip in kernels.chips:
        check(kernels, kernels.normal(2, 130, 33, dtype=ml_dtypes.bfloat16), chip=chip)


def test_far_from_zero(kernels):
    with np.errstate(over="ignore"):
        check(kernels, np.array([-1e4, -100, -88, -1e-30, -0.0, 0.0, 1e-30, 88, 100, 1e4], np.float32))
