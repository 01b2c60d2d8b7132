"""Vector and Scalar out of balance: one has too much to do while the other has little."""

from __future__ import annotations

from typing import Final

from neurosim.advice.case import Advice, Case, called, where
from neurosim.report import units

BUSY_SHARE: Final = 0.5
"""Share of the makespan that the busier one works: below that it can hardly be what limits the kernel."""

RATIO: Final = 2.0
"""How much more it does than the other: less can be the price of instructions that only one of them has."""

_HINTS: Final = {
    "vector": "give Scalar what it can do as well: copies, products with and sums of a scalar or a column "
    "(activation with scale and bias)",
    "scalar": "give Vector what it can do as well: copies, products and sums (tensor_scalar, tensor_tensor)",
}


def unbalanced_engines(case: Case) -> list[Advice]:
    """Advise where Vector is busy and Scalar is not, or the other way round."""
    busy = {name: case.busy_ps(case.unit(name)) for name in ("vector", "scalar")}
    (more, more_ps), (less, less_ps) = sorted(busy.items(), key=lambda row: -row[1])
    if case.share(more_ps) < BUSY_SHARE or more_ps < RATIO * less_ps:
        return []
    found = case.places(case.unit(more))
    text = (
        f"{called(more)} is busy for {case.percent(more_ps)} of the time and {called(less)} for "
        f"{case.percent(less_ps)}. If {where(found)} allow it, {_HINTS[more]}."
    )
    figures = {f"{more}_busy_ps": more_ps, f"{less}_busy_ps": less_ps}
    threshold = (
        f"an engine that is busy for {units.percent(BUSY_SHARE)} of the time or more, "
        f"and {RATIO:g} times as long as the other"
    )
    return [Advice("unbalanced_engines", text, figures, threshold, found, {f"{more}_clock": 2})]
