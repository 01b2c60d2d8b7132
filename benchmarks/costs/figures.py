"""Figures beside what they are to be, on the terminal and in a table of a Markdown file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

BEGIN: Final = "<!-- speed: begin (python benchmarks/speed.py --write README.md) -->"
END: Final = "<!-- speed: end -->"


@dataclass(frozen=True)
class Figure:
    """One measured figure.

    Attributes:
        what: it is of.
        value: measured.
        aim: what it is to be at most; None where it is only told.
        unit: of both; empty for a ratio.
    """

    what: str
    value: float
    aim: float | None
    unit: str = ""

    def cells(self) -> tuple[str, str, str]:
        """Return what it is, the value and the aim as text."""
        unit = f" {self.unit}" if self.unit else " ×"
        return self.what, f"{_short(self.value)}{unit}", "" if self.aim is None else f"≤ {self.aim:g}{unit}"


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def show(figures: Sequence[Figure]) -> None:
    """Print the figures, those that miss their aim in bold."""
    table = Table("", "measured", "aim")
    for figure in figures:
        missed = figure.aim is not None and figure.value > figure.aim
        table.add_row(*figure.cells(), style="bold" if missed else "")
    Console().print(table)


def write(path: Path, figures: Sequence[Figure], machine: str) -> None:
    """Replace what stands between the markers of a file by a table of the figures.

    Raises:
        SystemExit: the file has no markers.
    """
    parts = path.read_text(encoding="utf-8").split(BEGIN)
    if len(parts) != 2 or END not in parts[1]:
        raise SystemExit(f"{path}: the lines {BEGIN} and {END} are missing")
    after = parts[1].split(END, 1)[1]
    rows = [f"| {' | '.join(figure.cells())} |" for figure in figures]
    lines = [BEGIN, "", f"| {machine} | measured | aim |", "|---|---:|---:|", *rows, "", END]
    path.write_text(parts[0] + "\n".join(lines) + after, encoding="utf-8")
