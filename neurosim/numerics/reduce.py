"""Reductions along the free axis.

Order, *assumed* (the manual gives none): one float32 accumulator per output takes the elements in ascending order,
starting from the first one. Special values follow ``alu.py``: a NaN makes the result of add, multiply, maximum and
minimum NaN (0x7FC00000), and -0 is less than +0.

``subtract`` is listed by the manual as a legal reduction, but not which operand comes first or what the first
element is subtracted from; it is left out, and callers raise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neurosim.jit import INTERPRETED, compiled, inlined, named, whole_registers
from neurosim.numerics import wide
from neurosim.numerics.convert import plain

F32Array = NDArray[np.float32]

_NAN: Final = np.float32(np.nan)
_ZERO: Final = np.float32(0.0)
_ONE: Final = np.float32(1.0)
_MAGNITUDE: Final = np.int32(0x7FFFFFFF)
_INF_BITS: Final = np.int32(0x7F800000)
_SIGN_SHIFT: Final = np.int32(31)
_LARGEST_KEY: Final = np.int32(0x7FFFFFFF)


@inlined
def _add(a: np.float32, b: np.float32) -> np.float32:
    return a + b


@inlined
def _multiply(a: np.float32, b: np.float32) -> np.float32:
    return a * b


def _make_ordered(name: str, step: Callable[[np.float32, np.float32], np.float32]) -> Any:
    """Make a kernel for an operator whose order matters: eight rows side by side hide the latency of the adder."""

    @named(f"reduce_{name}")
    def kernel(x: F32Array, start: F32Array, out: F32Array) -> bool:
        """Reduce rows, onto ``start`` (P, 1) unless that is (0, 1); return False where shapes do not fit."""
        rows, inner = x.shape
        begun = start.shape[0] == rows
        if out.shape != (rows, 1) or start.shape[1] != 1 or not (begun or start.shape[0] == 0):
            return False
        first, source = (0, start) if begun else (1, x)
        whole = rows // 8 * 8
        for r in range(0, whole, 8):
            y0, y1, y2, y3 = source[r, 0], source[r + 1, 0], source[r + 2, 0], source[r + 3, 0]
            y4, y5, y6, y7 = source[r + 4, 0], source[r + 5, 0], source[r + 6, 0], source[r + 7, 0]
            for i in range(first, inner):
                y0 = step(y0, x[r, i])
                y1 = step(y1, x[r + 1, i])
                y2 = step(y2, x[r + 2, i])
                y3 = step(y3, x[r + 3, i])
                y4 = step(y4, x[r + 4, i])
                y5 = step(y5, x[r + 5, i])
                y6 = step(y6, x[r + 6, i])
                y7 = step(y7, x[r + 7, i])
            out[r, 0], out[r + 1, 0], out[r + 2, 0], out[r + 3, 0] = y0, y1, y2, y3
            out[r + 4, 0], out[r + 5, 0], out[r + 6, 0], out[r + 7, 0] = y4, y5, y6, y7
        for r in range(whole, rows):
            y0 = source[r, 0]
            for i in range(first, inner):
                y0 = step(y0, x[r, i])
            out[r, 0] = y0
        for r in range(rows):
            out[r, 0] = out[r, 0] if out[r, 0] == out[r, 0] else _NAN
        return True

    return kernel


@inlined
def _key(x: np.float32, flip: np.int32) -> np.int32:
    """Return an integer that sorts as the float does, a NaN as the largest; with ``flip`` -1, the other way round."""
    b = np.float32(x).view(np.int32)
    key = np.int32(np.int32(b ^ np.int32(np.int32(b >> _SIGN_SHIFT) & _MAGNITUDE)) ^ flip)
    return _LARGEST_KEY if np.int32(b & _MAGNITUDE) > _INF_BITS else key


def _make_extreme(name: str, flip: np.int32) -> Any:
    """Make a kernel for maximum (``flip`` 0) or minimum (-1).

    The order of the elements does not matter, so this works on integers that sort as the floats do, which
    vectorises: a negative float has its magnitude bits inverted, a NaN is the largest of all, and inverting
    everything turns a minimum into a maximum.
    """

    @named(f"reduce_{name}")
    def kernel(x: F32Array, start: F32Array, out: F32Array) -> bool:
        """Reduce rows, onto ``start`` (P, 1) unless that is (0, 1); return False where shapes do not fit."""
        whole_registers()
        rows, inner = x.shape
        begun = start.shape[0] == rows
        if out.shape != (rows, 1) or start.shape[1] != 1 or not (begun or start.shape[0] == 0):
            return False
        for r in range(rows):
            top = _key(start[r, 0], flip) if begun else np.int32(~_MAGNITUDE)
            for i in range(inner):
                key = _key(x[r, i], flip)
                top = key if key > top else top
            b = np.int32(top ^ flip)
            b = np.int32(b ^ np.int32(np.int32(b >> _SIGN_SHIFT) & _MAGNITUDE))
            out[r, 0] = _NAN if top == _LARGEST_KEY else np.int32(b).view(np.float32)
        return True

    return kernel


@compiled
def _count_true(x: F32Array, out: NDArray[np.int32]) -> None:
    """Count the elements that are not zero; a NaN is not zero."""
    rows, inner = x.shape
    for r in range(rows):
        count = np.int32(0)
        for i in range(inner):
            count = np.int32(count + (np.int32(1) if x[r, i] != _ZERO else np.int32(0)))
        out[r] = count


_KERNELS: Final = {
    "add": _make_ordered("add", _add),
    "multiply": _make_ordered("multiply", _multiply),
    "maximum": _make_extreme("maximum", np.int32(0)),
    "minimum": _make_extreme("minimum", np.int32(-1)),
}
_SINGLE: Final = np.dtype(np.float32)
_NOTHING: Final = np.empty((0, 1), np.float32)
_BITS: Final[dict[str, Any]] = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}

#: Operators that :func:`reduce_free` knows.
REDUCTIONS: Final = (
    "add",
    "multiply",
    "maximum",
    "minimum",
    "logical_and",
    "logical_or",
    "logical_xor",
    *_BITS,
)


def reduce_free(op: str, x: NDArray[Any], groups: int = 1) -> NDArray[Any]:
    """Reduce each of ``groups`` runs of consecutive elements in every row.

    Args:
        op: one of :data:`REDUCTIONS`.
        x: (P, N), N a multiple of ``groups``, at least one element a group; float32, or integers for the bitwise
            operators.
        groups: outputs per row: element j of row p belongs to group ``j // (N // groups)``.

    Returns:
        (P, groups) of x's dtype. The result of one element is that element, a NaN apart, and 1.0 or 0.0 for the
        logical operators.
    """
    rows, columns = x.shape
    if groups < 1 or columns % groups or columns == 0:
        raise ValueError(f"reduce_free: {columns} elements do not make {groups} groups")
    if groups == 1 and op in _KERNELS:
        return _reduced(op, _NOTHING, x)
    if wide.is_wide(x):
        return wide.reduce_free(op, x, groups)
    runs = plain(x).reshape(rows * groups, columns // groups)
    if op in _BITS:
        result: NDArray[Any] = _BITS[op].reduce(runs, axis=1)
        return result.reshape(rows, groups)
    found = np.empty((rows, groups), np.float32)  # what owns its bytes is written without a search for shared ones
    out = found.reshape(-1, 1)
    if op in _KERNELS:
        _KERNELS[op](runs, _NOTHING, out)
    else:
        counts = np.empty(rows * groups, np.int32)
        _count_true(runs, counts)
        truth = {
            "logical_and": counts == runs.shape[1],
            "logical_or": counts > 0,
            "logical_xor": (counts & 1) == 1,
        }
        out[:, 0] = truth[op]
    return found


def reduce_onto(op: str, start: F32Array, x: F32Array) -> F32Array:
    """Reduce each row, beginning with an element of ``start``.

    Args:
        op: add, multiply, maximum or minimum.
        start: float32 (P, 1).
        x: float32 (P, N), N at least one.

    Returns:
        float32 (P, 1), a new array.
    """
    if len(start) != len(x):
        raise ValueError(f"reduce_onto: {start.shape} and {x.shape} do not go together")
    return _reduced(op, start, x)


def _reduced(op: str, start: F32Array, x: F32Array) -> F32Array:
    """Return rows of ``x`` reduced onto ``start``, (P, 1) or (0, 1)."""
    kernel, out = _KERNELS[op], np.empty((len(x), 1), _SINGLE)
    if not INTERPRETED and kernel.is_loaded:  # one that is not would be made for whatever it is given, float64 too
        try:
            if kernel(x, start, out):
                return out
        except TypeError:  # no plain float32 arrays: a kernel looks faster than we would
            pass
    if wide.is_wide(x, start):
        return wide.reduce_free(op, np.concatenate([start, x], axis=1) if len(start) else x, 1)
    if not kernel(plain(x), plain(start), out):
        raise ValueError(f"{op}: {start.shape} and {x.shape} do not go together")
    return out
