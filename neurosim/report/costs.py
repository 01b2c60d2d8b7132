"""What each kernel line cost, and which instruction each engine waited for."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neurosim.analysis.loops import enclosing
from neurosim.program import Program
from neurosim.report.places import places, producer_engines, source_of
from neurosim.report.schema import LineSummary, LoopSummary, PlaceSummary, WaitSummary
from neurosim.timing.causes import BUSY, CAUSES, causes, named
from neurosim.timing.timeline import ENGINES, REASONS, Stall, Timeline, held_reasons

Ints = NDArray[np.int64]


_WAITS = 3
"""Waits that a line names at most, the longest first."""


class _Figures(NamedTuple):
    """What an instruction on a line cost on an engine; see ``LineSummary``."""

    records: int
    busy_ps: int
    stalls: Ints
    spent: Ints
    producer: PlaceSummary | None
    waits: list[WaitSummary]


class Costs:
    """The ops of a timeline, added up by place and engine. The DMA engines count as one, ``dma``."""

    def __init__(self, program: Program, timeline: Timeline) -> None:
        ops = timeline.ops
        self._program, self._timeline = program, timeline
        self.causes = causes(program, timeline)
        self._places, place_of_record = places(program)
        self._place_of_record = place_of_record
        self._producer_engines = producer_engines(program, timeline)
        self._engines = [*ENGINES, "dma"]
        unit = ops["unit"].astype(np.int64)
        self._engine = np.minimum(unit, len(ENGINES))
        self._place = place_of_record[ops["record"]]
        # A DMA engine takes what is there; what an engine with instructions waited for is known by record.
        decided = (ops["reason"] != Stall.NONE) & (unit < len(ENGINES)) & (ops["stall_ps"] > 0)
        self._producer = np.where(decided, timeline.waited_for[ops["record"]], -1)

    def waits_for_ps(self) -> dict[str, dict[str, int]]:
        """Return by engine how long it waited for instructions of each engine, longest first."""
        ops = self._timeline.ops
        known = self._producer >= 0
        engine = self._engine[known]
        producer = self._producer_engines[self._producer[known]]
        totals = np.zeros((len(self._engines), len(self._engines)), dtype=np.int64)
        np.add.at(totals, (engine, producer), ops["stall_ps"][known])
        return {
            name: {self._engines[other]: int(row[other]) for other in np.argsort(-row, kind="stable") if row[other]}
            for name, row in zip(self._engines, totals, strict=True)
        }

    def lines(self) -> list[LineSummary]:
        """Return the kernel's lines, by the share of the makespan that their engine worked on them."""
        ops = self._timeline.ops
        keys = self._place * len(self._engines) + self._engine
        groups, index = np.unique(keys, return_inverse=True)
        busy = _sums(index, ops["busy_ps"], len(groups))
        stalls = np.zeros((len(groups), len(Stall)), dtype=np.int64)
        np.add.at(stalls, (index, ops["reason"]), ops["stall_ps"])
        np.add.at(stalls, (index, held_reasons(ops["unit"])), ops["held_ps"])
        counts = self._counts(index, len(groups))
        producers, waits = self._top_producers(index), self._waits(index)
        spent = self.causes.totals(index, len(groups))
        lines = []
        for group, key in enumerate(groups.tolist()):
            found = producers.get(group), waits.get(group, [])
            lines.append(
                self._line(key, _Figures(int(counts[group]), int(busy[group]), stalls[group], spent[group], *found))
            )
        return sorted(lines, key=lambda line: (-line["share"], line["file"], line["line"], line["engine"]))

    def _line(self, key: int, figures: _Figures) -> LineSummary:
        place = self._places[key // len(self._engines)]
        engine = self._engines[key % len(self._engines)]
        width = len(self._timeline.units) - len(ENGINES) if engine == "dma" else 1
        worst = int(figures.stalls.argmax())
        return {
            "file": place.file,
            "line": place.line,
            "function": place.function,
            "source": source_of(place.path or place.file, place.line),
            "instruction": place.instruction,
            "engine": engine,
            "count": figures.records,
            "busy_ps": figures.busy_ps,
            "share": figures.busy_ps / (width * max(self._timeline.makespan_ps, 1)),
            "stall_ps": int(figures.stalls.sum()),
            "stall_reason": REASONS[worst] if figures.stalls[worst] else None,
            "waits_for": figures.producer,
            "causes_ps": named(figures.spent),
            "waits": figures.waits,
        }

    def loops(self) -> list[LoopSummary]:
        """Return the kernel's loops with the time of each engine by cause, those with most instructions first."""
        ops, stacks, width = self._timeline.ops, self._program.stacks, len(self._engines)
        stack_of = np.array(self._program.stack_ids, dtype=np.int64)
        spent = self.causes.totals(stack_of[ops["record"]] * width + self._engine, len(stacks) * width)
        counts = np.bincount(stack_of[self._timeline.records], minlength=len(stacks))
        members: dict[tuple[str, str, int], set[int]] = {}
        for number, stack in enumerate(stacks):
            names = {frame.path: frame.file for frame in stack}
            for path, line, _ in enclosing(stack):
                members.setdefault((path, names[path], line), set()).add(number)
        found: list[LoopSummary] = []
        for (path, file, line), inside in members.items():
            rows = np.array(sorted(inside))
            if not counts[rows].sum():
                continue  # another core's
            engines = spent.reshape(len(stacks), width, -1)[rows].sum(axis=0)
            found.append(
                {
                    "file": file,
                    "line": line,
                    "source": source_of(path or file, line),
                    "count": int(counts[rows].sum()),
                    "engines_ps": {name: named(row) for name, row in zip(self._engines, engines, strict=True)},
                }
            )
        return sorted(found, key=lambda loop: (-loop["count"], loop["file"], loop["line"]))

    def _waits(self, index: Ints) -> dict[int, list[WaitSummary]]:
        """Return, by group, for which causes and instructions it waited longest."""
        parts = self.causes.parts
        parts = parts[~np.isin(parts["cause"], BUSY)]
        producer = parts["waited_for"].astype(np.int64)
        known = np.maximum(producer, 0)
        places = np.where(
            producer >= 0, self._place_of_record[known] * len(self._engines) + self._producer_engines[known], -1
        )
        width = len(self._places) * len(self._engines) + 1
        keys, members = np.unique(
            (index[parts["op"]] * len(CAUSES) + parts["cause"]) * width + places + 1, return_inverse=True
        )
        totals = _sums(members, parts["duration_ps"], len(keys))
        found: dict[int, list[WaitSummary]] = {}
        for row in np.lexsort((keys, -totals)).tolist():
            rest, place = divmod(int(keys[row]), width)
            group, cause = divmod(rest, len(CAUSES))
            longest = found.setdefault(group, [])
            if len(longest) < _WAITS:
                summary = self._producer_summary(place - 1) if place else None
                longest.append({"cause": CAUSES[cause], "stall_ps": int(totals[row]), "place": summary})
        return found

    def _counts(self, index: Ints, groups: int) -> Ints:
        """Return how many records each group has; a record makes several ops."""
        records = self._timeline.ops["record"].astype(np.int64)
        pairs = np.unique(index * (records.max(initial=0) + 1) + records)
        return np.bincount(pairs // (records.max(initial=0) + 1), minlength=groups)

    def _top_producers(self, index: Ints) -> dict[int, PlaceSummary]:
        """Return, by group, the place that it waited for longest."""
        known = self._producer >= 0
        producers = self._producer[known]
        places = self._place_of_record[producers] * len(self._engines) + self._producer_engines[producers]
        width = len(self._places) * len(self._engines)
        keys, members = np.unique(index[known] * width + places, return_inverse=True)
        totals = _sums(members, self._timeline.ops["stall_ps"][known], len(keys))
        best: dict[int, tuple[int, int]] = {}
        for key, total in zip(keys.tolist(), totals.tolist(), strict=True):
            group, place = divmod(key, width)
            if total > best.get(group, (0, 0))[0]:
                best[group] = (total, place)
        return {group: self._producer_summary(place) for group, (_, place) in best.items()}

    def _producer_summary(self, key: int) -> PlaceSummary:
        place = self._places[key // len(self._engines)]
        engine = self._engines[key % len(self._engines)]
        return {
            "file": place.file,
            "line": place.line,
            "instruction": place.instruction,
            "engine": engine,
        }


def _sums(index: Any, values: Any, groups: int) -> Ints:
    """Sum integers by group; exact, where ``bincount`` with weights would go through floats."""
    totals = np.zeros(groups, dtype=np.int64)
    np.add.at(totals, index, values)
    return totals
