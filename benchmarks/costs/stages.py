"""Where the time of timing goes: its steps are measured while the simulator takes them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest.mock import patch

import neurosim.timing
from neurosim.timing import constraints, schedule

STAGES = {
    "passes": (schedule, "compiled"),
    "choice of engines": (schedule, "placed"),
    "choice of triggers": (schedule, "triggered"),
    "lowering": (schedule, "lower"),
    "dependences, in lowering": (constraints, "dependences"),
    "scheduling": (schedule, "in_turn"),
    "timelines": (neurosim.timing, "timelines"),
}
"""By name of a step, the function that takes it, as the module calls it that needs it."""


def stages(action: Callable[[], Any]) -> dict[str, float]:
    """Call what times a program; return the seconds of a processor by step, of those that it takes."""
    taken: dict[str, float] = {}
    with ExitStack() as patches:
        for stage, (module, name) in STAGES.items():
            measured = partial(_measured, getattr(module, name), stage, taken)
            patches.enter_context(patch.object(module, name, measured))
        action()
    return {stage: taken[stage] for stage in STAGES if stage in taken}


def _measured(function: Callable[..., Any], stage: str, taken: dict[str, float], *args: Any, **options: Any) -> Any:
    start = time.process_time()
    try:
        return function(*args, **options)
    finally:
        taken[stage] = taken.get(stage, 0.0) + time.process_time() - start


def show_stages(taken: dict[str, float]) -> None:
    """Print the steps, in order."""
    print("  of a processor: " + ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in taken.items()))
