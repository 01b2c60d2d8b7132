"""From records to what the loop over events walks over: costs per signature, and constraints between records.

Laws are evaluated once per signature; the constraints of all records are built with numpy (``constraints.py``).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, NamedTuple

import numpy as np

from neurosim.chip import Chip
from neurosim.engines import Engine
from neurosim.errors import ConfigurationError, SimulatorBug
from neurosim.program import Program, Signature
from neurosim.timing.constraints import Costs, tables_of
from neurosim.timing.dma import TransferCost, transfer_cost
from neurosim.timing.edits import UNCHANGED, Edit
from neurosim.timing.events.tables import COMPUTE, COST, MULTIPLY, SHARE, STEP, TRANSFER, Tables, table
from neurosim.timing.laws import (
    MatmulCost,
    Throttle,
    control_cost,
    lanewise_cost,
    matmul_cost,
    nanoseconds,
    picoseconds,
    table_load_ps,
    table_set,
    throttle_of,
)
from neurosim.timing.placement import Placement
from neurosim.timing.ports import streaming_cycles
from neurosim.timing.timeline import ENGINES, Op
from neurosim.work import AccumulatorRead, Control, Lanewise, Matmul, Transfer

_QUADRANT: Final = 32
"""Partitions that a Vector transpose exchanges with each other."""


class ComputeCost(NamedTuple):
    """What an instruction on lanes costs.

    Attributes:
        steps: (op, issue interval, completion latency) of what the engine does, in order.
        table: the activation table it needs, None for none.
        quadrants: where a Vector transpose reads and writes, None for the rest.
        port_ps: how long it needs a port that it takes turns at: while its operands stream.
    """

    steps: tuple[tuple[int, int, int], ...]
    table: str | None
    quadrants: tuple[int, ...] | None
    port_ps: int


Cost = ComputeCost | MatmulCost | TransferCost
_ABSENT: Final = {"table": -1, "quadrants": -1}
_MATMUL: Final = ("pairs", "load_ps", "stream_ps", "latency_ps", "busy_rows")
_TRANSFER_TIMES: Final = (
    "trigger_ps",
    "interval_ps",
    "first_data_ps",
    "hbm_ps",
    "payload_ps",
    "semaphore_ps",
)


def lower(
    program: Program, placement: Placement, chip: Chip, window: int, *, throttle: bool, edit: Edit = UNCHANGED
) -> tuple[tuple[int, ...], Tables]:
    """Return a program's cores, and the program made ready for a chip, its records on the engines of the placement.

    Engines look at ``window`` records, beginning with the first that is not issued: 1 for program order. Without
    ``throttle``, the tensor engine always has its full clock. With an ``edit``, that is timed in place of the record.
    """
    for signature in program.signatures:
        _check_fit(signature, chip)
    costs = _columns([cost_of(edit.signature(signature), chip) for signature in placement.signatures])
    engines = np.array([_engine_index(signature) for signature in placement.signatures], dtype=np.int64)
    meeting_ps = nanoseconds(chip.sync.core_barrier_ns)
    figures = {"table_load_ps": table_load_ps(chip), "meeting_ps": meeting_ps}
    figures |= throttle_of(chip)._asdict() if throttle else dict.fromkeys(Throttle._fields, 0)
    return tables_of(program, chip, costs, placement, engines, window, edit, **figures)


def _columns(costs: list[Cost]) -> Costs:
    """Return costs as tables."""
    names: dict[Hashable, int] = {None: -1}
    steps: list[tuple[int, int, int]] = []
    shares: list[tuple[int, int]] = []
    rows: list[dict[str, int]] = []
    for cost in costs:
        if isinstance(cost, ComputeCost):
            loaded, quadrants = (names.setdefault(each, len(names) - 1) for each in (cost.table, cost.quadrants))
            row = {"kind": COMPUTE, "step_start": len(steps), "table": loaded, "quadrants": quadrants}
            steps += cost.steps
            row |= {"step_end": len(steps), "port_ps": cost.port_ps}
        elif isinstance(cost, MatmulCost):
            row = {name: getattr(cost, name) for name in _MATMUL}
            row |= {"kind": MULTIPLY, "cells": sum(1 << cell for cell in cost.cells)}
        else:
            row = {name: getattr(cost, name) for name in _TRANSFER_TIMES}
            row |= {"kind": TRANSFER, "level": cost.level, "may_turn": cost.turns, "share_start": len(shares)}
            shares += cost.shares
            row["share_end"] = len(shares)
        rows.append(row)
    columns = {
        name: np.array([row.get(name, _ABSENT.get(name, 0)) for row in rows], dtype=np.int64)  # by row is much slower
        for name in COST.names or ()
    }
    made = table(COST, len(costs), **columns)
    step, share = (np.array(rows, dtype=np.int64).reshape(-1, width) for rows, width in ((steps, 3), (shares, 2)))
    return Costs(
        made,
        table(STEP, len(step), kind=step[:, 0], issue_ps=step[:, 1], latency_ps=step[:, 2]),
        table(SHARE, len(share), engine=share[:, 0], busy_ps=share[:, 1]),
    )


def _check_fit(signature: Signature, chip: Chip) -> None:
    """Refuse a variant of the chip that is too small for what was recorded."""
    for pattern in signature.patterns:
        if pattern.memory.is_on_chip:
            extent, step = (axes[pattern.partition_axis] for axes in (pattern.shape, pattern.steps))
            last = pattern.start_partition + max(extent - 1, 0) * step
            if last >= chip.partitions:
                numbers = (f"chip.partitions = {chip.partitions}", f"{pattern.role} reaches partition {last}")
                raise ConfigurationError(
                    f"timing: {signature.instruction} does not fit on {chip.name}",
                    numbers=numbers,
                    advice="run the kernel on that chip, with tiles that it has room for",
                )
    for work in signature.work:
        if isinstance(work, Matmul) and (work.rows > chip.tensor.rows or work.columns > chip.tensor.columns):
            raise ConfigurationError(
                f"timing: {signature.instruction} does not fit on {chip.name}",
                numbers=(
                    f"tensor.rows = {chip.tensor.rows}, tensor.columns = {chip.tensor.columns}",
                    f"stationary has {work.rows} rows and {work.columns} columns",
                ),
                advice="run the kernel on that chip, with tiles that it has room for",
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
    passing_ps = 0
    for item in work:
        if isinstance(item, Transfer | Matmul):
            raise _bad_work(signature)
        kind = Op.ACCUMULATOR_READ if isinstance(item, AccumulatorRead) else Op.INSTRUCTION
        if isinstance(item, Lanewise):
            table = table_set(item.table, chip.scalar) or table
            if item.law == "transpose":
                quadrants = tuple(pattern.start_partition // _QUADRANT for pattern in signature.patterns)
        cost = control_cost(item, chip) if isinstance(item, Control) else lanewise_cost(item, signature.engine, chip)
        steps.append((int(kind), cost.issue_ps, cost.latency_ps))
        passing_ps += cost.passing_ps
    if not steps:
        raise _bad_work(signature)
    if signature.engine is Engine.gpsimd:
        passing_ps = _streaming_ps(signature, sum(step[1] for step in steps), chip)
    return ComputeCost(tuple(steps), table, quadrants, passing_ps)


def _streaming_ps(signature: Signature, held_ps: int, chip: Chip) -> int:
    """Return how long GpSimd's operands stream: its cores work on them in memories of their own."""
    cycles = streaming_cycles(signature) * chip.gpsimd.cycles_per_element
    return min(held_ps, picoseconds(cycles, chip.gpsimd.clock_ghz))


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
