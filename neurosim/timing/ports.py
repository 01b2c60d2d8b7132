"""Ports of SBUF and PSUM at which two engines take turns: which records need one, and for how long.

Vector shares a port of SBUF with GpSimd, and PSUM with Scalar; when they must take turns, the device file says:

- ``always``: with any two instructions that reach the memory.
- ``performance_modes``: an instruction of Vector that passes more than one element per lane and cycle needs the bus
  that GpSimd uses as well.
- ``bank``: with accesses to one bank of PSUM. A tile without an address has banks of its own, as compilers allocate
  them, so that only accesses to one tile collide.

A turn lasts while the instruction's elements pass, not for what else it holds its engine. Nobody published that;
attention kernels of ucb-bar/autocomp on trn1 come to their measured times so, and to 1.4 times these if each turn
waits for a result and a semaphore.

The tensor engine takes no turns: PSUM serves it beside either of the others at full bandwidth, and SBUF likewise
(``trainium_inferentia2_arch.rst:769-771``).

In program order turns go in program order, so that a slower engine never makes another faster. A compiler's schedule
gives them to whoever comes first; of two at the same time, to Vector.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neurosim.analysis.dependences import Operands
from neurosim.analysis.regions import region_of
from neurosim.chip import Chip
from neurosim.engines import Engine, Memory
from neurosim.program import Pattern, Program, Signature
from neurosim.timing.modes import VectorMode, vector_mode
from neurosim.timing.placement import Placement
from neurosim.timing.timeline import ENGINES
from neurosim.work import Lanewise

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_VECTOR: Final = ENGINES.index("vector")
_NEVER: Final = "never"
_ALWAYS: Final = "always"


class Claims(NamedTuple):
    """Which records need which port, by record and then by port; only ports that two engines of a core need.

    Attributes:
        record, port: rows of the same length.
        ports: how many ports there are.
    """

    record: Ints
    port: Ints
    ports: int


def claims(program: Program, placement: Placement, units: Ints, gone: Bools, chip: Chip) -> Claims:
    """Return the claims of a program's records.

    Args:
        program: what is timed.
        placement: the signatures that it is timed with, and by record its own.
        units: by record, its engine, counted over all cores.
        gone: by record, whether it takes no time and no port.
        chip: says when engines take turns.
    """
    found = [*_sbuf(placement, units, gone, chip), *_psum(program, placement, units, gone, chip)]
    records, ports, count = [_none()], [_none()], 0
    for record, port in found:
        names, number = np.unique(port, return_inverse=True)
        keep, number = _contended(number.reshape(-1), units[record], len(names))
        records.append(record[keep])
        ports.append(number + count)
        count += int(number.max(initial=-1)) + 1
    record, port = np.concatenate(records), np.concatenate(ports)
    order = np.lexsort((port, record))
    return Claims(record[order], port[order], count)


def turns(found: Claims, units: Ints) -> tuple[Ints, Ints]:
    """Return (earlier record, later record) for turns in program order, where the engine changes.

    An engine's own order does the rest.
    """
    order = np.argsort(found.port, kind="stable")
    record, port = found.record[order], found.port[order]
    changes = np.flatnonzero((port[1:] == port[:-1]) & (units[record[1:]] != units[record[:-1]]))
    return record[changes], record[changes + 1]


def streaming_cycles(signature: Signature) -> int:
    """Return for how many cycles an instruction's operands stream: the most free elements of any of them."""
    return max((_free_elements(pattern.shape, pattern.partition_axis) for pattern in signature.patterns), default=0)


def _free_elements(shape: tuple[int, ...], partition_axis: int) -> int:
    size = 1
    for axis, extent in enumerate(shape):
        size *= extent if axis != partition_axis else 1
    return size


def _none() -> Ints:
    return np.empty(0, dtype=np.int64)


def _contended(port: Ints, units: Ints, count: int) -> tuple[Ints, Ints]:
    """Return which claims are to ports that more than one engine needs, and these ports numbered anew."""
    both = _used_by_both(port, units, count)
    keep = np.flatnonzero(both[port])
    return keep, (np.cumsum(both) - 1)[port[keep]]


def _sbuf(placement: Placement, units: Ints, gone: Bools, chip: Chip) -> Iterator[tuple[Ints, Ints]]:
    """Yield the claims of Vector and GpSimd to SBUF: a port per core."""
    when = chip.sbuf.vector_gpsimd_turns
    if when == _NEVER:
        return
    needs = np.array([_needs_sbuf(signature, when, chip) for signature in placement.signatures], dtype=bool)
    if _of_two_engines(placement.signatures, needs):
        record = np.flatnonzero(needs[placement.numbers] & ~gone)
        yield record, units[record] // len(ENGINES)


def _of_two_engines(signatures: list[Signature], needs: Bools) -> bool:
    return len({signatures[index].engine for index in np.flatnonzero(needs)}) > 1


def _needs_sbuf(signature: Signature, when: str, chip: Chip) -> bool:
    items = [item for item in signature.work if isinstance(item, Lanewise)]
    if not items or not any(pattern.memory is Memory.sbuf for pattern in signature.patterns):
        return False
    if signature.engine is not Engine.vector:
        return signature.engine is Engine.gpsimd
    return when == _ALWAYS or any(vector_mode(item, chip) is not VectorMode.single for item in items)


def _psum(program: Program, placement: Placement, units: Ints, gone: Bools, chip: Chip) -> Iterator[tuple[Ints, Ints]]:
    """Yield the claims of Vector and Scalar to PSUM: to all of it, or to banks."""
    when = chip.psum.vector_scalar_turns
    if when == _NEVER:
        return
    needs = np.array([_needs_psum(signature) for signature in placement.signatures], dtype=bool)
    if not _of_two_engines(placement.signatures, needs):
        return
    claims_psum = needs[placement.numbers] & ~gone
    if when == _ALWAYS:
        record = np.flatnonzero(claims_psum)
        yield record, units[record] // len(ENGINES)
    else:
        yield _banks(program, claims_psum, units, chip.psum.bank_bytes)


def _needs_psum(signature: Signature) -> bool:
    return (
        signature.engine in (Engine.vector, Engine.scalar)
        and any(isinstance(item, Lanewise) for item in signature.work)
        and any(pattern.memory is Memory.psum for pattern in signature.patterns)
    )


def _banks(program: Program, claims_psum: Bools, units: Ints, bank_bytes: int) -> tuple[Ints, Ints]:
    """Return which record needs which bank of which storage."""
    operands = Operands.of(program)
    patterns = [pattern for signature in program.signatures for pattern in signature.patterns]
    in_psum = np.array([pattern.memory is Memory.psum for pattern in patterns], dtype=bool)
    kept = np.flatnonzero(in_psum[operands.pattern] & claims_psum[operands.record])
    storage, record = operands.storage[kept], operands.record[kept]
    # most tiles are used by one of the two only
    shared = _used_by_both(storage, units[record], len(program.storages))[storage]
    kept, storage, record = kept[shared], storage[shared], record[shared]
    places, which = np.unique(
        np.stack([operands.pattern[kept], operands.offset[kept]], axis=1), axis=0, return_inverse=True
    )
    banks = [_banks_of(patterns[pattern], offset, bank_bytes) for pattern, offset in places.tolist()]
    counts = np.array([len(each) for each in banks], dtype=np.int64)
    flat = np.array([bank for each in banks for bank in each], dtype=np.int64)
    which = which.reshape(-1)
    width = int(flat.max(initial=0)) + 1
    spread = np.repeat(np.arange(len(which)), counts[which])
    first = (np.cumsum(counts) - counts)[which[spread]]
    start = np.cumsum(counts[which]) - counts[which]
    bank = flat[first + np.arange(len(spread)) - start[spread]]
    record, place = record[spread], storage[spread] * width + bank
    _, once = np.unique(record * (place.max(initial=0) + 1) + place, return_index=True)
    return record[once], place[once]


def _used_by_both(port: Ints, units: Ints, count: int) -> Bools:
    """Return, by port (or storage), whether Vector and the other engine both use it."""
    is_vector = units % len(ENGINES) == _VECTOR
    by_vector, by_other = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
    by_vector[port[is_vector]] = True
    by_other[port[~is_vector]] = True
    return by_vector & by_other


def _banks_of(pattern: Pattern, offset: int, bank_bytes: int) -> list[int]:
    """Return the banks that an operand's bytes are in, exactly."""
    found = region_of(pattern)
    if found is None:
        return []
    region, low = found
    starts = {offset + low}
    for step, count in region.axes:
        starts = {start + index * step for start in starts for index in range(count)}
    ends = ((start // bank_bytes, (start + region.run - 1) // bank_bytes) for start in starts)
    return sorted({bank for first, last in ends for bank in range(first, last + 1)})
