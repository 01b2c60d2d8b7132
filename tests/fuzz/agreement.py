"""Random programs on two cores that store the same numbers, each in pieces of its own, and read what is there.

Core 0 runs first and stores all, each piece once or several times; so what core 1 stores changes nothing. A read is
then a race where the other core stores an element that the reader has not stored itself before.
"""

from __future__ import annotations

import itertools
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

import neurosim
from neurosim.errors import DataRace

SHAPE = (6, 8)
VALUES = np.arange(1, 49, dtype=np.float32).reshape(SHAPE)
Step = tuple[str, tuple[slice, slice]]
"""What a core does with a part: ``store``, ``load``, or ``copy`` onto itself, as kernels do to wait for all DMAs."""


def run(random: Any) -> tuple[bool, bool]:
    """Run a program; return whether it races, and whether the machine says so."""
    pieces = _pieces(random)
    stores = [("store", piece) for piece in pieces + [random.choice(pieces) for _ in range(random.randrange(3))]]
    whole = (slice(0, SHAPE[0]), slice(0, SHAPE[1]))
    parts = [random.choice((whole, _part(random))) for _ in range(random.randrange(6))]
    steps = {0: _mixed(random, stores, parts[::2]), 1: _mixed(random, _fewer(random, stores), parts[1::2])}

    @nki.jit
    def program(data: Any, values: Any) -> Any:
        for kind, part in steps[nl.program_id(0)]:
            shape = VALUES[part].shape
            held = nl.ndarray(shape, nl.float32, nl.sbuf)
            if kind == "copy":
                nisa.dma_copy(dst=data[part], src=data[part])
            elif kind == "load":
                nisa.dma_copy(dst=held, src=data[part])
            else:
                nisa.dma_copy(dst=held, src=values[part])
                nisa.dma_copy(dst=data[part], src=held)
        return data

    try:
        found = neurosim.simulate(program[2])(np.zeros(SHAPE, np.float32), VALUES).outputs
    except DataRace:
        return _is_racing(steps), True
    np.testing.assert_array_equal(found, VALUES)
    return _is_racing(steps), False


def _pieces(random: Any) -> list[tuple[slice, slice]]:
    """Return parts without a common element that are all of the tensor together, in any order."""
    axis = random.randrange(2)
    cuts = sorted({0, SHAPE[axis], *(random.randrange(SHAPE[axis]) for _ in range(3))})
    other = slice(0, SHAPE[1 - axis])
    spans = [slice(first, last) for first, last in itertools.pairwise(cuts)]
    if random.random() < 0.3:
        spans = [slice(0, SHAPE[axis], 2), slice(1, SHAPE[axis], 2)]
    random.shuffle(spans)
    return [(other, span) if axis else (span, other) for span in spans]


def _part(random: Any) -> tuple[slice, slice]:
    starts = [random.randrange(extent) for extent in SHAPE]
    rows, columns = (
        slice(start, start + random.randrange(extent - start) + 1, random.choice((1, 1, 2)))
        for start, extent in zip(starts, SHAPE, strict=True)
    )
    return rows, columns


def _fewer(random: Any, stores: list[Step]) -> list[Step]:
    """Return what core 1 stores: the same pieces, some of them, or other ones."""
    kind = random.randrange(3)
    if kind == 0:
        return stores
    if kind == 1:
        return [step for step in stores if random.random() < 0.7]
    return [("store", piece) for piece in _pieces(random)]


def _mixed(random: Any, stores: list[Step], parts: list[tuple[slice, slice]]) -> list[Step]:
    """Return stores with reads of parts in between, mostly after all of them."""
    steps = stores.copy()
    for part in parts:
        place = len(steps) if random.random() < 0.6 else random.randrange(len(steps) + 1)
        steps.insert(place, (random.choice(("load", "copy")), part))
    return steps


def _is_racing(steps: dict[int, list[Step]]) -> bool:
    stored = {core: np.zeros(SHAPE, bool) for core in steps}
    for core, done in steps.items():
        for kind, part in done:
            stored[core][part] |= kind != "load"
    for core, done in steps.items():
        own = np.zeros(SHAPE, bool)
        for kind, part in done:
            if kind != "store" and (stored[1 - core][part] & ~own[part]).any():
                return True
            own[part] |= kind != "load"
    return False
