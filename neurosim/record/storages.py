"""The program's table of storages: a sequence of :class:`StorageInfo` that keeps columns, and makes each when asked.

A kernel that makes a tile per trip has as many storages as trips, alike but for number and line. What repeats is kept
once, as a kind; a storage takes 12 bytes, and a name where the kernel gave it one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, overload

import numpy as np
import numpy.typing as npt

from neurosim.dtypes import DType
from neurosim.engines import Memory

MOST_BYTES: Final = 1 << 42
"""Of one storage, 4 TiB: far beyond any chip's HBM, and the dependences' own limit."""
_LARGEST_NUMBER = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class StorageInfo:
    """What the record keeps of a storage.

    Attributes:
        name: the tensor's name, or a made-up one.
        memory: where it lives.
        shape, dtype: as allocated.
        partitions: number of partitions, 0 in HBM.
        row_bytes: bytes in each partition (of a plane, up to its last one in use); in HBM, bytes in all.
        stack: id of the call stack that allocated it.
        role: ``input``, ``output``, ``plane`` (shared by tensors with an address), ``state`` or ``tile``.
    """

    name: str
    memory: Memory
    shape: tuple[int, ...]
    dtype: DType
    partitions: int
    row_bytes: int
    stack: int
    role: str

    @property
    def reserved_bytes(self) -> int:
        """Bytes of each partition that it keeps for itself: of a plane, what its tensors cover."""
        return self.shape[-1] if self.role == "plane" else self.row_bytes


class Storages(Sequence[StorageInfo]):
    """All storages of a program, by id."""

    def __init__(self, infos: Iterable[StorageInfo] = ()) -> None:
        self._kinds: list[StorageInfo] = []  # their names and stacks are those of the first one
        self._kind_ids: dict[tuple[Any, ...], int] = {}
        self._kind = array("i")
        self._stack = array("i")
        self._number = array("i")  # of a name that is the memory's and a number; -1 for one in ``_names``
        self._names: dict[int, str] = {}
        for info in infos:
            self.append(info)

    def append(self, info: StorageInfo) -> None:
        """Add a storage; its id is how many there were."""
        self.add(info.name, info.memory, info.shape, info.dtype, info.partitions, info.row_bytes, info.stack, info.role)

    def add(
        self,
        name: str,
        memory: Memory,
        shape: tuple[int, ...],
        dtype: DType,
        partitions: int,
        row_bytes: int,
        stack: int,
        role: str,
        number: int | None = None,
    ) -> int:
        """Add what :class:`StorageInfo` says, without making one, and return the storage's id.

        ``number`` is that of a name that is a default one, where the caller knows.
        """
        kind = self._kind_ids.get((memory, shape, dtype, partitions, row_bytes, role))
        if kind is None:
            kind = self._add_kind(StorageInfo(name, memory, shape, dtype, partitions, row_bytes, stack, role))
        if number is None:
            number = _number_in(name, memory)
        if number < 0:
            self._names[len(self._kind)] = name
        self._kind.append(kind)
        self._stack.append(stack)
        self._number.append(number)
        return len(self._kind) - 1

    def _add_kind(self, info: StorageInfo) -> int:
        self._kind_ids[info.memory, info.shape, info.dtype, info.partitions, info.row_bytes, info.role] = len(
            self._kinds
        )
        self._kinds.append(info)
        return len(self._kinds) - 1

    def copy(self) -> Storages:
        """Return a table of the same storages, to which others can be added."""
        other = Storages()
        other._kinds, other._kind_ids = self._kinds.copy(), self._kind_ids.copy()
        other._kind, other._stack, other._number = self._kind[:], self._stack[:], self._number[:]
        other._names = self._names.copy()
        return other

    def __setitem__(self, index: int, info: StorageInfo) -> None:
        key = info.memory, info.shape, info.dtype, info.partitions, info.row_bytes, info.role
        kind = self._kind_ids.get(key)
        if kind is None:
            kind = self._add_kind(info)
        number = _number_in(info.name, info.memory)
        self._kind[index], self._stack[index], self._number[index] = kind, info.stack, number
        if number < 0:
            self._names[index] = info.name

    @overload
    def __getitem__(self, index: int) -> StorageInfo: ...
    @overload
    def __getitem__(self, index: slice) -> list[StorageInfo]: ...
    def __getitem__(self, index: int | slice) -> StorageInfo | list[StorageInfo]:
        """Return what is known of a storage, or of several."""
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        kind, number = self._kinds[self._kind[place]], self._number[place]
        name = self._names[place] if number < 0 else default_name(kind.memory, number)
        stack, role = self._stack[place], kind.role
        return StorageInfo(name, kind.memory, kind.shape, kind.dtype, kind.partitions, kind.row_bytes, stack, role)

    def __len__(self) -> int:
        return len(self._kind)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def column(self, of: Callable[[StorageInfo], Any], dtype: Any = np.int64) -> npt.NDArray[Any]:
        """Return ``of`` each storage, an array by id; what it looks at is neither the name nor the stack."""
        return np.array([of(kind) for kind in self._kinds], dtype)[np.array(self._kind, np.int64)]


def default_name(memory: Memory, index: int) -> str:
    """Return the name of a kernel's ``index``-th allocation when it is given none."""
    return f"{_PREFIXES[memory]}{index}"


_PREFIXES: Final = {memory: f"{memory.label.lower()}_" for memory in Memory}


def _number_in(name: str, memory: Memory) -> int:
    """Return the number of a name that is made up of the memory's and one; -1 for any other name."""
    prefix = _PREFIXES[memory]
    tail = name[len(prefix) :]
    if not name.startswith(prefix) or not (tail.isascii() and tail.isdecimal()) or str(int(tail)) != tail:
        return -1
    return number if (number := int(tail)) <= _LARGEST_NUMBER else -1
