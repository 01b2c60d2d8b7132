"""A program that does not fit on the chip, with what the compiler of NKI 0.1 added: tiles go elsewhere and come back.

What has no room in PSUM goes to SBUF, and what has none there goes to HBM. A sum that is complete is read in SBUF from
then on; what is added to, and what has gone to HBM, comes back. What moves, and when, says
:func:`neurosim.analysis.spills.spill_moves`. Each move is an instruction like any other, a copy by Vector or Scalar or
a DMA, before the record that needs the room or the tile. A tile that has come back is another storage from then on, so
that its old space is free while it is away. No value depends on it.

That the compiler copies sums to SBUF is *assumed*: no engine moves bytes from PSUM to HBM, and nobody published what
it did with more sums than there is room for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neurosim.analysis.lifetimes import SPILL, moves_to_fit
from neurosim.analysis.spills import Move, Traffic, traffic_of
from neurosim.chip import Chip, psum_bytes
from neurosim.engines import Engine, Memory, usual_trigger
from neurosim.program import Access, Pattern, Program, Signature, StorageInfo
from neurosim.work import Lanewise, Stream, Transfer

Ints = NDArray[np.int64]

_HARDWARE: Final = 3
"""The first generation whose hardware makes descriptors; before, rings are ready for addresses that are known."""


class Spills(NamedTuple):
    """What goes from SBUF to HBM and comes back, and what from PSUM to SBUF."""

    sbuf: Traffic
    psum: Traffic


class _Added(NamedTuple):
    """Instructions that are added: before which records, which signatures, and pairs of storages, target and source."""

    records: Ints
    signatures: Ints
    pairs: Ints


class _Back(NamedTuple):
    """Tiles that moved: a key that grows by tile and record, the tile, and its storage from that record on."""

    keys: Ints
    tiles: Ints
    storages: Ints


def spill(program: Program, chip: Chip) -> Spills | None:
    """Add its spills to a program, and return what they move; None where that does not help, and it stays as it is.

    It does not where several cores run, and where one instruction alone needs more than there is.
    """
    to_sbuf = moves_to_fit(program, Memory.psum, psum_bytes(chip))
    if to_sbuf is None:
        return None
    made = program.copy() if to_sbuf else program
    psum = _add(made, Memory.psum, to_sbuf, chip)
    to_hbm = moves_to_fit(made, Memory.sbuf, chip.sbuf.usable_bytes)
    if to_hbm is None:
        return None
    sbuf = _add(made, Memory.sbuf, to_hbm, chip)
    vars(program).update(vars(made))
    return Spills(sbuf, psum)


def _add(program: Program, memory: Memory, moves: list[Move], chip: Chip) -> Traffic:
    """Add the moves from one memory to a program, and return how much they move."""
    traffic = traffic_of(program, moves)
    if not traffic.written_bytes:
        return traffic
    added, back = _expanded(program, [move for move in moves if move.copied], chip)
    operands = np.array(program.slots, dtype=np.int64).reshape(-1, 2)
    starts = np.array(program.slot_starts, dtype=np.int64) // 2
    operands[:, 0] = _renamed(operands[:, 0], np.repeat(np.arange(len(program)), np.diff(starts)), back)
    if memory is Memory.psum:
        _read_copies(program, operands[:, 0], starts)
    _insert(program, added, operands, starts)
    return traffic


def _expanded(program: Program, moves: list[Move], chip: Chip) -> tuple[_Added, _Back]:
    """Return the instructions of all moves, whose signatures and storages the program gets, and what comes back."""
    signatures: dict[Signature, int] = {}
    now: dict[int, int] = {}
    homes: dict[int, int] = {}
    numbers, pairs, back = [], [], []
    for move in moves:
        info = program.storages[move.tile]
        if move.tile not in homes:
            homes[move.tile] = len(program.storages)
            program.storages.append(_home(program, move.tile, info))
        pair = homes[move.tile], now.get(move.tile, move.tile)
        if move.leaves and info.memory is Memory.psum:
            back.append((move.tile * len(program) + move.record, move.tile, homes[move.tile]))
        if not move.leaves:
            now[move.tile] = len(program.storages)
            program.storages.append(info)
            pair = now[move.tile], homes[move.tile]
            back.append((move.tile * len(program) + move.record, move.tile, now[move.tile]))
        signature = _copy(info, move.leaves) if info.memory is Memory.psum else _dma(info, chip, move.leaves)
        numbers.append(signatures.setdefault(signature, len(program.signatures) + len(signatures)))
        pairs.append(pair)
    program.signatures.extend(signatures)
    columns = np.array(sorted(back), dtype=np.int64).reshape(-1, 3).T
    records = np.array([move.record for move in moves], dtype=np.int64)
    return _Added(records, np.array(numbers, dtype=np.int64), np.array(pairs, dtype=np.int64)), _Back(*columns)


def _home(program: Program, tile: int, info: StorageInfo) -> StorageInfo:
    """Return what a tile goes to: a tile in SBUF, or a tensor in HBM."""
    size_bytes = info.row_bytes * info.partitions
    name = f"{program.label(tile)} spilled"
    if info.memory is Memory.psum:
        return replace(info, name=name, memory=Memory.sbuf)
    return replace(info, name=name, memory=Memory.hbm, partitions=0, row_bytes=size_bytes)


def _copy(info: StorageInfo, leaves: bool) -> Signature:
    """Return the copy of a whole tile between PSUM and SBUF, by the engine that has less to do."""
    size_bytes = info.dtype.size_bytes
    elements = info.row_bytes // size_bytes
    target, source = (Memory.sbuf, Memory.psum) if leaves else (Memory.psum, Memory.sbuf)
    patterns = tuple(
        Pattern(role, access, memory, info.dtype, (info.partitions, elements), (1, 1), 0, 0, info.row_bytes)
        for role, access, memory in (("dst", Access.WRITE, target), ("src", Access.READ, source))
    )
    output, read = (Stream(info.dtype, memory, size_bytes, contiguous=True) for memory in (target, source))
    engines = frozenset({Engine.vector, Engine.scalar})
    work = Lanewise("copy", elements, (read,), output)
    return Signature("tensor_copy", patterns, ((SPILL, leaves),), Engine.vector, engines, (work,))


def _dma(info: StorageInfo, chip: Chip, leaves: bool) -> Signature:
    """Return the DMA of a whole tile, triggered as DMAs of the kernel's own tensors are (``timing/triggers.py``)."""
    elements = info.row_bytes // info.dtype.size_bytes
    pieces = -(-info.row_bytes // chip.dma.descriptor_max_bytes)
    shape, tile, home = (info.partitions, elements), Memory.sbuf, Memory.hbm
    target, source = (home, tile) if leaves else (tile, home)
    sides = (("dst", Access.WRITE, target), ("src", Access.READ, source))
    patterns = tuple(
        Pattern(role, access, memory, info.dtype, shape, (1, 1), 0, 0, info.row_bytes)
        if memory.is_on_chip
        else Pattern(role, access, memory, info.dtype, shape, (elements, 1), -1, 0, 0)
        for role, access, memory in sides
    )
    size_bytes = info.row_bytes * info.partitions
    generation = "hwdge" if chip.generation >= _HARDWARE else "none"
    descriptors, descriptor_bytes = info.partitions * pieces, -(-info.row_bytes // pieces)
    work = Transfer(descriptors, descriptor_bytes, size_bytes, size_bytes, source, target, generation)
    engine = usual_trigger(source)
    return Signature("dma_copy", patterns, ((SPILL, leaves),), engine, frozenset({engine}), (work,))


def _renamed(storages: Ints, records: Ints, back: _Back) -> Ints:
    """Return, by operand, the storage that its tile is in at its record."""
    count = int(records.max(initial=-1)) + 1
    rows = np.searchsorted(back.keys, storages * count + records, side="right") - 1
    came = (rows >= 0) & (back.tiles[rows] == storages)
    return np.where(came, back.storages[rows], storages)


def _read_copies(program: Program, storages: Ints, starts: Ints) -> None:
    """Let instructions whose operands are in SBUF now read them there: they take the time that this takes."""
    in_sbuf = program.storages.column(lambda info: info.memory is Memory.sbuf, bool)[storages]
    made: dict[tuple[int, tuple[bool, ...]], int] = {}
    ids = program.signature_ids
    for record in np.unique(np.searchsorted(starts, np.flatnonzero(in_sbuf), side="right") - 1).tolist():
        old = program.signatures[ids[record]]
        moved = tuple(in_sbuf[starts[record] : starts[record + 1]].tolist())
        if all(pattern.memory is Memory.sbuf for pattern, here in zip(old.patterns, moved, strict=True) if here):
            continue
        key = ids[record], moved
        if key not in made:
            made[key] = len(program.signatures)
            program.signatures.append(_of_copies(old, moved))
        ids[record] = made[key]


def _of_copies(signature: Signature, moved: tuple[bool, ...]) -> Signature:
    """Return a signature some of whose operands are in SBUF."""
    patterns = tuple(
        replace(pattern, memory=Memory.sbuf) if here else pattern
        for pattern, here in zip(signature.patterns, moved, strict=True)
    )
    reads_psum = any(each.memory is Memory.psum and each.access is Access.READ for each in patterns)
    work = tuple(
        replace(item, inputs=tuple(replace(stream, memory=Memory.sbuf) for stream in item.inputs))
        if isinstance(item, Lanewise) and not reads_psum
        else item
        for item in signature.work
    )
    return replace(signature, patterns=patterns, work=work)


def _insert(program: Program, added: _Added, operands: Ints, starts: Ints) -> None:
    """Insert records before others, at whose place in the kernel they are, and move what points to records."""
    at, count = added.records, len(program)
    pairs = np.stack([added.pairs, np.zeros_like(added.pairs)], axis=2).reshape(-1, 2)
    operands = np.insert(operands, np.repeat(starts[at], 2), pairs, axis=0)
    sizes = np.insert(np.diff(starts), at, 2)
    for name in ("cores", "stack_ids", "blocks", "trip_ids"):
        column = np.array(getattr(program, name))
        program.put(**{name: np.insert(column, at, column[at])})
    program.put(
        signature_ids=np.insert(np.array(program.signature_ids), at, added.signatures),
        slots=operands.reshape(-1),
        slot_starts=np.concatenate([[0], 2 * np.cumsum(sizes)]),
    )
    places = np.arange(count + 1) + np.searchsorted(at, np.arange(count + 1), side="right")
    program.names = {int(places[record]): name for record, name in program.names.items()}
    program.edges = [(int(places[consumer]), int(places[producer])) for consumer, producer in program.edges]
    begins = np.arange(count + 1) + np.searchsorted(at, np.arange(count + 1), side="left")
    program.iterations = [
        replace(each, first=int(begins[each.first]), end=int(begins[each.end])) for each in program.iterations
    ]
