"""A timeline as columns of bars: what a browser draws, and what it says of each bar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neurosim.listing import operand_text, place_text
from neurosim.program import Program
from neurosim.report.queues import in_order, queue_of
from neurosim.timing.timeline import ENGINES, REASONS, Op, Stall, Timeline

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
        reason: for what (a :class:`Stall`).
        producer: index of ``texts``: the instruction that it waited for, -1 for none.
        texts: (instruction, operands, kernel line).
    """

    rows: tuple[str, ...]
    row: Ints
    start_ps: Ints
    end_ps: Ints
    text: Ints
    waited_ps: Ints
    reason: Ints
    producer: Ints
    texts: tuple[tuple[str, str, str], ...]

    def waits(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Return (row, start, end, reason) of the waits; that a DMA engine has nothing to do is none."""
        found = np.flatnonzero((self.waited_ps > 0) & (self.reason != Stall.DESCRIPTORS))
        start = self.start_ps[found]
        return self.row[found], start - self.waited_ps[found], start, self.reason[found]


def bars(program: Program, timeline: Timeline) -> Bars:
    """Return the bars of one core: its engines, its DMA queues, its DMA engines."""
    texts, text_of = _texts(program)
    ops = timeline.ops
    is_transfer = ops["kind"] == Op.TRANSFER
    engines = _engines(timeline, ops[~is_transfer], text_of)
    queue_names, queues = _queues(program, timeline, text_of)
    transfers = _transfers(ops[is_transfer], text_of)
    names = ("tensor", LOADS, *ENGINES[1:], *queue_names, *timeline.units[len(ENGINES) :])
    queues[0] += len(ENGINES) + 1
    transfers[0] += len(ENGINES) + 1 + len(queue_names)
    row, start, end, text, waited, reason, producer = np.concatenate([engines, queues, transfers], axis=1)
    return Bars(names, row, start, end, text, waited, reason, producer, texts)


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


def _engines(timeline: Timeline, ops: NDArray[Any], text_of: Ints) -> Ints:
    unit = ops["unit"].astype(np.int64)
    row = np.where(unit > 0, unit + 1, np.where(ops["kind"] == Op.LOAD_STATIONARY, 1, 0))
    waited_for = np.where(ops["stall_ps"] > 0, timeline.waited_for[ops["record"]], -1)
    producer = np.where(waited_for >= 0, text_of[np.maximum(waited_for, 0)], -1) if len(text_of) else waited_for
    return _columns(row, ops, text_of, producer)


def _transfers(ops: NDArray[Any], text_of: Ints) -> Ints:
    return _columns(ops["unit"].astype(np.int64) - len(ENGINES), ops, text_of, np.full(len(ops), -1))


def _columns(row: Ints, ops: NDArray[Any], text_of: Ints, producer: Ints) -> Ints:
    record = ops["record"].astype(np.int64)
    text = text_of[record] if len(text_of) else record
    return np.stack([row, ops["start_ps"], ops["end_ps"], text, ops["stall_ps"], ops["reason"], producer])


def _queues(program: Program, timeline: Timeline, text_of: Ints) -> tuple[list[str], Ints]:
    """Return names, and a bar per DMA from its trigger to its completion."""
    queues = [queue_of(signature) for signature in program.signatures]
    names = in_order({queue for queue in queues if queue is not None})
    queue_number = np.array([-1 if queue is None else names.index(queue) for queue in queues], dtype=np.int64)
    records = timeline.records
    if not names:
        return [], np.zeros((7, 0), np.int64)
    row = queue_number[np.array(program.signature_ids, np.int64)[records]]
    records, row = records[row >= 0], row[row >= 0]
    zeros = np.zeros(len(records), np.int64)
    start, end = timeline.start_ps[records], timeline.complete_ps[records]
    return names, np.stack([row, start, end, text_of[records], zeros, zeros + Stall.NONE, zeros - 1])


def reason_names() -> tuple[str, ...]:
    """Return the names of reasons as the page writes them."""
    return tuple(name.replace("_", " ") for name in REASONS)
