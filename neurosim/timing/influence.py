"""Which figures of a chip a time was computed from, and how strongly each moves it.

Nothing here knows a law: a cost is computed once with a chip that notes which figures are read, and once more for
each of these with the figure a little larger. So a new law or figure takes part without another word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, cast

import numpy as np

from neurosim.chip import STANDINGS, Chip
from neurosim.engines import Engine
from neurosim.program import Program, Signature
from neurosim.timing.dma import TransferCost
from neurosim.timing.laws import MatmulCost, table_load_ps
from neurosim.timing.lower import cost_of
from neurosim.timing.timeline import ENGINES, Op, Timeline

_STEP: Final = 0.01
"""By how much a figure is moved to see what follows: enough for picoseconds, little enough for a slope."""

_STRUCTURE: Final = ("tensor.rows", "tensor.columns")
"""What a program was recorded for, with all of ``chip.*``: not a question of time."""


class Influence(NamedTuple):
    """What one figure has to do with the time that engines were busy.

    Attributes:
        figure: its path, such as ``tensor.clock_ghz``.
        standing: one of ``STANDINGS``.
        share: of the busy time, 0 to 1.
    """

    figure: str
    standing: str
    share: float


class _Noting:
    """A chip, or one of its sections, that notes which figures are read."""

    def __init__(self, of: Any, prefix: str, noted: dict[str, None]) -> None:
        self._of, self._prefix, self._noted = of, prefix, noted

    @property  # type: ignore[misc]  # an instance of what it stands for, where that is asked
    def __class__(self) -> type[Any]:
        return type(self._of)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._of, name)
        if not self._prefix and hasattr(value, "__dataclass_fields__"):
            return _Noting(value, f"{name}.", self._noted)
        self._noted[f"{self._prefix or 'chip.'}{name}"] = None
        return value


def figures_read(chip: Chip, compute: Callable[[Chip], object]) -> list[str]:
    """Return the numbers of a chip that a computation reads and that are a question of time, in the file's order."""
    noted: dict[str, None] = {}
    compute(cast("Chip", _Noting(chip, "", noted)))
    return [path for path, figure in chip.figures.items() if path in noted and _moves_time(path, figure.value)]


def _moves_time(path: str, value: object) -> bool:
    return isinstance(value, int | float) and not path.startswith("chip.") and path not in _STRUCTURE


def moved(chip: Chip, path: str, relative: float) -> Chip:
    """Return a chip with one figure larger (or smaller) by a part of it; a whole number moves by one at least."""
    value = chip.figures[path].value
    assert isinstance(value, int | float)
    if isinstance(value, float):
        return chip.replace(**{path: value * (1 + relative)})
    step = max(1, round(value * abs(relative)))
    return chip.replace(**{path: value + (step if relative > 0 else -step)})


def influences(program: Program, timeline: Timeline) -> list[Influence]:
    """Return what each figure has to do with a core's busy time, the largest share first; shares add up to 1.

    The busy time of an instruction is shared out among the figures that its cost is computed from, in proportion to
    how strongly each moves it. The DMA engines count as one engine, with their mean. Latencies, queues and semaphores
    keep nobody busy: what they do to the time, :func:`neurosim.timing.sensitivity.sensitivity` says.
    """
    chip = timeline.chip
    variants: dict[str, Chip] = {}
    totals: dict[str, float] = {}
    for (number, kind, engine), busy_ps in _busy_ps(program, timeline).items():
        signature = replace(program.signatures[number], engine=engine)
        slopes = _slopes(partial(_held_ps, signature, kind), chip, variants)
        weight = sum(slopes.values()) or 1.0  # where nothing moves a time, nothing has a share
        for path, slope in slopes.items():
            totals[path] = totals.get(path, 0.0) + busy_ps * slope / weight
    whole = sum(totals.values())
    found = (Influence(path, chip.figures[path].standing, ps / whole) for path, ps in totals.items())
    return sorted(found, key=lambda each: (-each.share, each.figure))


def by_standing(found: Iterable[Influence]) -> dict[str, float]:
    """Return the shares of the busy time by standing, from best to worst."""
    shares = dict.fromkeys(STANDINGS, 0.0)
    for each in found:
        shares[each.standing] += each.share
    return shares


def _busy_ps(program: Program, timeline: Timeline) -> dict[tuple[int, Op, Engine], float]:
    """Return the busy time by signature, kind of op, and engine; the DMA engines count as one, the signature's."""
    ops = timeline.ops
    units, kinds = len(ENGINES) + 1, len(Op)
    signatures = np.array(program.signature_ids, dtype=np.int64)[ops["record"]]
    keys = (signatures * kinds + ops["kind"]) * units + np.minimum(ops["unit"], len(ENGINES))
    groups, index = np.unique(keys, return_inverse=True)
    totals = np.zeros(len(groups), dtype=np.int64)
    np.add.at(totals, index, ops["busy_ps"])
    movers = len(timeline.units) - len(ENGINES)
    found: dict[tuple[int, Op, Engine], float] = {}
    for key, total in zip(groups.tolist(), totals.tolist(), strict=True):
        number, kind, unit = key // units // kinds, key // units % kinds, key % units
        is_moving = unit == len(ENGINES)
        engine = program.signatures[number].engine if is_moving else Engine[ENGINES[unit]]
        if total:
            found[number, Op(kind), engine] = total / (movers if is_moving else 1)
    return found


def _held_ps(signature: Signature, kind: Op, chip: Chip) -> int:
    """Return how long ops of this kind hold their unit for one instruction."""
    if kind is Op.TABLE_LOAD:
        return table_load_ps(chip)
    cost = cost_of(signature, chip)
    if isinstance(cost, TransferCost):
        return sum(ps for _, ps in cost.shares) if kind is Op.TRANSFER else cost.trigger_ps
    if isinstance(cost, MatmulCost):
        return cost.pairs * (cost.load_ps if kind is Op.LOAD_STATIONARY else cost.stream_ps)
    return sum(issue_ps for step, issue_ps, _ in cost.steps if step == kind)


def _slopes(held_ps: Callable[[Chip], int], chip: Chip, variants: dict[str, Chip]) -> dict[str, float]:
    """Return how strongly each figure moves a time: the relative change of one by that of the other, without sign."""
    paths = figures_read(chip, held_ps)
    before = held_ps(chip)
    slopes: dict[str, float] = {}
    for path in paths:
        if path not in variants:
            variants[path] = moved(chip, path, _STEP)
        variant = variants[path]
        old, new = (float(cast("float", each.figures[path].value)) for each in (chip, variant))
        change = abs(held_ps(variant) - before)
        if change and old:
            slopes[path] = change / before / abs(new / old - 1)
    return slopes
