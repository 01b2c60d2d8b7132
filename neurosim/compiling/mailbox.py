"""How threads share a product: each has a row of words, in which a caller of compiled code finds it ready, or not.

A thread that is ready waits in compiled code for a task, and gives up after a while: to wake a thread that sleeps takes
as long as a quarter of a small product, to be seen by one that waits a hundredth of that. A caller hands parts to those
that are ready at that moment, and waits for nobody else. :mod:`neurosim.crew` has the threads.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from neurosim.jit import Intrinsic, inlined

Words: TypeAlias = NDArray[np.int64]
"""Flat, contiguous: ``ROW`` words of the caller, who is number 0, then as many of each thread."""

#: Words of a row; two lines of the cache, so that threads do not share one, and processors fetch lines in pairs.
ROW: Final = 32
#: The first word of a row: of a thread's, whose task is in the others, and BUSY or AWAY of the caller's.
AWAY, READY, TAKEN, TASK, GONE, BUSY = range(6)
#: How often a thread looks for a task before it sleeps: some 400 us. While the caller is busy a look counts as a part
#: of one, or threads that were woken late in a long product would sleep again before the next one.
_LOOKS, _PARTS = 16_384, 64


def _python_memory(address: int, size_bytes: int) -> Any:
    return np.frombuffer(memoryview((ctypes.c_uint8 * int(size_bytes)).from_address(int(address))), np.uint8)


def _python_exchange(words: Words, index: int, old: int, new: int) -> bool:
    found = bool(words[index] == old)
    if found:
        words[index] = new
    return found


load: Final = Intrinsic("atomics.load", lambda words, index: int(words[index]))
store: Final = Intrinsic("atomics.store", lambda words, index, value: words.__setitem__(index, value))
exchange: Final = Intrinsic("atomics.exchange", _python_exchange)
pause: Final = Intrinsic("atomics.pause", lambda: None)
#: ``address_of(array)`` and ``memory_at(address, size_bytes)``: a word for an array, which must live on, and
#: its bytes again.
address_of: Final = Intrinsic("atomics.address", lambda array: array.ctypes.data)
memory_at: Final = Intrinsic("atomics.memory", _python_memory)


@inlined
def take(words: Words) -> int:
    """Take all threads that are ready; they go on waiting for their tasks. Returns how many."""
    taken = 0
    for row in range(ROW, words.size, ROW):
        taken += exchange(words, row, READY, TAKEN)
    return taken


@inlined
def wait_for_task(words: Words, row: int) -> bool:
    """Wait for a task of the thread that has this row; return False when there was none for a while."""
    looks = 0
    while load(words, row) != TASK:
        looks += 1 if load(words, 0) == BUSY else _PARTS
        if looks > _LOOKS * _PARTS and exchange(words, row, READY, AWAY):
            return False
        pause()
    return True


@inlined
def wait_for_others(words: Words) -> bool:
    """Wait for all tasks to be done; return whether all threads are still there."""
    alive = True
    for row in range(ROW, words.size, ROW):
        while load(words, row) == TASK:
            pause()
        alive = alive and load(words, row) != GONE
    return alive
