"""The report: one screen of text from a summary."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from rich.console import RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from neurosim.report import accounts, units
from neurosim.report.schema import CoreSummary, EngineSummary, LineSummary, Summary
from neurosim.report.screen import WIDTH, printed, shortened
from neurosim.report.words import words

BAR = 21
_BARS = "█ busy ▒ stall · idle"
_SHARES = "{:>9}{:>9}{:>9}  "
LINES = 5
DECISIVE = 0.8
"""Share of the time that an engine is busy for the report to call it the limit."""
TENSORS = 6
_ORDERS = {"program": ", engines in program order", "reorder": ", without a compiler's passes"}
"""How a schedule is named that is not the usual one."""
PATH = 3
_FINER = {
    "data_dma": ("dma_latency", "dma_issue", "dma_descriptors", "dma_bandwidth"),
    "buffer": ("sbuf_space", "psum_space"),
}
"""Reasons that stand for several causes."""

FIGURES = 3

_TIED = re.compile(r"(?<=\d) | (?=\d)")
"""Blanks at which a row is not broken: a number stays with its unit, and with what it is a number of."""


def report(content: Mapping[str, Any], *, color: bool = False) -> str:
    """Return a summary as text. ``color`` adds terminal escapes; the layout stays the same."""
    summary = cast("Summary", content)
    parts: list[RenderableType] = [Rule(Text(_title(summary), style="bold"), align="left", style="dim")]
    parts += [_facts(summary), ""]
    if len(summary["cores"]) == 1:
        parts.append(_engines(summary))
    else:
        for core in summary["cores"]:
            parts += [_core(core, summary["makespan_ps"]), _engines(core)]
    return printed([*parts, _lines(summary)], color=color)


def _title(summary: Summary) -> str:
    count = len(summary["cores"])
    cores = f"core {summary['core']}" if count == 1 else f"{count} cores"
    return f"{summary['kernel']} on {summary['chip']}, {cores}: simulated, not measured"


def _facts(summary: Summary) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for heading, text in facts(summary):
        table.add_row(heading, text)
    return table


def facts(summary: Summary) -> list[tuple[str, str]]:
    """Return what stands above the engines: headings with a line of text each."""
    rows: list[tuple[str, str]] = []
    for name in ("input", "output"):
        tensors = [tensor for tensor in summary["tensors"] if tensor["role"] == name]
        if tensors:
            row = ", ".join(f"{t['name']} {t['dtype']}{t['shape']}" for t in tensors[:TENSORS])
            row += f", and {len(tensors) - TENSORS} more" * (len(tensors) > TENSORS)
            rows.append((f"{name.capitalize()}s", row))
    return [
        *rows,
        *summary["notes"].items(),
        ("Time", _time(summary)),
        ("Compute", _compute(summary)),
        ("HBM", _hbm(summary)),
        ("Roofline", _roofline(summary)),
        ("Limit", _limit(summary)),
        *([("Path", _path(summary))] if summary["critical_path"] else []),
        ("On chip", _space(summary)),
        ("Figures", _provenance(summary)),
    ]


def _time(summary: Summary) -> str:
    total, launch, kernel = (units.time(summary[key]) for key in ("total_ps", "launch_ps", "makespan_ps"))
    parts = f"{total} = launch {launch} + kernel {kernel}" if summary["launch_ps"] else f"{kernel} without a launch"
    if len(summary["cores"]) > 1:
        return f"{parts}, which ends with core {summary['core']}"
    order = _ORDERS.get(summary["schedule"], "")
    return f"{parts}{order}; shares below are of the kernel's {kernel}"


def _compute(summary: Summary) -> str:
    roof = summary["roofline"]
    if not summary["flops"]:
        return "nothing for the tensor engine to multiply; MFU 0 %"
    return (
        f"{units.decimal(summary['flops'], 'FLOP')} at {units.digits(roof['achieved_tflop_per_s'])} TFLOPS; "
        f"MFU {units.percent(summary['mfu'])} of {units.digits(roof['peak_tflop_per_s'])} TFLOPS"
    )


def _hbm(summary: Summary) -> str:
    hbm = summary["hbm"]
    return (
        f"read {units.decimal(hbm['read_bytes'], 'B')} at {units.digits(hbm['read_gb_per_s'])} GB/s, "
        f"wrote {units.decimal(hbm['written_bytes'], 'B')} at {units.digits(hbm['written_gb_per_s'])} GB/s; "
        f"MBU {units.percent(summary['mbu'])} of {units.digits(hbm['peak_gb_per_s'])} GB/s{_left_out(summary)}"
    )


def _left_out(summary: Summary) -> str:
    """Say what a compiler would not load again, or compute."""
    left_out, parts = summary["left_out"], []
    if left_out["loads"]:
        loads = "1 load" if left_out["loads"] == 1 else f"{left_out['loads']} loads"
        parts.append(f"{loads} of {units.decimal(left_out['read_bytes'], 'B')}")
    if left_out.get("products"):
        parts.append("1 product" if left_out["products"] == 1 else f"{left_out['products']} products")
    return f"; {' and '.join(parts)} left out, on the chip already" if parts else ""


def _roofline(summary: Summary) -> str:
    roof = summary["roofline"]
    intensity = roof["intensity_flop_per_byte"]
    place = "no HBM traffic" if intensity is None else f"{units.digits(intensity)} FLOP/B"
    reached = units.percent(roof["least_ps"] / max(summary["makespan_ps"], 1))
    bandwidth = units.digits(roof["bandwidth_gb_per_s"])
    if not summary["flops"]:
        return (
            f"{place}: no matrix multiplication; the HBM traffic alone, at the {bandwidth} GB/s that DMAs reach, "
            f"needs {reached} of the time"
        )
    ridge = units.digits(roof["ridge_flop_per_byte"])
    return (
        f"{place} (ridge {ridge} at {bandwidth} GB/s): "
        f"{roof['bound']} bound, {units.digits(roof['attainable_tflop_per_s'])} TFLOPS attainable; {reached} reached"
    )


def _limit(summary: Summary) -> str:
    """Say which engine decides the time, or that none does."""
    engines, makespan = summary["engines"], max(summary["makespan_ps"], 1)
    of = f" of core {summary['core']}" * (len(summary["cores"]) > 1)
    dma = [engine["busy_ps"] for name, engine in engines.items() if name.startswith("dma")]
    busy = {name: engine["busy_ps"] for name, engine in engines.items() if not name.startswith("dma")}
    busy["the DMA engines"] = sum(dma) // max(len(dma), 1)
    name, busiest_ps = max(busy.items(), key=lambda row: row[1])
    share = units.percent(busiest_ps / makespan)
    if busiest_ps >= DECISIVE * makespan:
        return f"{name}{of}, busy {share} of the time"
    verb = "are" if name.endswith("s") else "is"  # the DMA engines
    return f"no engine{of}: {name} {verb} busiest, {share}; else instructions wait for one another"


def _space(summary: Summary) -> str:
    parts = (
        f"{label} {units.binary(space['peak_partition_bytes'])} of {units.binary(space['capacity_partition_bytes'])}"
        for label, space in (("SBUF", summary["sbuf"]), ("PSUM", summary["psum"]))
    )
    fullest = " of any core" * (len(summary["cores"]) > 1)
    return f"{', '.join(parts)} per partition at the fullest moment{fullest}"


def _provenance(summary: Summary) -> str:
    """Say on what kind of figures the busy time rests, and on which most."""
    provenance = summary["provenance"]
    shares = [f"{units.percent(share)} {standing}" for standing, share in provenance["standings"].items() if share]
    most = [each["figure"] for each in provenance["figures"][:FIGURES]]
    if not shares:
        return "no engine was busy"
    return f"what busy time rests on: {', '.join(shares)} figures; above all {', '.join(most)}"


def _core(core: CoreSummary, kernel_ps: int) -> Text:
    """Which core the table below is of, and when it ends."""
    share = units.percent(core["makespan_ps"] / max(kernel_ps, 1))
    hbm = core["hbm"]
    moved = units.decimal(hbm["read_bytes"] + hbm["written_bytes"], "B")
    ends = f"ends after {units.time(core['makespan_ps'])}, {share} of the kernel"
    return Text(f"Core {core['core']} {ends}; {core['instructions']} instructions, {moved} through HBM", style="bold")


def _engines(core: CoreSummary | Summary) -> Text:
    """Each engine's account; the DMA engines share a row."""
    engines, makespan = core["engines"], core["makespan_ps"]
    text = Text()
    titles = _SHARES.format("busy", "stalled", "idle")
    text.append(f"{'Engine':9}{_BARS:{BAR}}{titles}mostly waits for\n", style="bold")
    dma = {name: engine for name, engine in engines.items() if name.startswith("dma")}
    for name, engine in accounts.rows(engines).items():
        note = _top(engine, makespan)
        if name not in engines:
            busy = [100 * engine["busy_ps"] / max(makespan, 1) for engine in dma.values()]
            if max(busy) - min(busy) >= 0.1:
                note = f"{note}; " * bool(note) + f"each {min(busy):.1f}–{max(busy):.1f} %"
        bar, *shares = _account(engine, makespan)
        row = Text(f"{name:9}").append_text(bar).append(_SHARES.format(*shares))
        text.append_text(row).append(_last(note, len(row)))
    return text


def _account(engine: EngineSummary, makespan_ps: int) -> tuple[Text, str, str, str]:
    """Bar, busy, stalled, idle."""
    whole = max(makespan_ps, 1)
    busy, idle = engine["busy_ps"] / whole, engine["idle_ps"] / whole
    stalled = sum(engine["stall_ps"].values()) / whole
    full = round(BAR * busy)
    waiting = max(round(BAR * (busy + stalled)) - full, 0)
    bar = Text()
    bar.append("█" * full, style="green")
    bar.append("▒" * waiting, style="yellow")
    bar.append("·" * (BAR - full - waiting), style="dim")
    return bar, units.percent(busy), units.percent(stalled), units.percent(idle)


def _top(engine: EngineSummary, makespan_ps: int) -> str:
    """The reason that costs most, with its share of the makespan; of results, the engine they come from."""
    stalls, whole = engine["stall_ps"], max(makespan_ps, 1)
    reason = max(stalls, key=lambda name: stalls[name], default=None)
    if reason is None or stalls[reason] == 0:
        return ""
    share = units.percent(stalls[reason] / whole)
    if reason in _FINER:
        found = {cause: engine["causes_ps"].get(cause, 0) for cause in _FINER[reason]}
        cause = max(found, key=lambda name: found[name])
        more = f" (most {words(cause).removeprefix('DMA ')})" if found[cause] else ""
        return f"{words(reason)} {share}{more}"
    others = {name: ps for name, ps in engine["waits_for_ps"].items() if name != "dma"}
    if reason != "data_engine" or not others:
        return f"{words(reason)} {share}"
    name = max(others, key=lambda other: others[other])
    part = units.percent(min(others[name], stalls[reason]) / whole)
    return f"results of {name} {share}" if part == share else f"results {share} ({name} {part})"


def _last(text: str, column: int) -> str:
    """Return a row's last column, which begins at ``column`` and goes on below itself where there is no more room."""
    parts = textwrap.wrap(_TIED.sub("\N{NO-BREAK SPACE}", text), WIDTH - column)
    return ("\n" + " " * column).join(parts).replace("\N{NO-BREAK SPACE}", " ") + "\n"


def _how(line: LineSummary) -> str:
    """Say for what a line waited; for data, what the DMA that it waited for longest was doing."""
    longest = max(line["waits"], key=lambda wait: wait["stall_ps"], default=None)
    if line["stall_reason"] == "data_dma" and longest is not None and longest["cause"] in _FINER["data_dma"]:
        return words(longest["cause"])
    return words(line["stall_reason"] or "")


def _path(summary: Summary) -> str:
    """Say which lines have most of the critical path."""
    most = summary["critical_path"][:PATH]
    return ", ".join(f"{units.percent(line['share'])} {line['instruction']} in line {line['line']}" for line in most)


def _lines(summary: Summary) -> Text:
    """The lines that kept their engine busiest, each followed by its source."""
    text = Text()
    layout = "{:<24} {:<17} {:>7} {:<8} {:>7}  {}"
    title = "Lines that cost most" if len(summary["cores"]) == 1 else f"Lines of core {summary['core']}"
    heading = layout.format(title, "instruction", "count", "engine", "busy", "mostly waits for")
    text.append(f"{heading}\n", style="bold")
    dma_engines = sum(name.startswith("dma") for name in summary["engines"])
    for line in summary["lines"][:LINES]:
        place = f"{Path(line['file']).name}:{line['line']}"
        reason = line["stall_reason"]
        width = dma_engines if line["engine"] == "dma" else 1
        waits = f"{words(reason)} {units.time(line['stall_ps'] / width)}" if reason else ""
        producer = line["waits_for"]
        if producer and producer["file"] == line["file"]:
            waits = f"{_how(line)} {units.time(line['stall_ps'] / width)} (line {producer['line']})"
        place, instruction = shortened(place, 24), shortened(line["instruction"], 17)
        share = units.percent(line["share"])
        row = layout.format(place, instruction, line["count"], line["engine"], share, "")
        text.append(row + _last(waits, len(row)))
        if line["source"]:
            text.append(f"    {shortened(line['source'], WIDTH - 4)}\n", style="dim")
    return text
