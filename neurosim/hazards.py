"""Data races: two cores that access the same bytes of shared memory with no meeting in between.

Cores are ordered by their meetings alone. A launch has at most two cores, so a meeting of both splits the record into
epochs: what lies in different epochs is ordered, and what two cores do in the same epoch is not. Which bytes meet is
decided exactly, from access patterns.

Where both cores store the same, as kernels do where dividing the work is not worth it, their order shows nowhere: a
write that changes no byte of what the other core has written in the epoch is no race with that write, nor is a core's
read of what both have written. Nor do writes race where the core that ran last leaves the whole tensor as the other had
left it: whichever write comes last, it is the same. Without values, writes by one line to one place count as equal.

What the operands of a dynamic address reach is known at run time only, and the record keeps no more than what they
could reach at most. Such accesses are left out: two cores that scatter rows into one tensor are usual, and right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neurosim.dependences import Operands
from neurosim.errors import DataRace
from neurosim.memory import SharedWrites
from neurosim.program import Access, Program, Signature
from neurosim.regions import COVERS, Region, candidates, region_of, relation

Ints = NDArray[np.int64]


class _Touch(NamedTuple):
    """Bytes of a storage that a core accesses in an epoch, once or several times.

    ``silent`` is a write that changed nothing.
    """

    core: int
    writes: bool
    silent: bool
    region: Region
    offset: int


_Spans = dict[_Touch, tuple[int, int]]
"""By touch, its first and its last record."""


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


def check_races(program: Program, written: SharedWrites | None = None) -> None:
    """Refuse a program whose cores race.

    Args:
        program: the record.
        written: where cores wrote the same; None where no values were computed.

    Raises:
        DataRace: the race whose second access comes first in the record.
    """
    found = min(races(program, written), key=lambda race: (race.second, race.first), default=None)
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


def races(program: Program, written: SharedWrites | None = None) -> Iterator[Race]:
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
            storage = int(operands.storage[part[0]])
            quiet = _repeated(program, operands.record[part]) if written is None else written.silent
            touches: _Spans = {}
            for place in part.tolist():
                region = regions[operands.pattern[place]]
                assert region is not None
                offset, record = int(operands.offset[place]) + region[1], int(operands.record[place])
                does_write = bool(writes[operands.pattern[place]])
                touch = _Touch(int(core[place]), does_write, does_write and record in quiet, region[0], offset)
                touches[touch] = (touches.get(touch, (record, record))[0], record)
            agreed = written is not None and (storage, int(epochs[part[0]])) in written.agreed
            yield from _conflicts(storage, touches, agreed)


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


def _repeated(program: Program, records: Ints) -> set[int]:
    """Return the records that do what one of another core's does: by the same line, with the same operands."""
    seen: dict[tuple[Any, ...], int] = {}
    found = set()
    for record in np.unique(records).tolist():
        entry = program.record(record)
        shared = tuple(slot for slot in entry.slots if program.storages[slot[0]].memory.is_hbm)
        if seen.setdefault((entry.stack, entry.signature, shared), entry.core) != entry.core:
            found.add(record)
    return found


def _conflicts(storage: int, touches: _Spans, agreed: bool) -> Iterator[Race]:
    places = list(touches)
    for i, j in candidates([(touch.region, touch.offset) for touch in places]):
        one, other = places[i], places[j]
        if one.core == other.core or not (one.writes or other.writes) or (agreed and one.writes and other.writes):
            continue
        if relation(one.region, other.region, other.offset - one.offset) and not _agree(one, other, touches):
            first, second = sorted(((touches[one][0], one.writes), (touches[other][0], other.writes)))
            yield Race(storage, first[0], second[0], first[1], second[1])


def _agree(one: _Touch, other: _Touch, touches: _Spans) -> bool:
    """Return whether two conflicting touches leave and see the same in any order."""
    if one.writes and other.writes:
        return _equal(one, other, touches)
    write, read = (one, other) if one.writes else (other, one)
    return any(
        own.core == read.core
        and own.writes
        and touches[own][0] < touches[read][0]
        and relation(own.region, read.region, read.offset - own.offset) & COVERS
        and _equal(write, own, touches)
        for own in touches
    )


def _equal(one: _Touch, other: _Touch, touches: _Spans) -> bool:
    """Return whether of two writes by different cores the later one always changed nothing."""
    return (one.silent or touches[one][1] < touches[other][0]) and (other.silent or touches[other][1] < touches[one][0])
