"""Threads: the same bits on all of them, forks, threading layers, and when parallel work stops."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from neurosim import pool
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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_runs_serially() -> None:
    program = (
        "import os, test_pool; from neurosim import pool\n"
        "assert test_pool.product()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(0 if pool.threads() == 1 and test_pool.product() else 3)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    assert python(program).strip() == "0"


@pytest.mark.parametrize("layer", ["workqueue", "tbb", "omp"])
def test_every_threading_layer_works(layer: str) -> None:
    program = "import test_pool; from neurosim import pool; print(test_pool.product(), pool.threads())"
    same, threads = python(program, NUMBA_THREADING_LAYER=layer, NUMBA_NUM_THREADS="2").split()
    assert same == "True"
    assert int(threads) == 1 if layer == "workqueue" else int(threads) in (1, 2)


def test_threads_may_come_first() -> None:
    """A process whose first product is on several threads, all code on disk, links what names Python's objects."""
    program = "import test_pool; from neurosim import pool\npool._pool._learn(1, 1, 1)\nprint(test_pool.product())"
    assert [python(program, NUMBA_NUM_THREADS="2").strip() for _ in range(2)] == ["True", "True"]


@pytest.mark.slow
@pytest.mark.skipif(pool.INTERPRETED, reason="nothing is compiled")
def test_one_thread_and_many_call_the_same_code(tmp_path: Path) -> None:
    program = (
        "import test_pool; from neurosim.compiling import compiler; from neurosim.numerics import matmul\n"
        "print(test_pool.product(), matmul._tiles.is_loaded, len(compiler.dispatcher(matmul._tile).signatures))"
    )
    found = python(program, NUMBA_NUM_THREADS="2", NEUROSIM_CACHE_DIR=str(tmp_path)).split()
    assert found in (["True", "True", "1"], ["True", "False", "1"])  # without a threading layer it stays serial


class Clock:
    """Calls that take as long as they are told, by a clock that nothing else moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, serial_ms: int, parallel_ms: int) -> None:
        self.serial_ms, self.parallel_ms = serial_ms, parallel_ms
        self.calls: list[str] = []
        self.now_ns = 1
        for clock in ("perf_counter_ns", "thread_time_ns"):
            monkeypatch.setattr(pool.time, clock, lambda: self.now_ns)

    def work(self, count: int) -> None:
        self.calls.append("many" if count > 1 else "one")
        self.now_ns += (self.parallel_ms if count > 1 else self.serial_ms) * 1_000_000


def pool_of_two() -> pool._Pool:
    made = pool._Pool()
    made.serial, made.size = False, 2
    made._learn(10**9, 10**9, 1)  # as if the first run had compiled
    return made


def test_threads_stop_where_they_do_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, clock = pool_of_two(), Clock(monkeypatch, serial_ms=6, parallel_ms=15)
    for _ in range(5):
        mine.run(10**7, clock.work, ())
    assert clock.calls == ["one", "one", "many", "many", "one"]
    assert mine.pause == 2 * pool._FIRST_PAUSE_NS


def test_threads_go_on_where_they_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, clock = pool_of_two(), Clock(monkeypatch, serial_ms=6, parallel_ms=1)
    for _ in range(6):
        mine.run(10**7, clock.work, ())
    assert clock.calls == ["one", "one", "many", "many", "many", "many"]
    mine.run(10, clock.work, ())
    assert clock.calls[-1] == "one"


@pytest.mark.parametrize(("on_disk", "imported"), [(False, True), (True, True), (True, False)])
def test_compiling_for_threads_has_to_pay(monkeypatch: pytest.MonkeyPatch, on_disk: bool, imported: bool) -> None:
    mine, clock = pool._Pool(), Clock(monkeypatch, serial_ms=750, parallel_ms=1)
    mine.serial, mine.size = False, 2
    monkeypatch.setattr(pool, "_pool", mine)
    monkeypatch.setattr(pool, "INTERPRETED", False)
    monkeypatch.setattr(pool, "_has_numba", lambda: imported)
    kernel = SimpleNamespace(is_loaded=False, is_on_disk=lambda: on_disk)
    for _ in range(7):
        pool.run(10**7, kernel, clock.work)
    # the first run may compile and does not count
    serial = 5 if not on_disk else 2 if imported else 3
    assert clock.calls == ["one"] * serial + ["many"] * (7 - serial)


def test_small_work_asks_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(pool, "_pool", pool._Pool())
    monkeypatch.setattr(pool, "INTERPRETED", False)
    kernel = SimpleNamespace(is_loaded=False, is_on_disk=lambda: asked.append("disk"))
    for work in (10, 10, 10**7):
        pool.run(work, kernel, lambda threads: None)
    assert asked == ["disk"]  # once, of the large one


def test_threads_go_on_where_they_pay_on_a_slower_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, clock = pool_of_two(), Clock(monkeypatch, serial_ms=6, parallel_ms=4)
    for _ in range(5):
        mine.run(10**7, clock.work, ())
    clock.serial_ms, clock.parallel_ms = 11, 8
    for _ in range(20):
        mine.run(10**7, clock.work, ())
    assert clock.calls.count("one") == 3  # two at first, and one to learn
    assert clock.calls[-15:] == ["many"] * 15


def test_threads_stop_however_slow_serial_work_once_was(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, clock = pool_of_two(), Clock(monkeypatch, serial_ms=6, parallel_ms=15)
    for serial_ms in (6, 6, 6, 6, 90, 6, 6, 6, 6, 6, 6, 6):  # the fifth call is the one that it learns from
        clock.serial_ms = serial_ms
        mine.run(10**7, clock.work, ())
    assert clock.calls.count("many") < 6


def test_a_failing_kernel_frees_the_pool() -> None:
    mine = pool_of_two()
    mine._learn(pool._LEARN_NS, pool._LEARN_NS, 1)

    def fail(count: int) -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        mine.run(10**7, fail, ())
    assert not mine.lock.locked()


def test_limit_threads_needs_at_least_one() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        pool.limit_threads(0)
