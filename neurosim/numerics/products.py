"""Compiled products of a tile: blocks of both operands are packed, halved where they are long, and multiplied.

What is computed, in which order, is told in :mod:`neurosim.numerics.matmul`.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from neurosim.compiling.blocks import SUM_COLUMNS, SUM_ROWS, packing_kernel, products_kernel
from neurosim.compiling.mailbox import (
    AWAY,
    BUSY,
    READY,
    ROW,
    TAKEN,
    TASK,
    Words,
    address_of,
    load,
    memory_at,
    store,
    take,
    wait_for_others,
    wait_for_task,
)
from neurosim.jit import compiled, inlined, whole_registers

F32Array = NDArray[np.float32]
Bytes = NDArray[np.uint8]
_Seen: TypeAlias = tuple[np.uint32, np.uint32, np.uint32]
"""What an operand holds: bits that one element or another has set; the least magnitude but 0, less 1; the largest.

Magnitudes are bits of float32. Where all elements are 0, the second number is 2**32 - 1."""

_NAN: Final = np.float32(np.nan)
_ZERO: Final = np.float32(0.0)
_U16: Final = np.uint32(16)

_Operand: TypeAlias = tuple[Bytes, int, int, bool]
"""Memory; the element of it where the operand begins; how many lie from one k to the next; whether they are codes of
bfloat16, else float32."""


#: Floats that blocks of columns are apart at most: a cache line or two, or all would use the same sets of a cache.
_GAP: Final = 32
#: Floats of the columns that are packed at once, which stay in a cache of 1 MiB beside what else a product reads. Rows
#: that are long are fetched ahead of their use.
_SLAB: Final = 1 << 16 | 1 << 13
#: Floats of the sums, which come first in a workspace.
_SUMS: Final = 512
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


@inlined
def _tile(
    left: _Operand, right: _Operand, out: F32Array, at: int, stride: int, depth: int, rows: int, columns: int,
    left_halved: bool, right_halved: bool, overwrite: bool, work: F32Array,
) -> None:  # fmt: skip
    """Compute rows x columns of sums; :func:`multiply` says of what. ``work`` is as large as a workspace has to be."""
    several = left_halved or right_halved
    parts = 3 if several else 1
    size, area = _sizes(depth, rows, columns, parts)
    slab_at = _SUMS + parts * size
    sums, weights, slab = work[:_SUMS], work[_SUMS:slab_at], work[slab_at:]
    seen = _pack(left, depth, rows, int(SUM_ROWS), weights)
    finite = _halve(weights, size, bool(seen[2] < _EXPONENT)) if several else 0
    wide = _slab(depth, columns, parts) * SUM_COLUMNS
    for first in range(0, columns, wide):
        last = min(first + wide, columns)
        moving = right[0], right[1] + first, right[2], right[3]
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


def workspace_size(depth: int, rows: int, columns: int, halved: bool) -> int:
    """Return how many floats a thread needs beside the operands and sums of a product."""
    parts = 3 if halved else 1
    return _SUMS + parts * sum(_sizes(depth, rows, columns, parts))


#: Where a task's words are in its row: five of each operand and of the destination; depth, rows and columns; three
#: flags; address and bytes of the workspace. Then, whose row it is.
_LEFT, _RIGHT, _OUT, _SIZES, _FLAGS, _WORK, _THREAD = 1, 6, 11, 16, 19, 22, 24


@inlined
def _hand_out(
    left: _Operand, right: _Operand, memory: Bytes, at: int, stride: int, size: tuple[int, int, int],
    halved: tuple[bool, bool], overwrite: bool, work: NDArray[np.float32], words: Words,
) -> int:  # fmt: skip
    """Give each thread that is ready a block of rows or of columns, and the caller the first. Returns how many.

    The arguments are those of :func:`multiply`; ``size`` is depth, rows and columns.
    """
    depth, rows, columns = size
    count = 1 + take(words)
    by_rows = columns < SUM_COLUMNS * count
    tall = -(rows // (-SUM_ROWS * count)) * SUM_ROWS if by_rows else rows
    wide = columns if by_rows else -(columns // (-SUM_COLUMNS * count)) * SUM_COLUMNS
    part = count - 1
    for row in range(words.size - ROW, -1, -ROW):
        if row == 0 or load(words, row) == TAKEN:
            m = min(part * tall, rows) if by_rows else 0
            n = 0 if by_rows else min(part * wide, columns)
            _give(words, row + _LEFT, left, m)
            _give(words, row + _RIGHT, right, n)
            _give(words, row + _OUT, (memory, at, stride, False), m * stride + n)
            words[row + _SIZES], words[row + _SIZES + 1] = depth, min(tall, rows - m)
            words[row + _SIZES + 2] = min(wide, columns - n)
            words[row + _FLAGS], words[row + _FLAGS + 1] = halved
            words[row + _FLAGS + 2] = overwrite
            words[row + _WORK] = address_of(work) + 4 * part * work.shape[1]
            words[row + _WORK + 1] = 4 * work.shape[1]
            part -= 1
            if row:
                store(words, row, TASK)
    return count


@inlined
def _give(words: Words, at: int, matrix: _Operand, further: int) -> None:
    """Write down an operand or a destination, from so many elements behind its first on."""
    memory, start, step, coded = matrix
    words[at], words[at + 1], words[at + 2], words[at + 3] = address_of(memory), memory.size, start + further, step
    words[at + 4] = coded


@inlined
def _operand(words: Words, at: int) -> _Operand:
    """Return an operand."""
    memory = memory_at(words[at], words[at + 1])
    return memory, int(words[at + 2]), int(words[at + 3]), bool(words[at + 4])


@inlined
def _do(words: Words, row: int) -> None:
    """Do the task that a row holds."""
    out, sizes, flags, work = row + _OUT, row + _SIZES, row + _FLAGS, row + _WORK
    memory = memory_at(words[out], words[out + 1])
    _tile(
        _operand(words, row + _LEFT), _operand(words, row + _RIGHT),
        memory[: memory.size // 4 * 4].view(np.float32), int(words[out + 2]), int(words[out + 3]),
        int(words[sizes]), int(words[sizes + 1]), int(words[sizes + 2]),
        bool(words[flags]), bool(words[flags + 1]), bool(words[flags + 2]),
        memory_at(words[work], words[work + 1]).view(np.float32),
    )  # fmt: skip


@compiled
def multiply(
    left: Bytes, left_at: int, left_step: int, left_coded: bool,
    right: Bytes, right_at: int, right_step: int, right_coded: bool,
    memory: Bytes, at: int, stride: int,
    depth: int, rows: int, columns: int, left_halved: bool, right_halved: bool, overwrite: bool,
    work: NDArray[np.float32], words: Words, me: int,
) -> int:  # fmt: skip
    """Compute rows x columns of sums, together with the threads that are ready.

    A thread that has this called, with its own number, does tasks of callers until there are none for a while. So both
    have the same machine code, where each part is a task, the caller's own among them.

    Numbers one by one: a tuple takes several times as long to hand over.

    Args:
        left, left_at, left_step, left_coded: the stationary operand (K, M), see :class:`neurosim.numerics.matmul.Rows`.
        right, right_at, right_step, right_coded: the moving one (K, N).
        memory, at, stride: the destination, which is float32.
        depth, rows, columns: K, M and N.
        left_halved, right_halved: whether the operand is multiplied in halves; if one is, the other has no more than 12
            significant bits.
        overwrite: store instead of adding.
        work: a workspace of each who may take part.
        words: the mailbox of the caller and the threads.
        me: the thread's number, 0 of a caller.

    Returns:
        How many took part; -1 if a thread is no longer there, and its part not done; 0 to a thread.
    """
    count = 0
    if me == 0:
        store(words, 0, BUSY)
        count = _hand_out(
            (left, left_at, left_step, left_coded), (right, right_at, right_step, right_coded), memory, at, stride,
            (depth, rows, columns), (left_halved, right_halved), overwrite, work, words,
        )  # fmt: skip
    row = me * ROW
    store(words, row + _THREAD, me)  # and asked for there, or LLVM would have all code twice
    while load(words, row + _THREAD) == 0 or wait_for_task(words, row):
        _do(words, row)
        if load(words, row + _THREAD) == 0:
            alive = wait_for_others(words)
            store(words, 0, AWAY)
            return count if alive else -1
        store(words, row, READY)
    return 0
