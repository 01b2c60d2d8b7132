"""Which record has to wait for which: the exact dependences of a program, in time linear in its records.

Storages are independent of each other, and most repeat each other: the tile of iteration 7 is written and
read just as the tile of iteration 6. So accesses are grouped by storage, equal sequences of accesses are
solved once, and numpy spreads the answers over the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import combinations
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from neurosim.errors import SimulatorBug
from neurosim.program import Access, Program
from neurosim.regions import COVERED, COVERS, Region, candidates, region_of, relation
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
    for core in np.unique(cores):
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
        begins = np.ones(len(order), dtype=bool)
        begins[1:] = storage[1:] != storage[:-1]
        same = np.zeros(len(order), dtype=bool)
        same[1:] = ~begins[1:] & (record[1:] == record[:-1])
        self.record = record
        self.tokens = (same * _SAME_BIT) | (number << _OFFSET_BITS) | offset
        self.starts = np.append(np.flatnonzero(begins), len(order))


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
    """Solve each distinct group once and return consumer, producer and rank of strength of all edges."""
    starts = accesses.starts.tolist()
    tokens = accesses.tokens.tobytes()
    known: dict[bytes, int] = {}
    templates: list[Ints] = []
    chosen = np.empty(len(starts) - 1, dtype=np.int64)
    for group in range(len(starts) - 1):
        key = tokens[8 * starts[group] : 8 * starts[group + 1]]
        number = known.get(key)
        if number is None:
            number = known[key] = len(templates)
            part = accesses.tokens[starts[group] : starts[group + 1]].tolist()
            templates.append(np.array(solver.solve(part), dtype=np.int64))
        chosen[group] = number
    if not templates:
        empty: Ints = np.empty(0, dtype=np.int64)
        return empty, empty, empty
    edges = np.concatenate(templates)
    sizes = np.array([len(template) for template in templates], dtype=np.int64)
    firsts = np.cumsum(sizes) - sizes
    counts = sizes[chosen]
    shift = firsts[chosen] - (np.cumsum(counts) - counts)
    row = edges[np.arange(counts.sum()) + np.repeat(shift, counts)]
    base = np.repeat(accesses.starts[:-1], counts)
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

    def solve(self, tokens: list[int]) -> list[int]:
        """Return edges as integers: consumer, producer (positions in the group) and strength, in bit fields."""
        if len(tokens) == 1:
            return []
        edges: list[int] = []
        places: dict[int, _Place] = {}
        leaders: list[int] = []
        visited: list[_Place] = []
        leader, last_write = 0, -1
        for position, token in enumerate(tokens):
            if token < _SAME_BIT:
                leader = position
            key = token & _PLACE_MASK
            place = places.get(key)
            if place is None:
                place = places[key] = _Place()
            leaders.append(leader)
            visited.append(place)
            if token & _WRITE_BIT:
                last_write = position
        self._connect(list(places), list(places.values()))
        for position in range(last_write + 1):
            _step(leaders[position], bool(tokens[position] & _WRITE_BIT), visited[position], edges)
        # nobody waits for the reads behind the last write: most accesses to a tile of weights
        for position in range(last_write + 1, len(tokens)):
            me = leaders[position]
            for writer in visited[position].writers.values():
                if writer != me:
                    edges.append(me << _CONSUMER_SHIFT | writer << _RANK_BITS | _RAW)
        return edges

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
