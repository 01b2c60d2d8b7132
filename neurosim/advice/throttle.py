"""A cold tensor engine: it stays at its lower clock, since it is not busy enough."""

from __future__ import annotations

from neurosim.advice.case import SIGNIFICANT, Advice, Case, where
from neurosim.report import units


def cold_tensor_engine(case: Case) -> list[Advice]:
    """Advise where the tensor engine's lower clock costs much of the time."""
    lost_ps = case.spent_ps("tensor", "throttle")
    if case.share(lost_ps) < SIGNIFICANT:
        return []
    ops = case.unit("tensor")
    busy, found = case.share(case.busy_ps(ops)), case.places(ops)
    ratio = case.timeline.chip.tensor.throttle_up_ratio
    text = (
        f"The tensor engine waits for {case.percent(lost_ps)} of the time for its own clock: it is busy "
        f"for {units.percent(busy)} of the time, and goes to its full clock only while it multiplies for "
        f"{units.percent(ratio)} of it with all rows. Feed it without pauses ({where(found)}): load ahead, put matmuls "
        "side by side instead of between other work, use all 128 rows."
    )
    figures = {"throttled_ps": lost_ps, "busy_share": busy, "throttle_up_ratio": ratio}
    threshold = f"a lower clock that costs {units.percent(SIGNIFICANT)} of the time or more"
    return [Advice("cold_tensor_engine", text, figures, threshold, found, {"throttle": False})]
