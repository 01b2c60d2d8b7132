"""Count, mean and sum of squared deviations, in one pass, as the Vector engine's batch-norm instructions give them.

The manual says what comes out, and that it is computed in float32, not how. *Assumed*, because a stream that passes
once at one element per cycle allows little else: Welford's recurrence for ``bn_stats``, which takes even and odd
elements apart, and Chan's pairwise update for ``bn_aggr``, tuple after tuple. Each operation rounds to float32.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from neurosim.jit import compiled
from neurosim.numerics import wide
from neurosim.numerics.convert import plain

F32Array = NDArray[np.float32]

_NAN: Final = np.float32(np.nan)
_ZERO: Final = np.float32(0.0)
_ONE: Final = np.float32(1.0)


@compiled
def _welford(x: F32Array, out: F32Array) -> None:
    rows, columns = x.shape
    for r in range(rows):
        for half in range(2):
            count, mean, squares = _ZERO, _ZERO, _ZERO
            for c in range(half, columns, 2):
                count = np.float32(count + _ONE)
                delta = np.float32(x[r, c] - mean)
                mean = np.float32(mean + np.float32(delta / count))
                squares = np.float32(squares + np.float32(delta * np.float32(x[r, c] - mean)))
            out[r, 3 * half] = count
            out[r, 3 * half + 1] = mean if mean == mean else _NAN
            out[r, 3 * half + 2] = squares if squares == squares else _NAN


@compiled
def _chan(x: F32Array, out: F32Array) -> None:
    rows, columns = x.shape
    for r in range(rows):
        count, mean, squares = _ZERO, _ZERO, _ZERO
        for c in range(0, columns, 3):
            more = x[r, c]
            if more == _ZERO:
                continue
            total = np.float32(count + more)
            share = np.float32(more / total)
            delta = np.float32(x[r, c + 1] - mean)
            mean = np.float32(mean + np.float32(delta * share))
            spread = np.float32(np.float32(delta * delta) * np.float32(count * share))
            squares = np.float32(np.float32(squares + x[r, c + 2]) + spread)
            count = total
        variance = np.float32(squares / count)
        out[r, 0] = mean if mean == mean else _NAN
        out[r, 1] = variance if variance == variance else _NAN


def even_odd(x: F32Array) -> F32Array:
    """Return count, mean and sum of squared deviations of the even elements of each row, then of the odd ones.

    Args:
        x: float32 (P, N), N at least 1. Without odd elements their three numbers are 0.

    Returns:
        float32 (P, 6).
    """
    if wide.is_wide(x):
        return wide.even_odd(x)
    out = np.empty((x.shape[0], 6), np.float32)
    _welford(plain(x), out)
    return out


def aggregate(x: F32Array) -> F32Array:
    """Return mean and variance of each row's tuples (count, mean, sum of squared deviations) taken together.

    Args:
        x: float32 (P, 3·T), T at least 1. Tuples with count 0 are passed over; without any other, the variance is
            0 / 0, a NaN.

    Returns:
        float32 (P, 2).
    """
    if wide.is_wide(x):
        return wide.aggregate(x)
    out = np.empty((x.shape[0], 2), np.float32)
    _chan(plain(x), out)
    return out
