"""The plane that tensors with an address share: who wrote which bytes last, and what each of them is to a tensor.

Bytes that another tensor wrote last are unwritten to a tensor. To ask that of each byte at each read costs more than
most instructions, so rectangles (partitions by bytes) that one tensor wrote, all in one state, are known as a whole:
**settled**, until something else is written there. No two settled rectangles share a byte. The tables, with an entry
for every granule, hear of a rectangle only when somebody asks for bytes that lie in it and are not settled for him.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from neurosim.engines import Memory
from neurosim.memory import UNWRITTEN, WRITTEN, Allocation, Bytes, Mask, Storage
from neurosim.view import NkiTensor, whole

Owners = npt.NDArray[np.uint32]


@dataclass(slots=True)
class _Box:
    """A rectangle: partitions ``first`` to ``last``, bytes ``begin`` to ``end`` of each, ends excluded.

    Attributes:
        state: of all its bytes, where it is settled.
        is_entered: whether the tables say so too.
    """

    first: int
    last: int
    begin: int
    end: int
    state: int = UNWRITTEN
    is_entered: bool = False

    def meets(self, other: _Box) -> bool:
        return self.begin < other.end and other.begin < self.end and self.first < other.last and other.first < self.last

    def holds(self, other: _Box) -> bool:
        return (
            self.begin <= other.begin
            and other.end <= self.end
            and self.first <= other.first
            and other.last <= self.last
        )

    def adjoins(self, other: _Box) -> bool:
        """Return whether both together are a rectangle."""
        if self.first == other.first and self.last == other.last:
            return self.begin <= other.end and other.begin <= self.end
        same = self.begin == other.begin and self.end == other.end
        return same and self.first <= other.last and other.first <= self.last

    def grow(self, other: _Box) -> None:
        """Become what both are together."""
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.begin, self.end = min(self.begin, other.begin), max(self.end, other.end)
        self.is_entered = self.is_entered and other.is_entered


class Plane(Storage):
    """A storage that tensors with an address share; it never is known to have one state."""

    __slots__ = ("_entered", "_owners", "_settled", "_since")

    is_plane = True

    def __init__(self, memory: Memory, partitions: int, row_bytes: int, granule: int) -> None:
        super().__init__(memory, partitions, row_bytes, granule)
        self._forget()

    def _forget(self) -> None:
        self.state = -1
        self._owners: Owners | None = None
        self._settled: dict[int, list[_Box]] = {}  # by number of the tensor that wrote
        self._entered: set[int] = set()  # numbers of the tensors that the tables may name
        self._since: dict[int, int] = {}  # by number of a tensor, bytes scattered over it since it was looked at

    def renew(self, buffer: Bytes | None, state: int, *, borrowed: bool | None = None) -> None:
        """Begin anew with other bytes; they are nobody's, and so unwritten to all, whatever ``state`` says."""
        super().renew(buffer, state, borrowed=borrowed)
        self._forget()

    # -- what is settled ------------------------------------------------------------------------------------------

    def settled(self, tensor: NkiTensor) -> int:
        """Return the state that all bytes under ``tensor`` are known to have, and by it; -1 where that is not known."""
        number = tensor.allocation.index
        if not tensor.allocation.is_planed:
            return -1
        under = _around(tensor)
        met = [box for box in self._settled.get(number, ()) if box.meets(under)]
        if not met and number not in self._entered:
            return UNWRITTEN
        return met[0].state if len(met) == 1 and met[0].holds(under) else -1

    def _settle(self, number: int, box: _Box) -> None:
        """Know that a tensor wrote all of a rectangle, where nothing else is settled."""
        boxes = self._settled.setdefault(number, [])
        for other in boxes:
            if other.state == box.state and other.adjoins(box):
                other.grow(box)
                return
        boxes.append(box)

    def _disturb(self, around: _Box, *, read_only: bool = False, overwrites: bool = False) -> None:
        """Enter what is settled within a rectangle into the tables, and settle it no longer.

        A reader leaves it settled. What is about to be overwritten wholly (``overwrites``) need not be entered.
        """
        for number, boxes in tuple(self._settled.items()):
            met = [box for box in boxes if box.meets(around)]
            for box in met:
                if not (box.is_entered or (overwrites and around.holds(box))):
                    self._enter(box, number)
            if met and not read_only:
                left = [box for box in boxes if not box.meets(around)]
                if left:
                    self._settled[number] = left
                else:
                    del self._settled[number]

    def _enter(self, box: _Box, number: int) -> None:
        if box.begin % self._granule or box.end % self._granule:
            self._split()
        place = slice(box.first, box.last), slice(box.begin // self._granule, box.end // self._granule)
        self._table().reshape(self.partitions, -1)[place] = box.state
        self._table_of_owners().reshape(self.partitions, -1)[place] = number
        box.is_entered = True
        self._entered.add(number)

    # -- the tables -----------------------------------------------------------------------------------------------

    def _split(self) -> None:
        super()._split()
        if self._owners is not None:
            self._owners = np.repeat(self._owners, self.size_bytes // len(self._owners))

    def _table_of_owners(self) -> Owners:
        if self._owners is None:
            self._owners = np.zeros(self.size_bytes // self._granule, np.uint32)
        return self._owners

    def _owners_under(self, tensor: NkiTensor) -> Owners:
        if not tensor.aligned_to(self._granule):
            self._split()
        return tensor.over(self._table_of_owners(), self._granule)

    def states(self, tensor: NkiTensor) -> Bytes:
        """Return the states under ``tensor``, to be written; nothing there is settled from now on."""
        self._disturb(_around(tensor))
        return super().states(tensor)

    def owners(self, tensor: NkiTensor) -> Owners:
        """Return the number of the tensor that wrote each granule last, 0 for none; as states are, to be written."""
        self._disturb(_around(tensor))
        self._entered.add(tensor.allocation.index)
        return self._owners_under(tensor)

    def own(self, tensor: NkiTensor, only: Mask | None = None) -> None:
        """Remember that ``tensor`` wrote these bytes last; with ``only`` (its shape), those of these elements."""
        self.owners(tensor)[... if only is None else only] = tensor.allocation.index

    # -- what is asked --------------------------------------------------------------------------------------------

    def seen(self, tensor: NkiTensor) -> Bytes:
        """Return the states as ``tensor`` sees them: bytes that another tensor wrote last are unwritten to it."""
        state = self.settled(tensor)
        if state >= 0:
            return np.broadcast_to(np.uint8(state), tensor.shape)
        self._disturb(_around(tensor), read_only=True)
        states = super().states(tensor)
        if not tensor.allocation.is_planed or self._owners is None:
            return states
        mine = self._owners_under(tensor) == tensor.allocation.index
        return states if mine.all() else np.where(mine, states, np.uint8(UNWRITTEN))

    def foreign_owners(self, tensor: NkiTensor) -> Owners | None:
        """Return for each element which other tensor wrote it last, 0 where none did, or None where none wrote any."""
        self._disturb(_around(tensor), read_only=True)
        if self._owners is None:
            return None
        owners = self._owners_under(tensor)
        mine = owners == tensor.allocation.index
        if mine.all():
            return None
        foreign = np.where(mine, np.uint32(0), owners)
        if not foreign.any():
            return None
        return foreign.max(axis=-1) if foreign.ndim > len(tensor.shape) else foreign

    def unwritten(self, tensor: NkiTensor) -> Mask | None:
        """Return which elements of ``tensor`` have unwritten bytes, or None when all are written."""
        state = self.settled(tensor)
        if state == UNWRITTEN:
            return np.ones(tensor.shape, np.bool_)
        return super().unwritten(tensor) if state < 0 else None

    def uniform_state(self, tensor: NkiTensor) -> int:
        """Return the one state of all bytes under ``tensor``, or -1 when they differ."""
        state = self.settled(tensor)
        return super().uniform_state(tensor) if state < 0 else state

    # -- what is written ------------------------------------------------------------------------------------------

    def mark(self, tensor: NkiTensor, state: int, holes: Mask | None = None, only: Mask | None = None) -> None:
        """Set the state of the bytes under ``tensor``, which wrote them unless ``state`` is that nobody did.

        Elements in ``holes`` (its shape) become unwritten; with ``only`` (its shape), others keep their state.
        """
        number, is_plain = tensor.allocation.index, holes is None and only is None and state >= WRITTEN
        if is_plain and self.settled(tensor) == state:
            return
        if is_plain and _is_rectangle(tensor):
            box = _around(tensor)
            box.state = state
            self._disturb(box, overwrites=True)
            self._settle(number, box)
            return
        super().mark(tensor, state, holes, only)
        if state != UNWRITTEN:
            self.own(tensor, only)
        if is_plain:
            self._settle_once_marked(tensor, state)

    def _settle_once_marked(self, tensor: NkiTensor, state: int) -> None:
        """Settle a tensor that is written here and there, once enough bytes of it were that these may be all."""
        home = tensor.allocation
        marked = self._since.get(home.index, 0) + tensor.size_bytes
        self._since[home.index] = marked
        if marked < home.row_bytes * home.shape[0]:
            return
        self._since[home.index] = 0
        box = _box_of(home)
        self._disturb(box, read_only=True)
        states = super().states(whole(home))
        if states.min() == state == states.max() and (self._owners_under(whole(home)) == home.index).all():
            self._disturb(box)
            box.state, box.is_entered = state, True
            self._settle(home.index, box)

    def _collapse(self, size_bytes: int, state: int) -> None:
        """Keep the shadow: a plane has many tensors."""


def _box_of(home: Allocation) -> _Box:
    row, start = home.base_partition, home.base_bytes
    return _Box(row, row + home.shape[0], start, start + home.row_bytes)


def _around(tensor: NkiTensor) -> _Box:
    """Return the smallest rectangle around a view; around its tensor where a value says which part it is."""
    if tensor.is_indirect():
        return _box_of(tensor.allocation)
    low = high = 0
    first = tensor.start_partition
    last = first + 1
    axis, size = tensor.partition_axis, tensor.dtype.size_bytes
    for index, (extent, step) in enumerate(zip(tensor.shape, tensor.steps, strict=True)):
        reach = (extent - 1) * step
        if index == axis:
            last += reach
        elif reach < 0:
            low += reach
        else:
            high += reach
    begin = tensor.offset_bytes
    return _Box(first, last, begin + low * size, begin + (high + 1) * size)


def _is_rectangle(tensor: NkiTensor) -> bool:
    """Return whether a view is all of the rectangle around it."""
    axis = tensor.partition_axis
    return (tensor.shape[axis] == 1 or tensor.steps[axis] == 1) and tensor.is_contiguous() and not tensor.is_indirect()
