"""DMA engines that serve transfers in the order in which these arrive, and the HBM that they share."""

from __future__ import annotations

from neurosim.jit import inlined
from neurosim.timing.events.tables import Table, Tables


@inlined
def _log(tables: Tables, record: int, engine: int, count: int, start: int, end: int, held: int) -> None:
    totals = tables.totals
    row = tables.moves[totals[0].moves]
    row.record = record
    row.engine = engine
    row.count = count
    row.start_ps = start
    row.end_ps = end
    row.held_ps = held
    totals[0].moves += 1


@inlined
def take(spans: Table, totals: Table, arrival_ps: int, begin_ps: int, duration_ps: int) -> int:
    """Take HBM for ``duration_ps`` from ``begin_ps`` on and return when that is over.

    Each transfer takes the first time that is free, in as many pieces as the others have left: so several cores
    together get no more than its bandwidth, and one core alone gets what it always gets. Nothing will ask for times
    before ``arrival_ps`` any more.
    """
    count = totals[0].spans
    gone = 0
    while gone < count and spans[gone].end_ps <= arrival_ps:
        gone += 1
    if gone > 0:
        for index in range(gone, count):
            spans[index - gone].start_ps = spans[index].start_ps
            spans[index - gone].end_ps = spans[index].end_ps
        count -= gone
    index = 0
    while index < count and spans[index].end_ps <= begin_ps:
        index += 1
    first, start, at, left = index, begin_ps, begin_ps, duration_ps
    while index < count and spans[index].start_ps - at < left:
        left -= max(spans[index].start_ps - at, 0)
        at = spans[index].end_ps
        index += 1
    end = at + left
    if first < index:
        start = min(start, spans[first].start_ps)
    if first > 0 and spans[first - 1].end_ps == start:
        first -= 1
        start = spans[first].start_ps
    shift = first + 1 - index  # one span in place of those from first to index
    if shift > 0:
        for place in range(count - 1, index - 1, -1):
            spans[place + shift].start_ps = spans[place].start_ps
            spans[place + shift].end_ps = spans[place].end_ps
    elif shift < 0:
        for place in range(index, count):
            spans[place + shift].start_ps = spans[place].start_ps
            spans[place + shift].end_ps = spans[place].end_ps
    spans[first].start_ps = start
    spans[first].end_ps = end
    totals[0].spans = count + shift
    return end


@inlined
def _through_hbm(spans: Table, totals: Table, arrival_ps: int, begin_ps: int, duration_ps: int) -> int:
    """Return when a transfer's bytes have gone through HBM, which other cores may use, too."""
    if totals[0].shares_hbm == 0 or duration_ps == 0:
        return begin_ps + duration_ps
    return take(spans, totals, arrival_ps, begin_ps, duration_ps)


@inlined
def move(tables: Tables, record: int, number: int, arrival_ps: int) -> int:
    """Serve a transfer of a core, and return when its last byte has arrived. Call it in order of arrival."""
    totals, shares, spans = tables.totals, tables.shares, tables.spans
    cost = tables.costs[tables.records[record].signature]
    core, free = tables.cores[number], tables.movers_free_ps[number]
    engines = totals[0].dma_engines
    turn = tables.records[record].turn
    first_begin, last_begin = -1, 0
    for share in range(cost.share_start, cost.share_end):
        begin = max(arrival_ps, free[(shares[share].engine + turn) % engines])
        last_begin = max(last_begin, begin)
        first_begin = begin if first_begin < 0 else min(first_begin, begin)
        if cost.level and core.level:
            break  # they are all alike
    hbm_begin = max(first_begin, core.hbm_free_ps)
    hbm_end = _through_hbm(spans, totals, arrival_ps, hbm_begin, cost.hbm_ps)
    if cost.level and core.level:
        moved = first_begin + shares[cost.share_start].busy_ps
        end = max(moved, hbm_end)
        _log(tables, record, 0, engines, first_begin, end, end - moved)
        for engine in range(engines):
            free[engine] = end
    else:
        end = 0
        for share in range(cost.share_start, cost.share_end):
            engine = (shares[share].engine + turn) % engines
            begin = max(arrival_ps, free[engine])
            moved = begin + shares[share].busy_ps
            free[engine] = max(moved, hbm_end)
            _log(tables, record, engine, 1, begin, free[engine], free[engine] - moved)
            end = max(end, free[engine])
        core.level = 1
        for engine in range(engines):
            if free[engine] != free[0]:
                core.level = 0
    held_up = last_begin > arrival_ps or hbm_begin > last_begin
    core.hbm_free_ps = hbm_end
    tables.records[record].queued_behind = core.last if held_up else -1
    core.last = record
    done: int = max(end, max(last_begin, hbm_begin) + cost.payload_ps)
    return done
