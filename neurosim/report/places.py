"""Places in a kernel: instructions on lines, the loops around them, and the source of a line."""

from __future__ import annotations

import linecache
from collections import defaultdict
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from neurosim.program import Program
from neurosim.timing.timeline import ENGINES, Op, Timeline
from neurosim.work import Transfer

Ints = NDArray[np.int64]

_STATEMENT_LINES = 12
"""Lines that a statement may reach over and still be shown whole."""


class Place(NamedTuple):
    """An instruction on the innermost kernel line that issued it."""

    path: str
    file: str
    line: int
    function: str
    instruction: str


def places(program: Program) -> tuple[list[Place], Ints]:
    """Return the distinct places of a program, and the place of each record."""
    stacks = np.array(program.stack_ids, dtype=np.int64)
    signatures = np.array(program.signature_ids, dtype=np.int64)
    width = max(len(program.signatures), 1)
    pairs, index = np.unique(stacks * width + signatures, return_inverse=True)
    ids: defaultdict[Place, int] = defaultdict(lambda: len(ids))
    by_pair = []
    for pair in pairs.tolist():
        frames, instruction = program.stacks[pair // width], program.signatures[pair % width].instruction
        if frames:
            top = frames[0]
            place = Place(top.path, top.file, top.line, top.function, instruction)
        else:
            place = Place("", "?", 0, "", instruction)
        by_pair.append(ids[place])
    return list(ids), np.array(by_pair, dtype=np.int64)[index]


def producer_engines(program: Program, timeline: Timeline) -> Ints:
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
