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
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from neurosim import dtypes, jit
from neurosim.dtypes import DType
from neurosim.jit import SUM_COLUMNS, SUM_ROWS, compiled, inlined, parallel, prange
from neurosim.numerics import wide
from neurosim.numerics.convert import widen

Array = NDArray[Any]
F32Array = NDArray[np.float32]
U16Array = NDArray[np.uint16]
U32Array = NDArray[np.uint32]
_Seen: TypeAlias = tuple[np.uint32, np.uint32, np.uint32]
"""What an operand holds: bits that one element or another has set; the least magnitude but 0, less 1; the largest.

Magnitudes are bits of float32. Where all elements are 0, the second number is 2**32 - 1."""

_NAN: Final = np.float32(np.nan)
_ZERO: Final = np.float32(0.0)
_U16: Final = np.uint32(16)

_Operand: TypeAlias = tuple[F32Array, U16Array, bool, int]
"""Numbers, or else bfloat16 codes, as one axis; whether it is codes; how many lie from one k to the next."""

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


_pack_rows = jit.packing_kernel(SUM_ROWS, coded=False)
_pack_coded_rows = jit.packing_kernel(SUM_ROWS, coded=True)
_pack_columns = jit.packing_kernel(SUM_COLUMNS, coded=False)
_pack_coded_columns = jit.packing_kernel(SUM_COLUMNS, coded=True)


@compiled
def _pack(operand: _Operand, depth: int, first: int, last: int, block: int, out: F32Array) -> _Seen:
    """Copy columns of an operand to ``out``, ``block`` of them after each other, zeros where there are no more.

    A block has what the kernel of products reads in its order: ``out[place + k * block + n]``, where the next place is
    ``_step`` further: what is read again is side by side, in fewer lines of the cache. ``block`` is ``SUM_ROWS`` or
    ``SUM_COLUMNS``. Returns what the columns hold.
    """
    single, codes, coded, stride = operand
    step, blocks = _step(depth, block), (last - first) // block
    if coded and block == SUM_ROWS:
        seen, least, most = _pack_coded_rows(codes, first, stride, depth, blocks, out, 0, step)
    elif coded:
        seen, least, most = _pack_coded_columns(codes, first, stride, depth, blocks, out, 0, step)
    elif block == SUM_ROWS:
        seen, least, most = _pack_rows(single, first, stride, depth, blocks, out, 0, step)
    else:
        seen, least, most = _pack_columns(single, first, stride, depth, blocks, out, 0, step)
    rest = last - first - blocks * block
    if rest:
        for k in range(depth):
            at, place = k * stride + last - rest, blocks * step + k * block
            for n in range(block):
                if n >= rest:
                    out[place + n] = _ZERO
                elif coded:
                    out[place + n] = np.uint32(np.uint32(codes[at + n]) << _U16).view(np.float32)
                else:
                    out[place + n] = single[at + n]
                seen, least, most = _seen_too(_bits(out[place + n]), seen, least, most)
    return seen, least, most


@compiled
def _halve(values: F32Array, size: int, finite: bool) -> int:
    """Leave the 12 leading significant bits of the first ``size`` values, and all of Inf and NaN, where they are.

    The rest goes to the ``size`` values that follow. Unless all are ``finite``, the leading bits with 0 in place of Inf
    and NaN go to those after that. Returns where those begin.
    """
    for i in range(size):
        bits = _bits(values[i])
        top = np.uint32(bits & _HIGH).view(np.float32)
        whole = np.uint32(bits & _EXPONENT) == _EXPONENT
        values[size + i] = _ZERO if whole else values[i] - top
        values[i] = values[i] if whole else top
    if finite:
        return 0
    for i in range(size):
        whole = np.uint32(_bits(values[i]) & _EXPONENT) == _EXPONENT
        values[2 * size + i] = _ZERO if whole else values[i]
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


_multiply_tile = jit.products_kernel(exact=False)
_multiply_exact_tile = jit.products_kernel(exact=True)


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


@compiled
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
    stationary: _Operand,
    moving: _Operand,
    depth: int,
    halved: tuple[bool, bool],
    out: F32Array,
    stride: int,
    rows: tuple[int, int],
    columns: tuple[int, int],
    overwrite: bool,
    work: F32Array,
) -> None:
    """Compute rows x columns of the result.

    Args:
        stationary: (K, M).
        moving: (K, N).
        depth: K.
        halved: for each operand, whether it is multiplied in halves; if one is, the other has no more than 12
            significant bits.
        out: the destination, flat.
        stride: floats from one row of the destination to the next.
        rows: first row, and the one after the last.
        columns: first column, and the one after the last.
        overwrite: store instead of adding.
        work: the workspace of this thread.
    """
    several = halved[0] or halved[1]
    parts = 3 if several else 1
    size, area = _sizes(depth, rows[1] - rows[0], columns[1] - columns[0], parts)
    slab_at = _SUMS + parts * size
    sums, weights, slab = work[:_SUMS], work[_SUMS:slab_at], work[slab_at:]
    seen = _pack(stationary, depth, rows[0], rows[1], int(SUM_ROWS), weights)
    finite = _halve(weights, size, bool(seen[2] < _EXPONENT)) if several else 0
    wide = _slab(depth, columns[1] - columns[0], parts) * SUM_COLUMNS
    for first in range(columns[0], columns[1], wide):
        last = min(first + wide, columns[1])
        slab_seen = _pack(moving, depth, first, last, int(SUM_COLUMNS), slab)
        slab_finite = _halve(slab, area, bool(slab_seen[2] < _EXPONENT)) if several else 0
        exact = products_are_exact(seen, slab_seen, several)
        for n in range(first, last, SUM_COLUMNS):
            right = (n - first) // SUM_COLUMNS * _step(depth, SUM_COLUMNS)
            for m in range(rows[0], rows[1], SUM_ROWS):
                store = overwrite
                left = (m - rows[0]) // SUM_ROWS * _step(depth, SUM_ROWS)
                for index in range(0 if several else 3, 4):
                    low, slab_low = index < 2, index % 2 == 0
                    if low > halved[0] or slab_low > halved[1]:
                        continue  # the lower half is 0, and so are all products
                    left_at = left + (size if low else 0 if index == 3 else finite)
                    places = left_at, right + (area if slab_low else 0 if index == 3 else slab_finite)
                    part = min(SUM_ROWS, rows[1] - m), min(SUM_COLUMNS, last - n)
                    _multiply_block(weights, slab, places, depth, exact, out, m * stride + n, stride, part, store, sums)
                    store = False


@parallel
def _tiles(
    stationary: _Operand,
    moving: _Operand,
    depth: int,
    halved: tuple[bool, bool],
    out: F32Array,
    stride: int,
    shape: tuple[int, int],
    overwrite: bool,
    work: F32Array,
) -> None:
    """Compute the result with one thread for each row of ``work``; a thread has a block of rows or of columns."""
    count = work.shape[0]
    rows, columns = shape
    by_rows = columns < SUM_COLUMNS * count
    tall = -(rows // (-SUM_ROWS * count)) * SUM_ROWS if by_rows else rows
    wide = columns if by_rows else -(columns // (-SUM_COLUMNS * count)) * SUM_COLUMNS
    for t in prange(count):
        m = t * tall if by_rows else 0
        n = 0 if by_rows else t * wide
        block = (min(m, rows), min(m + tall, rows))
        part = (min(n, columns), min(n + wide, columns))
        _tile(stationary, moving, depth, halved, out, stride, block, part, overwrite, work[t])


class _Workspaces(threading.local):
    """Scratch memory, kept between calls by each caller's thread: (threads, floats), aligned to a cache line."""

    def __init__(self) -> None:
        self.arrays: dict[int, F32Array] = {}

    def get(self, count: int, sizes: tuple[int, int, int], parts: int) -> F32Array:
        size = _SUMS + parts * sum(_sizes(*sizes, parts))
        work = self.arrays.get(count)
        if work is None or work.shape[1] < size:
            # NumPy asks for huge pages from 4 MiB on; with small pages, unlucky ones collide in the L2 cache
            raw = np.empty(max(count * size + _HUGE_PAGE, 2 * _HUGE_PAGE), np.float32)
            raw.fill(0.0)
            skip = -raw.ctypes.data % (4 * _HUGE_PAGE) // 4
            work = self.arrays[count] = raw[skip : skip + count * size].reshape(count, size)
        return work


_workspaces = _Workspaces()
_NO_CODES: Final[U16Array] = np.zeros(1, np.uint16)
_NO_SINGLES: Final[F32Array] = np.zeros(1, np.float32)


def _flat(rows: Array) -> tuple[Array, int] | None:
    """Return the memory of an array as one axis, and how many elements lie from one row to the next.

    None where kernels are not compiled for it: elements of a row are not side by side, or the array is not writeable.
    """
    flags, size = rows.flags, rows.itemsize
    if flags.carray:
        return rows.reshape(-1), rows.shape[1]
    step, rest = divmod(rows.strides[0], size)
    if rows.strides[1] != size or step < rows.shape[1] or rest or not flags.aligned or not flags.writeable:
        return None
    span = (rows.shape[0] - 1) * step + rows.shape[1] if rows.size else 0
    return np.lib.stride_tricks.as_strided(rows, (span,), (size,)), step


def _operand(array: Array, dtype: DType) -> _Operand:
    """Return an operand, converted to float32 unless it is bfloat16, and copied only where needed."""
    coded = dtype == dtypes.bfloat16
    rows = array.view(np.uint16) if coded else widen(array, dtype)
    numbers: Any
    numbers, stride = _flat(rows) or (rows.copy().reshape(-1), rows.shape[1])
    return (_NO_SINGLES, numbers, True, stride) if coded else (numbers, _NO_CODES, False, stride)


def _is_long(dtype: DType) -> bool:
    """Return whether elements may have more than 12 significant bits, one of which no format stores."""
    return not dtype.is_float or dtype.mantissa_bits > 11


def _widened(array: Array, dtype: DType) -> Array:
    return array if wide.is_wide(array) else widen(array, dtype)


def _multiply(
    destination: tuple[F32Array, int],
    left: _Operand,
    right: _Operand,
    sizes: tuple[int, int, int],
    halved: tuple[bool, bool],
    overwrite: bool,
) -> None:
    """Multiply on as many threads as pay; ``sizes`` are K, M and N."""
    out, stride = destination
    depth, rows, columns = sizes
    get, parts = _workspaces.get, 3 if any(halved) else 1

    def many(count: int) -> None:
        work = get(count, sizes, parts)
        _tiles(left, right, depth, halved, out, stride, (rows, columns), overwrite, work)

    def one() -> None:
        work = get(1, sizes, parts)[0]
        _tile(left, right, depth, halved, out, stride, (0, rows), (0, columns), overwrite, work)

    jit.run(depth * rows * columns << sum(halved), many, one)


def matmul_into(
    psum: F32Array,
    stationary: Array,
    stationary_dtype: DType,
    moving: Array,
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
    if passes not in (1, 4):
        raise ValueError(f"matmul: {passes} passes; 1 or 4 are known")
    (depth, rows), columns = stationary.shape, moving.shape[1]
    if moving.shape[0] != depth or psum.shape != (rows, columns):
        shapes = f"stationary {stationary.shape}, moving {moving.shape}, psum {psum.shape}"
        raise ValueError(f"matmul: (K, M), (K, N) and (M, N) are needed, not {shapes}")
    if wide.is_wide(psum):
        wide.matmul_into(psum, _widened(stationary, stationary_dtype), _widened(moving, moving_dtype), overwrite)
        return
    destination = _flat(psum)
    if destination is None:
        whole = psum.copy()
        matmul_into(whole, stationary, stationary_dtype, moving, moving_dtype, passes, overwrite)
        psum[...] = whole
        return
    halved = passes == 4 and _is_long(stationary_dtype), passes == 4 and _is_long(moving_dtype)
    operands = _operand(stationary, stationary_dtype), _operand(moving, moving_dtype)
    _multiply(destination, *operands, (depth, rows, columns), halved, overwrite)


def accumulate_into(psum: F32Array, stationary: F32Array, moving: F32Array, passes: int, overwrite: bool) -> None:
    """Do as :func:`matmul_into` with operands that are float32 arrays."""
    matmul_into(psum, stationary, dtypes.float32, moving, dtypes.float32, passes, overwrite)


def matmul(stationary: F32Array, moving: F32Array, passes: int) -> F32Array:
    """Return float32 (M, N): ``stationary.T @ moving`` for float32 (K, M) and (K, N), in 1 or 4 passes."""
    out = np.empty((stationary.shape[1], moving.shape[1]), np.float32)
    accumulate_into(out, stationary, moving, passes, True)
    return out
