"""Activation tables that take turns: each change loads one again."""

from __future__ import annotations

from neurosim.advice.case import SIGNIFICANT, Advice, Case, where
from neurosim.report import units
from neurosim.timing.laws import table_set
from neurosim.timing.timeline import Op
from neurosim.work import Lanewise


def table_loads(case: Case) -> list[Advice]:
    """Advise where Scalar loads activation tables for much of the time, more than each once."""
    ops = case.timeline.ops["kind"] == Op.TABLE_LOAD
    spent_ps, loads = case.busy_ps(ops), int(ops.sum())
    scalar, records = case.timeline.chip.scalar, case.timeline.ops["record"][ops].tolist()
    functions = {work.table for record in records for work in case.signature(record).work if isinstance(work, Lanewise)}
    needed = {table_set(function, scalar) for function in functions} - {None}
    if case.share(spent_ps) < SIGNIFICANT or loads <= len(needed):
        return []
    found = case.places(ops)
    text = (
        f"Scalar loads activation tables for {case.percent(spent_ps)} of the time: {loads} times for "
        f"{len(needed)} tables ({where(found)}). Do all of one function before the next, over more tiles at once, "
        "or use functions that share a table."
    )
    figures = {"table_loads": loads, "tables": len(needed), "spent_ps": spent_ps}
    threshold = f"more loads than tables, which take {units.percent(SIGNIFICANT)} of the time or more"
    return [Advice("table_loads", text, figures, threshold, found, {"table_load": 0})]
