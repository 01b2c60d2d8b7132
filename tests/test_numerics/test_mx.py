"""Packed formats and block scales, against ml_dtypes and plain loops."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from neurosim import dtypes
from neurosim.dtypes import DType
from neurosim.numerics import mx

PARTS: dict[DType, Any] = {
    dtypes.float8_e4m3fn_x4: ml_dtypes.float8_e4m3fn,
    dtypes.float8_e5m2_x4: ml_dtypes.float8_e5m2,
    dtypes.float4_e2m1fn_x4: ml_dtypes.float4_e2m1fn,
}


def unpacked(elements: Any, dtype: DType) -> Any:
    """Return the parts of elements, as another axis: scaled by 1."""
    values = mx.dequantize(elements.reshape(1, -1), dtype, np.full((1, elements.size), 127, np.uint8))
    return values.T.reshape(*elements.shape, dtype.lanes)


@pytest.mark.parametrize("dtype", dtypes.PACKED)
def test_every_code_in_every_place(dtype: DType) -> None:
    """Each part of an element, the lowest bits first, is what ml_dtypes says of its code."""
    width = 8 * dtype.size_bytes // 4
    codes = np.arange(1 << width, dtype=np.uint32)
    expected = codes.astype(np.uint8).view(PARTS[dtype]).astype(np.float32)
    for place in range(4):
        elements = (codes << np.uint32(place * width)).astype(dtype.numpy)
        values = unpacked(elements, dtype)
        assert values.shape == (1 << width, 4)
        assert np.array_equal(values[:, place].view(np.uint32) >> 31, expected.view(np.uint32) >> 31)
        assert np.array_equal(values[:, place], expected, equal_nan=True)
        assert (np.delete(values, place, axis=1) == 0).all()


@pytest.mark.parametrize("dtype", dtypes.PACKED[:2])
def test_packing_is_unpackings_inverse(dtype: DType) -> None:
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 1 << 32, (5, 7), dtype=np.uint64).astype(np.uint32)
    values = unpacked(bits, dtype)
    again = mx.pack(values, dtype)
    assert again.dtype == dtype.numpy
    nan = np.isnan(values)
    assert np.array_equal(unpacked(again, dtype), values, equal_nan=True)
    assert np.array_equal(again[~nan.any(axis=-1)], bits[~nan.any(axis=-1)])
    assert np.array_equal(mx.pack(values[:, ::2], dtype), again[:, ::2])


@pytest.mark.parametrize("dtype", dtypes.PACKED)
def test_arrays_of_users_show_the_parts(dtype: DType) -> None:
    """np.zeros(..., dtype=nl.float8_e4m3fn_x4) works; fields are the values in order."""
    array = np.zeros((2, 3), dtype=np.dtype(dtype))
    assert array.dtype == dtype.face
    assert array.itemsize == dtype.size_bytes
    assert dtypes.of(array.dtype) is dtype
    array.view(dtype.bits)[0, 0] = 0x3412 if dtype.size_bytes == 2 else 0x78563412
    fields = [array[name].view(np.uint8)[0, 0] for name in array.dtype.names]
    assert fields == [0x12, 0x34, 0x56, 0x78][: len(fields)]
    with pytest.raises((TypeError, ValueError)):
        array.astype(np.float32)  # no value of the four is meant


@pytest.mark.parametrize("doubled", [False, True])
@pytest.mark.parametrize("dtype", dtypes.PACKED[:2])
def test_the_largest_value_of_a_block_keeps_its_size(dtype: DType, doubled: bool) -> None:
    """Every exponent of float32: the scaled maximum lies in the last binade of the format, or in the one before."""
    sizes = np.ldexp(np.float32(1.25), np.arange(-126, 127)).astype(np.float32)
    values = np.zeros((8, 4 * len(sizes)), np.float32)
    values[5, 2::4] = -sizes
    codes = mx.block_scales(values, dtype, doubled=doubled)
    top = int(np.log2(dtype.max_value)) - doubled
    expected = np.clip(np.arange(-126, 127) - top + 127, 0, 254)
    assert codes.tolist() == [expected.tolist()]
    quantized = unpacked(mx.quantize(values, np.repeat(codes, 8, axis=0), dtype), dtype)
    inside = expected > 0
    assert (quantized[5, inside, 2] == -1.25 * 2.0**top).all()
    again = mx.dequantize(mx.quantize(values, np.repeat(codes, 8, axis=0), dtype), dtype, codes)
    assert np.array_equal(again[4 * 5 + 2, inside], -sizes[inside])


@pytest.mark.parametrize("dtype", dtypes.PACKED[:2])
def test_scales_of_the_smallest_and_the_largest(dtype: DType) -> None:
    """Denormals have an exponent of their own; zeros and all that is too small have the least scale."""
    sizes = np.array(
        [0.0, 2.0**-149, 1.75 * 2.0**-140, 2.0**-127, 2.0**-110, 2.0**-100, 2.0**100, 2.0**127], np.float32
    )
    values = np.zeros((8, 4 * len(sizes)), np.float32)
    values[7, ::4] = sizes
    exponents = np.frexp(sizes.astype(np.float64))[1] - 1
    expected = np.clip(exponents - int(np.log2(dtype.max_value)) + 127, 0, 254)
    expected[0] = 0
    assert mx.block_scales(values, dtype, doubled=False).tolist() == [expected.tolist()]


@pytest.mark.parametrize("dtype", dtypes.PACKED)
def test_values_are_scaled_and_lie_under_one_another(dtype: DType) -> None:
    random = np.random.default_rng(5)
    elements = random.integers(0, 1 << 8 * dtype.size_bytes, (16, 3), np.uint32).astype(dtype.numpy)
    scales = random.integers(0, 256, (2, 3), np.uint8)
    factors = np.where(scales == 255, np.nan, 2.0 ** (scales.astype(np.float64) - 127))
    with np.errstate(over="ignore"):
        expected = (unpacked(elements, dtype) * np.repeat(factors, 8, axis=0)[..., None]).astype(np.float32)
    found = mx.dequantize(elements, dtype, scales)
    assert np.array_equal(found, expected.transpose(0, 2, 1).reshape(-1, 3), equal_nan=True)
