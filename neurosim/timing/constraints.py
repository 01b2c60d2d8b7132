"""What must come before what: a program's constraints, as the tables that the loop over events works on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neurosim.analysis.dependences import Dependence, Operands, dependences
from neurosim.analysis.lifetimes import SPILL, SPILLS, check_capacity, lifetimes, peak_bytes, sizes_side_by_side
from neurosim.chip import Chip, psum_bytes
from neurosim.engines import Memory
from neurosim.errors import SimulatorBug
from neurosim.program import Access, Program, Signature, present
from neurosim.timing.edits import UNCHANGED, Edit
from neurosim.timing.events.tables import (
    CORE,
    EDGE,
    GROUP,
    HEAP,
    MOVE,
    NEVER,
    OP,
    POOL,
    POOL_TILE,
    PORT,
    QUEUE,
    RECORD,
    SPAN,
    TILE,
    TOTALS,
    TRANSFER,
    UNIT,
    Ints,
    Table,
    Tables,
    table,
)
from neurosim.timing.laws import ARRAY_CUTS, nanoseconds
from neurosim.timing.placement import Placement
from neurosim.timing.ports import Claims, claims, turns
from neurosim.timing.timeline import ENGINES, Stall
from neurosim.work import Transfer

Bools = NDArray[np.bool_]

_STATIC: Final = "none"
"""The kind of descriptor generation whose rings take any number of DMAs."""


class Costs(NamedTuple):
    """What signatures cost (``COST``), with the steps (``STEP``) and the shares (``SHARE``) of all of them."""

    costs: Table
    steps: Table
    shares: Table


@dataclass(frozen=True, slots=True)
class _Records:
    """What the constraints are made from, by record.

    Attributes:
        signatures, units, cores: the signature, the engine counted over all cores, the number of the core.
        is_dma: whether DMA engines do its work.
        partners: the other core's record of the same meeting, -1 for none.
        gone: whether it takes no time and no engine.
        earliest_ps: when it may start at the earliest.
    """

    signatures: Ints
    units: Ints
    cores: Ints
    is_dma: Bools
    partners: Ints
    gone: Bools
    earliest_ps: Ints


def tables_of(
    program: Program,
    chip: Chip,
    costs: Costs,
    placement: Placement,
    engines: Ints,
    window: int,
    edit: Edit = UNCHANGED,
    **figures: int,
) -> tuple[tuple[int, ...], Tables]:
    """Return the cores' numbers, and the tables of a program before anything has happened.

    Args:
        program, chip, costs, edit: what is timed, on what, what its signatures cost, and what is timed in its place.
        placement, engines: the signature of each record, with those of another engine; the engine of each signature.
        window: how many records an engine may look at. With one, turns at a port go in program order; with more, they
            go to whoever comes first, and constraints keep the order of accesses.
        figures: more columns of ``TOTALS``.
    """
    names, made = _columns(program, costs, placement.numbers, engines, edit)
    count, unit_count = len(program), len(names) * len(ENGINES)
    unit_records, unit_starts, positions = _streams(made.units, unit_count, made.gone)
    queues, of_queue = _queues(program, placement.signatures, made, chip.dma.queue_depth)
    groups, of_group, group_starts = _groups(made, costs.costs["table"][made.signatures], of_queue, unit_count)
    claimed = claims(program, placement, made.units, made.gone, chip)
    in_order = claimed if window == 1 else None
    edges, edge_starts, edge_splits = _edges(program, made, in_order, chip, edit.overwrites)
    ports, claim_starts = _ports(claimed, count, by_arrival=window > 1)
    tiles, pools, pool_tiles = _pools(program, chip, names, made.cores)
    touches, touch_starts = _touches(program, tiles)
    groups["first"] += count  # behind the heaps of the units
    records = _record_table(
        program,
        made,
        position=positions,
        group=of_group,
        queue=of_queue,
        turn=_turns(made, costs, chip.dma.engines),
        remaining=np.bincount(edges.consumer, minlength=count) + np.bincount(pool_tiles.record, minlength=count),
        edge_split=edge_splits,
        **_rows(edge=edge_starts, touch=touch_starts, claim=claim_starts),
    )
    figures |= {**_windows(program, window), "dma_engines": chip.dma.engines, "shares_hbm": len(names) > 1}
    return tuple(names.tolist()), Tables(
        **costs._asdict(),
        records=records,
        edges=edges,
        touches=touches,
        units=_unit_table(unit_starts, group_starts, figures["window_ps"]),
        unit_records=unit_records,
        groups=groups,
        queues=queues,
        **ports,
        tiles=tiles,
        pools=pools,
        pool_tiles=pool_tiles,
        **_idle(len(names), chip.dma.engines),
        **_rooms(made, costs, int((tiles.pool >= 0).sum())),
        totals=table(TOTALS, 1, events_first=2 * count, **figures),
    )


def _rows(**starts: Ints) -> dict[str, Ints]:
    """Return, by name, from where to where each record's rows of another table go."""
    borders = {"start": slice(None, -1), "end": slice(1, None)}
    return {f"{name}_{border}": rows[part] for name, rows in starts.items() for border, part in borders.items()}


def _idle(cores: int, movers: int) -> dict[str, Table]:
    """Return cores whose DMA engines and arrays have done nothing yet."""
    return {
        "cores": table(CORE, cores, level=1, last=-1),
        "cells_free_ps": np.zeros((cores * len(ENGINES), ARRAY_CUTS**2), dtype=np.int64),
        "movers_free_ps": np.zeros((cores, movers), dtype=np.int64),
    }


def _record_table(program: Program, records: _Records, **columns: Ints) -> Table:
    """Return the records, of which nothing is known yet."""
    return table(
        RECORD,
        len(program),
        signature=records.signatures,
        unit=records.units,
        epoch=_epochs(records),
        partner=records.partners,
        gone=records.gone,
        ready_ps=records.earliest_ps,
        **columns,
        **dict.fromkeys(("waited_for", "queued_behind", "complete_ps", "arrival_ps", "data_ps", "moved_ps"), -1),
    )


def _windows(program: Program, window: int) -> dict[str, int]:
    """Return among how many records an engine chooses, and for a DMA: its next one alone where tiles have to be moved.

    *Assumed*: a compiler adds these DMAs when the order is made and addresses in SBUF are given. Measured: latencies of
    the baselines of gqa_full and bmm_softmax on both chips (docs/validation.md, "Where it is wrong, and why").
    """
    spills = any(
        isinstance(work, Transfer) and any(name == SPILL for name, _ in signature.parameters)
        for signature in program.signatures
        for work in signature.work
    )
    return {"window": window, "dma_window": 1 if spills else window}


def _unit_table(starts: Ints, group_starts: Ints, window_ps: int) -> Table:
    """Return the units, which have done nothing yet."""
    return table(
        UNIT,
        len(starts) - 1,
        start=starts[:-1],
        end=starts[1:],
        future_first=starts[:-1],
        group_start=group_starts[:-1],
        group_end=group_starts[1:],
        wake_ps=NEVER,
        window_end_ps=window_ps,
        throttled=int(window_ps > 0),
        **dict.fromkeys(("last", "table", "quadrants"), -1),
    )


def _rooms(records: _Records, costs: Costs, tiles: int) -> dict[str, Table]:
    """Return the tables whose rows are written before they are read; memory that is not used costs nothing."""
    every, dmas = costs.costs, int(records.is_dma.sum())
    times = np.bincount(records.signatures, minlength=len(every))  # how often each signature occurs
    ops = np.maximum(2 * every["pairs"], every["step_end"] - every["step_start"] + (every["table"] >= 0))
    moves = every["share_end"] - every["share_start"]
    rows = {
        "heap": (HEAP, 2 * len(records.signatures) + dmas + int(records.gone.sum()) + tiles),
        "spans": (SPAN, 2 * dmas + 1),
        "ops": (OP, int(times @ ops) + dmas),
        "moves": (MOVE, int(times @ moves)),
    }
    made = {name: np.empty(count, dtype=form).view(np.recarray) for name, (form, count) in rows.items()}
    return {**made, "queue_records": np.empty(dmas, dtype=np.int64)}


def _column(values: object) -> Ints:
    return np.array(values, dtype=np.int64)


def _starts(counts: Ints) -> Ints:
    """Return where each of several rows begins that lie one after the other, and the end."""
    starts = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


def _columns(program: Program, costs: Costs, signatures: Ints, engines: Ints, edit: Edit) -> tuple[Ints, _Records]:
    """Return the cores' numbers, and what the constraints are made from."""
    names, cores = np.unique(_column(program.cores), return_inverse=True)
    names = names if len(names) else np.zeros(1, dtype=np.int64)  # an empty program has a core all the same
    units = cores * len(ENGINES) + engines[signatures]
    is_dma = (costs.costs["kind"] == TRANSFER)[signatures]
    gone = np.zeros(len(program), dtype=bool) if edit.gone is None else edit.gone
    earliest_ps = np.zeros(len(program), dtype=np.int64) if edit.earliest_ps is None else edit.earliest_ps
    return names, _Records(signatures, units, cores, is_dma, _partners(program), gone, earliest_ps)


def _partners(program: Program) -> Ints:
    """Return, by record, the record of the other core that it meets, -1 where it meets none."""
    partners = np.full(len(program), -1, dtype=np.int64)
    for first, count in program.meetings:
        if count != 2:
            raise SimulatorBug(f"timing: {count} cores meet at record {first}, and a launch has at most two")
        partners[first], partners[first + 1] = first + 1, first
    return partners


def _streams(units: Ints, count: int, gone: Bools) -> tuple[Ints, Ints, Ints]:
    """Return the records of all units in program order, where each unit's begin, and how many of it come before."""
    order = np.argsort(units, kind="stable")
    order = order[~gone[order]]
    starts = _starts(np.bincount(units[order], minlength=count))
    positions = np.zeros(len(units), dtype=np.int64)
    positions[order] = np.arange(len(order)) - starts[units[order]]
    return order, starts, positions


def _epochs(records: _Records) -> Ints:
    """Return a number that grows at each meeting of a record's core, and behind it."""
    epochs = np.zeros(len(records.cores), dtype=np.int64)
    meets = records.partners >= 0
    if meets.any():
        for core in present(records.cores):
            mine = records.cores == core
            epochs[mine] = 2 * np.cumsum(meets[mine]) - meets[mine]
    return epochs


def _queues(program: Program, signatures: list[Signature], records: _Records, depth: int) -> tuple[Table, Ints]:
    """Return the DMA queues, and each DMA's, -1 for the rest. Static rings are one for each tensor in HBM."""
    kinds: dict[str, int] = {}
    by_signature = np.zeros(len(signatures), dtype=np.int64)
    for index, signature in enumerate(signatures):
        for item in signature.work:
            if isinstance(item, Transfer):
                by_signature[index] = kinds.setdefault(item.generation, len(kinds))
    dmas = np.flatnonzero(records.is_dma)
    kind = by_signature[records.signatures[dmas]]
    is_static = kind == kinds.get(_STATIC, -1)
    ring = np.zeros(len(dmas), dtype=np.int64)
    ring[is_static] = _tensors(program, dmas[is_static])
    count, rings = max(len(kinds), 1), int(ring.max(initial=0)) + 1
    keys = (records.units[dmas] * count + kind) * rings + ring
    names, firsts, queue = np.unique(keys, return_index=True, return_inverse=True)
    counts = np.bincount(queue, minlength=len(names))
    depths = np.where(is_static[firsts], counts + 1, depth)
    queues = np.full(len(records.units), -1, dtype=np.int64)
    queues[dmas] = queue
    return table(QUEUE, len(names), start=_starts(counts)[:-1], depth=depths), queues


def _tensors(program: Program, records: Ints) -> Ints:
    """Return, for each record, the tensor in HBM that it reads or writes (of two, the last operand), 0 for none."""
    if not len(records):
        return records
    places = _column(
        [
            max((place for place, pattern in enumerate(signature.patterns) if pattern.memory.is_hbm), default=-1)
            for signature in program.signatures
        ]
    )[np.array(program.signature_ids, dtype=np.int64)[records]]
    at = np.array(program.slot_starts, dtype=np.int64)[records] + 2 * np.maximum(places, 0)
    return np.where(places < 0, 0, np.array(program.slots, dtype=np.int64)[at] + 1)


def _groups(records: _Records, tables: Ints, queues: Ints, unit_count: int) -> tuple[Table, Ints, Ints]:
    """Return the groups, each record's, and the first one of each unit."""
    count = max(int(tables.max(initial=-1)), int(queues.max(initial=-1))) + 2
    keys = (records.units * count + tables + 1) * count + queues + 1
    names, groups = np.unique(keys, return_inverse=True)
    first = _starts(np.bincount(groups, minlength=len(names)))[:-1]
    made = table(GROUP, len(names), first=first, table=names // count % count - 1, queue=names % count - 1)
    return made, groups, np.searchsorted(names // count**2, np.arange(unit_count + 1))


def _edges(
    program: Program, records: _Records, claimed: Claims | None, chip: Chip, overwrites: bool
) -> tuple[Table, Ints, Ints]:
    """Return edges by producer, where each producer's begin, and which of them wait for its result.

    A result crosses to another engine through a semaphore. On one engine, a reader waits for the result, through a
    semaphore of its own on some generations; a write after a read or a write needs no more than the engine's own
    order. What is gone passes on what it waited for through one semaphore. With ``claimed``, engines take their
    instructions in program order, and their turns at ports as well. Without ``overwrites``, nothing waits until others
    have written or read what it overwrites, unless it adds to it.
    """
    found = dependences(program)
    units, is_dma = records.units, records.is_dma
    consumer = np.repeat(np.arange(len(units)), np.diff(found.starts))
    producer, kind = found.producers, found.kinds
    from_dma = is_dma[producer]
    is_local = (units[consumer] == units[producer]) & ~from_dma
    in_order = is_local & ((kind == Dependence.WAR) | (kind == Dependence.WAW)) & ~is_dma[consumer]
    # those that meet start together, and neither waits for what the other leaves behind
    keep = records.partners[consumer] != producer
    if claimed is not None:
        keep &= ~in_order
    if not overwrites:
        keep &= in_order | (kind != Dependence.WAR) & ((kind != Dependence.WAW) | _accumulates(program)[consumer])
    semaphore_ps, own_semaphore_ps = map(nanoseconds, (chip.sync.semaphore_ns, chip.sync.own_semaphore_ns))
    reasons = np.empty(len(Dependence), dtype=np.int64)
    reasons[Dependence.RAW] = Stall.DATA_ENGINE
    reasons[[Dependence.WAR, Dependence.WAW]] = Stall.OVERWRITE
    reasons[Dependence.EDGE] = Stall.EDGE
    reasons[Dependence.MEET] = Stall.LOOP
    reason = reasons[kind]
    reason[from_dma & (kind == Dependence.RAW)] = Stall.DATA_DMA
    reason[in_order] = Stall.NONE
    delay = np.where(is_local, own_semaphore_ps, semaphore_ps)
    delay[records.gone[producer]] = semaphore_ps
    delay[records.gone[consumer]] = 0
    if claimed is not None:
        first, second = turns(claimed, units)
        producer, consumer = np.concatenate([producer, first]), np.concatenate([consumer, second])
        reason = np.concatenate([reason, np.full(len(first), Stall.PORT)])
        delay = np.concatenate([delay, np.zeros(len(first), dtype=np.int64)])
        in_order, keep = (np.concatenate([flags, np.ones(len(first), dtype=bool)]) for flags in (in_order, keep))
    kept = np.flatnonzero(keep)
    order = kept[np.argsort(producer[kept] * 2 + ~in_order[kept], kind="stable")]
    starts = _starts(np.bincount(producer[order], minlength=len(units)))
    splits = starts[:-1] + np.bincount(producer[order], weights=in_order[order], minlength=len(units)).astype(np.int64)
    made = table(EDGE, len(order), consumer=consumer[order], delay_ps=delay[order], reason=reason[order])
    return made, starts, splits


def _accumulates(program: Program) -> Bools:
    """Return, by record, whether it adds to what is there."""
    adds = [any(each.access is Access.ACCUMULATE for each in signature.patterns) for signature in program.signatures]
    return np.array(adds, dtype=bool)[np.array(program.signature_ids, dtype=np.int64)]


def _ports(claimed: Claims, count: int, *, by_arrival: bool) -> tuple[dict[str, Table], Ints]:
    """Return ports and claims of all records to them, and where each record's begin; none in program order."""
    if not by_arrival:
        return {"ports": table(PORT, 0), "claims": np.empty(0, dtype=np.int64)}, np.zeros(count + 1, dtype=np.int64)
    made = table(PORT, claimed.ports, vector_by=-1, other_by=-1)
    return {"ports": made, "claims": claimed.port}, _starts(np.bincount(claimed.record, minlength=count))


def _turns(records: _Records, costs: Costs, engines: int) -> Ints:
    """Let transfers without partitions take turns, so that small ones do not all land on the first engine."""
    shares = costs.costs["share_end"] - costs.costs["share_start"]
    width = (shares * costs.costs["may_turn"]).astype(np.int64)[records.signatures] * ~records.gone
    turns = np.zeros(len(width), dtype=np.int64)
    for core in present(records.cores):
        mine = records.cores == core
        turns[mine] = (np.cumsum(width[mine]) - width[mine]) % engines
    return np.where(width > 0, turns, 0)


def _pools(program: Program, chip: Chip, names: Ints, cores: Ints) -> tuple[Table, Table, Table]:
    """Return all storages, the memories whose tiles, all together, need more than there is, and these tiles.

    A program that fits into SBUF only with what compilers keep for themselves has that, too; one that fits only with
    narrow tiles side by side has them so.
    """
    tiles = table(TILE, len(program.storages), pool=-1, death_by=-1, death_ps=-1)
    found: list[tuple[Memory, int, Ints]] = []
    in_psum_bytes = psum_bytes(chip)
    if SPILLS not in program.notes:
        life = lifetimes(program)
        reserved = _reserved(program, cores)
        storages, first = life.tiles, life.starts
        tiles.size_bytes[storages] = life.sizes_bytes
        for memory, limit in ((Memory.sbuf, chip.sbuf.usable_bytes), (Memory.psum, in_psum_bytes)):
            here = _in_memory(program, memory)[storages]
            for number in range(len(names)):
                mine = here & (cores[first] == number)
                capacity_bytes = limit - reserved.get((number, memory), 0)
                if tiles.size_bytes[storages[mine]].sum() > capacity_bytes:
                    order = np.lexsort((storages[mine], first[mine]))
                    tiles.pool[storages[mine]] = len(found)
                    found.append((memory, capacity_bytes, storages[mine][order]))
        peaks = peak_bytes(program) if found else {}
        # a chip with less space than the program was recorded for may not hold it at all
        if peaks and (peaks[Memory.sbuf] > chip.sbuf.partition_bytes or peaks[Memory.psum] > in_psum_bytes):
            check_capacity(program, chip.name, chip.sbuf.partition_bytes, in_psum_bytes)
            tiles.size_bytes[storages] = sizes_side_by_side(program)  # it fits, so that they lie so
        if peaks and peaks[Memory.sbuf] > chip.sbuf.usable_bytes:
            kept_back = {Memory.sbuf: chip.sbuf.partition_bytes - chip.sbuf.usable_bytes, Memory.psum: 0}
            found = [(memory, limit + kept_back[memory], of) for memory, limit, of in found]
    writers = [_writers(program, storages) for _, _, storages in found]
    starts = _starts(_column([len(records) for _, records in writers]))
    pools = table(POOL, len(found), next=starts[:-1], end=starts[1:], free_bytes=[capacity for _, capacity, _ in found])
    order = np.concatenate([_column([]), *(of for of, _ in writers)])
    by = np.concatenate([_column([]), *(records for _, records in writers)])
    opens = np.append(True, order[1:] != order[:-1])[: len(order)]
    return tiles, pools, table(POOL_TILE, len(order), tile=order, record=by, takes=opens)


def _writers(program: Program, storages: Ints) -> tuple[Ints, Ints]:
    """Return tiles, and the records that write them: tiles in the order given, each with its records in order.

    All of them wait for the tile's space: those of its parts do not wait for one another.
    """
    rank = np.full(len(program.storages), -1, dtype=np.int64)
    rank[storages] = np.arange(len(storages))
    operands = Operands.of(program)
    writes = np.flatnonzero(operands.is_write(program) & (rank[operands.storage] >= 0))
    writes = writes[np.argsort(rank[operands.storage[writes]], kind="stable")]
    return operands.storage[writes], operands.record[writes]


def _in_memory(program: Program, memory: Memory) -> NDArray[np.bool_]:
    """Return which storages are in a memory."""
    found: NDArray[np.bool_] = program.storages.column(lambda info: info.memory is memory, bool)
    return found


def _reserved(program: Program, cores: Ints) -> dict[tuple[int, Memory], int]:
    """Return the bytes per partition that planes (tensors with an address) keep for themselves."""
    planes = np.flatnonzero(program.storages.column(lambda info: info.role == "plane", bool))
    reserved: dict[tuple[int, Memory], int] = {}
    if not len(planes):
        return reserved
    operands = Operands.of(program)
    is_plane = np.isin(operands.storage, planes)
    pairs = np.stack([cores[operands.record[is_plane]], operands.storage[is_plane]], axis=1)
    for number, plane in np.unique(pairs, axis=0).tolist():
        info = program.storages[plane]
        reserved[number, info.memory] = reserved.get((number, info.memory), 0) + info.reserved_bytes
    return reserved


def _touches(program: Program, tiles: Table) -> tuple[Ints, Ints]:
    """Return the accesses to pooled tiles, and where each record's begin; count them in ``tiles``."""
    pooled = tiles.pool >= 0
    if not pooled.any():
        return np.empty(0, dtype=np.int64), np.zeros(len(program) + 1, dtype=np.int64)
    operands = Operands.of(program)
    keep = pooled[operands.storage]
    touched = operands.storage[keep]
    tiles["touches"] = np.bincount(touched, minlength=len(tiles))
    return touched, _starts(np.bincount(operands.record[keep], minlength=len(program)))
