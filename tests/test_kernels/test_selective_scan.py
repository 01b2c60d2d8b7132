"""``kernels/selective_scan.py`` against the recurrence in float64, with the error carried along it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neurosim

LENGTHS = st.sampled_from((1, 2, 31, 32, 33, 127, 128, 129, 300, 511, 513))
CHANNELS = st.sampled_from((1, 2, 31, 32, 33, 127, 128, 129, 300))
DTYPES = st.sampled_from((np.float32, ml_dtypes.bfloat16, np.float16))


def inputs(kernels, seed, batch, channels, states, length, dtype=np.float32):
    return (
        kernels.normal(seed, batch, channels, length, dtype=dtype),
        np.log1p(np.exp(kernels.normal(seed + 1, batch, channels, length, mean=-2))).astype(dtype),
        -np.exp(kernels.normal(seed + 2, channels, states)).astype(dtype),
        kernels.normal(seed + 3, batch, states, length, dtype=dtype),
        kernels.normal(seed + 4, batch, states, length, dtype=dtype),
    )


def check(kernels, *arrays, **options):
    u, delta, a, b, c = kernels.wide(*arrays)
    (batch, channels, length), states = u.shape, a.shape[1]
    h = np.zeros((batch, channels, states))
    h_error = np.zeros_like(h)
    exact, error = np.empty(u.shape), np.empty(u.shape)
    for t in range(length):
        exponent = delta[:, :, t, None] * a
        decay = np.exp(exponent)
        drive = (delta[:, :, t] * u[:, :, t])[..., None] * b[:, None, :, t]
        kept = decay * np.abs(h)
        h = decay * h + drive
        # the exponent rounds once, which moves exp by |exponent| u, and exp is off by 2 u; a product each; a sum
        h_error = decay * h_error * (1 + kernels.gamma(4)) + kernels.u * (kept * (np.abs(exponent) + 3.01))
        h_error = h_error + kernels.gamma(2) * np.abs(drive) + kernels.u * (np.abs(h) + h_error)
        seen = np.abs(c[:, None, :, t])
        exact[:, :, t] = (h * c[:, None, :, t]).sum(axis=2)
        error[:, :, t] = (seen * (h_error + kernels.gamma(states + 4) * (np.abs(h) + h_error))).sum(axis=2)
    got = kernels.run("selective_scan.py:selective_scan", *arrays, **options)
    kernels.assert_within(got, exact, 1.01 * error, arrays[0].dtype)


@settings(max_examples=25)
@given(
    batch=st.sampled_from((1, 2)),
    channels=CHANNELS,
    states=st.sampled_from((1, 2, 16, 17)),
    length=LENGTHS,
    dtype=DTYPES,
    seed=st.integers(0, 2**32 - 1),
)
def test_any_size(kernels, batch, channels, states, length, dtype, seed):
    while batch * channels * states * length > 2**21:  # for the test's time
        channels, batch = -(-channels // 2), 1
    check(kernels, *inputs(kernels, seed, batch, channels, states, length, dtype))


def test_the_state_is_carried_from_chunk_to_chunk(kernels):
    u, delta, a, b, c = inputs(kernels, 1, 1, 3, 2, 1100)
    check(kernels, u, delta * np.float32(0.001), a, b, c)  # decays so slowly that every chunk sees the first


def test_on_each_chip(kernels):
    for chip in kernels.chips:
        check(kernels, *inputs(kernels, 2, 1, 130, 3, 33, ml_dtypes.bfloat16), chip=chip)


@pytest.mark.slow
@pytest.mark.parametrize(("channels", "states"), [(65536, 16), (130, 4096)])
def test_the_largest_sizes_fit_on_each_chip(kernels, channels, states):
    shapes = ((1, channels, 3), (1, channels, 3), (channels, states), (1, states, 3), (1, states, 3))
    for chip in kernels.chips:
        run = neurosim.profile(kernels.load("selective_scan.py:selective_scan"), chip=chip, values=False)
        summary = run(*[neurosim.spec(shape, "float32") for shape in shapes]).summary()
        assert 0 < summary["sbuf"]["peak_partition_bytes"] <= summary["sbuf"]["capacity_partition_bytes"]


def test_refuses(kernels):
    u, delta, a, b, c = inputs(kernels, 3, 1, 3, 2, 4)
    with pytest.raises(AssertionError, match=r"b and c must be \[1, 2, 4\]"):
        kernels.run("selective_scan.py:selective_scan", u, delta, a, b, c[:, :1])
    wide = np.ones((1, 8193, 1), np.float32)
    with pytest.raises(AssertionError, match="8193 states of 1 channels do not fit"):
        kernels.run("selective_scan.py:selective_scan", u[:, :1, :1], u[:, :1, :1], wide[:, :, 0], wide, wide)
