"""Threads: the same bits on all of them, forks, how they end, and when parallel work stops."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neurosim import pool
from neurosim.compiling.mailbox import AWAY, GONE, READY, ROW, Words
from neurosim.numerics import matmul, reference


def product() -> bool:
    rng = np.random.default_rng(0)
    stationary, moving = rng.standard_normal((128, 128), np.float32), rng.standard_normal((128, 512), np.float32)
    want = reference.matmul_pass(stationary, moving)
    pool._pool._learn(
        pool._LEARN_NS, pool._LEARN_NS, 1
    )  # as if there had been a run: on several threads soon, also if that compiles
    return all(np.array_equal(matmul.matmul(stationary, moving, 1), want) for _ in range(100))


def python(program: str, **environment: str) -> str:
    """Run a program that may import this file, and return what it prints."""
    folders = os.pathsep.join(map(str, (Path(__file__).parents[2], Path(__file__).parent)))
    env = {**os.environ, "PYTHONPATH": folders, **environment}
    return subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True).stdout


def shared() -> bool:
    """Return whether products are right of which some were shared."""
    usual, counts = matmul.multiply, [0]

    def counted(*arguments: Any) -> int:
        counts.append(usual(*arguments))
        return counts[-1]

    matmul.multiply = counted
    try:
        while max(counts) < 2 and product():
            pool._pool.resume = 0
    finally:
        matmul.multiply = usual
    return max(counts) > 1


compiled = pytest.mark.skipif(pool.INTERPRETED, reason="nothing is compiled, nor shared")


@compiled
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_threads_of_its_own() -> None:
    program = (
        "import os, threading, test_pool\n"
        "assert test_pool.shared()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(0 if threading.active_count() == 1 and test_pool.shared() else 3)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), test_pool.shared())\n"
    )
    assert python(program, NUMBA_NUM_THREADS="2") == "0 True\n"


@compiled
@pytest.mark.parametrize("ending", ["", "os._exit(0)", "sys.exit()", "os.kill(os.getpid(), 15)"])
def test_threads_end_with_python(ending: str) -> None:
    program = (
        "import atexit, os, signal, sys\n"
        "signal.signal(15, lambda *_: sys.exit())\n"
        "def last():\n    import threading; print(threading.active_count(), test_pool.product(), flush=True)\n"
        "atexit.register(last)\n"  # what is registered first is called last, and so after the threads have ended
        f"import test_pool\nprint(test_pool.shared(), flush=True)\n{ending}"
    )
    assert python(program, NUMBA_NUM_THREADS="2") == ("True\n" if "_exit" in ending else "True\n1 True\n")


@compiled
def test_no_thread_of_the_system_is_no_failure() -> None:
    program = (
        "import threading, test_pool\n"
        'def refuse(self):\n    raise RuntimeError("can\'t start new thread")\n'
        "threading.Thread.start = refuse\n"
        "print(test_pool.product(), test_pool.product())"
    )
    assert python(program, NUMBA_NUM_THREADS="4") == "True True\n"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_fails_fails_the_product_and_no_other() -> None:
    words: list[Words] = []

    def fail(mailbox: Words, number: int) -> None:
        words.append(mailbox)
        raise MemoryError("no room for a part")

    mine = pool._Pool()
    mine.size, mine.serial_time = 2, pool._LEARN_NS

    def function(mailbox: Words | None) -> int:
        assert mailbox is not None
        return -1 if mailbox[ROW] == GONE else 1

    mine.run(10**7, fail, function, ())
    assert mine.crew is not None
    mine.crew._threads[0].join()
    assert words[0][ROW] == GONE
    with pytest.raises(RuntimeError, match="a thread that took part"):
        mine.run(10**7, fail, function, ())
    assert not mine.lock.locked()
    assert mine.crew is None


class Clock:
    """Calls that take as long as they are told, by a clock that nothing else moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, serial_ms: int, parallel_ms: int) -> None:
        self.serial_ms, self.parallel_ms = serial_ms, parallel_ms
        self.calls: list[str] = []
        self.now_ns = 1
        for clock in ("perf_counter_ns", "thread_time_ns"):
            monkeypatch.setattr(pool.time, clock, lambda: self.now_ns)

    def work(self, words: Words | None) -> int:
        count = 1 if words is None else words.size // ROW
        self.calls.append("many" if count > 1 else "one")
        self.now_ns += (self.parallel_ms if count > 1 else self.serial_ms) * 1_000_000
        return count


def serve(words: Words, number: int) -> None:
    raise AssertionError("all were ready, so none is started")


def pool_of_two() -> pool._Pool:
    made = pool._Pool()
    made.size = 2
    made._learn(10**9, 10**9, 1)  # as if the first run had compiled
    return made


def test_threads_stop_where_they_do_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, clock = pool_of_two(), Clock(monkeypatch, serial_ms=6, parallel_ms=15)
    for _ in range(5):
        mine.run(10**7, serve, clock.work, ())
    assert clock.calls == ["one", "one", "many", "many", "one"]
    assert mine.pause == 2 * pool._FIRST_PAUSE_NS


def test_threads_go_on_where_they_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, clock = pool_of_two(), Clock(monkeypatch, serial_ms=6, parallel_ms=1)
    for _ in range(6):
        mine.run(10**7, serve, clock.work, ())
    assert clock.calls == ["one", "one", "many", "many", "many", "many"]
    mine.run(10, serve, clock.work, ())
    assert clock.calls[-1] == "one"


def test_others_are_woken_for_the_next_product() -> None:
    mine, served = pool_of_two(), threading.Event()
    mine.serial_time = pool._LEARN_NS

    def serve(words: Words, number: int) -> None:
        assert words[number * ROW] == READY
        words[number * ROW] = AWAY
        served.set()

    for _ in range(3):
        served.clear()
        mine.run(10**7, serve, lambda words: 1, ())
        assert served.wait(60)
    assert mine.crew is not None
    mine.crew.end()
    served.clear()
    mine.run(10**7, serve, lambda words: 1, ())
    assert mine.crew._threads[0].ident is not None
    assert not served.is_set()  # who has ended is not woken


def test_waking_others_in_vain_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is woken on a busy machine takes the caller's turn, and does not come in time."""
    mine, clock = pool_of_two(), Clock(monkeypatch, serial_ms=6, parallel_ms=9)

    def alone(words: Words | None) -> int:
        clock.work(words)
        return 1

    def wait(words: Words, number: int) -> None:
        words[number * ROW] = AWAY

    for _ in range(7):
        mine.run(10**7, wait, alone, ())
    assert clock.calls == ["one", "one", "many", "many", "one", "one", "many"]  # and again, 10 ms later
    assert mine.crew is not None
    mine.crew.end()


def test_threads_go_on_where_they_pay_on_a_slower_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, clock = pool_of_two(), Clock(monkeypatch, serial_ms=6, parallel_ms=4)
    for _ in range(5):
        mine.run(10**7, serve, clock.work, ())
    clock.serial_ms, clock.parallel_ms = 11, 8
    for _ in range(20):
        mine.run(10**7, serve, clock.work, ())
    assert clock.calls.count("one") == 3  # two at first, and one to learn
    assert clock.calls[-15:] == ["many"] * 15


def test_threads_stop_however_slow_serial_work_once_was(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, clock = pool_of_two(), Clock(monkeypatch, serial_ms=6, parallel_ms=15)
    for serial_ms in (6, 6, 6, 6, 90, 6, 6, 6, 6, 6, 6, 6):  # the fifth call is the one that it learns from
        clock.serial_ms = serial_ms
        mine.run(10**7, serve, clock.work, ())
    assert clock.calls.count("many") < 6


def test_a_failing_kernel_frees_the_pool() -> None:
    mine = pool_of_two()
    mine._learn(pool._LEARN_NS, pool._LEARN_NS, 1)

    def fail(words: Words | None) -> int:
        raise MemoryError

    with pytest.raises(MemoryError):
        mine.run(10**7, serve, fail, ())
    assert not mine.lock.locked()


@pytest.mark.parametrize("count", [0, -1, 2.5, float("nan"), "2"])
def test_limit_threads_needs_a_whole_number(count: Any) -> None:
    with pytest.raises(ValueError, match="a whole number of at least 1"):
        pool.limit_threads(count)
    assert pool._pool.limit is None
