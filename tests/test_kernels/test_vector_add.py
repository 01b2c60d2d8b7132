"""``kernels/vector_add.py`` against float64, and what its tiles cost."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neurosim


@settings(max_examples=30)
@given(
    length=st.sampled_from((1, 2, 127, 128, 129, 300, 1280, 5000)),
    columns=st.sampled_from((1, 2, 7, 2048)),
    dtype=st.sampled_from((np.float32, ml_dtypes.bfloat16, np.float16)),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_length(kernels, length, columns, dtype, seed):
    a, b = kernels.normal(seed, length, dtype=dtype), kernels.normal(seed + 1, length, dtype=dtype)
    exact = kernels.wide(a) + kernels.wide(b)
    got = kernels.run("vector_add.py:vector_add", a, b, columns=columns)
    kernels.assert_within(got, exact, kernels.gamma(1) * np.abs(exact), dtype)


def test_lengths_must_match(kernels):
    with pytest.raises(AssertionError, match="a has shape"):
        kernels.run("vector_add.py:vector_add", kernels.normal(1, 128), kernels.normal(1, 256))


def test_wide_tiles_are_faster(kernels):
    vector = neurosim.spec((128 * 1024,), "float32")
    times = [
        neurosim.profile(kernels.load("vector_add.py:vector_add"), values=False)(vector, vector, columns=columns)
        for columns in (2, 32, 1024)
    ]
    few, more, all_ = (result.timeline.makespan_ps for result in times)
    assert few > 10 * more > 20 * all_
