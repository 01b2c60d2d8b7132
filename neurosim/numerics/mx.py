"""Microscaling (MX): formats that pack four values in an element, block scales, and quantization.

A block is 32 values, 8 partitions × 4 values of one element, which share a power of two as their scale.

Sources: OCP Microscaling Formats (MX) 1.0 for the codes; AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``,
``quantize_mx``, for the scale.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neurosim import dtypes
from neurosim.dtypes import DType
from neurosim.jit import compiled
from neurosim.numerics.convert import narrow, plain, widen

Array = NDArray[Any]
F32Array = NDArray[np.float32]


def _code_values(dtype: DType) -> F32Array:
    """Return the value of each code of a packed format's parts, by their definition."""
    m, width = dtype.mantissa_bits, 1 + dtype.exponent_bits + dtype.mantissa_bits
    values = np.empty(1 << width, np.float32)
    ones = (1 << dtype.exponent_bits) - 1
    for code in range(1 << width):
        field, fraction = (code >> m) & ones, code & ((1 << m) - 1)
        value = np.float64(fraction + (1 << m if field else 0)) * 2.0 ** (max(field, 1) - dtype.bias - m)
        if value > dtype.max_value:
            value = np.float64(np.inf if dtype.has_inf and fraction == 0 else np.nan)
        values[code] = -value if code >> (width - 1) else value
    return values


def _byte_values(dtype: DType) -> F32Array:
    """Return the values in each byte of a packed format, [256, 1] or [256, 2], the lowest bits first."""
    width = 8 * dtype.size_bytes // dtype.lanes
    shifts = np.arange(8 // width) * width
    codes = (np.arange(256)[:, None] >> shifts) & ((1 << width) - 1)
    values: F32Array = _code_values(dtype)[codes]
    return values


_BYTE_VALUES: Final = {dtype: _byte_values(dtype) for dtype in dtypes.PACKED}
_STORED: Final = {dtype: dtype.numpy.newbyteorder("<") for dtype in dtypes.PACKED}
_SCALES: Final = widen(np.arange(256, dtype=np.uint8).view(dtypes.float8_e8m0fnu.numpy), dtypes.float8_e8m0fnu)
"""The value of each code of a scale."""


def pack(values: F32Array, dtype: DType) -> Array:
    """Round float32 values to the parts of a packed 8-bit format; the last axis, ``dtype.lanes`` long, goes away."""
    part = dtypes.float8_e5m2 if dtype == dtypes.float8_e5m2_x4 else dtypes.float8_e4m3fn
    codes = narrow(values, part).view(np.uint8)
    packed: Array = codes.view(_STORED[dtype])[..., 0].astype(dtype.numpy, copy=False)
    return packed


@compiled
def _block_scales(values: F32Array, lanes: int, shift: int, out: NDArray[np.uint8]) -> None:
    rows, blocks = out.shape
    for r in range(rows):
        for b in range(blocks):
            largest = np.float32(0.0)
            for i in range(8):
                for j in range(lanes):
                    magnitude = abs(values[8 * r + i, lanes * b + j])
                    largest = magnitude if magnitude > largest else largest
            # none of float32's values is a denormal float64, whose exponents are biased by 1023; zero has the least
            code = np.int64(np.int64(np.float64(largest).view(np.int64) >> np.int64(52)) + shift)
            code = np.int64(0) if code < 0 else code
            code = np.int64(254) if code > 254 else code
            out[r, b] = np.uint8(code)


def block_scales(values: F32Array, dtype: DType, *, doubled: bool) -> NDArray[np.uint8]:
    """Return the scale of each block of finite values as a code of float8_e8m0fnu.

    2 ** (floor(log2 of the largest magnitude) - the largest exponent of the format), or twice that, which leaves the
    largest values room to round up. A block of zeros has 2**-127, and so have blocks whose scale would be smaller
    (*assumed*: the format has none).

    Args:
        values: float32 [P, F], finite; P a multiple of 8, F of 4.
        dtype: the packed format that the values are for.
        doubled: whether to take twice the scale.

    Returns:
        uint8 [P / 8, F / 4].
    """
    rows, columns = values.shape
    shift = int(doubled) - (math.frexp(dtype.max_value)[1] - 1) + dtypes.float8_e8m0fnu.bias - 1023
    scales = np.empty((rows // 8, columns // dtype.lanes), np.uint8)
    _block_scales(plain(np.asarray(values, np.float32)), dtype.lanes, shift, scales)
    return scales


def quantize(values: F32Array, scales: NDArray[np.uint8], dtype: DType) -> Array:
    """Return values divided by their scale and rounded to a packed format of 8 bits, as [P, F / 4].

    Args:
        values: float32 [P, F].
        scales: codes of the scales, [P, F / 4].
        dtype: the format of the result.
    """
    # a power of two divides exactly, but for results so small that all of them round to zero
    inverse = _SCALES.take(254 - scales)
    groups = values.reshape(*scales.shape, dtype.lanes)
    return pack(groups * inverse[..., np.newaxis], dtype)


@compiled
def _scaled(
    stored: NDArray[np.uint8], table: F32Array, scales: NDArray[np.uint8], factors: F32Array, out: F32Array
) -> None:
    """Write the values of packed elements, from a table by byte, times their factors."""
    rows, columns = stored.shape[0], out.shape[1]
    each = table.shape[1]  # values in a byte
    count = stored.shape[1] // columns  # bytes of an element
    for r in range(rows):
        for b in range(count):
            for v in range(each):
                row = (r * count + b) * each + v
                for c in range(columns):
                    out[row, c] = table[stored[r, c * count + b], v] * factors[scales[r // 8, c]]


def dequantize(array: Array, dtype: DType, scales: NDArray[np.uint8]) -> F32Array:
    """Return the values of a packed format times their scale; exact, but beyond float32's range.

    Args:
        array: packed elements [P, F].
        dtype: their format.
        scales: codes of the scales of the blocks, [P / 8, F].

    Returns:
        float32 [dtype.lanes · P, F]: the values of an element under one another, the lowest bits first.
    """
    rows, columns = array.shape
    out = np.empty((rows * dtype.lanes, columns), np.float32)
    stored = np.ascontiguousarray(array, _STORED[dtype]).view(np.uint8)
    _scaled(stored, _BYTE_VALUES[dtype], plain(scales), _SCALES, out)
    return out
