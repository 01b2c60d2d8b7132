"""Predicted against measured, both axes logarithmic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from validation.statistics import Held

MARKS = {"trn1": "o", "trn2": "s", "trn3": "^"}
COLOURS = {"A": "#1f5fa8", "B": "#d9822b"}


def plot(held: Sequence[Held], path: Path) -> None:
    """Write the scatter plot; the format is that of the file's name. Bounds (trust C) are left out."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "neurosim"  # the same file from the same figures
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 6), layout="constrained")
    shown = [each for each in held if not each.row.at_most]
    times = [us for each in shown for us in (each.row.measured_us, each.outcome.predicted_us or 0.0)]
    low, high = min(times) / 1.5, max(times) * 1.5
    axes.fill_between(
        (low, high), (low / 1.25, high / 1.25), (low * 1.25, high * 1.25), color="0.92", label="within 25 %"
    )
    axes.plot((low, high), (low, high), color="0.5", linewidth=1)
    for grade, colour in COLOURS.items():
        for chip, mark in MARKS.items():
            points = [each for each in shown if each.row.grade == grade and each.row.chip == chip]
            if points:
                axes.scatter(
                    [each.row.measured_us for each in points],
                    [each.outcome.predicted_us for each in points],
                    marker=mark,
                    s=22,
                    color=colour,
                    alpha=0.75,
                    linewidths=0,
                    label=f"{chip}, trust {grade} ({len(points)})",
                )
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    axes.set(xlabel="measured, µs", ylabel="simulated, µs")
    axes.legend(loc="upper left", frameon=False, fontsize=8)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
