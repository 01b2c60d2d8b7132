"""Short free dimension: an instruction costs more beside its elements than for them."""

from __future__ import annotations

from typing import Final

import numpy as np

from neurosim.advice.case import SIGNIFICANT, Advice, Case, called, where
from neurosim.program import Signature
from neurosim.report import units
from neurosim.work import Lanewise

OVERHEAD_SHARE: Final = 0.5
"""Share of an instruction's time that is overhead: from the larger half on, more elements cost less than they bring."""

ENGINES: Final = ("vector", "scalar", "gpsimd")


def short_free_dimension(case: Case) -> list[Advice]:
    """Advise on each engine whose instructions have so few elements that their overhead is most of their time."""
    return [advice for engine in ENGINES for advice in _on(case, engine)]


def _on(case: Case, engine: str) -> list[Advice]:
    every = case.unit(engine) & case.ops_of(case.records(case.chosen(_elements)))
    short = np.zeros_like(every)
    for ops in case.lines(every).values():
        busy_ps = case.busy_ps(ops)
        if busy_ps and case.spent_on("overhead", ops) >= OVERHEAD_SHARE * busy_ps:
            short |= ops
    busy_ps, overhead_ps = case.busy_ps(short), case.spent_on("overhead", short)
    if case.share(overhead_ps) < SIGNIFICANT:
        return []
    records = np.unique(case.timeline.ops["record"][short])
    elements = float(np.mean([_elements(case.signature(record)) for record in records.tolist()]))
    found = case.places(short)
    text = (
        f"{called(engine)} is busy for {case.percent(busy_ps)} of the time with {len(records)} "
        f"instructions of {units.digits(elements)} elements a partition ({where(found)}), "
        f"and {units.percent(overhead_ps / busy_ps)} of that is overhead. "
        "Let one instruction do more: wider tiles, several tiles in one access pattern."
    )
    figures = {"elements": elements, "instructions": len(records), "overhead_ps": overhead_ps, "busy_ps": busy_ps}
    threshold = (
        f"lines where overhead is {units.percent(OVERHEAD_SHARE)} of the time or more, "
        f"if it comes to {units.percent(SIGNIFICANT)} of the makespan"
    )
    return [Advice("short_free_dimension", text, figures, threshold, found, {f"{engine}_overhead": 0})]


def _elements(signature: Signature) -> int:
    return sum(each.elements for each in signature.work if isinstance(each, Lanewise))
