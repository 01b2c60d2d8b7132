"""Stochastic rounding: up or down at random, so that the mean of many roundings is the value.

Documented (AWS Neuron SDK, ``about-neuron/arch/neuron-features/rounding-modes.rst``): the two nearest values of the
format, each with a probability "according to the relative distance". *Assumed*, where no public text says more:

* the random bits, 32 for a value, are added below the last digit that is kept, and what is below is cut off. So the
  mean is exact where up to 32 digits are cut, which holds for every value from the smallest normal one of its format
  on, and within 2**-32 of the smallest denormal everywhere;
* a carry out of the largest finite value gives what overflow gives: Inf, or the largest value in the 8-bit formats;
* Inf and NaN become what they become in :mod:`neurosim.numerics.convert`, and so do integers and bool: they round to
  nearest even.

The generator is Philox4x32-10 of J. Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC11): a function of
a key and a counter, so that no number depends on another.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neurosim import dtypes
from neurosim.dtypes import DType
from neurosim.jit import compiled
from neurosim.numerics.convert import SmallFloat, flat

F32Array = NDArray[np.float32]
Words = NDArray[np.uint32]

_SIGN: Final = np.uint32(0x80000000)
_MAGNITUDE: Final = np.uint32(0x7FFFFFFF)
_INF: Final = np.uint32(0x7F800000)
_FRACTION: Final = np.uint32(0x007FFFFF)
_LEADING: Final = np.uint32(0x00800000)
_MANTISSA_BITS: Final = np.uint32(23)
_U1: Final = np.uint32(1)
_W32: Final = np.uint64(32)
_W63: Final = np.uint64(63)

_ROUNDS: Final = 10
_MULTIPLIER_0: Final = np.uint64(0xD2511F53)
_MULTIPLIER_1: Final = np.uint64(0xCD9E8D57)
_WEYL_0: Final = np.uint64(0x9E3779B9)
_WEYL_1: Final = np.uint64(0xBB67AE85)

_LAYOUTS: Final = {dtype: SmallFloat(dtype) for dtype in dtypes.FORMATS if dtype.is_float and dtype.mantissa_bits < 23}


@compiled
def _philox(key: Words, counter: Words, out: Words) -> None:
    """Write blocks of four numbers; the first word of the counter counts them, from ``counter[0]`` on."""
    for block in range(out.shape[0] // 4):
        c0 = np.uint32(np.int64(counter[0]) + np.int64(block))
        c1, c2, c3 = counter[1], counter[2], counter[3]
        for step in range(_ROUNDS):
            k0 = np.uint32(np.uint64(key[0]) + np.uint64(step) * _WEYL_0)
            k1 = np.uint32(np.uint64(key[1]) + np.uint64(step) * _WEYL_1)
            product_0 = np.uint64(_MULTIPLIER_0 * np.uint64(c0))
            product_1 = np.uint64(_MULTIPLIER_1 * np.uint64(c2))
            c0 = np.uint32(np.uint32(np.uint64(product_1 >> _W32)) ^ np.uint32(c1 ^ k0))
            c2 = np.uint32(np.uint32(np.uint64(product_0 >> _W32)) ^ np.uint32(c3 ^ k1))
            c1 = np.uint32(product_1)
            c3 = np.uint32(product_0)
        out[4 * block], out[4 * block + 1], out[4 * block + 2], out[4 * block + 3] = c0, c1, c2, c3


@compiled
def _narrow(
    values: Words,
    random: Words,
    out: Words,
    shift: np.uint32,
    sign_shift: np.uint32,
    bias_difference: np.uint32,
    top: np.uint32,
    inf: np.uint32,
    nan: np.uint32,
) -> None:
    mantissa_bits = np.uint32(_MANTISSA_BITS - shift)
    for i in range(values.shape[0]):
        bits = np.uint32(values[i] & _MAGNITUDE)
        field = np.uint32(bits >> _MANTISSA_BITS)
        digits = np.uint32(np.uint32(bits & _FRACTION) | (_LEADING if field > np.uint32(0) else np.uint32(0)))
        exponent = field if field > _U1 else _U1
        # in the format's own count, from its smallest normal exponent on; below it, digits move down instead
        place = exponent - bias_difference if exponent > bias_difference else _U1
        cut = np.uint32(np.uint32(np.uint32(shift + place) + bias_difference) - exponent)
        distance = np.uint64(cut) if np.uint64(cut) < _W63 else _W63
        fixed = np.uint64(np.uint64(np.uint64(digits) << _W32) >> distance)
        rounded = np.uint32(np.uint64(np.uint64(fixed + np.uint64(random[i])) >> _W32))
        code = np.uint32(np.uint32(np.uint32(place - _U1) << mantissa_bits) + rounded)
        code = top if code > top else code
        code = inf if bits == _INF else code
        code = nan if bits > _INF else code
        out[i] = np.uint32(code | np.uint32(np.uint32(values[i] & _SIGN) >> sign_shift))


def philox(seed: int, counter: tuple[int, int, int], count: int) -> Words:
    """Return ``count`` random numbers of 32 bits.

    Args:
        seed: the key, 64 bits.
        counter: three words that tell this stream from others of the same key; a fourth one counts its numbers.
        count: how many numbers.
    """
    key = np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32)
    out = np.empty((count + 3) // 4 * 4, np.uint32)
    _philox(key, np.array([0, *counter], np.uint32), out)
    return out[:count]


def is_rounded(dtype: DType) -> bool:
    """Return whether a format has a choice to make: floats that are shorter than float32."""
    return dtype in _LAYOUTS


def narrow(values: F32Array, dtype: DType, random: Words) -> NDArray[Any]:
    """Round float32 values stochastically to a shorter float format.

    Args:
        values: float32, any shape and strides.
        dtype: a format that :func:`is_rounded` knows.
        random: uint32, one number for each value, in C order.

    Returns:
        ``dtype.numpy`` of the same shape, C-contiguous.
    """
    layout = _LAYOUTS[dtype]
    codes = np.empty(values.size, np.uint32)
    bias_difference = np.uint32(dtypes.float32.bias - dtype.bias)
    unused = np.uint32(8 * dtype.size_bytes - 1 - dtype.exponent_bits - dtype.mantissa_bits)  # of tfloat32: 13
    limits = layout.top, layout.inf, layout.nan >> unused
    _narrow(flat(values, np.uint32), random, codes, layout.shift, layout.sign_shift, bias_difference, *limits)
    stored = (codes << unused).astype(dtype.bits)
    return stored.view(dtype.numpy).reshape(values.shape)
