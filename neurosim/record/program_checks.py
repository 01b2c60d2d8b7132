"""Whether a program from a file holds together: every number is one that a run could have recorded.

All raise :class:`Malformed`, with what is wrong. A program that passes can be timed, reported and listed like any
other; that its work fits its operands is not checked.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from neurosim.engines import Engine, Memory
from neurosim.program import Pattern, Program, Signature, StorageInfo
from neurosim.record.encoding import MOST, Malformed
from neurosim.record.storages import MOST_BYTES
from neurosim.work import AccumulatorRead, Control, Handshake, Lanewise, Matmul, Transfer, Work

Ints = NDArray[np.int64]

ROLES: Final = ("input", "output", "plane", "state", "tile")

_CONTROLS: Final = {
    ("move", "STATE"), ("turn", "STATE"), ("load", "SBUF"), ("load", "HBM"), ("store", "SBUF"), ("store", "HBM")
}  # fmt: skip
_MOST_PARTITIONS: Final = 1024
_MOST_WORK: Final = 1 << 49
"""Elements and bytes of a whole program: no law makes more than 2⁶³ picoseconds (106 days) of it."""


def check(program: Program) -> None:
    """Check a program whose columns are as long as its records and point into its tables."""
    for storage in program.storages:
        _check_storage(storage, len(program.stacks))
    for number, trip in enumerate(program.trips):
        if not (-1 <= trip.parent < number and 0 <= trip.stack < len(program.stacks) and trip.number >= 0):
            raise Malformed(f"a trip of a loop that cannot be: {trip}")
    _check_iterations(program)
    for signature in program.signatures:
        _check_signature(signature)
    _check_operands(program)
    _check_meetings(program)
    counts = np.bincount(np.array(program.signature_ids, dtype=np.int64), minlength=len(program.signatures))
    amounts = [sum(map(_amount, signature.work)) for signature in program.signatures]
    total = sum(count * amount for count, amount in zip(counts.tolist(), amounts, strict=True))
    if total > _MOST_WORK:
        raise Malformed(f"{total} elements and bytes of work")


def _check_iterations(program: Program) -> None:
    """Check that iterations are of their loop, one after the other, and hold records that there are."""
    for index, one in enumerate(program.iterations):
        if not (
            0 <= one.entered <= index
            and (one.number == 0) == (one.entered == index)
            and program.iterations[one.entered].stack == one.stack
            and program.iterations[one.entered].core == one.core
            and one.number >= 0
            and 0 <= one.stack < len(program.stacks)
            and program.stacks[one.stack]
            and 0 <= one.first <= one.end <= len(program)
        ):
            raise Malformed(f"an iteration of a loop that cannot be: {one}")


def _check_meetings(program: Program) -> None:
    """Check that meetings follow one another, and that each is of two cores' neighbouring records."""
    end = 0
    for first, count in program.meetings:
        if first < end or count != 2 or first + count > len(program):
            raise Malformed(f"a meeting of {count} records from record {first} on")
        if program.cores[first] == program.cores[first + 1]:
            raise Malformed(f"a meeting of core {program.cores[first]} with itself, at record {first}")
        end = first + count


def check_range(what: str, values: Ints, least: int, end: int) -> None:
    """Check that all values are at least ``least`` and below ``end``."""
    bad = np.flatnonzero((values < least) | (values >= end))
    if len(bad):
        raise Malformed(f"{what} {values[bad[0]]} of record {bad[0]} is not within {least} to {end - 1}")


def _check_storage(storage: StorageInfo, stacks: int) -> None:
    partitioned = storage.memory.is_on_chip
    if not (
        0 <= storage.row_bytes <= MOST_BYTES
        and 0 <= storage.stack < stacks
        and (1 if partitioned else 0) <= storage.partitions <= (_MOST_PARTITIONS if partitioned else 0)
        and all(0 <= extent < MOST for extent in storage.shape)
        and storage.role in ROLES
    ):
        raise Malformed(f"a tensor that cannot be: {storage}")


def _check_signature(signature: Signature) -> None:
    for pattern in signature.patterns:
        _check_pattern(pattern)
    if signature.engine in (Engine.unknown, Engine.dma) or not signature.work:
        raise Malformed(f"{signature.instruction} on {signature.engine.name} with {len(signature.work)} pieces of work")
    if any(isinstance(work, Transfer) for work in signature.work) and not signature.patterns:
        raise Malformed(f"{signature.instruction} moves data of no operand")
    for work in signature.work:
        _check_work(work)


def _check_pattern(pattern: Pattern) -> None:
    axes = len(pattern.shape)
    if len(pattern.steps) != axes or axes > 64 or not all(1 <= extent < MOST_BYTES for extent in pattern.shape):
        raise Malformed(f"shape {pattern.shape} and steps {pattern.steps} of {pattern.role}")
    axis = pattern.partition_axis
    if not (0 <= axis < axes if pattern.memory.is_on_chip else axis == -1 and pattern.start_partition == 0):
        raise Malformed(f"partition axis {axis} of {pattern.role} in {pattern.memory.label}")
    if pattern.memory.is_on_chip:
        last = pattern.start_partition + (pattern.shape[axis] - 1) * pattern.steps[axis]
        if min(pattern.start_partition, last) < 0 or max(pattern.start_partition, last) >= _MOST_PARTITIONS:
            raise Malformed(f"partitions {pattern.start_partition} to {last} of {pattern.role}")


def _check_work(work: Work) -> None:
    """Check what the laws divide by or take the largest of; all other numbers only have to be counts."""
    good = True
    counts: tuple[int, ...]
    match work:
        case AccumulatorRead():
            counts = (work.partitions,)
        case Handshake():
            counts = (work.size_bytes,)
        case Lanewise():
            streams = (*work.inputs, *([work.output] if work.output is not None else []))
            good, counts = bool(streams), (work.elements, work.pointers, *(stream.step_bytes for stream in streams))
        case Matmul():
            good = work.loads >= 1 and work.passes >= 1 and work.depth >= 1
            tile = (work.tile_row, work.tile_column, work.tile_rows, work.tile_columns)
            sizes = (work.rows, work.columns, work.moving, work.passes, work.loads, work.flops)
            steps = (work.moving_step_bytes, work.stationary_step_bytes, work.result_step_bytes)
            counts = (*sizes, *steps, work.depth, *tile)
        case Transfer():
            good = work.descriptors >= 1 and work.generation in ("hwdge", "swdge", "none")
            counts = (work.descriptors, work.descriptor_bytes, work.read_bytes, work.written_bytes)
        case Control():
            good, counts = (work.law, "HBM" if work.memory.is_hbm else work.memory.label) in _CONTROLS, ()
    if not good or not all(0 <= count <= _MOST_WORK for count in counts):
        raise Malformed(f"work that cannot be: {work}")


def _amount(work: Work) -> int:
    """Return elements, bytes and pieces of some work, each of which costs time."""
    match work:
        case AccumulatorRead() | Control():
            return 1
        case Handshake():
            return 1 + work.size_bytes
        case Lanewise():
            return work.elements + work.pointers
        case Matmul():
            return work.passes * (work.moving + work.columns) + work.loads
        case Transfer():
            return work.descriptors * max(work.descriptor_bytes, 1) + work.read_bytes + work.written_bytes


def _reach(pattern: Pattern) -> tuple[int, int]:
    """Return the first byte of a pattern and one past its last, relative to the slot's offset."""
    size = pattern.dtype.size_bytes
    reaches = [
        step * size * (extent - 1)
        for axis, (step, extent) in enumerate(zip(pattern.steps, pattern.shape, strict=True))
        if axis != pattern.partition_axis
    ]
    low, high = sum(min(reach, 0) for reach in reaches), sum(max(reach, 0) for reach in reaches) + size
    if max(-low, high) > MOST_BYTES:
        raise Malformed(f"{pattern.role} reaches {high - low} bytes")
    return low, high


def _check_operands(program: Program) -> None:
    """Check that every operand lies within its storage."""
    patterns = [pattern for signature in program.signatures for pattern in signature.patterns]
    storages = program.storages
    slots = np.array(program.slots, dtype=np.int64).reshape(-1, 2)
    record, number = _numbered(program)
    storage, offset = slots[:, 0], slots[:, 1]
    outside = np.flatnonzero((storage < 0) | (storage >= len(storages)) | (offset < 0) | (offset > MOST_BYTES))
    if not len(outside) and len(slots):
        reach = np.array([_reach(pattern) for pattern in patterns], dtype=np.int64).reshape(-1, 2)[number]
        last = np.array([_last_partition(pattern) for pattern in patterns], dtype=np.int64)[number]
        memories = {memory: index for index, memory in enumerate(Memory)}
        wanted = np.array([memories[pattern.memory] for pattern in patterns])[number]
        memory = storages.column(lambda info: memories[info.memory])[storage]
        rows = storages.column(lambda info: info.row_bytes)[storage]
        partitions = storages.column(lambda info: info.partitions)[storage]
        fits = (offset + reach[:, 0] >= 0) & (offset + reach[:, 1] <= rows) & (last < np.maximum(partitions, 1))
        outside = np.flatnonzero(~fits | (wanted != memory))
    if len(outside):
        place = outside[0]
        raise Malformed(f"operand {patterns[number[place]].role} of record {record[place]} lies outside of its tensor")


def _last_partition(pattern: Pattern) -> int:
    if not pattern.memory.is_on_chip:
        return 0
    extent, step = pattern.shape[pattern.partition_axis], pattern.steps[pattern.partition_axis]
    return pattern.start_partition + max((extent - 1) * step, 0)


def _numbered(program: Program) -> tuple[Ints, Ints]:
    """Return, by operand, its record and the number of its pattern among those of all signatures."""
    signatures = np.array(program.signature_ids, dtype=np.int64)
    sizes = np.array([len(signature.patterns) for signature in program.signatures], dtype=np.int64)
    counts = sizes[signatures] if len(signatures) else signatures
    shift = (np.cumsum(sizes) - sizes)[signatures] - (np.cumsum(counts) - counts) if len(signatures) else signatures
    return np.repeat(np.arange(len(signatures)), counts), np.arange(counts.sum()) + np.repeat(shift, counts)
