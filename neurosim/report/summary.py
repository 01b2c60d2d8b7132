"""The summary of a run: figures from a program and its timelines, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

import neurosim
from neurosim.analysis.independence import note
from neurosim.analysis.lifetimes import Peak, check_capacity
from neurosim.chip import REPLACED, Chip, psum_bytes
from neurosim.program import Program
from neurosim.report.costs import Costs
from neurosim.report.limits import path_lines
from neurosim.report.schema import (
    SCHEMA,
    CoreSummary,
    EngineSummary,
    HbmSummary,
    InfluenceSummary,
    LeftOutSummary,
    ProvenanceSummary,
    RooflineSummary,
    SpaceSummary,
    Summary,
    TensorSummary,
)
from neurosim.timing.influence import by_standing, influences
from neurosim.timing.timeline import Timeline
from neurosim.work import Transfer

LINES = 20
"""Kernel lines, and loops, that a summary holds at most, the costliest first."""

FIGURES = 10
"""Figures of the device file that a summary names at most, those with most influence first."""


def kernel_summary(
    program: Program, timelines: Mapping[int, Timeline], chip: Chip, *, kernel_name: str = "kernel"
) -> dict[str, Any]:
    """Return the summary of all cores: what :class:`neurosim.report.schema.Summary` describes.

    Args:
        program: the record.
        timelines: when everything happened, by core.
        chip: what was timed.
        kernel_name: for the title.
    """
    every = [timelines[core] for core in sorted(timelines)]
    last = max(every, key=lambda timeline: timeline.makespan_ps)
    result = cast("Summary", summary(program, last, chip, kernel_name=kernel_name))
    if len(every) > 1:
        result["critical_path"] = path_lines(program, timelines)[:LINES]
        result["cores"] = [_core(program, timeline, chip) for timeline in every]
        result["instructions"] = sum(core["instructions"] for core in result["cores"])
        result["left_out"] = _left_out(program, every)
        result["hbm"] = _hbm(every, chip)
        result["flops_by_dtype"] = _flops_by_dtype(every)
        result["flops"] = sum(result["flops_by_dtype"].values())
        result["mfu"] = sum(timeline.peak_ps for timeline in every) / (len(every) * max(last.makespan_ps, 1))
        result["mbu"] = sum(timeline.mbu * timeline.makespan_ps for timeline in every) / max(last.makespan_ps, 1)
        result["roofline"] = _roofline(program, every, chip)
        for memory in ("sbuf", "psum"):
            spaces = [core[memory] for core in result["cores"]]
            result[memory] = max(spaces, key=lambda space: space["peak_partition_bytes"])
    return cast("dict[str, Any]", result)


def summary(program: Program, timeline: Timeline, chip: Chip, *, kernel_name: str = "kernel") -> dict[str, Any]:
    """Return the summary of one core: what :class:`neurosim.report.schema.Summary` describes; ``json.dumps`` takes it.

    Args:
        program: the record.
        timeline: when everything happened, on that core.
        chip: what was timed.
        kernel_name: for the title.
    """
    costs = Costs(program, timeline)
    own = _core(program, timeline, chip, costs)
    result: Summary = {
        "schema": SCHEMA,
        "neurosim": neurosim.__version__,
        "kernel": kernel_name,
        "chip": chip.name,
        "nki_version": str(program.nki_version),
        "schedule": timeline.schedule,
        "throttle": timeline.throttle,
        "core": timeline.core,
        "cores": [own],
        "tensors": _tensors(program),
        "notes": program.notes | _loop_notes(program) | _chip_notes(chip),
        "instructions": own["instructions"],
        "left_out": own["left_out"],
        "launch_ps": timeline.launch_ps,
        "makespan_ps": timeline.makespan_ps,
        "total_ps": timeline.total_ps,
        "engines": own["engines"],
        "hbm": own["hbm"],
        "flops": own["flops"],
        "flops_by_dtype": _flops_by_dtype([timeline]),
        "mfu": timeline.mfu,
        "mbu": timeline.mbu,
        "roofline": _roofline(program, [timeline], chip),
        "sbuf": own["sbuf"],
        "psum": own["psum"],
        "lines": costs.lines()[:LINES],
        "loops": costs.loops()[:LINES],
        "critical_path": path_lines(program, {timeline.core: timeline})[:LINES],
        "provenance": _provenance(program, timeline),
    }
    return cast("dict[str, Any]", result)


def _core(program: Program, timeline: Timeline, chip: Chip, costs: Costs | None = None) -> CoreSummary:
    usage = check_capacity(program, chip.name, chip.sbuf.partition_bytes, psum_bytes(chip), timeline.core)
    costs = costs or Costs(program, timeline)
    waits_for, found = costs.waits_for_ps(), costs.causes.by_engine()
    return {
        "core": timeline.core,
        "instructions": len(timeline.records),
        "left_out": _left_out(program, [timeline]),
        "makespan_ps": timeline.makespan_ps,
        "engines": {name: _engine(timeline, name, waits_for.get(name, {}), found[name]) for name in timeline.units},
        "hbm": _hbm([timeline], chip),
        "flops": sum(timeline.flops.values()),
        "sbuf": _space(usage.sbuf),
        "psum": _space(usage.psum),
    }


def _provenance(program: Program, timeline: Timeline) -> ProvenanceSummary:
    found = influences(program, timeline)
    most: list[InfluenceSummary] = [{"figure": f, "standing": standing, "share": s} for f, standing, s in found]
    return {"standings": by_standing(found), "figures": most[:FIGURES]}


def _flops_by_dtype(timelines: Sequence[Timeline]) -> dict[str, int]:
    total: dict[str, int] = {}
    for timeline in timelines:
        for dtype, flops in timeline.flops.items():
            total[str(dtype)] = total.get(str(dtype), 0) + flops
    return total


def _loop_notes(program: Program) -> dict[str, str]:
    """Say so where a loop's iterations are not as independent as its source says."""
    found = note(program)
    return {"Loops": found} if found else {}


def _chip_notes(chip: Chip) -> dict[str, str]:
    """Say so where nothing tells how far the times are right, and where the chip is not the one of its name."""
    notes = []
    if not chip.is_validated:
        notes.append(f"{chip.name} is not validated: no figure and no latency of it was measured on the chip itself")
    changed = [f"{path} = {figure.value}" for path, figure in chip.figures.items() if figure.source == REPLACED]
    if changed:
        more = f" and {len(changed) - 3} more" * (len(changed) > 3)
        notes.append(f"{chip.name} changed: {', '.join(changed[:3])}{more}")
    return {"Chip": "; ".join(notes)} if notes else {}


def _tensors(program: Program) -> list[TensorSummary]:
    """Inputs and outputs of the kernel."""
    found: list[TensorSummary] = []
    outside = program.storages.column(lambda info: info.role in ("input", "output"), bool)
    for storage in np.flatnonzero(outside).tolist():
        info = program.storages[storage]
        found.append({"name": info.name, "role": info.role, "shape": list(info.shape), "dtype": str(info.dtype)})
    return found


def _engine(timeline: Timeline, name: str, waits_for: dict[str, int], causes: dict[str, int]) -> EngineSummary:
    account = timeline.engines[name]
    return {
        "busy_ps": account.busy_ps,
        "stall_ps": {reason: ps for reason, ps in account.stall_ps.items() if ps},
        "waits_for_ps": waits_for,
        "causes_ps": causes,
        "idle_ps": account.idle_ps,
    }


def _space(peak: Peak) -> SpaceSummary:
    return {
        "peak_partition_bytes": peak.bytes,
        "capacity_partition_bytes": peak.limit_bytes,
        "filled": peak.filled,
    }


def _left_out(program: Program, timelines: Sequence[Timeline]) -> LeftOutSummary:
    """Return what a compiler leaves out, of all cores."""
    records = np.concatenate([timeline.left_out for timeline in timelines])
    ids = np.array(program.signature_ids, dtype=np.int64)[records]
    counts = np.bincount(ids, minlength=len(program.signatures)).tolist()
    loads = [
        (count, item.read_bytes)
        for signature, count in zip(program.signatures, counts, strict=True)
        for item in signature.work
        if isinstance(item, Transfer)
    ]
    read_bytes = sum(count * size_bytes for count, size_bytes in loads)
    left_out: LeftOutSummary = {"loads": sum(count for count, _ in loads), "read_bytes": read_bytes}
    if left_out["loads"] < len(records):
        left_out["products"] = len(records) - left_out["loads"]
    return left_out


def _makespan_ps(timelines: Sequence[Timeline]) -> int:
    return max(timeline.makespan_ps for timeline in timelines)


def _hbm(timelines: Sequence[Timeline], chip: Chip) -> HbmSummary:
    makespan_ps = max(_makespan_ps(timelines), 1)
    read = sum(timeline.hbm_read_bytes for timeline in timelines)
    written = sum(timeline.hbm_written_bytes for timeline in timelines)
    return {
        "read_bytes": read,
        "written_bytes": written,
        "read_gb_per_s": read * 1000 / makespan_ps,
        "written_gb_per_s": written * 1000 / makespan_ps,
        "peak_gb_per_s": chip.hbm.bandwidth_gb_per_s,
    }


def _roofline(program: Program, timelines: Sequence[Timeline], chip: Chip) -> RooflineSummary:
    """Of several cores, the roof is that of all their engines, and of the HBM that they share."""
    count = len(timelines)
    flops = sum(sum(timeline.flops.values()) for timeline in timelines)
    moved_bytes = sum(timeline.hbm_read_bytes + timeline.hbm_written_bytes for timeline in timelines)
    traffic = [_least_memory_ps(program, timeline, chip) for timeline in timelines]
    memory_ps = max(sum(engines_ps for engines_ps, _ in traffic) / count, sum(hbm_ps for _, hbm_ps in traffic))
    compute_ps = sum(timeline.peak_ps for timeline in timelines) / count
    makespan_ps = _makespan_ps(timelines)
    peak = flops / compute_ps if compute_ps else count * chip.tensor.peak_tflop_per_s()
    # Without traffic there is no mix to weigh; the roof is then that of loads.
    loads = min(count * chip.dma.engines * chip.dma.load_gb_per_s, chip.hbm.bandwidth_gb_per_s)
    bandwidth = moved_bytes * 1000 / memory_ps if memory_ps else loads
    least_ps = max(memory_ps, compute_ps)
    return {
        "intensity_flop_per_byte": flops / moved_bytes if moved_bytes else None,
        "bandwidth_gb_per_s": bandwidth,
        "ridge_flop_per_byte": peak * 1000 / bandwidth,
        "attainable_tflop_per_s": flops / least_ps if least_ps else 0.0,
        "achieved_tflop_per_s": flops / makespan_ps if makespan_ps else 0.0,
        "peak_tflop_per_s": peak,
        "least_ps": round(least_ps),
        "bound": "memory" if memory_ps >= compute_ps else "compute",
    }


def _least_memory_ps(program: Program, timeline: Timeline, chip: Chip) -> tuple[float, float]:
    """How long a core's HBM traffic takes at least: with all its DMA engines, and with all of HBM's bandwidth."""
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
    return engines_ps, hbm_bytes * 1000 / chip.hbm.bandwidth_gb_per_s
