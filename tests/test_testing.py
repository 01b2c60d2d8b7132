"""Comparisons that people's tests use: distances that are those of the codes, and messages that say where."""

from __future__ import annotations

import fractions
import re
import sys
from typing import Any

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neurosim
from neurosim import dtypes
from neurosim.errors import UnknownBehavior
from neurosim.testing import assert_close, assert_ulp, rounded, ulp_distance, ulp_of

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


def test_scales_are_a_power_of_two_apart() -> None:
    scales = np.array([2.0**-127, 1.0, 8.0, 2.0**127]).astype(ml_dtypes.float8_e8m0fnu)
    np.testing.assert_array_equal(ulp_of(scales, scales.dtype), scales.astype(np.float64))
    assert_ulp(scales[1:2], [0.5], 1)
    with pytest.raises(AssertionError, match=re.escape("8.0, expected 2.0 (3 ulp, relative 3)")):
        assert_ulp(scales[2:3], [2.0], 1)


@pytest.mark.parametrize("dtype", [dtypes.float8_e4m3fn_x4, dtypes.float8_e5m2_x4])
def test_packed_values_are_compared_one_by_one(dtype: dtypes.DType) -> None:
    value = dtype.face[0]
    packed = np.array([[1.0, 1.5, -2.0, 0.25, 3.0, 3.5, 0.0, 8.0]], value).view(dtype.face)
    assert packed.shape == (1, 2)
    assert_ulp(packed, [[1.0, 1.5, -2.0, 0.25, 3.0, 3.5, 0.0, 8.0]], 0)
    assert_close(packed, packed)
    with pytest.raises(AssertionError, match=re.escape("worst at [0, 5]: 3.5, expected 3.0")):
        assert_ulp(packed, [[1.0, 1.5, -2.0, 0.25, 3.0, 3.0, 0.0, 8.0]], 0.5)


def test_values_of_four_bits_begin_in_the_lower_half() -> None:
    packed = np.array([[0x10, 0x7F]], np.uint8).view(dtypes.float4_e2m1fn_x4.face)
    assert_ulp(packed, [[0.0, 0.5, -6.0, 6.0]], 0)
    with pytest.raises(AssertionError, match="1 of 4 values are further away than 0 ulp of float4_e2m1fn"):
        assert_ulp(packed, [[0.0, 0.5, -6.0, 4.0]], 0)


def test_units_of_another_format() -> None:
    """tfloat32 has no arrays of its own, and a float32 that went through bfloat16 is only good to that."""
    x = np.array([1.0 + 2.0**-11], np.float32)
    assert ulp_distance(x, 1.0, dtypes.tfloat32) == 0.5
    assert_ulp(x, 1.0, 0.5, dtype=dtypes.tfloat32)
    assert_ulp(x, 1.0, 0.0625, dtype="bfloat16")
    with pytest.raises(AssertionError, match=re.escape("than 0.25 ulp of tfloat32")):
        assert_ulp(x, 1.0, 0.25, dtype="tfloat32")


@pytest.mark.parametrize(
    ("dtype", "unit"),
    [
        (ml_dtypes.float8_e3m4, 2.0**-4),
        (ml_dtypes.float6_e2m3fn, 2.0**-3),
        (ml_dtypes.float4_e2m1fn, 0.5),
        (np.float16, 2.0**-10),
        (ml_dtypes.int4, 1.0),
    ],
)
def test_formats_that_are_not_nkis(dtype: Any, unit: float) -> None:
    assert ulp_of(1.0, dtype) == unit
    assert_ulp(np.array([1], dtype), [1.0], 0)
    with pytest.raises(AssertionError, match="1 of 1"):
        assert_ulp(np.array([2], dtype), [1.0], 0.99)


def test_a_format_that_has_no_numbers() -> None:
    with pytest.raises(TypeError, match="has no unit in the last place"):
        ulp_of(1.0, "S3")


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


@pytest.mark.parametrize("value", ["x", b"1", [1, 2], np.ones(3), None, True, 1j, np.complex64(1), object(), 10**400])
def test_a_limit_is_one_number(value: Any) -> None:
    same = np.ones((2, 3), np.float32)
    with pytest.raises(TypeError, match=r"^max_ulp is .*, which is not one number$"):
        assert_ulp(same, same, value)
    with pytest.raises(TypeError, match=r"^atol is .*, which is not one number$"):
        assert_close(same, same, 0.0, value)
    if value is not None:
        with pytest.raises(TypeError, match=r"^rtol is .*, which is not one number$"):
            assert_close(same, same, value)


@pytest.mark.parametrize("value", [np.nan, -1.0, -np.inf])
def test_a_limit_is_a_distance(value: float) -> None:
    """Nothing is further away than NaN: such a test could not fail."""
    with pytest.raises(ValueError, match=r"max_ulp is .*; it is a distance, and so 0 or more"):
        assert_ulp(np.float32(1), 2.0, value)
    for limits in ((value, 0.0), (0.0, value)):
        with pytest.raises(ValueError, match=r"[ra]tol is .*; it is a distance, and so 0 or more"):
            assert_close(np.float32(1), 2.0, *limits)


def test_limits_of_other_kinds() -> None:
    for one in (1, np.float16(1), np.array(1.0), np.int8(1), ml_dtypes.bfloat16(1), fractions.Fraction(1)):
        assert_ulp(np.float32(1), 1 + 2.0**-23, one)
        assert_close(np.float32(1), 2.0, one)
        with pytest.raises(AssertionError, match="1 ulp of float32"):
            assert_ulp(np.float32(1), 1 + 2.0**-22, one)


@pytest.mark.parametrize(
    "values", [["a"], [1j], [None], [[1], [1, 2]], {}, np.zeros(3, [("a", int)]), np.zeros(2, "V8")]
)
def test_what_has_no_numbers(values: Any) -> None:
    with pytest.raises(TypeError, match=r"^expected is "):
        assert_close(np.ones(3), values)
    for function in (ulp_of, rounded):
        with pytest.raises(TypeError, match=r"^values is "):
            function(values, "bfloat16")


@pytest.mark.parametrize("dtype", ["x", {1: 2}, [1, 2], object(), 3])
def test_what_is_no_format(dtype: Any) -> None:
    with pytest.raises(TypeError, match=" is no format: give one of NKI's"):
        ulp_of(1.0, dtype)
    with pytest.raises(TypeError, match=" is no format: give one of NKI's"):
        assert_ulp(np.ones(3), np.ones(3), dtype=dtype)


def test_units_need_a_format() -> None:
    with pytest.raises(TypeError, match="None is no format"):
        ulp_of(1.0, None)


def test_units_of_packed_values() -> None:
    packed = np.array([1, 2, 4, 8], ml_dtypes.float8_e5m2).view(dtypes.float8_e5m2_x4.face)
    assert ulp_of(packed, "float8_e5m2").tolist() == [0.25, 0.5, 1.0, 2.0]


def test_it_is_found_through_the_package() -> None:
    assert neurosim.testing is sys.modules["neurosim.testing"]
    assert "testing" in dir(neurosim)


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    assert_ulp(torch.ones(4, dtype=torch.bfloat16), torch.ones(4, dtype=torch.float64), 0)
    with pytest.raises(AssertionError, match="ulp of bfloat16"):
        assert_ulp(torch.full((4,), 1.5, dtype=torch.bfloat16), 1.0)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float8_e3m4", [15.5, -15.5, 1.0, np.inf]),
        (ml_dtypes.float8_e3m4, [15.5, -15.5, 1.0, np.inf]),
        (ml_dtypes.float8_e4m3, [240.0, -240.0, 1.0, np.inf]),
        ("tfloat32", [999936.0, -999936.0, 1.0, np.inf]),
        (np.int8, [127, -128, 1, 127]),
    ],
)
def test_rounded_as_engines_write(dtype: Any, expected: list[float]) -> None:
    got = rounded([1e6, -1e6, 1.03125 if dtype != "tfloat32" else 1.0, np.inf], dtype)
    assert got.astype(np.float64).tolist() == expected


def test_rounded_is_what_a_kernel_writes() -> None:
    x = np.random.default_rng(3).standard_normal((4, 64), np.float32) * 300

    @nki.jit
    def narrowed(x):  # type: ignore[no-untyped-def]
        tile = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
        short = nl.ndarray(x.shape, dtype=nl.float8_e4m3, buffer=nl.sbuf)
        out = nl.ndarray(x.shape, dtype=nl.float8_e4m3, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=tile, src=x)
        nisa.tensor_copy(dst=short, src=tile)
        nisa.dma_copy(dst=out, src=short)
        return out

    output = neurosim.simulate(narrowed)(x).outputs
    assert np.array_equal(output.view(np.uint8), rounded(x, nl.float8_e4m3).view(np.uint8))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn_x4", "float64", "posit8"])
def test_no_format_to_round_to(dtype: str) -> None:
    with pytest.raises(TypeError, match=f"'{dtype}' is no format that values are rounded to; there are float32, "):
        rounded([1.0], dtype)


def test_a_scale_that_is_no_power_of_two() -> None:
    assert rounded([4.0], "float8_e8m0fnu").view(np.uint8).tolist() == [129]
    with pytest.raises(UnknownBehavior, match=re.escape("3.0 as float8_e8m0fnu")):
        rounded([3.0], "float8_e8m0fnu")
