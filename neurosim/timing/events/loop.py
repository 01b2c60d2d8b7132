"""The loop over all events: engines that take records, DMAs that arrive, tiles that die.

A record may start when all its constraints are met: results that it needs, space for tiles that it writes first,
room in its DMA queue, its engine. Each engine takes, of the records that may start and are within its window, the
first one in program order; with a window of one that is program order itself. Time never goes back: whatever is
decided at some time can only have effects later, or at that time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from neurosim.jit import compiled, inlined
from neurosim.timing.events.engines import execute
from neurosim.timing.events.heaps import pop, push
from neurosim.timing.events.movement import move
from neurosim.timing.events.names import ENGINES, Stall
from neurosim.timing.events.tables import NEVER, Tables

_NONE = int(Stall.NONE)
_BUFFER = int(Stall.BUFFER)
_QUEUE = int(Stall.QUEUE)
_MEETING = int(Stall.MEETING)
_PORT = int(Stall.PORT)
_UNITS = len(ENGINES)
_VECTOR = ENGINES.index("vector")
_int64: Any = np.int64
"""Columns are of 32 bits: without it, functions would be compiled once for each mixture of widths."""


@compiled
def run(tables: Tables) -> None:
    """Fill in when everything happens; what can never start keeps a ``complete_ps`` of -1."""
    totals = tables.totals
    for record in range(len(tables.records)):
        if tables.records[record].remaining == 0:
            _enqueue(tables, record)
    for pool in range(len(tables.pools)):
        _hand_out(tables, pool, 0, -1)
    while True:
        unit, time_ps = -1, NEVER
        for index in range(len(tables.units)):
            if tables.units[index].wake_ps < time_ps:
                unit, time_ps = index, tables.units[index].wake_ps
        first = totals[0].events_first
        if totals[0].events > 0 and tables.heap[first].key <= time_ps:
            time_ps, item = tables.heap[first].key, tables.heap[first].entry
            pop(tables.heap, first, totals[0].events)
            totals[0].events -= 1
            if item >= 0 and tables.records[item].gone:
                _pass_on(tables, item, time_ps)
            elif item >= 0:
                _arrive(tables, item, time_ps)
            else:
                tile = tables.tiles[-1 - item]
                tables.pools[tile.pool].free_bytes += tile.size_bytes
                _hand_out(tables, _int64(tile.pool), time_ps, _int64(tile.death_by))
        elif unit >= 0:
            record = _choose(tables, unit, time_ps)
            if record >= 0:
                _take(tables, record, time_ps)
        else:
            return


@compiled
def _meet(tables: Tables, record: int, time_ps: int, reason: int, by: int) -> None:
    """Meet one constraint of a record."""
    mine = tables.records[record]
    if time_ps > mine.ready_ps:
        mine.ready_ps = time_ps
        mine.reason = reason
        mine.waited_for = by
    mine.remaining -= 1
    if mine.remaining == 0:
        _enqueue(tables, record)


@inlined
def _window(tables: Tables, queue: int) -> int:
    """Return how many records an engine may look at for one of a DMA queue, or of none (-1)."""
    window: int = tables.totals[0].dma_window if queue >= 0 else tables.totals[0].window
    return window


@inlined
def _enqueue(tables: Tables, record: int) -> None:
    """Let a record wait, for its time and for its engine."""
    mine = tables.records[record]
    if mine.gone:
        totals = tables.totals
        push(tables.heap, totals[0].events_first, totals[0].events, mine.ready_ps, record)
        totals[0].events += 1
        return
    unit = tables.units[mine.unit]
    push(tables.heap, unit.future_first, unit.future_size, mine.ready_ps, record)
    unit.future_size += 1
    if mine.position - unit.head < _window(tables, tables.groups[mine.group].queue):
        unit.wake_ps = min(unit.wake_ps, max(mine.ready_ps, unit.next_ps))


@inlined
def _hand_out(tables: Tables, number: int, time_ps: int, by: int) -> None:
    """Hand out a pool's free space in program order."""
    pool = tables.pools[number]
    while pool.next < pool.end:
        row = tables.pool_tiles[pool.next]
        size_bytes = tables.tiles[row.tile].size_bytes if row.takes else 0
        if size_bytes > pool.free_bytes:
            break
        pool.free_bytes -= size_bytes
        pool.next += 1
        _meet(tables, _int64(tables.pool_tiles[pool.next - 1].record), time_ps, _int64(_BUFFER), _int64(by))


@inlined
def _room(tables: Tables, number: int) -> tuple[int, int]:
    """Return when a queue takes another DMA (NEVER: not known yet), and the DMA that it waits for."""
    queue = tables.queues[number]
    if queue.issued == 0:
        return 0, -1
    after = queue.start + queue.issued
    room_ps, by = queue.free_ps, tables.queue_records[after - 1]
    if queue.issued >= queue.depth:
        oldest = tables.queue_records[after - queue.depth]
        complete_ps = tables.records[oldest].complete_ps
        if complete_ps < 0:
            room_ps, by = NEVER, oldest
        elif complete_ps > room_ps:
            room_ps, by = complete_ps, oldest
    return room_ps, by


@inlined
def _choose(tables: Tables, number: int, time_ps: int) -> int:
    """Return the record that an engine takes now; -1 if there is none, and then find out when to look again."""
    heap, unit = tables.heap, tables.units[number]
    while unit.future_size > 0 and heap[unit.future_first].key <= time_ps:
        record = heap[unit.future_first].entry
        pop(heap, unit.future_first, unit.future_size)
        unit.future_size -= 1
        group = tables.groups[tables.records[record].group]
        push(heap, group.first, group.held, record, record)
        group.held += 1
    first_record = tables.unit_records[unit.start + unit.head]
    epoch = tables.records[first_record].epoch
    best, best_group, wake_ps = -1, -1, NEVER
    if unit.future_size > 0:
        wake_ps = heap[unit.future_first].key
    for index in range(unit.group_start, unit.group_end):
        group = tables.groups[index]
        if group.held == 0:
            continue
        record = heap[group.first].entry
        if record != first_record:
            mine = tables.records[record]
            if mine.position - unit.head >= _window(tables, group.queue) or mine.epoch != epoch:
                continue
            if group.table >= 0 and group.table != unit.table:
                continue  # only the first in program order may change the table
        if group.queue >= 0:
            room_ps, _ = _room(tables, group.queue)
            if room_ps > time_ps:
                wake_ps = min(wake_ps, room_ps)
                continue
        if best < 0 or record < best:
            best, best_group = record, index
    unit.wake_ps = wake_ps
    if best >= 0:
        group = tables.groups[best_group]
        pop(heap, group.first, group.held)
        group.held -= 1
        tables.records[best].issued = 1
        while unit.start + unit.head < unit.end and tables.records[tables.unit_records[unit.start + unit.head]].issued:
            unit.head += 1
    return best


@inlined
def _take(tables: Tables, record: int, time_ps: int) -> None:
    """Start a record; at a meeting, hold its engine until the other core is there, too, and start both."""
    mine = tables.records[record]
    first, second = record, -1
    if mine.partner >= 0:
        other = tables.records[mine.partner]
        mine.arrival_ps = time_ps
        if other.arrival_ps < 0:
            tables.units[mine.unit].next_ps = NEVER
            tables.units[mine.unit].wake_ps = NEVER
            return
        if other.arrival_ps < time_ps:
            other.ready_ps = time_ps
            other.reason = _MEETING
            other.waited_for = record
        first, second = min(record, mine.partner), max(record, mine.partner)
    while first >= 0:
        _start(tables, first, time_ps)
        first, second = second, -1


@inlined
def _start(tables: Tables, record: int, time_ps: int) -> None:
    mine = tables.records[record]
    unit = tables.units[mine.unit]
    if mine.ready_ps <= unit.free_ps:
        mine.reason = _NONE
        mine.waited_for = unit.last
    if mine.queue >= 0:
        room_ps, by = _room(tables, mine.queue)
        if room_ps > max(mine.ready_ps, unit.free_ps):
            mine.reason = _QUEUE
            mine.waited_for = by
    mine.start_ps = time_ps
    if mine.claim_start < mine.claim_end:
        _take_turn(tables, record)
    complete_ps = execute(tables, record)
    unit.last = record
    unit.wake_ps = unit.next_ps if unit.start + unit.head < unit.end else NEVER
    left_ps = mine.start_ps + tables.costs[mine.signature].port_ps
    for index in range(mine.edge_start, mine.edge_split):
        edge = tables.edges[index]
        free_ps = left_ps if edge.reason == _PORT else unit.next_ps
        _meet(tables, _int64(edge.consumer), free_ps, _int64(edge.reason), _int64(record))
    if mine.claim_start < mine.claim_end:
        _hold(tables, record, left_ps)
    if complete_ps >= 0:
        complete_ps = max(complete_ps, unit.retired_ps)
        unit.retired_ps = complete_ps
        _finish(tables, _int64(record), complete_ps)


@inlined
def _take_turn(tables: Tables, record: int) -> None:
    """Let a record, whose engine has it, wait until the other engine has left the ports that it needs."""
    mine = tables.records[record]
    is_vector = mine.unit % _UNITS == _VECTOR
    for index in range(mine.claim_start, mine.claim_end):
        port = tables.ports[tables.claims[index]]
        until_ps = port.other_ps if is_vector else port.vector_ps
        if until_ps > mine.start_ps:
            mine.start_ps = until_ps
            mine.reason = _PORT
            mine.waited_for = port.other_by if is_vector else port.vector_by


@inlined
def _hold(tables: Tables, record: int, left_ps: int) -> None:
    """Note until when a record has its ports; it is the last one of its engine that needs them."""
    mine = tables.records[record]
    for index in range(mine.claim_start, mine.claim_end):
        port = tables.ports[tables.claims[index]]
        if mine.unit % _UNITS == _VECTOR:
            port.vector_ps = left_ps
            port.vector_by = record
        else:
            port.other_ps = left_ps
            port.other_by = record


@inlined
def _arrive(tables: Tables, record: int, time_ps: int) -> None:
    """Move a transfer's data."""
    mine = tables.records[record]
    done_ps = move(tables, record, mine.unit // _UNITS, time_ps) + tables.costs[mine.signature].semaphore_ps
    first, second = record, -1
    if mine.partner >= 0:  # a core has its tile when the other one's DMA has brought it
        other = tables.records[mine.partner]
        mine.moved_ps = done_ps
        if other.moved_ps < 0:
            return
        done_ps = max(done_ps, other.moved_ps)
        first, second = min(record, mine.partner), max(record, mine.partner)
    while first >= 0:
        _finish(tables, _int64(first), done_ps)
        first, second = second, -1


@compiled
def _finish(tables: Tables, record: int, time_ps: int) -> None:
    """Tell those who wait for a record when it completes, and count its accesses to tiles."""
    mine = tables.records[record]
    mine.complete_ps = time_ps
    for index in range(mine.edge_split, mine.edge_end):
        edge = tables.edges[index]
        _meet(tables, _int64(edge.consumer), time_ps + edge.delay_ps, _int64(edge.reason), record)
    unit = tables.units[mine.unit]
    if mine.queue >= 0 and unit.start + unit.head < unit.end:  # a DMA may have waited for room in its queue
        unit.wake_ps = min(unit.wake_ps, max(time_ps, unit.next_ps))
    _leave(tables, record, time_ps)


@inlined
def _leave(tables: Tables, record: int, time_ps: int) -> None:
    """Count a record's accesses to tiles, which die with their last one."""
    mine = tables.records[record]
    for touch in range(mine.touch_start, mine.touch_end):
        tile = tables.tiles[tables.touches[touch]]
        if time_ps > tile.death_ps:
            tile.death_ps = time_ps
            tile.death_by = record
        tile.touches -= 1
        if tile.touches == 0:
            totals = tables.totals
            push(tables.heap, totals[0].events_first, totals[0].events, tile.death_ps, -1 - tables.touches[touch])
            totals[0].events += 1


@inlined
def _pass_on(tables: Tables, record: int, time_ps: int) -> None:
    """End a record that takes no time: those who wait for it wait for what it waited for."""
    mine = tables.records[record]
    mine.start_ps = time_ps
    mine.complete_ps = time_ps
    for index in range(mine.edge_start, mine.edge_end):
        edge = tables.edges[index]
        delay_ps = edge.delay_ps if index >= mine.edge_split else 0
        _meet(tables, _int64(edge.consumer), time_ps + delay_ps, _int64(edge.reason), _int64(mine.waited_for))
    _leave(tables, record, time_ps)
