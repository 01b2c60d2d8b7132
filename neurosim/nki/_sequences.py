"""Functions that no engine has, from several instructions: rounding to integers, and trigonometry of any argument.

The manual says that ``nl.sin`` reduces its range before the activation, so that it holds beyond [-π, π]
(``nki.api.shared.rst``); which instructions do that, and how the other functions come about, it does not say. The
sequences here are *assumed*, and what they promise is tested.
"""

from __future__ import annotations

import math
from typing import Any, Final

from neurosim.dtypes import DType, float32, int32, uint8
from neurosim.nki import isa
from neurosim.nki._tiles import activated, cast, combined, dtype_of, fused, new, scaled, tile_of
from neurosim.view import NkiTensor

_INTEGERS: Final = 2.0**23
"""From here on every float32 is an integer."""
_HIGH: Final = 2 * math.pi - math.fmod(2 * math.pi, 2.0**-5)
_MIDDLE: Final = (2 * math.pi - _HIGH) - math.fmod(2 * math.pi - _HIGH, 2.0**-18)
_LOW: Final = (2 * math.pi - _HIGH) - _MIDDLE
"""2 π in three parts; the first two have 8 and 9 bits, so that products with up to 2¹⁵ turns are exact in float32."""


def _nearest(tile: NkiTensor, beyond: str, back: str, dtype: DType) -> NkiTensor:
    """Return floor (``greater``, ``subtract``) or ceil (``less``, ``add``): the nearest integer, or its neighbour."""
    nearest = cast(tile, int32)
    step = combined(beyond, nearest, tile)
    rounded = combined(back, nearest, step, dtype)
    small = scaled(tile, "abs", 0.0, "less", _INTEGERS, dtype=uint8)
    result = new(tile.shape, dtype)
    isa.tensor_copy(dst=result, src=tile)
    isa.tensor_copy_predicated(dst=result, src=rounded, predicate=small)
    return result


def floor(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Return a new SBUF tile: the largest integers that are not above x, exactly.

    Lowers to ``tensor_copy`` to int32 (round to nearest), two ``tensor_tensor`` that step back where that rounded up,
    and ``tensor_scalar`` with ``tensor_copy_predicated`` that keep what has no fraction: 2²³ and beyond, Inf and NaN.
    -0.0 becomes 0.0.
    """
    tile = tile_of("nl.floor", x)
    target = dtype_of("nl.floor", dtype, tile.dtype)
    return cast(tile, target) if tile.dtype.is_integer else _nearest(tile, "greater", "subtract", target)


def ceil(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Return a new SBUF tile: the smallest integers that are not below x, exactly; instructions as in ``floor``."""
    tile = tile_of("nl.ceil", x)
    target = dtype_of("nl.ceil", dtype, tile.dtype)
    return cast(tile, target) if tile.dtype.is_integer else _nearest(tile, "less", "add", target)


def trunc(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Return a new SBUF tile: x without its fraction, exactly.

    Lowers to ``floor`` of the magnitude, and ``tensor_scalar`` with ``scalar_tensor_tensor`` that put the sign back.
    """
    tile = tile_of("nl.trunc", x)
    target = dtype_of("nl.trunc", dtype, tile.dtype)
    if tile.dtype.is_integer:
        return cast(tile, target)
    whole = _nearest(scaled(tile, "abs", 0.0), "greater", "subtract", float32)
    sign = scaled(tile, "less", 0.0, "multiply", -2.0)
    return fused(sign, "add", 1.0, "multiply", whole, target)


def negative(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Return a new SBUF tile: -x, by ``tensor_scalar`` (multiply with -1.0, in float32 as all arithmetic there)."""
    tile = tile_of("nl.negative", x)
    return scaled(tile, "multiply", -1.0, dtype=dtype_of("nl.negative", dtype, tile.dtype))


def _angle(tile: NkiTensor) -> NkiTensor:
    """Return x - 2 π · round(x / 2 π): ``tensor_scalar`` counts turns in int32, ``scalar_tensor_tensor`` removes them.

    The result is in [-π, π] but for what rounding the number of turns adds (below 0.01 up to 2¹⁷).
    """
    turns = scaled(tile, "multiply", 1 / (2 * math.pi), dtype=int32)
    angle = tile
    for part in (_HIGH, _MIDDLE, _LOW):
        angle = fused(turns, "multiply", -part, "add", angle)
    return angle


def _folded(angle: NkiTensor) -> NkiTensor:
    """Return an angle within [-π/2, π/2] of the same sine: π - angle and -π - angle beyond those."""
    upper = fused(angle, "subtract", math.pi, "minimum", angle, reverse0=True)
    return fused(angle, "subtract", -math.pi, "maximum", upper, reverse0=True)


def _from_quarter(angle: NkiTensor) -> NkiTensor:
    """Return the angle whose sine is the cosine of ``angle``: π/2 - |angle|."""
    return scaled(angle, "abs", 0.0, "subtract", math.pi / 2, reverse1=True)


def sin(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Return a new SBUF tile: the sine of any x up to 2¹⁷, within 2⁻²² of the true value.

    Lowers to ``tensor_scalar`` and five ``scalar_tensor_tensor`` that reduce the range to [-π/2, π/2], and
    ``activation``. Beyond 2¹⁷ the error grows with x; beyond 2³¹ turns int32 saturates, and ``activation`` warns.
    """
    tile = tile_of("nl.sin", x)
    return activated("sin", _folded(_angle(tile)), dtype_of("nl.sin", dtype, tile.dtype))


def cos(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Return a new SBUF tile: the cosine of any x up to 2¹⁷, within 2⁻²² of the true value.

    Lowers as ``sin`` does, with a ``tensor_scalar`` for π/2 minus the magnitude of x in place of two instructions.
    """
    tile = tile_of("nl.cos", x)
    return activated("sin", _from_quarter(_angle(tile)), dtype_of("nl.cos", dtype, tile.dtype))


def tan(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Return a new SBUF tile: sine over cosine, each as in ``sin`` and ``cos``.

    ``reciprocal`` and ``tensor_tensor`` divide. The error is below 2⁻²² over the square of the cosine,
    for tangents up to 1000.
    """
    tile = tile_of("nl.tan", x)
    angle = _angle(tile)
    cosine = activated("sin", _from_quarter(angle))
    inverse = new(tile.shape, float32)
    isa.reciprocal(dst=inverse, data=cosine)
    return combined("multiply", activated("sin", _folded(angle)), inverse, dtype_of("nl.tan", dtype, tile.dtype))


def arctan(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Return a new SBUF tile: the inverse tangent of any x, within 2⁻²² of the true value.

    ``activation`` is valid within [-π/2, π/2] only. Beyond 1 this is ±π/2 - arctan(1/x): ``reciprocal``,
    ``tensor_copy_predicated`` before and after the ``activation``, and ``scalar_tensor_tensor``.
    """
    tile = tile_of("nl.arctan", x)
    large = scaled(tile, "abs", 0.0, "greater", 1.0, dtype=uint8)
    inverse = new(tile.shape, float32)
    isa.reciprocal(dst=inverse, data=tile)
    argument = new(tile.shape, float32)
    isa.tensor_copy(dst=argument, src=tile)
    isa.tensor_copy_predicated(dst=argument, src=inverse, predicate=large)
    angle = activated("arctan", argument)
    other = fused(activated("sign", tile), "multiply", math.pi / 2, "subtract", angle)
    isa.tensor_copy_predicated(dst=angle, src=other, predicate=large)
    return cast(angle, dtype_of("nl.arctan", dtype, tile.dtype))
