"""Single buffers: a tile is filled again only when everybody has read it, so that engines take turns."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import numpy as np

from neurosim.advice.case import SIGNIFICANT, Advice, Case, called, where
from neurosim.engines import Memory
from neurosim.program import Access
from neurosim.report import units
from neurosim.report.words import words
from neurosim.timing.timeline import ENGINES

_CAUSES: Final = {
    "overwrite": (
        "What each turn of the loop fills anew may have a second buffer: allocate it within the loop, or take turns "
        "between two of them. What one turn leaves to the next has to stay."
    ),
    "sbuf_space": "Keep tiles for a shorter time, or make them smaller, so that loads can run ahead.",
    "psum_space": "Copy results out of PSUM sooner, or accumulate in fewer banks at once.",
}
_CHANGES: Final[dict[str, dict[str, Any]]] = {
    "overwrite": {"overwrites": False},
    "sbuf_space": {"sbuf_space": 2},
    "psum_space": {"psum_space": 2},
}


_MEMORIES: Final = {
    "overwrite": (Memory.sbuf, Memory.psum),
    "sbuf_space": (Memory.sbuf,),
    "psum_space": (Memory.psum,),
}
_WAITS: Final = 256
"""The longest waits, which say which tiles are waited for."""
_NAMED: Final = 2
"""Tiles that are named."""


def single_buffers(case: Case) -> list[Advice]:
    """Advise where engines wait for old contents of a tile, or for space, much of the time."""
    return [advice for cause in _CAUSES for advice in _for(case, cause)]


def _for(case: Case, cause: str) -> list[Advice]:
    waits = {engine: case.waiting(cause, engine) for engine in ENGINES}
    engine, (waited_ps, found) = max(waits.items(), key=lambda row: row[1][0])
    if case.share(waited_ps) < SIGNIFICANT:
        return []
    text = (
        f"{called(engine)} waits for {case.percent(waited_ps)} of the time for {words(cause)}"
        f"{_named(case, cause, engine)}, before {where(found)}. {_CAUSES[cause]}"
    )
    threshold = f"waits of one engine for {words(cause)} of {units.percent(SIGNIFICANT)} of the time or more"
    return [Advice("single_buffer", text, {"waited_ps": waited_ps, "cause": cause}, threshold, found, _CHANGES[cause])]


def _named(case: Case, cause: str, engine: str) -> str:
    """Return which tiles an engine waited for longest, as people say them; nothing where none is known."""
    parts = case.parts(cause, case.unit(engine))
    longest = parts[np.argsort(-parts["duration_ps"], kind="stable")[:_WAITS]]
    total_ps: Counter[str] = Counter()
    records = case.timeline.ops["record"][longest["op"]]
    for record, ps in zip(records.tolist(), longest["duration_ps"].tolist(), strict=True):
        for tile in _tiles(case, cause, record):
            total_ps[case.program.label(tile)] += ps
    names = [name for name, _ in total_ps.most_common(_NAMED)]
    link = "of" if cause == "overwrite" else "for"
    return f" {link} {' and '.join(names)}" if names else ""


def _tiles(case: Case, cause: str, record: int) -> set[int]:
    """Return the tiles that a record overwrites which another one still used, or those that it needs space for."""
    program, written = case.program, _MEMORIES[cause]
    signature, slots = case.signature(record), program.record(record).slots
    mine = {
        slot[0]
        for pattern, slot in zip(signature.patterns, slots, strict=True)
        if pattern.access is not Access.READ and pattern.memory in written
    }
    if cause != "overwrite":
        return mine
    other = int(case.timeline.waited_for[record])
    return mine & {slot[0] for slot in program.record(other).slots} if other >= 0 else set()
