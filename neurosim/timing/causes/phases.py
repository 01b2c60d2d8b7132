"""What a DMA was doing while somebody waited for its data, by a rule from the DMA's own times.

A DMA's life has six parts, each of which begins where the one before ends:

1. until it is triggered: ``dma_issue`` where it waited for its queue or for the engine that triggers it; else what
   held it up is the cause (space on chip, old contents, …), and where that was another DMA's data, that DMA is asked;
2. until its first data reaches the DMA engines: ``dma_latency``;
3. until the last of its shares is served, behind the transfers before it: ``dma_descriptors`` or ``dma_bandwidth``, as
   these move;
4. while it moves: likewise, as it moves itself;
5. what it was held up by HBM at the end: ``dma_bandwidth``;
6. until the result can be used: ``dma_latency``.

A transfer moves **descriptor-bound** where its DMA engines would need half the time or less if descriptors cost
nothing beside their bytes, and **bandwidth-bound** otherwise.

A wait is cut where these parts meet, so that the pieces add up to it exactly.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neurosim.analysis.lifetimes import lifetimes
from neurosim.chip import Chip
from neurosim.engines import Memory
from neurosim.program import Program, Signature
from neurosim.timing.causes.names import NUMBERS, OF_STALL
from neurosim.timing.dma import transfer_cost
from neurosim.timing.timeline import Op, Stall, Timeline
from neurosim.work import Transfer

Ints = NDArray[np.int64]

DESCRIPTOR_SHARE: Final = 0.5
"""From which share of its engines' time on, what descriptors cost bounds a transfer: the larger half."""

_LATENCY, _ISSUE, _DESCRIPTORS, _BANDWIDTH = (
    NUMBERS[f"dma_{name}"] for name in ("latency", "issue", "descriptors", "bandwidth")
)


class Pieces(NamedTuple):
    """Parts of waits, by piece.

    Attributes:
        wait: which wait.
        cause: a number of ``CAUSES``.
        start_ps, end_ps: from when to when.
        waited_for: the record that was waited for, -1 for none.
    """

    wait: Ints
    cause: Ints
    start_ps: Ints
    end_ps: Ints
    waited_for: Ints

    @staticmethod
    def joined(parts: list[Pieces]) -> Pieces:
        """Return all pieces as one table."""
        columns = zip(*parts, strict=True) if parts else ((),) * len(Pieces._fields)
        return Pieces(*(np.concatenate([np.zeros(0, dtype=np.int64), *column]) for column in columns))


class Phases:
    """When each DMA of a timeline went from one part of its life to the next.

    Arrays are by record; those of a record that no DMA engine moved are its start.
    """

    def __init__(self, program: Program, timeline: Timeline) -> None:
        self.program, self.timeline = program, timeline
        ops = timeline.ops[timeline.ops["kind"] == Op.TRANSFER]
        order = np.lexsort((ops["unit"], ops["end_ps"], ops["record"]))
        ops = ops[order]
        last = np.flatnonzero(np.append(np.diff(ops["record"]) != 0, True)[: len(ops)])
        latest = ops[last]
        record = latest["record"]
        self.is_moved = np.zeros(len(program), dtype=bool)
        self.is_moved[record] = True
        self.arrival_ps, self.begin_ps, self.end_ps, self.free_ps = (timeline.start_ps.copy() for _ in range(4))
        self.begin_ps[record] = latest["start_ps"]
        self.end_ps[record] = latest["end_ps"]
        self.free_ps[record] = latest["end_ps"] - latest["held_ps"]
        self.arrival_ps[record] = np.minimum(timeline.data_ps[record], latest["start_ps"])
        self.bound = bounds(program, timeline.chip)[np.array(program.signature_ids, dtype=np.int64)]

    def pieces(self, wait: Ints, start_ps: Ints, end_ps: Ints, record: Ints) -> Pieces:
        """Cut waits for the data of DMAs into pieces.

        Args:
            wait: numbers of the waits.
            start_ps, end_ps: from when to when each lasts.
            record: the DMA that each waits for.
        """
        timeline = self.timeline
        parts: list[Pieces] = []
        while len(wait):
            ahead = timeline.queued_behind[record]
            queued = np.where(ahead >= 0, self.bound[ahead], self.bound[record])
            latency = np.full(len(wait), _LATENCY)
            parts += _cut(
                (wait, start_ps, end_ps),
                [timeline.start_ps[record], *(column[record] for column in self._borders)],
                [
                    (latency, record),
                    (queued, np.where(ahead >= 0, ahead, record)),
                    (self.bound[record], record),
                    (np.full(len(wait), _BANDWIDTH), record),
                    (latency, record),
                ],
            )
            wait, start_ps, end_ps, record, known = self._before(wait, start_ps, end_ps, record)
            parts.append(known)
        return Pieces.joined(parts)

    @property
    def _borders(self) -> tuple[Ints, Ints, Ints, Ints]:
        return self.arrival_ps, self.begin_ps, self.free_ps, self.end_ps

    def _before(self, wait: Ints, start_ps: Ints, end_ps: Ints, record: Ints) -> tuple[Ints, Ints, Ints, Ints, Pieces]:
        """Return what lies before triggers: what waits for another DMA, as arguments of ``pieces``, and the rest."""
        timeline = self.timeline
        end_ps = np.minimum(end_ps, timeline.start_ps[record])
        early = np.flatnonzero(end_ps > start_ps)
        wait, start_ps, end_ps, record = wait[early], start_ps[early], end_ps[early], record[early]
        reason, producer = timeline.reason[record].astype(np.int64), timeline.waited_for[record]
        # what a DMA waited for began before it, so that asking on comes to an end
        asked = (reason == Stall.DATA_DMA) & (producer >= 0)
        asked &= timeline.start_ps[np.maximum(producer, 0)] < timeline.start_ps[record]
        cause = waits(self.program, timeline, record, reason)
        cause[(reason == Stall.NONE) | (reason == Stall.QUEUE) | (reason == Stall.DATA_DMA)] = _ISSUE
        rest = ~asked
        known = Pieces(wait[rest], cause[rest], start_ps[rest], end_ps[rest], producer[rest])
        return wait[asked], start_ps[asked], end_ps[asked], producer[asked], known


def _cut(waits_: tuple[Ints, Ints, Ints], borders: list[Ints], between: list[tuple[Ints, Ints]]) -> list[Pieces]:
    """Return the pieces of waits between each two borders, and behind the last."""
    wait, start_ps, end_ps = waits_
    parts = []
    for index, (cause, record) in enumerate(between):
        begin = np.maximum(start_ps, borders[index])
        end = end_ps if index + 1 == len(borders) else np.minimum(end_ps, borders[index + 1])
        here = np.flatnonzero(end > begin)
        parts.append(Pieces(wait[here], cause[here], begin[here], end[here], record[here]))
    return parts


def waits(program: Program, timeline: Timeline, records: Ints, reason: NDArray[Any]) -> Ints:
    """Return the causes that records waited for, from their reasons; data of DMAs is not told apart."""
    cause: Ints = np.array(OF_STALL, dtype=np.int64)[reason]
    waiting = np.flatnonzero(reason == Stall.BUFFER)
    if len(waiting):
        memories = _takes(timeline)
        for index in waiting.tolist():
            memory = _scarce(program, memories[int(records[index])], int(timeline.waited_for[records[index]]))
            cause[index] = NUMBERS["psum_space" if memory is Memory.psum else "sbuf_space"]
    return cause


def _takes(timeline: Timeline) -> dict[int, set[Memory]]:
    """Return, by record, the memories in which it takes space."""
    executed, records = timeline.compiled.program, timeline.compiled.records.tolist()
    found: dict[int, set[Memory]] = {}
    life = lifetimes(executed)
    for storage, record in zip(life.tiles.tolist(), life.starts.tolist(), strict=True):
        found.setdefault(records[record], set()).add(executed.storages[storage].memory)
    return found


def _scarce(program: Program, memories: set[Memory], producer: int) -> Memory:
    """Return the memory whose space a record waited for; where it takes some of both, the one that was given back."""
    if len(memories) > 1 and producer >= 0:
        patterns = program.signatures[program.signature_ids[producer]].patterns
        memories = memories & {pattern.memory for pattern in patterns} or memories
    return Memory.psum if memories == {Memory.psum} else Memory.sbuf


def bounds(program: Program, chip: Chip) -> Ints:
    """Return, by signature, what bounds its transfer while it moves: ``dma_descriptors`` or ``dma_bandwidth``."""
    free = chip.replace(dma__descriptor_ns=0.0)
    found = [
        _DESCRIPTORS if descriptor_share(signature, chip, free) >= DESCRIPTOR_SHARE else _BANDWIDTH
        for signature in program.signatures
    ]
    return np.array(found, dtype=np.int64)


def descriptor_share(signature: Signature, chip: Chip, free: Chip) -> float:
    """Return which share of its DMA engines' time a transfer loses to descriptors, 0 where it is none.

    Args:
        signature: of the transfer.
        chip: what it runs on.
        free: the same chip, where a descriptor costs nothing beside its bytes.
    """
    for work in signature.work:
        if isinstance(work, Transfer):
            whole, bytes_ = (_moving_ps(work, signature, each) for each in (chip, free))
            return 1 - bytes_ / whole if whole else 0.0
    return 0.0


def _moving_ps(work: Transfer, signature: Signature, chip: Chip) -> int:
    return sum(ps for _, ps in transfer_cost(work, signature.patterns, chip).shares)
