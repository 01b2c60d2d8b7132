"""``kernels/softmax.py`` against float64 exp(x - max) / sum."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SIZES = st.sampled_from((1, 2, 31, 32, 33, 127, 128, 129, 300, 511, 513))
DTYPES = st.sampled_from((np.float32, ml_dtypes.bfloat16, np.float16))


def check(kernels, x, **options):
    shifted = kernels.wide(x) - kernels.wide(x).max(axis=1, keepdims=True)
    weights = np.exp(shifted)
    exact = weights / weights.sum(axis=1, keepdims=True)
    # a weight: the argument x - max is rounded once, which moves exp by |x - max| u, and exp is off by 2 u; their sum
    # adds as many roundings as there are columns, reciprocal and product one each
    weight = (np.abs(shifted) + 2) * kernels.u
    mean_weight = (weight * exact).sum(axis=1, keepdims=True)
    error = exact * (weight + mean_weight + kernels.gamma(x.shape[1] + 2)) * 1.01
    # weights that are denormal are off by one step
    error += 2.0**-149
    kernels.assert_within(kernels.run("softmax.py:softmax", x, **options), exact, error, x.dtype)


@settings(max_examples=40)
@given(rows=SIZES, columns=SIZES, dtype=DTYPES, scale=st.sampled_from((0.1, 1, 10)), seed=st.integers(0, 2**32 - 1))
def test_any_size(kernels, rows, columns, dtype, scale, seed):
    check(kernels, kernels.normal(seed, rows, columns, dtype=dtype, scale=scale))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(257, 16000), (3, 2049)])
def test_long_rows(kernels, shape, dtype):
    check(kernels, kernels.normal(3, *shape, dtype=dtype))


def test_on_each_chip(kernels):
    for chip in kernels.chips:
        check(kernels, kernels.normal(2, 300, 33, dtype=ml_dtypes.bfloat16), chip=chip)
        check(kernels, kernels.normal(2, 130, 16000, dtype=ml_dtypes.bfloat16), chip=chip)


def test_large_scores_do_not_overflow(kernels):
    check(kernels, kernels.normal(4, 40, 100, scale=3e4, mean=1e5))


def test_refuses_rows_that_do_not_fit(kernels):
    with pytest.raises(AssertionError, match="x has 16001 columns"):
        kernels.run("softmax.py:softmax", np.ones((1, 16001), np.float32))
