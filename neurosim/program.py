"""The record of a kernel's run: signatures, slots and columns. Recorded once, consumed by many.

A **signature** is what repeats: instruction, operand patterns, parameters, engine, work. A **record** is a
signature id, a slot (storage id, byte offset) per operand, and columns: core, call stack, name, block, and trip of
a loop that runs on the device.
"""

from __future__ import annotations

import copy
import threading
from array import array
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from pathlib import Path
from struct import pack
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neurosim.dtypes import DType
from neurosim.engines import Engine, Memory
from neurosim.record.storages import StorageInfo as StorageInfo
from neurosim.record.storages import Storages as Storages
from neurosim.versions import NEWEST, NkiVersion
from neurosim.work import Work


class Access(IntEnum):
    """What a record does to an operand. ``ACCUMULATE`` adds in place, without a round trip through the engine."""

    READ = 0
    WRITE = 1
    ACCUMULATE = 2


@dataclass(frozen=True, slots=True)
class Pattern:
    """How one operand walks its memory, without saying in which storage or at which byte it begins.

    Attributes:
        role: the operand's name in the instruction.
        access: read, written or accumulated into.
        memory, dtype: of the tensor (``Memory.state`` for engine registers).
        shape: extent per axis.
        steps: elements per axis; along the partition axis, partitions.
        partition_axis: index of the partition axis, -1 in HBM.
        start_partition: first partition, 0 in HBM.
        row_bytes: distance between the same byte of neighbouring partitions, 0 in HBM.
    """

    role: str
    access: Access
    memory: Memory
    dtype: DType
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    partition_axis: int
    start_partition: int
    row_bytes: int

    @property
    def size_bytes(self) -> int:
        """Payload of the operand in bytes."""
        size = self.dtype.size_bytes
        for extent in self.shape:
            size *= extent
        return size


@dataclass(frozen=True, slots=True)
class Signature:
    """What repeats between records.

    Attributes:
        instruction: NKI's name of it.
        patterns: one per tensor operand, and one per piece of engine state, in slot order.
        parameters: the hashable rest, by name.
        engine: where it runs; for a DMA, the engine that triggers it.
        engines: the engines that would give the same bits.
        work: what the engine has to do, in order.
    """

    instruction: str
    patterns: tuple[Pattern, ...]
    parameters: tuple[tuple[str, Hashable], ...]
    engine: Engine
    engines: frozenset[Engine]
    work: tuple[Work, ...]


def is_named(path: str, name: str) -> bool:
    """Whether a path has a name, which may begin as far down the path as one likes."""
    return path == name or path.endswith("/" + name)


@dataclass(frozen=True, slots=True)
class Frame:
    """One level of a kernel's call stack.

    Attributes:
        file: the path, as short as it can be said.
        line: in the file.
        function: its name.
        path: the whole path, to read the source again.
        offset: place of the call in the function's bytecode; tells two calls on one line apart.
        column: of the call in its line, in bytes from 0; tells what its result is assigned to.
    """

    file: str
    line: int
    function: str
    path: str = ""
    offset: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}  in {self.function}"

    def is_at(self, place: str) -> bool:
        """Whether this is in a file, or at a line as in ``matmul.py:61``."""
        return is_named(self.file, place) or is_named(f"{self.file}:{self.line}", place)


@dataclass(frozen=True, slots=True)
class DeviceTrip:
    """One trip of a loop that runs on the device.

    Attributes:
        parent: the trip of another such loop that this one is in, -1 for none.
        stack: id of the call stack at the loop.
        number: which trip since the loop was entered, from 0.
    """

    parent: int
    stack: int
    number: int


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration of a loop over ``nl.affine_range``, as Python ran it.

    Attributes:
        entered: number of the iteration that this one's loop began with, which is 0 of it.
        core: which core ran it.
        stack: id of the call stack at the loop.
        number: which iteration since the loop was entered, from 0.
        first, end: records, the end exclusive; of the core's own.
    """

    entered: int
    core: int
    stack: int
    number: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Record:
    """One recorded instruction, as a consumer sees it.

    ``slots`` holds (storage id, byte offset within the partition, or within HBM) per pattern.
    """

    index: int
    signature: Signature
    slots: tuple[tuple[int, int], ...]
    core: int
    stack: int
    name: str | None
    block: int
    trip: int


_HEAD: Final = {"signature_ids": "i", "stack_ids": "i", "cores": "b", "blocks": "i", "trip_ids": "i"}
"""Columns of which a row has a number each, in its order, with their formats; slots follow."""
MOST_ROWS: Final = 4096
"""Rows that wait for the columns, at most: they take twice the memory there that they take in columns."""
_SETTLING: Final = threading.Lock()


class _Column:
    """A column of the record; who asks for it finds in it what was recorded by then."""

    def __set_name__(self, owner: type[Program], name: str) -> None:
        self._name = name

    def __get__(self, program: Program, owner: Any = None) -> array[int]:
        if program.rows:
            program.settle()
        column: array[int] = program.__dict__[self._name]
        return column

    def __set__(self, program: Program, column: array[int]) -> None:
        program.settle()
        program.__dict__[self._name] = column


class Program:
    """All records of one run; belongs to one chip generation.

    A record is added as a row, which costs a tenth of adding to each column; rows become columns when one is asked for.

    Attributes:
        chip_name, generation: the chip that the kernel asked for.
        nki_version: the version of NKI whose semantics it asked for.
        signatures, stacks, storages, names: interned tables that columns point into.
        trips: trips of loops that run on the device, in the order they began.
        iterations: of loops whose source says that these are independent, in the order they began.
        edges: explicit (consumer, producer) record pairs.
        meetings: by meeting of cores, its first record and how many it has, one after the other, a core each.
        notes: what a reader of the record should know, by heading.
        rows: records that are in no column yet: (signature, stack, core, block, trip, *slots).
        first: the number of the first of them.
    """

    signature_ids, stack_ids, cores, blocks, trip_ids = _Column(), _Column(), _Column(), _Column(), _Column()
    slots, slot_starts = _Column(), _Column()

    def __init__(self, chip_name: str, generation: int, nki_version: NkiVersion = NEWEST) -> None:
        self.chip_name = chip_name
        self.generation = generation
        self.nki_version = nki_version
        self.signatures: list[Signature] = []
        self.stacks: list[tuple[Frame, ...]] = []
        self.storages = Storages()
        self.trips: list[DeviceTrip] = []
        self.iterations: list[Iteration] = []
        self.names: dict[int, str] = {}
        self.edges: list[tuple[int, int]] = []
        self.meetings: list[tuple[int, int]] = []
        self.rows: list[tuple[int, ...]] = []
        self.first = 0
        vars(self).update({name: array(typecode) for name, typecode in _HEAD.items()})
        vars(self).update(slots=array("q"), slot_starts=array("q", [0]))
        self.notes: dict[str, str] = {}

    def copy(self) -> Program:
        """Return a program with the same records and tables of its own: what is added to one is not in the other."""
        self.settle()
        made = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, (list, dict, Storages)):
                made.__dict__[name] = value.copy()
            elif isinstance(value, array):
                made.__dict__[name] = value[:]
        return made

    def __len__(self) -> int:
        with _SETTLING:  # rows that another thread is moving are in both
            return len(self.__dict__["signature_ids"]) + len(self.rows)

    def append(
        self, signature: int, slots: list[int], stack: int, core: int = 0, block: int = -1, trip: int = -1
    ) -> int:
        """Add a record and return its index. ``slots`` is flat: storage id, byte offset, per operand."""
        index = len(self)
        self.rows.append((signature, stack, core, block, trip, *slots))
        return index

    def put(self, **columns: NDArray[np.integer]) -> None:
        """Replace columns of records by arrays of numbers, each in the column's own type."""
        for name, values in columns.items():
            made = array(getattr(self, name).typecode)
            made.frombytes(np.ascontiguousarray(values, made.typecode).tobytes())
            setattr(self, name, made)
        self.settle()  # what is recorded from now on comes behind these

    def settle(self) -> None:
        """Move rows to the columns."""
        with _SETTLING:  # two threads may look at a finished program for the first time
            columns, rows = self.__dict__, self.rows[:]
            if rows:
                ends = np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)))
                flat = np.frombuffer(pack(f"{ends[-1]}q", *chain.from_iterable(rows)), np.int64)
                begins = np.concatenate([[0], ends[:-1]])
                is_slot = np.ones(len(flat), np.bool_)
                for place, name in enumerate(_HEAD):
                    is_slot[begins + place] = False
                    _extend(columns[name], flat[begins + place])
                starts = columns["slot_starts"]
                _extend(starts, starts[-1] + ends - len(_HEAD) * np.arange(1, len(rows) + 1))
                _extend(columns["slots"], flat[is_slot])
                del self.rows[: len(rows)]
            self.first = len(columns["signature_ids"])

    def record(self, index: int) -> Record:
        """Return one record in readable form."""
        index = range(len(self))[index]
        first, last = self.slot_starts[index], self.slot_starts[index + 1]
        flat = self.slots[first:last]
        return Record(
            index,
            self.signatures[self.signature_ids[index]],
            tuple(zip(flat[::2], flat[1::2], strict=True)),
            self.cores[index],
            self.stack_ids[index],
            self.names.get(index),
            self.blocks[index],
            self.trip_ids[index],
        )

    def __iter__(self) -> Iterator[Record]:
        return (self.record(index) for index in range(len(self)))

    def is_within(self, trip: int, outer: int) -> bool:
        """Return whether a trip of a loop on the device is another one, or in it; all are in -1."""
        while trip > outer:  # a parent began earlier
            trip = self.trips[trip].parent
        return trip == outer

    def where(self, index: int) -> tuple[Frame, ...]:
        """Return the kernel's call stack at a record, innermost frame first."""
        return self.stacks[self.stack_ids[index]]

    def label(self, storage: int) -> str:
        """Return what the kernel's source calls a storage: its name, else the variable that it is assigned to."""
        from neurosim.record.naming import label  # reads the kernel's source

        info = self.storages[storage]
        return label(info.name, self.stacks[info.stack])

    def listing(self, first: int = 0, last: int | None = None) -> str:
        """Return the program as text, a line per record: see :mod:`neurosim.record.listing`."""
        from neurosim.record.listing import listing  # what a program can be made into loads when it is asked for

        return listing(self, first, last)

    def save(self, path: str | Path) -> None:
        """Write the program to a file, whole or not at all: see :mod:`neurosim.record.program_file`.

        Raises:
            ConfigurationError: the file cannot be written.
        """
        from neurosim.record.program_file import save

        save(self, path)

    @staticmethod
    def load(path: str | Path) -> Program:
        """Read a program from a file.

        Raises:
            ConfigurationError: there is no such file, another version wrote it, or it is broken.
        """
        from neurosim.record.program_file import load

        return load(path)


def present(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return which numbers occur, in ascending order; all are 0 or more, and small.

    NumPy's ``unique`` imports its masked arrays, which a first launch has no other use for.
    """
    return np.flatnonzero(np.bincount(numbers))


def _extend(column: array[int], values: NDArray[np.int64]) -> None:
    column.frombytes(values.astype(column.typecode).tobytes())
