"""``kernels/linear_gelu.py`` against float64."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neurosim

ERF = np.vectorize(math.erf)


@settings(max_examples=25)
@given(
    m=st.sampled_from((1, 127, 129, 300)),
    k=st.sampled_from((1, 64, 130)),
    n=st.sampled_from((1, 511, 513)),
    dtype=st.sampled_from((np.float32, ml_dtypes.bfloat16, np.float16)),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_size(kernels, m, k, n, dtype, seed):
    x_t, bias = kernels.normal(seed, k, m, dtype=dtype), kernels.normal(seed + 2, 1, n, dtype=dtype)
    w = kernels.normal(seed + 1, k, n, dtype=dtype, scale=k**-0.5)
    wide_x, wide_w, wide_bias = kernels.wide(x_t, w, bias)
    linear = wide_x.T @ wide_w + wide_bias
    exact = linear * (1 + ERF(linear / math.sqrt(2))) / 2
    error = kernels.gamma(k + 5) * (np.abs(wide_x).T @ np.abs(wide_w) + np.abs(wide_bias))
    # the slope of gelu is below 1.13, and the activation itself is right to a few units in the last place
    error = 1.13 * error + kernels.gamma(8) * np.abs(exact) + 2.0**-30
    kernels.assert_within(kernels.run("linear_gelu.py:linear_gelu", x_t, w, bias), exact, error, dtype)


def test_weights_in_blocks(kernels):
    """Half of SBUF holds 512 columns at a time: the weights are read once, and x twice, as the source says."""
    m, k, n = 128, 128 * 48, 1024
    shapes = (k, m), (k, n), (1, n)
    kernel = kernels.load("linear_gelu.py:linear_gelu")
    run = neurosim.profile(kernel, chip="trn1", values=False, schedule="reorder")
    read = run(*[neurosim.spec(shape, "float32") for shape in shapes]).timeline.hbm_read_bytes
    assert read == 4 * (k * n + 2 * k * m) + 4 * 128 * n


def test_sizes_that_do_not_go(kernels):
    with pytest.raises(AssertionError, match="both are K"):
        kernels.run(
            "linear_gelu.py:linear_gelu", kernels.normal(1, 5, 6), kernels.normal(2, 7, 6), kernels.normal(3, 1, 6)
        )
