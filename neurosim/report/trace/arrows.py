"""Arrows from the op that made a value to the op that takes it: one for each pair of which one reads what one wrote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neurosim.analysis.dependences import Dependence, dependences
from neurosim.report.trace.filling import SEPARATOR, THOUSANDTHS, Forms, hole
from neurosim.timing.passes import Compiled
from neurosim.timing.timeline import Op

Ints = NDArray[np.int64]

_THREAD_BITS: Final = 20
_THREADS: Final = (1 << _THREAD_BITS) - 1
_NEVER: Final = np.iinfo(np.int64).max
_CHUNK: Final = 1 << 15
_AT: Final = f'"pid":{hole(1)},"tid":{hole(2)},"ts":{hole(3, THOUSANDTHS)}}}'
_FORMS: Final = tuple(
    f'{SEPARATOR}{{"name":"data","cat":"data","ph":"{phase}","id":{hole(0)},{_AT}' for phase in ("s", 'f","bp":"e')
)


class Arrows:
    """Collects where each record's ops are drawn, and then draws arrows between those that are."""

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled
        # Start and thread in one number: of a record's ops the first to start takes, the last to start has made.
        self._takes: Ints = np.full(len(compiled.stand_ins), _NEVER)
        self._makes: Ints = np.full(len(compiled.stand_ins), -1)

    def drawn(self, ops: NDArray[Any], thread: Ints) -> None:
        """Note on which thread each op is drawn. A transfer takes nothing: the trigger of its DMA did."""
        place = (ops["start_ps"] // 1000 << _THREAD_BITS) + thread
        np.maximum.at(self._makes, ops["record"], place)
        issued = ops["kind"] != Op.TRANSFER
        np.minimum.at(self._takes, ops["record"][issued], place[issued])

    def lines(self, per_process: int) -> Iterator[memoryview]:
        """Yield the arrows, some at a time. Threads are counted within processes of so many."""
        forms = Forms(_FORMS)
        found, records = dependences(self._compiled.program), self._compiled.records
        reads = np.flatnonzero(found.kinds == Dependence.RAW)
        for begin in range(0, len(reads), _CHUNK):
            edges = reads[begin : begin + _CHUNK]
            consumers = np.searchsorted(found.starts, edges, side="right") - 1
            ends = np.stack([self._makes[records[found.producers[edges]]], self._takes[records[consumers]]], axis=1)
            shown = (ends[:, 0] >= 0) & (ends[:, 1] != _NEVER)
            place = ends[shown].reshape(-1)
            thread = place & _THREADS
            number = np.repeat(edges[shown] + 1, 2)
            form = np.arange(len(place), dtype=np.int64) % 2
            yield forms.fill(form, (number, thread // per_process * per_process, thread, place >> _THREAD_BITS))
