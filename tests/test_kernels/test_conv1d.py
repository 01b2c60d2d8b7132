"""``kernels/conv1d.py`` against a float64 cross-correlation."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

SIZES = st.sampled_from((1, 2, 31, 32, 33, 127, 128, 129, 300, 511, 513))
DTYPES = st.sampled_from((np.float32, ml_dtypes.bfloat16, np.float16))


def inputs(kernels, seed, batch, channels_in, length, channels_out, taps, dtype=np.float32):
    x = kernels.normal(seed, batch, channels_in, length, dtype=dtype)
    w = kernels.normal(seed + 1, channels_out, channels_in, taps, dtype=dtype, scale=(channels_in * taps) ** -0.5)
    return x, w, kernels.normal(seed + 2, channels_out, dtype=dtype)


def correlate(x, w, stride, padding):
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2], axis=2)[:, :, ::stride]
    return np.tensordot(windows, w, axes=([1, 3], [1, 2])).transpose(0, 2, 1)


def check(kernels, x, w, bias=None, stride=1, padding=0, **options):
    wide, weights = kernels.wide(x, w)
    exact = correlate(wide, weights, stride, padding)
    roundings = w.shape[1] * w.shape[2] + 4
    error = kernels.gamma(roundings) * correlate(np.abs(wide), np.abs(weights), stride, padding)
    if bias is not None:
        exact = exact + kernels.wide(bias)[:, None]
        error = error + kernels.u * (np.abs(exact) + error)
    got = kernels.run("conv1d.py:conv1d", x, w, bias, stride=stride, padding=padding, **options)
    kernels.assert_within(got, exact, error, x.dtype)


@settings(max_examples=40)
@given(
    batch=st.sampled_from((1, 2, 33)),
    channels_in=SIZES,
    length=SIZES,
    channels_out=SIZES,
    taps=st.sampled_from((1, 2, 3, 4, 7)),
    stride=st.sampled_from((1, 2, 3)),
    padding=st.sampled_from((0, 1, 5)),
    with_bias=st.booleans(),
    dtype=DTYPES,
    seed=st.integers(0, 2**32 - 1),
)
def test_any_size(kernels, batch, channels_in, length, channels_out, taps, stride, padding, with_bias, dtype, seed):
    assume(length + 2 * padding >= taps)
    while batch * channels_in * channels_out * length * taps > 2**25:  # multiplications, for the test's time
        batch, channels_in, channels_out = max(batch // 2, 1), -(-channels_in // 2), -(-channels_out // 2)
    x, w, bias = inputs(kernels, seed, batch, channels_in, length, channels_out, taps, dtype)
    check(kernels, x, w, bias if with_bias else None, stride, padding)


@pytest.mark.parametrize("stride", [1, 2, 40])
def test_sequences_of_several_blocks(kernels, stride):
    check(kernels, *inputs(kernels, 1, 2, 5, 10000, 4, 3), stride=stride, padding=1)


def test_more_taps_than_are_transposed_together(kernels):
    check(kernels, *inputs(kernels, 2, 3, 33, 200, 5, 129), padding=64)


def test_blocks_that_lie_in_the_padding(kernels):
    check(kernels, *inputs(kernels, 3, 1, 3, 5, 2, 2), padding=2500)


def test_on_each_chip(kernels):
    for chip in kernels.chips:
        check(kernels, *inputs(kernels, 4, 3, 130, 33, 129, 3, ml_dtypes.bfloat16), padding=1, chip=chip)
        check(kernels, *inputs(kernels, 5, 1, 257, 20, 8192, 1), chip=chip)  # weights of 96 KiB


def test_refuses(kernels):
    x, w, _ = inputs(kernels, 6, 1, 3, 4, 5, 6)
    with pytest.raises(AssertionError, match="6 taps are more than 4"):
        kernels.run("conv1d.py:conv1d", x, w)
    with pytest.raises(AssertionError, match="x has 2 channels and w has 3"):
        kernels.run("conv1d.py:conv1d", x[:, :2], w)
    with pytest.raises(AssertionError, match="weights take 98308 bytes"):
        kernels.run("conv1d.py:conv1d", x[:, :1], np.ones((24577, 1, 1), np.float32))
