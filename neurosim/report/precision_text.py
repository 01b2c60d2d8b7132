"""Errors against float64 as one screen of text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.rule import Rule
from rich.text import Text

from neurosim.report.screen import WIDTH, printed, shortened

LINES = 12
"""Lines that are shown; the JSON has all."""


def text(content: Mapping[str, Any], *, color: bool = False) -> str:
    """Return what ``Precision.to_dict`` gave as text. ``color`` adds terminal escapes; the layout stays the same."""
    title = f"{content['kernel']} on {content['chip']}: errors against float64"
    born = sorted((line for line in content["lines"] if _is_born(line)), key=_rank)
    parts: list[RenderableType] = [
        Rule(Text(title, style="bold"), align="left", style="dim"),
        _outputs(content["outputs"]),
        _lines(born[:LINES]) if born else Text("No line rounds anything.\n"),
    ]
    return printed([*parts, Text(_remarks(content["lines"], born), style="dim")], color=color)


def _is_born(line: Mapping[str, Any]) -> bool:
    return bool(line["born"] != 0.0 or line["not_finite"])


def _rank(line: Mapping[str, Any]) -> tuple[float, float]:
    """Numbers that are not finite come first, then what comes to most in the outputs, or else what is born."""
    if line["not_finite"] or line["born"] is None:
        return -float("inf"), 0.0
    return -(line["reach"] or 0.0), -line["born"]


def _outputs(outputs: list[Mapping[str, Any]]) -> Text:
    layout = "{:<24} {:<24} {:>9} {:>10} {:>8}  {}\n"
    text = Text(layout.format("Output", "", "error", "worst ulp", "largest", "at"), style="bold")
    for output in outputs:
        remark = f"; {output['not_finite']} not finite" if output["not_finite"] else ""
        row = layout.format(
            shortened(output["name"], 24),
            shortened(f"{output['dtype']}{list(output['shape'])}", 24),
            relative(output["relative"]),
            ulps(output["max_ulp"]),
            f"{output['max_error']:.2g}",
            f"{list(output['worst'])}{remark}",
        )
        text.append(row, style="not bold")
    return text


def _lines(lines: list[Mapping[str, Any]]) -> Text:
    layout = "{:<24} {:<21} {:<13} {:>9} {:>9} {:>9} {:>9}\n"
    heading = layout.format(
        "Errors are born at", "instruction", "writes", "in output", "born", "worst ulp", "inherited"
    )
    text = Text(heading, style="bold")
    for line in lines:
        remark = f"; {line['not_finite']} not finite" if line["not_finite"] else ""
        row = layout.format(
            shortened(f"{Path(line['file']).name}:{line['line']}", 24),
            shortened(line["instruction"], 21),
            line["dtype"],
            "" if line["reach"] is None else relative(line["reach"]),
            relative(line["born"]),
            ulps(line["born_ulp"]),
            relative(line["inherited"]),
        )
        text.append(row.rstrip("\n") + f"{remark}\n", style="not bold")
        if line["source"]:
            text.append(f"    {shortened(line['source'], WIDTH - 4)}\n", style="not bold dim")
    return text


def _remarks(lines: list[Mapping[str, Any]], born: list[Mapping[str, Any]]) -> str:
    remarks = [
        "Errors are root mean squares, relative to that of the values; the worst ulp is of one value, in",
        "units in the last place of its format. Born: in the instruction; inherited: from its operands; in",
        "output: what the born error comes to there, if nothing else rounds.",
    ]
    if len(born) > LINES:
        remarks.append(f"The JSON has {len(born) - LINES} more lines at which errors are born.")
    if len(born) < len(lines):
        remarks.append(f"{len(lines) - len(born)} of {len(lines)} lines round nothing.")
    blind = [f"{Path(line['file']).name}:{line['line']} {line['instruction']}" for line in lines if line["unshadowed"]]
    if blind:
        more = f" and {len(blind) - 3} more" if len(blind) > 3 else ""
        remarks.append(f"Without a meaning in float64, so taken as exact: {', '.join(blind[:3])}{more}.")
    return "\n".join(remarks)


def relative(error: float | None) -> str:
    """Return a relative error in words: in percent where it is large, else as a power of ten."""
    if error is None:
        return "all of it"
    if error == 0.0:
        return "0"
    return f"{100 * error:.2g} %" if error >= 1e-4 else f"{error:.1e}"


def ulps(error: float | None) -> str:
    """Return a number of units in the last place."""
    if error is None:
        return "∞"
    return f"{error:.2f}" if error < 100 else f"{error:.1e}"
