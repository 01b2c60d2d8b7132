"""DMA queues as reports name them: who triggers, and who makes the descriptors."""

from __future__ import annotations

from neurosim.program import Signature
from neurosim.timing.timeline import ENGINES
from neurosim.work import Transfer


def queue_of(signature: Signature) -> str | None:
    """Return the name of the queue that a DMA goes through, None for what is no DMA."""
    for work in signature.work:
        if isinstance(work, Transfer):
            return f"queue {signature.engine.name} {work.generation}"
    return None


def in_order(queues: set[str]) -> list[str]:
    """Return queues in the order of their engines."""
    return sorted(queues, key=_place)


def _place(queue: str) -> tuple[int, str]:
    _, engine, generation = queue.split()
    return ENGINES.index(engine), generation
