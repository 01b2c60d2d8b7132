"""Where each engine's time goes, by cause: for every engine the causes add up to the makespan, to the picosecond."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neurosim.program import Program
from neurosim.timing.causes.names import BUSY, CAUSES, NUMBERS
from neurosim.timing.causes.parts import busy_parts
from neurosim.timing.causes.phases import Phases, Pieces, waits
from neurosim.timing.timeline import Op, Stall, Timeline, held_reasons

__all__ = ["BUSY", "CAUSES", "NUMBERS", "PART_DTYPE", "Causes", "causes"]

Ints = NDArray[np.int64]

PART_DTYPE: Final = np.dtype(
    [
        ("op", np.int64),
        ("cause", np.int8),
        ("waited_for", np.int32),
        ("start_ps", np.int64),
        ("duration_ps", np.int64),
    ]
)
"""Columns of ``Causes.parts``: the op (a row of ``Timeline.ops``) before or in which the time passed, its cause (a
number of ``CAUSES``), the record that was waited for (-1: none), from when on (-1 for parts of busy time, which lie in
no order), and how long."""


@dataclass(frozen=True, eq=False)
class Causes:
    """All time of a timeline's engines, cut into parts of one cause each.

    Attributes:
        timeline: whose.
        parts: structured array (``PART_DTYPE``), by op; the time after an engine's last op has no part.
        main: by op, the cause of most of its wait, -1 where it did not wait.
        main_waited_for: by op, the record behind that cause, -1 for none.
    """

    timeline: Timeline
    parts: NDArray[Any]
    main: NDArray[np.int8]
    main_waited_for: NDArray[np.int32]

    def totals(self, groups: Ints, count: int) -> Ints:
        """Return the time by group and cause, ``[count, len(CAUSES)]``, in picoseconds.

        Args:
            groups: by op, the number of its group.
            count: how many groups there are.
        """
        result = np.zeros((count, len(CAUSES)), dtype=np.int64)
        np.add.at(result, (groups[self.parts["op"]], self.parts["cause"]), self.parts["duration_ps"])
        return result

    def by_engine(self) -> dict[str, dict[str, int]]:
        """Return the time of each engine by cause, causes without time left out; it adds up to the makespan."""
        timeline = self.timeline
        table = self.totals(timeline.ops["unit"].astype(np.int64), len(timeline.units))
        table[:, NUMBERS["idle"]] += timeline.makespan_ps - table.sum(axis=1)
        return {name: named(row) for name, row in zip(timeline.units, table, strict=True)}


def named(row: Ints) -> dict[str, int]:
    """Return times by name of their cause, those that are 0 left out."""
    return {CAUSES[number]: int(row[number]) for number in np.flatnonzero(row).tolist()}


def causes(program: Program, timeline: Timeline) -> Causes:
    """Return where the time of a timeline's engines went.

    Args:
        program: the record.
        timeline: one core's timeline of it.
    """
    ops = timeline.ops
    cause, overhead = busy_parts(program, timeline)
    held = np.array([NUMBERS["dma_bandwidth"], NUMBERS["throttle"]])[(held_reasons(ops["unit"]) == Stall.THROTTLE) * 1]
    stalls = _stalls(program, timeline)
    own = ops["record"]
    rows = [
        _rows(stalls.wait, stalls.cause, stalls.waited_for, stalls.start_ps, stalls.end_ps - stalls.start_ps),
        _busy(cause, ops["busy_ps"] - overhead),
        _busy(np.full(len(ops), NUMBERS["overhead"]), overhead),
        _busy(held, ops["held_ps"]),
    ]
    parts = np.concatenate(rows)
    parts = parts[np.argsort(parts["op"], kind="stable")]
    main, behind = _main(stalls, len(own))
    return Causes(timeline, parts, main, behind)


def _busy(cause: Ints, duration_ps: Ints) -> NDArray[Any]:
    """Return parts of ops, as far as they took time."""
    op = np.flatnonzero(duration_ps > 0)
    nowhere = np.full(len(op), -1)
    return _rows(op, cause[op], nowhere, nowhere, duration_ps[op])


def _rows(op: Ints, cause: Ints, waited_for: Ints, start_ps: Ints, duration_ps: Ints) -> NDArray[Any]:
    made = np.empty(len(op), dtype=PART_DTYPE)
    columns = {"op": op, "cause": cause, "waited_for": waited_for, "start_ps": start_ps, "duration_ps": duration_ps}
    for name, values in columns.items():
        made[name] = values
    return made


def _stalls(program: Program, timeline: Timeline) -> Pieces:
    """Return the waits before ops, cut by cause."""
    ops = timeline.ops
    waiting = np.flatnonzero(ops["stall_ps"] > 0)
    rows = ops[waiting]
    record, end = rows["record"].astype(np.int64), rows["start_ps"]
    start = end - rows["stall_ps"]
    phases = Phases(program, timeline)
    producer = timeline.waited_for[record]
    is_mover = rows["kind"] == Op.TRANSFER
    for_dma = (rows["reason"] == Stall.DATA_DMA) & (producer >= 0)
    other = ~is_mover & ~for_dma
    return Pieces.joined(
        [
            phases.pieces(waiting[for_dma], start[for_dma], end[for_dma], producer[for_dma]),
            Pieces(
                waiting[other],
                waits(program, timeline, record[other], rows["reason"][other]),
                start[other],
                end[other],
                producer[other],
            ),
            *_movers(timeline, waiting[is_mover], start[is_mover], end[is_mover], record[is_mover]),
        ]
    )


def _movers(timeline: Timeline, wait: Ints, start: Ints, end: Ints, record: Ints) -> list[Pieces]:
    """Return why DMA engines had nothing to move: nobody had triggered a DMA, and then it was on its way."""
    triggered = timeline.start_ps[record]
    early, late = np.flatnonzero(triggered > start), np.flatnonzero(end > triggered)
    untold = np.full(len(early), NUMBERS["no_dma"])
    latency = np.full(len(late), NUMBERS["dma_latency"])
    until, since = np.minimum(triggered, end), np.maximum(triggered, start)
    return [
        Pieces(wait[early], untold, start[early], until[early], timeline.waited_for[record[early]]),
        Pieces(wait[late], latency, since[late], end[late], record[late]),
    ]


def _main(stalls: Pieces, count: int) -> tuple[NDArray[np.int8], NDArray[np.int32]]:
    """Return, by op, the cause of most of its wait and the record behind it, -1 where there is none."""
    main, behind = np.full(count, -1, dtype=np.int8), np.full(count, -1, dtype=np.int32)
    keys = stalls.wait * len(CAUSES) + stalls.cause
    groups, index = np.unique(keys, return_inverse=True)
    total = np.zeros(len(groups), dtype=np.int64)
    np.add.at(total, index, stalls.end_ps - stalls.start_ps)
    order = np.lexsort((-groups, total))  # of several values for one index, numpy keeps the last
    main[groups[order] // len(CAUSES)] = groups[order] % len(CAUSES)
    chosen = np.flatnonzero(main[stalls.wait] == stalls.cause)
    order = chosen[np.lexsort((stalls.start_ps[chosen], (stalls.end_ps - stalls.start_ps)[chosen]))]
    behind[stalls.wait[order]] = stalls.waited_for[order]
    return main, behind
