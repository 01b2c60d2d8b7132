"""Single buffers: a tile is filled again only when everybody has read it, so that engines take turns."""

from __future__ import annotations

from typing import Any, Final

from neurosim.advice.case import SIGNIFICANT, Advice, Case, called, where
from neurosim.report import units
from neurosim.report.words import words

ENGINES: Final = ("tensor", "vector", "scalar", "gpsimd", "sync")
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


def single_buffers(case: Case) -> list[Advice]:
    """Advise where engines wait for old contents of a tile, or for space, much of the time."""
    return [advice for cause in _CAUSES for advice in _for(case, cause)]


def _for(case: Case, cause: str) -> list[Advice]:
    waits = {engine: case.waiting(cause, engine) for engine in ENGINES}
    engine, (waited_ps, found) = max(waits.items(), key=lambda row: row[1][0])
    if case.share(waited_ps) < SIGNIFICANT:
        return []
    text = (
        f"{called(engine)} waits for {case.percent(waited_ps)} of the time for {words(cause)}, "
        f"before {where(found)}. {_CAUSES[cause]}"
    )
    threshold = f"waits of one engine for {words(cause)} of {units.percent(SIGNIFICANT)} of the time or more"
    return [Advice("single_buffer", text, {"waited_ps": waited_ps, "cause": cause}, threshold, found, _CHANGES[cause])]
