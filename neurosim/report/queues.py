"""DMA queues as reports name them: who triggers, and who makes the descriptors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from neurosim.program import Program, Signature
from neurosim.timing.timeline import ENGINES, Op, Timeline
from neurosim.work import Transfer

_GENERATIONS = ("hwdge", "none", "swdge")


def queues_of(program: Program, timeline: Timeline) -> tuple[list[str], NDArray[np.int64]]:
    """Return names of a core's queues in the order of their engines, and by record its queue's number, -1 for none.

    The engine is the one that triggered the DMA in this timeline, which a schedule may choose.
    """
    triggers = timeline.ops[timeline.ops["kind"] == Op.TRIGGER]
    record, unit = triggers["record"], triggers["unit"].astype(np.int64)
    is_static = np.array([_is_static(signature) for signature in program.signatures], dtype=bool)
    static = is_static[np.array(program.signature_ids, dtype=np.int64)[record]]
    made = np.where(static, "none", np.where(unit == ENGINES.index("gpsimd"), "swdge", "hwdge"))
    places, number = np.unique(unit * len(_GENERATIONS) + np.searchsorted(_GENERATIONS, made), return_inverse=True)
    numbers = np.full(len(program), -1, dtype=np.int64)
    numbers[record] = number
    count = len(_GENERATIONS)
    return [f"queue {ENGINES[place // count]} {_GENERATIONS[place % count]}" for place in places.tolist()], numbers


def _is_static(signature: Signature) -> bool:
    return any(isinstance(work, Transfer) and work.generation == "none" for work in signature.work)
