"""DMAs bound by their issue: so many small ones that queues and engines that trigger them are what limits."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from neurosim.advice.case import SIGNIFICANT, Advice, Case, where
from neurosim.program import Signature
from neurosim.report import units
from neurosim.timing.causes import NUMBERS
from neurosim.work import Transfer

_TRIGGERS = (
    "nisa.dma_copy with dge_mode=nisa.dge_mode.hwdge and engine=nisa.engine.sync or engine=nisa.engine.scalar, "
    "or with dge_mode=nisa.dge_mode.swdge and no engine=, which is GpSimd"
)
_TRIGGERS_BEFORE_V3 = "nisa.dma_copy with dge_mode=nisa.dge_mode.swdge is GpSimd's"

SMALL_BYTES: Final = 128 * 512
"""Bytes up to which a DMA is small: 512 on each of 128 partitions. A descriptor of these passes in 24 ns, of which
4.5 are overhead (allenkchau/trainium-kernel-fusion@d709ddf), so that longer ones gain little more."""


def dma_issue(case: Case) -> list[Advice]:
    """Advise where DMAs that are not issued yet hold up the kernel for much of the time: on its critical path."""
    parts = case.path.parts
    parts = parts[parts["cause"] == NUMBERS["dma_issue"]]
    waited_ps = int(parts["duration_ps"].sum())
    if case.share(waited_ps) < SIGNIFICANT:
        return []
    records = case.records(case.chosen(_is_transfer)).tolist()
    moved = [each for record in records for each in case.signature(record).work if isinstance(each, Transfer)]
    sizes = [max(each.read_bytes, each.written_bytes) for each in moved]
    mean_bytes = sum(sizes) / max(len(sizes), 1)
    small = 2 * sum(size <= SMALL_BYTES for size in sizes) >= len(sizes)
    found = case.places(case.ops_of(np.unique(parts["record"]).astype(np.int64)))
    interval_ps = case.timeline.chip.dma.hwdge_interval_ns * 1000
    by_hardware = any(each.generation == "hwdge" for each in moved)
    pace = f", and a queue of a hardware engine takes one in {units.time(interval_ps)}" if by_hardware else ""
    more = "Move more bytes with each, and trigger them" if small else "Trigger them"
    text = (
        f"For {case.percent(waited_ps)} of the time the kernel waits until DMAs are issued ({where(found)}): there are "
        f"{len(moved)} of {units.binary(mean_bytes)} in the mean{pace}. "
        f"{more} from several engines, which have queues of their own: "
        f"{_TRIGGERS if case.timeline.chip.generation >= 3 else _TRIGGERS_BEFORE_V3}."
    )
    figures = {"waited_ps": waited_ps, "dmas": len(moved), "mean_bytes": mean_bytes}
    threshold = f"waits for the issue of DMAs on the critical path of {units.percent(SIGNIFICANT)} of the time or more"
    return [Advice("dma_issue", text, figures, threshold, found, {"dma_issue": 0, "queue_depth": math.inf})]


def _is_transfer(signature: Signature) -> bool:
    return any(isinstance(each, Transfer) for each in signature.work)
