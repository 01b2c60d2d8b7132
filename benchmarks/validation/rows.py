"""Measured rows: what was timed on a chip, where it was published, and how trustworthy that is."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROWS = Path(__file__).parents[1] / "measured_rows.toml"
HELD_OUT = ROWS.with_name("held_out_rows.toml")
"""Rows that no figure was ever fitted to, and none may be."""

LIMITS = {"A": 0.15, "B": 0.25}
"""Median error that the model is to reach, by trust; A- counts as A."""


@dataclass(frozen=True)
class Call:
    """One launch of a kernel.

    Attributes:
        function: its name.
        arguments: by parameter, ``SHAPE:DTYPE`` for an array, else a value.
        file: of one of our own kernels, the file in ``kernels/``; empty for a public one.
    """

    function: str
    arguments: dict[str, Any]
    file: str = ""


@dataclass(frozen=True)
class Row:
    """A row of ``measured_rows.toml``, which says what each field means."""

    id: str
    family: str
    chip: str
    kernel: str
    shape: str
    repository: str
    path: str
    blob: str
    dialect: str
    calls: tuple[Call, ...]
    measured_us: float
    launch: bool
    bound: tuple[str, ...]
    trust: str
    published: str
    source: str
    commit: str
    extract: dict[str, Any] = field(default_factory=dict)
    patches: tuple[tuple[str, str], ...] = ()
    grid: tuple[int, ...] = ()
    own: tuple[Call, ...] = ()
    at_most: bool = False
    busy_percent: dict[str, float] = field(default_factory=dict)
    static_rings: bool = False
    spills: bool = False
    not_runnable: str = ""
    note: str = ""

    @property
    def grade(self) -> str:
        """The trust without its minus: A, B or C."""
        return self.trust[0]

    @property
    def bound_class(self) -> str:
        """The group that the row is counted in: an engine, ``latency``, or ``mixed``."""
        return self.bound[0] if len(self.bound) == 1 else "mixed"


def load_rows(path: Path = ROWS) -> list[Row]:
    """Return all rows, in the order of the file."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    return [_row(dict(entry), data["commits"]) for entry in data["row"]]


def _row(entry: dict[str, Any], commits: dict[str, str]) -> Row:
    for name in ("calls", "own"):
        entry[name] = tuple(Call(**call) for call in entry.get(name, ()))
    for name in ("bound", "grid", "patches"):
        entry[name] = tuplify(entry.get(name, ()))
    return Row(**{"commit": commits[entry["repository"]], **entry})


def tuplify(value: Any) -> Any:
    """Return lists as tuples, at every depth."""
    return tuple(map(tuplify, value)) if isinstance(value, list | tuple) else value
