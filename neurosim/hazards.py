"""Data races: two cores that access the same bytes of shared memory with no meeting in between.

Cores are ordered by their meetings alone. A launch has at most two cores, so a meeting of both splits the record into
epochs: what lies in different epochs is ordered, and what two cores do in the same epoch is not. Within an epoch one
core ran to its end before the other began. Which bytes meet is decided exactly, from access patterns.

Where both cores store the same, as kernels do where dividing the work is not worth it, their order shows nowhere: a
write that changes no byte is no race with what the other core has written in the epoch, nor is a core's read of bytes
that both have written, in one piece or many, unless the bytes had other values meanwhile. Nor do writes race where
the core that ran last leaves the bytes as the other had left them: whichever write comes last, it is the same.
Without values, writes by one line to one place count as equal. What an instruction adds to in place, it also reads.

A copy of a region onto itself is a read: each byte that it writes is the one that it read there. Kernels end so, on all
cores, to be sure that an output is in HBM (nki-library, bwmm_shard_on_I_mx.py). Where another core writes the region
meanwhile, the copy could undo that, and is a race as any read is.

The place of an operand with a dynamic address is known at run time only. A run with values notes which rows it chose;
without values, such accesses are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import gcd, prod
from operator import add
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from neurosim.analysis.dependences import Operands
from neurosim.analysis.regions import COVERS, Region, candidates, region_of, relation
from neurosim.errors import DataRace
from neurosim.memory import SharedWrites
from neurosim.program import Access, Program, Signature
from neurosim.record.storages import StorageInfo
from neurosim.work import Handshake, Transfer

Ints = NDArray[np.int64]
Marks = NDArray[np.bool_]


class _Touch(NamedTuple):
    """Bytes of a storage that a core accesses in an epoch, once or several times.

    ``silent`` is a write that changed nothing.
    """

    core: int
    writes: bool
    silent: bool
    region: Region
    offset: int


_SKIPPING = (
    "; rows that nobody reads (of padding, say) are left out where their index lies beyond the tensor and "
    "oob_mode=nisa.oob_mode.skip"
)
_Spans = dict[_Touch, tuple[int, int]]
"""By touch, its first and its last record."""
_Near = dict[_Touch, list[_Touch]]
"""By touch, those that may have bytes in common with it."""


class Race(NamedTuple):
    """Two accesses that conflict.

    Attributes:
        storage: where.
        first, second: the records, in the order in which they ran here.
        first_writes, second_writes: what each does.
        touches: the bytes of each.
        disputed: of two writes, the runs of bytes that the cores leave differently; None where that is not known.
    """

    storage: int
    first: int
    second: int
    first_writes: bool
    second_writes: bool
    touches: tuple[_Touch, _Touch]
    disputed: Ints | None


def check_races(program: Program, written: SharedWrites | None = None) -> bool:
    """Refuse a program whose cores race; return whether it is what they wrote that made it none.

    Args:
        program: the record.
        written: where cores wrote, and where they wrote the same; None where no values were computed.

    Raises:
        DataRace: the race whose second access comes first in the record.
    """
    if written is not None and not any(races(program, SharedWrites(written.rows))):
        return False
    every = sorted(races(program, written), key=lambda race: (race.second, race.first))
    if not every:
        return written is not None
    found = every[0]
    info = program.storages[found.storage]
    lines = []
    for record, writes in ((found.first, found.first_writes), (found.second, found.second_writes)):
        instruction = program.signatures[program.signature_ids[record]].instruction
        frames = program.where(record)
        place = str(frames[0]) if frames else "an unknown line"
        lines.append(f"core {program.cores[record]}: {instruction} {'writes' if writes else 'reads'} it at {place}")
    raise DataRace(
        f"{program.label(found.storage)}{list(info.shape)} {info.dtype} in {info.memory.label}: two cores access the "
        "same bytes, and do not meet in between",
        where=tuple(map(str, program.where(found.second))),
        numbers=(*lines, f"both reach {_elements(info, [race for race in every if race[:5] == found[:5]])}"),
        advice="let them meet between the two, as in nisa.core_barrier(data=…, cores=(0, 1)); or let each core write a "
        f"part of its own{_SKIPPING if _chooses_rows(program, found) else ''}",
    )


def _chooses_rows(program: Program, race: Race) -> bool:
    """Return whether both accesses are writes, and an index says where one of them goes."""
    signatures = (program.signatures[program.signature_ids[record]] for record in (race.first, race.second))
    return race.first_writes and race.second_writes and any(any(_dynamic(signature)) for signature in signatures)


def _elements(info: StorageInfo, found: Sequence[Race]) -> str:
    """Return the smallest slice of a tensor that holds all elements at which races happen, e.g. ``[4:5, 0:512]``."""
    spans = [_contested(*race.touches, race.disputed) for race in found]
    size, inner, parts = info.dtype.size_bytes, prod(info.shape), []
    first = np.concatenate([span[0] for span in spans]) // size
    last = (np.concatenate([span[1] for span in spans]) - 1) // size
    for extent in info.shape:
        inner //= extent
        low, high = first // inner, last // inner
        is_whole = (high - low >= extent) | (low % extent > high % extent)  # a run that goes on in the next index
        start, end = np.where(is_whole, 0, low % extent).min(), np.where(is_whole, extent - 1, high % extent).max()
        parts.append(f"{start}:{end + 1}")
    return f"[{', '.join(parts)}]"


def races(program: Program, written: SharedWrites | None = None) -> Iterator[Race]:
    """Yield a race for each pair of places that conflict, with the first record at each."""
    owners = np.array(program.cores, dtype=np.int64)
    if not len(owners) or owners.min() == owners.max():
        return
    operands = Operands.of(program)
    places = _Places(program, {} if written is None else written.rows)
    core = owners[operands.record]
    keep = places.counts[operands.pattern] & _shared(core, operands.storage, len(program.storages))
    for first, count in program.meetings:
        keep &= (operands.record < first) | (operands.record >= first + count)
    epochs = np.searchsorted([first for first, _ in program.meetings], operands.record, side="right")
    order = np.flatnonzero(keep)
    order = order[np.lexsort((operands.record[order], epochs[order], operands.storage[order]))]
    borders = np.flatnonzero(np.diff(operands.storage[order]) | np.diff(epochs[order])) + 1
    for part in np.split(order, borders):
        if places.writes[operands.pattern[part]].any() and len(np.unique(core[part])) > 1:
            quiet = _repeated(program, operands.record[part]) if written is None else written.silent
            touches: _Spans = {}
            onto = places.onto_themselves(program, operands, part, None if written is None else quiet)
            for number in part.tolist():
                if number in onto:
                    continue
                pattern, record = int(operands.pattern[number]), int(operands.record[number])
                for region, low in places.of(pattern, record):
                    offset = int(operands.offset[number]) + low
                    for writes in places.does(pattern):
                        touch = _Touch(int(core[number]), writes, writes and record in quiet, region, offset)
                        touches[touch] = (touches.get(touch, (record, record))[0], record)
            storage, epoch = int(operands.storage[part[0]]), int(epochs[part[0]])
            disputed = None if written is None else written.disputed.get((storage, epoch))
            yield from _conflicts(storage, touches, int(core[part[0]]), disputed)


class _Places:
    """What the operands of a program touch, by pattern.

    Attributes:
        counts: whether the operand touches shared memory at all.
        writes: whether it writes.
    """

    def __init__(self, program: Program, rows: Mapping[tuple[int, str], tuple[int, ...]]) -> None:
        self._patterns = [pattern for signature in program.signatures for pattern in signature.patterns]
        self._dynamic = [dynamic for signature in program.signatures for dynamic in _dynamic(signature)]
        self._regions = [region_of(pattern) for pattern in self._patterns]
        self._rows = rows
        touching = [_touches(signature) for signature in program.signatures for _ in signature.patterns]
        self.counts = np.array(
            [touches and pattern.memory.is_hbm for touches, pattern in zip(touching, self._patterns, strict=True)],
            dtype=bool,
        )
        self.writes = np.array([pattern.access != Access.READ for pattern in self._patterns], dtype=bool)

    def does(self, pattern: int) -> tuple[bool, ...]:
        """Return what an operand does, as values of ``writes``: what it adds to in place, it reads first."""
        access = self._patterns[pattern].access
        return (False, True) if access is Access.ACCUMULATE else (access is Access.WRITE,)

    def onto_themselves(self, program: Program, operands: Operands, part: Ints, silent: set[int] | None) -> set[int]:
        """Return, of some operands, those where an instruction writes what it reads from the same place.

        It does where it changed nothing; without values (``silent`` is None), where it is a DMA of one tensor alone.
        """
        read, wrote = set(), {}
        for number in part.tolist():
            pattern, record = int(operands.pattern[number]), int(operands.record[number])
            if self._dynamic[pattern] or not (_is_copy(program, record) if silent is None else record in silent):
                continue
            place = record, int(operands.offset[number]), replace(self._patterns[pattern], role="", access=Access.READ)
            access = self._patterns[pattern].access
            if access is Access.READ:
                read.add(place)
            elif access is Access.WRITE:
                wrote[number] = place
        return {number for number, place in wrote.items() if place in read}

    def of(self, pattern: int, record: int) -> Iterator[tuple[Region, int]]:
        """Yield the regions of an operand, with the first byte of each relative to the slot; none that is unknown."""
        if not self._dynamic[pattern]:
            found = self._regions[pattern]
            if found is not None:
                yield found
            return
        reach = self._patterns[pattern]
        for row, count, step in _runs(self._rows.get((record, reach.role), ())):
            shape, steps = (count, *reach.shape[1:]), (step * reach.steps[0], *reach.steps[1:])
            found = region_of(replace(reach, shape=shape, steps=steps))
            if found is not None:
                yield found[0], found[1] + row * reach.steps[0] * reach.dtype.size_bytes


def _is_copy(program: Program, record: int) -> bool:
    """Return whether a record is a DMA from one place to another that leaves the order of bytes."""
    signature = program.signatures[program.signature_ids[record]]
    moves = [work for work in signature.work if isinstance(work, Transfer)]
    return len(signature.patterns) == 2 and len(moves) == 1 and not moves[0].transpose_bytes


def _touches(signature: Signature) -> bool:
    """Return whether operands are accessed: cores that wait for each other only name what they wait for."""
    return not any(isinstance(work, Handshake) for work in signature.work)


def _dynamic(signature: Signature) -> Iterator[bool]:
    """Yield for each operand whether its place is known at run time only."""
    dynamic = {pattern.role.removeprefix("index of ") for pattern in signature.patterns if "index of" in pattern.role}
    for pattern in signature.patterns:
        yield pattern.role in dynamic


def _runs(rows: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """Yield (first, count, step) of rows: as one progression where they are one, else each alone."""
    step = rows[1] - rows[0] if len(rows) > 1 else 1
    if rows and rows == tuple(range(rows[0], rows[-1] + 1, step)):
        yield rows[0], len(rows), step
        return
    for row in rows:
        yield row, 1, 1


def _shared(core: Ints, storage: Ints, storages: int) -> NDArray[np.bool_]:
    """Return which operands lie in a storage that more than one core accesses."""
    least, most = np.full(storages, np.iinfo(np.int64).max), np.full(storages, -1)
    np.minimum.at(least, storage, core)
    np.maximum.at(most, storage, core)
    return np.asarray((least < most)[storage])


def _repeated(program: Program, records: Ints) -> set[int]:
    """Return the records that do what an earlier one does: by the same line, with the same operands."""
    seen = set()
    found = set()
    for record in np.unique(records).tolist():
        entry = program.record(record)
        shared = tuple(slot for slot in entry.slots if program.storages[slot[0]].memory.is_hbm)
        if (entry.stack, entry.signature, shared) in seen:
            found.add(record)
        seen.add((entry.stack, entry.signature, shared))
    return found


def _conflicts(storage: int, touches: _Spans, first_core: int, disputed: Ints | None) -> Iterator[Race]:
    places = list(touches)
    near: _Near = defaultdict(list)
    pairs = [(places[i], places[j]) for i, j in candidates([(touch.region, touch.offset) for touch in places])]
    for one, other in pairs:
        near[one].append(other)
        near[other].append(one)
    for one, other in pairs:
        if one.core == other.core or not (one.writes or other.writes):
            continue
        if not _relation(one, other) or _agree(one, other, touches, near, first_core):
            continue
        unlike = disputed if one.writes and other.writes else None
        if unlike is None or _is_contested(one, other, unlike):
            first, second = sorted(((touches[one][0], one.writes), (touches[other][0], other.writes)))
            yield Race(storage, first[0], second[0], first[1], second[1], (one, other), unlike)


def _is_contested(one: _Touch, other: _Touch, disputed: Ints) -> bool:
    return len(disputed) > 0 and len(_contested(one, other, disputed)[0]) > 0


def _contested(one: _Touch, other: _Touch, disputed: Ints | None) -> tuple[Ints, Ints]:
    """Return where two touches meet, as first byte and last plus one of pieces.

    ``disputed`` are runs of bytes that the cores leave differently: pieces that hold none of them are left out.
    """
    bytes_ = _Bytes((one, other))
    first, last = bytes_.places(bytes_.reached_by([one]) & bytes_.reached_by([other]))
    if disputed is None:
        return first, last
    runs = np.append(disputed, np.iinfo(np.int64).max)
    ends = np.searchsorted(disputed, first, side="right")
    unlike = (ends % 2 == 1) | (runs[ends] < last)
    return first[unlike], last[unlike]


def _relation(one: _Touch, other: _Touch) -> int:
    return relation(one.region, other.region, other.offset - one.offset)


def _agree(one: _Touch, other: _Touch, touches: _Spans, near: _Near, first_core: int) -> bool:
    """Return whether two conflicting touches leave and see the same in any order."""
    if one.writes and other.writes:
        return _equal(one, other, touches)
    write, read = (one, other) if one.writes else (other, one)
    own = [
        touch
        for touch in near[read]
        if touch.core == read.core
        and touch.writes
        and touches[touch][0] < touches[read][0]
        and _relation(touch, write)
        and _equal(write, touch, touches)
    ]
    if not own:
        return False
    changes = [
        touch
        for touch in near[read]
        if touch.writes and not touch.silent and touch.core == first_core and _relation(touch, read)
    ]
    if read.core != first_core:
        changes += _undone(read, near[read], changes, touches, first_core)
    is_quick = _steady(read, touches, changes, first_core) and any(_relation(touch, read) & COVERS for touch in own)
    return is_quick or _agree_by_bytes(write, read, own, changes, touches, first_core)


def _undone(read: _Touch, close: list[_Touch], changes: list[_Touch], touches: _Spans, first_core: int) -> list[_Touch]:
    """Return the writes of what stood there before the core that ran first wrote something else.

    They changed nothing, as that core ran first; after the other's write they would.
    """
    return [
        touch
        for touch in close
        if touch.writes
        and touch.silent
        and touch.core == first_core
        and _relation(touch, read)
        and any(touches[touch][0] < touches[change][1] and _relation(touch, change) for change in changes)
    ]


def _agree_by_bytes(
    write: _Touch, read: _Touch, own: list[_Touch], changes: list[_Touch], touches: _Spans, first_core: int
) -> bool:
    """Return whether of the bytes that are written and read, each is in ``own`` and steady in ``changes``."""
    bytes_ = _Bytes((write, read, *own, *changes))
    shared = bytes_.reached_by([write]) & bytes_.reached_by([read])
    if not bytes_.reached_by(own)[shared].all():
        return False
    if read.core == first_core:
        late = [touch for touch in changes if touches[touch][1] >= touches[read][0]]
        return not bytes_.reached_by(late)[shared].any()
    once, again = bytes_.reached_by([]), bytes_.reached_by([])
    for touch in changes:
        repeated = not touch.silent and touches[touch][0] < touches[touch][1]
        bytes_.of(touch, again)[...] |= bytes_.of(touch, once) | repeated
        bytes_.of(touch, once)[...] = True
    return not again[shared].any()


class _Bytes:
    """Arrays with an entry for each byte that some touches reach, or for each unit of bytes that divides them all.

    A region in HBM is bytes alone, since HBM has no partitions. Where all touches are columns of equally long rows, the
    arrays hold the columns that any of them reaches; else all bytes from the first to the last are one row.
    """

    def __init__(self, touches: Sequence[_Touch]) -> None:
        end = max(touch.offset + touch.region.span for touch in touches)
        pitch = max((step for touch in touches for step, _ in touch.region.axes), default=end)
        self._pitch = pitch if all(_is_column(touch, pitch) for touch in touches) else end
        columns = [touch.offset % self._pitch for touch in touches]
        inner = [touch.region.span - self._rows(touch) * self._pitch for touch in touches]
        self._row = min(touch.offset // self._pitch for touch in touches)
        self._column = min(columns)
        steps = (step for touch in touches for step, _ in touch.region.axes if step != self._pitch)
        starts = (column - self._column for column in columns)
        self._unit = gcd(*starts, *steps, *(touch.region.run for touch in touches))
        self._width = (max(map(add, columns, inner)) - self._column) // self._unit
        last = max(touch.offset // self._pitch + self._rows(touch) for touch in touches)
        self._size = (last + 1 - self._row) * self._width

    def _rows(self, touch: _Touch) -> int:
        """Return how many rows behind its first one a touch reaches."""
        return sum(count - 1 for step, count in touch.region.axes if step == self._pitch)

    def of(self, touch: _Touch, array: Marks) -> Marks:
        """Return the part of an array that a touch reaches, a view."""
        row, column = divmod(touch.offset, self._pitch)
        start = (row - self._row) * self._width + (column - self._column) // self._unit
        shape = (*(count for _, count in touch.region.axes), touch.region.run // self._unit)
        steps = (self._width if step == self._pitch else step // self._unit for step, _ in touch.region.axes)
        return np.ndarray(shape, np.bool_, array.data, start, (*steps, 1))

    def places(self, marked: Marks) -> tuple[Ints, Ints]:
        """Return the first byte of each marked unit in the storage, and the last plus one."""
        rows, units = np.divmod(np.flatnonzero(marked), self._width)
        first = (rows + self._row) * self._pitch + self._column + units * self._unit
        return first, first + self._unit

    def reached_by(self, touches: list[_Touch]) -> Marks:
        """Return which bytes any of the touches reach."""
        array = np.zeros(self._size, np.bool_)
        for touch in touches:
            self.of(touch, array)[...] = True
        return array


def _is_column(touch: _Touch, pitch: int) -> bool:
    """Return whether a touch is the same bytes of one or several rows of ``pitch`` bytes."""
    rows = [count for step, count in touch.region.axes if step == pitch]
    inner = touch.region.span - sum(count - 1 for count in rows) * pitch
    return len(rows) <= 1 and touch.offset % pitch + inner <= pitch


def _equal(one: _Touch, other: _Touch, touches: _Spans) -> bool:
    """Return whether of two writes by different cores the later one always changed nothing."""
    return (one.silent or touches[one][1] < touches[other][0]) and (other.silent or touches[other][1] < touches[one][0])


def _steady(read: _Touch, touches: _Spans, changes: list[_Touch], first_core: int) -> bool:
    """Return whether the core that ran first gave what is read one value in the epoch, as far as the reader may see.

    The other core wrote what stood there at the end, if anything; so a reader that ran first may see the end already,
    and one that ran second any value that was there meanwhile. ``changes`` are all that the first core changed there.
    """
    if read.core == first_core:
        return all(touches[touch][1] < touches[read][0] for touch in changes)
    return all(touches[touch][0] == touches[touch][1] for touch in changes) and not any(
        _relation(touch, other) for touch, other in combinations(changes, 2)
    )
