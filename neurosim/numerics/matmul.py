"""The tensor engine's arithmetic.

Order of operations, all *assumed* (the manual gives none):

* one pass: every output starts at +0.0 and takes the products of k = 0, 1, 2, ... in this order; each product rounds
  to float32, then each sum rounds. Nothing is fused;
* operands of 16 and 8 bits take one pass over their exact float32 values;
* float32 operands take four passes. An operand splits exactly into ``high`` (its 12 leading significant bits) and
  ``low`` (the rest). Passes in order: low x low, low x high, high x low, high x high (stationary first). An Inf or
  NaN is all ``high``, and counts as 0 outside high x high, so that Inf times a finite number is Inf;
* each pass sums from zero on its own and is then added to the destination; on overwrite the first one is stored;
* a NaN result has one bit pattern, 0x7FC00000.

The bits equal those of the plain triple loop in ``reference.py`` for any number of threads and any blocking.
"""

from __future__ import annotations

import math
import threading
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neurosim import dtypes, jit
from neurosim.dtypes import DType
from neurosim.jit import compiled, inlined, parallel, prange
from neurosim.numerics import wide
from neurosim.numerics.convert import flat, plain, widen

Array = NDArray[Any]
F32Array = NDArray[np.float32]
U16Array = NDArray[np.uint16]
U32Array = NDArray[np.uint32]

_NAN: Final = np.float32(np.nan)
_ZERO: Final = np.float32(0.0)
_U16: Final = np.uint32(16)

#: Columns of a block: the sums of four rows (8 KiB) and four rows of the panel (8 KiB) share 32 KiB of L1 cache.
_BLOCK: Final = 512
#: Floats from one row of the panel to the next: a block and a cache line, so that rows use different cache sets.
_PITCH: Final = _BLOCK + 16
_PITCH_1: Final = np.uint64(_PITCH)
_PITCH_2: Final = np.uint64(2 * _PITCH)
_PITCH_3: Final = np.uint64(3 * _PITCH)
#: Floats of the sums, which come first in a workspace.
_SUMS: Final = 4 * _PITCH
#: log2 of the floats in a cache line.
_LINE_SHIFT: Final = np.uint64(4)
_ONE: Final = np.uint64(1)
_TWO: Final = np.uint64(2)
_THREE: Final = np.uint64(3)
#: Floats in a huge page of memory (2 MiB).
_HUGE_PAGE: Final = 1 << 19
#: Mask of the sign, the exponent and the 11 leading mantissa bits of a float32.
_HIGH: Final = np.uint32(0xFFFFF000)
_EXPONENT: Final = np.uint32(0x7F800000)


@inlined
def _widen(code: np.uint16) -> np.float32:
    return np.uint32(np.uint32(code) << _U16).view(np.float32)


@compiled
def _pack_weights(single: F32Array, codes: U16Array, coded: bool, first: int, last: int, out: F32Array) -> None:
    """Copy rows first ... last of the result, an operand (K, M), to ``out[(m - first) // 4, k, m % 4]``.

    Zeros fill up rows and k to multiples of 4; a cache line keeps groups of rows in different cache sets.
    """
    depth = codes.shape[0] if coded else single.shape[0]
    step = (depth + 3) // 4 * 16 + 16
    whole = (last - first) // 4
    if depth % 4 or (last - first) % 4:
        for i in range((last - first + 3) // 4 * step):
            out[i] = _ZERO
    for k in range(depth):
        for group in range(np.uint64(whole)):
            m = np.uint64(np.uint64(first) + np.uint64(np.uint64(group) << _TWO))
            # four loads before four stores: LLVM makes one of each
            if coded:
                w0, w1 = _widen(codes[k, m]), _widen(codes[k, m + _ONE])
                w2, w3 = _widen(codes[k, m + _TWO]), _widen(codes[k, m + _THREE])
            else:
                w0, w1, w2, w3 = single[k, m], single[k, m + _ONE], single[k, m + _TWO], single[k, m + _THREE]
            at = np.uint64(np.uint64(group) * np.uint64(step) + np.uint64(4 * k))
            out[at], out[at + _ONE], out[at + _TWO], out[at + _THREE] = w0, w1, w2, w3
        for i in range(first + 4 * whole, last):
            out[whole * step + 4 * k + i - first - 4 * whole] = _widen(codes[k, i]) if coded else single[k, i]


@compiled
def _pack_panel(single: F32Array, codes: U16Array, coded: bool, first: int, width: int, out: F32Array) -> None:
    """Copy columns first ... first + width of an operand (K, N) to rows of the panel; fill up with zeros.

    A sum that began at +0.0 is never -0.0, so adding the products of zeros does not change it.
    """
    depth = codes.shape[0] if coded else single.shape[0]
    padded = (width + 15) // 16 * 16
    for k in range(depth):
        row = out[k * _PITCH : k * _PITCH + padded]
        if coded:
            code_row = codes[k, first : first + width]
            for n in range(width):
                row[n] = _widen(code_row[n])
        else:
            values = single[k, first : first + width]
            for n in range(width):
                row[n] = values[n]
        for n in range(width, padded):
            row[n] = _ZERO
    for i in range(depth * _PITCH, (depth + 3) // 4 * 4 * _PITCH):
        out[i] = _ZERO


@compiled
def _multiply_rows(weights: F32Array, at: int, panel: F32Array, depth: int, lines: int, sums: F32Array) -> None:
    """Compute four rows of sums over ``depth`` k (rounded up to 4) and ``lines`` cache lines of columns.

    Unsigned indices and constant distances between rows let LLVM prove that the inner loop vectorises; whole cache
    lines spare it a second loop for the rest, whose scalars would push the vectors out of the registers.
    """
    for i in range(_SUMS):
        sums[i] = _ZERO
    for k in range(0, depth, 4):
        w = at + 4 * k
        w00, w01, w02, w03 = weights[w], weights[w + 1], weights[w + 2], weights[w + 3]
        w10, w11, w12, w13 = weights[w + 4], weights[w + 5], weights[w + 6], weights[w + 7]
        w20, w21, w22, w23 = weights[w + 8], weights[w + 9], weights[w + 10], weights[w + 11]
        w30, w31, w32, w33 = weights[w + 12], weights[w + 13], weights[w + 14], weights[w + 15]
        p = np.uint64(k * _PITCH)
        for i in range(np.uint64(np.uint64(lines) << _LINE_SHIFT)):
            n = np.uint64(i)
            p0 = panel[p + n]
            p1 = panel[p + _PITCH_1 + n]
            p2 = panel[p + _PITCH_2 + n]
            p3 = panel[p + _PITCH_3 + n]
            sums[n] = (((sums[n] + w00 * p0) + w10 * p1) + w20 * p2) + w30 * p3
            sums[_PITCH_1 + n] = (((sums[_PITCH_1 + n] + w01 * p0) + w11 * p1) + w21 * p2) + w31 * p3
            sums[_PITCH_2 + n] = (((sums[_PITCH_2 + n] + w02 * p0) + w12 * p1) + w22 * p2) + w32 * p3
            sums[_PITCH_3 + n] = (((sums[_PITCH_3 + n] + w03 * p0) + w13 * p1) + w23 * p2) + w33 * p3


@compiled
def _store(sums: F32Array, start: int, out: F32Array, at: int, width: int, overwrite: bool) -> None:
    """Store a row of sums, or add it to the destination."""
    values = sums[start : start + width]
    row = out[at : at + width]
    if overwrite:
        for n in range(width):
            y = values[n]
            row[n] = y if y == y else _NAN
    else:
        for n in range(width):
            y = row[n] + values[n]
            row[n] = y if y == y else _NAN


@compiled
def _tile(
    singles: tuple[F32Array, F32Array],
    codes: tuple[U16Array, U16Array],
    coded: tuple[bool, bool],
    out: F32Array,
    stride: int,
    rows: tuple[int, int],
    columns: tuple[int, int],
    overwrite: bool,
    work: F32Array,
) -> None:
    """Compute rows x columns of the result.

    Args:
        singles: stationary (K, M) and moving (K, N).
        codes: bfloat16 codes of the same.
        coded: for each operand, whether its codes count.
        out: the destination, flat.
        stride: floats from one row of the destination to the next.
        rows: first row, and the one after the last.
        columns: first column, and the one after the last.
        overwrite: store instead of adding.
        work: the workspace of this thread.
    """
    depth = codes[0].shape[0] if coded[0] else singles[0].shape[0]
    step = (depth + 3) // 4 * 16 + 16
    size = (rows[1] - rows[0] + 3) // 4 * step
    weights = work[_SUMS : _SUMS + size]
    panel = work[_SUMS + size :]
    _pack_weights(singles[0], codes[0], coded[0], rows[0], rows[1], weights)
    for first in range(columns[0], columns[1], _BLOCK):
        width = min(_BLOCK, columns[1] - first)
        _pack_panel(singles[1], codes[1], coded[1], first, width, panel)
        for m in range(rows[0], rows[1], 4):
            _multiply_rows(weights, (m - rows[0]) // 4 * step, panel, depth, (width + 15) // 16, work)
            for i in range(min(4, rows[1] - m)):
                _store(work, i * _PITCH, out, (m + i) * stride + first, width, overwrite)


@parallel
def _tiles(
    singles: tuple[F32Array, F32Array],
    codes: tuple[U16Array, U16Array],
    coded: tuple[bool, bool],
    out: F32Array,
    stride: int,
    shape: tuple[int, int],
    overwrite: bool,
    work: F32Array,
) -> None:
    """Compute the result with one thread for each row of ``work``; a thread has a block of rows or of columns."""
    count = work.shape[0]
    rows, columns = shape
    by_rows = rows >= 4 * count
    tall = (rows + 4 * count - 1) // (4 * count) * 4 if by_rows else rows
    wide = columns if by_rows else (columns + 16 * count - 1) // (16 * count) * 16
    for t in prange(count):
        m = t * tall if by_rows else 0
        n = 0 if by_rows else t * wide
        block = (min(m, rows), min(m + tall, rows))
        part = (min(n, columns), min(n + wide, columns))
        _tile(singles, codes, coded, out, stride, block, part, overwrite, work[t])


class _Workspaces(threading.local):
    """Scratch memory, kept between calls by each caller's thread: (threads, floats), aligned to a cache line."""

    def __init__(self) -> None:
        self.arrays: dict[int, F32Array] = {}
        self.parts: dict[str, F32Array] = {}

    def three(self, name: str, shape: tuple[int, ...]) -> F32Array:
        """Return memory for the parts of an operand, (3, ...shape); the name's next call takes it over."""
        size = 3 * math.prod(shape)
        parts = self.parts.get(name)
        if parts is None or parts.size < size:
            parts = self.parts[name] = np.empty(size, np.float32)
        return parts[:size].reshape(3, *shape)

    def get(self, count: int, depth: int, rows: int) -> F32Array:
        padded = (depth + 3) // 4 * 4
        size = _SUMS + (rows + 3) // 4 * (4 * padded + 16) + padded * _PITCH
        work = self.arrays.get(count)
        if work is None or work.shape[1] < size:
            # NumPy asks for huge pages from 4 MiB on; with small pages, unlucky ones collide in the L2 cache
            raw = np.empty(max(count * size + _HUGE_PAGE, 2 * _HUGE_PAGE), np.float32)
            raw.fill(0.0)
            skip = -raw.ctypes.data % (4 * _HUGE_PAGE) // 4
            work = self.arrays[count] = raw[skip : skip + count * size].reshape(count, size)
        return work


_workspaces = _Workspaces()
_NO_CODES: Final[U16Array] = np.zeros((1, 1), np.uint16)
_NO_SINGLES: Final[F32Array] = np.zeros((1, 1), np.float32)


def _one_pass(out: F32Array, stride: int, stationary: Array, moving: Array, overwrite: bool) -> None:
    """Compute one pass into the flat destination ``out``; an operand is float32, or bfloat16 codes as uint16."""
    coded = stationary.dtype == np.uint16, moving.dtype == np.uint16
    singles = _NO_SINGLES if coded[0] else stationary, _NO_SINGLES if coded[1] else moving
    codes = stationary if coded[0] else _NO_CODES, moving if coded[1] else _NO_CODES
    (depth, rows), columns = stationary.shape, moving.shape[1]
    get = _workspaces.get

    def many(count: int) -> None:
        _tiles(singles, codes, coded, out, stride, (rows, columns), overwrite, get(count, depth, rows))

    def one() -> None:
        work = get(1, depth, rows)[0]
        _tile(singles, codes, coded, out, stride, (0, rows), (0, columns), overwrite, work)

    jit.run(depth * rows * columns, many, one)


@compiled
def _split(values: U32Array, high: U32Array, high_finite: U32Array, low: F32Array) -> None:
    for i in range(values.shape[0]):
        bits = values[i]
        top = np.uint32(bits & _HIGH)
        finite = np.uint32(bits & _EXPONENT) != _EXPONENT
        high[i] = top if finite else bits
        high_finite[i] = top if finite else np.uint32(0)
        rest = np.uint32(bits).view(np.float32) - np.uint32(top).view(np.float32)
        low[i] = rest if finite else _ZERO


def split(values: F32Array, out: F32Array | None = None) -> tuple[F32Array, F32Array, F32Array]:
    """Split float32 into 12 leading significant bits and the rest.

    Args:
        values: float32, any shape and strides.
        out: float32 (3, ...), memory for the result; made when absent.

    Returns:
        (high, high with 0 in place of Inf and NaN, low), each float32 of the same shape.
    """
    high, high_finite, low = np.empty((3, *values.shape), np.float32) if out is None else out
    bits = flat(values, np.uint32)
    _split(bits, high.reshape(-1).view(np.uint32), high_finite.reshape(-1).view(np.uint32), low.reshape(-1))
    return high, high_finite, low


def _operand(array: Array, dtype: DType) -> Array:
    """Return float32, or bfloat16 codes as uint16, as the kernels are compiled for it."""
    return plain(array.view(np.uint16) if dtype == dtypes.bfloat16 else widen(array, dtype))


def _widened(array: Array, dtype: DType) -> Array:
    return array if wide.is_wide(array) else widen(array, dtype)


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
    flags = psum.flags
    if flags.c_contiguous and flags.aligned:
        out, stride = psum.reshape(-1), psum.shape[1]
    elif psum.strides[1] == 4 and psum.strides[0] >= 4 * psum.shape[1] and not psum.strides[0] % 4 and flags.aligned:
        stride = psum.strides[0] // 4
        span = (psum.shape[0] - 1) * stride + psum.shape[1] if psum.size else 0
        out = np.lib.stride_tricks.as_strided(psum, (span,), (4,))
    else:
        whole = psum.copy()
        matmul_into(whole, stationary, stationary_dtype, moving, moving_dtype, passes, overwrite)
        psum[...] = whole
        return
    if passes == 1:
        _one_pass(out, stride, _operand(stationary, stationary_dtype), _operand(moving, moving_dtype), overwrite)
        return
    memory = _workspaces.three("stationary", stationary.shape), _workspaces.three("moving", moving.shape)
    high, high_finite, low = split(widen(stationary, stationary_dtype), memory[0])
    moving_high, moving_high_finite, moving_low = split(widen(moving, moving_dtype), memory[1])
    _one_pass(out, stride, low, moving_low, overwrite)
    _one_pass(out, stride, low, moving_high_finite, False)
    _one_pass(out, stride, high_finite, moving_low, False)
    _one_pass(out, stride, high, moving_high, False)


def accumulate_into(psum: F32Array, stationary: F32Array, moving: F32Array, passes: int, overwrite: bool) -> None:
    """Do as :func:`matmul_into` with operands that are float32 arrays."""
    matmul_into(psum, stationary, dtypes.float32, moving, dtypes.float32, passes, overwrite)


def matmul(stationary: F32Array, moving: F32Array, passes: int) -> F32Array:
    """Return float32 (M, N): ``stationary.T @ moving`` for float32 (K, M) and (K, N), in 1 or 4 passes."""
    out = np.empty((stationary.shape[1], moving.shape[1]), np.float32)
    accumulate_into(out, stationary, moving, passes, True)
    return out
