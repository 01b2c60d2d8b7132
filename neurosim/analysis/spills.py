"""What a program that does not fit moves to HBM and back: for the error that refuses it, and to time old kernels.

Whenever a record needs room, the tile whose next access is farthest away goes (Belady), whole; it is written only if
its contents have changed since it went last. A compiler that looks less far ahead moves more; one that knows that a
tile will be overwritten as a whole, or that splits tiles, less. In profiles of the kernels of zhang677/AccelOpt@47e29a7
on trn1, the compiler saved and loaded 754 and 757 MB of bmm_softmax, 1099 and 1127 MB of gqa_full, 67 and 84 MB of
swiglu; this rule moves 688 and 689, 1119 and 1161, 32 and 32 MB.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from heapq import heappop, heappush
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from neurosim.analysis.dependences import Operands
from neurosim.program import Program


class Traffic(NamedTuple):
    """Bytes that would be written to HBM, and read again."""

    written_bytes: int
    read_bytes: int


class Move(NamedTuple):
    """A tile that leaves the chip or comes back to it, before a record.

    Attributes:
        record: the one that needs the room, or the tile.
        tile: its storage.
        leaves: whether it goes.
        copied: whether its bytes move: those that are in HBM already need not be written again.
    """

    record: int
    tile: int
    leaves: bool
    copied: bool


def spill_traffic(program: Program, tiles: Collection[int], core: int, limit_bytes: int) -> Traffic | None:
    """Estimate what has to move so that tiles fit, in program order; None where one instruction alone needs too much.

    Args:
        program: the record.
        tiles: storages that share the space.
        core: whose records count.
        limit_bytes: bytes per partition for them.
    """
    moves = spill_moves(program, tiles, core, limit_bytes)
    return None if moves is None else traffic_of(program, moves)


def traffic_of(program: Program, moves: Iterable[Move]) -> Traffic:
    """Return how much moves."""
    written = read = 0
    for move in moves:
        info = program.storages[move.tile]
        size_bytes = info.row_bytes * info.partitions * move.copied
        written, read = written + size_bytes * move.leaves, read + size_bytes * (not move.leaves)
    return Traffic(written, read)


_CACHE: WeakKeyDictionary[Program, tuple[tuple[object, ...], list[Move] | None]] = WeakKeyDictionary()


def spill_moves(
    program: Program, tiles: Collection[int], core: int, limit_bytes: int, *, read_away: bool = False
) -> list[Move] | None:
    """Return what has to move, in order; None where one instruction alone needs too much. Arguments as above.

    With ``read_away``, a tile that nothing will write again does not come back: it is read where it went.

    The message of a program that does not fit asks first, and what adds its spills right after it.
    """
    key = len(program), tuple(tiles), core, limit_bytes, read_away
    cached = _CACHE.get(program)
    if cached is None or cached[0] != key:
        cached = _CACHE[program] = key, _Walk(program, tiles, limit_bytes, read_away=read_away).run(core)
    return cached[1]


class _Walk:
    """One core's program, record by record: which tiles are in a memory, and what moves when one has no room."""

    def __init__(self, program: Program, tiles: Collection[int], limit_bytes: int, *, read_away: bool = False) -> None:
        self.program, self.read_away = program, read_away
        self.tiles = set(tiles)
        self.free = limit_bytes
        self.uses: dict[int, list[int]] = defaultdict(list)  # by tile, its records, last first
        self.last_write: dict[int, int] = {}
        self.resident: set[int] = set()
        self.away: set[int] = set()  # for good
        self.changed: set[int] = set()
        self.seen: set[int] = set()
        self.farthest: list[tuple[int, int]] = []  # (-next record, tile), also of tiles that have moved on
        self.moves: list[Move] = []

    def run(self, core: int) -> list[Move] | None:
        accesses = self._accesses(core)
        for record in sorted(accesses, reverse=True):
            for tile, is_written in accesses[record].items():
                self.uses[tile].append(record)
                if is_written:
                    self.last_write.setdefault(tile, record)
        for record in sorted(accesses):
            if not all(self._bring(record, tile, accesses[record]) for tile in sorted(accesses[record])):
                return None
            self._let_go(accesses[record])
        return self.moves

    def _accesses(self, core: int) -> dict[int, dict[int, bool]]:
        """Return, by record, its tiles, and whether it writes them."""
        operands = Operands.of(self.program)
        is_write = operands.is_write(self.program)
        mine = np.isin(operands.storage, list(self.tiles))
        mine &= np.array(self.program.cores, dtype=np.int64)[operands.record] == core
        found: dict[int, dict[int, bool]] = defaultdict(dict)
        columns = (operands.record, operands.storage, is_write)
        for record, tile, write in zip(*(column[mine].tolist() for column in columns), strict=True):
            found[record][tile] = found[record].get(tile, False) or write
        return found

    def _bring(self, record: int, tile: int, needed: dict[int, bool]) -> bool:
        """Make room for a tile that a record needs, and bring it back if it was here before."""
        if tile in self.away:
            return True
        if tile not in self.resident:
            info = self.program.storages[tile]
            while self.free < info.row_bytes:
                if not self._evict(record, needed):
                    return False
            self.free -= info.row_bytes
            self.resident.add(tile)
            if tile in self.seen:
                self.moves.append(Move(record, tile, leaves=False, copied=True))
            self.seen.add(tile)
        if needed[tile]:
            self.changed.add(tile)
        return True

    def _evict(self, record: int, needed: dict[int, bool]) -> bool:
        """Send away the tile that is needed last of all; return whether there is one that this record does not need."""
        kept = []
        found = False
        while self.farthest and not found:
            entry = heappop(self.farthest)
            tile = entry[1]
            if tile not in self.resident or not self.uses[tile] or self.uses[tile][-1] != -entry[0]:
                continue  # it has gone or moved on
            if tile in needed:
                kept.append(entry)
                continue
            info = self.program.storages[tile]
            self.resident.discard(tile)
            self.free += info.row_bytes
            self.moves.append(Move(record, tile, leaves=True, copied=tile in self.changed))
            self.changed.discard(tile)
            if self.read_away and self.last_write.get(tile, -1) < record:
                self.away.add(tile)
            found = True
        for entry in kept:
            heappush(self.farthest, entry)
        return found

    def _let_go(self, used: dict[int, bool]) -> None:
        """Free the tiles that nothing needs any more, and note when the others are needed next."""
        for tile in used:
            self.uses[tile].pop()
            if tile in self.away:
                continue
            if self.uses[tile]:
                heappush(self.farthest, (-self.uses[tile][-1], tile))
            else:
                self.resident.discard(tile)
                self.free += self.program.storages[tile].row_bytes
