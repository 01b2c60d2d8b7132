"""Affine patterns of numbers, as GpSimd generates them: int32, modulo 2**32."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from neurosim.jit import compiled

_INT32: Final = np.dtype(np.int32)


@compiled
def _affine(row: NDArray[np.int64], offset: int, multiplier: int, out: NDArray[np.int32]) -> None:
    for p in range(out.shape[0]):
        start = offset + p * multiplier
        for c in range(out.shape[1]):
            out[p, c] = np.int32(row[c] + start)


def affine(row: NDArray[np.int64], offset: int, multiplier: int, partitions: int) -> NDArray[np.int32]:
    """Return ``row[i] + offset + partition * multiplier``.

    Args:
        row: int64 (N,), writeable, though it is only read.
        offset: what is added everywhere, 32 bits.
        multiplier: of the number of the partition, 32 bits.
        partitions: rows of the result.

    Returns:
        int32 (partitions, N), a new array.
    """
    out = np.empty((partitions, len(row)), _INT32)
    _affine(row, offset, multiplier, out)
    return out
