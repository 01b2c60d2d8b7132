"""Keeping: which tiles stay on the chip, so that nobody needs to bring their contents again."""

from __future__ import annotations

from typing import Any

from neurosim.jit import compiled, inlined


@inlined
def _apply(most: Any, added: Any, node: int, size_bytes: int) -> None:
    most[node] += size_bytes
    if node < len(added):
        added[node] += size_bytes


@inlined
def _push(most: Any, added: Any, leaf: int) -> None:
    """Hand down what was added to the nodes above a leaf."""
    shift = 0
    while leaf >> (shift + 1) > 0:
        shift += 1
    while shift > 0:
        node = leaf >> shift
        if added[node] != 0:
            _apply(most, added, 2 * node, added[node])
            _apply(most, added, 2 * node + 1, added[node])
            added[node] = 0
        shift -= 1


@inlined
def _change(most: Any, added: Any, start: int, end: int, size_bytes: int) -> None:
    """Add bytes to all blocks from start to end, the end excluded."""
    if start >= end:
        return
    count = len(added)
    left, right = start + count, end + count
    _push(most, added, left)
    _push(most, added, right - 1)
    low, high = left, right
    while low < high:
        if low & 1:
            _apply(most, added, low, size_bytes)
            low += 1
        if high & 1:
            high -= 1
            _apply(most, added, high, size_bytes)
        low >>= 1
        high >>= 1
    for leaf in (left, right - 1):
        node = leaf >> 1
        while node > 0:
            most[node] = max(most[2 * node], most[2 * node + 1]) + added[node]
            node >>= 1


@inlined
def _peak(most: Any, added: Any, start: int, end: int) -> int:
    """Return the most bytes in any block from start to end, the end excluded; 0 where there is none."""
    result = 0
    if start < end:
        count = len(added)
        low, high = start + count, end + count
        _push(most, added, low)
        _push(most, added, high - 1)
        while low < high:
            if low & 1:
                result = max(result, most[low])
                low += 1
            if high & 1:
                high -= 1
                result = max(result, most[high])
            low >>= 1
            high >>= 1
    return result


@compiled
def keep(
    tiles: Any,
    classes: Any,
    first: Any,
    last: Any,
    written: Any,
    size_bytes: Any,
    most: Any,
    added: Any,
    margin: int,
    limit_bytes: int,
    held: Any,
    others: Any,
) -> None:
    """Fill in, by tile of ``tiles``, the earlier one that holds the same and is kept for it.

    Tiles come in order of their first write. One takes the place of a later one where both hold the same, it is
    complete before the later one begins, and its bytes fit beside all that is live until then. ``last`` is moved on
    where a tile is kept.

    Args:
        tiles: of one core and memory, those that may be left out.
        classes: by tile of ``tiles``, a number for what it holds.
        first, last: by tile of the program, the blocks of records of its first and last access.
        written: by tile of the program, its last write, and, in a second row, its first one.
        size_bytes: by tile of the program.
        most: bytes in use by block, as a tree: twice as many rows as there are blocks, a power of two; the second half
            is filled in.
        added: room for half as many rows, all 0.
        margin: 0 where each block is one record, else 1.
        limit_bytes: what may be in use where tiles are kept.
        held: by class, room for the tile that holds it, all -1.
        others: what is filled in; all -1, which is none.
    """
    count = len(added)
    for node in range(count - 1, 0, -1):
        most[node] = max(most[2 * node], most[2 * node + 1])
    for index in range(len(tiles)):
        tile = tiles[index]
        other = held[classes[index]]
        if other < 0 or written[0][other] >= written[1][tile]:
            held[classes[index]] = tile
            continue
        size, begin, end = size_bytes[tile], max(last[other] + 1 - margin, 0), min(first[tile] + margin, count)
        if _peak(most, added, begin, end) + size > limit_bytes:
            held[classes[index]] = tile
            continue
        others[index] = other
        _change(most, added, begin, end, size)
        _change(most, added, first[tile] + 1, min(last[tile], last[other]), -size)  # both were counted
        last[other] = max(last[other], last[tile])
