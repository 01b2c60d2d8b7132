"""The same arithmetic in float64, which nothing rounds on the way: what an instruction would give on a finer machine.

The entry points of the other modules come here when they are given float64 arrays. Special values are theirs. All is
made of operations that IEEE 754 rounds correctly, in a fixed order, so that the bits are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from neurosim.jit import compiled
from neurosim.numerics import elementary

Array = NDArray[Any]
"""Of float64."""


def is_wide(*operands: Any) -> bool:
    """Return whether one of the operands is a float64 array."""
    for operand in operands:  # all computations ask, and a generator takes twice the time
        if isinstance(operand, ndarray) and operand.itemsize == 8 and operand.dtype.char == "d":
            return True
    return False


@compiled
def _powers(x: Array, e: Array, out: Array) -> None:
    for i in range(out.shape[0]):
        out[i] = elementary.power(x[i], e[i])


def _power(a: Any, b: Any) -> Array:
    x, e = (np.ascontiguousarray(part, np.float64) for part in np.broadcast_arrays(a, b))
    out = np.empty(x.shape, np.float64)
    _powers(x.reshape(-1), e.reshape(-1), out.reshape(-1))
    return out


def _mod(a: Any, b: Any) -> Any:
    rest = np.fmod(a, b)
    other_side = (rest != 0) & (np.signbit(rest) != np.signbit(b))
    return np.copysign(np.where(other_side, np.abs(b) - np.abs(rest), rest), b)


def _extreme(chooses: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def choose(a: Any, b: Any) -> Any:
        chosen = np.where(chooses(np.abs(a), np.abs(b)), a, b)
        return np.where(np.isnan(a) | np.isnan(b), np.nan, chosen)

    return choose


UFUNCS: Final[dict[str, np.ufunc]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater_equal": np.greater_equal,
    "greater": np.greater,
    "less_equal": np.less_equal,
    "less": np.less,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}
"""Operators that are NumPy's own, in float64 as in integers."""
_BINARY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    **UFUNCS,
    "divide": np.divide,
    "power": _power,
    "abs_max": _extreme(np.greater),
    "abs_min": _extreme(np.less),
    "mod": _mod,
    "fmod": np.fmod,
}
_UNARY: Final[dict[str, Callable[[Any], Any]]] = {
    "logical_not": np.logical_not,
    "abs": np.abs,
    "square": np.square,
    "relu": lambda a: np.where(np.isnan(a), np.nan, np.maximum(a, 0.0)),
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1.0 / np.sqrt(a),
    "reciprocal": lambda a: 1.0 / a,
    "bypass": np.array,
}


def _column(x: Any) -> Any:
    return x.astype(np.float64) if isinstance(x, np.ndarray) else float(x)


def binary(op: str, a: Any, b: Any) -> Array:
    """Compute ``a op b``, as :func:`neurosim.numerics.alu.binary`; numbers are not rounded to float32."""
    with np.errstate(all="ignore"):
        return np.asarray(_BINARY[op](_column(a), _column(b)), np.float64)


def unary(op: str, a: Array) -> Array:
    """Compute ``op(a)``, as :func:`neurosim.numerics.alu.unary`."""
    with np.errstate(all="ignore"):
        return np.asarray(_UNARY[op](a), np.float64)


def reduce_free(op: str, x: Array, groups: int) -> Array:
    """Reduce each of ``groups`` runs of every row, as :func:`neurosim.numerics.reduce.reduce_free`."""
    runs = x.reshape(len(x), groups, -1)
    with np.errstate(all="ignore"):
        if op in ("add", "multiply"):  # .reduce would add in an order that depends on the machine
            return np.ascontiguousarray((np.add if op == "add" else np.multiply).accumulate(runs, axis=2)[..., -1])
        if op in ("maximum", "minimum"):
            return np.asarray((np.maximum if op == "maximum" else np.minimum).reduce(runs, axis=2))
        combine = {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}[op]
        truth: Array = combine.reduce(runs != 0, axis=2).astype(np.float64)
        return truth


def even_odd(x: Array) -> Array:
    """Return count, mean and sum of squared deviations, as :func:`neurosim.numerics.statistics.even_odd`."""
    out = np.zeros((len(x), 6), np.float64)
    for half in range(2):
        part = x[:, half::2]
        if part.shape[1]:
            mean = reduce_free("add", part, 1) / part.shape[1]
            with np.errstate(all="ignore"):
                squares = reduce_free("add", np.square(part - mean), 1)
            out[:, 3 * half : 3 * half + 3] = np.hstack([np.full_like(mean, part.shape[1]), mean, squares])
    return out


def aggregate(x: Array) -> Array:
    """Return mean and variance of tuples taken together, as :func:`neurosim.numerics.statistics.aggregate`."""
    counts, means, squares = (x[:, part::3] for part in range(3))
    with np.errstate(all="ignore"):
        used = counts != 0
        total = reduce_free("add", counts, 1)
        mean = reduce_free("add", np.where(used, counts * means, 0.0), 1) / total
        deviations = np.where(used, squares + counts * np.square(means - mean), 0.0)
        variance = reduce_free("add", deviations, 1) / total
        return np.hstack([np.where(used.any(axis=1, keepdims=True), mean, 0.0), variance])


def highest(x: Array, count: int) -> NDArray[np.int64]:
    """Return the places of the largest elements, as :func:`neurosim.numerics.search.highest`."""
    order = np.argsort(np.where(np.isnan(x), -np.inf, -x), axis=1, kind="stable")
    return np.ascontiguousarray(order[:, :count][:, ::-1])


def largest(x: Array, count: int) -> Array:
    """Return the largest elements of each row, descending, as :func:`neurosim.numerics.search.largest`."""
    return np.ascontiguousarray(np.sort(x, axis=1)[:, ::-1][:, :count])  # NaN sorts as the largest


def find(data: Array, values: Array, order: NDArray[np.int64], missing: int) -> NDArray[np.int64]:
    """Return where values stand, as :func:`neurosim.numerics.search.find`: equal ones find one occurrence each."""
    places = np.full(values.shape, missing, np.int64)
    for row, wanted in enumerate(values):
        used: dict[float, int] = {}
        for slot in order:
            hits = np.flatnonzero(data[row] == wanted[slot])
            number = used.get(wanted[slot], 0)
            used[wanted[slot]] = number + 1
            if number < len(hits):
                places[row, slot] = hits[number]
    return places


def matmul_into(psum: Array, stationary: Any, moving: Any, overwrite: bool) -> None:
    """Multiply, psum = or += stationary.T @ moving, each output a sum in ascending order of k."""
    left, right = np.asarray(stationary, np.float64), np.asarray(moving, np.float64)
    sums = np.zeros(psum.shape, np.float64)
    with np.errstate(all="ignore"):
        for k in range(len(left)):
            sums += left[k][:, None] * right[k][None, :]
        psum[...] = sums if overwrite else psum + sums
