"""Which record has to wait for which: the exact dependences of a program, in time linear in its records.

Storages are independent of each other, and so are parts of one that no access joins. So accesses are grouped by
part. Most groups go to one place, a whole tile, and numpy finds their edges. The others repeat each other: the tile of
iteration 7 is written and read just as the tile of iteration 6. So equal sequences of accesses are solved once, and
numpy spreads the answers over the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import combinations
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from neurosim.analysis.regions import COVERED, COVERS, Region, candidates, region_of, relation
from neurosim.errors import SimulatorBug
from neurosim.program import Access, Program, present
from neurosim.work import Control

Ints = NDArray[np.int64]


class Dependence(IntEnum):
    """Why a record waits for another.

    ``RAW`` reads what the other wrote, ``WAR`` overwrites what it read, ``WAW`` overwrites what it wrote or
    accumulates onto it, ``EDGE`` was asked for by the kernel, ``MEET`` is on another side of the head of a loop on the
    device, where all engines meet.
    """

    RAW = 0
    WAR = 1
    WAW = 2
    EDGE = 3
    MEET = 4


_STRENGTH: Final = (Dependence.RAW, Dependence.EDGE, Dependence.MEET, Dependence.WAW, Dependence.WAR)
"""Strongest first: where a pair has several reasons, the one that lets the two overlap least is kept."""
_RAW, _WAW, _WAR = (_STRENGTH.index(kind) for kind in (Dependence.RAW, Dependence.WAW, Dependence.WAR))
_EDGE, _MEET = (_STRENGTH.index(kind) for kind in (Dependence.EDGE, Dependence.MEET))
_RANK_BITS: Final = 3
_POSITION_BITS: Final = 30
_RANK_MASK: Final = (1 << _RANK_BITS) - 1
_POSITION_MASK: Final = (1 << _POSITION_BITS) - 1
_CONSUMER_SHIFT: Final = _RANK_BITS + _POSITION_BITS

_FEW_PLACES: Final = 8
# The token of an access, from low bits to high: offset, write, geometry, "same record as the access before".
_OFFSET_BITS: Final = 42
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1
_GEOMETRY_BITS: Final = 19
_WRITE_BIT: Final = 1 << _OFFSET_BITS
_SAME_BIT: Final = 1 << (_OFFSET_BITS + _GEOMETRY_BITS + 1)
_PLACE_MASK: Final = (_SAME_BIT - 1) & ~_WRITE_BIT


@dataclass(frozen=True, slots=True)
class Dependences:
    """For each record, the records it waits for: rows ``starts[i]:starts[i + 1]`` of the other two lists.

    Attributes:
        starts: one entry per record, and one for the end.
        producers: record that must come first, ascending within a consumer, each once.
        kinds: a :class:`Dependence` per producer.
        exact_tests: pairs of regions that were compared byte for byte (a measure of cost).

    Orderings that follow from others may be missing: a write that covers an earlier access stands for it.
    """

    starts: Ints
    producers: Ints
    kinds: Ints
    exact_tests: int

    def of(self, record: int) -> list[tuple[int, Dependence]]:
        """Return (producer, kind) of one record."""
        rows = slice(self.starts[record], self.starts[record + 1])
        pairs = zip(self.producers[rows].tolist(), self.kinds[rows].tolist(), strict=True)
        return [(producer, Dependence(kind)) for producer, kind in pairs]


@dataclass(frozen=True, slots=True)
class Operands:
    """All operands of a program as columns, in record order.

    Attributes:
        record, storage, offset: per operand; offset in bytes, as in the slot.
        pattern: index into the patterns of all signatures, one after the other.
    """

    record: Ints
    storage: Ints
    offset: Ints
    pattern: Ints

    @staticmethod
    def of(program: Program) -> Operands:
        """Expand signatures and slots."""
        # np.array copies: a view would keep the program's arrays from growing.
        signatures = np.array(program.signature_ids, dtype=np.int64)
        slots = np.array(program.slots, dtype=np.int64).reshape(-1, 2)
        sizes = np.array([len(signature.patterns) for signature in program.signatures], dtype=np.int64)
        counts = sizes[signatures] if len(signatures) else signatures
        if counts.sum() != len(slots):
            raise SimulatorBug(
                "program: records and slots do not match",
                numbers=[f"{counts.sum()} operands in the signatures, {len(slots)} slots"],
                advice="append one (storage, offset) pair per pattern of the signature",
            )
        firsts = np.cumsum(sizes) - sizes
        ends = np.cumsum(counts)
        shift = (firsts[signatures] if len(signatures) else signatures) - (ends - counts)
        pattern = np.arange(len(slots)) + np.repeat(shift, counts)
        record = np.repeat(np.arange(len(signatures)), counts)
        return Operands(record, slots[:, 0], slots[:, 1], pattern)

    def is_write(self, program: Program) -> NDArray[np.bool_]:
        """Return, by operand of the program, whether the instruction writes it."""
        writes = [pattern.access != Access.READ for sig in program.signatures for pattern in sig.patterns]
        return np.array(writes, dtype=bool)[self.pattern]


_CACHE: WeakKeyDictionary[Program, tuple[tuple[int, int], Dependences]] = WeakKeyDictionary()


def dependences(program: Program) -> Dependences:
    """Return the dependences of a program, computed again only if it has grown."""
    size = (len(program), len(program.edges))
    cached = _CACHE.get(program)
    if cached is None or cached[0] != size:
        cached = _CACHE[program] = (size, _compute(program))
    return cached[1]


def _compute(program: Program) -> Dependences:
    accesses = _Accesses(program)
    solver = _Solver(accesses.geometries)
    consumers, producers, ranks = _spread(accesses, solver)
    if program.edges:
        explicit = np.array(program.edges, dtype=np.int64)
        if not ((explicit[:, 1] < explicit[:, 0]) & (explicit[:, 1] >= 0)).all():
            raise SimulatorBug("program: an explicit edge does not point to an earlier record")
        consumers = np.concatenate([consumers, explicit[:, 0]])
        producers = np.concatenate([producers, explicit[:, 1]])
        ranks = np.concatenate([ranks, np.full(len(explicit), _EDGE)])
    heads = _loop_heads(program)
    consumers = np.concatenate([consumers, heads[0]])
    producers = np.concatenate([producers, heads[1]])
    ranks = np.concatenate([ranks, np.full(len(heads[0]), _MEET)])
    total = max(1, len(program))
    keys = np.sort((consumers * total + producers) * len(_STRENGTH) + ranks)
    pairs = keys // len(_STRENGTH)
    strongest = np.ones(len(pairs), dtype=bool)
    strongest[1:] = pairs[1:] != pairs[:-1]
    keys, pairs = keys[strongest], pairs[strongest]
    starts = np.zeros(len(program) + 1, dtype=np.int64)
    np.cumsum(np.bincount(pairs // total, minlength=len(program)), out=starts[1:])
    kinds = np.array(_STRENGTH, dtype=np.int64)[keys % len(_STRENGTH)]
    return Dependences(starts, pairs % total, kinds, solver.exact_tests)


def _loop_heads(program: Program) -> tuple[Ints, Ints]:
    """Return (consumers, producers): all records of a core since the last head of a loop, and the next head."""
    empty: Ints = np.empty(0, dtype=np.int64)
    meets = [any(isinstance(work, Control) and work.meets for work in sig.work) for sig in program.signatures]
    if not any(meets):
        return empty, empty
    is_head = np.array(meets, dtype=bool)[np.array(program.signature_ids, dtype=np.int64)]
    cores = np.array(program.cores, dtype=np.int64)
    consumers, producers = [empty], [empty]
    for core in present(cores):
        mine = np.flatnonzero(cores == core)
        heads = mine[is_head[mine]]
        if not len(heads):
            continue
        after = np.searchsorted(heads, mine)  # how many came before a record
        later, earlier = mine[after > 0], mine[(after < len(heads)) & ~is_head[mine]]
        consumers += [later, heads[np.searchsorted(heads, earlier)]]
        producers += [heads[after[after > 0] - 1], earlier]
    return np.concatenate(consumers), np.concatenate(producers)


class _Accesses:
    """The accesses that can matter, by storage and in program order; within a record, reads before writes.

    Attributes:
        geometries: distinct regions; a geometry number is twice the index, plus one for a write.
        record: per access.
        leader: per access, the position within its group of its record's first access.
        tokens: per access, geometry and offset in one integer, plus whether the record goes on.
        starts: first access of each group, and the end.
    """

    def __init__(self, program: Program) -> None:
        operands = Operands.of(program)
        geometry, low, self.geometries = _geometries(program)
        number = geometry[operands.pattern]
        written = np.zeros(len(program.storages), dtype=bool)
        written[operands.storage[(number >= 0) & (number & 1 == 1)]] = True
        keep = (number >= 0) & written[operands.storage]
        number, record, storage = number[keep], operands.record[keep], operands.storage[keep]
        offset = operands.offset[keep] + low[operands.pattern[keep]]
        _check_ranges(len(self.geometries), offset)

        order = np.argsort((storage * len(program) + record) * 2 + (number & 1), kind="stable")
        number, record, storage, offset = number[order], record[order], storage[order], offset[order]
        spans = np.array([region.span for region in self.geometries], dtype=np.int64)
        parts = _parts(storage, offset, offset + spans[number >> 1])
        order = np.argsort(parts, kind="stable")
        number, record, parts, offset = number[order], record[order], parts[order], offset[order]
        begins = _changes(parts)
        starts = np.flatnonzero(begins)
        same = np.zeros(len(order), dtype=bool)
        same[1:] = ~begins[1:] & (record[1:] == record[:-1])
        if len(starts):  # parts that differ in their place alone have the same tokens
            offset = offset - np.minimum.reduceat(offset, starts)[np.cumsum(begins) - 1]
        self.record = record
        self.tokens = (same * _SAME_BIT) | (number << _OFFSET_BITS) | offset
        self.starts = np.append(starts, len(order))


def _changes(values: Ints) -> NDArray[np.bool_]:
    """Return where a value differs from the one before."""
    found = np.ones(len(values), dtype=bool)
    found[1:] = values[1:] != values[:-1]
    return found


def _parts(storage: Ints, low: Ints, high: Ints) -> Ints:
    """Return a number per access, the same for all of a storage whose bytes from low to high hang together.

    Storages come one after the other. Most are a tile that is accessed as a whole; those in several parts are tensors
    in HBM that are loaded or stored tile by tile.
    """
    begins = _changes(storage)
    starts, number = np.flatnonzero(begins), np.cumsum(begins) - 1
    parts = np.zeros(len(storage), dtype=np.int64)
    if not len(starts):
        return parts
    spread = np.minimum.reduceat(low, starts) < np.maximum.reduceat(low, starts)
    rows = np.flatnonzero(spread[number])
    rows = rows[np.lexsort((low[rows], number[rows]))]
    # storages lie behind each other, so that one running maximum serves all
    place = number[rows] * (int(high.max()) + 1)
    reached = np.maximum.accumulate(place + high[rows])
    parts[rows[1:]] = np.cumsum((place + low[rows])[1:] >= reached[:-1])
    return number * (len(rows) + 1) + parts


def _geometries(program: Program) -> tuple[Ints, Ints, list[Region]]:
    """Intern regions: per pattern its number (-1 without bytes) and first byte, and the distinct regions."""
    known: dict[Region, int] = {}
    numbers: list[int] = []
    lows: list[int] = []
    for signature in program.signatures:
        for pattern in signature.patterns:
            found = region_of(pattern)
            if found is None:
                numbers.append(-1)
                lows.append(0)
                continue
            index = known.setdefault(found[0], len(known))
            numbers.append(2 * index + (pattern.access != Access.READ))
            lows.append(found[1])
    return np.array(numbers, dtype=np.int64), np.array(lows, dtype=np.int64), list(known)


def _check_ranges(geometries: int, offset: Ints) -> None:
    if geometries >> _GEOMETRY_BITS or (len(offset) and (offset.min() < 0 or offset.max() > _OFFSET_MASK)):
        raise SimulatorBug(
            "dependences: an access does not fit the index",
            numbers=[
                f"{geometries} distinct regions, at most {1 << _GEOMETRY_BITS}",
                f"byte offsets {offset.min(initial=0)} to {offset.max(initial=0)}, limit 0 to {_OFFSET_MASK}",
            ],
        )


def _spread(accesses: _Accesses, solver: _Solver) -> tuple[Ints, Ints, Ints]:
    """Return consumer, producer and rank of strength of all edges."""
    starts, place = accesses.starts, accesses.tokens & _PLACE_MASK
    sizes = np.diff(starts)
    if not len(sizes):
        return starts[:0], starts[:0], starts[:0]
    is_one = np.minimum.reduceat(place, starts[:-1]) == np.maximum.reduceat(place, starts[:-1])
    rows = np.flatnonzero(np.repeat(is_one, sizes))
    is_write = (accesses.tokens[rows] & _WRITE_BIT) != 0
    found = _at_one_place(accesses.record[rows], is_write, sizes[is_one]), _at_places(accesses, ~is_one, solver)
    consumers, producers, ranks = (np.concatenate(column) for column in zip(*found, strict=True))
    return consumers, producers, ranks


def _at_one_place(record: Ints, is_write: NDArray[np.bool_], sizes: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the edges of groups whose accesses all go to one place.

    Each access waits for the last write before it, and each write for the reads since then.
    """
    count = len(record)
    row, ends = np.arange(count), np.cumsum(sizes)
    before, after = np.full(count, -1), np.full(count, count)
    before[1:] = np.maximum.accumulate(np.where(is_write, row, -1))[:-1]
    after[:-1] = np.minimum.accumulate(np.where(is_write, row, count)[::-1])[::-1][1:]
    waits = np.flatnonzero(before >= np.repeat(ends - sizes, sizes))
    reads = np.flatnonzero(~is_write & (after < np.repeat(ends, sizes)))
    consumer = record[np.concatenate([waits, after[reads]])]
    producer = record[np.concatenate([before[waits], reads])]
    rank = np.concatenate([np.where(is_write[waits], _WAW, _RAW), np.full(len(reads), _WAR)])
    others = consumer != producer
    return consumer[others], producer[others], rank[others]


def _at_places(accesses: _Accesses, which: NDArray[np.bool_], solver: _Solver) -> tuple[Ints, Ints, Ints]:
    """Return the edges of groups that go to several places; groups that are alike are solved once."""
    starts, tokens = accesses.starts, accesses.tokens.tobytes()
    groups = np.flatnonzero(which)
    borders = zip((8 * starts[groups]).tolist(), (8 * starts[groups + 1]).tolist(), strict=True)
    keys = [tokens[first:end] for first, end in borders]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    chosen = np.array([numbers[key] for key in keys], dtype=np.int64)
    templates = [solver.solve(np.frombuffer(key, dtype=np.int64)) for key in numbers]
    edges = np.concatenate([starts[:0], *templates])
    sizes = np.array([len(template) for template in templates], dtype=np.int64)
    firsts = np.cumsum(sizes) - sizes
    counts = sizes[chosen]
    shift = firsts[chosen] - (np.cumsum(counts) - counts)
    row = edges[np.arange(counts.sum()) + np.repeat(shift, counts)]
    base = np.repeat(starts[groups], counts)
    consumer = accesses.record[base + (row >> _CONSUMER_SHIFT)]
    producer = accesses.record[base + ((row >> _RANK_BITS) & _POSITION_MASK)]
    return consumer, producer, row & _RANK_MASK


class _Place:
    """A region at an offset of one storage, and what the accesses so far have left there.

    Attributes:
        writers: by place, the last write to each meeting place, without those that a later one stands for.
        readers: reads of this very place that a write to a meeting place has to wait for.
        changed: whether a meeting place was written since the last of ``readers``.
        near: meeting places, itself included, and whether a write here covers them.
    """

    __slots__ = ("changed", "near", "readers", "writers")

    def __init__(self) -> None:
        self.writers: dict[int, int] = {}
        self.readers: list[int] = []
        self.changed = False
        self.near: list[tuple[_Place, bool]] = [(self, True)]


class _Solver:
    """Finds the edges within one storage.

    A read waits for the place's writers. A write waits for the place's writers and for the readers of all
    meeting places; then it becomes a writer of these. What it stands for from then on:

    - It covers the place: all earlier accesses there, as whoever conflicts with one conflicts with the write.
    - Somebody has read the place since its last writer: the writers, as the reader waited for them and the
      write waits for the reader.

    And a read of a place that changed since its last readers stands for these, as a write it waits for waited
    for them.

    So each write is handed out to the places it meets and picked up once per round of reads there.
    """

    def __init__(self, geometries: Sequence[Region]) -> None:
        self._geometries = geometries
        self._relations: dict[tuple[int, int, int], int] = {}
        self.exact_tests = 0

    def solve(self, tokens: Ints) -> Ints:
        """Return edges as integers: consumer, producer (positions in the group) and strength, in bit fields."""
        keys, which = np.unique(tokens & _PLACE_MASK, return_inverse=True)
        places = [_Place() for _ in keys]
        self._connect(keys.tolist(), places)
        leaders = np.maximum.accumulate(np.where(tokens < _SAME_BIT, np.arange(len(tokens)), 0))
        is_write = (tokens & _WRITE_BIT) != 0
        turn = int(np.flatnonzero(is_write)[-1]) + 1 if is_write.any() else 0
        edges: list[int] = []
        steps = (column[:turn].tolist() for column in (leaders, is_write, which))
        for leader, write, place in zip(*steps, strict=True):
            _step(leader, write, places[place], edges)
        # nobody waits for the reads behind the last write: most accesses to a tile of weights
        return np.concatenate([np.array(edges, dtype=np.int64), *_last_reads(leaders, which, turn, places)])

    def _connect(self, keys: list[int], places: list[_Place]) -> None:
        """Fill in which places meet: of all pairs where they are few, else of those whose boxes overlap."""
        regions = [(self._geometries[key >> (_OFFSET_BITS + 1)], key & _OFFSET_MASK) for key in keys]
        pairs = combinations(range(len(keys)), 2) if len(keys) <= _FEW_PLACES else candidates(regions)
        for i, j in pairs:
            flags = self._relation(keys[i], keys[j])
            if flags:
                places[i].near.append((places[j], bool(flags & COVERS)))
                places[j].near.append((places[i], bool(flags & COVERED)))

    def _relation(self, first: int, second: int) -> int:
        """Compare two places byte for byte, once per pair of regions and distance."""
        self.exact_tests += 1
        geometry, other = first >> (_OFFSET_BITS + 1), second >> (_OFFSET_BITS + 1)
        distance = (second & _OFFSET_MASK) - (first & _OFFSET_MASK)
        key = (geometry, other, distance)
        flags = self._relations.get(key)
        if flags is None:
            flags = relation(self._geometries[geometry], self._geometries[other], distance)
            self._relations[key] = flags
        return flags


def _last_reads(leaders: Ints, which: Ints, turn: int, places: list[_Place]) -> Iterator[Ints]:
    """Yield the edges of reads from a position on, by place and writer."""
    order = turn + np.argsort(which[turn:], kind="stable")
    borders = np.searchsorted(which[order], np.arange(len(places) + 1)).tolist()
    for place, first, end in zip(places, borders[:-1], borders[1:], strict=True):
        me = leaders[order[first:end]]
        for writer in place.writers.values():
            yield me[me != writer] << _CONSUMER_SHIFT | writer << _RANK_BITS | _RAW


def _step(me: int, is_write: bool, here: _Place, edges: list[int]) -> None:
    """Wait for what one access conflicts with, and leave behind what later ones have to wait for."""
    base = me << _CONSUMER_SHIFT
    rank = _WAW if is_write else _RAW
    edges.extend(base | writer << _RANK_BITS | rank for writer in here.writers.values() if writer != me)
    if not is_write:
        if here.changed:
            here.readers, here.changed = [me], False
        else:
            here.readers.append(me)
        return
    name = id(here)
    for place, covers in here.near:
        readers = place.readers
        if readers:
            edges.extend(base | reader << _RANK_BITS | _WAR for reader in readers if reader != me)
        if covers:
            place.writers, place.readers, place.changed = {name: me}, [], False
        else:
            if readers and not place.changed:
                place.writers = {}
            place.writers[name] = me
            place.changed = True
