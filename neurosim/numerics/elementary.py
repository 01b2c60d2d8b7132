"""Elementary functions in float64 arithmetic, and one exponential in float32: the parts act.py and alu.py use.

Every function is built from ``+ - * /``, comparisons, correctly rounded square roots and bit moves, without libm
and without fused multiply-add, so the bits are the same on every machine. All are free of branches, so that loops
over them vectorise. The arguments are scalars; a NaN argument gives NaN.

The polynomials are Chebyshev fits made with 60 digits (``mpmath.chebyfit``); each states its interval and its
largest error. Results are rounded to float32 by the callers, whose unit in the last place is 6e-8.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from neurosim.jit import inlined

_LN2: Final = 0.6931471805599453
_LOG2_E: Final = 1.4426950408889634
#: Adding 1.5 * 2**52 leaves the nearest integer in the low bits of a float64 (ties to even).
_ROUND: Final = 6755399441055744.0
_ONE_BITS: Final = np.int64(0x3FF0000000000000)
_SQRT_HALF_BITS: Final = np.int64(0x3FE6A09E667F3BCD)
_EXPONENT_SHIFT: Final = np.int64(52)

_F32_LOG2_E: Final = np.float32(1.4426950408889634)
#: ln 2 in two parts; the first has 12 significant bits, so its product with an exponent is exact.
_F32_LN2_HIGH: Final = np.float32(0.693115234375)
_F32_LN2_LOW: Final = np.float32(3.194618498980999e-05)
_F32_ROUND: Final = np.float32(12582912.0)
_F32_ROUND_BITS: Final = np.int32(0x4B400000)
_F32_Q0: Final = np.float32(0.5)
_F32_Q1: Final = np.float32(0.16666576989698775)
_F32_Q2: Final = np.float32(0.041666554617204574)
_F32_Q3: Final = np.float32(0.008363179052722578)
_F32_Q4: Final = np.float32(0.0013926183587713494)
_F32_ONE: Final = np.float32(1.0)
_F32_EXP_MAX: Final = np.float32(90.0)
_F32_EXP_MIN: Final = np.float32(-110.0)
_F32_SHIFT: Final = np.int32(23)
_F32_BIAS: Final = np.int32(127)
_I32_ONE: Final = np.int32(1)


@inlined
def exp_single(x: np.float32) -> np.float32:
    """Return exp(x) from float32 arithmetic alone, within 1 unit in the last place; the fast one."""
    x = _F32_EXP_MAX if x > _F32_EXP_MAX else x
    x = _F32_EXP_MIN if x < _F32_EXP_MIN else x
    shifted = x * _F32_LOG2_E + _F32_ROUND
    k = shifted - _F32_ROUND
    high, low = x - k * _F32_LN2_HIGH, k * _F32_LN2_LOW  # the first is exact
    r = high - low
    # (exp(r) - 1 - r) / r**2 on |r| <= ln(2) / 2: error 6.5e-8
    q = _F32_Q0 + r * (_F32_Q1 + r * (_F32_Q2 + r * (_F32_Q3 + r * _F32_Q4)))
    p = _F32_ONE + (high + ((r * r) * q - low))  # the large part of r has no rounding
    exponent = np.int32(np.float32(shifted).view(np.int32) - _F32_ROUND_BITS)
    # 2**k in two factors, since 2**128 is no float32 and a denormal result must round once
    half = np.int32(exponent >> _I32_ONE)
    rest = np.int32(exponent - half)
    scale_half = np.int32(np.int32(half + _F32_BIAS) << _F32_SHIFT).view(np.float32)
    scale_rest = np.int32(np.int32(rest + _F32_BIAS) << _F32_SHIFT).view(np.float32)
    return np.float32((p * scale_half) * scale_rest)


@inlined
def _exponent_split(x: float) -> tuple[float, np.int64]:
    """Return (r, bits of 2**k) with x = k ln 2 + r and |r| <= ln(2) / 2, for x clamped to [-700, 700]."""
    x = 700.0 if x > 700.0 else x
    x = -700.0 if x < -700.0 else x
    shifted = x * _LOG2_E + _ROUND
    k = shifted - _ROUND
    r = x - k * _LN2
    # the low bits of `shifted` hold k; shifting them into the exponent drops everything else
    power = np.int64(np.float64(shifted).view(np.int64) << _EXPONENT_SHIFT) + _ONE_BITS
    return r, np.int64(power)


@inlined
def _expm1_reduced(r: float) -> float:
    """Return exp(r) - 1 for |r| <= ln(2) / 2 (degree 10: relative error 2e-17)."""
    p = 2.5105217004720745e-08
    p = p * r + 2.7626371065696354e-07
    p = p * r + 2.7557255400206422e-06
    p = p * r + 2.480150431378554e-05
    p = p * r + 0.00019841269874820627
    p = p * r + 0.001388888893251478
    p = p * r + 0.008333333333326136
    p = p * r + 0.041666666666573066
    p = p * r + 0.1666666666666667
    p = p * r + 0.5000000000000006
    p = p * r + 1.0
    return r * p


@inlined
def exp(x: float) -> float:
    """Exponential; x beyond +-700 counts as +-700, whose exponential rounds to Inf or 0 in float32."""
    r, power = _exponent_split(x)
    return (1.0 + _expm1_reduced(r)) * float(np.int64(power).view(np.float64))


@inlined
def expm1(x: float) -> float:
    """Return exp(x) - 1 with a small relative error, also next to x = 0."""
    r, power = _exponent_split(x)
    scale = float(np.int64(power).view(np.float64))
    return (scale - 1.0) + scale * _expm1_reduced(r)


@inlined
def log(x: float) -> float:
    """Return ln(x) for any float64 that a float32 converts to; -Inf at 0, NaN below."""
    bits = np.float64(x).view(np.int64)
    k = np.int64(np.int64(bits - _SQRT_HALF_BITS) >> _EXPONENT_SHIFT)
    m = float(np.int64(bits - np.int64(k << _EXPONENT_SHIFT)).view(np.float64))
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    # (atanh(s) / s - 1) / s**2 for sqrt(1/2) <= m < sqrt(2): error 1e-18
    p = 0.06543383504974087
    p = p * z + 0.06634379834280306
    p = p * z + 0.07693120102906739
    p = p * z + 0.09090897815442377
    p = p * z + 0.11111111195900235
    p = p * z + 0.14285714285401616
    p = p * z + 0.2000000000000044
    p = p * z + 0.3333333333333333
    y = float(k) * _LN2 + 2.0 * (s + s * (z * p))
    y = x if x == np.inf else y
    y = -np.inf if x == 0.0 else y
    return y if x >= 0.0 else np.nan


@inlined
def power(x: float, e: float) -> float:
    """Return x to the power e, with the special cases of C's ``pow``."""
    size = -x if x < 0.0 else x
    negative = np.float64(x).view(np.int64) < np.int64(0)
    # exponents beyond 2**31 give what 2**31 gives: Inf, 0 or 1, and they are even
    e = 2147483648.0 if e > 2147483648.0 else e
    e = -2147483648.0 if e < -2147483648.0 else e
    integer = np.int64(e if e == e else 0.0)
    whole = np.float64(integer) == e
    odd = whole and (integer & np.int64(1)) == np.int64(1)
    y = exp(e * log(size))
    limit = 0.0 if (size == 0.0) == (e > 0.0) else np.inf
    y = limit if size == 0.0 or size == np.inf else y
    y = np.nan if x < 0.0 and size < np.inf and not whole else y
    y = -y if odd and negative else y
    y = y if x == x and e == e else np.nan
    return 1.0 if x == 1.0 or e == 0.0 else y


@inlined
def log1p_exp(x: float) -> float:
    """Return ln(1 + exp(x)) with a small relative error everywhere."""
    e = exp(x)
    u = 1.0 + e
    # (u - 1) differs from e by the rounding of the sum; the second term puts it back
    y = log(u) + (e - (u - 1.0)) / u
    return x if x > 40.0 else y


@inlined
def sigmoid(x: float) -> float:
    """Return 1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + exp(-x))


@inlined
def tanh(x: float) -> float:
    """Hyperbolic tangent, with a small relative error also next to 0."""
    magnitude = -x if x < 0.0 else x
    magnitude = 20.0 if magnitude > 20.0 else magnitude
    e = expm1(2.0 * magnitude)
    y = e / (e + 2.0)
    y = -y if x < 0.0 else y
    return x if x == 0.0 else y


@inlined
def sin_reduced(y: float) -> float:
    """Return sin(y) for |y| <= pi / 2 (degree 15 in y: relative error 1e-16)."""
    z = y * y
    p = -7.37438214136951e-13
    p = p * z + 1.6048167888080267e-10
    p = p * z - 2.5051881933241277e-08
    p = p * z + 2.7557316608865888e-06
    p = p * z - 0.00019841269824860265
    p = p * z + 0.008333333333282749
    p = p * z - 0.16666666666666072
    p = p * z + 0.9999999999999999
    return y * p


@inlined
def arctan(x: float) -> float:
    """Inverse tangent."""
    a = -x if x < 0.0 else x
    large = a > 2.414213562373095
    middle = a > 0.4142135623730951
    numerator = -1.0 if large else (a - 1.0 if middle else a)
    denominator = a if large else (a + 1.0 if middle else 1.0)
    base = 1.5707963267948966 if large else (0.7853981633974483 if middle else 0.0)
    t = numerator / denominator
    z = t * t
    # arctan(t) / t for |t| <= tan(pi / 8): error 2.7e-14
    p = 0.030660553362531068
    p = p * z - 0.058743839156979755
    p = p * z + 0.07563671793605889
    p = p * z - 0.09078387777920731
    p = p * z + 0.11110384726094209
    p = p * z - 0.14285690410969262
    p = p * z + 0.19999999604639704
    p = p * z - 0.3333333333080158
    p = p * z + 0.9999999999999732
    y = base + t * p
    y = -y if x < 0.0 else y
    return x if x == 0.0 else y


@inlined
def erfc_positive(z: float) -> float:
    """Return erfc(z) for z >= 0. Beyond 11, where it is 0 in float32, only its order of magnitude is right."""
    near = 11.0 if z > 11.0 else z
    t = (near - 4.0) / (near + 4.0)
    # (1 + 2 z) exp(z**2) erfc(z) on 0 <= z <= 11: error 2.7e-16
    p = -2.555518696573055e-07
    p = p * t - 1.1397023093255678e-06
    p = p * t + 3.030423896830894e-07
    p = p * t + 5.9319090056064776e-06
    p = p * t - 1.1106760566664746e-05
    p = p * t - 2.443847159847516e-05
    p = p * t + 0.00015057343942923398
    p = p * t - 0.00019925992306255467
    p = p * t - 0.0007577649517852089
    p = p * t + 0.0050319718348932774
    p = p * t - 0.016197734742317515
    p = p * t + 0.03716751530692109
    p = p * t - 0.06633036578891147
    p = p * t + 0.09373283501044957
    p = p * t - 0.1010390660363545
    p = p * t + 0.06809705425443967
    p = p * t + 0.015379652102611026
    p = p * t - 0.1396211168405611
    p = p * t + 1.2329951186255526
    return exp(-(z * z)) * p / (1.0 + 2.0 * z)


@inlined
def erf(x: float) -> float:
    """Error function, with a small relative error also next to 0."""
    a = -x if x < 0.0 else x
    z = x * x
    # erf(x) / x for |x| <= 1: error 3.9e-16
    p = 9.428596956834164e-09
    p = p * z - 1.5188281247335167e-07
    p = p * z + 1.631035651387174e-06
    p = p * z - 1.4913300906316395e-05
    p = p * z + 0.00012054681918310599
    p = p * z - 0.0008548304871782741
    p = p * z + 0.005223977154105304
    p = p * z - 0.026866170586496874
    p = p * z + 0.11283791670580423
    p = p * z - 0.376126389031744
    p = p * z + 1.1283791670955121
    outside = 1.0 - erfc_positive(a)
    outside = -outside if x < 0.0 else outside
    return outside if a > 1.0 else x * p


@inlined
def normal_cdf(x: float) -> float:
    """Return the probability that a standard normal variable is below x, with a small relative error."""
    a = -x if x < 0.0 else x
    tail = 0.5 * erfc_positive(a * 0.7071067811865476)
    return tail if x < 0.0 else 1.0 - tail


@inlined
def normal_pdf(x: float) -> float:
    """Return the density of a standard normal variable at x."""
    return 0.3989422804014327 * exp(-0.5 * (x * x))
