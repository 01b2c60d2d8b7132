"""The largest elements of a row and where they are, and where eight given values stand in it.

Special values: the largest elements follow ``alu.maximum``, so a NaN is the largest of all and +0 comes before -0.
Values are found by ``==``: a NaN is never found, and the two zeros are one value (both *assumed*).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from neurosim.jit import INTERPRETED, compiled, inlined
from neurosim.numerics import wide
from neurosim.numerics.convert import flat, plain

F32Array = NDArray[np.float32]

COUNT: Final = 8
"""Values that one instruction finds."""

NOT_FOUND: Final = np.int64(-1)
_ASCENDING: Final = np.arange(COUNT, dtype=np.int64)
_DESCENDING: Final = _ASCENDING[::-1].copy()

_MAGNITUDE: Final = np.int32(0x7FFFFFFF)
_SIGN_SHIFT: Final = np.int32(31)
_BITS: Final = np.dtype(np.int32)
_PLACES: Final = np.dtype(np.int64)
_INF_BITS: Final = np.int32(0x7F800000)
_NAN_BITS: Final = np.int32(0x7FC00000)


@inlined
def _key(b: np.int32) -> np.int32:
    """Return an integer that sorts as the float of these bits does, NaNs as the largest."""
    key = np.int32(b ^ np.int32(np.int32(b >> _SIGN_SHIFT) & _MAGNITUDE))  # a negative one's magnitude is inverted
    return _MAGNITUDE if np.int32(b & _MAGNITUDE) > _INF_BITS else key


@compiled
def _sortable(bits: NDArray[np.int32], keys: NDArray[np.int32]) -> None:
    for i in range(bits.shape[0]):
        keys[i] = _key(bits[i])


def _keys(x: F32Array) -> NDArray[np.int32]:
    """Return integers that sort as the floats do, NaNs as the largest."""
    keys = np.empty(x.shape, np.int32)
    _sortable(flat(x, _BITS), keys.reshape(-1))
    return keys


def highest(x: F32Array, count: int) -> NDArray[np.int64]:
    """Return the places of the ``count`` largest elements of each row, in ascending order of their values.

    Of equal elements the first counts as the largest: it is taken first, and comes last in the result.

    Args:
        x: float32 (P, N).
        count: at most N.

    Returns:
        int64 (P, count).
    """
    if wide.is_wide(x):
        return wide.highest(x, count)
    order = (~_keys(x)).argsort(axis=1, kind="stable")
    return np.ascontiguousarray(order[:, :count][:, ::-1])


@compiled
def _largest(bits: NDArray[np.int32], top: NDArray[np.int32]) -> None:
    rows, columns = bits.shape
    count = top.shape[1]
    for r in range(rows):
        for s in range(count):
            top[r, s] = np.int32(~_MAGNITUDE)  # less than any key
        for c in range(columns):
            key = _key(bits[r, c])
            s = count - 1
            if key > top[r, s]:  # which few elements are, so that the rest of the loop costs nothing
                while s > 0 and key > top[r, s - 1]:
                    top[r, s] = top[r, s - 1]
                    s -= 1
                top[r, s] = key
        for s in range(count):
            key = top[r, s]
            number = np.int32(key ^ np.int32(np.int32(key >> _SIGN_SHIFT) & _MAGNITUDE))
            top[r, s] = _NAN_BITS if key == _MAGNITUDE else number


def largest(x: F32Array) -> F32Array:
    """Return the eight largest elements of each row, descending.

    Args:
        x: float32 (P, N), N at least 8.

    Returns:
        float32 (P, 8); NaNs as 0x7FC00000.
    """
    if wide.is_wide(x):
        return wide.largest(x, COUNT)
    top = np.empty((len(x), COUNT), _BITS)
    _largest(plain(x).view(_BITS), top)
    return top.view(np.float32)


@compiled
def _find(data: F32Array, values: F32Array, order: NDArray[np.int64], places: NDArray[np.int64]) -> bool:
    """Find, and return whether shapes fit: nothing is done where they do not."""
    rows, columns = data.shape
    count = values.shape[1]
    if values.shape[0] != rows or places.shape != values.shape or order.shape[0] != count:
        return False
    for r in range(rows):
        missing = count
        for s in range(count):
            places[r, s] = NOT_FOUND
        for c in range(columns):
            if missing == 0:
                break
            x = data[r, c]
            for s in range(count):
                slot = order[s]
                if places[r, slot] == NOT_FOUND and values[r, slot] == x:
                    places[r, slot] = c
                    missing -= 1
                    break
    return True


def find(data: F32Array, values: F32Array, descending: bool) -> NDArray[np.int64]:
    """Return where each of eight values stands in its row; of equal values each finds an occurrence of its own.

    The row passes once. Each element goes to the first slot that looks for it and has not found it yet.

    Args:
        data: float32 (P, N).
        values: float32 (P, 8).
        descending: whether slots are asked from the last to the first, so that the first occurrence of a value goes
            to the last slot that looks for it.

    Returns:
        int64 (P, 8): columns of ``data``, or :data:`NOT_FOUND`.
    """
    order = _DESCENDING if descending else _ASCENDING
    places = np.empty(values.shape, _PLACES)
    if not INTERPRETED and _find.is_loaded:  # type: ignore[attr-defined]
        try:
            if _find(data, values, order, places):
                return places
        except TypeError:  # no plain float32 arrays: a kernel looks faster than we would
            pass
    if wide.is_wide(data, values):
        return wide.find(data, values, order, int(NOT_FOUND))
    if not _find(plain(data), plain(values), order, places):
        raise ValueError(f"find: {values.shape} and {data.shape} do not go together")
    return places


@compiled
def _replace(data: F32Array, places: NDArray[np.int64], value: float) -> int:
    number, missing = np.float32(value), 0
    for r in range(places.shape[0]):
        for s in range(places.shape[1]):
            place = places[r, s]
            if place == NOT_FOUND:
                missing += 1
            else:
                data[r, place] = number
    return missing


def replace(data: F32Array, places: NDArray[np.int64], value: float) -> int:
    """Write a number, rounded to float32, where :func:`find` found values; return how many it did not find.

    Args:
        data: float32 (P, N), C-contiguous, written in place.
        places: of :func:`find`.
        value: the number.
    """
    if wide.is_wide(data):
        rows, slots = np.nonzero(places != NOT_FOUND)
        data[rows, places[rows, slots]] = np.float32(value)
        return places.size - len(rows)
    return _replace(data, places, float(value))
