"""``kernels/conv2d.py`` against a float64 cross-correlation."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def correlate(x, w):
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    return np.tensordot(windows, w, axes=([1, 4, 5], [1, 2, 3])).transpose(0, 3, 1, 2)


def check(kernels, seed, shape, channels_out, taps, pool, dtype=np.float32, **options):
    batch, channels_in, rows, columns = shape
    height, width = rows * pool + taps[0] - 1, columns * pool + taps[1] - 1
    x = kernels.normal(seed, batch, channels_in, height, width, dtype=dtype)
    scale = (channels_in * taps[0] * taps[1]) ** -0.5
    w = kernels.normal(seed + 1, channels_out, channels_in, *taps, dtype=dtype, scale=scale)
    bias = kernels.normal(seed + 2, channels_out, dtype=dtype)
    wide, weights = kernels.wide(x, w)
    exact = correlate(wide, weights) + kernels.wide(bias)[:, None, None]
    error = kernels.gamma(channels_in * taps[0] * taps[1] + 4) * correlate(np.abs(wide), np.abs(weights))
    error = error + kernels.u * (np.abs(exact) + error)
    squares = (batch, channels_out, rows, pool, columns, pool)
    exact, error = exact.reshape(squares).max((3, 5)), error.reshape(squares).max((3, 5))
    got = kernels.run("conv2d.py:conv2d", x, w, bias, pool=pool, **options)
    kernels.assert_within(got, exact, error, dtype)


@settings(max_examples=25)
@given(
    shape=st.tuples(*map(st.sampled_from, ((1, 2), (1, 3, 130), (1, 2, 5), (1, 4, 33)))),
    channels_out=st.sampled_from((1, 3, 129)),
    taps=st.tuples(st.sampled_from((1, 2, 3)), st.sampled_from((1, 3))),
    pool=st.sampled_from((1, 2, 3)),
    dtype=st.sampled_from((np.float32, ml_dtypes.bfloat16, np.float16)),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_size(kernels, shape, channels_out, taps, pool, dtype, seed):
    check(kernels, seed, shape, channels_out, taps, pool, dtype)


def test_strips_of_several_rows(kernels):
    check(kernels, 1, (1, 130, 7, 100), 130, (3, 3), 1)


@pytest.mark.parametrize(
    ("shapes", "pool", "message"),
    [
        (((1, 2, 8, 8), (3, 4, 3, 3), (3,)), 1, "x has 2 channels and w has 4"),
        (((1, 2, 8, 8), (3, 2, 9, 1), (3,)), 1, "9 × 1 taps are more"),
        (((1, 2, 8, 8), (3, 2, 2, 2), (3,)), 2, "pool 2 divides not both of 7 and 7"),
        (((1, 2, 8, 600), (3, 2, 1, 1), (3,)), 1, "do not fit into a PSUM bank"),
    ],
)
def test_sizes_that_do_not_go(kernels, shapes, pool, message):
    arrays = [kernels.normal(1, *shape) for shape in shapes]
    with pytest.raises(AssertionError, match=message):
        kernels.run("conv2d.py:conv2d", *arrays, pool=pool)
