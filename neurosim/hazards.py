"""Data races: two cores that access the same bytes of shared memory with no meeting in between.

Cores are ordered by their meetings alone. A launch has at most two cores, so a meeting of both splits the record into
epochs: what lies in different epochs is ordered, and what two cores do in the same epoch is not. Which bytes meet is
decided exactly, from access patterns.

What the operands of a dynamic address reach is known at run time only, and the record keeps no more than what they
could reach at most. Such accesses are left out: two cores that scatter rows into one tensor are usual, and right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from neurosim.dependences import Operands
from neurosim.errors import DataRace
from neurosim.program import Access, Program, Signature
from neurosim.regions import Region, candidates, region_of, relation

Ints = NDArray[np.int64]


class _Touch(NamedTuple):
    """Bytes of a storage that a core accesses in an epoch."""

    core: int
    writes: bool
    region: Region
    offset: int


class Race(NamedTuple):
    """Two accesses that conflict.

    Attributes:
        storage: where.
        first, second: the records, in the order in which they ran here.
        first_writes, second_writes: what each does.
    """

    storage: int
    first: int
    second: int
    first_writes: bool
    second_writes: bool


def check_races(program: Program) -> None:
    """Refuse a program whose cores race.

    Raises:
        DataRace: the race whose second access comes first in the record.
    """
    found = min(races(program), key=lambda race: (race.second, race.first), default=None)
    if found is None:
        return
    info = program.storages[found.storage]
    lines = []
    for record, writes in ((found.first, found.first_writes), (found.second, found.second_writes)):
        instruction = program.signatures[program.signature_ids[record]].instruction
        frames = program.where(record)
        place = str(frames[0]) if frames else "an unknown line"
        lines.append(f"core {program.cores[record]}: {instruction} {'writes' if writes else 'reads'} it at {place}")
    raise DataRace(
        f"{info.name}{list(info.shape)} {info.dtype} in {info.memory.label}: two cores access the same bytes, "
        "and do not meet in between",
        where=tuple(map(str, program.where(found.second))),
        numbers=lines,
        advice="let them meet between the two, as in nisa.core_barrier(data=…, cores=(0, 1)); or let each core write a "
        "part of its own",
    )


def races(program: Program) -> Iterator[Race]:
    """Yield a race for each pair of places that conflict, with the first record at each."""
    owners = np.array(program.cores, dtype=np.int64)
    if not len(owners) or owners.min() == owners.max():
        return
    operands = Operands.of(program)
    regions = [region for signature in program.signatures for region in _regions(signature)]
    writes = np.array([p.access != Access.READ for s in program.signatures for p in s.patterns], dtype=bool)
    known = np.array([region is not None for region in regions], dtype=bool)
    core = owners[operands.record]
    keep = known[operands.pattern] & _shared(core, operands.storage, len(program.storages))
    for first, count in program.meetings:
        keep &= (operands.record < first) | (operands.record >= first + count)
    epochs = np.searchsorted([first for first, _ in program.meetings], operands.record, side="right")
    order = np.flatnonzero(keep)
    order = order[np.lexsort((operands.record[order], epochs[order], operands.storage[order]))]
    borders = np.flatnonzero(np.diff(operands.storage[order]) | np.diff(epochs[order])) + 1
    for part in np.split(order, borders):
        if writes[operands.pattern[part]].any() and len(np.unique(core[part])) > 1:
            touches: dict[_Touch, int] = {}
            for place in part.tolist():
                region = regions[operands.pattern[place]]
                assert region is not None
                shape, low = region
                offset = int(operands.offset[place]) + low
                touch = _Touch(int(core[place]), bool(writes[operands.pattern[place]]), shape, offset)
                touches.setdefault(touch, int(operands.record[place]))
            yield from _conflicts(int(operands.storage[part[0]]), touches)


def _regions(signature: Signature) -> Iterator[tuple[Region, int] | None]:
    """Yield the region of each operand, None for those that have no fixed place."""
    dynamic = {pattern.role.removeprefix("index of ") for pattern in signature.patterns if "index of" in pattern.role}
    for pattern in signature.patterns:
        yield None if pattern.role in dynamic or not pattern.memory.is_hbm else region_of(pattern)


def _shared(core: Ints, storage: Ints, storages: int) -> NDArray[np.bool_]:
    """Return which operands lie in a storage that more than one core accesses."""
    least, most = np.full(storages, np.iinfo(np.int64).max), np.full(storages, -1)
    np.minimum.at(least, storage, core)
    np.maximum.at(most, storage, core)
    return np.asarray((least < most)[storage])


def _conflicts(storage: int, touches: dict[_Touch, int]) -> Iterator[Race]:
    places, records = list(touches), list(touches.values())
    for i, j in candidates([(touch.region, touch.offset) for touch in places]):
        one, other = places[i], places[j]
        if one.core == other.core or not (one.writes or other.writes):
            continue
        if relation(one.region, other.region, other.offset - one.offset):
            first, second = sorted(((records[i], one.writes), (records[j], other.writes)))
            yield Race(storage, first[0], second[0], first[1], second[1])
