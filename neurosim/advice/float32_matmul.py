"""Matmuls of float32: the array takes four passes where bfloat16 takes one."""

from __future__ import annotations

from neurosim.advice.case import SIGNIFICANT, Advice, Case, where
from neurosim.program import Signature
from neurosim.report import units
from neurosim.timing.edits import is_wide


def float32_matmul(case: Case) -> list[Advice]:
    """Advise on multiplications of 4-byte floats, where the tensor engine spends much of the time on them."""
    records = case.records(case.chosen(_is_wide))
    ops = case.ops_of(records) & case.unit("tensor")
    busy_ps = case.busy_ps(ops)
    if case.share(busy_ps) < SIGNIFICANT:
        return []
    passes = max(case.signature(record).work[0].passes for record in records.tolist())  # type: ignore[union-attr]
    found = case.places(ops)
    text = (
        f"The tensor engine is busy for {case.percent(busy_ps)} of the time with {len(records)} matmuls of "
        f"float32 operands ({where(found)}), each of which takes {passes} passes. Cast both operands to bfloat16 where "
        "the result may have its precision: sums stay float32, and neurosim precision says what that costs."
    )
    figures = {"matmuls": len(records), "passes": passes, "busy_ps": busy_ps}
    threshold = f"float32 operands on which the tensor engine spends {units.percent(SIGNIFICANT)} of the time or more"
    return [Advice("float32_matmul", text, figures, threshold, found, {"matmul": "bfloat16"})]


def _is_wide(signature: Signature) -> bool:
    return any(is_wide(work) for work in signature.work)
