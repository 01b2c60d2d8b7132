"""``kernels/adamw.py`` against the formula in float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SIZES = st.sampled_from((1, 2, 31, 32, 33, 127, 128, 129, 300, 511, 513))
DTYPES = st.sampled_from((np.float32, ml_dtypes.bfloat16, np.float16))


def inputs(kernels, seed, *shape, dtype=np.float32, gradient_dtype=np.float32):
    p = kernels.normal(seed, *shape, dtype=dtype)
    g = kernels.normal(seed + 1, *shape, dtype=gradient_dtype, scale=0.02)
    return p, g, kernels.normal(seed + 2, *shape, scale=0.01), kernels.normal(seed + 3, *shape, scale=0.01) ** 2


def check(kernels, p, g, m, v, step, chip="trn2", **options):
    setting = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01} | options
    lr, beta1, beta2, eps, decay = setting.values()
    wide_p, wide_g, wide_m, wide_v = kernels.wide(p, g, m, v)
    got_p, got_m, got_v = kernels.run("adamw.py:adamw", p, g, m, v, step, chip=chip, **options)

    # a constant and its product, twice, and the sum
    exact_m = beta1 * wide_m + (1 - beta1) * wide_g
    error_m = kernels.gamma(3) * (np.abs(beta1 * wide_m) + np.abs((1 - beta1) * wide_g))
    kernels.assert_within(got_m, exact_m, error_m, np.float32)

    # the square doubles the roundings of constant and product and adds its own
    exact_v = beta2 * wide_v + (1 - beta2) * wide_g**2
    kernels.assert_within(got_v, exact_v, kernels.gamma(6) * exact_v, np.float32)

    # v, root_scale and the product, halved by the root; the power within 2 u; root_eps and the sum; the power within
    # 2 u; the product with m
    root = np.sqrt(exact_v / (1 - beta2**step)) + eps
    change = lr / (1 - beta1**step) * exact_m / root
    error = kernels.gamma(4 + 2 + 2 + 2 + 1) * np.abs(change) + lr / (1 - beta1**step) * error_m / root
    exact_p = (1 - lr * decay) * wide_p - change
    error = 1.01 * error + kernels.gamma(2) * np.abs(wide_p) + kernels.u * (np.abs(exact_p) + np.abs(change))
    kernels.assert_within(got_p, exact_p, error, p.dtype)


@settings(max_examples=40)
@given(
    rows=SIZES,
    columns=SIZES,
    dtype=DTYPES,
    gradient_dtype=DTYPES,
    step=st.sampled_from((1, 2, 1000)),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_size(kernels, rows, columns, dtype, gradient_dtype, step, seed):
    check(kernels, *inputs(kernels, seed, rows, columns, dtype=dtype, gradient_dtype=gradient_dtype), step)


@pytest.mark.parametrize("shape", [(7,), (128 * 2048 + 129,), (3, 5, 7, 11)])
def test_any_number_of_axes(kernels, shape):
    check(kernels, *inputs(kernels, 1, *shape), 3)


def test_options(kernels):
    check(kernels, *inputs(kernels, 2, 130, 33), 5, lr=0.1, beta1=0.5, beta2=0.9, eps=1e-3, weight_decay=0.0)


def test_on_each_chip(kernels):
    for chip in kernels.chips:
        check(kernels, *inputs(kernels, 3, 130, 33, dtype=ml_dtypes.bfloat16), 2, chip=chip)


def test_rows_without_gradient_only_decay(kernels):
    """What an embedding's rare rows are: no gradient yet, so that the root is 0."""
    p, g, m, v = inputs(kernels, 4, 20, 64)
    g[3], m[3], v[3] = 0, 0, 0
    check(kernels, p, g, m, v, 1)
    got, _, _ = kernels.run("adamw.py:adamw", p, g, m, v, 1)
    assert (got[3] == p[3] * np.float32(1 - 1e-5)).all()


def test_refuses(kernels):
    p, g, m, v = inputs(kernels, 5, 4, 4)
    with pytest.raises(AssertionError, match="have one shape"):
        kernels.run("adamw.py:adamw", p, g, m[:2], v, 1)
    with pytest.raises(AssertionError, match="step is 0"):
        kernels.run("adamw.py:adamw", p, g, m, v, 0)
