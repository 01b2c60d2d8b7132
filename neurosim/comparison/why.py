"""Why something moved, in words: how often, how long each, and which wait grew or shrank, behind which line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from neurosim.comparison.changes import Diff, LineChange
from neurosim.report.schema import LineSummary, PlaceSummary
from neurosim.report.units import percent, time
from neurosim.report.words import words
from neurosim.timing.causes import BUSY, CAUSES

SHOWN: Final = 0.01
"""Changes of less than this part of what a line's change is do not explain it."""

CAUSES_NAMED: Final = 3

_WORK: Final = frozenset(CAUSES[number] for number in BUSY)


def signed(ps: float) -> str:
    """Return a time with its sign."""
    return f"{'−' if ps < 0 else '+'}{time(abs(ps))}"


def why_line(change: LineChange) -> str:
    """Return why a line's time moved."""
    a, b = change.costs()
    if a is None or b is None:
        lacking = "B" if b is None else "A"
        both = change.a is not None and change.b is not None
        return f"not on {change.engine} in {lacking}" if both else f"not in {lacking}"
    parts = []
    if change.a_count != change.b_count:
        parts.append(f"{change.b_count:,} times, not {change.a_count:,}")
    each_a, each_b = change.a_busy_ps / max(change.a_count, 1), change.b_busy_ps / max(change.b_count, 1)
    if abs(each_b - each_a) > SHOWN * max(each_a, each_b):
        parts.append(f"each busy {time(each_b)}, not {time(each_a)}")
    waits = [(cause, ps) for cause, ps in change.causes_ps.items() if cause not in _WORK]
    if waits and abs(waits[0][1]) > SHOWN * max(abs(change.change_ps), 1.0):
        parts.append(_wait(*waits[0], a, b))
    return "; ".join(parts)


def _wait(cause: str, ps: float, a: LineSummary, b: LineSummary) -> str:
    """Return how a wait changed, and for which instruction it was where it was longer."""
    longer = a if ps < 0 else b
    found: PlaceSummary | None = next((wait["place"] for wait in longer["waits"] if wait["cause"] == cause), None)
    behind = f" ({found['instruction']}, line {found['line']})" if found else ""
    return f"waits {time(abs(ps))} {'less' if ps < 0 else 'more'} for {words(cause)}{behind}"


def why_engine(causes_ps: Mapping[str, float]) -> str:
    """Return which causes moved an engine's time most, and how much all others did; its idle time at the end is one."""
    named = list(causes_ps.items())[:CAUSES_NAMED]
    parts = [f"{words(cause)} {signed(ps)}" for cause, ps in named]
    others = len(causes_ps) - len(named)
    if others:
        rest_ps = sum(causes_ps.values()) - sum(ps for _, ps in named)
        parts.append(f"{others} other{'s' if others > 1 else ''} {signed(rest_ps)}")
    return ", ".join(parts)


def headline(diff: Diff) -> str:
    """Return in a sentence what changed, and what of it the busiest engine says."""
    before, after = diff.a.summary["makespan_ps"], diff.b.summary["makespan_ps"]
    if before == after:
        return f"Both take {time(before)}."
    change = f"{percent(abs(after - before) / max(before, 1))} {'longer' if after > before else 'shorter'}"
    what = f"B takes {time(after)}, A {time(before)}: {change}."
    engine = diff.busiest
    name = "the DMA engines" if engine == "dma" else engine
    verb = "are" if engine == "dma" else "is"
    causes = diff.engines[engine]
    side = "B" if after > before else "A"
    return f"{what} On {name}, which {verb} busiest in {side}: {why_engine(causes)}."
