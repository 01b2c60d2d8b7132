"""``kernels/average_pool2d.py`` against float64 means."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SIZES = (1, 2, 31, 32, 33, 127, 128, 129)
CHANNELS = st.sampled_from((*SIZES, 300, 511, 513))
DTYPES = st.sampled_from((np.float32, ml_dtypes.bfloat16, np.float16))


def windows(x, pool):
    channels, height, width = x.shape
    rows, columns = height // pool, width // pool
    used = x[:, : rows * pool, : columns * pool]
    return used.reshape(channels, rows, pool, columns, pool).transpose(0, 1, 3, 2, 4)


def check(kernels, x, pool, **options):
    wide = windows(kernels.wide(x), pool)
    exact = wide.mean(axis=(3, 4))
    # a rounding per element of the sum, 1 / pool² and the product with it
    error = kernels.gamma(pool * pool + 2) * np.abs(wide).mean(axis=(3, 4))
    kernels.assert_within(kernels.run("average_pool2d.py:average_pool2d", x, pool, **options), exact, error, x.dtype)


@settings(max_examples=40)
@given(
    channels=CHANNELS,
    height=st.sampled_from(SIZES),
    width=st.sampled_from(SIZES),
    pool=st.sampled_from((1, 2, 3, 7)),
    dtype=DTYPES,
    seed=st.integers(0, 2**32 - 1),
)
def test_any_size(kernels, channels, height, width, pool, dtype, seed):
    # at most a million elements
    if channels * height * width > 2**20:
        channels = max(2**20 // (height * width), 1)
    check(kernels, kernels.normal(seed, channels, height, width, dtype=dtype), min(pool, height, width))


def test_on_each_chip(kernels):
    for chip in kernels.chips:
        check(kernels, kernels.normal(1, 130, 33, 32, dtype=ml_dtypes.bfloat16), 3, chip=chip)
        check(kernels, kernels.normal(2, 2, 3, 8192), 2, chip=chip)  # the longest row of windows that fits


def test_a_window_of_everything(kernels):
    check(kernels, kernels.normal(3, 5, 31, 31), 31)


def test_refuses(kernels):
    with pytest.raises(AssertionError, match="a window of 3 × 3 does not fit into 2 × 9"):
        kernels.run("average_pool2d.py:average_pool2d", np.ones((1, 2, 9), np.float32), 3)
    with pytest.raises(AssertionError, match="2 rows take 65544 bytes"):
        kernels.run("average_pool2d.py:average_pool2d", np.ones((1, 2, 8193), np.float32), 2)
