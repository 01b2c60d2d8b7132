"""What a notebook shows of a result and of a timeline: small, without scripts, and safe whatever names say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast
from xml.etree.ElementTree import Element, SubElement, tostring

from neurosim.report import accounts, units
from neurosim.report.colors import CAUSE_COLORS, CAUSES_IN_ORDER
from neurosim.report.schema import LineSummary, Summary
from neurosim.report.text import facts
from neurosim.report.words import words
from neurosim.timing.timeline import Timeline

LINES: Final = 8
_WAIT: Final = "#f1ce63"
_BUSY: Final = CAUSE_COLORS["work"]
_FONT: Final = "font: 13px/1.4 system-ui, sans-serif; text-align: left"
_CELL: Final = "padding: 0 .8em 0 0; text-align: left; vertical-align: top"


def result_html(content: Mapping[str, Any]) -> str:
    """Return a summary as a notebook shows it: facts, where each engine's time went, the lines that cost most."""
    summary = cast("Summary", content)
    whole = Element("div", style=_FONT)
    SubElement(whole, "b").text = f"{summary['kernel']} on {summary['chip']}: simulated, not measured"
    _table(whole, [(heading, text) for heading, text in facts(summary)])
    for core in summary["cores"] if len(summary["cores"]) > 1 else [summary]:
        engines = accounts.rows(core["engines"])
        makespan_ps = max(core["makespan_ps"], 1)
        if len(summary["cores"]) > 1:
            SubElement(whole, "div").text = f"core {core['core']}"
        rows = [
            (
                name,
                [(engine["causes_ps"].get(cause, 0), CAUSE_COLORS[cause], words(cause)) for cause in CAUSES_IN_ORDER],
            )
            for name, engine in engines.items()
        ]
        _bars(whole, rows, makespan_ps)
    _table(
        whole, [_line(line) for line in summary["lines"][:LINES]], ("line", "instruction", "times", "engine", "busy")
    )
    return tostring(whole, encoding="unicode", method="html")


def timeline_html(timeline: Timeline) -> str:
    """Return a timeline as a notebook shows it: its times, and each engine busy, waiting and idle."""
    whole = Element("div", style=_FONT)
    SubElement(whole, "b").text = f"core {timeline.core} on {timeline.chip.name}: simulated, not measured"
    rows = [
        ("time", f"{units.time(timeline.makespan_ps)}, launch {units.time(timeline.launch_ps)}"),
        ("MFU, MBU", f"{units.percent(timeline.mfu)}, {units.percent(timeline.mbu)}"),
        ("operations", f"{len(timeline.ops):,}, schedule={timeline.schedule}"),
    ]
    _table(whole, rows)
    bars = []
    for name, account in timeline.engines.items():
        waits = [(ps, _WAIT, f"waits: {words(reason)}") for reason, ps in account.stall_ps.items()]
        bars.append((name, [(account.busy_ps, _BUSY, "busy"), *waits, (account.idle_ps, CAUSE_COLORS["idle"], "idle")]))
    _bars(whole, bars, max(timeline.makespan_ps, 1))
    return tostring(whole, encoding="unicode", method="html")


def _line(line: LineSummary) -> tuple[str, ...]:
    place = f"{line['file']}:{line['line']}"
    return place, line["instruction"], f"{line['count']:,}", line["engine"], units.percent(line["share"])


def _table(parent: Element, rows: Sequence[Sequence[str]], heading: Sequence[str] = ()) -> None:
    table = SubElement(parent, "table", style="border-collapse: collapse")
    for cells in (heading, *rows) if heading else rows:
        row = SubElement(table, "tr")
        for index, text in enumerate(cells):
            is_head = cells is heading or (not heading and index == 0)
            SubElement(row, "th" if is_head else "td", style=_CELL).text = text


def _bars(parent: Element, rows: Sequence[tuple[str, Sequence[tuple[int, str, str]]]], makespan_ps: int) -> None:
    """Add a bar per row, of parts (time, color, words) that point out what they are."""
    for name, parts in rows:
        row = SubElement(parent, "div", style="display: flex; align-items: center; max-width: 60em")
        SubElement(row, "span", style="width: 6em; flex: none").text = name
        bar = SubElement(row, "span", style="display: flex; flex: auto; height: .9em; background: #eee")
        for ps, color, text in parts:
            if ps:
                share = 100 * ps / makespan_ps
                style = f"width: {share:.3f}%; background: {color}"
                SubElement(bar, "span", style=style, title=f"{name}: {text} {units.time(ps)}, {share:.1f} %")
