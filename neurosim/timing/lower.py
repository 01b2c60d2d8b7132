"""From records to what the scheduler walks over: costs per signature, and constraints between records.

Laws are evaluated once per signature; the constraints of all records are built with numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neurosim.chip import Chip
from neurosim.dependences import Dependence, Operands, dependences
from neurosim.engines import Engine, Memory
from neurosim.errors import ConfigurationError, SimulatorBug
from neurosim.lifetimes import SPILLS, check_capacity, lifetimes
from neurosim.program import Program, Signature
from neurosim.timing.dma import TransferCost, transfer_cost
from neurosim.timing.laws import (
    MatmulCost,
    control_cost,
    lanewise_cost,
    matmul_cost,
    nanoseconds,
    table_load_ps,
    table_set,
)
from neurosim.timing.timeline import ENGINES, Op, Stall
from neurosim.work import AccumulatorRead, Control, Lanewise, Matmul, Transfer

Ints = NDArray[np.int64]

_QUADRANT: Final = 32
"""Partitions that a Vector transpose exchanges with each other."""


class ComputeCost(NamedTuple):
    """What an instruction on lanes costs.

    Attributes:
        steps: (op, issue interval, completion latency) of what the engine does, in order.
        table: the activation table it needs, None for none.
        quadrants: where a Vector transpose reads and writes, None for the rest.
    """

    steps: tuple[tuple[int, int, int], ...]
    table: str | None
    quadrants: tuple[int, ...] | None


Cost = ComputeCost | MatmulCost | TransferCost


@dataclass(frozen=True, slots=True)
class Pool:
    """An on-chip memory of one core whose tiles do not all fit at once, so that space decides some starts.

    Attributes:
        capacity_bytes: per partition, for tiles.
        tiles: (storage, record that writes it first, bytes per partition), in program order.
    """

    capacity_bytes: int
    tiles: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A program made ready for one chip. Lists are by record unless it says otherwise.

    Attributes:
        cores: the cores' numbers.
        costs: by signature.
        signatures: the signature.
        units: index of the engine, counted over all cores, five per core.
        queues: index of the DMA queue, -1 for what is no DMA.
        queue_count: how many queues there are.
        turns: the first DMA engine of transfers that may begin anywhere.
        following: the next record on the same unit, -1 for the last.
        remaining: how many constraints must be met before it starts.
        edge_starts, edge_consumers, edge_delays_ps, edge_reasons: by producer, who waits for its completion.
        pools: memories where space is scarce.
        touch_starts, touches: by record, the tiles of these pools that it accesses.
        touch_counts: by storage, how many accesses it has.
        table_load_ps: what another activation table costs.
        partners: the other core's record of the same meeting, -1 for none.
        meeting_ps: from the last core's arrival to the transfers of a meeting.
    """

    cores: tuple[int, ...]
    costs: list[Cost]
    signatures: list[int]
    units: list[int]
    queues: list[int]
    queue_count: int
    turns: list[int]
    following: list[int]
    remaining: list[int]
    edge_starts: list[int]
    edge_consumers: list[int]
    edge_delays_ps: list[int]
    edge_reasons: list[int]
    pools: tuple[Pool, ...]
    touch_starts: list[int]
    touches: list[int]
    touch_counts: list[int]
    table_load_ps: int
    partners: list[int]
    meeting_ps: int


def lower(program: Program, chip: Chip) -> Plan:
    """Return the plan of a program on a chip."""
    for signature in program.signatures:
        _check_fit(signature, chip)
    costs = [cost_of(signature, chip) for signature in program.signatures]
    signatures = np.array(program.signature_ids, dtype=np.int64)
    cores, core = np.unique(np.array(program.cores, dtype=np.int64), return_inverse=True)
    cores = cores if len(cores) else np.zeros(1, dtype=np.int64)  # an empty program has a core all the same
    engine = np.array([_engine_index(signature) for signature in program.signatures], dtype=np.int64)
    units = core * len(ENGINES) + engine[signatures]
    is_dma = np.array([isinstance(cost, TransferCost) for cost in costs], dtype=bool)[signatures]
    queues, queue_count, depth_edges = _queues(program, signatures, units, is_dma, chip.dma.queue_depth)
    following, remaining = _streams(units)
    partners = _partners(program)
    edges = _edges(program, units, is_dma, chip, depth_edges, partners)
    consumers = edges[1]
    remaining += np.bincount(consumers, minlength=len(remaining))
    pools = _pools(program, chip, cores, core)
    for pool in pools:
        np.add.at(remaining, np.array([record for _, record, _ in pool.tiles], dtype=np.int64), 1)
    touch_starts, touches, touch_counts = _touches(program, pools)
    return Plan(
        cores=tuple(cores.tolist()),
        costs=costs,
        signatures=signatures.tolist(),
        units=units.tolist(),
        queues=queues.tolist(),
        queue_count=queue_count,
        turns=_turns(costs, signatures, core, chip.dma.engines).tolist(),
        following=following.tolist(),
        remaining=remaining.tolist(),
        edge_starts=edges[0].tolist(),
        edge_consumers=consumers.tolist(),
        edge_delays_ps=edges[2].tolist(),
        edge_reasons=edges[3].tolist(),
        pools=pools,
        touch_starts=touch_starts.tolist(),
        touches=touches.tolist(),
        touch_counts=touch_counts.tolist(),
        table_load_ps=table_load_ps(chip),
        partners=partners.tolist(),
        meeting_ps=nanoseconds(chip.sync.core_barrier_ns),
    )


def _partners(program: Program) -> Ints:
    """Return, by record, the record of the other core that it meets, -1 where it meets none."""
    partners = np.full(len(program), -1, dtype=np.int64)
    for first, count in program.meetings:
        if count != 2:
            raise SimulatorBug(f"timing: {count} cores meet at record {first}, and a launch has at most two")
        partners[first], partners[first + 1] = first + 1, first
    return partners


def _check_fit(signature: Signature, chip: Chip) -> None:
    """Refuse a variant of the chip that is too small for what was recorded."""
    for pattern in signature.patterns:
        if pattern.memory.is_on_chip:
            extent, step = (axes[pattern.partition_axis] for axes in (pattern.shape, pattern.steps))
            last = pattern.start_partition + max(extent - 1, 0) * step
            if last >= chip.partitions:
                numbers = (f"chip.partitions = {chip.partitions}", f"{pattern.role} reaches partition {last}")
                raise ConfigurationError(
                    f"timing: {signature.instruction} does not fit on {chip.name}", numbers=numbers
                )
    for work in signature.work:
        if isinstance(work, Matmul) and (work.rows > chip.tensor.rows or work.columns > chip.tensor.columns):
            raise ConfigurationError(
                f"timing: {signature.instruction} does not fit on {chip.name}",
                numbers=(
                    f"tensor.rows = {chip.tensor.rows}, tensor.columns = {chip.tensor.columns}",
                    f"stationary has {work.rows} rows and {work.columns} columns",
                ),
            )


def cost_of(signature: Signature, chip: Chip) -> Cost:
    """Return what one instruction costs on a chip.

    Raises:
        SimulatorBug: the engine cannot do this work, or has no law for it.
    """
    work = signature.work
    if len(work) == 1 and isinstance(work[0], Transfer):
        return transfer_cost(work[0], signature.patterns, chip)
    if len(work) == 1 and isinstance(work[0], Matmul) and signature.engine is Engine.tensor:
        return matmul_cost(work[0], chip)
    steps = []
    table = quadrants = None
    for item in work:
        if isinstance(item, Transfer | Matmul):
            raise _bad_work(signature)
        kind = Op.ACCUMULATOR_READ if isinstance(item, AccumulatorRead) else Op.INSTRUCTION
        if isinstance(item, Lanewise):
            table = table_set(item.table, chip.scalar) or table
            if item.law == "transpose":
                quadrants = tuple(pattern.start_partition // _QUADRANT for pattern in signature.patterns)
        cost = control_cost(item, chip) if isinstance(item, Control) else lanewise_cost(item, signature.engine, chip)
        steps.append((int(kind), *cost))
    if not steps:
        raise _bad_work(signature)
    return ComputeCost(tuple(steps), table, quadrants)


def _bad_work(signature: Signature) -> SimulatorBug:
    return SimulatorBug(
        f"timing: {signature.instruction} has work that the {signature.engine.name} engine cannot do alone",
        numbers=(f"work: {signature.work}",),
        advice="give it one Transfer, one Matmul on the tensor engine, or a sequence of lane-wise items",
    )


def _engine_index(signature: Signature) -> int:
    name = signature.engine.name
    if name not in ENGINES:
        raise SimulatorBug(f"timing: {signature.instruction} runs on {name!r}, which has no instruction stream")
    return ENGINES.index(name)


def _streams(units: Ints) -> tuple[Ints, Ints]:
    """Return the next record on the same unit, and 1 for each record that has one before it."""
    following = np.full(len(units), -1, dtype=np.int64)
    remaining = np.zeros(len(units), dtype=np.int64)
    order = np.argsort(units, kind="stable")
    same = units[order[1:]] == units[order[:-1]]
    following[order[:-1][same]] = order[1:][same]
    remaining[order[1:][same]] = 1
    return following, remaining


def _queues(
    program: Program, signatures: Ints, units: Ints, is_dma: NDArray[np.bool_], depth: int
) -> tuple[Ints, int, tuple[Ints, Ints]]:
    """Return each DMA's queue, their number, and (consumer, producer) pairs that keep a queue's depth."""
    kinds: dict[str, int] = {}
    kind = np.zeros(len(program.signatures), dtype=np.int64)
    for index, signature in enumerate(program.signatures):
        for item in signature.work:
            if isinstance(item, Transfer):
                kind[index] = kinds.setdefault(item.generation, len(kinds))
    records = np.flatnonzero(is_dma)
    key = units[records] * max(len(kinds), 1) + kind[signatures[records]]
    names, queue = np.unique(key, return_inverse=True)
    queues = np.full(len(units), -1, dtype=np.int64)
    queues[records] = queue
    order = records[np.argsort(queue, kind="stable")]
    later, earlier = order[depth:], order[:-depth]
    static = kind[signatures[later]] == kinds.get("none", -1)
    keep = (queues[later] == queues[earlier]) & ~static
    return queues, len(names), (later[keep], earlier[keep])


def _edges(
    program: Program,
    units: Ints,
    is_dma: NDArray[np.bool_],
    chip: Chip,
    depth_edges: tuple[Ints, Ints],
    partners: Ints,
) -> tuple[Ints, Ints, Ints, Ints]:
    """Return starts, consumers, delays and reasons, by producer.

    A result crosses to another engine through a semaphore. On one engine, a reader waits for the result,
    through a semaphore of its own on some generations; a write after a read or a write needs no more than the
    engine's own order.
    """
    found = dependences(program)
    firsts = np.array(found.starts, dtype=np.int64)
    consumer = np.repeat(np.arange(len(units)), firsts[1:] - firsts[:-1])
    producer = np.array(found.producers, dtype=np.int64)
    kind = np.array(found.kinds, dtype=np.int64)
    from_dma = is_dma[producer]
    is_local = (units[consumer] == units[producer]) & ~from_dma
    is_order = (kind == Dependence.WAR) | (kind == Dependence.WAW)
    # those that meet start together, and neither waits for what the other leaves behind
    keep = ~(is_local & is_order & ~is_dma[consumer]) & (partners[consumer] != producer)
    semaphore_ps, own_semaphore_ps = (round(ns * 1000) for ns in (chip.sync.semaphore_ns, chip.sync.own_semaphore_ns))
    reasons = np.empty(len(Dependence), dtype=np.int64)
    reasons[Dependence.RAW] = Stall.DATA_ENGINE
    reasons[[Dependence.WAR, Dependence.WAW]] = Stall.OVERWRITE
    reasons[Dependence.EDGE] = Stall.EDGE
    reasons[Dependence.MEET] = Stall.LOOP
    reason = reasons[kind]
    reason[from_dma & (kind == Dependence.RAW)] = Stall.DATA_DMA
    later, earlier = depth_edges
    consumer = np.concatenate([consumer[keep], later])
    producer = np.concatenate([producer[keep], earlier])
    delay = np.concatenate([np.where(is_local, own_semaphore_ps, semaphore_ps)[keep], np.zeros_like(later)])
    reason = np.concatenate([reason[keep], np.full_like(later, Stall.QUEUE)])
    order = np.argsort(producer, kind="stable")
    starts = np.zeros(len(units) + 1, dtype=np.int64)
    np.cumsum(np.bincount(producer, minlength=len(units)), out=starts[1:])
    return starts, consumer[order], delay[order], reason[order]


def _turns(costs: list[Cost], signatures: Ints, core: Ints, engines: int) -> Ints:
    """Let transfers without partitions take turns, so that small ones do not all land on the first engine."""
    widths = [len(cost.shares) if isinstance(cost, TransferCost) and cost.turns else 0 for cost in costs]
    width = np.array(widths, dtype=np.int64)[signatures]
    turns = np.zeros(len(signatures), dtype=np.int64)
    for number in np.unique(core):
        mine = core == number
        turns[mine] = (np.cumsum(width[mine]) - width[mine]) % engines
    return turns


def _pools(program: Program, chip: Chip, cores: Ints, core: Ints) -> tuple[Pool, ...]:
    """Return a pool for each memory of a core whose tiles, all together, need more than there is."""
    if SPILLS in program.notes:
        return ()
    life = lifetimes(program)
    limits = {
        Memory.sbuf: chip.sbuf.partition_bytes,
        Memory.psum: chip.psum.banks * chip.psum.bank_bytes,
    }
    pools = []
    reserved = _reserved(program, core)
    for number in range(len(cores)):
        for memory, limit in limits.items():
            tiles = [
                (storage, record, life.size_bytes[storage])
                for storage, record in life.first_write.items()
                if program.storages[storage].memory is memory and core[record] == number
            ]
            capacity_bytes = limit - reserved.get((number, memory), 0)
            if sum(size for _, _, size in tiles) > capacity_bytes:
                tiles.sort(key=lambda tile: (tile[1], tile[0]))
                pools.append(Pool(capacity_bytes, tuple(tiles)))
    if pools:  # a chip with less space than the program was recorded for may not hold it at all
        check_capacity(program, chip.name, limits[Memory.sbuf], limits[Memory.psum])
    return tuple(pools)


def _reserved(program: Program, core: Ints) -> dict[tuple[int, Memory], int]:
    """Return the bytes per partition that planes (tensors with an address) keep for themselves."""
    planes = [index for index, storage in enumerate(program.storages) if storage.role == "plane"]
    reserved: dict[tuple[int, Memory], int] = {}
    if not planes:
        return reserved
    operands = Operands.of(program)
    is_plane = np.isin(operands.storage, planes)
    pairs = np.stack([core[operands.record[is_plane]], operands.storage[is_plane]], axis=1)
    for number, plane in np.unique(pairs, axis=0).tolist():
        info = program.storages[plane]
        reserved[number, info.memory] = reserved.get((number, info.memory), 0) + info.reserved_bytes
    return reserved


def _touches(program: Program, pools: tuple[Pool, ...]) -> tuple[Ints, Ints, Ints]:
    """Return, by record, the pooled tiles that it accesses, and how many accesses each tile has."""
    starts = np.zeros(len(program) + 1, dtype=np.int64)
    if not pools:
        return starts, np.empty(0, dtype=np.int64), np.zeros(len(program.storages), dtype=np.int64)
    pooled = np.zeros(len(program.storages), dtype=bool)
    pooled[[storage for pool in pools for storage, _, _ in pool.tiles]] = True
    operands = Operands.of(program)
    keep = pooled[operands.storage]
    np.cumsum(np.bincount(operands.record[keep], minlength=len(program)), out=starts[1:])
    touched = operands.storage[keep]
    return starts, touched, np.bincount(touched, minlength=len(program.storages))
