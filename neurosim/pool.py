"""Threads of the one parallel kernel: who may use numba's pool of them, and whether that pays."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from neurosim.jit import INTERPRETED

_log = logging.getLogger(__name__)

#: Multiply-adds below which starting threads costs more than it saves (about 20 us of serial work).
_PARALLEL_MIN: Final = 1_000_000
#: Serial work that comes first: it tells what serial work costs, and the parallel kernel is loaded only where it pays.
_LEARN_NS: Final = 10_000_000
#: Serial work that comes before numba is imported for its threads, which takes half a second.
_IMPORT_NS: Final = 1_000_000_000
#: Serial work that comes before the parallel kernel is compiled, which takes 5 s, and spares half of the work at best
#: where there are two cores.
_COMPILE_NS: Final = 3_000_000_000
#: What parallel work may lose before it stops, and for how long it stops: at first, and at most.
_LOSS_LIMIT_NS: Final = 2_000_000
_FIRST_PAUSE_NS: Final = 10_000_000
_LAST_PAUSE_NS: Final = 1_000_000_000
#: How many times as long as ever before serial work is believed to take.
_SLOWEST: Final = 2


class _Pool:
    """Who may use numba's thread pool: one caller at a time, no forked child, and nobody while it does not pay.

    GNU OpenMP ends a forked child that enters its pool, and numba's own workqueue layer aborts the process when
    two threads enter, so both run serially. When other processes want the cores, a call on all threads can take
    40 times longer than on one (7.6 ms against 0.18 ms, measured): the threads wait for each other. So parallel
    work stops for a while when it has lost a few milliseconds against serial work, as that was just before. The bits
    depend on none of this.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.limit: int | None = None
        self.learn_ns: int = _LEARN_NS  # of serial work that comes first
        self.serial = INTERPRETED
        self.size: int | None = None
        self.serial_runs = 0
        self.serial_time = 0  # ns of this process, the first run left out, which may compile
        self.serial_least = float("inf")  # ns for a unit of work, the best ever seen
        self.serial_cost = float("inf")  # the best seen of late
        self.started = False
        self.loss = 0.0  # ns that parallel calls took longer than serial ones would have, less what others gained
        self.resume = 0  # ns on the clock
        self.pause = _FIRST_PAUSE_NS

    def after_fork(self) -> None:
        self.serial = True

    def threads(self) -> int:
        if self.serial:
            return 1
        if self.size is None:
            self.size = self._start()
        return self.size if self.limit is None else min(self.limit, self.size)

    def _start(self) -> int:
        from neurosim.compiling.threads import numba_threads

        try:
            size, layer = numba_threads()
        except ValueError as error:
            _log.info("matmul runs on one thread: %s", error)
            return 1
        return 1 if layer == "workqueue" else size

    def run(self, work: int, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if work < _PARALLEL_MIN:
            function(1, *arguments)
            return
        start, busy = time.perf_counter_ns(), time.thread_time_ns()
        wanted = self.serial_time >= self.learn_ns and start >= self.resume
        count = self.threads() if wanted else 1
        if count == 1 or not self.lock.acquire(blocking=False):
            function(1, *arguments)
            self._learn(time.perf_counter_ns() - start, time.thread_time_ns() - busy, work)
            return
        try:
            function(count, *arguments)
        finally:
            self.lock.release()
        self._judge(time.perf_counter_ns(), start, work)

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
            # the first call starts the threads and may compile
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


_pool = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.after_fork)


def threads() -> int:
    """Return how many threads a large parallel kernel may use (1 means that all runs serially)."""
    return _pool.threads()


def limit_threads(count: int | None) -> None:
    """Use at most ``count`` threads from now on; None lifts the limit. Results do not depend on it."""
    if count is not None and count < 1:
        raise ValueError(f"limit_threads: count is {count}, at least 1 is needed")
    _pool.limit = count


def _learn_ns(kernel: Any) -> int:
    """Return how much serial work comes before the parallel kernel."""
    if INTERPRETED or kernel.is_loaded:
        return _LEARN_NS
    if not kernel.is_on_disk():
        return _COMPILE_NS
    return _LEARN_NS if _has_numba() else _IMPORT_NS


def _has_numba() -> bool:
    return "numba" in sys.modules


def run(work: int, kernel: Any, function: Callable[..., None], *arguments: Any) -> None:
    """Call ``function(threads, *arguments)`` with as many threads as pay.

    Args:
        work: multiply-adds.
        kernel: what ``function`` calls for several threads, under :func:`neurosim.jit.parallel`.
        function: whose bits must not depend on the number of threads.
        arguments: of the function, behind the threads.
    """
    if work >= _PARALLEL_MIN and not _pool.serial_runs:  # small products are many, and never parallel
        _pool.learn_ns = _learn_ns(kernel)
    _pool.run(work, function, arguments)
