"""A timeline as columns of bars: what a browser draws, and what it says of each bar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neurosim.program import Program
from neurosim.record.listing import operand_text, place_text
from neurosim.report.queues import queues_of
from neurosim.report.words import words
from neurosim.timing.causes import CAUSES, Causes
from neurosim.timing.timeline import ENGINES, Op, Timeline

Ints = NDArray[np.int64]

LOADS: Final = "load stationary"


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars of a timeline. Arrays are by bar.

    Attributes:
        rows: names of the rows, top to bottom.
        row: index of ``rows``.
        start_ps, end_ps: from when to when.
        text: index of ``texts``: instruction, operands and kernel line.
        waited_ps: how long the unit waited before it.
        cause: for what most of that (a number of ``CAUSES``), -1 for none.
        producer: index of ``texts``: the instruction that it waited for, -1 for none.
        texts: (instruction, operands, kernel line).
        waits: parts of waits of one cause each (row, start_ps, end_ps, cause, producer), by row and start; that a DMA
            engine has nothing to do is none.
    """

    rows: tuple[str, ...]
    row: Ints
    start_ps: Ints
    end_ps: Ints
    text: Ints
    waited_ps: Ints
    cause: Ints
    producer: Ints
    texts: tuple[tuple[str, str, str], ...]
    waits: Ints


def bars(program: Program, found: Causes) -> Bars:
    """Return the bars of one core: its engines, its DMA queues, its DMA engines.

    Args:
        program: the record.
        found: where the time of that core's engines went.
    """
    texts, text_of = _texts(program)
    timeline = found.timeline
    ops = timeline.ops
    queue_names, queues = _queues(program, timeline, text_of)
    first_mover = len(ENGINES) + 1 + len(queue_names)
    unit = ops["unit"].astype(np.int64)
    row = np.where(unit > 0, unit + 1, np.where(ops["kind"] == Op.LOAD_STATIONARY, 1, 0))
    row = np.where(unit < len(ENGINES), row, unit - len(ENGINES) + first_mover)
    is_transfer = ops["kind"] == Op.TRANSFER
    columns = _columns(row, found, text_of)
    queues[0] += len(ENGINES) + 1
    names = ("tensor", LOADS, *ENGINES[1:], *queue_names, *timeline.units[len(ENGINES) :])
    every = np.concatenate([columns[:, ~is_transfer], queues, columns[:, is_transfer]], axis=1)
    row_of, start, end, text, waited, cause, producer = every
    waits = _waits(row, found, text_of, first_mover)
    return Bars(names, row_of, start, end, text, waited, cause, producer, texts, waits)


def _texts(program: Program) -> tuple[tuple[tuple[str, str, str], ...], Ints]:
    """Return the texts, each once, and the text of each record."""
    keys = np.stack([np.array(program.signature_ids, np.int64), np.array(program.stack_ids, np.int64)], axis=1)
    if not len(keys):
        return (), np.zeros(0, np.int64)
    pairs, index = np.unique(keys, axis=0, return_inverse=True)
    texts = []
    for signature_id, stack_id in pairs.tolist():
        signature = program.signatures[signature_id]
        operands = ", ".join(f"{pattern.role} {operand_text(pattern)}" for pattern in signature.patterns)
        texts.append((signature.instruction, operands, place_text(program.stacks[stack_id])))
    return tuple(texts), index.reshape(-1)


def _columns(row: Ints, found: Causes, text_of: Ints) -> Ints:
    ops = found.timeline.ops
    text, producer = (_text(records, text_of) for records in (ops["record"], found.main_waited_for))
    return np.stack([row, ops["start_ps"], ops["end_ps"], text, ops["stall_ps"], found.main, producer])


def _text(records: NDArray[Any], text_of: Ints) -> Ints:
    """Return the texts of records, -1 for none."""
    records = records.astype(np.int64)
    return np.where(records >= 0, text_of[np.maximum(records, 0)], -1) if len(text_of) else records


def _waits(row: Ints, found: Causes, text_of: Ints, first_mover: int) -> Ints:
    """Return the waits of engines with instructions, cut by cause."""
    parts = found.parts[found.parts["start_ps"] >= 0]
    rows = row[parts["op"]]
    parts, rows = parts[rows < first_mover], rows[rows < first_mover]
    end = parts["start_ps"] + parts["duration_ps"]
    producer = _text(parts["waited_for"], text_of)
    columns = np.stack([rows, parts["start_ps"], end, parts["cause"].astype(np.int64), producer])
    return columns[:, np.lexsort((parts["start_ps"], rows))]


def _queues(program: Program, timeline: Timeline, text_of: Ints) -> tuple[list[str], Ints]:
    """Return names, and a bar per DMA from its trigger to its completion."""
    names, numbers = queues_of(program, timeline)
    records = timeline.records
    if not names:
        return [], np.zeros((7, 0), np.int64)
    row = numbers[records]
    records, row = records[row >= 0], row[row >= 0]
    zeros = np.zeros(len(records), np.int64)
    start, end = timeline.start_ps[records], timeline.complete_ps[records]
    return names, np.stack([row, start, end, text_of[records], zeros, zeros - 1, zeros - 1])


def cause_names() -> tuple[str, ...]:
    """Return the causes in words, by number."""
    return tuple(words(name) for name in CAUSES)
