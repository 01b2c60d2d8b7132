"""From when to when each tile takes space on the chip, and whether all of them fit.

A tile takes its bytes from its first write to its last access, both inclusive. Whether a program fits is
decided here, in program order; timing uses the same lifetimes to let loads run ahead as far as space allows.

Tiles are counted as if all began at partition 0. Where a program fits only otherwise, tiles in SBUF of at most 64
partitions lie side by side (two of 64, four of 32), as compilers since NKI 0.3 must place them: nki-library's RoPE
(``core/embeddings/rope.py`` at d2ad3a5, with its tests' limit ``B * n_heads * S <= 73728`` on trn2, above which they
say it is out of memory) has one tile of 128 and four of 64 partitions live, each of up to 72 KiB, in 224 KiB.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from neurosim.analysis.dependences import Operands
from neurosim.analysis.spills import Move, spill_moves, spill_traffic
from neurosim.engines import Memory
from neurosim.errors import CapacityExceeded
from neurosim.program import Program
from neurosim.versions import NKI_0_1

Ints = NDArray[np.int64]

SPILL: Final = "spill"
"""Parameter of an instruction that moves a tile that has no room; true where the tile leaves."""

SPILLS: Final = "Capacity"
"""Key of the note on a program whose tiles do not fit: its space has no limit here, and says so."""

_PARTITIONS: Final = 128
_LISTED: Final = 12
_ADVICE: Final = {
    Memory.sbuf: "a tile is live from its first write to its last access: use the largest ones sooner after "
    "they are written, or split them into smaller blocks",
    Memory.psum: "copy results to SBUF before starting the next ones, or accumulate in smaller tiles",
}


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """When tiles in SBUF and PSUM take and give back their space.

    Attributes:
        tiles: storage ids, ascending.
        starts: per tile, the record that writes it first, and so takes its space.
        ends: the last record that reads or writes it; the space is free when that one has ended.
        sizes_bytes: bytes that it takes in each partition.
    """

    tiles: Ints
    starts: Ints
    ends: Ints
    sizes_bytes: Ints


@dataclass(frozen=True, slots=True)
class Peak:
    """The fullest moment of one memory.

    Attributes:
        limit_bytes: bytes per partition that there are.
        bytes: bytes per partition in use, planes included.
        plane_bytes: the part of ``bytes`` that tensors with an address reserve.
        record: the first record at which that many are in use, -1 where none ever is.
        core: where.
        filled: share of the bytes of all 128 partitions in use at that record, 0 to 1.
    """

    limit_bytes: int
    bytes: int
    plane_bytes: int
    record: int
    core: int
    filled: float


@dataclass(frozen=True, slots=True)
class Usage:
    """Peak use of the on-chip memories; of several cores, the fullest."""

    sbuf: Peak
    psum: Peak


_CACHE: WeakKeyDictionary[Program, tuple[int, Lifetimes]] = WeakKeyDictionary()
_PEAKS: WeakKeyDictionary[Program, tuple[int, dict[Memory, int]]] = WeakKeyDictionary()


def lifetimes(program: Program) -> Lifetimes:
    """Return the lifetimes of a program's tiles, computed again only if it has grown."""
    cached = _CACHE.get(program)
    if cached is None or cached[0] != len(program):
        cached = _CACHE[program] = (len(program), _compute(program))
    return cached[1]


def _compute(program: Program) -> Lifetimes:
    operands = Operands.of(program)
    is_write = operands.is_write(program)
    first = np.full(len(program.storages), -1, dtype=np.int64)
    last = first.copy()
    # Of several values for one index, numpy keeps the last.
    first[operands.storage[is_write][::-1]] = operands.record[is_write][::-1]
    last[operands.storage] = operands.record
    on_chip = program.storages.column(lambda info: info.role == "tile" and info.memory.is_on_chip, bool)
    tiles = np.flatnonzero((first >= 0) & on_chip)
    sizes = program.storages.column(lambda info: info.row_bytes)
    return Lifetimes(tiles, first[tiles], last[tiles], sizes[tiles])


def check_capacity(
    program: Program, chip_name: str, sbuf_bytes: int, psum_bytes: int, only_core: int | None = None
) -> Usage:
    """Walk the program in order and return the peak use of SBUF and PSUM.

    Args:
        program: what to check.
        chip_name: for the message.
        sbuf_bytes, psum_bytes: bytes per partition that the chip has.
        only_core: look at this core; by default at all.

    Raises:
        CapacityExceeded: the live tiles and planes of a core need more, at the first record where they do.
    """
    cores = (sorted(set(program.cores)) or [0]) if only_core is None else [only_core]
    peaks: dict[Memory, Peak] = {}
    for memory, limit in ((Memory.sbuf, sbuf_bytes), (Memory.psum, psum_bytes)):
        walks = [_walk(program, memory, core, limit) for core in cores]
        overflows = [(found, walk) for walk in walks if (found := walk.overflow(limit)) is not None]
        if overflows and SPILLS not in program.notes:
            record, walk = min(overflows, key=lambda overflow: overflow[0])
            raise walk.error(record, chip_name, limit)
        peaks[memory] = max((walk.peak(limit) for walk in walks), key=lambda peak: peak.bytes)
    return Usage(peaks[Memory.sbuf], peaks[Memory.psum])


def moves_to_fit(program: Program, memory: Memory, limit_bytes: int) -> list[Move] | None:
    """Return which tiles have to leave a memory and come back so that a program of one core fits; None if it cannot."""
    cores = set(program.cores)
    if len(cores) != 1:
        return None
    (core,) = cores
    walk = _Walk(program, memory, core)
    if walk.overflow(limit_bytes) is None:
        return []
    read_away = memory is Memory.psum  # engines read SBUF as well, where a tile of PSUM goes to
    return spill_moves(program, walk.tiles.tolist(), core, limit_bytes - walk.plane_bytes, read_away=read_away)


def peak_bytes(program: Program) -> dict[Memory, int]:
    """Return the most bytes per partition that SBUF and PSUM have to hold at once, in program order, on any core."""
    cached = _PEAKS.get(program)
    if cached is None or cached[0] != len(program):
        peaks = {
            memory: max(int(_Walk(program, memory, core).in_use.max(initial=0)) for core in set(program.cores) or (0,))
            for memory in (Memory.sbuf, Memory.psum)
        }
        cached = _PEAKS[program] = (len(program), peaks)
    return cached[1]


def sizes_side_by_side(program: Program) -> Ints:
    """Return what a program's tiles take of SBUF's width, in bytes of all partitions: of 64 half, of 32 a quarter."""
    life = lifetimes(program)
    in_sbuf = program.storages.column(lambda info: info.memory is Memory.sbuf, bool)[life.tiles]
    return np.where(in_sbuf, -(-life.sizes_bytes * _quarters(program, life.tiles) // 4), life.sizes_bytes)


def _quarters(program: Program, tiles: Ints) -> Ints:
    """Return how many quarters of SBUF's partitions tiles reach over: they begin at 0, 32, 64 or 96, or 0 or 64."""
    partitions = program.storages.column(lambda info: info.partitions)[tiles]
    return np.select([partitions <= 32, partitions <= 64], [1, 2], 4)


def _stacked(sizes_bytes: Sequence[int], quarters: Sequence[int]) -> int:
    """Return the bytes per partition of tiles side by side: widest first, then longest, where there is most room."""
    columns = [0, 0, 0, 0]
    for width, size in sorted(zip(quarters, sizes_bytes, strict=True), reverse=True):
        place = min(range(0, 4, width), key=lambda start: columns[start])
        columns[place : place + width] = [columns[place] + size] * width
    return max(columns)


def _walk(program: Program, memory: Memory, core: int, limit: int) -> _Walk:
    """Return a walk, with tiles side by side where they may be and have to."""
    walk = _Walk(program, memory, core)
    if walk.overflow(limit) is not None and memory is Memory.sbuf and program.nki_version > NKI_0_1:
        walk.put_side_by_side(limit)
    return walk


class _Walk:
    """Bytes per partition in use in one memory of one core, record by record.

    Attributes:
        in_use: the bytes, of tiles side by side only where they do not fit otherwise.
    """

    def __init__(self, program: Program, memory: Memory, core: int) -> None:
        self.program, self.memory, self.core = program, memory, core
        life = lifetimes(program)
        is_here = program.storages.column(lambda info: info.memory is memory, bool)[life.tiles]
        is_here &= np.array(program.cores, dtype=np.int64)[life.starts] == core
        self.tiles, self.starts, self.ends, self.sizes_bytes = (
            column[is_here] for column in (life.tiles, life.starts, life.ends, life.sizes_bytes)
        )
        self.planes = _planes(program, memory, core)
        self.plane_bytes = sum(program.storages[plane].reserved_bytes for plane in self.planes)
        self.in_use = self.plane_bytes + self._live()

    def put_side_by_side(self, limit: int) -> None:
        """Let narrow tiles share the width of SBUF at each record that needs more, up to the first where that fails."""
        quarters = _quarters(self.program, self.tiles)
        for record in np.flatnonzero(self.in_use > limit).tolist():
            live = (self.starts <= record) & (record <= self.ends)
            stacked = _stacked(self.sizes_bytes[live].tolist(), quarters[live].tolist())
            self.in_use[record] = self.plane_bytes + stacked
            if self.in_use[record] > limit:
                return

    def _live(self) -> Ints:
        """Return, per record, the bytes of the live tiles."""
        change = np.zeros(len(self.program) + 1, dtype=np.int64)
        np.add.at(change, self.starts, self.sizes_bytes)
        np.subtract.at(change, self.ends + 1, self.sizes_bytes)
        return np.cumsum(change[:-1])

    def overflow(self, limit: int) -> int | None:
        """Return the first record at which more than ``limit`` bytes per partition are in use."""
        over = np.flatnonzero(self.in_use > limit)
        return int(over[0]) if len(over) else None

    def peak(self, limit: int) -> Peak:
        """Return the fullest moment."""
        if not len(self.in_use) or not self.in_use.max():
            return Peak(limit, 0, 0, -1, self.core, 0.0)
        record = int(self.in_use.argmax())
        held = [self.program.storages[storage] for storage in (*self._live_tiles(record), *self.planes)]
        filled = sum(info.reserved_bytes * info.partitions for info in held) / (limit * _PARTITIONS)
        return Peak(limit, int(self.in_use[record]), self.plane_bytes, record, self.core, filled)

    def _live_tiles(self, record: int) -> list[int]:
        found: list[int] = self.tiles[(self.starts <= record) & (record <= self.ends)].tolist()
        return found

    def error(self, record: int, chip_name: str, limit: int) -> CapacityExceeded:
        """Say what was live when the space ran out."""
        program, actual = self.program, int(self.in_use[record])
        instruction = program.signatures[program.signature_ids[record]].instruction
        place = self.memory.label + (f" of core {self.core}" if len(set(program.cores)) > 1 else "")
        over = f"the limit is {limit} ({actual - limit} over)"
        frames = program.where(record)
        line = f"{frames[0].file}:{frames[0].line}" if frames else "an unknown line"
        numbers = [f"{actual} bytes per partition are live at {line} (record {record}); {over}"]
        if self.plane_bytes:
            numbers.append(f"{self.plane_bytes} of these bytes are reserved by tensors with address=")
        if actual < (below := self.plane_bytes + int(self._live()[record])):
            numbers.append(f"that is with tiles of at most 64 partitions side by side; one below the other: {below}")
        return CapacityExceeded(
            f"{instruction}: the live tiles do not fit into {place} of {chip_name}",
            where=[str(frame) for frame in frames],
            numbers=[*numbers, self._spilling(limit), *self._listing(self._live_tiles(record))],
            advice=_ADVICE[self.memory],
        )

    def _spilling(self, limit: int) -> str:
        """Say what a compiler would have to move to make the tiles fit."""
        traffic = spill_traffic(self.program, self.tiles.tolist(), self.core, limit - self.plane_bytes)
        if traffic is None:
            return "one instruction alone needs more than there is: nothing could be spilled"
        return (
            f"spilling whole tiles would write about {traffic.written_bytes} bytes to HBM "
            f"and read {traffic.read_bytes} again"
        )

    def _listing(self, tiles: Sequence[int]) -> list[str]:
        """Describe tiles, largest first; those of one allocation in a loop share a line."""
        alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for tile in tiles:
            info = self.program.storages[tile]
            alike[info.stack, info.shape, info.dtype, info.row_bytes].append(tile)
        sizes = dict(zip(self.tiles.tolist(), self.sizes_bytes.tolist(), strict=True))
        groups = sorted(alike.values(), key=lambda group: -len(group) * sizes[group[0]])
        lines = []
        for group in groups[:_LISTED]:
            info = self.program.storages[group[0]]
            frames = self.program.stacks[info.stack]
            place = f"{frames[0].file}:{frames[0].line}" if frames else "an unknown line"
            more = f" and {len(group) - 1} like it" if len(group) > 1 else ""
            size = f"{len(group)} × {info.row_bytes}" if len(group) > 1 else f"{info.row_bytes}"
            lines.append(
                f"{self.program.label(group[0])}{more}  {info.shape} {info.dtype}  {size} bytes per partition  {place}"
            )
        rest = [tile for group in groups[_LISTED:] for tile in group]
        if rest:
            total = sum(sizes[tile] for tile in rest)
            lines.append(f"and {len(rest)} smaller tiles, {total} bytes per partition")
        return lines


def _planes(program: Program, memory: Memory, core: int) -> list[int]:
    """Return the planes in a memory that a core's records access."""
    is_plane = program.storages.column(lambda info: info.role == "plane" and info.memory is memory, bool)
    planes: list[int] = np.flatnonzero(is_plane).tolist()
    if not planes:
        return []
    operands = Operands.of(program)
    here = np.array(program.cores, dtype=np.int64)[operands.record] == core
    used = set(np.unique(operands.storage[here]).tolist())
    return [plane for plane in planes if plane in used]
