"""Binary heaps of (key, item) pairs, many of them side by side in one array; equal keys go by item."""

from __future__ import annotations

from typing import Any

from neurosim.jit import inlined


@inlined
def push(heap: Any, first: int, size: int, key: int, item: int) -> None:
    """Add a pair to the heap of ``size`` pairs that begins at ``first``; the caller counts it."""
    at = size
    while at > 0:
        parent = (at - 1) // 2
        above = heap[first + parent].key
        if above < key or (above == key and heap[first + parent].entry < item):
            break
        heap[first + at].key = above
        heap[first + at].entry = heap[first + parent].entry
        at = parent
    heap[first + at].key = key
    heap[first + at].entry = item


@inlined
def pop(heap: Any, first: int, size: int) -> None:
    """Remove the least pair, which stands at ``first``, from a heap of ``size`` pairs; the caller counts it."""
    last = size - 1
    key, item = heap[first + last].key, heap[first + last].entry
    at = 0
    while True:
        child = 2 * at + 1
        if child >= last:
            break
        below, below_item = heap[first + child].key, heap[first + child].entry
        if child + 1 < last:
            other, other_item = heap[first + child + 1].key, heap[first + child + 1].entry
            if other < below or (other == below and other_item < below_item):
                child, below, below_item = child + 1, other, other_item
        if key < below or (key == below and item < below_item):
            break
        heap[first + at].key = below
        heap[first + at].entry = below_item
        at = child
    heap[first + at].key = key
    heap[first + at].entry = item
