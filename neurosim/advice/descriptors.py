"""Small descriptors: a DMA engine spends as long on each as on many bytes."""

from __future__ import annotations

from typing import Final

from neurosim.advice.case import SIGNIFICANT, Advice, Case, where
from neurosim.program import Signature
from neurosim.report import units
from neurosim.work import Transfer

LEAST_BYTES: Final = 256
"""Bytes of a descriptor below which AWS calls a DMA severely bound by overhead
(nki/deep-dives/nki-dma-bandwidth-guide.rst:81-85)."""


def small_descriptors(case: Case) -> list[Advice]:
    """Advise on DMAs whose contiguous runs are short, where DMA engines spend much of the time on them."""
    records = case.records(case.chosen(_is_small))
    ops = case.ops_of(records) & case.unit("dma")
    busy_ps = case.busy_ps(ops)
    if case.share(busy_ps) < SIGNIFICANT:
        return []
    moved = [next(each for each in case.signature(record).work if isinstance(each, Transfer)) for record in records]
    count = sum(each.descriptors for each in moved)
    mean_bytes = sum(each.descriptors * each.descriptor_bytes for each in moved) / count
    lost = case.spent_on("overhead", ops) / max(case.spent_on("overhead", ops) + case.spent_on("work", ops), 1)
    found = case.places(ops)
    text = (
        f"The DMAs of {where(found)} move {units.digits(mean_bytes)} bytes a descriptor, {count} descriptors in all: "
        f"{units.percent(lost)} of the DMA engines' time on them goes into descriptors. Make the runs that are "
        "contiguous on both sides longer: load whole rows, or keep a partition's data side by side in HBM."
    )
    figures = {"descriptor_bytes": mean_bytes, "descriptors": count, "overhead_share": lost, "busy_ps": busy_ps}
    threshold = (
        f"descriptors below {LEAST_BYTES} bytes, which AWS calls severely bound by overhead, on which DMA engines "
        f"spend {units.percent(SIGNIFICANT)} of the time or more"
    )
    return [Advice("small_descriptors", text, figures, threshold, found, {"descriptor_overhead": 0})]


def _is_small(signature: Signature) -> bool:
    return any(isinstance(each, Transfer) and each.descriptor_bytes < LEAST_BYTES for each in signature.work)
