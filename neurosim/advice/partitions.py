"""Few partitions: an instruction takes as long for one partition as for all 128."""

from __future__ import annotations

from typing import Final

import numpy as np

from neurosim.advice.case import SIGNIFICANT, Advice, Bools, Case, Ints, called, where
from neurosim.program import Signature
from neurosim.report import units

FEW: Final = 0.5
"""Share of the chip's partitions that instructions use in the mean: with half of them or fewer, two could be one."""

ENGINES: Final = ("tensor", "vector", "scalar", "gpsimd", "dma")


def few_partitions(case: Case) -> list[Advice]:
    """Advise on each engine that spends much of the time on tiles of few partitions."""
    return [advice for engine in ENGINES for advice in _on(case, engine)]


def _on(case: Case, engine: str) -> list[Advice]:
    most = case.timeline.chip.partitions
    few = case.records(case.chosen(lambda signature: 0 < _partitions(signature) <= FEW * most))
    full = case.records(case.chosen(lambda signature: _partitions(signature) > FEW * most))
    ops = case.ops_of(_no_tails(case, few, full)) & case.unit(engine)
    busy_ps = case.busy_ps(ops)
    if engine == "dma":  # a partition's bytes go through one of the DMA engines: with few partitions, few of them work
        busy_ps = _longest_ps(case, ops)
    if case.share(busy_ps) < 2 * SIGNIFICANT:
        return []
    records = np.unique(case.timeline.ops["record"][ops]).tolist()
    mean = float(np.mean([_partitions(case.signature(record)) for record in records]))
    found = case.places(ops)
    text = (
        f"{called(engine)} is busy for {case.percent(busy_ps)} of the time with {len(records)} instructions on "
        f"{units.digits(mean)} of {most} partitions ({where(found)}), each of which takes as long as one on all. "
        "Lay tiles out so that the long dimension is on partitions, or put several small ones side by side."
    )
    figures = {"partitions": mean, "instructions": len(records), "busy_ps": busy_ps}
    threshold = (
        f"instructions on {units.percent(FEW)} of the partitions or fewer, on which an engine spends "
        f"{units.percent(2 * SIGNIFICANT)} of the time or more: at most half of that can be had"
    )
    return [Advice("few_partitions", text, figures, threshold, found)]


def _no_tails(case: Case, few: Ints, full: Ints) -> Ints:
    """Leave out what rows are left over for: where a line's instructions are full ones at least as often."""
    places = case.place_of_record
    count = int(places.max(initial=0)) + 1
    more = np.bincount(places[few], minlength=count) > np.bincount(places[full], minlength=count)
    found: Ints = few[more[places[few]]]
    return found


def _longest_ps(case: Case, ops: Bools) -> int:
    """Return how long the busiest DMA engine is busy with some ops."""
    rows = case.timeline.ops[ops]
    return int(np.bincount(rows["unit"], weights=rows["busy_ps"]).max()) if len(rows) else 0


def _partitions(signature: Signature) -> int:
    """Return the most partitions that an operand of an instruction has, 0 where none is on the chip."""
    on_chip = [pattern for pattern in signature.patterns if pattern.memory.is_on_chip]
    return max((pattern.shape[pattern.partition_axis] for pattern in on_chip), default=0)
