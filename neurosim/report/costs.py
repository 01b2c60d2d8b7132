"""What each kernel line cost, and which instruction each engine waited for."""

from __future__ import annotations

import linecache
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neurosim.program import Program
from neurosim.report.schema import LineSummary, PlaceSummary
from neurosim.timing.timeline import ENGINES, REASONS, Op, Stall, Timeline, held_reasons
from neurosim.work import Transfer

Ints = NDArray[np.int64]

_STATEMENT_LINES = 12
"""Lines that a statement may reach over and still be shown whole."""


class _Place(NamedTuple):
    """An instruction on the innermost kernel line that issued it."""

    path: str
    file: str
    line: int
    function: str
    instruction: str


class Costs:
    """The ops of a timeline, added up by place and engine. The DMA engines count as one, ``dma``."""

    def __init__(self, program: Program, timeline: Timeline) -> None:
        ops = timeline.ops
        self._timeline = timeline
        self._places, place_of_record = _places(program)
        self._place_of_record = place_of_record
        self._producer_engines = _producer_engines(program, timeline)
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
        producers = self._top_producers(index)
        lines = [
            self._line(key, int(counts[group]), int(busy[group]), stalls[group], producers.get(group))
            for group, key in enumerate(groups.tolist())
        ]
        return sorted(lines, key=lambda line: (-line["share"], line["file"], line["line"], line["engine"]))

    def _line(self, key: int, count: int, busy_ps: int, stalls: Ints, producer: PlaceSummary | None) -> LineSummary:
        place = self._places[key // len(self._engines)]
        engine = self._engines[key % len(self._engines)]
        width = len(self._timeline.units) - len(ENGINES) if engine == "dma" else 1
        worst = int(stalls.argmax())
        return {
            "file": place.file,
            "line": place.line,
            "function": place.function,
            "source": source_of(place.path or place.file, place.line),
            "instruction": place.instruction,
            "engine": engine,
            "count": count,
            "busy_ps": busy_ps,
            "share": busy_ps / (width * max(self._timeline.makespan_ps, 1)),
            "stall_ps": int(stalls.sum()),
            "stall_reason": REASONS[worst] if stalls[worst] else None,
            "waits_for": producer,
        }

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
        keys = np.stack([index[known], places], axis=1)
        pairs, members = np.unique(keys, axis=0, return_inverse=True)
        totals = _sums(members.reshape(-1), self._timeline.ops["stall_ps"][known], len(pairs))
        best: dict[int, tuple[int, int]] = {}
        for (group, place), total in zip(pairs.tolist(), totals.tolist(), strict=True):
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


def _places(program: Program) -> tuple[list[_Place], Ints]:
    """Return the distinct places of a program, and the place of each record."""
    stacks = np.array(program.stack_ids, dtype=np.int64)
    signatures = np.array(program.signature_ids, dtype=np.int64)
    width = max(len(program.signatures), 1)
    pairs, index = np.unique(stacks * width + signatures, return_inverse=True)
    ids: defaultdict[_Place, int] = defaultdict(lambda: len(ids))
    by_pair = []
    for pair in pairs.tolist():
        frames, instruction = program.stacks[pair // width], program.signatures[pair % width].instruction
        if frames:
            top = frames[0]
            place = _Place(top.path, top.file, top.line, top.function, instruction)
        else:
            place = _Place("", "?", 0, "", instruction)
        by_pair.append(ids[place])
    return list(ids), np.array(by_pair, dtype=np.int64)[index]


def _producer_engines(program: Program, timeline: Timeline) -> Ints:
    """Return, by record, where its result comes from: the engine that it was timed on, or the DMA engines."""
    by_signature = [
        len(ENGINES)
        if any(isinstance(work, Transfer) for work in signature.work)
        else ENGINES.index(signature.engine.name)
        for signature in program.signatures
    ]
    engines = np.array(by_signature, dtype=np.int64)[np.array(program.signature_ids, dtype=np.int64)]
    issued = timeline.ops[timeline.ops["kind"] == Op.INSTRUCTION]
    engines[issued["record"]] = issued["unit"]
    return engines


def _sums(index: Any, values: Any, groups: int) -> Ints:
    """Sum integers by group; exact, where ``bincount`` with weights would go through floats."""
    totals = np.zeros(groups, dtype=np.int64)
    np.add.at(totals, index, values)
    return totals


def source_of(path: str, line: int) -> str:
    """Return a kernel line, with the lines that its brackets reach over, as one line of text."""
    parts: list[str] = []
    opened = 0
    for number in range(line, line + _STATEMENT_LINES):
        part = linecache.getline(path, number).strip()
        parts.append(part)
        opened += sum(map(part.count, "([{")) - sum(map(part.count, ")]}"))
        if opened <= 0:
            break
    return " ".join(parts).replace("( ", "(").replace(", )", ")").strip()
