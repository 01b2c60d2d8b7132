"""Every one of the 2**32 float32 patterns through every narrowing, against two that know nothing of our code.

For floats the first is a table of breakpoints: rounding is monotone, so each code owns one interval of float32
patterns, which ends at the midpoint to the next code's value, ties going to the even code. The midpoints come from the
layout of the format alone, in exact integers. For integers it is NumPy's float64 ``rint``. The second is
ml_dtypes' conversion, and each pattern where its policy is another is counted and explained.

    pytest -m exhaustive
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from neurosim import dtypes
from neurosim.dtypes import DType, Kind
from neurosim.numerics import convert

pytestmark = pytest.mark.exhaustive

FLOATS = [dtype for dtype in dtypes.FORMATS if dtype.is_float and dtype != dtypes.float32]
INTEGERS = [dtype for dtype in dtypes.ALL if dtype.is_integer or dtype.kind == Kind.BOOL]
UNUSED_BITS = {dtypes.tfloat32: 13}
"""Formats that take more bits in memory than they have."""
BLOCK = 1 << 18
"""Patterns at once: arrays that stay in the cache."""
F32_INF = 0x7F800000
SIGN = 0x80000000


def value_of(code: int, dtype: DType) -> Fraction:
    """Return what a code of a format would stand for if it had neither Inf nor NaN, without the sign bit."""
    exponent, mantissa = code >> dtype.mantissa_bits, code & ((1 << dtype.mantissa_bits) - 1)
    if exponent == 0:
        return mantissa * Fraction(2) ** (1 - dtype.bias - dtype.mantissa_bits)
    return ((1 << dtype.mantissa_bits) + mantissa) * Fraction(2) ** (exponent - dtype.bias - dtype.mantissa_bits)


def pattern_of(value: Fraction) -> int:
    """Return the float32 pattern of a positive value that is a float32; 2**128 counts as Inf's."""
    if value >= Fraction(2) ** 128:
        return F32_INF
    single = np.float32(float(value))
    assert Fraction(float(single)) == value
    return int(single.view(np.uint32))


def last_finite(dtype: DType) -> int:
    """Return the largest code of a finite value."""
    ones = (1 << dtype.exponent_bits) - 1
    return (ones << dtype.mantissa_bits) - 1 if dtype.has_inf else (ones << dtype.mantissa_bits) + _all_ones(dtype) - 1


def _all_ones(dtype: DType) -> int:
    return (1 << dtype.mantissa_bits) - 1


def breakpoints(dtype: DType) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each interval of positive float32 patterns ends, and its code; the last one is of overflow."""
    top = last_finite(dtype)
    ends = []
    for code in range(top + 1):
        middle = (value_of(code, dtype) + value_of(code + 1, dtype)) / 2
        tie = pattern_of(middle)
        ends.append(tie + 1 if code % 2 == 0 else tie)  # ties to even: the even code owns the midpoint
    overflow = top if dtype.size_bytes == 1 else top + 1  # the 8-bit formats saturate
    return np.array([*ends, F32_INF], np.int64), np.array([*range(top + 1), overflow], np.int64)


def expected_floats(dtype: DType) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield (first pattern, expected codes) of each block of positive patterns, NaN left out."""
    ends, codes = breakpoints(dtype)
    infinity = last_finite(dtype) + 1 if dtype.has_inf else dtype.nan_code
    for first in range(0, F32_INF + 1, BLOCK):
        last = min(first + BLOCK, F32_INF + 1)
        low, high = np.searchsorted(ends, [first, last], side="right")
        inside = np.clip(ends[low : high + 1], first, last)
        widths = np.diff(np.concatenate([[first], inside]))
        block = np.repeat(codes[low : low + len(widths)], widths)
        if last == F32_INF + 1:
            block = np.append(block[: F32_INF - first], infinity)
        yield first, block.astype(dtype.bits) << dtype.bits.type(UNUSED_BITS.get(dtype, 0))


def patterns(first: int, count: int, sign: int) -> NDArray[np.float32]:
    return (np.arange(first, first + count, dtype=np.uint32) | np.uint32(sign)).view(np.float32)


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_number_becomes_the_code_that_owns_it(dtype: DType) -> None:
    seen = 0
    for first, codes in expected_floats(dtype):
        for sign in (0, SIGN):
            narrowed = convert.narrow(patterns(first, len(codes), sign), dtype).view(dtype.bits)
            expected = codes | dtype.bits.type(sign >> (32 - 8 * dtype.size_bytes))
            assert np.array_equal(narrowed, expected), f"block at {first | sign:#x}"
            seen += len(codes)
    assert seen == 2 * (F32_INF + 1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_nan_becomes_the_one_nan_with_its_sign(dtype: DType) -> None:
    for sign in (0, SIGN):
        code = dtype.nan_code | (sign >> (32 - 8 * dtype.size_bytes))
        narrowed = convert.narrow(patterns(F32_INF + 1, SIGN - F32_INF - 1, sign), dtype).view(dtype.bits)
        assert (narrowed == code).all()


#: What ml_dtypes does otherwise, per format: which positive patterns, NaN apart, and why.
DISAGREEMENTS = {
    "bfloat16": (0, "none"),
    "float16": (0, "none"),
    "float8_e3m4": (F32_INF - pattern_of(Fraction(63, 4)), "from 15.75 on: Inf there, 15.5 here"),
    "float8_e4m3": (F32_INF - pattern_of(Fraction(248)), "from 248 on: Inf there, 240 here"),
    "float8_e4m3fn": (F32_INF - pattern_of(Fraction(464)) - 1, "above 464: NaN there, 448 here"),
    "float8_e5m2": (F32_INF - pattern_of(Fraction(61440)), "from 61440 on: Inf there, 57344 here"),
}


@pytest.mark.parametrize("dtype", [dtype for dtype in FLOATS if dtype.numpy != np.float32])
def test_ml_dtypes_agrees_but_where_its_policy_is_another(dtype: DType) -> None:
    if dtype not in DISAGREEMENTS:
        pytest.fail(f"{dtype} is new: say where ml_dtypes disagrees")
    different = 0
    for first, codes in expected_floats(dtype):
        with np.errstate(all="ignore"):
            theirs = patterns(first, len(codes), 0).astype(dtype.numpy).view(dtype.bits)
        apart = theirs != codes
        different += int(np.count_nonzero(apart))
        if apart.any():  # only where we saturate
            assert (codes[apart] == last_finite(dtype)).all()
            assert not np.isfinite(theirs[apart].view(dtype.numpy).astype(np.float32)).any()
    count, reason = DISAGREEMENTS[dtype]
    assert different == count, reason


@pytest.mark.parametrize("dtype", INTEGERS)
def test_every_number_becomes_the_nearest_integer(dtype: DType) -> None:
    for first in range(0, 1 << 32, BLOCK):
        values = np.arange(first, first + BLOCK, dtype=np.int64).astype(np.uint32).view(np.float32)
        narrowed = convert.narrow(values, dtype)
        with np.errstate(all="ignore"):
            wide = values.astype(np.float64)
        if dtype.kind == Kind.BOOL:
            assert np.array_equal(narrowed, wide != 0.0)
            continue
        wide = np.nan_to_num(wide, nan=0.0, posinf=math.inf, neginf=-math.inf)
        expected = np.rint(np.clip(wide, dtype.min_value, dtype.max_value)).astype(np.int64)
        assert np.array_equal(narrowed.astype(np.int64), expected), f"block at {first:#x}"
