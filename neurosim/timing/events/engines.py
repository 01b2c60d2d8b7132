"""What an engine does with the record that it takes: steps on lanes, matrix multiplications, triggers of DMAs."""

from __future__ import annotations

from neurosim.jit import inlined
from neurosim.timing.events.heaps import push
from neurosim.timing.events.tables import MULTIPLY, TRANSFER, Table, Tables
from neurosim.timing.timeline import Op, Stall

_NONE = int(Stall.NONE)
_DATA_ENGINE = int(Stall.DATA_ENGINE)
_LOAD_STATIONARY = int(Op.LOAD_STATIONARY)
_MATMUL = int(Op.MATMUL)
_TABLE_LOAD = int(Op.TABLE_LOAD)
_TRIGGER = int(Op.TRIGGER)


@inlined
def _log(ops: Table, totals: Table, record: int, unit: int, kind: int, reason: int, start: int, end: int) -> None:
    row = ops[totals[0].ops]
    row.record = record
    row.unit = unit
    row.kind = kind
    row.reason = reason
    row.start_ps = start
    row.end_ps = end
    totals[0].ops += 1


@inlined
def execute(tables: Tables, record: int) -> int:
    """Let an engine take a record at its ``start_ps``; return when its result is there, -1 if a DMA will bring it."""
    kind = tables.costs[tables.records[record].signature].kind
    if kind == MULTIPLY:
        return _multiply(tables, record)
    if kind == TRANSFER:
        _trigger(tables, record)
        return -1
    return _compute(tables, record)


@inlined
def _compute(tables: Tables, record: int) -> int:
    """Do the steps of a lane-wise instruction."""
    ops, totals, steps = tables.ops, tables.totals, tables.steps
    mine = tables.records[record]
    unit, cost = tables.units[mine.unit], tables.costs[mine.signature]
    if cost.table >= 0 and cost.table != unit.table:
        # loading another table needs no data: it starts as soon as the engine is free
        loaded = unit.free_ps + totals[0].table_load_ps
        _log(ops, totals, record, mine.unit, _TABLE_LOAD, _NONE, unit.free_ps, loaded)
        unit.table = cost.table
        unit.free_ps = loaded
        if mine.start_ps <= loaded:
            mine.start_ps = loaded
            mine.reason = _NONE
            mine.waited_for = unit.last
    if cost.quadrants >= 0:
        # a transpose between other quadrants than the last one's waits until the engine is empty
        if unit.quadrants >= 0 and unit.quadrants != cost.quadrants and mine.start_ps < unit.retired_ps:
            mine.start_ps = unit.retired_ps
            mine.reason = _DATA_ENGINE
            mine.waited_for = unit.last
        unit.quadrants = cost.quadrants
    begin, reason, complete = mine.start_ps, mine.reason, 0
    for step in range(cost.step_start, cost.step_end):
        end = begin + steps[step].issue_ps
        _log(ops, totals, record, mine.unit, steps[step].kind, reason, begin, end)
        complete = max(complete, begin + steps[step].latency_ps)
        begin, reason = end, _NONE
    unit.free_ps = begin
    unit.next_ps = begin
    return complete


@inlined
def _multiply(tables: Tables, record: int) -> int:
    """Issue LoadStationary and MATMUL pairs.

    A load fills spare weight registers while the MATMUL before it streams. They are spare again once the
    load's own MATMUL has begun. Tiles of the array that share no cell stream at the same time.
    """
    ops, totals = tables.ops, tables.totals
    mine = tables.records[record]
    unit, cost, parts = tables.units[mine.unit], tables.costs[mine.signature], tables.cells_free_ps[mine.unit]
    load, reason, free = mine.start_ps, mine.reason, unit.free_ps
    if cost.cells:
        if unit.cells_split == 0:
            for cell in range(len(parts)):
                parts[cell] = free
            unit.cells_split = 1
        free = 0
        for cell in range(len(parts)):
            if cost.cells >> cell & 1:
                free = max(free, parts[cell])
    stream = load
    for _ in range(cost.pairs):
        loaded = load + cost.load_ps
        stream = max(loaded, free)
        free = stream + cost.stream_ps
        _log(ops, totals, record, mine.unit, _LOAD_STATIONARY, reason, load, loaded)
        _log(ops, totals, record, mine.unit, _MATMUL, _NONE, stream, free)
        load, reason = stream, _NONE
    if cost.cells:
        for cell in range(len(parts)):
            if cost.cells >> cell & 1:
                parts[cell] = free
        free = max(free, unit.free_ps)
    else:
        unit.cells_split = 0  # all parts are free when the whole array is
    unit.free_ps = free
    unit.next_ps = stream
    complete: int = stream + cost.latency_ps
    return complete


@inlined
def _trigger(tables: Tables, record: int) -> None:
    """Execute a DMA instruction, whose data arrives at the DMA engines later."""
    totals, mine = tables.totals, tables.records[record]
    unit, cost, queue = tables.units[mine.unit], tables.costs[mine.signature], tables.queues[mine.queue]
    end = mine.start_ps + cost.trigger_ps
    if mine.partner >= 0:
        end += totals[0].meeting_ps
    _log(tables.ops, totals, record, mine.unit, _TRIGGER, mine.reason, mine.start_ps, end)
    unit.free_ps = end
    unit.next_ps = end
    queue.free_ps = mine.start_ps + cost.interval_ps
    queue.arrival_ps = max(end + cost.first_data_ps, queue.arrival_ps)
    tables.queue_records[queue.start + queue.issued] = record
    queue.issued += 1
    push(tables.heap, totals[0].events_first, totals[0].events, queue.arrival_ps, record)
    totals[0].events += 1
