"""What a sweep found: a row per point, as a table, a file, and a plot."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from neurosim.errors import ConfigurationError
from neurosim.report import units
from neurosim.report.picture import new_figure, write_figure
from neurosim.report.screen import printed
from neurosim.writing import replacing

WIDTH: Final = 160
"""Columns of a table that is not for a terminal."""

FIGURES = {
    "total_ps": "total_ps",
    "makespan_ps": "makespan_ps",
    "mfu": "mfu",
    "mbu": "mbu",
    "achieved_tflop_per_s": "roofline.achieved_tflop_per_s",
    "attainable_tflop_per_s": "roofline.attainable_tflop_per_s",
    "bound": "roofline.bound",
    "read_bytes": "hbm.read_bytes",
    "written_bytes": "hbm.written_bytes",
    "sbuf_peak_partition_bytes": "sbuf.peak_partition_bytes",
    "psum_peak_partition_bytes": "psum.peak_partition_bytes",
    "instructions": "instructions",
}
"""Columns of a row, each with its place in a summary."""


@dataclass(frozen=True)
class Outcome:
    """What came of one point.

    Attributes:
        point: its values by name.
        summary: of the run (see :mod:`neurosim.report.schema`); None where it failed.
        error: the error's name and message; None where it ran.
        warnings: what the run warned of.
    """

    point: dict[str, Any]
    summary: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    warnings: tuple[str, ...] = ()

    def row(self) -> dict[str, Any]:
        """Return values, figures (None of a failed point) and error side by side, with units in the names."""
        row = dict(self.point)
        for name, place in FIGURES.items():
            found: Any = self.summary
            for part in place.split("."):
                found = None if found is None else found[part]
            row[name] = found
        row["error"] = None if self.error is None else f"{self.error['kind']}: {self.error['message']}"
        return row


@dataclass(frozen=True)
class Sweep:
    """The outcomes of a sweep, in the order of the grid.

    Attributes:
        kernel_name: of the kernel.
        names: of the grid.
        outcomes: one per point that has been run.
    """

    kernel_name: str
    names: tuple[str, ...]
    outcomes: tuple[Outcome, ...] = field(repr=False)

    def __len__(self) -> int:
        return len(self.outcomes)

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self.outcomes)

    @property
    def best(self) -> Outcome | None:
        """The point that takes the least time, of equal ones the first; None where all failed."""
        done = [outcome for outcome in self.outcomes if outcome.summary is not None]
        return min(done, key=_total_ps, default=None)

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The points that raised."""
        return tuple(outcome for outcome in self.outcomes if outcome.error is not None)

    def rows(self) -> list[dict[str, Any]]:
        """Return a dict per point, as ``pandas.DataFrame`` takes them: see :meth:`Outcome.row`."""
        return [outcome.row() for outcome in self.outcomes]

    def table(self) -> Table:
        """Return a table for a terminal: the points, their times, and why some failed. ``◀`` marks the fastest."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title_justify="left")
        for name in self.names:
            table.add_column(name)
        for title in ("time", "kernel", "TFLOPS", "MFU", "MBU", "SBUF", "PSUM"):
            table.add_column(title, justify="right")
        table.add_column("bound")
        best = self.best
        for outcome in self.outcomes:
            cells = [str(outcome.point.get(name)) for name in self.names]
            if outcome.summary is None:
                error = outcome.error or {}
                first = str(error.get("message", "")).partition("\n")[0]
                table.add_row(*cells, "failed", *[""] * 6, Text(f"{error.get('kind')}: {first}"), style="red")
                continue
            row = outcome.row()
            table.add_row(
                *cells,
                units.time(row["total_ps"]),
                units.time(row["makespan_ps"]),
                units.digits(row["achieved_tflop_per_s"]),
                units.percent(row["mfu"]),
                units.percent(row["mbu"]),
                units.binary(row["sbuf_peak_partition_bytes"]),
                units.binary(row["psum_peak_partition_bytes"]),
                row["bound"] + (" ◀" if outcome is best else ""),
                style="bold" if outcome is best else "",
            )
        return table

    def __str__(self) -> str:
        return printed([self.table()], color=False, width=WIDTH).rstrip("\n")

    def to_csv(self, path: str | Path) -> None:
        """Write :meth:`rows` as CSV.

        Raises:
            ConfigurationError: the file cannot be written.
        """
        text = io.StringIO()
        writer = csv.DictWriter(text, [*self.names, *FIGURES, "error"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows())
        with replacing(path) as file:
            file.write(text.getvalue().encode())

    def plot(self, path: str | Path | None = None, *, x: str | None = None) -> Any:
        """Draw the time over one name of the grid, with a line for each combination of the others.

        Args:
            path: the .png, .svg or .pdf file to write; None to only return the figure.
            x: the name along the axis; by default the one with most numbers.

        Returns:
            A ``matplotlib.figure.Figure``.

        Raises:
            ConfigurationError: no matplotlib, no such name, no point that ran, or a file that cannot be written.
        """
        along = self._axis(x)
        others = [name for name in self.names if name != along]
        done = [outcome for outcome in self.outcomes if outcome.summary is not None]
        if not done:
            raise ConfigurationError(
                "no point of the sweep ran, so that there is nothing to plot", advice="look at the points' errors first"
            )
        figure = new_figure(8, 5)
        axes = figure.subplots()
        ticks = list(dict.fromkeys(outcome.point[along] for outcome in done))
        numbers = _are_numbers(ticks)
        lines: dict[tuple[str, ...], list[tuple[Any, float]]] = {}
        for outcome in done:
            place = outcome.point[along] if numbers else ticks.index(outcome.point[along])
            line = tuple(f"{name} {outcome.point[name]}" for name in others)
            lines.setdefault(line, []).append((place, _total_ps(outcome) / 10**6))
        for line, places in lines.items():
            axes.plot(*zip(*sorted(places), strict=True), marker="o", label=", ".join(line) or None)
        if numbers and min(ticks) > 0 and max(ticks) >= 8 * min(ticks):
            axes.set_xscale("log", base=2)
        axes.set_xticks(ticks if numbers else range(len(ticks)), [str(tick) for tick in ticks])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel(along)
        axes.set_ylabel("simulated time, launch included [µs]")
        axes.set_title(self.kernel_name)
        axes.grid(visible=True, alpha=0.3)
        if others:
            axes.legend()
        if path is not None:
            write_figure(figure, path)
        return figure

    def _axis(self, x: str | None) -> str:
        if x is not None:
            if x not in self.names:
                raise ConfigurationError(
                    f"the grid has no {x!r}",
                    numbers=(f"it has {', '.join(self.names)}",),
                    advice="plot along one of these",
                )
            return x

        def numbers(name: str) -> int:
            values: Sequence[Any] = [outcome.point[name] for outcome in self.outcomes]
            return len(set(values)) if _are_numbers(values) else 0

        return max(self.names, key=numbers)


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def _total_ps(outcome: Outcome) -> int:
    assert outcome.summary is not None
    total_ps: int = outcome.summary["total_ps"]
    return total_ps
