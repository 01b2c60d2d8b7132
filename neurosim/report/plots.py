"""Plots of a run by matplotlib: its timeline, its engines' time, its place under the roof, its memories over time.

Each returns a figure, which a notebook shows, and writes a file where a path is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from neurosim.chip import Chip, psum_bytes
from neurosim.engines import Memory
from neurosim.errors import ConfigurationError
from neurosim.report import accounts
from neurosim.report.colors import CAUSE_COLORS, CAUSES_IN_ORDER, UNIT_COLORS, WAIT
from neurosim.report.occupancy import usage
from neurosim.report.picture import new_figure, write_figure
from neurosim.report.schema import Summary
from neurosim.report.units import digits
from neurosim.report.words import words
from neurosim.timing.timeline import Op, Timeline

Ints = NDArray[np.int64]

PIXELS: Final = 2000
"""Gaps of less than this part of the time that is shown are not drawn."""


def plot_timeline(
    timeline: Timeline, path: str | Path | None = None, *, first_ps: int = 0, last_ps: int | None = None
) -> Any:
    """Draw when each engine worked: a row per engine, loads of weights in a lighter tone.

    Args:
        timeline: of one core.
        path: the .png, .svg or .pdf file to write; None to only return the figure.
        first_ps, last_ps: the time to show; by default all of it.

    Returns:
        A ``matplotlib.figure.Figure``.

    Raises:
        ConfigurationError: matplotlib is not installed, no such time, or the file cannot be written.
    """
    last_ps = max(timeline.makespan_ps, 1) if last_ps is None else last_ps
    if not all(isinstance(time_ps, Integral) for time_ps in (first_ps, last_ps)) or not 0 <= first_ps < last_ps:
        raise ConfigurationError(
            f"plot: there is no time from {first_ps!r} to {last_ps!r} ps",
            advice=f"name a part of the {timeline.makespan_ps} ps, the earlier end first",
        )
    figure = new_figure(11, 1.2 + 0.22 * len(timeline.units))
    axes = figure.subplots()
    for row, name in enumerate(timeline.units):
        ops = timeline.ops[timeline.ops["unit"] == row]
        ops = ops[(ops["end_ps"] > first_ps) & (ops["start_ps"] < last_ps)]
        loads = ops["kind"] == Op.LOAD_STATIONARY
        for those, tone in ((ops[loads], UNIT_COLORS["load stationary"]), (ops[~loads], _color(name))):
            bars = _joined(those["start_ps"], those["end_ps"], (last_ps - first_ps) / PIXELS)
            axes.broken_barh(bars, (row - 0.4, 0.8), facecolors=tone, linewidth=0)
    axes.set_yticks(range(len(timeline.units)), timeline.units, fontsize=8)
    axes.set_ylim(len(timeline.units) - 0.5, -0.5)
    axes.set_xlim(first_ps / 1e6, last_ps / 1e6)
    axes.set_xlabel("time [µs]")
    axes.set_title(f"core {timeline.core} on {timeline.chip.name}: simulated, not measured", fontsize=10)
    axes.grid(visible=True, axis="x", alpha=0.3)
    return _finished(figure, path)


def _color(unit: str) -> str:
    return UNIT_COLORS["dma" if unit.startswith("dma") else unit]


def _joined(start_ps: Ints, end_ps: Ints, gap_ps: float) -> list[tuple[float, float]]:
    """Return (start, length) in microseconds of bars in order of their start, those without a gap between as one."""
    if not len(start_ps):
        return []
    reached = np.maximum.accumulate(end_ps)
    begins = np.append(0, 1 + np.flatnonzero(start_ps[1:] > reached[:-1] + gap_ps))
    ends = reached[np.append(begins[1:], len(start_ps)) - 1]
    return list(zip((start_ps[begins] / 1e6).tolist(), ((ends - start_ps[begins]) / 1e6).tolist(), strict=True))


def plot_engines(content: Mapping[str, Any], path: str | Path | None = None) -> Any:
    """Draw where each engine's time went, by cause; the DMA engines are one bar, their mean.

    Args:
        content: a summary.
        path: the .png, .svg or .pdf file to write; None to only return the figure.

    Raises:
        ConfigurationError: matplotlib is not installed, or the file cannot be written.
    """
    summary = cast("Summary", content)
    engines = accounts.rows(summary["engines"])
    figure = new_figure(10, 1.4 + 0.4 * len(engines))
    axes = figure.subplots()
    reached = np.zeros(len(engines))
    for cause in CAUSES_IN_ORDER:
        shares = np.array([engine["causes_ps"].get(cause, 0) for engine in engines.values()])
        shares = 100 * shares / max(summary["makespan_ps"], 1)
        if shares.any():
            axes.barh(range(len(engines)), shares, 0.75, reached, color=CAUSE_COLORS[cause], label=words(cause))
            reached = reached + shares
    axes.set_yticks(range(len(engines)), list(engines), fontsize=9)
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of the kernel's time [%]")
    axes.set_title(_title(summary), fontsize=10)
    if axes.patches:
        figure.legend(loc="outside lower center", ncols=4, fontsize=8)
    return _finished(figure, path)


def plot_roofline(content: Mapping[str, Any], path: str | Path | None = None) -> Any:
    """Draw the roof that HBM and the tensor engine leave for this kernel, and the kernel under it.

    Args:
        content: a summary.
        path: the .png, .svg or .pdf file to write; None to only return the figure.

    Raises:
        ConfigurationError: matplotlib is not installed, or the file cannot be written.
    """
    summary = cast("Summary", content)
    roof = summary["roofline"]
    ridge, peak, bandwidth = roof["ridge_flop_per_byte"], roof["peak_tflop_per_s"], roof["bandwidth_gb_per_s"]
    intensity, achieved = roof["intensity_flop_per_byte"] or 0.0, roof["achieved_tflop_per_s"]
    figure = new_figure(7, 4.5)
    axes = figure.subplots()
    low, high = min(ridge, intensity or ridge) / 10, 10 * max(ridge, intensity)
    axes.plot([low, ridge, high], [low * bandwidth / 1000, peak, peak], color="#555555")
    axes.annotate(f"{digits(bandwidth)} GB/s", (low * 1.3, low * 1.3 * bandwidth / 1000), fontsize=8, va="top")
    axes.annotate(f"{digits(peak)} TFLOP/s", (ridge, peak), fontsize=8, va="bottom")
    if intensity > 0 and achieved > 0:
        label = f"{summary['kernel']}: {digits(achieved)} TFLOP/s at {digits(intensity)} FLOP/byte"
        axes.plot([intensity], [achieved], "o", color=WAIT, label=label)
        axes.legend(loc="lower right", fontsize=8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("intensity [FLOP per byte of HBM traffic]")
    axes.set_ylabel("TFLOP/s")
    axes.set_title(_title(summary), fontsize=10)
    axes.grid(visible=True, which="both", alpha=0.2)
    return _finished(figure, path)


def plot_memory(timeline: Timeline, chip: Chip, path: str | Path | None = None) -> Any:
    """Draw how much of SBUF and PSUM was in use over time, against what there is.

    Args:
        timeline: of one core.
        chip: what was timed.
        path: the .png, .svg or .pdf file to write; None to only return the figure.

    Raises:
        ConfigurationError: matplotlib is not installed, or the file cannot be written.
    """
    figure = new_figure(10, 5)
    for axes, memory, limit_bytes in zip(
        figure.subplots(2, 1, sharex=True),
        (Memory.sbuf, Memory.psum),
        (chip.sbuf.partition_bytes, psum_bytes(chip)),
        strict=True,
    ):
        moments, used = usage(timeline, memory)
        times = np.concatenate([[0], moments, [timeline.makespan_ps]]) / 1e6
        kib = np.concatenate([[0], used, [0]]) / 1024
        axes.fill_between(times, kib, step="post", color=UNIT_COLORS["tensor"], alpha=0.5, linewidth=0)
        axes.axhline(limit_bytes / 1024, color=WAIT, linestyle="--", linewidth=1, label="capacity")
        axes.set_ylabel(f"{memory.label} [KiB of each partition]", fontsize=9)
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper right", fontsize=8)
    axes.set_xlabel("time [µs]")
    axes.set_xlim(0, max(timeline.makespan_ps, 1) / 1e6)
    figure.suptitle(f"core {timeline.core} on {chip.name}: simulated, not measured", fontsize=10)
    return _finished(figure, path)


def _title(summary: Summary) -> str:
    return f"{summary['kernel']} on {summary['chip']}: simulated, not measured"


def _finished(figure: Any, path: str | Path | None) -> Any:
    if path is not None:
        write_figure(figure, path)
    return figure
