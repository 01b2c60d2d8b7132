"""What each unit did, in order, from the logs of the loop: with what it waited before and within each op."""

from __future__ import annotations

from typing import Any

from neurosim.jit import compiled, inlined
from neurosim.timing.events.names import ENGINES, Op, Stall

_UNITS = len(ENGINES)
_TRANSFER = int(Op.TRANSFER)
_DESCRIPTORS = int(Stall.DESCRIPTORS)
_BANDWIDTH = int(Stall.BANDWIDTH)
_THROTTLE = int(Stall.THROTTLE)


@compiled
def count_ops(done: Any, moves: Any, records: Any, core: int, counts: Any) -> None:
    """Count a core's ops by unit; a row of ``moves`` stands for one on each of several DMA engines."""
    for index in range(len(done)):
        if done[index].unit // _UNITS == core:
            counts[done[index].unit % _UNITS] += 1
    for index in range(len(moves)):
        if records[moves[index].record].unit // _UNITS == core:
            for engine in range(moves[index].engine, moves[index].engine + moves[index].count):
                counts[_UNITS + engine] += 1


@compiled
def arrange(
    done: Any, moves: Any, records: Any, numbers: Any, core: int, places: Any, reached_ps: Any, ops: Any, totals_ps: Any
) -> None:
    """Fill in a core's ops by unit and start, and add them up.

    Args:
        done, moves: the logs of engines and of DMA engines, each unit's in order of start.
        records: by record that was executed.
        numbers: by record that was executed, its number in the program.
        core: which core, counted from 0.
        places: by unit, the row of ``ops`` for its next op.
        reached_ps: by unit, up to when it was occupied so far.
        ops: what is filled in.
        totals_ps: by unit, what is added to: waiting by reason, and work behind these.
    """
    for index in range(len(done)):
        row = done[index]
        if row.unit // _UNITS == core:
            unit = row.unit % _UNITS
            place = _add(row, unit, numbers[row.record], places, reached_ps, ops)
            ops[place].kind = row.kind
            ops[place].reason = row.reason
            _total(ops[place], unit, _THROTTLE, totals_ps)
    for index in range(len(moves)):
        row = moves[index]
        if records[row.record].unit // _UNITS == core:
            for engine in range(row.engine, row.engine + row.count):
                unit = _UNITS + engine
                place = _add(row, unit, numbers[row.record], places, reached_ps, ops)
                ops[place].kind = _TRANSFER
                ops[place].reason = _DESCRIPTORS
                _total(ops[place], unit, _BANDWIDTH, totals_ps)


@inlined
def _add(row: Any, unit: int, number: int, places: Any, reached_ps: Any, ops: Any) -> int:
    """Fill in when a unit did what a row of its log says, and return where."""
    place: int = places[unit]
    places[unit] += 1
    op = ops[place]
    alone_ps = max(row.end_ps - max(row.start_ps, reached_ps[unit]), 0)
    op.record = number
    op.unit = unit
    op.start_ps = row.start_ps
    op.end_ps = row.end_ps
    op.stall_ps = max(row.start_ps - reached_ps[unit], 0)
    op.held_ps = min(row.held_ps, alone_ps)
    op.busy_ps = alone_ps - op.held_ps
    reached_ps[unit] = max(reached_ps[unit], row.end_ps)
    return place


@inlined
def _total(op: Any, unit: int, held: int, totals_ps: Any) -> None:
    totals_ps[unit][op.reason] += op.stall_ps
    totals_ps[unit][held] += op.held_ps
    totals_ps[unit][-1] += op.busy_ps
