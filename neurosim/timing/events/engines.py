"""What an engine does with the record that it takes: steps on lanes, matrix multiplications, triggers of DMAs."""

from __future__ import annotations

from neurosim.jit import inlined
from neurosim.timing.events.heaps import push
from neurosim.timing.events.names import Op, Stall
from neurosim.timing.events.tables import MULTIPLY, TRANSFER, Table, Tables

_NONE = int(Stall.NONE)
_DATA_ENGINE = int(Stall.DATA_ENGINE)
_LOAD_STATIONARY = int(Op.LOAD_STATIONARY)
_MATMUL = int(Op.MATMUL)
_TABLE_LOAD = int(Op.TABLE_LOAD)
_TRIGGER = int(Op.TRIGGER)


@inlined
def _log(tables: Tables, record: int, unit: int, kind: int, reason: int, start: int, end: int, held: int) -> None:
    totals = tables.totals
    row = tables.ops[totals[0].ops]
    row.record = record
    row.unit = unit
    row.kind = kind
    row.reason = reason
    row.start_ps = start
    row.end_ps = end
    row.held_ps = held
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
    totals, steps = tables.totals, tables.steps
    mine = tables.records[record]
    unit, cost = tables.units[mine.unit], tables.costs[mine.signature]
    if cost.table >= 0 and cost.table != unit.table:
        # loading another table needs no data: it starts as soon as the engine is free
        loaded = unit.free_ps + totals[0].table_load_ps
        _log(tables, record, mine.unit, _TABLE_LOAD, _NONE, unit.free_ps, loaded, 0)
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
        _log(tables, record, mine.unit, steps[step].kind, reason, begin, end, 0)
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
    stream, late = load, 0
    for _ in range(cost.pairs):
        loaded = _work(tables, unit, load, cost.load_ps, 0)
        stream = max(loaded, free)
        free = _work(tables, unit, stream, cost.stream_ps, cost.busy_rows)
        late = free - stream - cost.stream_ps
        _log(tables, record, mine.unit, _LOAD_STATIONARY, reason, load, loaded, loaded - load - cost.load_ps)
        _log(tables, record, mine.unit, _MATMUL, _NONE, stream, free, late)
        load, reason = stream, _NONE
    if unit.throttled:
        late += tables.totals[0].latency_ps
    if cost.cells:
        for cell in range(len(parts)):
            if cost.cells >> cell & 1:
                parts[cell] = free
        free = max(free, unit.free_ps)
    else:
        unit.cells_split = 0  # all parts are free when the whole array is
    unit.free_ps = free
    unit.next_ps = stream
    complete: int = stream + late + cost.latency_ps
    return complete


@inlined
def _work(tables: Tables, unit: Table, begin_ps: int, duration_ps: int, rows: int) -> int:
    """Return when the tensor engine has done what takes ``duration_ps`` at its full clock.

    It begins at the lower clock. After each window, it goes up if so many rows were active for so long, and down if
    they were not. (What begins before the window that was looked at last, beside other cells, counts in that one.)
    """
    throttle = tables.totals[0]
    if throttle.window_ps == 0:
        return begin_ps + duration_ps
    at, left = begin_ps, duration_ps
    while True:
        if at >= unit.window_end_ps:
            if unit.activity >= throttle.up:
                unit.throttled = 0
            elif unit.activity < throttle.down:
                unit.throttled = 1
            passed = (at - unit.window_end_ps) // throttle.window_ps
            if passed > 0:
                unit.throttled = 1  # nothing happened in whole windows
            unit.activity = 0
            unit.window_end_ps += (passed + 1) * throttle.window_ps
        needed = left
        if unit.throttled:
            needed = left * throttle.slow_ppm // 1_000_000
        room = unit.window_end_ps - at
        if needed <= room:
            unit.activity += needed * rows
            return at + needed
        unit.activity += room * rows
        at += room
        left -= room * 1_000_000 // throttle.slow_ppm if unit.throttled else room


@inlined
def _trigger(tables: Tables, record: int) -> None:
    """Execute a DMA instruction, whose data arrives at the DMA engines later."""
    totals, mine = tables.totals, tables.records[record]
    unit, cost, queue = tables.units[mine.unit], tables.costs[mine.signature], tables.queues[mine.queue]
    end = mine.start_ps + cost.trigger_ps
    if mine.partner >= 0:
        end += totals[0].meeting_ps
    _log(tables, record, mine.unit, _TRIGGER, mine.reason, mine.start_ps, end, 0)
    unit.free_ps = end
    unit.next_ps = end
    queue.free_ps = mine.start_ps + cost.interval_ps
    queue.arrival_ps = max(end + cost.first_data_ps, queue.arrival_ps)
    mine.data_ps = queue.arrival_ps
    tables.queue_records[queue.start + queue.issued] = record
    queue.issued += 1
    push(tables.heap, totals[0].events_first, totals[0].events, queue.arrival_ps, record)
    totals[0].events += 1
