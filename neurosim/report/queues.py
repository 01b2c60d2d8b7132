"""DMA queues as reports name them: who triggers, and who makes the descriptors."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from neurosim.program import Program, Signature
from neurosim.timing.timeline import ENGINES, Op, Timeline
from neurosim.work import Transfer

_GENERATIONS: Final = ("hwdge", "none", "swdge")

QUEUES: Final = tuple(f"queue {engine} {generation}" for engine in ENGINES for generation in _GENERATIONS)
"""Names of all queues that there may be, in the order of their engines."""


def queues(program: Program, timeline: Timeline) -> NDArray[np.int64]:
    """Return, by record, the number in ``QUEUES`` of the queue that its DMA went through, -1 for none.

    The engine is the one that triggered the DMA in this timeline, which a schedule may choose.
    """
    triggers = timeline.ops[timeline.ops["kind"] == Op.TRIGGER]
    record, unit = triggers["record"], triggers["unit"].astype(np.int64)
    is_static = np.array([_is_static(signature) for signature in program.signatures], dtype=bool)
    static = is_static[np.array(program.signature_ids, dtype=np.int64)[record]]
    made = np.where(static, "none", np.where(unit == ENGINES.index("gpsimd"), "swdge", "hwdge"))
    numbers = np.full(len(program), -1, dtype=np.int64)
    numbers[record] = unit * len(_GENERATIONS) + np.searchsorted(_GENERATIONS, made)
    return numbers


def queues_of(program: Program, timeline: Timeline) -> tuple[list[str], NDArray[np.int64]]:
    """Return names of a core's queues in the order of their engines, and by record its queue's number, -1 for none."""
    numbers = queues(program, timeline)
    places = np.unique(numbers[numbers >= 0])
    return [QUEUES[place] for place in places], np.where(numbers >= 0, np.searchsorted(places, numbers), -1)


def _is_static(signature: Signature) -> bool:
    return any(isinstance(work, Transfer) and work.generation == "none" for work in signature.work)
