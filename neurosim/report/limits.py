"""What limits a kernel, as a summary holds it: its critical path by line, advice, and what-ifs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from neurosim.program import Program
from neurosim.report.places import Place, places, producer_engines, source_of
from neurosim.report.schema import AdviceSummary, PathSummary, WhatIfSummary
from neurosim.timing.causes import CAUSES, named
from neurosim.timing.critical import critical_path
from neurosim.timing.timeline import ENGINES, Timeline

if TYPE_CHECKING:
    from neurosim.advice import Advice
    from neurosim.timing.what_if import WhatIf


def path_lines(program: Program, timelines: Mapping[int, Timeline]) -> list[PathSummary]:
    """Return the lines of a kernel's critical path, by their share of the makespan, which add up to all of it."""
    path = critical_path(program, timelines)
    last = max(timelines.values(), key=lambda timeline: timeline.makespan_ps)
    known, place_of_record = places(program)
    engines = [*ENGINES, "dma"]
    record = path.parts["record"].astype(np.int64)
    if not len(record):
        return []
    keys, index = np.unique(
        place_of_record[record] * len(engines) + producer_engines(program, last)[record], return_inverse=True
    )
    spent = np.zeros((len(keys), len(CAUSES)), dtype=np.int64)
    np.add.at(spent, (index, path.parts["cause"]), path.parts["duration_ps"])
    counts = np.zeros(len(keys), dtype=np.int64)
    np.add.at(counts, np.unique(np.stack([index, record]), axis=1)[0], 1)
    found: list[PathSummary] = []
    for key, count, row in zip(keys.tolist(), counts.tolist(), spent, strict=True):
        place = known[key // len(engines)]
        found.append(
            {
                "file": place.file,
                "line": place.line,
                "instruction": place.instruction,
                "engine": engines[key % len(engines)],
                "source": source_of(place.path or place.file, place.line),
                "count": count,
                "duration_ps": int(row.sum()),
                "share": int(row.sum()) / max(path.makespan_ps, 1),
                "causes_ps": named(row),
            }
        )
    return sorted(found, key=lambda line: (-line["duration_ps"], line["file"], line["line"], line["engine"]))


def advice_rows(found: Sequence[Advice], makespan_ps: int) -> list[AdviceSummary]:
    """Return advice as plain data that ``json.dumps`` takes."""
    return [
        {
            "rule": each.rule,
            "text": each.text,
            "figures": dict(each.figures),
            "threshold": each.threshold,
            "places": [_place(place) for place in each.places],
            "what_if": {name: plain(value) for name, value in each.changes.items()},
            "gain_ps": each.gain_ps,
            "gain_share": None if each.gain_ps is None else each.gain_ps / max(makespan_ps, 1),
        }
        for each in found
    ]


def what_if_rows(found: Sequence[WhatIf]) -> list[WhatIfSummary]:
    """Return what-ifs as plain data that ``json.dumps`` takes."""
    return [
        {
            "text": each.text,
            "changes": {name: plain(value) for name, value in each.changes.items()},
            "before_ps": each.before_ps,
            "after_ps": each.after_ps,
            "gain_ps": each.gain_ps,
            "gain_share": each.gain_ps / max(each.before_ps, 1),
        }
        for each in found
    ]


def _place(place: Place) -> str:
    return f"{place.file}:{place.line}"


def plain(value: Any) -> Any:
    """Return a value of a what-if as JSON has it, which knows no infinity."""
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    if isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    return [plain(each) for each in value]
