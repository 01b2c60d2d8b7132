"""From a schedule to timelines: columns as numpy arrays, accounts, and totals."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neurosim import tiers
from neurosim.chip import Chip
from neurosim.program import Program
from neurosim.timing.events.arranging import arrange, count_ops
from neurosim.timing.events.tables import Tables
from neurosim.timing.passes import Compiled
from neurosim.timing.schedule import Scheduled
from neurosim.timing.timeline import (
    ENGINES,
    OP_DTYPE,
    Ints,
    Stall,
    Timeline,
    accounts,
    least_ps,
    unit_names,
)
from neurosim.work import Matmul, Transfer

_COLUMNS: Final = (
    ("start_ps", -1, np.int64),
    ("complete_ps", -1, np.int64),
    ("data_ps", -1, np.int64),
    ("reason", Stall.NONE, np.int8),
    ("waited_for", -1, np.int64),
    ("queued_behind", -1, np.int64),
)
"""Of a timeline, by record: name, what stands where there is nothing, type."""


def timelines(
    scheduled: Scheduled, chip: Chip, *, schedule: str, throttle: bool, launch_ps: int
) -> dict[int, Timeline]:
    """Return a timeline per core, whose records are those of the program before it was compiled."""
    compiled, cores, tables = scheduled
    names, every = unit_names(chip), tables.records
    owners = every.unit // len(ENGINES)
    signatures = np.array(compiled.program.signature_ids, dtype=np.int64)
    left_out, columns = _by_record(compiled, tables)
    owner_of_left_out = owners[np.searchsorted(compiled.records, compiled.stand_ins[left_out])]
    result = {}
    for index, core in enumerate(cores):
        executed = np.flatnonzero(owners == index)
        ops, totals_ps = _ops(tables, compiled.records, index, len(names))
        makespan_ps = max(int(every.complete_ps[executed].max(initial=0)), int(ops["end_ps"].max(initial=0)))
        result[core] = Timeline(
            core=core,
            chip=chip,
            schedule=schedule,
            throttle=throttle,
            makespan_ps=makespan_ps,
            launch_ps=launch_ps,
            units=names,
            ops=ops,
            engines=accounts(totals_ps, names, makespan_ps),
            records=compiled.records[executed],
            left_out=left_out[owner_of_left_out == index],
            compiled=compiled,
            **columns,
            **_totals(compiled.program, chip, signatures[executed]),
        )
    return result


def _by_record(compiled: Compiled, tables: Tables) -> tuple[Ints, dict[str, Any]]:
    """Return the records that are left out, and columns by record: these complete with the one that stands for them."""
    every = tables.records
    records, count = compiled.records, len(compiled.stand_ins)
    columns: dict[str, Any] = {}
    for name, none, form in _COLUMNS:
        values = every[name].astype(form)
        if name in ("waited_for", "queued_behind"):
            values = np.where(values >= 0, records[values], -1)
        columns[name] = np.full(count, none, dtype=form)
        columns[name][records] = values
    left_out = np.flatnonzero(compiled.stand_ins != np.arange(count))
    stand_ins = compiled.stand_ins[left_out]
    columns["start_ps"][left_out] = columns["complete_ps"][left_out] = columns["complete_ps"][stand_ins]
    columns["waited_for"][left_out] = stand_ins
    return left_out, columns


def _ops(tables: Tables, numbers: Ints, core: int, units: int) -> tuple[NDArray[Any], Ints]:
    """Return a core's ops by unit and start, and by unit their totals: waiting by reason, and work behind these."""
    done, moves = tables.ops[: tables.totals[0].ops], tables.moves[: tables.totals[0].moves]
    counts = np.zeros(units, dtype=np.int64)
    records = len(tables.records)
    tiers.run(records, count_ops, done, moves, tables.records, core, counts)
    ops = np.empty(int(counts.sum()), dtype=OP_DTYPE)
    totals_ps = np.zeros((units, len(Stall) + 1), dtype=np.int64)
    places, reached_ps = np.cumsum(counts) - counts, np.zeros(units, dtype=np.int64)
    logs = done, moves, tables.records, numbers
    filled = places, reached_ps, ops.view(np.recarray), totals_ps
    tiers.run(records, arrange, *logs, core, *filled)
    return ops, totals_ps


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
