"""The summary of one core's run: figures from a program and its timeline, as plain data."""

from __future__ import annotations

import linecache
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

import neurosim
from neurosim.chip import Chip
from neurosim.engines import Memory
from neurosim.lifetimes import Peak, check_capacity
from neurosim.program import Program
from neurosim.report.schema import (
    SCHEMA,
    EngineSummary,
    HbmSummary,
    LineSummary,
    RooflineSummary,
    SpaceSummary,
    Summary,
    TensorSummary,
)
from neurosim.timing.timeline import REASONS, Stall, Timeline
from neurosim.work import Transfer

PS_PER_SECOND = 10**12
_STATEMENT_LINES = 12
LINES = 20
"""Kernel lines that a summary holds at most, the costliest first."""


def summary(program: Program, timeline: Timeline, chip: Chip, *, kernel_name: str = "kernel") -> dict[str, Any]:
    """Return what :class:`neurosim.report.schema.Summary` describes; ``json.dumps`` takes it.

    Args:
        program: the record.
        timeline: when everything happened, on one core.
        chip: what was timed.
        kernel_name: for the title.
    """
    psum_bytes = chip.psum.banks * chip.psum.bank_bytes
    usage = check_capacity(program, chip.name, chip.sbuf.partition_bytes, psum_bytes)
    result: Summary = {
        "schema": SCHEMA,
        "neurosim": neurosim.__version__,
        "kernel": kernel_name,
        "chip": chip.name,
        "core": timeline.core,
        "tensors": _tensors(program),
        "instructions": len(timeline.records),
        "launch_ps": timeline.launch_ps,
        "makespan_ps": timeline.makespan_ps,
        "total_ps": timeline.total_ps,
        "engines": {name: _engine(timeline, name) for name in timeline.units},
        "hbm": _hbm(timeline, chip),
        "flops": sum(timeline.flops.values()),
        "flops_by_dtype": {str(dtype): flops for dtype, flops in timeline.flops.items()},
        "mfu": timeline.mfu,
        "mbu": timeline.mbu,
        "roofline": _roofline(program, timeline, chip),
        "sbuf": _space(usage.sbuf),
        "psum": _space(usage.psum),
        "lines": _lines(program, timeline)[:LINES],
    }
    return cast("dict[str, Any]", result)


def _tensors(program: Program) -> list[TensorSummary]:
    """Inputs, and what else the host sees: tensors in shared HBM that the kernel made."""
    found: list[TensorSummary] = []
    for info in program.storages:
        if info.role == "input" or info.memory is Memory.shared_hbm:
            role = "input" if info.role == "input" else "output"
            found.append({"name": info.name, "role": role, "shape": list(info.shape), "dtype": str(info.dtype)})
    return found


def _engine(timeline: Timeline, name: str) -> EngineSummary:
    account = timeline.engines[name]
    stalls = {reason: ps for reason, ps in account.stall_ps.items() if ps}
    return {"busy_ps": account.busy_ps, "stall_ps": stalls, "idle_ps": account.idle_ps}


def _space(peak: Peak) -> SpaceSummary:
    return {
        "peak_partition_bytes": peak.bytes,
        "capacity_partition_bytes": peak.limit_bytes,
        "filled": peak.filled,
    }


def _hbm(timeline: Timeline, chip: Chip) -> HbmSummary:
    makespan_ps = max(timeline.makespan_ps, 1)
    return {
        "read_bytes": timeline.hbm_read_bytes,
        "written_bytes": timeline.hbm_written_bytes,
        "read_gb_per_s": timeline.hbm_read_bytes * 1000 / makespan_ps,
        "written_gb_per_s": timeline.hbm_written_bytes * 1000 / makespan_ps,
        "peak_gb_per_s": chip.hbm.bandwidth_gb_per_s,
    }


def _roofline(program: Program, timeline: Timeline, chip: Chip) -> RooflineSummary:
    flops = sum(timeline.flops.values())
    moved_bytes = timeline.hbm_read_bytes + timeline.hbm_written_bytes
    memory_ps = _least_memory_ps(program, timeline, chip)
    peak = flops / timeline.peak_ps if timeline.peak_ps else chip.tensor.peak_tflop_per_s()
    # Without traffic there is no mix to weigh; the roof is then that of loads.
    bandwidth = moved_bytes * 1000 / memory_ps if memory_ps else chip.dma.engines * chip.dma.load_gb_per_s
    least_ps = max(memory_ps, timeline.peak_ps)
    return {
        "intensity_flop_per_byte": flops / moved_bytes if moved_bytes else None,
        "bandwidth_gb_per_s": bandwidth,
        "ridge_flop_per_byte": peak * 1000 / bandwidth,
        "attainable_tflop_per_s": flops / least_ps if least_ps else 0.0,
        "achieved_tflop_per_s": flops / timeline.makespan_ps if timeline.makespan_ps else 0.0,
        "peak_tflop_per_s": peak,
        "bound": "memory" if memory_ps >= timeline.peak_ps else "compute",
    }


def _least_memory_ps(program: Program, timeline: Timeline, chip: Chip) -> float:
    """How long the kernel's HBM traffic takes at least, with all DMA engines and all of HBM's bandwidth."""
    ids = np.array(program.signature_ids, dtype=np.int64)[timeline.records]
    counts = np.bincount(ids, minlength=len(program.signatures))
    engines_ps = hbm_bytes = 0.0
    for signature, count in zip(program.signatures, counts.tolist(), strict=True):
        for work in signature.work if count else ():
            if isinstance(work, Transfer) and (work.source.is_hbm or work.target.is_hbm):
                rate = chip.dma.load_gb_per_s if work.source.is_hbm else chip.dma.engine_gb_per_s
                payload_bytes = max(work.read_bytes, work.written_bytes)
                engines_ps += count * payload_bytes * 1000 / (chip.dma.engines * rate)
                hbm_bytes += count * work.read_bytes * work.source.is_hbm
                hbm_bytes += count * work.written_bytes * work.target.is_hbm
    return max(engines_ps, hbm_bytes * 1000 / chip.hbm.bandwidth_gb_per_s)


@dataclass
class _Cost:
    """What adds up for one kernel line, instruction and engine."""

    records: int
    busy_ps: int
    stalls_ps: np.ndarray[Any, np.dtype[np.int64]]


def _lines(program: Program, timeline: Timeline) -> list[LineSummary]:
    """The kernel's lines, by the share of the makespan that their engine worked on them."""
    dma_engines = sum(name.startswith("dma") for name in timeline.units)
    costs = _costs(program, timeline)
    lines: list[LineSummary] = []
    for (path, file, line, function, instruction, engine), cost in costs.items():
        width = dma_engines if engine == "dma" else 1
        worst = int(cost.stalls_ps.argmax())
        lines.append(
            {
                "file": file,
                "line": line,
                "function": function,
                "source": _source(path or file, line),
                "instruction": instruction,
                "engine": engine,
                "count": cost.records,
                "busy_ps": cost.busy_ps,
                "share": cost.busy_ps / (width * max(timeline.makespan_ps, 1)),
                "stall_ps": int(cost.stalls_ps.sum()),
                "stall_reason": REASONS[worst] if cost.stalls_ps[worst] else None,
            }
        )
    return sorted(lines, key=lambda line: (-line["share"], line["file"], line["line"], line["instruction"]))


def _costs(program: Program, timeline: Timeline) -> dict[tuple[str, str, int, str, str, str], _Cost]:
    """Add up ops by innermost kernel line, instruction and engine; the DMA engines are one."""
    ops = timeline.ops
    names = ["dma" if name.startswith("dma") else name for name in timeline.units]
    engines = sorted(set(names))
    engine = np.array([engines.index(name) for name in names], dtype=np.int64)[ops["unit"]]
    stacks = np.array(program.stack_ids, dtype=np.int64)[ops["record"]]
    signatures = np.array(program.signature_ids, dtype=np.int64)[ops["record"]]
    keys = np.stack([stacks, signatures, engine], axis=1)
    groups, index = np.unique(keys, axis=0, return_inverse=True)
    index = index.reshape(-1)
    busy = _add(index, ops["busy_ps"], len(groups))
    stalls = np.zeros((len(groups), len(Stall)), dtype=np.int64)
    np.add.at(stalls, (index, ops["reason"]), ops["stall_ps"])
    stalls[:, Stall.BANDWIDTH] += _add(index, ops["held_ps"], len(groups))
    pairs = np.unique(np.stack([index, ops["record"].astype(np.int64)], axis=1), axis=0)
    records = np.bincount(pairs[:, 0], minlength=len(groups))

    costs: dict[tuple[str, str, int, str, str, str], _Cost] = defaultdict(
        lambda: _Cost(0, 0, np.zeros(len(Stall), dtype=np.int64))
    )
    for group, (stack, signature, engine_id) in enumerate(groups.tolist()):
        frames = program.stacks[stack]
        place = (frames[0].path, frames[0].file, frames[0].line, frames[0].function) if frames else ("", "?", 0, "")
        cost = costs[(*place, program.signatures[signature].instruction, engines[engine_id])]
        cost.records += int(records[group])
        cost.busy_ps += int(busy[group])
        cost.stalls_ps += stalls[group]
    return costs


def _source(path: str, line: int) -> str:
    """Return a kernel line, with the lines that its brackets reach over, as one line of text."""
    parts: list[str] = []
    opened = 0
    for number in range(line, line + _STATEMENT_LINES):
        part = linecache.getline(path, number).strip()
        parts.append(part)
        opened += sum(part.count(bracket) for bracket in "([{") - sum(part.count(bracket) for bracket in ")]}")
        if opened <= 0:
            break
    return " ".join(parts).replace("( ", "(").replace(", )", ")").strip()


def _add(index: Any, values: Any, groups: int) -> Any:
    """Sum integers by group; exact, where ``bincount`` with weights would go through floats."""
    totals = np.zeros(groups, dtype=np.int64)
    np.add.at(totals, index, values)
    return totals
