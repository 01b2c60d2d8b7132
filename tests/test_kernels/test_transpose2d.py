"""``kernels/transpose2d.py`` moves values, so its results are equal and not close."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SIZES = st.sampled_from((1, 2, 31, 32, 33, 127, 128, 129, 300, 511, 513))
DTYPES = st.sampled_from((np.float32, ml_dtypes.bfloat16, np.float16))


def check_matrix(kernels, x, **options):
    got = kernels.run("transpose2d.py:transpose2d", x, **options)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, x.T)


def check_free(kernels, x, **options):
    got = kernels.run("transpose2d.py:transpose_free", x, **options)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, x.transpose(0, 2, 1))


@settings(max_examples=40)
@given(rows=SIZES, columns=SIZES, dtype=DTYPES, seed=st.integers(0, 2**32 - 1))
def test_matrix_of_any_size(kernels, rows, columns, dtype, seed):
    check_matrix(kernels, kernels.normal(seed, rows, columns, dtype=dtype))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_matrix_of_several_blocks(kernels, dtype):
    check_matrix(kernels, kernels.normal(1, 1025, 2049, dtype=dtype))


@settings(max_examples=40)
@given(
    rows=SIZES,
    height=st.sampled_from((1, 2, 31, 32, 33, 127)),
    width=st.sampled_from((1, 2, 31, 32, 33, 129)),
    dtype=DTYPES,
    seed=st.integers(0, 2**32 - 1),
)
def test_free_axes_of_any_size(kernels, rows, height, width, dtype, seed):
    check_free(kernels, kernels.normal(seed, rows, height, width, dtype=dtype))


def test_on_each_chip(kernels):
    for chip in kernels.chips:
        check_matrix(kernels, kernels.normal(2, 300, 129), chip=chip)
        check_matrix(kernels, kernels.normal(2, 129, 300, dtype=ml_dtypes.bfloat16), chip=chip)
        check_free(kernels, kernels.normal(3, 130, 33, 5), chip=chip)
        check_free(kernels, kernels.normal(4, 2, 128, 128), chip=chip)  # the largest row that fits


def test_nan_and_infinity_stay_where_they_are(kernels):
    x = kernels.normal(5, 130, 200)
    x[7, 11], x[9, 3] = np.nan, -np.inf
    check_matrix(kernels, x)
    check_free(kernels, x.reshape(130, 20, 10))


def test_refuses_rows_that_do_not_fit(kernels):
    with pytest.raises(AssertionError, match="takes 66048 bytes"):
        kernels.run("transpose2d.py:transpose_free", np.ones((1, 128, 129), np.float32))
