"""Scalar twins of the kernels: slow, plain Python, meant to be obviously right. Tests run both.

Rules and assumptions are those of ``convert.py``, ``alu.py``, ``act.py``, ``reduce.py`` and ``matmul.py``. Values
pass as Python floats, which hold every float32 exactly; a float32 sum, product, quotient or root computed in
float64 and rounded once more is the correctly rounded one (float64 has more than twice the digits).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neurosim import dtypes
from neurosim.dtypes import DType, Kind

F32Array = NDArray[np.float32]

CANONICAL_NAN: Final = 0x7FC00000


def single(value: float) -> float:
    """Round to float32; overflow gives Inf."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def widen_one(code: int, dtype: DType) -> float:
    """Return the value of a float format's code; NaN for every NaN code."""
    m, bias = dtype.mantissa_bits, dtype.bias
    exponent = (code >> m) & ((1 << dtype.exponent_bits) - 1)
    mantissa = code & ((1 << m) - 1)
    sign = -1.0 if code >> (dtype.exponent_bits + m) else 1.0
    if not dtype.has_inf and (code & 0x7F) == dtype.nan_code:
        return math.nan
    if dtype.has_inf and exponent == (1 << dtype.exponent_bits) - 1:
        return math.nan if mantissa else sign * math.inf
    if exponent == 0:
        return sign * math.ldexp(mantissa, 1 - bias - m)
    return sign * math.ldexp((1 << m) + mantissa, exponent - bias - m)


def narrow_float_one(value: float, dtype: DType, sign: int) -> int:
    """Return the code of a float format for a float32 value; ``sign`` (0 or 1) is given, since NaN has one too."""
    m, bias = dtype.mantissa_bits, dtype.bias
    sign_bit = sign << (dtype.exponent_bits + m)
    inf_code = ((1 << dtype.exponent_bits) - 1) << m
    if math.isnan(value) or (math.isinf(value) and not dtype.has_inf):
        return sign_bit | dtype.nan_code
    if math.isinf(value):
        return sign_bit | inf_code
    size = abs(value)
    exponent = max(math.frexp(size)[1] - 1, 1 - bias)
    # a whole number of the format's units at this exponent; Python rounds halves to even
    units = round(math.ldexp(size, m - exponent))
    size = math.ldexp(units, exponent - m)
    if size > dtype.max_value:
        saturates = dtype.size_bytes == 1
        code = (inf_code if dtype.has_inf else dtype.nan_code) - 1 if saturates else inf_code
    elif size < math.ldexp(1.0, 1 - bias):
        code = units
    else:
        exponent = math.frexp(size)[1] - 1
        code = ((exponent + bias) << m) | (int(math.ldexp(size, m - exponent)) - (1 << m))
    return sign_bit | code


def stochastic_one(value: float, dtype: DType, sign: int, random: int) -> int:
    """Return the code of a shorter float format, rounded up where the part cut off and 32 random bits carry.

    It has the bits of the format alone, also where storage has more.
    """
    if not math.isfinite(value):
        unused = 8 * dtype.size_bytes - 1 - dtype.exponent_bits - dtype.mantissa_bits
        return narrow_one(np.copysign(np.float32(value), np.float32(-sign or 1)), dtype) >> unused
    m, bias = dtype.mantissa_bits, dtype.bias
    size = Fraction(abs(value))
    exponent = max(math.frexp(value)[1] - 1, 1 - bias) if value else 1 - bias
    unit = Fraction(2) ** (exponent - m)
    units = math.floor(size / unit)
    carry = math.floor((size / unit - units) * 2**32) + random >= 2**32
    code = ((exponent + bias - 1) << m) + units + carry  # codes are in the order of their values
    inf_code = ((1 << dtype.exponent_bits) - 1) << m
    largest = (inf_code if dtype.has_inf else dtype.nan_code) - 1
    code = min(code, largest if dtype.size_bytes == 1 else inf_code)
    return sign << (dtype.exponent_bits + m) | code


def narrow_int_one(value: float, dtype: DType) -> int:
    """Return the integer that a float32 value becomes."""
    if math.isnan(value):
        return 0
    if dtype.kind == Kind.BOOL:
        return int(value != 0.0)
    low, high = int(dtype.min_value), int(dtype.max_value)
    if value >= high:
        return high
    return low if value <= low else round(value)


def narrow_one(value: np.float32, dtype: DType) -> int:
    """Return the code of any format (two's complement for signed integers) for a float32 value."""
    if dtype == dtypes.bool_:
        return int(value != 0.0)
    if dtype.kind == Kind.SCALE:
        return dtype.nan_code if math.isnan(value) else math.frexp(float(value))[1] - 1 + dtype.bias
    if dtype == dtypes.tfloat32:
        sign = int(value.view(np.uint32)) >> 31
        if math.isnan(value):
            return sign << 31 | dtype.nan_code
        return narrow_float_one(float(value), dtype, sign) << 13
    if dtype.is_float:
        return narrow_float_one(float(value), dtype, int(value.view(np.uint32)) >> 31)
    return narrow_int_one(float(value), dtype) & ((1 << (8 * dtype.size_bytes)) - 1)


def _divide(a: float, b: float) -> float:
    if b == 0.0:
        if a == 0.0 or math.isnan(a):
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def _sort_key(x: float) -> tuple[float, float]:
    return x, math.copysign(1.0, x)


def _maximum(a: float, b: float) -> float:
    return math.nan if math.isnan(a) or math.isnan(b) else max(a, b, key=_sort_key)


def _minimum(a: float, b: float) -> float:
    return math.nan if math.isnan(a) or math.isnan(b) else min(a, b, key=_sort_key)


def _either_nan(function: Callable[[float, float], float]) -> Callable[[float, float], float]:
    return lambda a, b: math.nan if math.isnan(a) or math.isnan(b) else function(a, b)


def _fmod(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b) or math.isinf(a) or b == 0.0:
        return math.nan
    return math.fmod(a, b)


def _mod(a: float, b: float) -> float:
    rest = _fmod(a, b)
    if math.isnan(rest):
        return rest
    if rest == 0.0:
        return math.copysign(0.0, b)
    if math.copysign(1.0, rest) == math.copysign(1.0, b):
        return rest
    return math.copysign(single(abs(b) - abs(rest)), b)


def _power(a: float, b: float) -> float:
    try:
        return math.pow(a, b)
    except OverflowError:
        odd = b == math.floor(b) and math.fmod(b, 2.0) != 0.0
        return -math.inf if a < 0.0 and odd else math.inf
    except ValueError:
        # 0 to a negative power, or a negative base to a broken one
        odd = b == math.floor(b) and math.fmod(b, 2.0) != 0.0
        return (math.copysign(math.inf, a) if odd else math.inf) if a == 0.0 else math.nan


BINARY: Final[dict[str, Callable[[float, float], float]]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": _divide,
    "maximum": _maximum,
    "minimum": _minimum,
    "equal": lambda a, b: float(a == b),
    "not_equal": lambda a, b: float(a != b),
    "greater_equal": lambda a, b: float(a >= b),
    "greater": lambda a, b: float(a > b),
    "less_equal": lambda a, b: float(a <= b),
    "less": lambda a, b: float(a < b),
    "logical_and": lambda a, b: float(bool(a) and bool(b)),
    "logical_or": lambda a, b: float(bool(a) or bool(b)),
    "logical_xor": lambda a, b: float(bool(a) != bool(b)),
    "power": _power,
    "abs_max": _either_nan(lambda a, b: a if abs(a) > abs(b) else b),
    "abs_min": _either_nan(lambda a, b: a if abs(a) < abs(b) else b),
    "mod": _mod,
    "fmod": _fmod,
}


def _sqrt(x: float) -> float:
    return math.nan if x < 0.0 or math.isnan(x) else math.sqrt(x)


UNARY: Final[dict[str, Callable[[float], float]]] = {
    "logical_not": lambda a: float(a == 0.0),
    "abs": abs,
    "square": lambda a: a * a,
    "relu": lambda a: a if a > 0.0 or math.isnan(a) else 0.0,
    "sqrt": _sqrt,
    "rsqrt": lambda a: _divide(1.0, _sqrt(a)),
    "reciprocal": lambda a: _divide(1.0, a),
}


def bits_of(value: float) -> int:
    """Return the float32 bit pattern of a result, with the one NaN that kernels give."""
    return CANONICAL_NAN if math.isnan(value) else int(np.float32(single(value)).view(np.uint32))


def reduce_row(op: str, row: Sequence[float]) -> float:
    """Reduce one run of float32 elements in ascending order."""
    if op.startswith("logical"):
        total = row[0] != 0.0
        for value in row[1:]:
            total = bool(BINARY[op](float(total), value))
        return float(total)
    result = row[0]
    for value in row[1:]:
        result = single(BINARY[op](result, value))
    return result


def _canonical(x: F32Array) -> F32Array:
    return np.where(np.isnan(x), np.float32(np.nan), x).astype(np.float32)


def matmul_pass(stationary: F32Array, moving: F32Array) -> F32Array:
    """Return one pass, (K, M) and (K, N) to (M, N): k ascending from +0.0, product rounds, then sum rounds."""
    sums = np.zeros((stationary.shape[1], moving.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for k in range(stationary.shape[0]):
            products = stationary[k][:, None] * moving[k][None, :]
            sums = sums + products
    return _canonical(sums)


def split(values: F32Array) -> tuple[F32Array, F32Array, F32Array]:
    """Return (high, high with 0 for Inf and NaN, low): 12 leading significant bits, and the rest."""
    high, finite_high, low = (np.empty_like(values) for _ in range(3))
    for at, value in np.ndenumerate(values):
        if np.isfinite(value):
            mantissa, exponent = math.frexp(float(value))
            # 12 significant bits, cut off; below 2**-126 float32 has fewer, whose last 12 are cut off
            digits = 12 if abs(value) >= 2.0**-126 else exponent + 137
            kept = math.ldexp(math.trunc(math.ldexp(mantissa, digits)), exponent - digits)
            high[at] = finite_high[at] = math.copysign(kept, value)
            low[at] = float(value) - kept
        else:
            high[at], finite_high[at], low[at] = value, 0.0, 0.0
    return high, finite_high, low


def matmul_into(psum: F32Array, stationary: F32Array, moving: F32Array, passes: int, overwrite: bool) -> None:
    """Do as ``matmul.accumulate_into`` on contiguous float32 arrays."""
    pairs: list[tuple[Any, Any]] = [(stationary, moving)]
    if passes == 4:
        high, finite, low = split(stationary)
        moving_high, moving_finite, moving_low = split(moving)
        pairs = [(low, moving_low), (low, moving_finite), (finite, moving_low), (high, moving_high)]
    for index, (left, right) in enumerate(pairs):
        result = matmul_pass(left, right)
        with np.errstate(all="ignore"):
            psum[...] = _canonical(result if overwrite and index == 0 else psum + result)


def _sigmoid(x: float) -> float:
    if x < -700.0:
        return 0.0
    return 1.0 / (1.0 + math.exp(-x))


def _silu_dx(x: float) -> float:
    if abs(x) > 700.0:
        return 1.0 if x > 0.0 else -0.0
    return _sigmoid(x) * (1.0 + x * _sigmoid(-x))


def _phi(x: float) -> float:
    return math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


def _cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def _times(x: float, factor: float) -> float:
    """Return x * factor, where a factor of 0 wins over an infinite x (a limit at -Inf)."""
    return -0.0 if factor == 0.0 and x < 0.0 else x * factor


def _sin(x: float) -> float:
    if abs(x) <= math.pi:
        return math.sin(x)
    rest = math.pi - abs(x)
    return math.copysign(1.0, x) * (rest * (1.0 - rest * rest / 6.0))


def _softplus(x: float) -> float:
    return x if x > 40.0 else math.log1p(math.exp(x))


def _exp(x: float) -> float:
    return math.inf if x > 700.0 else math.exp(x)


def _log(x: float) -> float:
    if x == 0.0:
        return -math.inf
    return math.nan if x < 0.0 else math.log(x)


def _gelu_tanh(x: float) -> float:
    cube = math.inf if x > 1e30 else (-math.inf if x < -1e30 else x * x * x)
    return _times(x, _sigmoid(2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * cube)))


def _gelu_dx(x: float) -> float:
    if abs(x) > 30.0:
        return 1.0 if x > 0.0 else -0.0
    return _cdf(x) + x * _phi(x)


def _sign(x: float) -> float:
    return x if x == 0.0 else math.copysign(1.0, x)


#: func(x) in float64, for any float32 x but NaN.
ACTIVATION: Final[dict[str, Callable[[float], float]]] = {
    "copy": lambda x: x,
    "square": lambda x: x * x,
    "abs": abs,
    "sign": _sign,
    "relu": UNARY["relu"],
    "sqrt": _sqrt,
    "rsqrt": UNARY["rsqrt"],
    "reciprocal": UNARY["reciprocal"],
    "exp": _exp,
    "sigmoid": _sigmoid,
    "silu": lambda x: _times(x, _sigmoid(x)),
    "silu_dx": _silu_dx,
    "tanh": math.tanh,
    "softplus": _softplus,
    "mish": lambda x: _times(x, math.tanh(_softplus(x))),
    "gelu": lambda x: _times(x, _cdf(x)),
    "gelu_dx": _gelu_dx,
    "gelu_apprx_tanh": _gelu_tanh,
    "gelu_apprx_sigmoid": lambda x: _times(x, _sigmoid(1.702 * x)),
    "gelu_apprx_sigmoid_dx": lambda x: _silu_dx(1.702 * x),
    "erf": math.erf,
    "erf_dx": lambda x: 2.0 / math.sqrt(math.pi) * math.exp(-x * x),
    "log": _log,
    "sin": _sin,
    "arctan": math.atan,
}
