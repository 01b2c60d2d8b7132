"""Prefix computations along the free axis: a float32 state that is carried from element to element, unrounded.

The operators that real scans use run in one compiled loop; any other arithmetic operator goes column by column
through :mod:`neurosim.numerics.alu`, with the same bits. So does float64 (:mod:`neurosim.numerics.wide`).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from neurosim.jit import INTERPRETED, compiled, inlined
from neurosim.numerics import alu, wide
from neurosim.numerics.convert import number, output, plain

F32Array = NDArray[np.float32]

_MULTIPLY: Final = 0
_ADD: Final = 1
_SUBTRACT: Final = 2
_MAXIMUM: Final = 3
_NONE: Final = -1
_CODES: Final = {"multiply": _MULTIPLY, "add": _ADD, "subtract": _SUBTRACT, "maximum": _MAXIMUM, "minimum": 4}
_SINGLE: Final = np.dtype(np.float32)


@inlined
def _apply(code: int, a: np.float32, b: np.float32) -> np.float32:
    if code == _MULTIPLY:
        return np.float32(a * b)
    if code == _ADD:
        return np.float32(a + b)
    if code == _SUBTRACT:
        return np.float32(a - b)
    if code == _MAXIMUM:
        return alu.maximum(a, b)
    return alu.minimum(a, b)


@compiled
def _scan(
    code0: int,
    swap0: bool,
    code1: int,
    swap1: bool,
    a: F32Array,
    b: F32Array,
    initial: F32Array,
    out: F32Array,
) -> bool:
    """Scan, and return whether shapes fit: nothing is done where they do not."""
    rows, columns = a.shape
    starts = initial.shape[0]
    if b.shape != a.shape or out.shape != a.shape or initial.shape[1] != 1 or (starts != 1 and starts != rows):
        return False
    for r in range(rows):
        state = initial[r if starts > 1 else 0, 0]
        for c in range(columns):
            state = _apply(code0, state, a[r, c]) if swap0 else _apply(code0, a[r, c], state)
            state = _apply(code1, b[r, c], state) if swap1 else _apply(code1, state, b[r, c])
            out[r, c] = state if state == state else alu.NAN
    return True


@compiled
def _cumulate(code: int, swap: bool, values: F32Array, initial: F32Array, out: F32Array) -> None:
    rows, columns = values.shape
    for r in range(rows):
        state = initial[r]
        for c in range(columns):
            state = _apply(code, state, values[r, c]) if swap else _apply(code, values[r, c], state)
            out[r, c] = state if state == state else alu.NAN


def cumulate(op: str, values: F32Array, initial: F32Array, reverse: bool = False) -> F32Array:
    """Compute ``state = values[:, i] op state`` for ascending i, and keep every state.

    Args:
        op: arithmetic operator of two sides, a name in :data:`alu.ALU`.
        values: float32 (P, N), N at least 1.
        initial: float32 (P,), the state before the first element.
        reverse: put the state on the left.

    Returns:
        float32 (P, N), a new array.
    """
    if op in _CODES and not wide.is_wide(values, initial):
        out = np.empty(values.shape, np.float32)
        _cumulate(_CODES[op], bool(reverse), plain(values), plain(initial), out)
        return out
    states = [initial.reshape(-1, 1)]
    for column in range(values.shape[1]):
        value = values[:, column : column + 1]
        states.append(alu.binary(op, states[-1], value) if reverse else alu.binary(op, value, states[-1]))
    return np.concatenate(states[1:], axis=1)


def scan(
    op0: str,
    op1: str,
    data0: F32Array,
    data1: F32Array,
    initial: F32Array | float,
    reverse0: bool = False,
    reverse1: bool = False,
    out: F32Array | None = None,
) -> F32Array:
    """Compute ``state = (data0[:, i] op0 state) op1 data1[:, i]`` for ascending i, and keep every state.

    Args:
        op0, op1: arithmetic operators of two sides, names in :data:`alu.ALU`.
        data0, data1: float32 (P, N), N at least 1.
        initial: float32 (P, 1) or (P,), or a number, the state before the first element.
        reverse0, reverse1: exchange the two sides of the operator.
        out: of data0's dtype, C-contiguous, (P, N); made when absent. May be data0 or data1.

    Returns:
        float32 (P, N). A NaN state stays NaN (0x7FC00000) where the operators keep it.
    """
    code0, code1 = _CODES.get(op0, _NONE), _CODES.get(op1, _NONE)
    first: F32Array = initial if isinstance(initial, np.ndarray) else number(initial)
    is_known = code0 != _NONE and code1 != _NONE
    if is_known and not INTERPRETED and _scan.is_loaded:  # type: ignore[attr-defined]
        room = np.empty(data0.shape, _SINGLE) if out is None else out
        try:
            if _scan(code0, reverse0, code1, reverse1, data0, data1, first, room):
                return room
        except TypeError:  # no plain float32 arrays: a kernel looks faster than we would
            pass
    out = output(out, data0.shape, data0.dtype)
    if is_known and not wide.is_wide(data0, data1, initial):
        left, right, first = plain(data0), plain(data1), plain(first).reshape(-1, 1)
        if not _scan(code0, bool(reverse0), code1, bool(reverse1), left, right, first, out):
            raise ValueError(f"scan: {data0.shape}, {data1.shape} and {np.shape(initial)} do not go together")
        return out
    state = (
        initial.reshape(-1, 1) if isinstance(initial, np.ndarray) else np.full((len(data0), 1), initial, data0.dtype)
    )
    _, columns = data0.shape
    for column in range(columns):
        left, right = data0[:, column : column + 1], data1[:, column : column + 1]
        state = alu.binary(op0, state, left) if reverse0 else alu.binary(op0, left, state)
        state = alu.binary(op1, right, state) if reverse1 else alu.binary(op1, state, right)
        out[:, column : column + 1] = state
    return out
