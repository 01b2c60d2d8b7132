"""``kernels/swiglu.py`` against float64 (silu(x Wg) ∘ (x Wu)) Wd."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neurosim

SIZES = st.sampled_from((1, 2, 31, 32, 33, 127, 128, 129, 300, 511, 513))
DTYPES = st.sampled_from((np.float32, ml_dtypes.bfloat16, np.float16))
STEEPEST = 1.1  # the derivative of silu is nowhere larger


def inputs(kernels, seed, tokens, width, hidden, outputs, dtype=np.float32):
    return (
        kernels.normal(seed, tokens, width, dtype=dtype),
        kernels.normal(seed + 1, width, hidden, dtype=dtype, scale=width**-0.5),
        kernels.normal(seed + 2, width, hidden, dtype=dtype, scale=width**-0.5),
        kernels.normal(seed + 3, hidden, outputs, dtype=dtype, scale=hidden**-0.5),
    )


def check(kernels, x, w_gate, w_up, w_down, **options):
    wide, gate, up, down = kernels.wide(x, w_gate, w_up, w_down)
    product = wide @ gate
    activated = product / (1 + np.exp(-product))
    h = activated * (wide @ up)
    # the first matmuls, and silu; then the hidden activations, rounded to the dtype; then the last matmul
    sums = kernels.gamma(x.shape[1] + 4)
    activated_error = STEEPEST * sums * (np.abs(wide) @ np.abs(gate)) + kernels.gamma(2) * np.abs(activated)
    up_error = sums * (np.abs(wide) @ np.abs(up))
    h_error = np.abs(activated) * up_error + activated_error * (np.abs(wide @ up) + up_error)
    h_error = 1.01 * h_error + (kernels.u + kernels.unit(x.dtype)) * (np.abs(h) + h_error)
    if x.dtype == np.float16:
        h_error += 2.0**-25
    error = h_error @ np.abs(down) + kernels.gamma(len(down) + 4) * ((np.abs(h) + h_error) @ np.abs(down))
    got = kernels.run("swiglu.py:swiglu", x, w_gate, w_up, w_down, **options)
    kernels.assert_within(got, h @ down, error, x.dtype)


@settings(max_examples=30)
@given(tokens=SIZES, width=SIZES, hidden=SIZES, outputs=SIZES, dtype=DTYPES, seed=st.integers(0, 2**32 - 1))
def test_any_size(kernels, tokens, width, hidden, outputs, dtype, seed):
    check(kernels, *inputs(kernels, seed, tokens, width, hidden, outputs, dtype))


def test_more_rows_of_weights_than_a_chunk(kernels):
    check(kernels, *inputs(kernels, 1, 140, 1100, 1200, 40, ml_dtypes.bfloat16))


def test_on_each_chip(kernels):
    for chip in kernels.chips:
        check(kernels, *inputs(kernels, 2, 150, 129, 300, 33, ml_dtypes.bfloat16), chip=chip)


@pytest.mark.parametrize(("width", "hidden"), [(1024, 29696), (15360, 100)])
def test_the_largest_sizes_fit_on_each_chip(kernels, width, hidden):
    shapes = ((129, width), (width, hidden), (width, hidden), (hidden, 513))
    for chip in kernels.chips:
        run = neurosim.profile(kernels.load("swiglu.py:swiglu"), chip=chip, values=False)
        summary = run(*[neurosim.spec(shape, "float32") for shape in shapes]).summary()
        assert 0.4 < summary["sbuf"]["peak_partition_bytes"] / summary["sbuf"]["capacity_partition_bytes"] <= 1


def test_is_bound_by_the_tensor_engine(kernels):
    """The matmuls of a block of 512 tokens hide the loads of the weights."""
    shapes = ((512, 1024), (1024, 2816), (1024, 2816), (2816, 1024))
    run = neurosim.profile(kernels.load("swiglu.py:swiglu"), chip="trn2", values=False)
    assert run(*[neurosim.spec(shape, "bfloat16") for shape in shapes]).timeline.mfu > 0.85


def test_refuses_weights_that_do_not_match(kernels):
    x, gate, up, down = inputs(kernels, 4, 2, 3, 4, 5)
    with pytest.raises(AssertionError, match=r"w_gate and w_up must be \[3, 4\]"):
        kernels.run("swiglu.py:swiglu", x, gate, up[:, :3], down)
