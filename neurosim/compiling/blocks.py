"""Sums of products and copies of blocks, as LLVM has them in vector registers (:mod:`neurosim.compiling.vectors`).

From loops over numbers LLVM makes vectors, too, but keeps sums in memory, or checks each slice. Here is what they do,
in NumPy, and how large blocks are on the processor that we run on.
"""

from __future__ import annotations

import functools
import os
import platform
from typing import Any, Final

import llvmlite.binding  # type: ignore[import-untyped,unused-ignore]
import numpy as np

from neurosim.jit import Intrinsic


def _registers() -> tuple[int, int]:
    """Return how many float32 numbers a vector register holds, and how many such registers there are."""
    features = os.environ.get("NUMBA_CPU_FEATURES")
    if features is None:
        features = llvmlite.binding.get_host_cpu_features().flatten()
    names = features.split(",")
    if "+avx512f" in names:
        return 16, 32
    if "+avx" in names:
        return 8, 16
    return 4, 32 if platform.machine() in ("aarch64", "arm64") else 16


LANES, _REGISTERS = _registers()
VECTORS: Final = 2
#: Rows and columns of sums that stay in registers, beside a row of the right operand and an element of the left.
SUM_ROWS: Final = 8 if _REGISTERS == 32 else 4
SUM_COLUMNS: Final = VECTORS * LANES


def products_kernel(exact: bool) -> Any:
    """Return what computes ``SUM_ROWS`` x ``SUM_COLUMNS`` sums of products, in order, each from +0.0.

    ``kernel(left, left_at, right, right_at, depth, out, at, stride, rows, overwrite)`` adds, for k = 0 ... depth - 1,
    ``left[left_at + k * SUM_ROWS + row] * right[right_at + k * SUM_COLUMNS + column]``, and stores the sums of the
    first ``rows`` rows in ``out[at + row * stride + column]``, or adds them to what is there. NaN has one bit pattern.
    All arrays are float32, flat, contiguous, and long enough, which nobody checks.

    Args:
        exact: every product is exact in float32. Then product and sum are one instruction where the processor has
            one, with the same bits.
    """
    return Intrinsic("vectors.products", _products, LANES, VECTORS, SUM_ROWS, exact)


def packing_kernel(size: int, coded: bool) -> Any:
    """Return what copies blocks of ``size`` columns and says what they hold.

    ``kernel(source, at, stride, depth, blocks, target, target_at, step)`` copies
    ``source[at + k * stride + block * size + n]`` to ``target[target_at + block * step + k * size + n]``. The target is
    float32; so is the source unless it is ``coded``: codes of bfloat16, which become float32. Both are flat,
    contiguous, and long enough, which nobody checks. Of the bits of what it copies it returns all that are set; the
    least magnitude less 1, where 0 less 1 is 2**32 - 1; and the largest magnitude.
    """
    return Intrinsic("vectors.packing", functools.partial(_packing, size, coded), size, coded)


def _packing(
    size: int, coded: bool, source: Any, at: int, stride: int, depth: int, blocks: int, target: Any, target_at: int,
    step: int,
) -> Any:  # fmt: skip
    """Do in NumPy what the compiled kernels do."""
    seen, least, most = np.uint32(0), np.uint32(2**32 - 1), np.uint32(0)
    for k in range(depth):
        for block in range(blocks):
            start, place = at + k * stride + block * size, target_at + block * step + k * size
            values = source[start : start + size]
            target[place : place + size] = (values.astype(np.uint32) << 16).view(np.float32) if coded else values
            bits = target[place : place + size].view(np.uint32)
            magnitudes = bits & np.uint32(2**31 - 1)
            seen |= np.bitwise_or.reduce(bits)
            least, most = min(least, (magnitudes - np.uint32(1)).min()), max(most, magnitudes.max())
    return seen, least, most


def _products(
    left: Any, left_at: int, right: Any, right_at: int, depth: int, out: Any, at: int, stride: int, rows: int,
    overwrite: bool,
) -> None:  # fmt: skip
    """Do in NumPy what the compiled kernels do."""
    total = np.zeros((SUM_ROWS, SUM_COLUMNS), np.float32)
    for k in range(depth):
        row, column = left_at + k * SUM_ROWS, right_at + k * SUM_COLUMNS
        total = total + left[row : row + SUM_ROWS, None] * right[None, column : column + SUM_COLUMNS]
    for row in range(rows):
        line = out[at + row * stride : at + row * stride + SUM_COLUMNS]
        line[:] = total[row] if overwrite else line + total[row]
        line[np.isnan(line)] = np.nan
