"""A comparison as one screen of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich import box
from rich.console import RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from neurosim.comparison.why import headline, signed, why_engine, why_line
from neurosim.report import units
from neurosim.report.schema import Summary
from neurosim.report.screen import printed

if TYPE_CHECKING:
    from neurosim.comparison.alignment import Place
    from neurosim.comparison.changes import Diff, LineChange

WIDTH: Final = 120
LINES: Final = 12
"""Lines that are shown, those that moved most."""

LEAST: Final = 0.001
"""Part of the longer makespan below which a line's change is not shown."""


def text(diff: Diff, *, color: bool = False) -> str:
    """Return a comparison as text. ``color`` adds terminal escapes; the layout stays the same."""
    parts: list[RenderableType] = [
        Rule(Text("A and B: simulated, not measured", style="bold"), align="left", style="dim"),
        *(Text(f"{name}  {side.title}") for name, side in (("A", diff.a), ("B", diff.b))),
        *(Text(f"   {row.name}: {row.a or 'none'} in A, {row.b or 'none'} in B") for row in diff.setup),
        "",
        Text(headline(diff), style="bold"),
        "",
        _figures(diff),
        _engines(diff),
        _lines(diff),
    ]
    parts += [Text(note, style="dim") for note in notes(diff)]
    return printed(parts, color=color, width=WIDTH)


def notes(diff: Diff) -> list[str]:
    """Return what a reader should know of what is compared."""
    found = []
    if max(len(side.summary["cores"]) for side in (diff.a, diff.b)) > 1:
        found.append("Engines and lines of a run on several cores are those of the core that ends last.")
    if not (diff.a.is_whole and diff.b.is_whole):
        found.append("A summary from a file holds its costliest lines only; a program file has all.")
    return found


def figures(diff: Diff) -> list[tuple[str, str, str, str]]:
    """Return the figures of both runs: name, A, B, change."""
    a, b = diff.a.summary, diff.b.summary
    rows = [
        ("kernel's time", units.time(a["makespan_ps"]), units.time(b["makespan_ps"]), signed(diff.change_ps)),
        ("MFU", units.percent(a["mfu"]), units.percent(b["mfu"]), _points(b["mfu"] - a["mfu"])),
        ("MBU", units.percent(a["mbu"]), units.percent(b["mbu"]), _points(b["mbu"] - a["mbu"])),
        (
            "instructions",
            f"{a['instructions']:,}",
            f"{b['instructions']:,}",
            _times(a["instructions"], b["instructions"]),
        ),
    ]
    for name, key in (("HBM read", "read_bytes"), ("HBM written", "written_bytes")):
        before, after = _hbm(a)[key], _hbm(b)[key]
        rows.append((name, units.decimal(before, "B"), units.decimal(after, "B"), _times(before, after)))
    for name, before, after in (
        ("SBUF of a partition", a["sbuf"]["peak_partition_bytes"], b["sbuf"]["peak_partition_bytes"]),
        ("PSUM of a partition", a["psum"]["peak_partition_bytes"], b["psum"]["peak_partition_bytes"]),
    ):
        rows.append((name, units.binary(before), units.binary(after), _times(before, after)))
    return rows


def _hbm(summary: Summary) -> dict[str, int]:
    return {"read_bytes": summary["hbm"]["read_bytes"], "written_bytes": summary["hbm"]["written_bytes"]}


def _points(change: float) -> str:
    return "same" if abs(change) < 0.0005 else f"{'−' if change < 0 else '+'}{abs(100 * change):.1f} points"


def _times(a: float, b: float) -> str:
    if a == b:
        return "same"
    return f"× {b / a:.3g}" if a else "new"


def _figures(diff: Diff) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("figure", no_wrap=True)
    for name in ("A", "B", "change"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in figures(diff):
        table.add_row(*row)
    return table


def engines_title(diff: Diff) -> str:
    """Return what a table says of the engines' times by cause, B less A."""
    if not any(diff.engines.values()):
        return "No engine's time moved."
    if not diff.change_ps:
        return "what moved on each engine, and adds up to nothing"
    return f"where the {signed(diff.change_ps)} went, on each engine"


def _engines(diff: Diff) -> RenderableType:
    """Each engine's time by cause, B less A; on each it adds up to the change of the makespan."""
    if not any(diff.engines.values()):
        return Text(engines_title(diff))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("engine", no_wrap=True)
    table.add_column(engines_title(diff), overflow="fold")
    for name, causes in diff.engines.items():
        if causes:
            table.add_row(name, why_engine(causes))
    return table


def shown_lines(diff: Diff, count: int | None = LINES) -> list[LineChange]:
    """Return the lines that moved, most first."""
    longer = max(diff.a.summary["makespan_ps"], diff.b.summary["makespan_ps"], 1)
    return [row for row in diff.lines if abs(row.change_ps) >= LEAST * longer][:count]


def _lines(diff: Diff) -> RenderableType:
    rows = shown_lines(diff)
    if not rows:
        return Text("No line moved.")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("line in A", "in B", "instruction", "engine"):
        table.add_column(name, no_wrap=True)
    table.add_column("moved", justify="right", no_wrap=True)
    table.add_column("why", overflow="fold")
    for row in rows:
        table.add_row(
            place_text(row.a), place_text(row.b), row.instruction, row.engine, signed(row.change_ps), why_line(row)
        )
    return table


def place_text(place: Place | None) -> str:
    """Return file and line, or a dash for none."""
    return "–" if place is None else f"{place.file}:{place.line}"
