"""Accounts of engines as reports show them: the DMA engines share a row."""

from __future__ import annotations

from collections.abc import Mapping

from neurosim.report.schema import EngineSummary


def rows(engines: Mapping[str, EngineSummary]) -> dict[str, EngineSummary]:
    """Return an account per row; that of the DMA engines is their mean."""
    dma = {name: engine for name, engine in engines.items() if name.startswith("dma")}
    result = {name: engine for name, engine in engines.items() if name not in dma}
    if dma:
        result[f"dma ×{len(dma)}"] = _mean(dma)
    return result


def _mean(engines: Mapping[str, EngineSummary]) -> EngineSummary:
    count = len(engines)
    reasons = {reason: 0 for engine in engines.values() for reason in engine["stall_ps"]}
    for engine in engines.values():
        for reason, ps in engine["stall_ps"].items():
            reasons[reason] += ps
    return {
        "busy_ps": sum(engine["busy_ps"] for engine in engines.values()) // count,
        "stall_ps": {reason: ps // count for reason, ps in reasons.items()},
        "waits_for_ps": {},
        "idle_ps": sum(engine["idle_ps"] for engine in engines.values()) // count,
    }
