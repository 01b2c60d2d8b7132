"""Conversions between storage formats and float32, the one format that the engines compute in.

Rounding (facts: nki_api.md 3.7; NKI 0.6 release notes for integers):

* float to float: to nearest, ties to even, denormals kept. bfloat16 and float16 overflow to Inf as IEEE 754 says;
  the 8-bit formats saturate to their largest finite value (15.5, 240, 448, 57344), *assumed* from "clamps to 240 on
  write". Inf stays Inf where the format has one, and is NaN in float8_e4m3fn. NaN becomes the canonical quiet NaN
  of the format, its sign kept.
* float to integer: to nearest, ties to even, saturating. NaN becomes 0 (*assumed*).
* float to bool: 1 for everything but zero, NaN included.
* tfloat32: what is read counts its 10 leading mantissa bits only; what is written rounds to nearest even, and
  overflows to Inf (*assumed*: the manual names the layout 1-8-10 and no rounding).
* float to float8_e8m0fnu: powers of two from 2**-127 to 2**127, and NaN. How other values round is nowhere public.
* packed formats do not convert; ``mx.dequantize`` reads them.

A widened value is exact, except for 32-bit integers beyond 2**24, which round to nearest even.
"""

from __future__ import annotations

from functools import lru_cache
from math import copysign
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from neurosim import dtypes
from neurosim.dtypes import DType, Kind
from neurosim.errors import UnknownBehavior
from neurosim.jit import compiled, inlined, named, whole_registers

T = TypeVar("T", bound=np.generic)
Array = NDArray[Any]
F32Array = NDArray[np.float32]
U32Array = NDArray[np.uint32]

_U1: Final = np.uint32(1)
_U16: Final = np.uint32(16)
_SIGN: Final = np.uint32(0x80000000)
_MAGNITUDE: Final = np.uint32(0x7FFFFFFF)
_INF: Final = np.uint32(0x7F800000)
_NAN: Final = np.uint32(0x7FC00000)
_BF16_HALF: Final = np.uint32(0x7FFF)
_BF16_NAN: Final = np.uint32(0x7FC0)
_BF16_SIGN: Final = np.uint32(0x8000)
_BF16_MAGNITUDE: Final = np.uint16(0x7FFF)
_BF16_INF: Final = np.uint16(0x7F80)
_BF16_NAN_CODE: Final = np.uint16(_BF16_NAN)
#: Adding 1.5 * 2**52 leaves the nearest integer in the low bits of a float64 (ties to even).
_ROUND: Final = 6755399441055744.0
_CODES: Final = np.dtype(np.uint16)
"""Of bfloat16, as kernels take them; a dtype that is made already spares a third of ``array.view``."""
_LARGEST: Final = float(np.finfo(np.float32).max)
#: Mantissa bits of float32 that tfloat32 does not have.
_TF32_REST: Final = np.uint32(0x1FFF)
_TF32_HALF: Final = np.uint32(0x0FFF)
_TF32_SHIFT: Final = np.uint32(13)
_MANTISSA_BITS: Final = np.uint32(23)
_SMALLEST_SCALE: Final = np.uint32(0x00400000)
"""2**-127 as a float32, where it is a denormal."""


class SmallFloat:
    """What the kernels need to know about a format of 8 or 16 bits, as uint32 and float32 scalars.

    Attributes:
        shift: mantissa bits that float32 has and the format has not.
        sign_shift: how far float32's sign bit moves down.
        rebias: what to subtract from a shifted float32 code.
        smallest_normal: code of the smallest normal value, in the format and in float32.
        unit: value of the smallest denormal.
        magic: float32 whose unit in the last place is ``unit``; adding it rounds to the format's denormals.
        top: code that larger codes become: the largest finite value, or Inf where overflow gives Inf.
        inf: code of Inf, or of NaN where the format has no Inf.
        first_nan: smallest code of a NaN.
        inf_code: code that widens to Inf; no code at all where the format has no Inf.
    """

    def __init__(self, dtype: DType) -> None:
        m, bias = dtype.mantissa_bits, dtype.bias
        inf_code = ((1 << dtype.exponent_bits) - 1) << m
        saturates = dtype.size_bytes == 1
        top = inf_code - 1 if dtype.has_inf else dtype.nan_code - 1
        self.shift = np.uint32(23 - m)
        self.sign_shift = np.uint32(31 - (dtype.exponent_bits + m))
        self.rebias = np.uint32((127 - bias) << m)
        self.smallest_normal = np.uint32(1 << m)
        self.smallest_normal_f32 = np.uint32((128 - bias) << 23)
        self.unit = np.float32(2.0 ** (1 - bias - m))
        self.magic = np.float32(2.0 ** (24 - bias - m))
        self.top = np.uint32(top if saturates else inf_code)
        self.inf = np.uint32(inf_code if dtype.has_inf else dtype.nan_code)
        self.nan = np.uint32(dtype.nan_code)
        self.first_nan = np.uint32(inf_code + 1 if dtype.has_inf else dtype.nan_code)
        self.inf_code = np.uint32(inf_code if dtype.has_inf else 0xFFFFFFFF)

    def widen_arguments(self) -> tuple[Any, ...]:
        """Return the format's arguments of the widening kernel, in its order."""
        return self.shift, self.sign_shift, self.rebias, self.smallest_normal, self.unit, self.first_nan, self.inf_code

    def narrow_arguments(self) -> tuple[Any, ...]:
        """Return the format's arguments of the narrowing kernel, in its order."""
        limits = self.top, self.inf, self.nan
        return self.shift, self.sign_shift, self.rebias, self.smallest_normal_f32, self.magic, *limits


_SMALL: Final = {
    dtype: SmallFloat(dtype)
    for dtype in dtypes.FORMATS
    if dtype.is_float and dtype.size_bytes < 4 and dtype != dtypes.bfloat16
}


@compiled
def _widen_bfloat16(codes: NDArray[np.uint16], out: F32Array) -> None:
    for i in range(codes.shape[0]):
        out[i] = np.uint32(np.uint32(codes[i]) << _U16).view(np.float32)


@inlined
def rounded_to_bfloat16(bits: np.uint32) -> np.uint32:
    """Return the bfloat16 code of a float32 bit pattern, of numbers and of the canonical NaN alone."""
    odd = np.uint32(np.uint32(bits >> _U16) & _U1)
    return np.uint32(np.uint32(np.uint32(bits + _BF16_HALF) + odd) >> _U16)


@compiled
def _settle_bfloat16(codes: NDArray[np.uint16], out: NDArray[np.uint16]) -> None:
    whole_registers()
    for i in range(codes.shape[0]):
        out[i] = _BF16_NAN_CODE if np.uint16(codes[i] & _BF16_MAGNITUDE) > _BF16_INF else codes[i]


@compiled
def _narrow_bfloat16(values: F32Array, out: NDArray[np.uint16]) -> None:
    whole_registers()
    for i in range(values.shape[0]):
        bits = np.float32(values[i]).view(np.uint32)
        nan = np.uint32(np.uint32(np.uint32(bits >> _U16) & _BF16_SIGN) | _BF16_NAN)
        is_nan = np.uint32(bits & _MAGNITUDE) > _INF
        out[i] = np.uint16(nan if is_nan else rounded_to_bfloat16(bits))


def _make_widen(name: str) -> Any:
    @named(name)
    def widen_small(
        codes: Array,
        out: U32Array,
        shift: np.uint32,
        sign_shift: np.uint32,
        rebias: np.uint32,
        smallest_normal: np.uint32,
        unit: np.float32,
        first_nan: np.uint32,
        inf_code: np.uint32,
    ) -> None:
        sign_mask = np.uint32(_SIGN >> sign_shift)
        magnitude_mask = np.uint32(sign_mask - _U1)
        for i in range(codes.shape[0]):
            code = np.uint32(codes[i])
            sign = np.uint32(np.uint32(code & sign_mask) << sign_shift)
            code = np.uint32(code & magnitude_mask)
            normal = np.uint32(np.uint32(code + rebias) << shift)
            denormal = np.float32(np.float32(code) * unit).view(np.uint32)
            bits = normal if code >= smallest_normal else denormal
            bits = _INF if code == inf_code else bits
            bits = _NAN if code >= first_nan else bits
            out[i] = np.uint32(bits | sign)

    return widen_small


def _make_narrow(name: str, storage: Any) -> Any:
    @named(name)
    def narrow_small(
        values: U32Array,
        out: Array,
        shift: np.uint32,
        sign_shift: np.uint32,
        rebias: np.uint32,
        smallest_normal: np.uint32,
        magic: np.float32,
        top: np.uint32,
        inf: np.uint32,
        nan: np.uint32,
    ) -> None:
        magic_bits = np.float32(magic).view(np.uint32)
        half = np.uint32(np.uint32(np.uint32(_U1 << shift) >> _U1) - _U1)
        for i in range(values.shape[0]):
            sign = np.uint32(np.uint32(values[i] & _SIGN) >> sign_shift)
            bits = np.uint32(values[i] & _MAGNITUDE)
            odd = np.uint32(np.uint32(bits >> shift) & _U1)
            normal = np.uint32(np.uint32(np.uint32(np.uint32(bits + half) + odd) >> shift) - rebias)
            denormal = np.uint32(np.float32(np.uint32(bits).view(np.float32) + magic).view(np.uint32) - magic_bits)
            code = denormal if bits < smallest_normal else normal
            code = top if code > top else code
            code = inf if bits == _INF else code
            code = nan if bits > _INF else code
            out[i] = storage(np.uint32(code | sign))

    return narrow_small


def _make_narrow_int(name: str, storage: Any) -> Any:
    @named(name)
    def narrow_int(values: F32Array, out: Array, low: float, high: float) -> None:
        for i in range(values.shape[0]):
            value: float = np.float64(values[i])
            value = high if value > high else value
            value = low if value < low else value
            rounded = np.float64(value + _ROUND).view(np.int64)
            out[i] = storage(rounded if value == value else np.int64(0))

    return narrow_int


_WIDEN_SMALL: Final = {1: _make_widen("widen_8_bits"), 2: _make_widen("widen_16_bits")}
_NARROW_SMALL: Final = {
    1: _make_narrow("narrow_to_8_bits", np.uint8),
    2: _make_narrow("narrow_to_16_bits", np.uint16),
}
_NARROW_INT: Final = {
    1: _make_narrow_int("narrow_to_int_8", np.uint8),
    2: _make_narrow_int("narrow_to_int_16", np.uint16),
    4: _make_narrow_int("narrow_to_int_32", np.uint32),
}


def plain(array: NDArray[T]) -> NDArray[T]:
    """Return the array, or a copy if need be, as kernels are compiled for it: C-contiguous, aligned, writeable."""
    return array if array.flags.carray else array.copy()


def flat(array: Array, bits: Any) -> Array:
    """Return the elements in C order as one axis of dtype ``bits`` (of the same size), copied only where needed."""
    return plain(array).reshape(-1).view(bits)


def output(out: NDArray[T] | None, shape: tuple[int, ...], dtype: Any) -> NDArray[T]:
    """Return ``out``, checked, since kernels write into it without looking; or a new array."""
    if out is None:
        return np.empty(shape, dtype)
    if out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous:
        layout = "" if out.flags.c_contiguous else ", not C-contiguous"
        raise ValueError(f"out is {out.dtype}{out.shape}{layout}; {np.dtype(dtype)}{shape} is needed")
    return out


def _widen_scale(codes: NDArray[np.uint8], out: U32Array) -> None:
    """Write 2**(code - 127) as float32; the smallest is a denormal there, and 0xFF is NaN."""
    np.left_shift(codes, _MANTISSA_BITS, out=out, dtype=np.uint32)
    out[codes == 0] = _SMALLEST_SCALE
    out[codes == 0xFF] = _NAN


def _narrow_scale(values: F32Array, out: NDArray[np.uint8]) -> None:
    bits = values.view(np.uint32)
    exact = (bits & np.uint32(0x7FFFFF)) == 0
    exact &= (bits > 0) & (bits < _INF)
    exact |= bits == _SMALLEST_SCALE
    nan = (bits & _MAGNITUDE) > _INF
    if not (exact | nan).all():
        value = float(values[~(exact | nan)].reshape(-1)[0])
        raise UnknownBehavior(
            f"{value!r} as float8_e8m0fnu: the format holds powers of two from 2**-127 to 2**127, and no public text "
            "says what another value becomes",
            advice="write the codes, exponent + 127, through .view(nl.uint8)",
        )
    out[...] = np.where(nan, np.uint32(0xFF), bits >> _MANTISSA_BITS)


def _narrow_tfloat32(bits: U32Array, out: U32Array) -> None:
    odd = (bits >> _TF32_SHIFT) & _U1
    rounded = (bits + _TF32_HALF + odd) & ~_TF32_REST
    is_nan = (bits & _MAGNITUDE) > _INF
    np.copyto(out, np.where(is_nan, (bits & _SIGN) | _NAN, rounded))


def widen(array: Array, dtype: DType, out: F32Array | None = None) -> F32Array:
    """Convert storage to float32.

    Args:
        array: elements of ``dtype.numpy``, any shape and strides.
        dtype: the storage format.
        out: float32, C-contiguous, of the same shape; made when absent.

    Returns:
        float32 of the same shape, C-contiguous: ``out``, or ``array`` itself where it already is that.
    """
    if dtype == dtypes.float32 and out is None:
        return array if array.flags.c_contiguous else np.ascontiguousarray(array)
    out = output(out, array.shape, np.float32)
    if dtype == dtypes.bfloat16:
        _widen_bfloat16(flat(array, _CODES), out.reshape(-1))
    elif dtype == dtypes.float32:
        np.copyto(out, array)
    elif dtype.kind == Kind.BOOL:
        # any byte but 0 is true, not only 1
        np.not_equal(array.view(np.uint8), np.uint8(0), out=out)
    elif dtype.kind == Kind.SCALE:
        _widen_scale(array.view(np.uint8), out.view(np.uint32))
    elif dtype.kind == Kind.PACKED:
        raise ValueError(f"{dtype} holds several values in one element; mx.dequantize reads them")
    elif dtype.kind != Kind.FLOAT:
        np.copyto(out, array, casting="unsafe")
    elif dtype == dtypes.tfloat32:
        np.bitwise_and(array.view(np.uint32), ~_TF32_REST, out=out.view(np.uint32))
    else:
        kernel = _WIDEN_SMALL[dtype.size_bytes]
        bits = out.reshape(-1).view(np.uint32)
        kernel(flat(array, dtype.bits), bits, *_SMALL[dtype].widen_arguments())
    return out


def narrow(values: F32Array, dtype: DType, out: Array | None = None) -> Array:
    """Round float32 values to a storage format, as an engine does when it writes.

    Args:
        values: float32, any shape and strides.
        dtype: the storage format.
        out: ``dtype.numpy``, C-contiguous, of the same shape; made when absent.

    Returns:
        ``dtype.numpy`` of the same shape, C-contiguous: ``out``, or ``values`` itself where it already is that.
    """
    if dtype == dtypes.float32:
        return widen(values, dtype, out)
    out = output(out, values.shape, dtype.numpy)
    if dtype == dtypes.bfloat16:
        _narrow_bfloat16(plain(values).reshape(-1), out.reshape(-1).view(_CODES))
    elif dtype.kind == Kind.BOOL:
        np.not_equal(values, np.float32(0.0), out=out)
    elif dtype.kind == Kind.SCALE:
        _narrow_scale(values, out.view(np.uint8))
    elif dtype.kind == Kind.PACKED:
        raise ValueError(f"{dtype} holds several values in one element; nothing rounds to it")
    elif dtype == dtypes.tfloat32:
        _narrow_tfloat32(np.ascontiguousarray(values).view(np.uint32), out.view(np.uint32))
    elif dtype.kind != Kind.FLOAT:
        kernel = _NARROW_INT[dtype.size_bytes]
        kernel(flat(values, np.float32), out.reshape(-1).view(dtype.bits), dtype.min_value, dtype.max_value)
    else:
        kernel = _NARROW_SMALL[dtype.size_bytes]
        codes = out.reshape(-1).view(dtype.bits)
        kernel(flat(values, np.uint32), codes, *_SMALL[dtype].narrow_arguments())
    return out


def settled_bfloat16(array: Array) -> Array:
    """Return bfloat16 elements with the canonical NaN for each NaN: what float32 arithmetic makes of a number times 1.

    Args:
        array: bfloat16, any shape and strides.

    Returns:
        A new array of the same shape, C-contiguous.
    """
    out = np.empty(array.shape, array.dtype)
    _settle_bfloat16(flat(array, _CODES), out.reshape(-1).view(_CODES))
    return out


def cast(array: Array, src: DType, dst: DType, out: Array | None = None) -> Array:
    """Convert between storage formats through float32; a copy of the bits where they are the same.

    Args:
        array: elements of ``src.numpy``, any shape and strides.
        src: format of ``array``.
        dst: format of the result.
        out: ``dst.numpy``, C-contiguous, of the same shape; made when absent.

    Returns:
        A new array (or ``out``) of ``dst.numpy``, never a view of ``array``.
    """
    if src == dst:
        out = output(out, array.shape, dst.numpy)
        np.copyto(out.view(dst.bits), array.view(src.bits))
        return out
    if dst == dtypes.float32:
        return widen(array, src, out)
    return narrow(widen(array, src), dst, out)


def from_number(value: Any, dtype: DType) -> Array:
    """Convert one Python or NumPy number, rounded once.

    Integers into integer formats are exact and saturate; a float is not rounded to float32 on the way, since two
    roundings can differ from one (float64 -431.99999999999994 is -416 in float8_e4m3fn, not -448).

    Returns:
        An array of ``dtype.numpy`` with shape (), to be read only.
    """
    if type(value) is int or type(value) is float:
        return _kept(value, not value and copysign(1.0, value) < 0.0, dtype)
    return _from_number(value, dtype)


@lru_cache(maxsize=256)
def _kept(value: int | float, is_minus_zero: bool, dtype: DType) -> Array:
    """Return the array of a number; equal ones have the same, but for the two zeros."""
    found = _from_number(value, dtype)
    found.flags.writeable = False
    return found


def _from_number(value: Any, dtype: DType) -> Array:
    item = value.item() if isinstance(value, np.generic) else value
    number: int | float = int(item) if isinstance(item, int) else float(item)
    if dtype.is_integer:
        return np.array(_to_integer(number, dtype), dtype.numpy)
    if dtype == dtypes.float32:
        return np.array(_nearest_single(number), np.float32)
    if dtype.is_packed:
        return _packed_zero(number, dtype)
    return narrow(np.array(_round_to_odd(number), np.float32), dtype)


def number(x: float | np.float32) -> F32Array:
    """Return a number as float32 (1, 1), which kernels take for all elements; not to be written."""
    if type(x) is float and -_LARGEST <= x <= _LARGEST:  # NumPy warns of those that overflow, each time
        return _single(x, not x and copysign(1.0, x) < 0.0)
    return np.array([[x]], np.float32)


@lru_cache(maxsize=256)
def _single(x: float, is_minus_zero: bool) -> F32Array:
    """Return the array of a number; equal ones have the same, but for the two zeros."""
    return np.array([[x]], np.float32)


def _packed_zero(number: int | float, dtype: DType) -> Array:
    if number != 0:
        raise ValueError(f"{number!r} is no element of {dtype}: only zero is the same number in each of its values")
    return np.zeros((), dtype.numpy)


def _to_integer(number: int | float, dtype: DType) -> int:
    low, high = int(dtype.min_value), int(dtype.max_value)
    if number != number:
        return 0
    if number >= high:
        return high
    return low if number <= low else round(number)


def _nearest_single(number: int | float) -> np.float32:
    """Round to float32, ties to even; integers beyond 2**53 do not round twice."""
    with np.errstate(over="ignore"):
        if isinstance(number, int) and abs(number) >= 1 << 53:
            # keep 60 leading bits and make the last of them sticky: one rounding to float64 is then exact
            shift = max(abs(number).bit_length() - 53, 0)
            head = abs(number) >> shift
            sticky = int(abs(number) != head << shift)
            magnitude = 2.0**128 if shift > 128 else float((head | sticky) << shift)
            return np.float32(-magnitude if number < 0 else magnitude)
        return np.float32(number)


def _round_to_odd(number: int | float) -> np.float32:
    """Round to float32 such that a second rounding to a shorter format gives what a single one would."""
    nearest = _nearest_single(number)
    if float(nearest) == number or number != number:
        return nearest
    bits = int(np.abs(nearest).view(np.uint32))
    if abs(float(nearest)) > abs(number):
        bits -= 1
    sign = 0x80000000 if number < 0 else 0
    return np.uint32(bits | 1 | sign).view(np.float32)
