"""Conversions: every code of the short formats, every policy, and the scalar twin beside the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from neurosim import dtypes
from neurosim.dtypes import DType, Kind
from neurosim.errors import UnknownBehavior
from neurosim.numerics import convert, reference

FLOATS = [dtype for dtype in dtypes.FORMATS if dtype.is_float]
SHORT_FLOATS = [dtype for dtype in FLOATS if dtype.size_bytes < 4]
FP8 = [dtype for dtype in FLOATS if dtype.size_bytes == 1]
INTEGERS = [dtype for dtype in dtypes.ALL if dtype.is_integer]
CONVERTED = [dtype for dtype in dtypes.FORMATS if dtype.kind not in (Kind.SCALE, Kind.PACKED)]
NARROWED = [dtype for dtype in CONVERTED if dtype != dtypes.float32]

_EDGES = [0.0, -0.0, 1.0, 0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, 1e-45, 1.1754944e-38, 3.4028235e38, -3.4028235e38]
_EDGES += [65504, 65519.996, 65520, 61440, 57344, 61439.996, 448, 464, 465, 240, 247.99998, 248, 250, 2**31, -(2**31)]
_EDGES += [127.5, 128.5, -128.5, 255.5, 32767.5, 65535.5, 2147483520, 4294967040, 4294967296, -1, -0.5, 16777216]
EDGES = np.array(_EDGES, np.float32)
NANS = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF, 0x7FFFFFFF], np.uint32).view(np.float32)


def codes_of(dtype: DType) -> NDArray[Any]:
    """Every code of a format of at most 16 bits."""
    return np.arange(1 << (8 * dtype.size_bytes)).astype(dtype.bits).view(dtype.numpy)


def singles(count: int) -> NDArray[np.float32]:
    """Random bit patterns and random values of every size, with the edges."""
    rng = np.random.default_rng(20240607)
    patterns = rng.integers(0, 1 << 32, count // 2, dtype=np.uint64).astype(np.uint32).view(np.float32)
    values = (rng.standard_normal(count - count // 2) * 10.0 ** rng.uniform(-9, 9, count - count // 2)).astype("f4")
    return np.concatenate([EDGES, NANS, patterns, values])


def by_ml_dtypes(values: NDArray[np.float32], dtype: DType) -> NDArray[Any]:
    """ml_dtypes' conversion, with our policy where it is another: saturation of FP8, and one NaN."""
    if dtype == dtypes.tfloat32:
        return by_frexp(values)
    with np.errstate(all="ignore"):
        codes = values.astype(dtype.numpy).view(dtype.bits).copy()
    sign = (values.view(np.uint32) >> 31).astype(dtype.bits) << (8 * dtype.size_bytes - 1)
    nan = np.isnan(values)
    if dtype.size_bytes == 1:
        top = np.array(dtype.max_value, np.float32).astype(dtype.numpy).view(dtype.bits)
        finite = codes.view(dtype.numpy).astype(np.float32)
        over = np.isfinite(values) & (np.abs(values) > dtype.max_value) & ~(np.abs(finite) <= dtype.max_value)
        codes[over] = (top | sign)[over]
        if not dtype.has_inf:
            nan |= np.isinf(values)
    codes[nan] = (dtype.nan_code | sign)[nan]
    return codes


def by_frexp(values: NDArray[np.float32]) -> NDArray[Any]:
    """tfloat32 by whole numbers of 11 bits (fewer below the normals); one NaN, and Inf beyond the largest."""
    fraction, exponent = np.frexp(np.where(np.isfinite(values), values, np.float32(1)).astype(np.float64))
    unit = np.maximum(exponent - 11, -136)
    rounded = np.ldexp(np.rint(np.ldexp(fraction, exponent - unit)), unit)
    with np.errstate(all="ignore"):
        codes = np.where(np.isfinite(values), rounded, values).astype(np.float32).view(np.uint32)
    return np.where(np.isnan(values), values.view(np.uint32) & 0x80000000 | 0x7FC00000, codes)


def by_twin(values: NDArray[np.float32], dtype: DType) -> NDArray[Any]:
    return np.array([reference.narrow_one(value, dtype) for value in values], dtype.bits)


def by_numpy_int(values: NDArray[np.float32], dtype: DType) -> NDArray[Any]:
    finite = np.where(np.isnan(values), np.float32(0), values).astype(np.float64)
    wide = np.rint(np.clip(finite, -1e15, 1e15))
    return np.clip(wide, dtype.min_value, dtype.max_value).astype(np.int64).astype(dtype.numpy).view(dtype.bits)


@pytest.mark.parametrize("dtype", SHORT_FLOATS)
def test_widen_every_code(dtype: DType) -> None:
    codes = codes_of(dtype)
    wide = convert.widen(codes, dtype)
    twin = np.array([reference.widen_one(int(code), dtype) for code in codes.view(dtype.bits)])
    nan = np.isnan(twin)
    assert np.array_equal(np.isnan(wide), nan)
    assert np.array_equal(wide[~nan].view(np.uint32), twin[~nan].astype(np.float32).view(np.uint32))
    assert np.array_equal(wide[~nan].view(np.uint32), codes.astype(np.float32)[~nan].view(np.uint32))
    assert np.array_equal(np.signbit(wide), codes.view(dtype.bits) >> (8 * dtype.size_bytes - 1) == 1)


@pytest.mark.parametrize("dtype", SHORT_FLOATS)
def test_round_trip_of_every_code(dtype: DType) -> None:
    codes = codes_of(dtype)
    wide = convert.widen(codes, dtype)
    back = convert.narrow(wide, dtype).view(dtype.bits)
    nan = np.isnan(wide)
    assert np.array_equal(back[~nan], codes.view(dtype.bits)[~nan])
    assert set(np.unique(back[nan])) == {dtype.nan_code, dtype.nan_code | (1 << (8 * dtype.size_bytes - 1))}


@pytest.mark.parametrize("source", [dtypes.bfloat16, dtypes.float16])
@pytest.mark.parametrize("dtype", NARROWED)
def test_every_16_bit_pattern_narrows(source: DType, dtype: DType) -> None:
    wide = convert.widen(codes_of(source), source)
    got = convert.narrow(wide, dtype).view(dtype.bits)
    if dtype.is_float:
        assert np.array_equal(got, by_ml_dtypes(wide, dtype))
    elif dtype.is_integer:
        assert np.array_equal(got, by_numpy_int(wide, dtype))
    else:
        assert np.array_equal(got, (wide != 0).view(np.uint8))
    assert np.array_equal(got[::37], by_twin(wide[::37], dtype))


@pytest.mark.slow
@pytest.mark.parametrize("source", [dtypes.bfloat16, dtypes.float16])
@pytest.mark.parametrize("dtype", NARROWED)
def test_every_16_bit_pattern_narrows_as_the_twin(source: DType, dtype: DType) -> None:
    wide = convert.widen(codes_of(source), source)
    assert np.array_equal(convert.narrow(wide, dtype).view(dtype.bits), by_twin(wide, dtype))


@pytest.mark.parametrize("dtype", NARROWED)
def test_random_singles_narrow(dtype: DType) -> None:
    values = singles(1 << 20)
    got = convert.narrow(values, dtype).view(dtype.bits)
    if dtype.is_float:
        assert np.array_equal(got, by_ml_dtypes(values, dtype))
    elif dtype.is_integer:
        assert np.array_equal(got, by_numpy_int(values, dtype))
    else:
        assert np.array_equal(got, (values != 0).view(np.uint8))
    few = np.concatenate([values[:60], values[60::997]])
    assert np.array_equal(convert.narrow(few, dtype).view(dtype.bits), by_twin(few, dtype))


def test_every_scale() -> None:
    """2**(code - 127), as ml_dtypes has it; and back."""
    codes = np.arange(256, dtype=np.uint8)
    wide = convert.widen(codes.view(dtypes.float8_e8m0fnu.numpy), dtypes.float8_e8m0fnu)
    assert np.array_equal(wide[:-1], np.ldexp(1.0, np.arange(255) - 127).astype(np.float32))
    assert np.array_equal(wide, codes.view(dtypes.float8_e8m0fnu.numpy).astype(np.float32), equal_nan=True)
    back = convert.narrow(wide, dtypes.float8_e8m0fnu)
    assert np.array_equal(back.view(np.uint8), codes)
    assert [reference.narrow_one(value, dtypes.float8_e8m0fnu) for value in wide] == codes.tolist()


@pytest.mark.parametrize("value", [0.0, -1.0, 1.5, np.inf, 2.0**-128, 1.0000001])
def test_what_is_no_scale_is_not_guessed(value: float) -> None:
    with pytest.raises(UnknownBehavior, match="as float8_e8m0fnu: the format holds powers of two"):
        convert.narrow(np.array([1.0, value], np.float32), dtypes.float8_e8m0fnu)


def test_tfloat32_reads_ten_bits_of_the_mantissa() -> None:
    bits = np.array([0x3F801FFF, 0x3F802000, 0xBFFFFFFF, 0x7F800000, 0x00001FFF], np.uint32)
    wide = convert.widen(bits.view(np.float32), dtypes.tfloat32)
    assert wide.view(np.uint32).tolist() == [0x3F800000, 0x3F802000, 0xBFFFE000, 0x7F800000, 0]


@pytest.mark.parametrize("dtype", dtypes.PACKED)
def test_packed_formats_do_not_convert(dtype: DType) -> None:
    array = np.zeros(4, dtype.numpy)
    with pytest.raises(ValueError, match="several values in one element"):
        convert.widen(array, dtype)
    with pytest.raises(ValueError, match="several values in one element"):
        convert.narrow(np.zeros(4, np.float32), dtype)
    with pytest.raises(ValueError, match="only zero"):
        convert.from_number(1, dtype)
    assert convert.from_number(0.0, dtype).item() == 0


@pytest.mark.parametrize("dtype", SHORT_FLOATS)
def test_ties_go_to_even(dtype: DType) -> None:
    # the first codes, up to the largest finite one, are consecutive values
    top = np.array(dtype.max_value, np.float32).astype(dtype.numpy).view(dtype.bits)
    codes = np.arange(int(top), dtype=np.int64)[:: 1 if dtype in FP8 else 61]
    low = convert.widen(codes.astype(dtype.bits).view(dtype.numpy), dtype).astype(np.float64)
    high = convert.widen((codes + 1).astype(dtype.bits).view(dtype.numpy), dtype).astype(np.float64)
    middle = ((low + high) / 2).astype(np.float32)
    even = codes + (codes & 1)
    for sign in (np.float32(1), np.float32(-1)):
        offset = 0 if sign > 0 else 1 << (8 * dtype.size_bytes - 1)
        assert np.array_equal(convert.narrow(middle * sign, dtype).view(dtype.bits), even + offset)
        above = np.nextafter(middle, np.float32(np.inf)) * sign
        below = np.nextafter(middle, np.float32(0)) * sign
        assert np.array_equal(convert.narrow(above, dtype).view(dtype.bits), codes + 1 + offset)
        assert np.array_equal(convert.narrow(below, dtype).view(dtype.bits), codes + offset)


@pytest.mark.parametrize(
    ("dtype", "value", "code"),
    [
        (dtypes.float8_e3m4, 1000.0, 0x6F),
        (dtypes.float8_e3m4, -15.75, 0xEF),
        (dtypes.float8_e3m4, -np.inf, 0xF0),
        (dtypes.float8_e3m4, np.nan, 0x78),
        (dtypes.float8_e3m4, 2.0**-6, 0x01),
        (dtypes.float8_e4m3, 1000.0, 0x77),
        (dtypes.float8_e4m3, -250.0, 0xF7),
        (dtypes.float8_e4m3, np.inf, 0x78),
        (dtypes.float8_e4m3, np.nan, 0x7C),
        (dtypes.float8_e4m3fn, 1000.0, 0x7E),
        (dtypes.float8_e4m3fn, 465.0, 0x7E),
        (dtypes.float8_e4m3fn, np.inf, 0x7F),
        (dtypes.float8_e4m3fn, -np.inf, 0xFF),
        (dtypes.float8_e5m2, 1e9, 0x7B),
        (dtypes.float8_e5m2, -np.inf, 0xFC),
        (dtypes.float8_e5m2, np.nan, 0x7E),
        (dtypes.float16, 65520.0, 0x7C00),
        (dtypes.float16, 65519.996, 0x7BFF),
        (dtypes.float16, 6e-8, 0x0001),
        (dtypes.bfloat16, 3.4028235e38, 0x7F80),
        (dtypes.bfloat16, 1e-40, 0x0001),
        (dtypes.int8, 2.5, 2),
        (dtypes.int8, -2.5, 0xFE),
        (dtypes.int8, 300.0, 127),
        (dtypes.int8, -200.0, 0x80),
        (dtypes.uint8, -1.0, 0),
        (dtypes.int32, 2.0**31, 2**31 - 1),
        (dtypes.int32, np.nan, 0),
        (dtypes.uint32, np.inf, 2**32 - 1),
        (dtypes.bool_, np.nan, 1),
        (dtypes.bool_, -0.0, 0),
    ],
)
def test_policy(dtype: DType, value: float, code: int) -> None:
    assert int(convert.narrow(np.array([value], np.float32), dtype).view(dtype.bits)[0]) == code


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_widen_to_the_nearest(dtype: DType) -> None:
    low, high = int(dtype.min_value), int(dtype.max_value)
    near = [v for base in (low, 0, high, 1 << 24, 1 << 25, 1 << 30) for v in range(base - 5, base + 6)]
    values = [v for v in near if low <= v <= high]
    wide = convert.widen(np.array(values, dtype.numpy), dtype)
    assert [float(v) for v in wide] == [float(np.float32(float(v))) for v in values]


def test_integers_beyond_24_bits_tie_to_even() -> None:
    values = np.array([16777217, 16777219, 33554434, 33554438], np.int32)
    assert convert.widen(values, dtypes.int32).tolist() == [16777216.0, 16777220.0, 33554432.0, 33554440.0]


def test_bool_widens_to_zero_and_one() -> None:
    assert convert.widen(np.array([True, False]), dtypes.bool_).tolist() == [1.0, 0.0]


def test_any_byte_but_zero_is_true() -> None:
    array = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    assert convert.widen(array, dtypes.bool_).tolist() == [0.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("dtype", CONVERTED)
def test_any_layout_gives_the_same(dtype: DType) -> None:
    base = convert.narrow(singles(400)[:384].reshape(16, 24), dtype)
    want = convert.widen(base.copy(), dtype)
    strided = np.zeros((16, 48), dtype.numpy)
    strided[:, ::2] = base
    frozen = base.copy()
    frozen.flags.writeable = False
    shifted = np.zeros(base.nbytes + 1, np.uint8)[1:].view(dtype.numpy).reshape(base.shape)
    shifted[...] = base
    for array in (strided[:, ::2], np.asfortranarray(base), frozen, shifted):
        assert np.array_equal(convert.widen(array, dtype).view(np.uint32), want.view(np.uint32))
    transposed = convert.widen(base.T, dtype)
    assert transposed.flags.c_contiguous
    assert np.array_equal(transposed.view(np.uint32), np.ascontiguousarray(want.T).view(np.uint32))
    odd = np.zeros((16, 48), np.float32)
    odd[:, 1::2] = want
    again = convert.narrow(odd[:, 1::2], dtype)
    assert np.array_equal(again.view(dtype.bits), convert.narrow(want, dtype).view(dtype.bits))


@pytest.mark.parametrize("dtype", CONVERTED)
def test_out_is_written_and_returned(dtype: DType) -> None:
    values = singles(100)[:96].reshape(4, 24)
    out = np.empty(values.shape, dtype.numpy)
    assert convert.narrow(values, dtype, out) is out
    assert np.array_equal(out.view(dtype.bits), convert.narrow(values, dtype).view(dtype.bits))
    wide = np.empty(values.shape, np.float32)
    assert convert.widen(out, dtype, wide) is wide
    assert np.array_equal(wide.view(np.uint32), convert.widen(out, dtype).view(np.uint32))


@pytest.mark.parametrize("out", [np.empty((4, 5), "f4"), np.empty((5, 4), "f4").T, np.empty((4, 4), "f8")])
def test_an_out_that_does_not_fit_is_refused(out: Any) -> None:
    with pytest.raises(ValueError, match="out is"):
        convert.widen(np.ones((4, 4), np.int8), dtypes.int8, out)
    with pytest.raises(ValueError, match="out is"):
        convert.narrow(np.ones((4, 4), np.float32), dtypes.float32, out)
    with pytest.raises(ValueError, match="out is"):
        convert.cast(np.ones((4, 4), np.float32), dtypes.float32, dtypes.float32, out)


@pytest.mark.parametrize("dtype", CONVERTED)
def test_empty_arrays(dtype: DType) -> None:
    assert convert.widen(np.empty((3, 0), dtype.numpy), dtype).shape == (3, 0)
    assert convert.narrow(np.empty((0, 4), np.float32), dtype).shape == (0, 4)


def test_contiguous_float32_is_not_copied() -> None:
    values = np.ones((4, 4), np.float32)
    assert convert.widen(values, dtypes.float32) is values
    assert convert.narrow(values, dtypes.float32) is values


@pytest.mark.parametrize("dtype", dtypes.FORMATS)
def test_cast_to_itself_copies_bits(dtype: DType) -> None:
    codes = np.arange(1 << min(16, 8 * dtype.size_bytes)).astype(dtype.bits)
    array = (codes & 1 if dtype == dtypes.bool_ else codes << max(8 * dtype.size_bytes - 16, 0)).astype(dtype.bits)
    copy = convert.cast(array.view(dtype.numpy), dtype, dtype)
    assert np.array_equal(copy.view(dtype.bits), array)
    assert not np.shares_memory(copy, array)
    out = np.empty_like(copy)
    assert convert.cast(array.view(dtype.numpy), dtype, dtype, out) is out
    assert np.array_equal(out.view(dtype.bits), array)


def test_cast_goes_through_float32() -> None:
    array = np.array([16777217, -5], np.int32)
    assert convert.cast(array, dtypes.int32, dtypes.uint32).tolist() == [16777216, 0]
    assert convert.cast(array, dtypes.int32, dtypes.int32).tolist() == [16777217, -5]
    assert convert.cast(array, dtypes.int32, dtypes.float32).tolist() == [16777216.0, -5.0]
    assert convert.cast(np.array([300.0], np.float32), dtypes.float32, dtypes.int8).tolist() == [127]


@pytest.mark.parametrize(
    ("value", "dtype", "want"),
    [
        (2**31 - 1, dtypes.int32, 2**31 - 1),
        (16777217, dtypes.int32, 16777217),
        (np.int64(4294967295), dtypes.uint32, 4294967295),
        (-1, dtypes.uint8, 0),
        (300, dtypes.int8, 127),
        (2.5, dtypes.int8, 2),
        (1073741824.5, dtypes.int32, 1073741824),
        (float("nan"), dtypes.int16, 0),
        (float("inf"), dtypes.int16, 32767),
        (True, dtypes.float32, 1.0),
        (0.1, dtypes.float32, float(np.float32(0.1))),
        (16777217, dtypes.float32, 16777216.0),
        (2**60 + 2**36 + 1, dtypes.float32, float(2**60 + 2**37)),
        (-431.99999999999994, dtypes.float8_e4m3fn, -416.0),
        (16973823, dtypes.bfloat16, 16908288.0),
        (1e300, dtypes.bfloat16, float("inf")),
        (-1e300, dtypes.float8_e5m2, -57344.0),
        (10**400, dtypes.float32, float("inf")),
        (3, dtypes.bool_, True),
    ],
)
def test_from_number_rounds_once(value: Any, dtype: DType, want: float) -> None:
    got = convert.from_number(value, dtype)
    assert got.shape == ()
    assert got.dtype == dtype.numpy
    assert got.item() == want


def test_numbers_that_come_again_are_told_apart_by_their_bits() -> None:
    for value in (0.0, -0.0, 0.0, 1.5, -1.5, 1.5, float("inf"), float("nan")):
        wanted = np.float32(value).tobytes()
        assert convert.from_number(value, dtypes.float32).tobytes() == wanted
        assert convert.number(value).tobytes() == wanted


def test_a_number_that_is_kept_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="read-only"):
        convert.from_number(2.5, dtypes.bfloat16)[...] = 1.0
