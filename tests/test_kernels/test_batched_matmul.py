"""``kernels/batched_matmul.py`` against float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neurosim


@settings(max_examples=25)
@given(
    batch=st.sampled_from((1, 3)),
    m=st.sampled_from((1, 127, 129, 300)),
    k=st.sampled_from((1, 64, 128)),
    n=st.sampled_from((1, 511, 513, 1100)),
    dtype=st.sampled_from((np.float32, ml_dtypes.bfloat16, np.float16)),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_size(kernels, batch, m, k, n, dtype, seed):
    a, b = kernels.normal(seed, batch, m, k, dtype=dtype), kernels.normal(seed + 1, batch, k, n, dtype=dtype)
    wide_a, wide_b = kernels.wide(a, b)
    error = kernels.gamma(k + 4) * (np.abs(wide_a) @ np.abs(wide_b))
    kernels.assert_within(kernels.run("batched_matmul.py:batched_matmul", a, b), wide_a @ wide_b, error, dtype)


@pytest.mark.parametrize(
    ("a", "b", "message"), [((2, 5, 6), (3, 6, 7), "batch and K"), ((1, 5, 129), (1, 129, 7), "K is 129")]
)
def test_sizes_that_do_not_go(kernels, a, b, message):
    with pytest.raises(AssertionError, match=message):
        kernels.run("batched_matmul.py:batched_matmul", kernels.normal(1, *a), kernels.normal(2, *b))


def test_the_tensor_engine_is_busy(kernels):
    kernel = kernels.load("batched_matmul.py:batched_matmul")
    shapes = neurosim.spec((2, 2048, 64), "float32"), neurosim.spec((2, 64, 4096), "float32")
    timeline = neurosim.profile(kernel, values=False, throttle=False)(*shapes).timeline
    assert timeline.engines["tensor"].busy_ps > 0.8 * timeline.makespan_ps


def test_half_of_the_rows_leave_the_clock_low(kernels):
    """As D2.bmm_v1 was measured: products of 64 of 128 rows never end the throttle."""
    kernel = kernels.load("batched_matmul.py:batched_matmul")
    shapes = neurosim.spec((2, 2048, 64), "float32"), neurosim.spec((2, 64, 4096), "float32")
    timeline = neurosim.profile(kernel, values=False)(*shapes).timeline
    busy_ps, throttle_ps = timeline.engines["tensor"].busy_ps, timeline.stall_ps["tensor"]["throttle"]
    assert throttle_ps > 0.9 * busy_ps
    assert busy_ps + throttle_ps > 0.8 * timeline.makespan_ps
