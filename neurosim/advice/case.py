"""What rules of advice look at: a program on its critical core, added up by engine, kernel line and signature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neurosim.program import Program, Signature
from neurosim.report import units
from neurosim.report.places import Place, places
from neurosim.timing.causes import NUMBERS, Causes, causes
from neurosim.timing.critical import CriticalPath, critical_path
from neurosim.timing.timeline import ENGINES, Op, Timeline

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

SIGNIFICANT: Final = 0.05
"""Share of the makespan from which on something is worth a word: a change of the kernel costs more than it gains
where a twentieth of the time is all that there is to be had."""

_PLACES: Final = 3
_NAMES: Final = {"tensor": "The tensor engine", "gpsimd": "GpSimd", "dma": "A DMA engine"}


@dataclass(frozen=True, repr=False)
class Advice:
    """One thing that a kernel could do better.

    Attributes:
        rule: which rule found it.
        text: what is so, with its figures, and what to do.
        figures: the figures that triggered the rule, by name, with units in the names.
        threshold: what they were held against, and why that.
        places: the lines that it is about, those with most time first.
        changes: the what-if that says what there is to be had, as :func:`neurosim.timing.what_if.what_if` takes it.
        gain_ps: what that gains at most, from timing the record again; None where it was not asked.
    """

    rule: str
    text: str
    figures: Mapping[str, float | int | str]
    threshold: str
    places: tuple[Place, ...]
    changes: Mapping[str, Any] = field(default_factory=dict)
    gain_ps: int | None = None

    def __str__(self) -> str:
        return self.text if self.gain_ps is None else f"{self.text} At most {units.time(self.gain_ps)} shorter."

    def __repr__(self) -> str:
        return f"Advice({self.rule}: {self})"


class Case:
    """A run of a program, on the core that ends last.

    Attributes:
        program, timeline: what ran, and when on that core.
        makespan_ps: of that core, and so of the kernel.
        place_of_record: the number of each record's line and instruction.
    """

    def __init__(self, program: Program, timelines: Mapping[int, Timeline]) -> None:
        self.program, self._timelines = program, timelines
        self.timeline = timeline = max(timelines.values(), key=lambda each: each.makespan_ps)
        self.makespan_ps = max(timeline.makespan_ps, 1)
        self._places, self.place_of_record = places(program)
        self.signature_ids: Ints = np.array(program.signature_ids, dtype=np.int64)

    @cached_property
    def path(self) -> CriticalPath:
        """The critical path, through all cores."""
        return critical_path(self.program, self._timelines)

    @cached_property
    def causes(self) -> Causes:
        """All time by cause."""
        return causes(self.program, self.timeline)

    @cached_property
    def by_engine(self) -> dict[str, dict[str, int]]:
        """The time of each engine by cause."""
        return self.causes.by_engine()

    def spent_ps(self, engine: str, cause: str) -> int:
        """Return how long an engine spent on a cause; of the DMA engines (``dma``), the mean."""
        if engine != "dma":
            return self.by_engine[engine].get(cause, 0)
        movers = self.timeline.units[len(ENGINES) :]
        return sum(self.by_engine[name].get(cause, 0) for name in movers) // max(len(movers), 1)

    def share(self, ps: float) -> float:
        """Return a time as a share of the makespan."""
        return ps / self.makespan_ps

    def percent(self, ps: float) -> str:
        """Return a time as a share of the makespan, in words."""
        return units.percent(self.share(ps))

    def records(self, chosen: list[bool]) -> Ints:
        """Return this core's records whose signatures are chosen."""
        mine = self.timeline.records
        return mine[np.array(chosen, dtype=bool)[self.signature_ids[mine]]] if len(mine) else mine

    def chosen(self, of: Any) -> list[bool]:
        """Return, by signature, what a function says of it."""
        return [bool(of(signature)) for signature in self.program.signatures]

    def ops_of(self, records: Ints) -> Bools:
        """Return which ops belong to some records."""
        wanted = np.zeros(len(self.program), dtype=bool)
        wanted[records] = True
        found: Bools = wanted[self.timeline.ops["record"]]
        return found

    def busy_ps(self, ops: Bools) -> int:
        """Return the busy time of some ops; that of DMA engines is spread over all of them."""
        columns = self.timeline.ops
        moving = columns["kind"] == Op.TRANSFER
        own = int(columns["busy_ps"][ops & ~moving].sum())
        return own + int(columns["busy_ps"][ops & moving].sum()) // max(len(self.timeline.units) - len(ENGINES), 1)

    def spent_on(self, cause: str, ops: Bools) -> int:
        """Return how much of a cause's time is in some ops; that of DMA engines is spread over all of them."""
        parts = self.parts(cause, ops)
        moving = self.timeline.ops["kind"][parts["op"]] == Op.TRANSFER
        own = int(parts["duration_ps"][~moving].sum())
        return own + int(parts["duration_ps"][moving].sum()) // max(len(self.timeline.units) - len(ENGINES), 1)

    def unit(self, name: str) -> Bools:
        """Return which ops are an engine's; those of all DMA engines are of ``dma``."""
        units = self.timeline.ops["unit"]
        found: Bools = units >= len(ENGINES) if name == "dma" else units == ENGINES.index(name)
        return found

    def lines(self, ops: Bools) -> dict[Place, Bools]:
        """Return ops by the line and instruction that they belong to, those that are busy longest first."""
        place = self.place_of_record[self.timeline.ops["record"]] if len(self.timeline.ops) else np.zeros(0, np.int64)
        found = {self._places[number]: ops & (place == number) for number in np.unique(place[ops]).tolist()}
        return dict(sorted(found.items(), key=lambda row: (-self.busy_ps(row[1]), row[0])))

    def places(self, ops: Bools) -> tuple[Place, ...]:
        """Return the lines on which some ops spend most."""
        return tuple(list(self.lines(ops))[:_PLACES])

    def parts(self, cause: str, ops: Bools | None = None) -> NDArray[Any]:
        """Return the parts of time of a cause, of some ops or of all."""
        parts = self.causes.parts
        wanted = parts["cause"] == NUMBERS[cause]
        found: NDArray[Any] = parts[wanted if ops is None else wanted & ops[parts["op"]]]
        return found

    def waiting(self, cause: str, engine: str) -> tuple[int, tuple[Place, ...]]:
        """Return how long an engine waited for a cause, and the lines that waited longest."""
        parts = self.parts(cause, self.unit(engine))
        place = self.place_of_record[self.timeline.ops["record"][parts["op"]]]
        totals = np.zeros(len(self._places), dtype=np.int64)
        np.add.at(totals, place, parts["duration_ps"])
        order = [number for number in np.argsort(-totals, kind="stable").tolist() if totals[number]]
        return int(totals.sum()), tuple(self._places[number] for number in order[:_PLACES])

    def signature(self, record: int) -> Signature:
        """Return the signature of a record."""
        return self.program.signatures[self.program.signature_ids[record]]


def where(found: tuple[Place, ...]) -> str:
    """Return lines as people say them."""
    names = list(dict.fromkeys(f"{place.file.rpartition('/')[2]}:{place.line}" for place in found))
    return ", ".join(names)


def called(engine: str) -> str:
    """Return an engine's name at the begin of a sentence."""
    return _NAMES.get(engine, engine.capitalize())
