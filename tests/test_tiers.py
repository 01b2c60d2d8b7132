"""Loops over records as plain Python and compiled: the same numbers, and which of the two a process takes."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import neurosim
from neurosim import jit, tiers
from neurosim.chip import Chip
from neurosim.program import Program
from neurosim.shell.loading import load_kernel, load_module, packaged_kernel
from neurosim.timing import SCHEDULES, Timeline, TimingOptions, time
from neurosim.timing.critical import critical_path
from neurosim.timing.events import loop
from neurosim.timing.slack import slack_ps

ROOT = Path(__file__).resolve().parents[1]
LAUNCHES = load_module(ROOT / "tests" / "mutations" / "mutants.py").LAUNCHES


WHAT = [each.name for each in dataclasses.fields(Timeline) if each.name not in ("chip", "compiled")]


def timed(program: Program, chip: Chip, schedule: str) -> dict[str, Any]:
    """Return all that loops over records compute."""
    timelines = time(program, chip, schedule=schedule)
    found = {f"{core} {what}": getattr(line, what) for core, line in timelines.items() for what in WHAT}
    path = critical_path(program, timelines)
    found["stand-ins"] = timelines[0].compiled.stand_ins
    found["slack"] = slack_ps(program, chip, TimingOptions(schedule=schedule))
    return {**found, "steps": path.steps, "parts": path.parts}


def kind(value: Any) -> tuple[type, Any]:
    return type(value), getattr(value, "dtype", None)


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return the names of what is not the same, to the bit."""
    assert one.keys() == other.keys()
    pairs = [(what, value, other[what]) for what, value in one.items()]
    return [what for what, here, there in pairs if kind(here) != kind(there) or not np.array_equal(here, there)]


@pytest.mark.skipif(jit.INTERPRETED, reason="nothing is compiled")
@pytest.mark.parametrize("target", LAUNCHES)
def test_both_say_the_same_of_each_kernel(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    file, _, name = target.partition(":")
    name, _, cores = name.partition("[")
    arrays, options = LAUNCHES[target]
    simulated = neurosim.simulate(load_kernel(f"{packaged_kernel(file)}:{name}"), values=False)
    result = (simulated[int(cores[:-1])] if cores else simulated)(*arrays, **options)
    for schedule in SCHEDULES:
        monkeypatch.setattr(tiers, "_pays", lambda *_: True)
        compiled = timed(result.program, result.chip, schedule)
        monkeypatch.setattr(tiers, "_pays", lambda *_: False)
        assert differences(compiled, timed(result.program, result.chip, schedule)) == []


class Table(NamedTuple):
    """Arrays as the loops have them."""

    rows: Any
    sums: Any


@jit.inlined
def count(row: Any) -> None:
    row.seen += 1


@jit.compiled
def total(table: Table, factor: int) -> int:
    """Add rows up by their kind, and return how many kinds there are."""
    for index in range(len(table.rows)):
        row = table.rows[index]
        count(row)
        table.sums[0][row.kind] += _int64(factor) * row.size
    return len(table.sums[0])


_int64: Any = np.int64
FORM = np.dtype([("size", np.int64), ("kind", np.int32), ("seen", np.int16)])


def table(rows: int) -> Table:
    made = np.zeros(rows, dtype=FORM)
    made["size"], made["kind"] = 3_000_000_000, np.arange(rows) % 2
    return Table(made.view(np.recarray), np.zeros((1, 2), dtype=np.int64))


@pytest.mark.parametrize("pays", [False, True])
def test_both_work_in_place(monkeypatch: pytest.MonkeyPatch, pays: bool) -> None:
    monkeypatch.setattr(tiers, "_pays", lambda *_: pays)
    for rows in (0, 5):
        work = table(rows)
        assert tiers.run(rows, total, work, np.int64(2)) == 2
        assert work.sums.tolist() == [[rows // 5 * 18_000_000_000, rows // 5 * 12_000_000_000]]
        assert work.rows.seen.tolist() == [1] * rows


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a process did so far: nothing. Returns how to say what it has of the function."""
    monkeypatch.setattr(tiers, "_done", Counter())
    monkeypatch.setattr(jit, "INTERPRETED", False)

    def has(*, loaded: bool, on_disk: bool) -> None:
        for function in (total, loop.run):
            monkeypatch.setattr(function, "is_loaded", loaded)
            monkeypatch.setattr(function, "is_on_disk", lambda: on_disk)

    return has


def test_compiled_code_comes_when_enough_was_done_without(fresh: Any) -> None:
    for on_disk, limit in ((True, tiers.LOADED_AFTER), (False, tiers.COMPILED_AFTER)):
        tiers._done.clear()
        fresh(loaded=False, on_disk=on_disk)
        assert tiers._pays(limit + 1, total)
        assert not tiers._pays(limit - 10, total)
        assert tiers._pays(11, total)
        assert not tiers._pays(10, total)
        assert tiers._pays(1, total)
        assert not tiers._pays(1, loop.run)  # each for itself
        fresh(loaded=True, on_disk=on_disk)
        assert tiers._pays(0, total)


@pytest.mark.skipif(jit.INTERPRETED, reason="nothing is compiled")
def test_a_small_program_is_timed_without_a_compiler(tmp_path: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, 'tests'); import numpy as np, neurosim, two_cores;"
        "print(neurosim.profile(two_cores.swapped[2], values=False)(two_cores.HALVES).summary()['makespan_ps'])"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), "NEUROSIM_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=env, cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == ""
    assert int(done.stdout) > 0
    assert not any(path.is_file() for path in tmp_path.rglob("code-*/*"))
