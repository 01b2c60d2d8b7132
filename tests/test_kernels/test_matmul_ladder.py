"""``kernels/matmul_ladder.py``: every rung against float64, and each faster than the one before."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neurosim

RUNGS = ("matmul_tiled", "matmul_hoisted", "matmul_blocked_free", "matmul_blocked")
SIZES = st.sampled_from((1, 2, 31, 32, 33, 127, 128, 129, 300, 511, 513))
DTYPES = st.sampled_from((np.float32, ml_dtypes.bfloat16, np.float16))


def check(kernels, rung, a_t, b, **options):
    wide_a, wide_b = kernels.wide(a_t, b)
    # a rounding per product and per sum; float32 takes four passes, whose sums are added, and blocks of K add theirs
    roundings = len(b) + 4 + -(-len(b) // 256)
    error = kernels.gamma(roundings) * (np.abs(wide_a).T @ np.abs(wide_b))
    got = kernels.run(f"matmul_ladder.py:{rung}", a_t, b, **options)
    kernels.assert_within(got, wide_a.T @ wide_b, error, b.dtype)
    return got


@pytest.mark.parametrize("rung", RUNGS)
@settings(max_examples=20)
@given(m=SIZES, k=SIZES, n=SIZES, dtype=DTYPES, seed=st.integers(0, 2**32 - 1))
def test_any_size(kernels, rung, m, k, n, dtype, seed):
    check(kernels, rung, kernels.normal(seed, k, m, dtype=dtype), kernels.normal(seed + 1, k, n, dtype=dtype))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_blocks_with_tails(kernels, dtype):
    """More than one block of each axis, and none of them whole."""
    a_t, b = kernels.normal(1, 1100, 300, dtype=dtype), kernels.normal(2, 1100, 1030, dtype=dtype)
    results = [check(kernels, rung, a_t, b) for rung in RUNGS]
    # the first three rungs make the same matmuls in the same order
    assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes()
    wide = kernels.normal(3, 130, 2050, dtype=dtype)
    check(kernels, "matmul_blocked", wide, wide)


def test_each_rung_is_faster_on_each_chip(kernels):
    """As their source says: a compiler would load operands of this size once."""
    operand = neurosim.spec((2048, 2048), "bfloat16")
    for chip in kernels.chips:
        times, read = [], []
        for rung in RUNGS:
            kernel = kernels.load(f"matmul_ladder.py:{rung}")
            timeline = neurosim.profile(kernel, chip=chip, values=False, schedule="reorder")(operand, operand).timeline
            times.append(timeline.makespan_ps)
            read.append(timeline.hbm_read_bytes)
        assert times == sorted(times, reverse=True)
        # what the file's docstring says about traffic, for 2048 in each axis and 2 bytes an element
        square = 2 * 2048 * 2048
        assert read == [square * 4 + square * 16, square + square * 16, square + square * 8, 2 * square]
        assert timeline.mfu > 0.85


@pytest.mark.slow
def test_the_rungs_at_the_size_of_the_tutorial(kernels):
    """4096 × 8192 × 8192: the last rung keeps the tensor engine busy, on each chip."""
    a_t, b = neurosim.spec((8192, 4096), "bfloat16"), neurosim.spec((8192, 8192), "bfloat16")
    for chip in kernels.chips:
        timelines = []
        for rung in RUNGS:
            run = neurosim.profile(kernels.load(f"matmul_ladder.py:{rung}"), chip=chip, values=False)
            timelines.append(run(a_t, b).timeline)
        times = [timeline.makespan_ps for timeline in timelines]
        assert times == sorted(times, reverse=True)
        assert timelines[-1].mfu > 0.95
        assert timelines[0].mfu < 0.3


@pytest.mark.parametrize("rung", RUNGS)
def test_the_largest_k_fits_on_each_chip(kernels, rung):
    operand = neurosim.spec((32768, 200), "float32")
    for chip in kernels.chips:
        run = neurosim.profile(kernels.load(f"matmul_ladder.py:{rung}"), chip=chip, values=False)
        sbuf = run(operand, operand).summary()["sbuf"]
        assert 0 < sbuf["peak_partition_bytes"] <= sbuf["capacity_partition_bytes"]


@pytest.mark.parametrize("rung", RUNGS)
def test_refuses_operands_that_do_not_match(kernels, rung):
    with pytest.raises(AssertionError, match="a_t has 3 rows and b has 4"):
        kernels.run(f"matmul_ladder.py:{rung}", np.ones((3, 5), np.float32), np.ones((4, 5), np.float32))
