"""The critical path: the chain of instructions, each of which waited for the one before, that takes all of the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neurosim import tiers
from neurosim.errors import SimulatorBug
from neurosim.program import Program
from neurosim.timing.causes.names import NUMBERS
from neurosim.timing.causes.phases import Phases
from neurosim.timing.events.path import walk
from neurosim.timing.timeline import Timeline

Ints = NDArray[np.int64]

STEP_DTYPE: Final = np.dtype([("start_ps", np.int64), ("end_ps", np.int64), ("record", np.int32)])
"""Columns of ``CriticalPath.steps``."""

_PART_DTYPE: Final = np.dtype([("record", np.int32), ("cause", np.int8), ("duration_ps", np.int64)])


@dataclass(frozen=True, eq=False)
class CriticalPath:
    """The chain that decides when a kernel ends; its steps follow each other and add up to the makespan.

    A step lasts until the one after it could start, so that an instruction has the time that it made others wait, not
    all the time that it took. Where two waited for different things at once, the later one counts.

    Attributes:
        makespan_ps: of the kernel.
        steps: structured array (``STEP_DTYPE``), in order of time.
        parts: the steps cut by cause (``record``, ``cause``, ``duration_ps``): for transfers what they did, as waits
            for them are cut (:mod:`neurosim.timing.causes.phases`), and ``work`` for the others.
    """

    makespan_ps: int
    steps: NDArray[Any]
    parts: NDArray[Any]


def critical_path(program: Program, timelines: Mapping[int, Timeline]) -> CriticalPath:
    """Return the critical path of a kernel, through all of its cores.

    Args:
        program: the record.
        timelines: by core.

    Raises:
        SimulatorBug: records wait for each other in a circle.
    """
    last = max(timelines.values(), key=lambda timeline: timeline.makespan_ps)
    phases = {core: Phases(program, timeline) for core, timeline in timelines.items()}
    begin_ps = last.start_ps.copy()
    for each in phases.values():
        begin_ps[each.is_moved] = each.begin_ps[each.is_moved]
    room = np.empty(4 * len(program) + 4, dtype=STEP_DTYPE)
    count = 0
    if len(last.records):
        columns = last.start_ps, begin_ps, last.waited_for, last.queued_behind
        end = _last_record(last), last.makespan_ps
        count = tiers.run(len(program), walk, room.view(np.recarray), *columns, *end)
    if count < 0:
        raise SimulatorBug("timing: records wait for each other in a circle", advice="report it with the program")
    steps = room[:count][::-1].copy()
    return CriticalPath(last.makespan_ps, steps, _parts(steps, phases, last))


def _last_record(timeline: Timeline) -> int:
    """Return the record that ends last, in memory or on an engine; of equal ones, the first."""
    ends = timeline.complete_ps.copy()
    np.maximum.at(ends, timeline.ops["record"], timeline.ops["end_ps"])
    return int(timeline.records[ends[timeline.records].argmax()])


def _parts(steps: NDArray[Any], phases: Mapping[int, Phases], timeline: Timeline) -> NDArray[Any]:
    """Cut steps by cause."""
    record = steps["record"].astype(np.int64)
    owner = np.full(len(timeline.start_ps), -1)
    for core, each in phases.items():
        owner[each.is_moved] = core
    is_transfer = owner[record] >= 0
    # of a DMA that only kept its queue or its engine, nobody waited for the data
    issuing = is_transfer & (steps["end_ps"] <= timeline.data_ps[record])
    cause = np.where(issuing, NUMBERS["dma_issue"], NUMBERS["work"])
    whole = ~is_transfer | issuing
    rows = [_rows(record[whole], cause[whole], (steps["end_ps"] - steps["start_ps"])[whole])]
    for core, each in phases.items():
        mine = np.flatnonzero(~whole & (owner[record] == core))
        pieces = each.pieces(mine, steps["start_ps"][mine], steps["end_ps"][mine], record[mine])
        rows.append(_rows(record[pieces.wait], pieces.cause, pieces.end_ps - pieces.start_ps))
    return np.concatenate(rows)


def _rows(record: Ints, cause: Ints, duration_ps: Ints) -> NDArray[Any]:
    made = np.empty(len(record), dtype=_PART_DTYPE)
    for name, values in (("record", record), ("cause", cause), ("duration_ps", duration_ps)):
        made[name] = values
    return made
