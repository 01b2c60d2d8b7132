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
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from neurosim import dtypes, pool
from neurosim.compiling.blocks import SUM_COLUMNS, SUM_ROWS, packing_kernel, products_kernel
from neurosim.dtypes import DType
from neurosim.jit import compiled, inlined, parallel, prange, whole_registers
from neurosim.numerics import wide
from neurosim.numerics.convert import widen

Array = NDArray[Any]
F32Array = NDArray[np.float32]
Bytes = NDArray[np.uint8]
_Seen: TypeAlias = tuple[np.uint32, np.uint32, np.uint32]
"""What an operand holds: bits that one element or another has set; the least magnitude but 0, less 1; the largest.

Magnitudes are bits of float32. Where all elements are 0, the second number is 2**32 - 1."""

_NAN: Final = np.float32(np.nan)
_ZERO: Final = np.float32(0.0)
_U16: Final = np.uint32(16)
_signed: Any = np.int64
"""Iterations of a parallel loop are counted without a sign: functions would be compiled once more for them."""

_Operand: TypeAlias = tuple[Bytes, int, int, bool]
"""Memory; the element of it where the operand begins; how many lie from one k to the next; whether they are codes of
bfloat16, else float32."""


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


#: Floats that blocks of columns are apart at most: a cache line or two, or all would use the same sets of a cache.
_GAP: Final = 32
#: Floats of the columns that are packed at once, which stay in a cache of 1 MiB beside what else a product reads. Rows
#: that are long are fetched ahead of their use.
_SLAB: Final = 1 << 16 | 1 << 13
#: Floats of the sums, which come first in a workspace.
_SUMS: Final = 512
#: Floats in a huge page of memory (2 MiB).
_HUGE_PAGE: Final = 1 << 19
#: Mask of the sign, the exponent and the 11 leading mantissa bits of a float32.
_HIGH: Final = np.uint32(0xFFFFF000)
_EXPONENT: Final = np.uint32(0x7F800000)
_MAGNITUDE: Final = np.uint32(0x7FFFFFFF)
_FRACTION: Final = np.uint32(0x007FFFFF)
_UNIT: Final = np.uint32(1)
_NONE: Final = np.uint32(0)
_ALL: Final = np.uint32(0xFFFFFFFF)


@inlined
def _bits(value: np.float32) -> np.uint32:
    return np.float32(value).view(np.uint32)


@inlined
def _seen_too(bits: np.uint32, seen: np.uint32, least: np.uint32, most: np.uint32) -> _Seen:
    magnitude = np.uint32(bits & _MAGNITUDE)
    below = np.uint32(magnitude - _UNIT)  # of 0 the largest number
    return np.uint32(seen | bits), below if below < least else least, magnitude if magnitude > most else most


_pack_rows = packing_kernel(SUM_ROWS, coded=False)
_pack_coded_rows = packing_kernel(SUM_ROWS, coded=True)
_pack_columns = packing_kernel(SUM_COLUMNS, coded=False)
_pack_coded_columns = packing_kernel(SUM_COLUMNS, coded=True)


@compiled
def _pack(operand: _Operand, depth: int, columns: int, block: int, out: F32Array) -> _Seen:
    """Copy the first columns of an operand to ``out``, ``block`` after each other, zeros where there are no more.

    A block has what the kernel of products reads in its order: ``out[place + k * block + n]``, where the next place is
    ``_step`` further: what is read again is side by side, in fewer lines of the cache. ``block`` is ``SUM_ROWS`` or
    ``SUM_COLUMNS``. Returns what the columns hold.
    """
    memory, at, stride, coded = operand
    codes, single = memory[: memory.size // 2 * 2].view(np.uint16), memory[: memory.size // 4 * 4].view(np.float32)
    step, blocks = _step(depth, block), columns // block
    if coded and block == SUM_ROWS:
        seen, least, most = _pack_coded_rows(codes, at, stride, depth, blocks, out, 0, step)
    elif coded:
        seen, least, most = _pack_coded_columns(codes, at, stride, depth, blocks, out, 0, step)
    elif block == SUM_ROWS:
        seen, least, most = _pack_rows(single, at, stride, depth, blocks, out, 0, step)
    else:
        seen, least, most = _pack_columns(single, at, stride, depth, blocks, out, 0, step)
    rest = columns - blocks * block
    if rest:
        for k in range(depth):
            line, place = at + k * stride + blocks * block, blocks * step + k * block
            for n in range(block):
                if n >= rest:
                    out[place + n] = _ZERO
                elif coded:
                    out[place + n] = np.uint32(np.uint32(codes[line + n]) << _U16).view(np.float32)
                else:
                    out[place + n] = single[line + n]
                seen, least, most = _seen_too(_bits(out[place + n]), seen, least, most)
    return seen, least, most


@compiled
def _halve(values: F32Array, size: int, finite: bool) -> int:
    """Leave the 12 leading significant bits of the first ``size`` values, and all of Inf and NaN, where they are.

    The rest goes to the ``size`` values that follow. Unless all are ``finite``, the leading bits with 0 in place of Inf
    and NaN go to those after that. Returns where those begin.
    """
    whole_registers()
    top, rest, apart = values[:size], values[size : 2 * size], values[2 * size :]
    for i in range(size):
        value = top[i]  # read in any case, so that LLVM chooses among numbers, and need not mask what it stores
        high = np.uint32(_bits(value) & _HIGH).view(np.float32)
        whole = np.uint32(_bits(value) & _EXPONENT) == _EXPONENT
        rest[i] = _ZERO if whole else value - high
        top[i] = value if whole else high
    if finite:
        return 0
    for i in range(size):
        whole = np.uint32(_bits(top[i]) & _EXPONENT) == _EXPONENT
        apart[i] = _ZERO if whole else top[i]
    return 2 * size


@inlined
def _least_bit(seen: _Seen) -> tuple[int, int]:
    """Return how many significant bits elements have at most, and the exponent of the least of them."""
    fraction, spare = int(seen[0] & _FRACTION), 0
    while spare < 23 and not (fraction >> spare) & 1:
        spare += 1
    exponent = int(np.uint32(seen[1] + _UNIT)) >> 23
    return 24 - spare, max(exponent, 1) - 150 + spare  # denormals have the bits of numbers whose exponent field is 1


@inlined
def products_are_exact(left: _Seen, right: _Seen, halved: bool) -> bool:
    """Return whether float32 holds each product of two elements, which may be 0.

    Args:
        left: what the one operand holds.
        right: what the other one does.
        halved: whether no factor has more than 12 significant bits, because longer ones are multiplied in halves.
    """
    if left[2] >= _EXPONENT or right[2] >= _EXPONENT:
        return False
    if left[2] == _NONE or right[2] == _NONE:
        return True
    digits, least = _least_bit(left)
    more_digits, other_least = _least_bit(right)
    # a magnitude with the exponent field e is below 2**(e - 126)
    bound = (int(left[2]) >> 23) + (int(right[2]) >> 23) - 252
    return bool((halved or digits + more_digits <= 24) and least + other_least >= -149 and bound <= 128)


_multiply_tile = products_kernel(exact=False)
_multiply_exact_tile = products_kernel(exact=True)


@inlined
def _step(depth: int, block: int) -> int:
    """Return how many floats lie from the place of one block of columns to the next one's."""
    return depth * block // 16 * 16 + _GAP


@inlined
def _slab(depth: int, columns: int, parts: int) -> int:
    """Return how many blocks of columns are packed at once."""
    return max(min(-(columns // -SUM_COLUMNS), _SLAB // (parts * _step(depth, SUM_COLUMNS))), 1)


@inlined
def _sizes(depth: int, rows: int, columns: int, parts: int) -> tuple[int, int]:
    """Return the floats of weights and of a slab."""
    weights = -(rows // -SUM_ROWS) * _step(depth, SUM_ROWS)
    return weights, _slab(depth, columns, parts) * _step(depth, SUM_COLUMNS)


@inlined
def _multiply_block(
    weights: F32Array, panel: F32Array, places: tuple[int, int], depth: int, exact: bool, out: F32Array, at: int,
    stride: int, size: tuple[int, int], overwrite: bool, sums: F32Array,
) -> None:  # fmt: skip
    """Store a tile of sums of the blocks at ``places``, or add it to the destination; the kernel says what is where.

    ``size`` is how many rows and columns of it there are. ``sums`` is where a tile with fewer columns is made.
    """
    left, right = places
    rows, columns = size
    if columns < SUM_COLUMNS:
        whole, start, pitch, store = sums, 0, int(SUM_COLUMNS), True
    else:
        whole, start, pitch, store = out, at, stride, overwrite
    if exact:
        _multiply_exact_tile(weights, left, panel, right, depth, whole, start, pitch, rows, store)
    else:
        _multiply_tile(weights, left, panel, right, depth, whole, start, pitch, rows, store)
    if columns < SUM_COLUMNS:
        for m in range(rows):
            for n in range(columns):
                y = sums[m * SUM_COLUMNS + n]
                if not overwrite:
                    y += out[at + m * stride + n]
                out[at + m * stride + n] = y if y == y else _NAN


@compiled
def _tile(
    left: Bytes, left_at: int, left_step: int, left_coded: bool,
    right: Bytes, right_at: int, right_step: int, right_coded: bool,
    memory: Bytes, at: int, stride: int,
    depth: int, rows: int, columns: int, left_halved: bool, right_halved: bool, overwrite: bool,
    work: NDArray[np.float32], part: int,
) -> None:  # fmt: skip
    """Compute rows x columns of sums.

    Numbers one by one: a tuple takes several times as long to hand over.

    Args:
        left, left_at, left_step, left_coded: the stationary operand (K, M), see :class:`Rows`.
        right, right_at, right_step, right_coded: the moving one (K, N).
        memory, at, stride: the destination, which is float32.
        depth, rows, columns: K, M and N.
        left_halved, right_halved: whether the operand is multiplied in halves; if one is, the other has no more than 12
            significant bits.
        overwrite: store instead of adding.
        work: workspaces.
        part: which of them is this thread's.
    """
    out = memory[: memory.size // 4 * 4].view(np.float32)
    several = left_halved or right_halved
    parts = 3 if several else 1
    size, area = _sizes(depth, rows, columns, parts)
    slab_at = _SUMS + parts * size
    sums, weights, slab = work[part, :_SUMS], work[part, _SUMS:slab_at], work[part, slab_at:]
    seen = _pack((left, left_at, left_step, left_coded), depth, rows, int(SUM_ROWS), weights)
    finite = _halve(weights, size, bool(seen[2] < _EXPONENT)) if several else 0
    wide = _slab(depth, columns, parts) * SUM_COLUMNS
    for first in range(0, columns, wide):
        last = min(first + wide, columns)
        moving = right, right_at + first, right_step, right_coded
        slab_seen = _pack(moving, depth, last - first, int(SUM_COLUMNS), slab)
        slab_finite = _halve(slab, area, bool(slab_seen[2] < _EXPONENT)) if several else 0
        exact = products_are_exact(seen, slab_seen, several)
        for n in range(first, last, SUM_COLUMNS):
            panel = (n - first) // SUM_COLUMNS * _step(depth, SUM_COLUMNS)
            for m in range(0, rows, SUM_ROWS):
                store = overwrite
                block = m // SUM_ROWS * _step(depth, SUM_ROWS)
                for index in range(0 if several else 3, 4):
                    low, slab_low = index < 2, index % 2 == 0
                    if low > left_halved or slab_low > right_halved:
                        continue  # the lower half is 0, and so are all products
                    block_at = block + (size if low else 0 if index == 3 else finite)
                    places = block_at, panel + (area if slab_low else 0 if index == 3 else slab_finite)
                    extent = min(SUM_ROWS, rows - m), min(SUM_COLUMNS, last - n)
                    _multiply_block(
                        weights, slab, places, depth, exact, out, at + m * stride + n, stride, extent, store, sums
                    )
                    store = False


@parallel
def _tiles(
    left: Bytes, left_at: int, left_step: int, left_coded: bool,
    right: Bytes, right_at: int, right_step: int, right_coded: bool,
    memory: Bytes, at: int, stride: int,
    depth: int, rows: int, columns: int, left_halved: bool, right_halved: bool, overwrite: bool,
    work: NDArray[np.float32],
) -> None:  # fmt: skip
    """Do as :func:`_tile` with one thread for each row of ``work``; a thread has a block of rows or of columns."""
    count = work.shape[0]
    by_rows = columns < SUM_COLUMNS * count
    tall = -(rows // (-SUM_ROWS * count)) * SUM_ROWS if by_rows else rows
    wide = columns if by_rows else -(columns // (-SUM_COLUMNS * count)) * SUM_COLUMNS
    for t in prange(count):
        m = min(t * tall, rows) if by_rows else 0
        n = 0 if by_rows else min(t * wide, columns)
        _tile(
            left, left_at + m, left_step, left_coded, right, right_at + n, right_step, right_coded,
            memory, at + m * stride + n, stride, depth, min(tall, rows - m), min(wide, columns - n),
            left_halved, right_halved, overwrite, work, _signed(t),
        )  # fmt: skip


class _Workspaces(threading.local):
    """Scratch memory, kept between calls by each caller's thread: (threads, floats), aligned to a cache line."""

    def __init__(self) -> None:
        self.largest: dict[int, F32Array] = {}
        self.fitting: dict[tuple[int, int, int, int, int], F32Array] = {}

    def get(self, count: int, depth: int, rows: int, columns: int, parts: int) -> F32Array:
        """Return the workspaces of ``count`` threads for a product of this size."""
        key = count, depth, rows, columns, parts
        found = self.fitting.get(key)
        if found is None:
            found = self.fitting[key] = self._large(count, _SUMS + parts * sum(_sizes(depth, rows, columns, parts)))
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
    count: int, out: Rows, left: Rows, right: Rows, left_halved: bool, right_halved: bool, overwrite: bool
) -> None:
    """Multiply on ``count`` threads."""
    memory, at, stride, _, (rows, columns) = out
    first, first_at, first_step, first_coded, (depth, _) = left
    second, second_at, second_step, second_coded, _ = right
    work = _workspaces.get(count, depth, rows, columns, 3 if left_halved or right_halved else 1)
    if count == 1:
        _tile(
            first, first_at, first_step, first_coded, second, second_at, second_step, second_coded, memory, at, stride,
            depth, rows, columns, left_halved, right_halved, overwrite, work, 0,
        )  # fmt: skip
    else:
        _tiles(
            first, first_at, first_step, first_coded, second, second_at, second_step, second_coded, memory, at, stride,
            depth, rows, columns, left_halved, right_halved, overwrite, work,
        )  # fmt: skip


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
    pool.run(work, _tiles, _multiply, out, left, right, left_halved, right_halved, overwrite)


def accumulate_into(psum: F32Array, stationary: F32Array, moving: F32Array, passes: int, overwrite: bool) -> None:
    """Do as :func:`matmul_into` with operands that are float32 arrays."""
    matmul_into(psum, stationary, dtypes.float32, moving, dtypes.float32, passes, overwrite)


def matmul(stationary: F32Array, moving: F32Array, passes: int) -> F32Array:
    """Return float32 (M, N): ``stationary.T @ moving`` for float32 (K, M) and (K, N), in 1 or 4 passes."""
    out = np.empty((stationary.shape[1], moving.shape[1]), np.float32)
    accumulate_into(out, stationary, moving, passes, True)
    return out
