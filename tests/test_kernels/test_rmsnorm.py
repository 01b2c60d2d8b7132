"""``kernels/rmsnorm.py`` against float64 x / sqrt(mean(x²) + eps) · weight."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SIZES = st.sampled_from((1, 2, 31, 32, 33, 127, 128, 129, 300, 511, 513))
DTYPES = st.sampled_from((np.float32, ml_dtypes.bfloat16, np.float16))


def check(kernels, x, weight, eps=1e-6, **options):
    wide, wide_weight = kernels.wide(x, weight)
    exact = wide / np.sqrt((wide * wide).mean(axis=1, keepdims=True) + eps) * wide_weight
    # the mean: 4 roundings per square (1 / sqrt(columns), the product, both twice), the square, the sum, eps and
    # its addition; the root halves that. Then the power, within 2 u, and two products
    mean = kernels.gamma(x.shape[1] + 8)
    error = np.abs(exact) * (mean / 2 + kernels.gamma(4)) * 1.01
    got = kernels.run("rmsnorm.py:rmsnorm", x, weight, eps=eps, **options)
    kernels.assert_within(got, exact, error, x.dtype)


@settings(max_examples=40)
@given(rows=SIZES, columns=SIZES, dtype=DTYPES, weight_dtype=DTYPES, seed=st.integers(0, 2**32 - 1))
def test_any_size(kernels, rows, columns, dtype, weight_dtype, seed):
    x = kernels.normal(seed, rows, columns, dtype=dtype, scale=3)
    check(kernels, x, kernels.normal(seed + 1, columns, dtype=weight_dtype))


def test_on_each_chip(kernels):
    for chip in kernels.chips:
        x = kernels.normal(2, 300, 33, dtype=ml_dtypes.bfloat16)
        check(kernels, x, kernels.normal(3, 33, dtype=ml_dtypes.bfloat16), chip=chip)
        check(kernels, kernels.normal(2, 130, 16384), kernels.normal(3, 16384), chip=chip)


def test_eps_carries_rows_of_zeros(kernels):
    x = kernels.normal(5, 130, 64)
    x[7] = 0
    check(kernels, x, kernels.normal(6, 64), eps=1e-3)


def test_refuses(kernels):
    x = np.ones((2, 16385), np.float32)
    with pytest.raises(AssertionError, match="at most 16384 fit"):
        kernels.run("rmsnorm.py:rmsnorm", x, x[0])
    with pytest.raises(AssertionError, match=r"x has 4 columns and weight has shape \(5,\)"):
        kernels.run("rmsnorm.py:rmsnorm", x[:, :4], x[0, :5])
