"""The summary of one core's run: figures from a program and its timeline, as plain data."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

import neurosim
from neurosim.chip import REPLACED, Chip
from neurosim.lifetimes import Peak, check_capacity
from neurosim.program import Program
from neurosim.report.costs import Costs
from neurosim.report.schema import (
    SCHEMA,
    EngineSummary,
    HbmSummary,
    RooflineSummary,
    SpaceSummary,
    Summary,
    TensorSummary,
)
from neurosim.timing.timeline import Timeline
from neurosim.work import Transfer

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
    costs = Costs(program, timeline)
    waits_for = costs.waits_for_ps()
    result: Summary = {
        "schema": SCHEMA,
        "neurosim": neurosim.__version__,
        "kernel": kernel_name,
        "chip": chip.name,
        "nki_version": str(program.nki_version),
        "core": timeline.core,
        "tensors": _tensors(program),
        "notes": program.notes | _chip_notes(chip),
        "instructions": len(timeline.records),
        "launch_ps": timeline.launch_ps,
        "makespan_ps": timeline.makespan_ps,
        "total_ps": timeline.total_ps,
        "engines": {name: _engine(timeline, name, waits_for.get(name, {})) for name in timeline.units},
        "hbm": _hbm(timeline, chip),
        "flops": sum(timeline.flops.values()),
        "flops_by_dtype": {str(dtype): flops for dtype, flops in timeline.flops.items()},
        "mfu": timeline.mfu,
        "mbu": timeline.mbu,
        "roofline": _roofline(program, timeline, chip),
        "sbuf": _space(usage.sbuf),
        "psum": _space(usage.psum),
        "lines": costs.lines()[:LINES],
    }
    return cast("dict[str, Any]", result)


def _chip_notes(chip: Chip) -> dict[str, str]:
    """Say so where nothing tells how far the times are right, and where the chip is not the one of its name."""
    notes = []
    if not chip.is_validated:
        notes.append(f"{chip.name} is not validated: none of its figures was measured on the chip itself")
    changed = [f"{path} = {figure.value}" for path, figure in chip.figures.items() if figure.source == REPLACED]
    if changed:
        more = f" and {len(changed) - 3} more" * (len(changed) > 3)
        notes.append(f"{chip.name} changed: {', '.join(changed[:3])}{more}")
    return {"Chip": "; ".join(notes)} if notes else {}


def _tensors(program: Program) -> list[TensorSummary]:
    """Inputs and outputs of the kernel."""
    found: list[TensorSummary] = []
    for info in program.storages:
        if info.role in ("input", "output"):
            found.append({"name": info.name, "role": info.role, "shape": list(info.shape), "dtype": str(info.dtype)})
    return found


def _engine(timeline: Timeline, name: str, waits_for: dict[str, int]) -> EngineSummary:
    account = timeline.engines[name]
    return {
        "busy_ps": account.busy_ps,
        "stall_ps": {reason: ps for reason, ps in account.stall_ps.items() if ps},
        "waits_for_ps": waits_for,
        "idle_ps": account.idle_ps,
    }


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
        "least_ps": round(least_ps),
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
