"""``kernels/rope.py`` against a float64 rotation."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SIZES = st.sampled_from((1, 2, 31, 32, 33, 127, 128, 129, 300, 511, 513))
DTYPES = st.sampled_from((np.float32, ml_dtypes.bfloat16, np.float16))


def inputs(kernels, seed, positions, heads, half, dtype=np.float32, table_dtype=np.float32):
    angles = np.arange(positions)[:, None] / 10000 ** (np.arange(half) / half)
    x = kernels.normal(seed, positions, heads, 2 * half, dtype=dtype)
    return x, np.cos(angles).astype(table_dtype), np.sin(angles).astype(table_dtype)


def check(kernels, x, cos, sin, **options):
    half = x.shape[2] // 2
    wide, cosine, sine = kernels.wide(x, cos[:, None, :], sin[:, None, :])
    first, second = wide[..., :half], wide[..., half:]
    exact = np.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)
    products = [np.abs(first * cosine) + np.abs(second * sine), np.abs(second * cosine) + np.abs(first * sine)]
    error = kernels.gamma(2) * np.concatenate(products, axis=-1)  # each product and the sum round once
    kernels.assert_within(kernels.run("rope.py:rope", x, cos, sin, **options), exact, error, x.dtype)


@settings(max_examples=40)
@given(
    positions=SIZES,
    heads=st.sampled_from((1, 2, 5)),
    half=st.sampled_from((1, 2, 31, 32, 33, 64, 128)),
    dtype=DTYPES,
    table_dtype=DTYPES,
    seed=st.integers(0, 2**32 - 1),
)
def test_any_size(kernels, positions, heads, half, dtype, table_dtype, seed):
    check(kernels, *inputs(kernels, seed, positions, heads, half, dtype, table_dtype))


def test_on_each_chip(kernels):
    for chip in kernels.chips:
        check(kernels, *inputs(kernels, 1, 300, 3, 33, ml_dtypes.bfloat16, ml_dtypes.bfloat16), chip=chip)
        check(kernels, *inputs(kernels, 2, 130, 64, 64), chip=chip)  # the widest that fits


def test_the_first_position_is_not_turned(kernels):
    x, cos, sin = inputs(kernels, 3, 5, 2, 32)
    assert (kernels.run("rope.py:rope", x, cos, sin)[0] == x[0]).all()


def test_keeps_lengths(kernels):
    x, cos, sin = inputs(kernels, 4, 200, 2, 32)
    got = kernels.wide(kernels.run("rope.py:rope", x, cos, sin))
    np.testing.assert_allclose((got**2).sum(axis=-1), (kernels.wide(x) ** 2).sum(axis=-1), rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "table", "message"),
    [
        ((4, 1, 7), (4, 3), "d is 7"),
        ((4, 1, 8), (4, 3), r"cos and sin must be \[4, 4\]"),
        ((1, 65, 128), (1, 64), "65 heads of 128: at most 8192"),
    ],
)
def test_refuses(kernels, shape, table, message):
    with pytest.raises(AssertionError, match=message):
        kernels.run("rope.py:rope", np.ones(shape, np.float32), *[np.ones(table, np.float32)] * 2)
