"""Comparisons that people's tests use: distances that are those of the codes, and messages that say where."""

from __future__ import annotations

import re
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neurosim
from neurosim import dtypes
from neurosim.testing import assert_close, assert_ulp, ulp_distance, ulp_of

FLOATS = [dtype for dtype in dtypes.ALL if dtype.is_float and dtype != dtypes.tfloat32]  # its arrays are float32's
SMALL = [dtype for dtype in FLOATS if dtype.size_bytes <= 2]


def finite_codes(dtype: dtypes.DType) -> Any:
    """Return every positive finite value of a format of 8 or 16 bits, ascending."""
    codes = np.arange(1 << (8 * dtype.size_bytes - 1), dtype=dtype.bits)
    values = codes.view(dtype.numpy)
    with np.errstate(invalid="ignore"):
        return values[np.isfinite(values.astype(np.float64))]


@pytest.mark.parametrize("dtype", SMALL)
def test_neighbours_are_one_unit_apart_upwards(dtype: dtypes.DType) -> None:
    values = finite_codes(dtype)
    assert len(values) > 100
    np.testing.assert_array_equal(ulp_distance(values[1:], values[:-1]), 1.0)
    np.testing.assert_array_equal(ulp_distance(-values[1:], -values[:-1]), 1.0)


@pytest.mark.parametrize("dtype", SMALL)
def test_downwards_the_unit_is_that_of_the_reference(dtype: dtypes.DType) -> None:
    values = finite_codes(dtype)
    distance = ulp_distance(values[:-1], values[1:])
    numbers = values[1:].astype(np.float64)
    power = (np.frexp(numbers)[0] == 0.5) & (numbers > 2.0 ** (1 - dtype.bias))
    np.testing.assert_array_equal(distance, np.where(power, 0.5, 1.0))


@given(st.floats(-(2.0**127), 2.0**127, width=32))
def test_float32_has_numpys_units(value: float) -> None:
    assert ulp_of(value, "float32") == np.spacing(np.abs(np.float32(value)))
    assert ulp_of(value, np.float64) == np.spacing(np.abs(np.float64(value)))


def test_correct_rounding_is_half_a_unit_and_truncation_is_not() -> None:
    reference = np.random.default_rng(1).standard_normal(4096)
    assert_ulp(reference.astype(ml_dtypes.bfloat16), reference, 0.5)
    truncated = (reference.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(ml_dtypes.bfloat16)
    assert_ulp(truncated, reference, 1.0)
    with pytest.raises(AssertionError, match="ulp of bfloat16"):
        assert_ulp(truncated, reference, 0.5)


def test_the_message_says_where_and_how_far() -> None:
    expected = np.ones((4, 8))
    actual = expected.astype(ml_dtypes.bfloat16)
    actual[2, 3], actual[3, 5] = 1.5, 1.25
    with pytest.raises(AssertionError) as caught:
        assert_ulp(actual, expected, 2)
    lines = str(caught.value).splitlines()
    assert lines[0] == "2 of 32 values are further away than 2 ulp of bfloat16"
    assert lines[1] == "  worst at [2, 3]: 1.5, expected 1.0 (64 ulp, relative 0.5)"
    assert "also  at [3, 5]" in lines[2]
    assert "within [2:4, 3:6], some of it" in lines[3]
    assert "at most 0 ulp" in lines[4]


@pytest.mark.parametrize(
    ("actual", "expected", "distance"),
    [
        (np.nan, np.nan, 0.0),
        (np.inf, np.inf, 0.0),
        (-np.inf, np.inf, np.inf),
        (np.nan, 1.0, np.inf),
        (1.0, np.nan, np.inf),
        (np.inf, 3e38, np.inf),
        (-0.0, 0.0, 0.0),
    ],
)
def test_special_values(actual: float, expected: float, distance: float) -> None:
    assert ulp_distance(np.float32(actual), expected) == distance
    if distance:
        with pytest.raises(AssertionError):
            assert_ulp(np.float32(actual), expected, 1e9)
        with pytest.raises(AssertionError):
            assert_close(np.float32(actual), expected, rtol=1e9)
    else:
        assert_ulp(np.float32(actual), expected, 0)
        assert_close(np.float32(actual), expected, 0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_close_allows_two_units_by_default(dtype: dtypes.DType) -> None:
    unit = 2.0**-dtype.mantissa_bits
    assert_close(np.array([1 + unit], dtype.numpy), [1.0])
    with pytest.raises(AssertionError, match="rtol"):
        assert_close(np.array([1 + 4 * unit], dtype.numpy), [1.0])
    assert_close(np.array([1 + 4 * unit], dtype.numpy), [1.0], rtol=4 * unit)
    assert_close(np.array([1 + 4 * unit], dtype.numpy), [1.0], atol=2 * unit)


def test_integers_must_be_equal_unless_told() -> None:
    assert_close(np.array([3, 4], np.int32), [3, 4])
    with pytest.raises(AssertionError, match=re.escape("1 of 2")):
        assert_close(np.array([3, 5], np.int32), [3, 4])
    assert_ulp(np.array([3, 5], np.int32), [3, 4], 1)
    with pytest.raises(AssertionError):
        assert_ulp(np.array([True]), [False], 0)


def test_shapes_and_kinds() -> None:
    assert_ulp(np.ones((2, 3), np.float32), 1.0, 0)
    with pytest.raises(AssertionError, match=re.escape("actual [2, 3], expected [3, 2]")):
        assert_ulp(np.ones((2, 3), np.float32), np.ones((3, 2)), 0)
    with pytest.raises(AssertionError, match="shapes differ"):  # a scalar is not an array of ones
        assert_ulp(np.float32(1), np.ones(3), 0)
    for wrong in (np.array(["a"]), np.array([1j]), np.array([object()])):
        with pytest.raises(TypeError, match="actual is"):
            assert_ulp(wrong, 1.0)
    assert_ulp(np.ones((0, 3), np.float32), np.ones((0, 3)), 0)


def test_it_is_found_through_the_package() -> None:
    assert neurosim.testing is sys.modules["neurosim.testing"]
    assert "testing" in dir(neurosim)


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    assert_ulp(torch.ones(4, dtype=torch.bfloat16), torch.ones(4, dtype=torch.float64), 0)
    with pytest.raises(AssertionError, match="ulp of bfloat16"):
        assert_ulp(torch.full((4,), 1.5, dtype=torch.bfloat16), 1.0)
