"""Reloads: the same bytes of HBM come to SBUF again and again."""

from __future__ import annotations

from typing import Final

import numpy as np

from neurosim.advice.case import SIGNIFICANT, Advice, Case, where
from neurosim.program import Access, Signature
from neurosim.report import units
from neurosim.timing.timeline import Op
from neurosim.work import Transfer

TIMES: Final = 2.0
"""How often a tensor's bytes are loaded in the mean: from twice on, keeping them would halve its traffic."""


def reloaded_tensors(case: Case) -> list[Advice]:
    """Advise on each input that is loaded several times, where DMA engines spend much of the time on it."""
    program = case.program
    moved = np.zeros(len(program), dtype=bool)
    moved[case.timeline.ops["record"][case.timeline.ops["kind"] == Op.TRANSFER]] = True
    loads: dict[int, list[int]] = {}
    distinct: dict[int, dict[tuple[int, int], int]] = {}
    for record in case.records(case.chosen(_is_load)).tolist():
        signature = case.signature(record)
        for number, pattern in enumerate(signature.patterns):
            if pattern.access is Access.READ and pattern.memory.is_hbm and moved[record]:
                first = program.slot_starts[record] + 2 * number
                storage, offset = program.slots[first], program.slots[first + 1]
                if program.storages[storage].role == "input":
                    loads.setdefault(storage, []).append(record)
                    key = (offset, program.signature_ids[record])
                    distinct.setdefault(storage, {})[key] = pattern.size_bytes
    found = []
    for storage, records in loads.items():
        found += _of(case, storage, records, sum(distinct[storage].values()))
    return found


def _of(case: Case, storage: int, records: list[int], once_bytes: int) -> list[Advice]:
    program = case.program
    loaded_bytes = sum(_read_bytes(case.signature(record)) for record in records)
    ops = case.ops_of(np.array(records)) & case.unit("dma")
    busy_ps = case.busy_ps(ops)
    if loaded_bytes < TIMES * once_bytes or case.share(busy_ps) < SIGNIFICANT:
        return []
    times, name, places = loaded_bytes / once_bytes, program.label(storage), case.places(ops)
    text = (
        f"{name} is loaded {units.digits(times)} times over by {where(places)}: {units.decimal(loaded_bytes, 'B')} for "
        f"{units.decimal(once_bytes, 'B')}, {case.percent(busy_ps)} of the DMA engines' time. Load it once "
        "before the loop that repeats it, or let each tile serve several uses while it is in SBUF."
    )
    figures: dict[str, int | float | str] = {"tensor": name, "loaded_bytes": loaded_bytes}
    figures |= {"distinct_bytes": once_bytes, "busy_ps": busy_ps}
    threshold = (
        f"inputs whose bytes are loaded {TIMES:g} times or more in the mean, on which DMA engines spend "
        f"{units.percent(SIGNIFICANT)} of the time or more"
    )
    return [Advice("reloaded_tensor", text, figures, threshold, places)]


def _is_load(signature: Signature) -> bool:
    return any(isinstance(each, Transfer) and each.source.is_hbm for each in signature.work)


def _read_bytes(signature: Signature) -> int:
    return sum(each.read_bytes for each in signature.work if isinstance(each, Transfer))
