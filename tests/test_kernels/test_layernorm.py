"""``kernels/layernorm.py`` against float64 (x - mean) / sqrt(variance + eps) · weight + bias."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SIZES = st.sampled_from((1, 2, 31, 32, 33, 127, 128, 129, 300, 511, 513))
DTYPES = st.sampled_from((np.float32, ml_dtypes.bfloat16, np.float16))


def check(kernels, x, weight, bias, eps=1e-5, **options):
    wide, wide_weight, wide_bias = kernels.wide(x, weight, bias)
    mean = wide.mean(axis=1, keepdims=True)
    centred = wide - mean
    variance = (centred**2).mean(axis=1, keepdims=True) + eps
    scaled = centred / np.sqrt(variance) * wide_weight
    exact = scaled + wide_bias
    # mean: 1 / columns, the products and the sum. A mean that is off by d moves every element by d, and the variance
    # by d² only, since the centred elements add up to 0
    columns = x.shape[1]
    shift = kernels.gamma(columns + 2) * np.abs(wide).mean(axis=1, keepdims=True)
    spread = kernels.gamma(columns + 6) + shift**2 / variance * (1 + kernels.gamma(columns + 6))
    error = np.abs(wide_weight) / np.sqrt(variance) * (shift + kernels.u * (np.abs(centred) + shift))
    error += np.abs(scaled) * (spread / 2 + kernels.gamma(5)) + error * spread
    error = 1.01 * error + kernels.u * np.abs(exact)
    got = kernels.run("layernorm.py:layernorm", x, weight, bias, eps=eps, **options)
    kernels.assert_within(got, exact, error, x.dtype)


@settings(max_examples=40)
@given(
    rows=SIZES,
    columns=SIZES,
    dtype=DTYPES,
    affine_dtype=DTYPES,
    mean=st.sampled_from((0, 3, -100)),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_size(kernels, rows, columns, dtype, affine_dtype, mean, seed):
    x = kernels.normal(seed, rows, columns, dtype=dtype, mean=mean)
    weight, bias = (kernels.normal(seed + offset, columns, dtype=affine_dtype) for offset in (1, 2))
    check(kernels, x, weight, bias)


def test_on_each_chip(kernels):
    for chip in kernels.chips:
        for columns, dtype in ((33, ml_dtypes.bfloat16), (12288, np.float32)):
            x = kernels.normal(2, 130, columns, dtype=dtype)
            check(kernels, x, kernels.normal(3, columns), kernels.normal(4, columns), chip=chip)


def test_eps_carries_constant_rows(kernels):
    x = np.full((5, 64), 3.0, np.float32)
    check(kernels, x, kernels.normal(6, 64), kernels.normal(7, 64), eps=1e-3)


def test_refuses(kernels):
    x = np.ones((2, 12289), np.float32)
    with pytest.raises(AssertionError, match="at most 12288 fit"):
        kernels.run("layernorm.py:layernorm", x, x[0], x[0])
    with pytest.raises(AssertionError, match=r"bias has shape \(5,\)"):
        kernels.run("layernorm.py:layernorm", x[:, :4], x[0, :4], x[0, :5])
