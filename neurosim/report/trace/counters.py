"""What a core did over time: space in SBUF and PSUM, HBM's bandwidth, MFU. Steps, each from its time to the next.

Space changes when a tensor comes or goes. Traffic and multiplication are averages over windows of equal length: the
bytes of a DMA count evenly over the time that its transfers take, the operations of a matmul over that of its MATMULs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from neurosim.chip import Chip
from neurosim.engines import Memory
from neurosim.program import Program
from neurosim.report.occupancy import usage
from neurosim.timing.timeline import Op, Timeline, least_ps
from neurosim.work import Matmul, Transfer, Work

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

WINDOWS: Final = 1000
"""Windows that a span of time is divided into."""

_CHUNK: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Counter:
    """One quantity over time.

    Attributes:
        name: with its unit, as in ``HBM read [GB/s]``.
        unit: which of a timeline's units it is of: ``tensor``, ``dma``, or the memory ``sbuf`` or ``psum``.
        times_ps: rising.
        values: from each time to the next; the last is 0.
    """

    name: str
    unit: str
    times_ps: Ints
    values: Floats


def counters(program: Program, timeline: Timeline, first_ps: int = 0, last_ps: int | None = None) -> list[Counter]:
    """Return what a core did over a span of time, by default all of it.

    Args:
        program: the record.
        timeline: of the core.
        first_ps, last_ps: the span, which is divided into :data:`WINDOWS`.
    """
    found = []
    for memory in (Memory.sbuf, Memory.psum):
        times_ps, used = usage(timeline, memory)
        label = f"{memory.label} [bytes of each partition]"
        found.append(_clipped(Counter(label, memory.name, times_ps, used.astype(np.float64)), first_ps, last_ps))
    windows = _Windows(first_ps, max(timeline.makespan_ps if last_ps is None else last_ps, first_ps + 1))
    for name, amount in (("HBM read [GB/s]", _read_bytes), ("HBM written [GB/s]", _written_bytes)):
        moved_bytes = windows.totals(timeline, Op.TRANSFER, _by_record(program, amount))
        found.append(windows.counter(name, "dma", moved_bytes * 1000 / windows.width_ps))
    peak_ps = windows.totals(timeline, Op.MATMUL, _by_record(program, partial(_peak_ps, timeline.chip)))
    found.append(windows.counter("MFU [%]", "tensor", 100 * peak_ps / windows.width_ps))
    return found


def _clipped(counter: Counter, first_ps: int, last_ps: int | None) -> Counter:
    """Return what a counter shows of a span: it begins with the value that held there."""
    times, values = counter.times_ps, counter.values
    begin = max(int(np.searchsorted(times, first_ps, side="right")) - 1, 0)
    end = len(times) if last_ps is None else int(np.searchsorted(times, last_ps))
    return Counter(counter.name, counter.unit, np.maximum(times[begin:end], first_ps), values[begin:end])


def _by_record(program: Program, amount: Callable[[Work], float]) -> Floats:
    """Return an amount by record, added up over what its signature asks for."""
    amounts = [sum(map(amount, signature.work)) for signature in program.signatures]
    by_record: Floats = np.array(amounts, dtype=np.float64)[np.array(program.signature_ids, dtype=np.int64)]
    return by_record


def _read_bytes(work: Work) -> float:
    return work.read_bytes * work.source.is_hbm if isinstance(work, Transfer) else 0


def _written_bytes(work: Work) -> float:
    return work.written_bytes * work.target.is_hbm if isinstance(work, Transfer) else 0


def _peak_ps(chip: Chip, work: Work) -> float:
    return least_ps(work, chip) if isinstance(work, Matmul) else 0


class _Windows:
    """A span of time in equal parts, and what falls into each.

    An op that moves an amount evenly from its start to its end adds a ramp to the total up to a time. The ramps are
    added up as their slopes at the edges of the windows, and as what they are ahead of a ramp that begins at 0: so ops
    cost the same, however many windows they cross.
    """

    def __init__(self, first_ps: int, last_ps: int) -> None:
        self.width_ps = max(-(-(last_ps - first_ps) // (WINDOWS * 1000)) * 1000, 1000)  # whole nanoseconds
        count = -(-(last_ps - first_ps) // self.width_ps)
        self.edges_ps: Ints = first_ps + self.width_ps * np.arange(count + 1, dtype=np.int64)

    def counter(self, name: str, unit: str, values: Floats) -> Counter:
        """Return a counter with a value for each window."""
        return Counter(name, unit, self.edges_ps, np.append(values, 0.0))

    def totals(self, timeline: Timeline, kind: Op, amounts: Floats) -> Floats:
        """Return by window how much was moved, of ``amounts`` by record, each in all its ops of a kind together."""
        duration_ps = np.zeros(len(amounts), dtype=np.int64)
        for records, start, end in _ops(timeline, kind, amounts):
            np.add.at(duration_ps, records, end - start)
        slope, ahead = np.zeros(len(self.edges_ps) + 1), np.zeros(len(self.edges_ps) + 1)
        for records, start, end in _ops(timeline, kind, amounts):
            rate = amounts[records] / duration_ps[records]
            for times, signed in ((start, rate), (end, -rate)):
                edge = np.searchsorted(self.edges_ps, times)  # the first that sees the ramp
                since_ps = (times - self.edges_ps[0]).astype(np.float64)
                slope += np.bincount(edge, signed, minlength=len(slope))
                ahead += np.bincount(edge, signed * since_ps, minlength=len(slope))
        reached = np.cumsum(slope[:-1]) * (self.edges_ps - self.edges_ps[0]) - np.cumsum(ahead[:-1])
        moved: Floats = np.maximum(np.diff(reached), 0.0)
        return moved


def _ops(timeline: Timeline, kind: Op, amounts: Floats) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield record, start and end of a kind's ops that have an amount, some at a time; they last 1 ps at least."""
    for begin in range(0, len(timeline.ops), _CHUNK):
        ops = timeline.ops[begin : begin + _CHUNK]
        ops = ops[(ops["kind"] == kind) & (amounts[ops["record"]] > 0)]
        yield ops["record"], ops["start_ps"], np.maximum(ops["end_ps"], ops["start_ps"] + 1)
