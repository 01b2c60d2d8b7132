"""Threads that take parts of products from whoever calls: Python's own, which wait in compiled code for a while."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

import numpy as np

from neurosim.compiling.mailbox import AWAY, GONE, READY, ROW, Words

_log = logging.getLogger(__name__)


def processors() -> int:
    """Return how many processors this process may use: what ``NUMBA_NUM_THREADS`` says, or the system."""
    said = os.environ.get("NUMBA_NUM_THREADS", "")
    if said.isdecimal() and int(said):
        return int(said)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Serve = Callable[[Words, int], None]
"""Does tasks of callers for the thread of a number, and returns when there were none for a while."""


class Crew:
    """Threads 1 to ``size`` - 1; the caller is number 0. One caller at a time.

    Args:
        size: of the crew, the caller counted.
        serve: what its threads call.
    """

    def __init__(self, size: int, serve: Serve) -> None:
        self._words: Words = np.zeros(size * ROW, np.int64)
        self._serve = serve
        self._bells: list[threading.Lock] = []  # a thread sleeps until its lock is released
        self._threads: list[threading.Thread] = []
        self._over = False

    def mailbox(self, count: int) -> Words:
        """Return the mailbox of the first ``count`` of the crew."""
        return self._words[: count * ROW]

    def wake(self, count: int) -> None:
        """Have the first ``count`` of the crew ready soon."""
        for number in range(1, count):
            if number > len(self._threads) and not self._started():
                return
            bell = self._bells[number - 1]
            if self._words[number * ROW] == AWAY and bell.locked():
                bell.release()

    def _started(self) -> bool:
        """Start one more thread, where the system has one."""
        bell, number = threading.Lock(), len(self._threads) + 1
        bell.acquire()
        thread = threading.Thread(target=self._stand_by, args=(number, bell), name=f"neurosim-{number}", daemon=True)
        self._bells.append(bell)
        self._threads.append(thread)  # before Ctrl-C may come, or another thread would have the same number
        try:
            thread.start()
        except RuntimeError as error:
            _log.info("products are shared by %d threads: %s", number, error)
            self._bells.pop()
            self._threads.pop()
            return False
        return True

    def _stand_by(self, number: int, bell: threading.Lock) -> None:
        try:
            while bell.acquire() and not self._over:
                self._words[number * ROW] = READY
                self._serve(self._words, number)
        except BaseException:
            self._words[number * ROW] = GONE
            raise

    def end(self) -> None:
        """End all threads: Python must not, since they may be in compiled code."""
        self._over = True
        for bell in self._bells:
            if bell.locked():
                bell.release()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
