"""When everything happens: the loop over events, run on a program's tables."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import numpy as np

from neurosim.chip import Chip
from neurosim.errors import SimulatorBug
from neurosim.program import Program
from neurosim.tiers import run as in_turn
from neurosim.timing.edits import UNCHANGED, Edit
from neurosim.timing.events.loop import run
from neurosim.timing.events.tables import Tables
from neurosim.timing.lower import lower
from neurosim.timing.passes import Compiled, compiled, unchanged
from neurosim.timing.placement import placed, recorded
from neurosim.timing.triggers import triggered

WINDOWS: Final = {"program": 1, "reorder": 1 << 30, "compiler": 1 << 30}
"""By name of a schedule, how many records an engine may look at, beginning with the first that is not issued."""


class Scheduled(NamedTuple):
    """A program with all times.

    Attributes:
        compiled: what was executed of it.
        cores: numbers of its cores.
        tables: of what was executed.
    """

    compiled: Compiled
    cores: tuple[int, ...]
    tables: Tables


def schedule(program: Program, chip: Chip, order: str, *, throttle: bool, edit: Edit = UNCHANGED) -> Scheduled:
    """Return a program with all times filled in, by the rule of a schedule; with an ``edit``, what it makes of it.

    Raises:
        SimulatorBug: a record can never start.
    """
    with _collection_paused():
        executed = compiled(program, chip) if order == "compiler" else unchanged(program)
        placement = recorded(program)
        if order != "program":
            placement = triggered(executed.program, placed(executed.program, chip))
        edit = edit.of(executed.records)
        cores, tables = lower(executed.program, placement, chip, WINDOWS[order], throttle=throttle, edit=edit)
        in_turn(len(tables.records), run, tables)
    waiting = np.flatnonzero(tables.records["complete_ps"] < 0)
    if len(waiting):
        record = executed.records[waiting[0]]
        raise SimulatorBug(f"timing: record {record} can never start", advice="report it with the program")
    return Scheduled(executed, cores, tables)


def makespan_ps(program: Program, chip: Chip, order: str, *, throttle: bool, edit: Edit = UNCHANGED) -> int:
    """Return when the last core is through, as its timeline would say, without making one."""
    tables = schedule(program, chip, order, throttle=throttle, edit=edit).tables
    totals = tables.totals[0]
    ends = tables.records["complete_ps"], tables.ops["end_ps"][: totals.ops], tables.moves["end_ps"][: totals.moves]
    return max(int(column.max(initial=0)) for column in ends)


@contextmanager
def _collection_paused() -> Iterator[None]:
    """Keep Python from looking for cycles among a large program's objects again and again; nothing here makes any."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
