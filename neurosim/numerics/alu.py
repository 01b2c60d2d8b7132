"""ALU operators: what they are (a table) and what they compute.

Arithmetic operators take float32 and give float32; comparisons and logical operators give 1.0 or 0.0. Bitvec
operators act on the bits of integers. Source of the table: AWS Neuron SDK, ``nki.api.shared.rst``, "Supported Math
Operators for NKI ISA".

Where IEEE 754 leaves a choice, or the manual says nothing (all *assumed*):

* a NaN result has one bit pattern, 0x7FC00000, whatever the operands' NaNs were;
* ``maximum`` and ``minimum`` are IEEE 754-2019's: a NaN operand gives NaN, and -0 is less than +0.
  ``abs_max`` and ``abs_min`` also give NaN for a NaN operand, and their second operand on equal magnitudes;
* comparisons with NaN are false, ``not_equal`` is true; a NaN counts as true in logical operators, both zeros as
  false;
* ``power`` has the special cases of C's ``pow``; ``mod`` has the sign of the divisor and ``fmod`` that of the
  dividend, both exact before the last rounding; denormals are kept everywhere;
* a shift by the width of the type or more gives 0; ``right_shift`` fills with zeros, also for signed types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from neurosim.dtypes import bfloat16
from neurosim.jit import INTERPRETED, inlined, named
from neurosim.numerics import elementary, wide
from neurosim.numerics.convert import flat, number, output, plain, rounded_to_bfloat16

F32Array = NDArray[np.float32]
Operand = F32Array | float | np.float32
IntArray = NDArray[Any]
CodeArray = NDArray[np.uint16]

NAN: Final = np.float32(np.nan)
_ZERO: Final = np.float32(0.0)
_ONE: Final = np.float32(1.0)
_U16: Final = np.uint32(16)
_EXACT: Final = 268435456.0  # 2**28: an integer below it times a float32 fits into the 53 bits of a float64


@dataclass(frozen=True, slots=True)
class AluOp:
    """One ALU operator.

    Attributes:
        name: as in ``nki.language``.
        code: its place in the table; small, stable within a version.
        kind: ``bitvec`` acts on bits, ``arithmetic`` and ``unary`` on float32.
        arity: operands it uses, 1 or 2.
        reduces: whether the manual allows it as a reduction.
        commutative: whether its operands may change places.
    """

    name: str
    code: int
    kind: Literal["bitvec", "arithmetic", "unary"]
    arity: int
    reduces: bool
    commutative: bool


def _table() -> dict[str, AluOp]:
    # name, kind, arity, reduces, commutative
    rows: tuple[tuple[str, Literal["bitvec", "arithmetic", "unary"], int, bool, bool], ...] = (
        ("invert", "bitvec", 1, False, False),
        ("bitwise_and", "bitvec", 2, True, True),
        ("bitwise_or", "bitvec", 2, True, True),
        ("bitwise_xor", "bitvec", 2, True, True),
        ("left_shift", "bitvec", 2, False, False),
        ("right_shift", "bitvec", 2, False, False),
        ("add", "arithmetic", 2, True, True),
        ("subtract", "arithmetic", 2, True, False),
        ("multiply", "arithmetic", 2, True, True),
        ("divide", "arithmetic", 2, False, False),
        ("maximum", "arithmetic", 2, True, True),
        ("minimum", "arithmetic", 2, True, True),
        ("equal", "arithmetic", 2, False, True),
        ("not_equal", "arithmetic", 2, False, True),
        ("greater_equal", "arithmetic", 2, False, False),
        ("greater", "arithmetic", 2, False, False),
        ("less_equal", "arithmetic", 2, False, False),
        ("less", "arithmetic", 2, False, False),
        ("logical_and", "arithmetic", 2, True, True),
        ("logical_or", "arithmetic", 2, True, True),
        ("logical_xor", "arithmetic", 2, True, True),
        ("logical_not", "unary", 1, False, False),
        ("power", "arithmetic", 2, False, False),
        ("abs_max", "arithmetic", 2, False, False),
        ("abs_min", "arithmetic", 2, False, False),
        ("mod", "arithmetic", 2, False, False),
        ("fmod", "arithmetic", 2, False, False),
        ("abs", "unary", 1, False, False),
        ("square", "unary", 1, False, False),
        ("relu", "unary", 1, False, False),
        ("sqrt", "unary", 1, False, False),
        ("rsqrt", "unary", 1, False, False),
        ("reciprocal", "unary", 1, False, False),
        ("bypass", "unary", 1, False, False),
    )
    return {row[0]: AluOp(row[0], code, *row[1:]) for code, row in enumerate(rows)}


ALU: Final[dict[str, AluOp]] = _table()


@inlined
def _add(a: np.float32, b: np.float32) -> np.float32:
    y = a + b
    return y if y == y else NAN


@inlined
def _subtract(a: np.float32, b: np.float32) -> np.float32:
    y = a - b
    return y if y == y else NAN


@inlined
def _multiply(a: np.float32, b: np.float32) -> np.float32:
    y = a * b
    return y if y == y else NAN


@inlined
def _divide(a: np.float32, b: np.float32) -> np.float32:
    y = a / b
    return y if y == y else NAN


@inlined
def maximum(a: np.float32, b: np.float32) -> np.float32:
    """Return the greater operand; NaN if either is NaN; +0 of two zeros that differ."""
    # equal operands have equal bits, zeros apart: AND leaves a minus only where both have it
    same = np.uint32(np.float32(a).view(np.uint32) & np.float32(b).view(np.uint32)).view(np.float32)
    y = a if a > b else (b if b > a else same)
    y = y if a == a else NAN
    return y if b == b else NAN


@inlined
def minimum(a: np.float32, b: np.float32) -> np.float32:
    """Return the lesser operand; NaN if either is NaN; -0 of two zeros that differ."""
    same = np.uint32(np.float32(a).view(np.uint32) | np.float32(b).view(np.uint32)).view(np.float32)
    y = a if a < b else (b if b < a else same)
    y = y if a == a else NAN
    return y if b == b else NAN


@inlined
def _equal(a: np.float32, b: np.float32) -> np.float32:
    return _ONE if a == b else _ZERO


@inlined
def _not_equal(a: np.float32, b: np.float32) -> np.float32:
    return _ONE if a != b else _ZERO


@inlined
def _greater_equal(a: np.float32, b: np.float32) -> np.float32:
    return _ONE if a >= b else _ZERO


@inlined
def _greater(a: np.float32, b: np.float32) -> np.float32:
    return _ONE if a > b else _ZERO


@inlined
def _less_equal(a: np.float32, b: np.float32) -> np.float32:
    return _ONE if a <= b else _ZERO


@inlined
def _less(a: np.float32, b: np.float32) -> np.float32:
    return _ONE if a < b else _ZERO


@inlined
def _logical_and(a: np.float32, b: np.float32) -> np.float32:
    return (_ONE if b != _ZERO else _ZERO) if a != _ZERO else _ZERO


@inlined
def _logical_or(a: np.float32, b: np.float32) -> np.float32:
    return _ONE if a != _ZERO else (_ONE if b != _ZERO else _ZERO)


@inlined
def _logical_xor(a: np.float32, b: np.float32) -> np.float32:
    truth = _ONE if b != _ZERO else _ZERO
    return _ONE - truth if a != _ZERO else truth


@inlined
def _power(a: np.float32, b: np.float32) -> np.float32:
    r = np.float32(elementary.power(np.float64(a), np.float64(b)))
    return r if r == r else NAN


@inlined
def _abs_max(a: np.float32, b: np.float32) -> np.float32:
    y = a if abs(a) > abs(b) else b
    y = y if a == a else NAN
    return y if b == b else NAN


@inlined
def _abs_min(a: np.float32, b: np.float32) -> np.float32:
    y = a if abs(a) < abs(b) else b
    y = y if a == a else NAN
    return y if b == b else NAN


@inlined
def _remainder(a: np.float32, b: np.float32) -> float:
    """Return |a| modulo |b|, exactly, for finite a and b != 0."""
    rest = np.float64(abs(a))
    divisor = np.float64(abs(b))
    while rest >= divisor:
        step = divisor
        while rest >= step * _EXACT:
            step = step * _EXACT
        rest = rest - np.floor(rest / step) * step
        # the quotient may have rounded up to the next integer
        rest = rest + step if rest < 0.0 else rest
    return rest


@inlined
def _fmod(a: np.float32, b: np.float32) -> np.float32:
    if a != a or b != b or abs(a) == np.float32(np.inf) or b == _ZERO:
        return NAN
    rest = np.float32(_remainder(a, b))
    negative = np.float32(a).view(np.int32) < np.int32(0)
    return np.float32(-rest) if negative else rest


@inlined
def _mod(a: np.float32, b: np.float32) -> np.float32:
    if a != a or b != b or abs(a) == np.float32(np.inf) or b == _ZERO:
        return NAN
    rest = _remainder(a, b)
    divisor = np.float64(abs(b))
    a_negative = np.float32(a).view(np.int32) < np.int32(0)
    b_negative = np.float32(b).view(np.int32) < np.int32(0)
    if rest != 0.0 and a_negative != b_negative:
        rest = divisor - rest
    y = np.float32(rest)
    return np.float32(-y) if b_negative else y


@inlined
def _logical_not(a: np.float32) -> np.float32:
    return _ONE if a == _ZERO else _ZERO


@inlined
def _abs(a: np.float32) -> np.float32:
    y = abs(a)
    return y if y == y else NAN


@inlined
def _square(a: np.float32) -> np.float32:
    y = a * a
    return y if y == y else NAN


@inlined
def _relu(a: np.float32) -> np.float32:
    y = a if a > _ZERO else _ZERO
    return y if a == a else NAN


@inlined
def _sqrt(a: np.float32) -> np.float32:
    y = np.sqrt(a)
    return y if y == y else NAN


@inlined
def _rsqrt(a: np.float32) -> np.float32:
    y = np.float32(1.0 / np.sqrt(np.float64(a)))
    return y if y == y else NAN


@inlined
def _reciprocal(a: np.float32) -> np.float32:
    y = _ONE / a
    return y if y == y else NAN


def _make_binary(name: str, scalar: Callable[[np.float32, np.float32], np.float32]) -> Any:
    @named(f"alu_{name}")
    def kernel(a: F32Array, b: F32Array, out: F32Array) -> bool:
        """Compute; return False where shapes do not fit."""
        rows, columns = out.shape
        fits_a, fits_b = a.shape == out.shape, b.shape == out.shape
        repeats_a, repeats_b = a.size == 1 or a.shape == (rows, 1), b.size == 1 or b.shape == (rows, 1)
        if not ((fits_a and (fits_b or repeats_b)) or (fits_b and repeats_a)):
            return False
        if fits_a and fits_b:
            for r in range(rows):
                for c in range(columns):
                    out[r, c] = scalar(a[r, c], b[r, c])
        elif fits_a:
            for r in range(rows):
                right = b[r if b.size > 1 else 0, 0]
                for c in range(columns):
                    out[r, c] = scalar(a[r, c], right)
        else:
            for r in range(rows):
                left = a[r if a.size > 1 else 0, 0]
                for c in range(columns):
                    out[r, c] = scalar(left, b[r, c])
        return True

    return kernel


def _make_bfloat16(name: str, scalar: Callable[[np.float32, np.float32], np.float32]) -> Any:
    @named(f"alu_{name}_bfloat16")
    def kernel(a: CodeArray, b: CodeArray, out: CodeArray) -> None:
        for i in range(out.shape[0]):
            left = np.uint32(np.uint32(a[i]) << _U16).view(np.float32)
            right = np.uint32(np.uint32(b[i]) << _U16).view(np.float32)
            # the NaN of every operator is the canonical one
            out[i] = np.uint16(rounded_to_bfloat16(np.float32(scalar(left, right)).view(np.uint32)))

    return kernel


def _make_unary(name: str, scalar: Callable[[np.float32], np.float32]) -> Any:
    @named(f"alu_{name}")
    def kernel(a: F32Array, out: F32Array) -> None:
        for i in range(a.shape[0]):
            out[i] = scalar(a[i])

    return kernel


_SCALAR: Final[dict[str, Callable[[np.float32, np.float32], np.float32]]] = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "divide": _divide,
    "maximum": maximum,
    "minimum": minimum,
    "equal": _equal,
    "not_equal": _not_equal,
    "greater_equal": _greater_equal,
    "greater": _greater,
    "less_equal": _less_equal,
    "less": _less,
    "logical_and": _logical_and,
    "logical_or": _logical_or,
    "logical_xor": _logical_xor,
    "power": _power,
    "abs_max": _abs_max,
    "abs_min": _abs_min,
    "mod": _mod,
    "fmod": _fmod,
}
_BINARY: Final = {name: _make_binary(name, scalar) for name, scalar in _SCALAR.items()}
_BINARY_BFLOAT16: Final = {name: _make_bfloat16(name, scalar) for name, scalar in _SCALAR.items()}
_UNARY: Final = {
    name: _make_unary(name, scalar)
    for name, scalar in {
        "logical_not": _logical_not,
        "abs": _abs,
        "square": _square,
        "relu": _relu,
        "sqrt": _sqrt,
        "rsqrt": _rsqrt,
        "reciprocal": _reciprocal,
    }.items()
}
_BITS: Final[dict[str, Any]] = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift,
    "right_shift": np.right_shift,
}


_COMPARISONS: Final[dict[str, Any]] = {
    name: wide.UFUNCS[name] for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
}


_CODES: Final = np.dtype(np.uint16)
_SINGLE: Final = np.dtype(np.float32)


def binary(op: str, a: Operand, b: Operand, out: F32Array | None = None) -> F32Array:
    """Compute ``a op b`` for an arithmetic operator of two operands.

    Args:
        op: name in :data:`ALU`.
        a: left operand, float32: an array (P, ...), a column (P, 1) for all of a row, or a number for everything
            (rounded to float32).
        b: right operand, likewise; to reverse an instruction's operands, pass them the other way round.
        out: float32, C-contiguous, of the result's shape; made when absent. May be one of the operands.

    Returns:
        float32 of the larger operand's shape.
    """
    kernel = _BINARY[op]
    left, right = a if isinstance(a, ndarray) else number(a), b if isinstance(b, ndarray) else number(b)
    if not INTERPRETED and kernel.is_loaded:  # one that is not would be made for whatever it is given, float64 too
        room = np.empty((left if left.size >= right.size else right).shape, _SINGLE) if out is None else out
        try:
            if kernel(left, right, room):
                return room
        except TypeError:  # no plain float32 arrays: a kernel looks faster than we would
            pass
    if wide.is_wide(a, b):
        return wide.binary(op, a, b)
    left, right = plain(left), plain(right)
    shape = (left if left.size >= right.size else right).shape
    out = output(out, shape, _SINGLE)
    is_column = left.size != right.size and {left.shape, right.shape} == {shape, (shape[0], 1)}
    rows = shape[0] if is_column else 1  # else one long loop
    if not kernel(left.reshape(rows, -1), right.reshape(rows, -1), out.reshape(rows, -1)):
        raise ValueError(f"{op}: shapes {left.shape} and {right.shape} do not go together")
    return out


def compare(op: str, a: F32Array, b: F32Array) -> NDArray[np.bool_]:
    """Return where ``a op b`` holds, for a comparison: what :func:`binary` gives, as bools.

    Args:
        op: ``equal``, ``not_equal``, or ``less``, ``less_equal``, ``greater``, ``greater_equal``.
        a, b: float32, or float64, of shapes that NumPy broadcasts.
    """
    found: NDArray[np.bool_] = _COMPARISONS[op](a, b)
    return found


def binary_bfloat16(op: str, a: IntArray, b: IntArray, out: IntArray | None = None) -> IntArray:
    """Compute ``a op b`` from bfloat16 to bfloat16: what :func:`binary` gives between widening and rounding.

    One pass in place of four, for the format that most tiles have; no other format has a kernel of its own, since
    each costs compiling.

    Args:
        op: name of an arithmetic operator of two operands in :data:`ALU`.
        a: left operand, elements of bfloat16, any strides.
        b: right operand, of the same shape.
        out: bfloat16, C-contiguous, of the same shape; made when absent. May be one of the operands.
    """
    if a.shape != b.shape:
        raise ValueError(f"{op}: shapes {a.shape} and {b.shape} do not go together")
    codes = np.empty(a.size, _CODES) if out is None else flat(output(out, a.shape, bfloat16.numpy), _CODES)
    _BINARY_BFLOAT16[op](flat(a, _CODES), flat(b, _CODES), codes)
    return codes.view(bfloat16.numpy).reshape(a.shape) if out is None else out


def unary(op: str, a: F32Array, out: F32Array | None = None) -> F32Array:
    """Compute ``op(a)`` for an operator of one operand, on float32 of any shape; ``bypass`` copies the bits.

    Args:
        op: name in :data:`ALU`, of kind unary.
        a: float32.
        out: float32, C-contiguous, of the same shape; made when absent. May be ``a``.
    """
    if wide.is_wide(a):
        return wide.unary(op, a)
    out = output(out, a.shape, _SINGLE)
    if op == "bypass":
        np.copyto(out.view(np.uint32), a.view(np.uint32))
    else:
        _UNARY[op](plain(a).reshape(-1), out.reshape(-1))
    return out


def binary_bits(op: str, a: IntArray, b: IntArray | int) -> IntArray:
    """Compute a bitvec operator on the bits of integers.

    Args:
        op: name in :data:`ALU`, of kind bitvec; ``invert`` ignores ``b``.
        a: signed or unsigned integers, any shape.
        b: integers of the same size that broadcast against ``a``, or a number whose low bits are taken.

    Returns:
        The dtype of ``a``.
    """
    bits = np.dtype(f"u{a.dtype.itemsize}")
    left = a.view(bits)
    if op == "invert":
        inverted: IntArray = np.invert(left)
        return inverted.view(a.dtype)
    right = b.view(bits) if isinstance(b, np.ndarray) else bits.type(int(b) & int(np.iinfo(bits).max))
    combined: IntArray = _BITS[op](left, right)
    return combined.view(a.dtype)


def binary_int(op: str, a: IntArray, b: IntArray | int) -> IntArray:
    """Compute an operator exactly on int32 or uint32, as the GpSimd engine does.

    Sums, differences and products are exact modulo 2**32 (*assumed*: the manual does not say whether they wrap or
    saturate). Comparisons and logical operators give 1 or 0.

    Args:
        op: a bitvec operator, or add, subtract, multiply, maximum, minimum, a comparison or a logical operator.
        a: int32 or uint32, any shape.
        b: integers of the same dtype that broadcast against ``a``, or a number taken modulo 2**32.

    Returns:
        The dtype of ``a``.
    """
    if ALU[op].kind == "bitvec":
        return binary_bits(op, a, b)
    if not isinstance(b, np.ndarray):
        b = np.array(int(b) & 0xFFFFFFFF, np.uint32).view(a.dtype)
    exact: IntArray = np.asarray(wide.UFUNCS[op](a, b), a.dtype)
    return exact
