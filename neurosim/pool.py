"""Products on several threads: who may share one with others, and whether that pays."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from neurosim.crew import Crew, Serve, processors
from neurosim.jit import INTERPRETED

#: Multiply-adds below which a product is not shared (about 20 us of work), and of which each thread has as many.
_PARALLEL_MIN: Final = 1_000_000
#: Threads at most: as many as a tile has blocks of columns where vectors are long.
_MOST: Final = 16
#: Serial work that comes first: it tells what serial work costs.
_LEARN_NS: Final = 10_000_000
#: What parallel work may lose before it stops, and for how long it stops: at first, and at most.
_LOSS_LIMIT_NS: Final = 2_000_000
_FIRST_PAUSE_NS: Final = 10_000_000
_LAST_PAUSE_NS: Final = 1_000_000_000
#: How many times as long as ever before serial work is believed to take.
_SLOWEST: Final = 2


Shared = Callable[..., int]
"""Called with a mailbox, or None, and arguments; returns how many took part, -1 if one of them failed."""


class _Pool:
    """Who may use the threads: one caller at a time, and nobody while it does not pay.

    When other processes want the cores, a thread that has taken a part may wait for its turn, and the caller for it; or
    one that is ready takes the caller's turn. So parallel work stops for a while when it has lost a few milliseconds
    against serial work, as that was just before. The bits depend on none of this.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.limit: int | None = None
        self.size: int | None = 1 if INTERPRETED else None
        self.crew: Crew | None = None
        self.serial_runs = 0
        self.serial_time = 0  # ns of this process, the first run left out, which may compile
        self.serial_least = float("inf")  # ns for a unit of work, the best ever seen
        self.serial_cost = float("inf")  # the best seen of late
        self.started = False
        self.loss = 0.0  # ns that parallel calls took longer than serial ones would have, less what others gained
        self.resume = 0  # ns on the clock
        self.pause = _FIRST_PAUSE_NS

    def after_fork(self) -> None:
        """Forget threads that a child does not have, and who used them."""
        self.lock, self.crew, self.started = threading.Lock(), None, False

    def threads(self) -> int:
        if self.size is None:
            self.size = min(processors(), _MOST)
        return self.size if self.limit is None else min(self.limit, self.size)

    def run(self, work: int, serve: Serve, function: Shared, arguments: tuple[Any, ...]) -> None:
        if work < _PARALLEL_MIN:
            function(None, *arguments)
            return
        start, busy = time.perf_counter_ns(), time.thread_time_ns()
        wanted = self.serial_time >= _LEARN_NS and start >= self.resume
        count = min(self.threads(), work // _PARALLEL_MIN) if wanted else 1
        if count == 1 or not self.lock.acquire(blocking=False):
            function(None, *arguments)
            self._learn(time.perf_counter_ns() - start, time.thread_time_ns() - busy, work)
            return
        try:
            self._share(count, serve, function, arguments)
        finally:
            self.lock.release()
        self._judge(time.perf_counter_ns(), start, work)

    def _share(self, count: int, serve: Serve, function: Shared, arguments: tuple[Any, ...]) -> None:
        """Call the function; whoever of ``count`` is ready takes part, and the others are woken for the next call."""
        if self.crew is None:
            self.crew = Crew(self.size or 1, serve)  # whatever the limit is today
        shared = function(self.crew.mailbox(count), *arguments)
        if shared < 0:
            self.crew = None
            raise RuntimeError("a thread that took part of a matmul has ended: its own message says why")
        if shared < count:
            self.crew.wake(count)

    def _learn(self, elapsed: int, busy: int, work: int) -> None:
        """Take note of serial work: how long it took on the clock, and of the processor."""
        if self.serial_runs:
            self.serial_time += busy
        self.serial_runs += 1
        cost = elapsed / work
        self.serial_least, self.serial_cost = min(self.serial_least, cost), min(self.serial_cost, cost)

    def _judge(self, end: int, start: int, work: int) -> None:
        """Stop parallel work for a while if it does not pay."""
        gain = work * self.serial_cost - (end - start)
        if not self.started:
            # the first call may find the other threads on their way
            self.started = True
        elif self.loss > gain + _LOSS_LIMIT_NS:
            self.loss = 0.0
            # the processor may have slowed down, and serial work with it: that is learnt anew, within bounds
            self.serial_cost = _SLOWEST * self.serial_least
            self.resume = end + self.pause
            self.pause = min(2 * self.pause, _LAST_PAUSE_NS)
        else:
            self.loss = max(self.loss - gain, 0.0)
            if gain > 0.0 and self.loss == 0.0:
                self.pause = _FIRST_PAUSE_NS

    def end(self) -> None:
        if self.crew is not None:
            self.crew.end()
        self.size = 1


_pool = _Pool()
atexit.register(_pool.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.after_fork)


def threads() -> int:
    """Return how many threads a large product may use (1 means that all runs serially)."""
    return _pool.threads()


def limit_threads(count: int | None) -> None:
    """Use at most ``count`` threads from now on; None lifts the limit. Results do not depend on it."""
    if count is not None and (not isinstance(count, int) or count < 1):
        raise ValueError(f"limit_threads: count is {count!r}, a whole number of at least 1 is needed")
    _pool.limit = count


def run(work: int, serve: Serve, function: Shared, *arguments: Any) -> None:
    """Call ``function(words, *arguments)``, with the mailbox of as many threads as pay, or None.

    Args:
        work: multiply-adds.
        serve: what a thread calls that is ready to take parts: with all of the mailbox, and its number.
        function: whose bits must not depend on who takes part. Returns how many did, -1 if one of them failed.
        arguments: of the function, behind the mailbox.
    """
    _pool.run(work, serve, function, arguments)
