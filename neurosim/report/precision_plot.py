"""Errors against float64 as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neurosim.report.picture import new_figure, write_figure
from neurosim.report.screen import shortened

_LEAST = 1e-9
"""Relative errors below are drawn as none."""


def plot(content: Mapping[str, Any], path: str | Path) -> None:
    """Draw what ``Precision.to_dict`` gave: a pair of bars per line, in the order in which lines first ran.

    Args:
        content: what to draw.
        path: a file that ends in .png, .svg or .pdf.

    Raises:
        ConfigurationError: another ending, matplotlib is missing, or the file cannot be written.
    """
    lines = [line for line in content["lines"] if line["born"] != 0.0 or line["inherited"] != 0.0]
    figure = new_figure(10, 1.8 + 0.42 * len(lines))
    axes = figure.add_subplot()
    places = range(len(lines))
    for key, shift, color, label in (
        ("born", -0.2, "#c0392b", "born in the instruction"),
        ("inherited", 0.2, "#95a5a6", "inherited from its operands"),
    ):
        widths = [_drawn(line[key]) for line in lines]
        axes.barh([place + shift for place in places], widths, 0.38, color=color, label=label)
    reached = [(line["reach"], place) for place, line in enumerate(lines) if line["reach"]]
    if reached:
        axes.plot(*zip(*reached, strict=True), "D", color="#2c3e50", markersize=5, label="born here, in the outputs")
    for output in content["outputs"]:
        if output["relative"]:
            axes.axvline(output["relative"], color="#2c3e50", linestyle="--", linewidth=1, label=f"{output['name']}")
    axes.set_yticks(list(places), [_name(line) for line in lines], fontsize=8, family="monospace")
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(left=_LEAST)
    axes.set_xlabel("root mean square of the error, relative to that of the values")
    axes.set_title(f"{content['kernel']} on {content['chip']}: errors against float64", fontsize=10)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    write_figure(figure, path)


def _drawn(error: float | None) -> float:
    return 1.0 if error is None else max(error, _LEAST)


def _name(line: Mapping[str, Any]) -> str:
    place = f"{Path(line['file']).name}:{line['line']}"
    return f"{shortened(place, 24)}  {line['instruction']} → {line['dtype']}"
