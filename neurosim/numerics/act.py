"""Activation functions of the Scalar engine: ``func(x * scale + bias)`` in float32.

The product rounds to float32, then the sum rounds, then the function is computed to within :data:`ULP_BOUND` of the
true value. The hardware interpolates in unpublished tables, so this accuracy is *assumed*; so is that denormals are
kept. NaN results have one bit pattern, 0x7FC00000.

Source of the list and of the valid ranges: AWS Neuron SDK, ``nki.api.shared.rst``, "Supported Activation Functions
for NKI ISA". ``prelu`` is left out: its slope operand is documented nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from neurosim.jit import INTERPRETED, inlined, named, whole_registers
from neurosim.numerics import elementary, wide
from neurosim.numerics.convert import number, output, plain

F32Array = NDArray[np.float32]
Coefficient = F32Array | float | np.float32

_NAN: Final = np.float32(np.nan)
_ZERO: Final = np.float32(0.0)
_ONE: Final = np.float32(1.0)
_PI: Final = 3.141592653589793
_HALF_PI: Final = 1.5707963267948966
_TWO_OVER_SQRT_PI: Final = 1.1283791670955126
_GELU_SIGMOID: Final = 1.702
_GELU_TANH: Final = 1.5957691216057308  # 2 sqrt(2 / pi)
_GELU_CUBE: Final = 0.044715


@inlined
def _copy(x: np.float32) -> np.float32:
    return x


@inlined
def _square(x: np.float32) -> np.float32:
    return x * x


@inlined
def _abs(x: np.float32) -> np.float32:
    return abs(x)


@inlined
def _sign(x: np.float32) -> np.float32:
    y = _ONE if x > _ZERO else x
    return -_ONE if x < _ZERO else y


@inlined
def _relu(x: np.float32) -> np.float32:
    return _ZERO if x <= _ZERO else x


@inlined
def _sqrt(x: np.float32) -> np.float32:
    y: np.float32 = np.sqrt(x)
    return y


@inlined
def _rsqrt(x: np.float32) -> np.float32:
    return np.float32(1.0 / np.sqrt(np.float64(x)))


@inlined
def _reciprocal(x: np.float32) -> np.float32:
    return _ONE / x


@inlined
def _erf_dx(z: float) -> float:
    return _TWO_OVER_SQRT_PI * elementary.exp(-(z * z))


@inlined
def _exp(z: float) -> float:
    y = elementary.exp(z)
    y = np.inf if z == np.inf else y
    return 0.0 if z == -np.inf else y


@inlined
def _sin(z: float) -> float:
    a = -z if z < 0.0 else z
    rest = _PI - a
    inside = elementary.sin_reduced(rest if a > _HALF_PI else a)
    # Documented: outside [-pi, pi] a cubic continues, and sin(9.0) is 27.65. That is the cubic around pi.
    outside = rest * (1.0 - rest * rest / 6.0)
    y = outside if a > _PI else inside
    y = -y if z < 0.0 else y
    return z if z == 0.0 else y


@inlined
def _silu(z: float) -> float:
    # the limit at -Inf is -0; the clamp keeps the product from being -Inf * 0
    z = -1000.0 if z < -1000.0 else z
    return z * elementary.sigmoid(z)


@inlined
def _sigmoid_product_dx(z: float) -> float:
    """Return the derivative of z * sigmoid(z)."""
    z = 1000.0 if z > 1000.0 else z
    z = -1000.0 if z < -1000.0 else z
    e = elementary.exp(-z)
    return (1.0 + z * (e / (1.0 + e))) / (1.0 + e)


@inlined
def _gelu(z: float) -> float:
    z = -100.0 if z < -100.0 else z
    return z * elementary.normal_cdf(z)


@inlined
def _gelu_dx(z: float) -> float:
    z = 100.0 if z > 100.0 else z
    z = -100.0 if z < -100.0 else z
    return elementary.normal_cdf(z) + z * elementary.normal_pdf(z)


@inlined
def _gelu_apprx_tanh(z: float) -> float:
    # 0.5 x (1 + tanh(u)) = x sigmoid(2 u), without cancellation
    z = -100.0 if z < -100.0 else z
    return z * elementary.sigmoid(_GELU_TANH * (z + _GELU_CUBE * (z * z * z)))


@inlined
def _gelu_apprx_sigmoid(z: float) -> float:
    z = -1000.0 if z < -1000.0 else z
    return z * elementary.sigmoid(_GELU_SIGMOID * z)


@inlined
def _gelu_apprx_sigmoid_dx(z: float) -> float:
    return _sigmoid_product_dx(_GELU_SIGMOID * z)


@inlined
def _mish(z: float) -> float:
    # tanh(ln(1 + e)) = (e**2 + 2 e) / (e**2 + 2 e + 2), which is 1 in float64 beyond 40
    z = -1000.0 if z < -1000.0 else z
    e = elementary.exp(40.0 if z > 40.0 else z)
    square = e * e + 2.0 * e
    return z * (square / (square + 2.0))


_LONG: Final = 64
"""Columns from which on a loop over rows takes no longer than one over all elements, of functions in float64."""


def _make(name: str, scalar: Callable[[np.float32], np.float32], least: int = 1) -> Any:
    """Make a kernel; one for rows of fewer columns than ``least`` leaves these to a call with one long row."""

    @named(f"act_{name}")
    def kernel(x: F32Array, scale: F32Array, bias: F32Array, out: F32Array) -> bool:
        """Compute; return False where shapes do not fit."""
        whole_registers()
        rows, columns = out.shape
        scales, biases = scale.shape[0], bias.shape[0]
        if x.shape != out.shape or (scales != 1 and scales != rows) or (biases != 1 and biases != rows):
            return False
        if scale.shape[1] != 1 or bias.shape[1] != 1 or (scales == biases == 1 < rows and columns < least):
            return False
        for r in range(rows):
            row_scale = scale[r if scales > 1 else 0, 0]
            row_bias = bias[r if biases > 1 else 0, 0]
            for c in range(columns):
                product = x[r, c] * row_scale
                y = scalar(product + row_bias)
                out[r, c] = y if y == y else _NAN
        return True

    return kernel


def _make_rounded(name: str, scalar: Callable[[float], float]) -> Any:
    """Make a kernel of a function in float64, whose result rounds to float32."""

    @inlined
    def rounded(x: np.float32) -> np.float32:
        return np.float32(scalar(np.float64(x)))

    return _make(name, rounded, _LONG)


def _make_wide(name: str, scalar: Callable[[float], float]) -> Any:
    """Make a kernel that rounds nothing to float32."""

    @named(f"act_wide_{name}")
    def kernel(x: Any, out: Any) -> None:
        for i in range(out.shape[0]):
            out[i] = scalar(x[i])

    return kernel


def _mapped(kernel: Any, x: Any) -> Any:
    out = np.empty(x.shape, np.float64)
    kernel(np.ascontiguousarray(x).reshape(-1), out.reshape(-1))
    return out


@dataclass(frozen=True, slots=True)
class Activation:
    """One activation function.

    Attributes:
        name: as in ``nki.language``.
        valid_range: smallest and largest argument (after scale and bias) for which the hardware is right, or None
            for all. The bounds of ``reciprocal`` are magnitudes, of either sign.
        max_ulp: the bound on the error, in units in the last place of the float32 result, within the valid range.
        kernel: compiled (x (P, N), scale and bias (P, 1) or (1, 1), out (P, N)), all float32.
    """

    name: str
    valid_range: tuple[float, float] | None
    max_ulp: float
    kernel: Any


#: Computed in float32. name: (scalar function, valid range, bound of the error in units in the last place)
_SINGLE: Final[dict[str, tuple[Any, tuple[float, float] | None, float]]] = {
    "copy": (_copy, None, 0.0),
    "square": (_square, None, 0.5),
    "abs": (_abs, None, 0.0),
    "sign": (_sign, None, 0.0),
    "relu": (_relu, None, 0.0),
    "sqrt": (_sqrt, (2.0**-116, 2.0**118), 0.5),
    "rsqrt": (_rsqrt, (2.0**-87, 2.0**97), 0.51),
    "reciprocal": (_reciprocal, (2.0**-42, 2.0**42), 0.5),
    "exp": (elementary.exp_single, None, 1.0),
}
#: Computed in float64 and rounded once; likewise.
_DOUBLE: Final[dict[str, tuple[Any, tuple[float, float] | None, float]]] = {
    "sigmoid": (elementary.sigmoid, None, 0.51),
    "silu": (_silu, None, 0.51),
    "silu_dx": (_sigmoid_product_dx, None, 0.51),
    "tanh": (elementary.tanh, None, 0.51),
    "softplus": (elementary.log1p_exp, None, 0.51),
    "mish": (_mish, None, 0.51),
    "gelu": (_gelu, None, 0.51),
    "gelu_dx": (_gelu_dx, None, 0.6),
    "gelu_apprx_tanh": (_gelu_apprx_tanh, None, 0.51),
    "gelu_apprx_sigmoid": (_gelu_apprx_sigmoid, None, 0.51),
    "gelu_apprx_sigmoid_dx": (_gelu_apprx_sigmoid_dx, None, 0.51),
    "erf": (elementary.erf, None, 0.51),
    "erf_dx": (_erf_dx, None, 0.51),
    "log": (elementary.log, (2.0**-64, 2.0**64), 0.51),
    "sin": (_sin, (-_PI, _PI), 0.51),
    "arctan": (elementary.arctan, (-_HALF_PI, _HALF_PI), 0.51),
}

ACTIVATIONS: Final[dict[str, Activation]] = {
    name: Activation(name, valid_range, max_ulp, make(name, scalar))
    for rows, make in ((_SINGLE, _make), (_DOUBLE, _make_rounded))
    for name, (scalar, valid_range, max_ulp) in rows.items()
}
#: The functions in float64: of those computed in float32, what they are.
_WIDE: Final[dict[str, Callable[[Any], Any]]] = {
    "copy": np.positive,
    "sign": np.sign,
    **{name: partial(wide.unary, name) for name in ("square", "abs", "relu", "sqrt", "rsqrt", "reciprocal")},
    **{
        name: partial(_mapped, _make_wide(name, scalar))
        for name, scalar in (("exp", _exp), *((name, row[0]) for name, row in _DOUBLE.items()))
    },
}

ULP_BOUND: Final[dict[str, float]] = {name: row.max_ulp for name, row in ACTIVATIONS.items()}


_FLOAT32: Final = np.dtype(np.float32)
_NO_SCALE: Final = np.ones((1, 1), np.float32)
_NO_BIAS: Final = np.full((1, 1), -0.0, np.float32)
"""What leaves each x as it is: x + 0.0 does not."""


def _wide_coefficient(value: Coefficient) -> Any:
    return value.reshape(-1, 1).astype(np.float64) if isinstance(value, ndarray) else float(value)


def activate(
    name: str,
    x: F32Array,
    scale: Coefficient = 1.0,
    bias: Coefficient | None = None,
    out: F32Array | None = None,
) -> F32Array:
    """Compute ``func(x * scale + bias)``.

    Args:
        name: name in :data:`ACTIVATIONS`.
        x: float32 (P, N); any shape where scale and bias are numbers.
        scale: a number, rounded to float32, or float32 (P,) or (P, 1), one per row.
        bias: likewise; None adds nothing (0.0 would turn -0.0 into 0.0).
        out: float32, C-contiguous, of x's shape; made when absent. May be ``x``.

    Returns:
        float32 of x's shape; of float64 operands, float64 (:mod:`neurosim.numerics.wide`).
    """
    kernel = ACTIVATIONS[name].kernel
    factor: F32Array = scale if isinstance(scale, ndarray) else _NO_SCALE if scale == 1.0 else number(scale)
    term: F32Array = _NO_BIAS if bias is None else bias if isinstance(bias, ndarray) else number(bias)
    if not INTERPRETED and kernel.is_loaded:  # one that is not would be made for whatever it is given, float64 too
        room = np.empty(x.shape, _FLOAT32) if out is None else out
        try:
            if kernel(x, factor, term, room):
                return room
        except TypeError:  # no plain float32 arrays: a kernel looks faster than we would
            pass
    if wide.is_wide(x, scale, bias):
        with np.errstate(all="ignore"):
            argument = wide.binary("multiply", x, _wide_coefficient(scale))
            return _WIDE[name](argument if bias is None else argument + _wide_coefficient(bias))  # type: ignore[no-any-return]
    x, factor, term = plain(x), *(plain(part).reshape(-1, 1) for part in (factor, term))
    out = np.empty(x.shape, _FLOAT32) if out is None else output(out, x.shape, _FLOAT32)
    rows = max(len(factor), len(term))
    shape = (rows, x.size // rows)
    if not kernel(x.reshape(shape), factor, term, out.reshape(shape)):
        raise ValueError(f"{name}: shapes {x.shape}, {factor.shape} and {term.shape} do not go together")
    return out
