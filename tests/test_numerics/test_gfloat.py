"""Formats and rounding against gfloat, a library of number formats with no code in common with ours or ml_dtypes.

Every code of every format of up to 16 bits is decoded. Every value of bfloat16 and float16, and every boundary
between two codes with its neighbours among the float32 values, is rounded to every format.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from neurosim import dtypes
from neurosim.dtypes import DType
from neurosim.numerics import convert, mx

gfloat = pytest.importorskip("gfloat")
formats = pytest.importorskip("gfloat.formats")

#: gfloat names OCP's formats alone; those that end at 15.5 and 240 have Inf and NaN at their highest exponent, as
#: float16 has.
E3M4, E4M3 = (
    gfloat.FormatInfo(
        f"e{exponent_bits}m{mantissa_bits}",
        8,
        mantissa_bits + 1,
        bias=bias,
        is_signed=True,
        domain=gfloat.Domain.Extended,
        has_nz=True,
        num_high_nans=(1 << mantissa_bits) - 1,
        has_subnormals=True,
        is_twos_complement=False,
    )
    for exponent_bits, mantissa_bits, bias in ((3, 4, 3), (4, 3, 7))
)
LAYOUTS = {
    dtypes.bfloat16: formats.format_info_bfloat16,
    dtypes.float16: formats.format_info_binary16,
    dtypes.float8_e3m4: E3M4,
    dtypes.float8_e4m3: E4M3,
    dtypes.float8_e4m3fn: formats.format_info_ocp_e4m3,
    dtypes.float8_e5m2: formats.format_info_ocp_e5m2,
}
PARTS = {
    dtypes.float8_e4m3fn_x4: formats.format_info_ocp_e4m3,
    dtypes.float8_e5m2_x4: formats.format_info_ocp_e5m2,
    dtypes.float4_e2m1fn_x4: formats.format_info_ocp_e2m1,
}


def same(got: NDArray[Any], want: NDArray[Any]) -> bool:
    """Whether values are equal, zeros by their sign too; any NaN is like another."""
    nan = np.isnan(want)
    return np.array_equal(got, want, equal_nan=True) and np.array_equal(np.signbit(got)[~nan], np.signbit(want)[~nan])


def every_value(dtype: DType) -> NDArray[np.float32]:
    codes = np.arange(1 << (8 * dtype.size_bytes)).astype(dtype.bits)
    return convert.widen(codes.view(dtype.numpy), dtype)


@pytest.mark.parametrize("dtype", LAYOUTS)
def test_every_code_means_the_same(dtype: DType) -> None:
    codes = np.arange(1 << (8 * dtype.size_bytes))
    with np.errstate(all="ignore"):
        assert same(every_value(dtype), gfloat.decode_ndarray(LAYOUTS[dtype], codes))


def test_every_scale_means_the_same() -> None:
    assert same(every_value(dtypes.float8_e8m0fnu), gfloat.decode_ndarray(formats.format_info_ocp_e8m0, np.arange(256)))


@pytest.mark.parametrize("dtype", PARTS)
def test_every_packed_code_means_the_same(dtype: DType) -> None:
    codes = np.arange(1 << (8 * dtype.size_bytes // 4))
    one = np.full((1, len(codes)), 127, np.uint8)
    parts = mx.dequantize(codes.astype(dtype.numpy)[None], dtype, one)
    assert same(parts[0], gfloat.decode_ndarray(PARTS[dtype], codes))


def inputs(dtype: DType) -> NDArray[np.float32]:
    """All values of 16-bit formats, and the boundaries of ``dtype``, with the float32 values around them."""
    values = np.unique(np.abs(every_value(dtype))).astype(np.float64)
    values = values[np.isfinite(values)]
    beyond = 2 * values[-1] - values[-2]  # where the next code would be
    middles = ((values + np.append(values[1:], beyond)) / 2).astype(np.float32)
    around = [np.nextafter(middles, np.float32(limit)) for limit in (-np.inf, np.inf)]
    positive = np.concatenate(
        [middles, *around, np.abs(every_value(dtypes.bfloat16)), np.abs(every_value(dtypes.float16))]
    )
    return np.concatenate([positive, -positive])


@pytest.mark.parametrize("dtype", LAYOUTS)
def test_every_boundary_rounds_alike(dtype: DType) -> None:
    """gfloat saturates Inf with everything else, so Inf is left to tests of its own."""
    values = inputs(dtype)
    values = values[~np.isinf(values)]
    with np.errstate(all="ignore"):
        saturates = dtype.size_bytes == 1
        want = gfloat.round_ndarray(LAYOUTS[dtype], values.astype(np.float64), sat=saturates)
    assert same(convert.widen(convert.narrow(values, dtype), dtype), want)
