"""A second machine, written from the manual alone: slow, element by element where that is clearer, and no clock.

A tensor is a flat array of elements and a mask of those that were written. A view is an array of flat indices, made by
NumPy's own indexing of ``arange``: nothing here knows of steps, offsets or partitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

F = np.float32
FLOATS = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
INTEGERS = {"int32": np.int32, "int16": np.int16, "uint8": np.uint8, "int8": np.int8}
DTYPES = {name: np.dtype(dtype) for name, dtype in (FLOATS | INTEGERS).items()}


@dataclass
class Twin:
    """What a tensor holds. ``by_matmul`` marks elements of PSUM that a matmul wrote last."""

    values: Any
    written: Any
    by_matmul: Any

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: str) -> Twin:
        """Return a tensor that nobody has written."""
        size = int(np.prod(shape))
        return cls(np.zeros(size, DTYPES[dtype]), np.zeros(size, bool), np.zeros(size, bool))

    def put(self, at: Any, values: Any, *, matmul: bool = False) -> None:
        """Write values where a view points."""
        self.values[at] = np.reshape(values, at.shape)
        self.written[at] = True
        self.by_matmul[at] = matmul


IDENTITY = {"add": F(0), "maximum": F(-np.inf), "minimum": F(np.inf)}
"""What a reset puts into accumulators, by reduction."""


class Registers:
    """The accumulators of an engine: one float32 per lane, of which the first ``known`` hold something known."""

    def __init__(self) -> None:
        self.values, self.known = np.zeros(128, F), 0

    def load(self, value: Any, rows: int) -> None:
        """Begin anew in the first lanes; what the others hold is lost."""
        self.values[:rows], self.known = value, rows


class Generator:
    """XORWOW as in G. Marsaglia, "Xorshift RNGs": six words a lane, x, y, z, w, v and the counter d."""

    def __init__(self, states: Any) -> None:
        self.states = states.copy()

    def draw(self, rows: int, count: int) -> Any:
        """Return numbers of the first lanes, [rows, count]."""
        columns, states = [], self.states[:rows]
        for _ in range(count):
            x, v = states[:, 0].copy(), states[:, 4].copy()
            x ^= x >> np.uint32(2)
            states[:, :4] = states[:, 1:5]
            states[:, 4] = (v ^ (v << np.uint32(4))) ^ (x ^ (x << np.uint32(1)))
            states[:, 5] += np.uint32(362437)
            columns.append(states[:, 4] + states[:, 5])
        return np.stack(columns, axis=1)


def convert(values: Any, dtype: Any) -> Any:
    """Convert as a data path does: through float32; to nearest even; integers saturate, NaN becomes 0."""
    dtype = np.dtype(dtype)
    if values.dtype == dtype:
        return values
    wide = values.astype(F)
    if dtype.kind not in "iu":
        return _narrow(wide, dtype)
    limits = np.iinfo(dtype)
    whole = np.rint(np.nan_to_num(wide.astype(np.float64), nan=0.0, posinf=2.0**40, neginf=-(2.0**40)))
    return np.clip(whole, limits.min, limits.max).astype(dtype)


def _narrow(wide: Any, dtype: Any) -> Any:
    """Round to nearest even; a NaN is the format's one quiet NaN, which comparisons here treat as equal."""
    with np.errstate(over="ignore", invalid="ignore"):
        return wide.astype(dtype)


def _extreme(pick: Any, sign_wins: Any) -> Any:
    def op(a: Any, b: Any) -> Any:
        zeros = (a == 0) & (b == 0)
        return np.where(zeros, np.where(sign_wins(np.signbit(a), np.signbit(b)), F(-0.0), F(0.0)), pick(a, b))

    return op


OPERATORS = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": _extreme(np.maximum, np.logical_and),
    "minimum": _extreme(np.minimum, np.logical_or),
    "is_equal": np.equal,
    "greater": np.greater,
    "less_equal": np.less_equal,
}
SPELLED = {"is_equal": "equal"}
"""Names of operators in ``nki.language`` where they are others."""


def apply(op: str, a: Any, b: Any) -> Any:
    """Return op(a, b) in float32, one rounding."""
    with np.errstate(all="ignore"):
        return np.asarray(OPERATORS[op](a.astype(F), np.asarray(b).astype(F))).astype(F)


def reduce_rows(op: str, rows: Any) -> Any:
    """Reduce the last axis in float32, first element first."""
    total = rows[..., 0].astype(F)
    for index in range(1, rows.shape[-1]):
        total = apply(op, total, rows[..., index])
    return total


def scan_rows(op0: str, op1: str, data0: Any, data1: Any, initial: float) -> Any:
    """Return result[i] = op1(op0(data0[i], result[i - 1]), data1[i]) along the last axis."""
    state = np.full(data0.shape[0], initial, F)
    columns = []
    for index in range(data0.shape[1]):
        state = apply(op1, apply(op0, data0[:, index], state), data1[:, index])
        columns.append(state)
    return np.stack(columns, axis=1)


def multiply(stationary: Any, moving: Any) -> Any:
    """Return stationary.T @ moving, each output one float32 chain over the rows from zero."""
    total = np.zeros((stationary.shape[1], moving.shape[1]), F)
    with np.errstate(all="ignore"):
        for k in range(len(stationary)):
            total = total + stationary[k].astype(F)[:, None] * moving[k].astype(F)
    return total


def turned(values: Any, chip: str) -> Any:
    """Return the transpose on the tensor engine: trn1 and inf2 multiply by ones and zeros, and add to +0."""
    if chip not in ("trn1", "inf2"):
        return values.T
    wide = values.astype(np.float32).T
    with np.errstate(all="ignore"):
        product = (wide[:, None, :] * np.eye(len(values), dtype=np.float32)).sum(axis=-1)
    return (product + np.float32(0)).astype(values.dtype)
