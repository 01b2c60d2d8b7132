"""Accounts of engines as reports show them: the DMA engines share a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    return {
        "busy_ps": sum(engine["busy_ps"] for engine in engines.values()) // count,
        "stall_ps": _means([engine["stall_ps"] for engine in engines.values()]),
        "waits_for_ps": {},
        "causes_ps": _means([engine["causes_ps"] for engine in engines.values()]),
        "idle_ps": sum(engine["idle_ps"] for engine in engines.values()) // count,
    }


def _means(parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return the mean of each entry, one that is not there being 0."""
    totals: dict[str, int] = {}
    for part in parts:
        for name, ps in part.items():
            totals[name] = totals.get(name, 0) + ps
    return {name: ps // len(parts) for name, ps in totals.items()}
