"""Transposes on the tensor engine: it moves bits where it could multiply."""

from __future__ import annotations

from neurosim.advice.case import SIGNIFICANT, Advice, Case, where
from neurosim.program import Signature
from neurosim.report import units
from neurosim.work import Matmul


def transposes_on_the_tensor_engine(case: Case) -> list[Advice]:
    """Advise where the tensor engine spends much of the time on transposes."""
    records = case.records(case.chosen(_is_transpose))
    ops = case.ops_of(records) & case.unit("tensor")
    spent_ps = case.busy_ps(ops) + case.spent_on("throttle", ops)
    if case.share(spent_ps) < SIGNIFICANT:
        return []
    found = case.places(ops)
    text = (
        f"The tensor engine transposes for {case.percent(spent_ps)} of the time, waits for its clock included, "
        f"{len(records)} times ({where(found)}). Keep the tensor in HBM with its contraction dimension on partitions, "
        "swap stationary and moving so that the product comes out as the next one needs it, or let a DMA transpose "
        "while it loads."
    )
    figures = {"transposes": len(records), "spent_ps": spent_ps}
    threshold = f"transposes that take {units.percent(SIGNIFICANT)} of the time or more of the tensor engine"
    places = sorted({f"{place.file}:{place.line}" for place in case.lines(ops)})
    return [Advice("transposes_on_the_tensor_engine", text, figures, threshold, found, {"without": places})]


def _is_transpose(signature: Signature) -> bool:
    return any(isinstance(each, Matmul) and each.transpose for each in signature.work)
