"""Slack: how much later each instruction could be before the kernel ended later, all else in the order that it had.

It is what is left in every gap behind an instruction: to those that wait for its result, to the next one of its
engine, of its queue, of the DMA engines, of a port, to who gets its space. Where it cannot be told how far a gap
reaches (transfers that share HBM, meetings of cores), it counts as none: so slack is never too large, but for the
throttle of the tensor engine, whose windows it does not look at.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neurosim import tiers
from neurosim.chip import Chip
from neurosim.program import Program
from neurosim.timing.events.names import Stall
from neurosim.timing.events.slack import relax
from neurosim.timing.events.tables import Tables
from neurosim.timing.options import TimingOptions
from neurosim.timing.schedule import schedule
from neurosim.timing.timeline import ENGINES, Op

Ints = NDArray[np.int64]


class _Pairs(NamedTuple):
    """Records of which the second waits where the first is later than by the gap."""

    first: Ints
    second: Ints
    gap_ps: Ints


def slack_ps(program: Program, chip: Chip, timing: TimingOptions) -> Ints:
    """Return by record how much later it could be, in picoseconds; one that was left out, as the one in its place.

    Args:
        program: what was recorded.
        chip: what it ran on.
        timing: how it is timed.
    """
    compiled, _, tables = schedule(program, chip, timing.schedule, throttle=timing.throttle)
    records = tables.records
    ends = records.complete_ps.copy()
    ops, moves = np.asarray(tables.ops)[: tables.totals[0].ops], np.asarray(tables.moves)[: tables.totals[0].moves]
    for log in (ops, moves):
        np.maximum.at(ends, log["record"], log["end_ps"])
    slack = ends.max(initial=0) - ends
    slack[records.partner >= 0] = 0
    _leave_space(tables, slack)
    pairs = [
        _dependences(tables),
        *_engines(ops),
        _retirements(tables, ops),
        *_queues(tables),
        _movers(tables, moves),
        _hbm(tables, moves, slack),
        *_turns(tables, slack),
    ]
    first, second, gap = (np.concatenate(columns).astype(np.int64) for columns in zip(*pairs, strict=True))
    order = np.argsort(-records.start_ps[first], kind="stable")
    tiers.run(len(program), relax, slack, first[order], second[order], np.maximum(gap[order], 0))
    by_record = np.zeros(len(program), dtype=np.int64)
    by_record[compiled.records] = slack
    return by_record[compiled.stand_ins]


def _dependences(tables: Tables) -> _Pairs:
    """Those that wait for a result; what an engine's own order holds apart is not here."""
    records, edges = tables.records, tables.edges
    counts = records.edge_end - records.edge_start
    producer = np.repeat(np.arange(len(records)), counts)
    results = np.arange(len(edges)) >= records.edge_split[producer]
    producer, edges = producer[results], edges[results]
    gap = records.start_ps[edges.consumer] - edges.delay_ps - records.complete_ps[producer]
    return _Pairs(producer, edges.consumer.astype(np.int64), gap)


def _following(rows: NDArray[Any], key: Ints) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return each two rows that follow each other among those of one key."""
    order = np.lexsort((rows["start_ps"], key))
    same = key[order][1:] == key[order][:-1]
    return rows[order][:-1][same], rows[order][1:][same]


def _engines(ops: NDArray[Any]) -> list[_Pairs]:
    """Ops that follow each other on an engine, and MATMULs alone: LoadStationaries go on behind them."""
    found = []
    for chosen in (ops, ops[ops["kind"] == Op.MATMUL]):
        before, after = _following(chosen, chosen["unit"].astype(np.int64))
        apart = before["record"] != after["record"]
        gap = (after["start_ps"] - before["end_ps"])[apart]
        found.append(_Pairs(before["record"][apart], after["record"][apart], gap))
    return found


def _retirements(tables: Tables, ops: NDArray[Any]) -> _Pairs:
    """Results of an engine come in its order; a transpose between other quadrants waits until it is empty."""
    records = tables.records
    before, after = _following(ops, ops["unit"].astype(np.int64))
    apart = (before["record"] != after["record"]) & (before["kind"] != Op.TRIGGER) & (after["kind"] != Op.TRIGGER)
    first, second = before["record"][apart], after["record"][apart]
    gap = records.complete_ps[second] - records.complete_ps[first]
    quadrants = tables.costs["quadrants"][records.signature[second]] >= 0
    gap = np.where(quadrants, np.minimum(gap, records.start_ps[second] - records.complete_ps[first]), gap)
    return _Pairs(first, second, gap)


def _queues(tables: Tables) -> list[_Pairs]:
    """DMAs of a queue: its interval, its depth, and that their data comes in order."""
    records, found = tables.records, []
    for queue in tables.queues:
        rows = np.asarray(tables.queue_records[queue.start : queue.start + queue.issued])
        interval = tables.costs["interval_ps"][records.signature[rows]]
        starts, data = records.start_ps[rows], records.data_ps[rows]
        found.append(_Pairs(rows[:-1], rows[1:], starts[1:] - starts[:-1] - interval[:-1]))
        found.append(_Pairs(rows[:-1], rows[1:], data[1:] - data[:-1]))
        later = rows[int(queue.depth) :]
        done = rows[: len(later)]
        found.append(_Pairs(done, later, records.start_ps[later] - records.complete_ps[done]))
    return found


def _movers(tables: Tables, moves: NDArray[Any]) -> _Pairs:
    """Transfers that follow each other on a DMA engine."""
    counts = moves["count"].astype(np.int64)
    ends = np.cumsum(counts)
    engine = np.arange(counts.sum()) + np.repeat(moves["engine"] - ends + counts, counts)
    rows = np.repeat(moves, counts)
    core = tables.records.unit[rows["record"]] // len(ENGINES)
    before, after = _following(rows, core.astype(np.int64) * tables.totals[0].dma_engines + engine)
    return _Pairs(before["record"], after["record"], after["start_ps"] - before["end_ps"])


def _hbm(tables: Tables, moves: NDArray[Any], slack: Ints) -> _Pairs:
    """Transfers that follow each other through HBM, whichever core they are of.

    One of another queue does not wait for the one before it, which then must not come after it: its slack is bound.
    """
    change = np.flatnonzero(np.append(True, np.diff(moves["record"]) != 0)[: len(moves)])
    record = moves["record"][change].astype(np.int64)
    end = np.maximum.reduceat(moves["end_ps"], change) if len(change) else np.zeros(0, np.int64)
    begin = np.minimum.reduceat(moves["start_ps"], change) if len(change) else end
    data, queue = tables.records.data_ps[record], tables.records.queue[record]
    others = queue[1:] != queue[:-1]
    np.minimum.at(slack, record[:-1][others], (data[1:] - data[:-1])[others])
    return _Pairs(record[:-1], record[1:], begin[1:] - end[:-1])


def _turns(tables: Tables, slack: Ints) -> list[_Pairs]:
    """Those of two engines that follow each other at a port, in program order or as they came.

    Of the latter, one must not come after the other: its slack is bound.
    """
    records, edges = tables.records, tables.edges
    producer = np.repeat(np.arange(len(records)), records.edge_end - records.edge_start)
    chosen = edges.reason == Stall.PORT
    ordered = producer[chosen], edges.consumer[chosen].astype(np.int64)
    claimant = np.repeat(np.arange(len(records)), records.claim_end - records.claim_start)
    order = np.lexsort((records.start_ps[claimant], tables.claims))
    port, claimant = tables.claims[order], claimant[order]
    changes = np.flatnonzero((port[1:] == port[:-1]) & (np.diff(records.unit[claimant]) != 0))
    arrived = claimant[changes], claimant[changes + 1]
    np.minimum.at(slack, arrived[0], records.start_ps[arrived[1]] - records.start_ps[arrived[0]])
    held_ps = tables.costs["port_ps"][records.signature]
    return [
        _Pairs(first, second, records.start_ps[second] - records.start_ps[first] - held_ps[first])
        for first, second in (ordered, arrived)
    ]


def _leave_space(tables: Tables, slack: Ints) -> None:
    """Bound the slack of what accesses scarce tiles: until their space is handed out again."""
    records, tiles = tables.records, tables.tiles
    for number in range(len(tables.pools)):
        pool = tables.pools[number]
        mine = tables.pool_tiles[: pool.end]
        mine = mine[tiles.pool[mine.tile] == number]
        taken = np.sort(np.minimum.reduceat(records.start_ps[mine.record], np.flatnonzero(mine.takes)))
        counts = records.touch_end - records.touch_start
        toucher = np.repeat(np.arange(len(records)), counts)
        touched = tables.touches
        here = tiles.pool[touched] == number
        toucher, touched = toucher[here], touched[here]
        following = np.searchsorted(taken, tiles.death_ps[touched])
        until = np.append(taken, np.iinfo(np.int64).max // 2)[following]
        np.minimum.at(slack, toucher, np.maximum(until - records.complete_ps[toucher], 0))
