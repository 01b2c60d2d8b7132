"""Advice: what a kernel could do better, each piece backed by the figure that triggers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from neurosim.advice.balance import unbalanced_engines
from neurosim.advice.buffering import single_buffers
from neurosim.advice.case import Advice, Case
from neurosim.advice.descriptors import small_descriptors
from neurosim.advice.float32_matmul import float32_matmul
from neurosim.advice.free_dimension import short_free_dimension
from neurosim.advice.issue import dma_issue
from neurosim.advice.partitions import few_partitions
from neurosim.advice.reloads import reloaded_tensors
from neurosim.advice.tables import table_loads
from neurosim.advice.throttle import cold_tensor_engine
from neurosim.advice.transposes import transposes_on_the_tensor_engine
from neurosim.chip import Chip
from neurosim.errors import NeurosimError
from neurosim.program import Program
from neurosim.timing.options import TimingOptions
from neurosim.timing.timeline import Timeline
from neurosim.timing.what_if import what_if

__all__ = ["LEAST_GAIN", "RULES", "Advice", "Case", "advice"]

RULES: Final[tuple[Callable[[Case], list[Advice]], ...]] = (
    cold_tensor_engine,
    dma_issue,
    few_partitions,
    float32_matmul,
    reloaded_tensors,
    short_free_dimension,
    single_buffers,
    small_descriptors,
    table_loads,
    transposes_on_the_tensor_engine,
    unbalanced_engines,
)
"""All rules. Each looks at one thing and says nothing where its figure is on the right side of its threshold."""

LEAST_GAIN: Final = 0.01
"""Share of the makespan that there must be to be had: an engine may wait much without holding anything up."""


def advice(
    program: Program, timelines: Mapping[int, Timeline], chip: Chip, timing: TimingOptions | None = None
) -> list[Advice]:
    """Return what a kernel could do better, what there is most to be had from first.

    Args:
        program: the record.
        timelines: by core; rules look at the core that ends last.
        chip: what was timed.
        timing: how; the record is timed again for each piece of advice that names a what-if, and one that gains less
            than ``LEAST_GAIN`` is left out. Without, no gains are asked for, and the order is that of the rules.
    """
    last = max(timelines.values(), key=lambda timeline: timeline.makespan_ps)
    case = Case(program, timelines)
    found = [each for rule in RULES for each in rule(case)]
    if timing is None:
        return found
    gained = [replace(each, gain_ps=_gain_ps(program, chip, timing, each, last.makespan_ps)) for each in found]
    worth = [each for each in gained if each.gain_ps is None or each.gain_ps >= LEAST_GAIN * last.makespan_ps]
    return sorted(worth, key=lambda each: -(each.gain_ps or 0))


def _gain_ps(program: Program, chip: Chip, timing: TimingOptions, found: Advice, before_ps: int) -> int | None:
    if not found.changes:
        return None
    try:
        return what_if(program, chip, timing, found.changes, before_ps).gain_ps
    except NeurosimError:
        return None  # the chip cannot be changed like that
