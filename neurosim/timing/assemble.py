"""From a schedule to timelines: columns as numpy arrays, accounts, and totals."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurosim.chip import Chip
from neurosim.program import Program
from neurosim.timing.lower import Plan
from neurosim.timing.schedule import Schedule
from neurosim.timing.timeline import (
    ENGINES,
    OP_DTYPE,
    Ints,
    Op,
    Stall,
    Timeline,
    accounts,
    arrange,
    unit_names,
)
from neurosim.work import Matmul, Transfer


def timelines(program: Program, chip: Chip, plan: Plan, done: Schedule, launch_ps: int) -> dict[int, Timeline]:
    """Return a timeline per core."""
    names = unit_names(chip)
    owners = np.array(program.cores, dtype=np.int64)
    signatures = np.array(program.signature_ids, dtype=np.int64)
    complete_ps = np.array(done.completes_ps, dtype=np.int64)
    columns: dict[str, Any] = {
        "start_ps": np.array(done.starts_ps, dtype=np.int64),
        "complete_ps": complete_ps,
        "reason": np.array(done.reasons, dtype=np.int8),
        "waited_for": np.array(done.waited_for, dtype=np.int64),
        "queued_behind": np.array(done.queued_behind, dtype=np.int64),
    }
    instructions = _rows(done.ops, 6)
    result = {}
    for index, core in enumerate(plan.cores):
        records = np.flatnonzero(owners == core)
        ops = arrange(np.concatenate([_instructions(instructions, index), _transfers(done.movers[index].log)]))
        makespan_ps = max(int(complete_ps[records].max(initial=0)), int(ops["end_ps"].max(initial=0)))
        result[core] = Timeline(
            core=core,
            chip=chip,
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


def _rows(flat: array[int], width: int) -> Ints:
    return np.array(flat, dtype=np.int64).reshape(-1, width)


def _instructions(rows: Ints, core_index: int) -> NDArray[Any]:
    """Return the ops of one core's engines."""
    rows = rows[rows[:, 1] // len(ENGINES) == core_index]
    ops = np.zeros(len(rows), dtype=OP_DTYPE)
    ops["record"], ops["unit"] = rows[:, 0], rows[:, 1] % len(ENGINES)
    ops["kind"], ops["reason"] = rows[:, 2], rows[:, 3]
    ops["start_ps"], ops["end_ps"] = rows[:, 4], rows[:, 5]
    return ops


def _transfers(log: array[int]) -> NDArray[Any]:
    """Return the ops of one core's DMA engines; a row of the log may stand for several engines."""
    rows = _rows(log, 6)
    counts = rows[:, 2]
    ends = np.cumsum(counts)
    engine = np.arange(counts.sum()) + np.repeat(rows[:, 1] - ends + counts, counts)
    rows = np.repeat(rows, counts, axis=0)
    ops = np.zeros(len(rows), dtype=OP_DTYPE)
    ops["record"], ops["unit"] = rows[:, 0], len(ENGINES) + engine
    ops["kind"], ops["reason"] = Op.TRANSFER, Stall.DESCRIPTORS
    ops["start_ps"], ops["end_ps"], ops["held_ps"] = rows[:, 3], rows[:, 4], rows[:, 5]
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
                peak_ps += count * item.flops / chip.tensor.peak_tflop_per_s(item.passes) / item.depth
    return {"hbm_read_bytes": read, "hbm_written_bytes": written, "flops": flops, "peak_ps": peak_ps}
