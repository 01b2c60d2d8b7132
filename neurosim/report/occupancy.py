"""Which tensors were in SBUF and PSUM, and when: their lives in time, which the schedule decides."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from neurosim.analysis.dependences import Operands
from neurosim.engines import Memory
from neurosim.timing.timeline import Timeline

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Lives:
    """Tensors of one memory and core in the order of their first write. Arrays are by tensor.

    Attributes:
        storages: indices of ``storages`` of the program as it was executed (``Timeline.compiled``).
        start_ps, end_ps: from the start of the first write to the completion of the last access.
        size_bytes: of each partition.
        place_bytes: where each could lie: the lowest gap at its start. Tiles have no addresses, so that is a picture.
    """

    storages: Ints
    start_ps: Ints
    end_ps: Ints
    size_bytes: Ints
    place_bytes: Ints

    def steps(self) -> tuple[Ints, Ints]:
        """Return times, rising, and the bytes of each partition in use from each of them on."""
        return _steps(self.start_ps, self.end_ps, self.size_bytes)


def lives(timeline: Timeline, memory: Memory) -> Lives:
    """Return when each tensor of an on-chip memory was in it, on the timeline's core."""
    chosen, start, end, sizes = _spans(timeline, memory)
    return Lives(chosen, start, end, sizes, _place(start, end, sizes))


def usage(timeline: Timeline, memory: Memory) -> tuple[Ints, Ints]:
    """Return times, rising, and the bytes of each partition of an on-chip memory in use from each of them on."""
    _, start, end, sizes = _spans(timeline, memory)
    return _steps(start, end, sizes)


def _steps(start_ps: Ints, end_ps: Ints, size_bytes: Ints) -> tuple[Ints, Ints]:
    times = np.concatenate([start_ps, end_ps])
    changes = np.concatenate([size_bytes, -size_bytes])
    order = np.argsort(times, kind="stable")
    moments, last = np.unique(times[order][::-1], return_index=True)
    used = np.cumsum(changes[order])
    return moments, used[len(order) - 1 - last]


def _spans(timeline: Timeline, memory: Memory) -> tuple[Ints, Ints, Ints, Ints]:
    """Return tensors by their first write, the start of that, the end of the last access, bytes of each partition."""
    program, records = timeline.compiled.program, timeline.compiled.records
    operands = Operands.of(program)
    mine = np.isin(records, timeline.records)
    accesses = mine[operands.record]
    storage, record = operands.storage[accesses], records[operands.record[accesses]]
    is_write = operands.is_write(program)[accesses]
    count = len(program.storages)
    start = np.full(count, np.iinfo(np.int64).max)
    end = np.full(count, -1)
    np.minimum.at(start, storage[is_write], timeline.start_ps[record[is_write]])
    np.maximum.at(end, storage, timeline.complete_ps[record])
    column = program.storages.column
    is_wanted = column(lambda info: info.memory is memory and info.role in ("tile", "plane"), bool)
    wanted = np.flatnonzero(is_wanted & (end >= 0) & (start <= end))
    chosen = wanted[np.argsort(start[wanted], kind="stable")]
    sizes = column(lambda info: info.reserved_bytes)[chosen]
    return chosen, start[chosen], end[chosen], sizes


def _place(start: Ints, end: Ints, sizes: Ints) -> Ints:
    """Return the lowest place of each that nobody has when it comes."""
    places = np.zeros(len(start), dtype=np.int64)
    alive: list[tuple[int, int]] = []  # (place, end of the place), in order
    deaths: list[tuple[int, tuple[int, int]]] = []
    for index, (begin, until, size) in enumerate(zip(start.tolist(), end.tolist(), sizes.tolist(), strict=True)):
        while deaths and deaths[0][0] <= begin:
            alive.remove(heappop(deaths)[1])
        place, at = 0, 0
        while at < len(alive) and alive[at][0] - place < size:
            place = max(place, alive[at][1])
            at += 1
        taken = (place, place + size)
        alive.insert(at, taken)
        heappush(deaths, (until, taken))
        places[index] = place
    return places
