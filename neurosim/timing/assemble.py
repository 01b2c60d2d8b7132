"""From a schedule to timelines: columns as numpy arrays, accounts, and totals."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurosim.chip import Chip
from neurosim.program import Program
from neurosim.timing.events.tables import Table, Tables
from neurosim.timing.timeline import (
    ENGINES,
    OP_DTYPE,
    Ints,
    Op,
    Stall,
    Timeline,
    accounts,
    arrange,
    least_ps,
    unit_names,
)
from neurosim.work import Matmul, Transfer


def timelines(
    program: Program,
    chip: Chip,
    cores: tuple[int, ...],
    tables: Tables,
    *,
    schedule: str,
    throttle: bool,
    launch_ps: int,
) -> dict[int, Timeline]:
    """Return a timeline per core."""
    names, every = unit_names(chip), tables.records
    owners = every.unit // len(ENGINES)
    signatures = np.array(program.signature_ids, dtype=np.int64)
    columns: dict[str, Any] = {
        "start_ps": every.start_ps.copy(),
        "complete_ps": every.complete_ps.copy(),
        "data_ps": every.data_ps.copy(),
        "reason": every.reason.astype(np.int8),
        "waited_for": every.waited_for.astype(np.int64),
        "queued_behind": every.queued_behind.astype(np.int64),
    }
    logs = [np.asarray(tables.ops)[: tables.totals[0].ops], np.asarray(tables.moves)[: tables.totals[0].moves]]
    result = {}
    for index, core in enumerate(cores):
        records = np.flatnonzero(owners == index)
        ops = arrange(_ops(*(log if len(cores) == 1 else log[owners[log["record"]] == index] for log in logs)))
        makespan_ps = max(int(columns["complete_ps"][records].max(initial=0)), int(ops["end_ps"].max(initial=0)))
        result[core] = Timeline(
            core=core,
            chip=chip,
            schedule=schedule,
            throttle=throttle,
            makespan_ps=makespan_ps,
            launch_ps=launch_ps,
            units=names,
            ops=ops,
            engines=accounts(ops, names, makespan_ps),
            records=records,
            **columns,
            **_totals(program, chip, signatures[records]),
        )
    return result


def _ops(done: Table, moves: Table) -> NDArray[Any]:
    """Return ops of engines and of DMA engines, by unit and start; a row of ``moves`` may stand for several engines.

    Both logs are in order of start for each unit.
    """
    counts = moves["count"].astype(np.int64)
    ends = np.cumsum(counts)
    mover = np.arange(counts.sum()) + np.repeat(moves["engine"] - ends + counts, counts)
    unit = np.concatenate([done["unit"] % len(ENGINES), len(ENGINES) + mover]).astype(np.int16)
    source = np.concatenate([np.arange(len(done)), np.repeat(len(done) + np.arange(len(moves)), counts)])
    order = np.argsort(unit, kind="stable")
    source = source[order]
    ops = np.zeros(len(source), dtype=OP_DTYPE)
    ops["unit"] = unit[order]
    for name in ("record", "start_ps", "end_ps", "held_ps"):
        ops[name] = np.concatenate([done[name], moves[name]])[source]
    for name, value in (("kind", Op.TRANSFER), ("reason", Stall.DESCRIPTORS)):
        ops[name] = np.concatenate([done[name], np.full(len(moves), value)])[source]
    return ops


def _totals(program: Program, chip: Chip, signatures: Ints) -> dict[str, Any]:
    """Add up traffic and operations, once per signature."""
    counts = np.bincount(signatures, minlength=len(program.signatures)).tolist()
    read = written = 0
    peak_ps = 0.0
    flops: dict[str, int] = {}
    for signature, count in zip(program.signatures, counts, strict=True):
        for item in signature.work if count else ():
            if isinstance(item, Transfer):
                read += count * item.read_bytes * item.source.is_hbm
                written += count * item.written_bytes * item.target.is_hbm
            elif isinstance(item, Matmul) and item.flops:
                flops[str(item.dtype)] = flops.get(str(item.dtype), 0) + count * item.flops
                peak_ps += count * least_ps(item, chip)
    return {"hbm_read_bytes": read, "hbm_written_bytes": written, "flops": flops, "peak_ps": peak_ps}
