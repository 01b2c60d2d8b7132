"""What limits a kernel, in words: its critical path, what-ifs by their gain, and advice."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from neurosim.report import units
from neurosim.report.schema import AdviceSummary, PathSummary, Summary, WhatIfSummary
from neurosim.report.screen import WIDTH, printed, shortened
from neurosim.report.words import words

PATH_LINES = 8
WHAT_IFS = 12
_CAUSES = 2


def limits(summary: Summary, *, color: bool = False) -> str:
    """Return critical path, what-ifs and advice of a summary that has them; sections that are empty say so."""
    parts = [_path(summary["critical_path"]), _what_ifs(summary["what_ifs"]), _advice(summary["advice"])]
    return printed(parts, color=color)


def answers(found: Sequence[WhatIfSummary], *, color: bool = False) -> str:
    """Return what-ifs that somebody asked, in their order."""
    return printed([_table("What if", found, len(found))], color=color)


def _path(path: Sequence[PathSummary]) -> RenderableType:
    text = Text("Critical path\n", style="bold")
    for line in path[:PATH_LINES]:
        place = f"{Path(line['file']).name}:{line['line']}"
        place, instruction = shortened(place, 26), shortened(line["instruction"], 18)
        share, count = units.percent(line["share"]), line["count"]
        text.append(f"{share:>7}  {place:26} {instruction:18} {count:>6}×  {_reasons(line)}\n")
    rest = sum(line["share"] for line in path[PATH_LINES:])
    if rest:
        text.append(f"{units.percent(rest):>7}  {len(path) - PATH_LINES} other lines\n")
    return text


def _reasons(line: PathSummary) -> str:
    """Say what a line's transfers did on the path; engines work."""
    found = sorted(line["causes_ps"].items(), key=lambda row: -row[1])[:_CAUSES]
    if line["engine"] != "dma":
        return line["engine"]
    whole = max(line["duration_ps"], 1)
    return ", ".join(
        f"{words(cause).removeprefix('DMA ')} {units.percent(line['share'] * ps / whole)}" for cause, ps in found
    )


def _what_ifs(found: Sequence[WhatIfSummary]) -> RenderableType:
    return _table("What if (each timed by itself)", found, WHAT_IFS)


def _table(title: str, found: Sequence[WhatIfSummary], most: int) -> RenderableType:
    text = Text(f"{title}\n", style="bold")
    if not found:
        text.append("  nothing that was asked makes the kernel shorter\n")
    for each in found[:most]:
        gain = units.percent(abs(each["gain_share"]))
        verb = "shorter" if each["gain_ps"] > 0 else "longer" if each["gain_ps"] < 0 else "the same"
        change = f"{gain} {verb}" if each["gain_ps"] else verb
        text.append(f"{change:>15}  {units.time(each['after_ps']):>9}  {shortened(each['text'], WIDTH - 28)}\n")
    return text


def _advice(found: Sequence[AdviceSummary]) -> RenderableType:
    text = Text("Advice\n", style="bold")
    if not found:
        text.append("  no rule has anything to say\n")
    for each in found:
        gained = (each["gain_ps"] or 0) > 0
        gain = f" At most {units.percent(each['gain_share'] or 0)} shorter." if gained else ""
        text.append(textwrap.fill(f"{each['text']}{gain}", WIDTH, initial_indent="• ", subsequent_indent="  ") + "\n")
    return text
