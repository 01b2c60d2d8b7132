"""The tables that validate.py prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from validation.rows import LIMITS, Row
from validation.running import Outcome
from validation.statistics import LEAST_DIFFERENCE, LEAST_PAIRS, Group, Held, groups

from neurosim.report.words import REASONS

WIDTH = 150

SHORT = {"tensor": "PE", "vector": "DVE", "scalar": "ACT", "gpsimd": "GpSimd", "dma": "DMA"}
"""Engines as profilers call them."""


def console() -> Console:
    """Return where tables go; they are as wide whatever the terminal is."""
    return Console(width=WIDTH, highlight=False)


def print_all(out: Console, held: Sequence[Held], missing: Sequence[tuple[Row, Outcome]]) -> None:
    """Print rows, worst first, what could not run, and the groups."""
    out.print(row_table(sorted(held, key=lambda each: -abs(each.error))))
    if missing:
        out.print(missing_table(missing))
    for title, key in (("family", "family"), ("bound", "bound_class"), ("chip", "chip"), ("trust", "grade")):
        out.print(group_table(title, groups(held, key)))
    out.print(
        "bottleneck: the busiest unit is among those published; tau: ranks within a family, over pairs that differ by "
        f"{LEAST_DIFFERENCE:.0%}, at least {LEAST_PAIRS}"
    )
    bounds = [each for each in held if each.row.at_most]
    if bounds:
        kept = sum(not each.error for each in bounds)
        out.print(f"bounds that tests assert (trust C): {kept} of {len(bounds)} predictions are below them")
    for grade, limit in LIMITS.items():
        for each in groups(held, "grade"):
            if each.name == grade:
                out.print(f"trust {grade}: median error {_percent(each.median)}, to be at most {_percent(limit)}")


def row_table(held: Sequence[Held]) -> Table:
    """Return a line per row that ran."""
    table = _table("rows, worst first: simulated against measured")
    for name in ("row", "chip", "kernel", "trust"):
        table.add_column(name, no_wrap=True)
    for name in ("measured µs", "predicted µs", "error"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("published bound", "busiest", "which mostly waits for"):
        table.add_column(name, no_wrap=True)
    for each in held:
        row, outcome = each.row, each.outcome
        busiest = max(outcome.busy, key=lambda unit: outcome.busy[unit])
        reason, share = outcome.stalls[busiest]
        table.add_row(
            row.id,
            row.chip,
            outcome.kernel,
            row.trust,
            ("≤ " if row.at_most else "") + _us(row.measured_us),
            _us(outcome.predicted_us or 0.0),
            f"{each.error:+.0%}",
            "/".join(SHORT.get(name, name) for name in row.bound),
            f"{SHORT[busiest]} {outcome.busy[busiest]:.0%}{' ×' if each.hit is False else ''}",
            f"{REASONS[reason]} {share:.0%}",
        )
    return table


def missing_table(missing: Sequence[tuple[Row, Outcome]]) -> Table:
    """Return a line per reason that rows did not run for, with the rows."""
    reasons: dict[str, list[str]] = {}
    for row, outcome in missing:
        reasons.setdefault(outcome.why_not, []).append(row.id)
    table = _table("not run")
    table.add_column("why")
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("which")
    for reason, ids in reasons.items():
        table.add_row(reason, str(len(ids)), ", ".join(ids))
    return table


def group_table(title: str, found: Sequence[Group]) -> Table:
    """Return a line per group."""
    table = _table(f"by {title}")
    table.add_column(title, no_wrap=True)
    for name in ("rows", "median error", "bias", "worst"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("worst row", no_wrap=True)
    table.add_column("bottleneck", justify="right", no_wrap=True)
    table.add_column("tau", justify="right", no_wrap=True)
    for each in found:
        table.add_row(
            each.name,
            str(each.rows),
            _percent(each.median),
            f"{each.bias:+.0%}",
            f"{each.worst:+.0%}",
            each.worst_id,
            f"{each.hits} of {each.named}" if each.named else "",
            "" if each.tau is None else f"{each.tau:.2f} ({each.pairs})",
        )
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)


def _percent(fraction: float) -> str:
    return f"{fraction:.1%}"


def _us(value_us: float) -> str:
    return f"{value_us:,.1f}"
