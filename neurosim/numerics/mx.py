"""Microscaling (MX): formats that pack four values in an element, block scales, and quantization.

A block is 32 values, 8 partitions × 4 values of one element, which share a power of two as their scale.

Sources: OCP Microscaling Formats (MX) 1.0 for the codes; AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``,
``quantize_mx``, for the scale.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neurosim import dtypes
from neurosim.dtypes import DType
from neurosim.numerics.convert import narrow, widen

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


_CODE_VALUES: Final = {dtype: _code_values(dtype) for dtype in dtypes.PACKED}


def unpack(array: Array, dtype: DType) -> F32Array:
    """Return the values of a packed format as float32: one more axis of ``dtype.lanes``, the lowest bits first.

    Args:
        array: elements of ``dtype.numpy``, any shape and strides.
        dtype: a packed format.
    """
    width = 8 * dtype.size_bytes // dtype.lanes
    shifts = np.arange(dtype.lanes, dtype=np.uint32) * np.uint32(width)
    codes = (array.astype(np.uint32)[..., np.newaxis] >> shifts) & np.uint32((1 << width) - 1)
    values: F32Array = _CODE_VALUES[dtype][codes]
    return values


def pack(values: F32Array, dtype: DType) -> Array:
    """Round float32 values to the parts of a packed 8-bit format; the last axis, ``dtype.lanes`` long, goes away."""
    part = dtypes.float8_e5m2 if dtype == dtypes.float8_e5m2_x4 else dtypes.float8_e4m3fn
    codes = narrow(values, part).view(np.uint8).astype(np.uint32)
    shifts = np.arange(dtype.lanes, dtype=np.uint32) * np.uint32(8)
    packed: Array = np.bitwise_or.reduce(codes << shifts, axis=-1).astype(dtype.numpy)
    return packed


def block_scales(values: F32Array, dtype: DType, *, doubled: bool) -> NDArray[np.uint8]:
    """Return the scale of each block as a code of float8_e8m0fnu.

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
    largest = np.abs(values).reshape(rows // 8, 8, columns // dtype.lanes, dtype.lanes).max(axis=(1, 3))
    exponents = np.frexp(largest)[1] - 1
    top = int(np.frexp(dtype.max_value)[1]) - 1
    codes = np.clip(exponents - top + int(doubled) + dtypes.float8_e8m0fnu.bias, 0, 254)
    scales: NDArray[np.uint8] = np.where(largest == 0, 0, codes).astype(np.uint8)
    return scales


def quantize(values: F32Array, scales: NDArray[np.uint8], dtype: DType) -> Array:
    """Return values divided by their scale and rounded to a packed format of 8 bits, as [P, F / 4].

    Args:
        values: float32 [P, F].
        scales: codes of the scales, [P, F / 4].
        dtype: the format of the result.
    """
    # a power of two divides exactly, but for results so small that all of them round to zero
    inverse = widen((254 - scales).view(dtypes.float8_e8m0fnu.numpy), dtypes.float8_e8m0fnu)
    groups = values.reshape(*scales.shape, dtype.lanes)
    return pack(groups * inverse[..., np.newaxis], dtype)


def dequantize(array: Array, dtype: DType, scales: NDArray[np.uint8]) -> F32Array:
    """Return the values of a packed format times their scale, [P, F, 4]; exact, but beyond float32's range.

    Args:
        array: packed elements [P, F].
        dtype: their format.
        scales: codes of the scales, [P, F].
    """
    factors = widen(scales.view(dtypes.float8_e8m0fnu.numpy), dtypes.float8_e8m0fnu)
    with np.errstate(over="ignore", invalid="ignore"):
        values: F32Array = unpack(array, dtype) * factors[..., np.newaxis]
    return values
