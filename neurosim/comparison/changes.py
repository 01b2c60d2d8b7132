"""What moved between two runs, as figures: engine by engine, cause by cause, line by line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

from neurosim.comparison.alignment import Place, aligned, places
from neurosim.report.schema import EngineSummary, LineSummary, Summary

SCHEMA: Final = "neurosim.diff/1"
"""Changes when a field of :meth:`Diff.to_dict` changes its meaning or disappears."""

DMA: Final = "dma"
"""All DMA engines as one, whose time is their mean."""


@dataclass(frozen=True)
class Side:
    """One of both runs.

    Attributes:
        summary: its summary.
        lines: what its lines cost; of a summary that was read from a file, those that it holds.
        is_whole: whether these are all lines.
        given: arguments of the kernel that one run was given apart from the other, by name.
    """

    summary: Summary
    lines: Sequence[LineSummary]
    is_whole: bool
    given: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Kernel and chip."""
        return f"{self.summary['kernel']} on {self.summary['chip']}"

    @cached_property
    def engines(self) -> dict[str, dict[str, float]]:
        """Time of each engine by cause, in picoseconds, that of the DMA engines their mean: the makespan each."""
        every = self.summary["engines"]
        movers = [account for name, account in every.items() if name.startswith(DMA)]
        found = {
            name: {cause: float(ps) for cause, ps in account["causes_ps"].items()}
            for name, account in every.items()
            if not name.startswith(DMA)
        }
        return {**found, DMA: _mean(movers)} if movers else found

    @property
    def movers(self) -> int:
        """How many DMA engines there are."""
        return max(sum(name.startswith(DMA) for name in self.summary["engines"]), 1)


def _mean(accounts: Sequence[EngineSummary]) -> dict[str, float]:
    total: dict[str, float] = {}
    for account in accounts:
        for cause, ps in account["causes_ps"].items():
            total[cause] = total.get(cause, 0.0) + ps
    return {cause: ps / len(accounts) for cause, ps in total.items()}


class LineChange(NamedTuple):
    """One instruction on one kernel line, on one engine, in both runs.

    Attributes:
        engine: the engine; ``dma`` for all DMA engines, whose times are their mean.
        a, b: where it stands in either run; None where it does not.
        a_count, b_count: how many instructions.
        a_busy_ps, b_busy_ps: the engine's own work on it.
        a_stall_ps, b_stall_ps: what the engine waited just before and within it.
        causes_ps: B less A by cause, busy and stalled; they add up to :attr:`change_ps`.
    """

    engine: str
    a: Place | None
    b: Place | None
    a_count: int
    b_count: int
    a_busy_ps: float
    b_busy_ps: float
    a_stall_ps: float
    b_stall_ps: float
    causes_ps: dict[str, float]

    @property
    def change_ps(self) -> float:
        """B's time less A's, busy and stalled."""
        return self.b_busy_ps + self.b_stall_ps - self.a_busy_ps - self.a_stall_ps

    @property
    def instruction(self) -> str:
        """The instruction."""
        found = self.b or self.a
        return found.instruction if found else ""

    def costs(self) -> tuple[LineSummary | None, LineSummary | None]:
        """Return what either run's summary says of it."""
        return tuple(place.engines.get(self.engine) if place else None for place in (self.a, self.b))  # type: ignore[return-value]


class Setup(NamedTuple):
    """Something that both runs were given and that is not the same."""

    name: str
    a: str
    b: str


@dataclass(frozen=True)
class Diff:
    """Run B against run A.

    Attributes:
        a, b: the runs.
    """

    a: Side
    b: Side

    @property
    def change_ps(self) -> int:
        """B's makespan less A's."""
        return self.b.summary["makespan_ps"] - self.a.summary["makespan_ps"]

    @cached_property
    def setup(self) -> list[Setup]:
        """What the runs were given and is not the same."""
        rows = [Setup(name, text(self.a.summary), text(self.b.summary)) for name, text in _SETUP.items()]
        names = dict.fromkeys((*self.a.given, *self.b.given))
        rows += [Setup(name, self.a.given.get(name, "default"), self.b.given.get(name, "default")) for name in names]
        return [row for row in rows if row.a != row.b]

    @cached_property
    def engines(self) -> dict[str, dict[str, float]]:
        """By engine, B's time less A's by cause: it adds up to :attr:`change_ps` on each, causes without change out."""
        names = dict.fromkeys((*self.a.engines, *self.b.engines))
        return {name: _less(self.a.engines.get(name, {}), self.b.engines.get(name, {})) for name in names}

    @cached_property
    def lines(self) -> list[LineChange]:
        """Every line on every engine, those that moved most first."""
        pairs = aligned(places(self.a.lines), places(self.b.lines))
        rows = [
            self._line(engine, one, other)
            for one, other in pairs
            for engine in dict.fromkeys((*(one.engines if one else ()), *(other.engines if other else ())))
        ]
        return sorted(rows, key=lambda row: -abs(row.change_ps))

    def _line(self, engine: str, a: Place | None, b: Place | None) -> LineChange:
        figures: list[tuple[int, float, float, dict[str, float]]] = []
        for side, place in ((self.a, a), (self.b, b)):
            width = side.movers if engine == DMA else 1
            cost = place.engines.get(engine) if place else None
            if cost is None:
                figures.append((0, 0.0, 0.0, {}))
                continue
            causes = {cause: ps / width for cause, ps in cost["causes_ps"].items()}
            figures.append((cost["count"], cost["busy_ps"] / width, cost["stall_ps"] / width, causes))
        (a_count, a_busy, a_stall, a_causes), (b_count, b_busy, b_stall, b_causes) = figures
        causes_ps = _less(a_causes, b_causes)
        return LineChange(engine, a, b, a_count, b_count, a_busy, b_busy, a_stall, b_stall, causes_ps)

    @cached_property
    def busiest(self) -> str:
        """The engine that was busiest in the slower run: whose time says best what changed."""
        slower = max((self.a, self.b), key=lambda side: side.summary["makespan_ps"])
        accounts = slower.summary["engines"]
        busy = {name: account["busy_ps"] for name, account in accounts.items() if not name.startswith(DMA)}
        movers = [account["busy_ps"] for name, account in accounts.items() if name.startswith(DMA)]
        if movers:
            busy[DMA] = sum(movers) // len(movers)
        return max(busy, key=lambda name: busy[name])

    def text(self, *, color: bool = False) -> str:
        """Return it as a screen of text."""
        from neurosim.comparison.text import text

        return text(self, color=color)

    def __str__(self) -> str:
        return self.text().rstrip("\n")

    def html(self, path: str | Path) -> None:
        """Write it as a page that needs no network.

        Raises:
            ConfigurationError: jinja2 is not installed, or the file cannot be written.
        """
        from neurosim.comparison.page import write_page

        write_page(path, self)

    def _repr_html_(self) -> str:
        from neurosim.comparison.page import fragment

        return fragment(self)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data that ``json.dumps`` takes, units in the names."""
        return {
            "schema": SCHEMA,
            "a": dict(self.a.summary),
            "b": dict(self.b.summary),
            "setup": [row._asdict() for row in self.setup],
            "change_ps": self.change_ps,
            "engines_ps": self.engines,
            "lines": [_plain(row) for row in self.lines],
        }


def _plain(row: LineChange) -> dict[str, Any]:
    sides = {
        name: place and {"file": place.file, "line": place.line, "source": place.source}
        for name, place in (("a", row.a), ("b", row.b))
    }
    figures = {name: value for name, value in row._asdict().items() if name not in ("a", "b")}
    return {"instruction": row.instruction, **figures, "change_ps": row.change_ps, **sides}


def _less(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
    """Return B less A, largest change first, without what did not change."""
    change = {cause: b.get(cause, 0.0) - a.get(cause, 0.0) for cause in dict.fromkeys((*a, *b))}
    return {cause: ps for cause, ps in sorted(change.items(), key=lambda item: -abs(item[1])) if ps}


def _tensors(summary: Summary) -> str:
    return ", ".join(f"{each['name']} {each['dtype']}{each['shape']}" for each in summary["tensors"])


_SETUP: Final[dict[str, Any]] = {
    "kernel": lambda summary: summary["kernel"],
    "chip": lambda summary: summary["chip"],
    "chip's figures": lambda summary: _changed(summary),
    "cores": lambda summary: str(len(summary["cores"])),
    "schedule": lambda summary: summary["schedule"],
    "throttle": lambda summary: "on" if summary["throttle"] else "off",
    "NKI": lambda summary: summary["nki_version"],
    "tensors": _tensors,
    "neurosim": lambda summary: summary["neurosim"],
}


def _changed(summary: Summary) -> str:
    """Return which figures of the chip are not its own, as the summary's note says."""
    _, found, figures = summary["notes"].get("Chip", "").rpartition(f"{summary['chip']} changed: ")
    return figures if found else "its own"
