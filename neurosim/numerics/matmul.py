"""The tensor engine's arithmetic.

Order of operations, all *assumed* (the manual gives none):

* one pass: every output starts at +0.0 and takes the products of k = 0, 1, 2, ... in this order; each product rounds
  to float32, then each sum rounds;
* operands of 16 and 8 bits take one pass over their exact float32 values;
* float32 operands take four passes. An operand splits exactly into ``high`` (its 12 leading significant bits) and
  ``low`` (the rest). Passes in order: low x low, low x high, high x low, high x high (stationary first). An Inf or
  NaN is all ``high``, and counts as 0 outside high x high, so that Inf times a finite number is Inf;
* each pass sums from zero on its own and is then added to the destination; on overwrite the first one is stored;
* a NaN result has one bit pattern, 0x7FC00000.

The bits equal those of the plain triple loop in ``reference.py`` for any number of threads and any blocking.

Product and sum in one instruction (a fused multiply-add) take half the arithmetic, and round once. Where float32 holds
the product exactly the first rounding changes nothing, so that both ways give the same bits. That is so for most
tiles: factors of 16 and 8 bits, and halves of float32, have 12 significant bits at most, and their product 24. What
is left is the range. A product is a multiple of the least bits of its factors, which must not be below 2**-149, and
less than the product of their bounds, which must not be above 2**128. A look at every element says which bits a tile
holds, and its least and largest magnitude (:func:`products_are_exact`). All other tiles, those with an Inf or NaN
among them, are multiplied plainly: there a fused result could differ.
"""

from __future__ import annotations

import threading
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neurosim import dtypes, pool
from neurosim.compiling.machine_code import SHARED_FROM
from neurosim.compiling.mailbox import ROW, Words
from neurosim.dtypes import DType
from neurosim.numerics import wide
from neurosim.numerics.convert import widen
from neurosim.numerics.products import Bytes, F32Array, multiply, workspace_size

Array = NDArray[Any]
#: Floats in a huge page of memory (2 MiB).
_HUGE_PAGE: Final = 1 << 19


class Rows(NamedTuple):
    """A matrix as it lies in memory: elements of a row side by side, and all rows equally far apart.

    Compiled code takes a memory as a whole, with numbers that say what of it: an array of each operand would have to be
    made first, which takes Python longer than the rest of a call.

    Attributes:
        memory: the bytes, contiguous and writeable, aligned as numbers are.
        start: elements from their beginning to the matrix's.
        step: elements from one row to the next.
        coded: whether elements are codes of bfloat16, else they are float32.
        shape: rows and columns.
    """

    memory: Bytes
    start: int
    step: int
    coded: bool
    shape: tuple[int, int]

    def elements(self) -> Array:
        """Return the matrix as an array, a view; codes as bfloat16."""
        dtype = (dtypes.bfloat16 if self.coded else dtypes.float32).numpy
        strides = self.step * dtype.itemsize, dtype.itemsize
        return np.ndarray(self.shape, dtype, self.memory.data, self.start * dtype.itemsize, strides)


class _Workspaces(threading.local):
    """Scratch memory, kept between calls by each caller's thread: (threads, floats), aligned to a cache line.

    Attributes:
        alone: the mailbox of a caller who shares with nobody.
    """

    def __init__(self) -> None:
        self.largest: dict[int, F32Array] = {}
        self.fitting: dict[tuple[int, int, int, int, bool], F32Array] = {}
        self.alone: Words = np.zeros(ROW, np.int64)

    def get(self, count: int, depth: int, rows: int, columns: int, halved: bool) -> F32Array:
        """Return the workspaces of ``count`` threads for a product of this size."""
        key = count, depth, rows, columns, halved
        found = self.fitting.get(key)
        if found is None:
            found = self.fitting[key] = self._large(count, workspace_size(depth, rows, columns, halved))
        return found

    def _large(self, count: int, size: int) -> F32Array:
        work = self.largest.get(count)
        if work is None or work.shape[1] < size:
            self.fitting.clear()  # or the smaller one would stay
            # NumPy asks for huge pages from 4 MiB on; with small pages, unlucky ones collide in the L2 cache
            raw = np.empty(max(count * size + _HUGE_PAGE, 2 * _HUGE_PAGE), np.float32)
            raw.fill(0.0)
            skip = -raw.ctypes.data % (4 * _HUGE_PAGE) // 4
            work = self.largest[count] = raw[skip : skip + count * size].reshape(count, size)
        return work


_workspaces = _Workspaces()


def _rows(array: Array, coded: bool) -> Rows | None:
    """Return a matrix of float32, or of codes, as it lies in memory.

    None where elements of a row are not side by side, or the array is not writeable: no kernel is compiled for that.
    """
    flags, size, shape = array.flags, array.itemsize, (array.shape[0], array.shape[1])
    if flags.carray:
        return Rows(array.reshape(-1).view(np.uint8), 0, shape[1], coded, shape)
    step, rest = divmod(array.strides[0], size)
    if array.strides[1] != size or step < shape[1] or rest or not flags.aligned or not flags.writeable:
        return None
    span = (shape[0] - 1) * step + shape[1] if array.size else 0
    flat = np.lib.stride_tricks.as_strided(array, (span,), (size,))
    return Rows(flat.view(np.uint8), 0, step, coded, shape)


def _operand(array: Array, dtype: DType) -> Rows:
    """Return an operand, converted to float32 unless it is bfloat16, and copied only where needed."""
    coded = dtype == dtypes.bfloat16
    numbers = array.view(np.uint16) if coded else widen(array, dtype)
    found = _rows(numbers, coded) or _rows(numbers.copy(), coded)
    assert found is not None, "a copy is contiguous"
    return found


def _is_long(dtype: DType) -> bool:
    """Return whether elements may have more than 12 significant bits, one of which no format stores."""
    return not dtype.is_float or dtype.mantissa_bits > 11


def _widened(operand: Array | Rows, dtype: DType) -> Array:
    array = operand.elements() if isinstance(operand, Rows) else operand
    return array if wide.is_wide(array) else widen(array, dtype)


def _multiply(
    words: Words | None, out: Rows, left: Rows, right: Rows, left_halved: bool, right_halved: bool, overwrite: bool
) -> int:
    """Multiply, together with the threads of a mailbox; return how many took part."""
    memory, at, stride, _, (rows, columns) = out
    first, first_at, first_step, first_coded, (depth, _) = left
    second, second_at, second_step, second_coded, _ = right
    count = 1 if words is None else words.size // ROW
    work = _workspaces.get(count, depth, rows, columns, left_halved or right_halved)
    return multiply(
        first, first_at, first_step, first_coded, second, second_at, second_step, second_coded, memory, at, stride,
        depth, rows, columns, left_halved, right_halved, overwrite, work, _workspaces.alone if words is None else words,
        0,
    )  # fmt: skip


#: What a thread hands over that waits for tasks. As long as it takes for a call to let Python's other threads run.
_NOTHING: Final = np.zeros(SHARED_FROM, np.uint8)
_NO_WORK: Final = np.zeros((1, 1), np.float32)


def _serve(words: Words, me: int) -> None:
    """Do tasks of callers until there are none for a while."""
    nothing = _NOTHING, 0, 0, False
    multiply(*nothing, *nothing, *nothing[:3], 0, 0, 0, False, False, False, _NO_WORK, words, me)


def matmul_into(
    psum: F32Array | Rows,
    stationary: Array | Rows,
    stationary_dtype: DType,
    moving: Array | Rows,
    moving_dtype: DType,
    passes: int,
    overwrite: bool,
) -> None:
    """Multiply as ``nc_matmul`` does: psum = or += stationary.T @ moving.

    Args:
        psum: float32 (M, N), the destination; rows may be apart from each other.
        stationary: (K, M) elements of ``stationary_dtype.numpy``, any strides.
        stationary_dtype: format of ``stationary``.
        moving: (K, N) elements of ``moving_dtype.numpy``, any strides.
        moving_dtype: format of ``moving``.
        passes: 1, or 4 for float32 operands at full precision.
        overwrite: replace what psum holds instead of adding to it.

    With a psum of float64 nothing rounds to float32, and operands may be float64, too.
    """
    if passes != 1 and passes != 4:
        raise ValueError(f"matmul: {passes} passes; 1 or 4 are known")
    (depth, rows), (moving_depth, columns) = stationary.shape, moving.shape
    if moving_depth != depth or psum.shape != (rows, columns):
        shapes = f"stationary {stationary.shape}, moving {moving.shape}, psum {psum.shape}"
        raise ValueError(f"matmul: (K, M), (K, N) and (M, N) are needed, not {shapes}")
    out: Rows | None
    if isinstance(psum, Rows):
        out = psum
    elif wide.is_wide(psum):
        wide.matmul_into(psum, _widened(stationary, stationary_dtype), _widened(moving, moving_dtype), overwrite)
        return
    else:
        out = _rows(psum, False)
        if out is None:
            whole = psum.copy()
            matmul_into(whole, stationary, stationary_dtype, moving, moving_dtype, passes, overwrite)
            psum[...] = whole
            return
    left = stationary if isinstance(stationary, Rows) else _operand(stationary, stationary_dtype)
    right = moving if isinstance(moving, Rows) else _operand(moving, moving_dtype)
    left_halved, right_halved = passes == 4 and _is_long(stationary_dtype), passes == 4 and _is_long(moving_dtype)
    work = depth * rows * columns << (left_halved + right_halved)
    pool.run(work, _serve, _multiply, out, left, right, left_halved, right_halved, overwrite)


def accumulate_into(psum: F32Array, stationary: F32Array, moving: F32Array, passes: int, overwrite: bool) -> None:
    """Do as :func:`matmul_into` with operands that are float32 arrays."""
    matmul_into(psum, stationary, dtypes.float32, moving, dtypes.float32, passes, overwrite)


def matmul(stationary: F32Array, moving: F32Array, passes: int) -> F32Array:
    """Return float32 (M, N): ``stationary.T @ moving`` for float32 (K, M) and (K, N), in 1 or 4 passes."""
    out = np.empty((stationary.shape[1], moving.shape[1]), np.float32)
    accumulate_into(out, stationary, moving, passes, True)
    return out
