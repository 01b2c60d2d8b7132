"""``kernels/sharded_rmsnorm.py`` on one core and on two, against float64 x / sqrt(mean(x²) + eps) · weight."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neurosim

TARGET = "sharded_rmsnorm.py:sharded_rmsnorm"
SIZES = st.sampled_from((1, 2, 3, 31, 32, 33, 127, 128, 129, 300, 511, 513))
DTYPES = st.sampled_from((np.float32, ml_dtypes.bfloat16, np.float16))
CORES = st.sampled_from((None, 1, 2))


def check(kernels, x, weight, eps=1e-6, **options):
    wide, wide_weight = kernels.wide(x, weight)
    exact = wide / np.sqrt((wide * wide).mean(axis=1, keepdims=True) + eps) * wide_weight
    # as in test_rmsnorm.py, and one addition more, of the two halves
    mean = kernels.gamma(x.shape[1] + 9)
    error = np.abs(exact) * (mean / 2 + kernels.gamma(4)) * 1.01
    got = kernels.run(TARGET, x, weight, eps=eps, **options)
    kernels.assert_within(got, exact, error, x.dtype)


@settings(max_examples=40, deadline=None)
@given(rows=SIZES, columns=SIZES, dtype=DTYPES, weight_dtype=DTYPES, cores=CORES, seed=st.integers(0, 2**32 - 1))
def test_any_size(kernels, rows, columns, dtype, weight_dtype, cores, seed):
    x = kernels.normal(seed, rows, columns, dtype=dtype, scale=3)
    check(kernels, x, kernels.normal(seed + 1, columns, dtype=weight_dtype), cores=cores)


def test_on_each_chip(kernels):
    for chip in kernels.chips:
        x = kernels.normal(2, 300, 33, dtype=ml_dtypes.bfloat16)
        for cores in (1, 2) if neurosim.load_chip(chip).cores == 2 else (1,):
            check(kernels, x, kernels.normal(3, 33, dtype=ml_dtypes.bfloat16), chip=chip, cores=cores)


def test_two_cores_hold_what_one_does_not(kernels):
    x, weight = kernels.normal(2, 130, 32768), kernels.normal(3, 32768)
    check(kernels, x, weight, cores=2)
    with pytest.raises(AssertionError, match="32768 columns on 1 cores"):
        kernels.run(TARGET, x, weight)


def test_two_cores_are_faster(kernels):
    x, weight = kernels.normal(2, 1024, 8192, dtype=ml_dtypes.bfloat16), kernels.normal(3, 8192)
    simulated = neurosim.simulate(kernels.load(TARGET), values=False)
    specs = [neurosim.spec(array.shape, str(array.dtype)) for array in (x, weight)]
    one, two = simulated(*specs), simulated[2](*specs)
    assert len(two.program.meetings) == 8
    assert 1.6 < one.timeline.makespan_ps / two.timeline.makespan_ps < 2.1
    assert two.summary()["hbm"]["read_bytes"] == one.summary()["hbm"]["read_bytes"]


def test_refuses(kernels):
    x = np.ones((2, 8), np.float32)
    with pytest.raises(AssertionError, match=r"x has 4 columns and weight has shape \(5,\)"):
        kernels.run(TARGET, x[:, :4], x[0, :5], cores=2)
