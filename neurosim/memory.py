"""Storages: bytes, and a shadow that knows which of them were written.

A shadow state is kept per granule (the allocation's element, split to single bytes when a view needs it):
``UNWRITTEN``, ``COPIED`` for bytes that a copy brought from where nobody had written, ``HOLE`` for bytes that were
computed from unwritten ones, ``WRITTEN``, or ``MATMUL`` for PSUM bytes that the tensor engine wrote. A storage whose
bytes all have one state keeps that state alone, which is the fast path.

Source of PSUM's three states: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``nc_matmul``, "Accumulation mode".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from neurosim.dtypes import DType
from neurosim.engines import Memory
from neurosim.errors import CapacityExceeded
from neurosim.program import Frame
from neurosim.record.naming import label

if TYPE_CHECKING:
    from neurosim.execution.fine import Fine
    from neurosim.view import NkiTensor

UNWRITTEN: Final = 0
COPIED: Final = 1
HOLE: Final = 2
WRITTEN: Final = 3
MATMUL: Final = 4

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class HoleOrigin:
    """Where unwritten bytes entered a computation, for the message when they reach something that matters.

    Attributes:
        instruction, operand: the first read.
        where: the kernel call stack of that read, innermost first.
        tensor: the tensor whose bytes nobody wrote, as text.
        allocated: the kernel call stack of its allocation.
        hole: the unwritten part, as text.
        partly: what wrote the rest of it, where an instruction did that leaves elements out.
    """

    instruction: str
    operand: str
    where: tuple[str, ...]
    tensor: str
    allocated: tuple[str, ...]
    hole: str
    partly: str = ""


Origin = Callable[[], HoleOrigin]
"""Says where unwritten bytes came from. Most of those that are read reach nothing, and their words cost more."""


class Storage:
    """A run of bytes in one memory, and the shadow of which are written.

    Attributes:
        id: index in the program's table of storages; -1 before a program knows it.
        memory: where it lives.
        is_plane: whether tensors with an address share it (see :mod:`neurosim.plane`).
        partitions: number of partitions, 0 in HBM.
        row_bytes: bytes in each partition; in HBM, bytes in all.
        size_bytes: bytes in all.
        state: the one state that all bytes have, or -1 when the shadow says it per granule.
        origin: where the last hole that was written here came from.
        partly: of the last result here that was not written as a whole, the instruction, which elements it leaves out
            (empty where a predicate says), how many it wrote and of how many; None where none was.
        held: the bytes, None as long as nobody asked for them.
        fine: wider values than the bytes hold, in runs that keep any (see :mod:`neurosim.execution.fine`).

    Most tensors that are written in pieces are so from the left to the right: how far says all, and no shadow is made.
    """

    __slots__ = (
        "__weakref__",
        "_begun",
        "_granule",
        "_pending_bytes",
        "_shadow",
        "borrowed",
        "fine",
        "held",
        "id",
        "memory",
        "origin",
        "partitions",
        "partly",
        "row_bytes",
        "size_bytes",
        "state",
    )

    is_plane: ClassVar[bool] = False

    def __init__(
        self,
        memory: Memory,
        partitions: int,
        row_bytes: int,
        granule: int,
        buffer: Bytes | None = None,
    ) -> None:
        self.id = -1
        self.memory = memory
        self.partitions = partitions
        self.row_bytes = row_bytes
        self.size_bytes = row_bytes * max(partitions, 1)
        self.borrowed = buffer is not None
        self.held = buffer
        self.state = UNWRITTEN if buffer is None else WRITTEN
        self.origin: HoleOrigin | None = None
        self.partly: tuple[str, str, int, int] | None = None
        self.fine: Fine | None = None
        self._granule = granule
        self._shadow: Bytes | None = None
        self._pending_bytes = 0
        self._begun = 0, UNWRITTEN  # without a shadow: so many first bytes of each row are in this state

    @property
    def buffer(self) -> Bytes:
        """The bytes, one-dimensional, partition after partition; made when first asked for."""
        if self.held is None:
            # zeros, not empty: the system hands out untouched pages for free, and nothing depends on stale bytes
            try:
                self.held = np.zeros(self.size_bytes, np.uint8)
            except (MemoryError, ValueError) as error:
                raise CapacityExceeded(
                    f"a tensor of {self.size_bytes} bytes does not fit into this machine's memory",
                    advice="run with values=False, which needs no data",
                ) from error
        return self.held

    def renew(self, buffer: Bytes | None, state: int, *, borrowed: bool | None = None) -> None:
        """Begin anew with other bytes, all in one state, as if nothing had happened here.

        ``borrowed`` says whether they are a caller's; by default they are where there are any.
        """
        self.held, self.state = buffer, state
        self.borrowed = buffer is not None if borrowed is None else borrowed
        self._shadow = self.origin = self.partly = self.fine = None
        self._pending_bytes, self._begun = 0, (0, UNWRITTEN)

    def give(self) -> Bytes | None:
        """Return the bytes, if there are any, and let go of them: the next ones are others."""
        buffer, self.held = self.held, None
        return None if self.borrowed else buffer

    def is_all(self, state: int) -> bool:
        """Return whether all bytes are in ``state`` without looking further, so that marking some of them is idle."""
        return self.state == state and not self.is_plane

    def detach(self) -> None:
        """Copy borrowed bytes (a caller's array) before the first write to them."""
        if self.borrowed:
            self.held = self.buffer.copy()
            self.borrowed = False

    def _materialise(self, tensor: NkiTensor) -> Bytes:
        """Return the shadow, fine enough that ``tensor``'s elements are whole granules."""
        if not tensor.aligned_to(self._granule):
            self._split()
        return self._table()

    def _table(self) -> Bytes:
        """Return the shadow, a state per granule."""
        if self._shadow is None:
            (end, state), rows = self._begun, max(self.partitions, 1)
            if end % self._granule:
                self._split()
            self._shadow = np.zeros(self.size_bytes // self._granule, np.uint8)
            if self.state > UNWRITTEN:
                self._shadow.fill(self.state)
            elif end:
                self._shadow.reshape(rows, -1)[:, : end // self._granule] = state
                self._pending_bytes, self._begun = end * rows, (0, UNWRITTEN)
            self.state = -1
        return self._shadow

    def _split(self) -> None:
        """Keep a state per byte from now on."""
        if self._shadow is not None:
            self._shadow = np.repeat(self._shadow, self._granule)
        self._granule = 1

    def states(self, tensor: NkiTensor) -> Bytes:
        """Return the shadow states under ``tensor``: its shape, plus an axis when an element has many granules."""
        shadow = self._materialise(tensor)
        return tensor.over(shadow, self._granule)

    def seen(self, tensor: NkiTensor) -> Bytes:
        """Return the states as ``tensor`` sees them, to be read only."""
        return self.states(tensor)

    def unwritten(self, tensor: NkiTensor) -> Mask | None:
        """Return which elements of ``tensor`` have unwritten bytes, or None when all are written."""
        if self.state == UNWRITTEN:
            return np.ones(tensor.shape, np.bool_)
        if self.state >= WRITTEN:
            return None
        states = self.seen(tensor)
        if states.min() >= WRITTEN:
            return None
        holes = states < WRITTEN
        return np.asarray(holes.any(axis=-1)) if holes.ndim > len(tensor.shape) else holes

    def travelled(self, tensor: NkiTensor) -> HoleOrigin | None:
        """Return where the holes under ``tensor`` came from, or None where none travelled there."""
        if self.origin is None or self.state >= UNWRITTEN:
            return None
        states = self.seen(tensor)
        return self.origin if ((states == HOLE) | (states == COPIED)).any() else None

    def is_computed(self, tensor: NkiTensor) -> bool:
        """Return whether bytes under ``tensor`` were computed from unwritten ones; copies of them do not count."""
        return self.state < UNWRITTEN and bool((self.seen(tensor) == HOLE).any())

    def is_blank(self, tensor: NkiTensor) -> bool:
        """Return whether no byte under ``tensor`` was written."""
        return bool((self.seen(tensor) < WRITTEN).all())

    def byte_states(self, tensor: NkiTensor) -> Bytes:
        """Return the state of each byte as ``tensor`` sees it: its shape, and an axis for the bytes of an element."""
        states = self.seen(tensor)
        states = states if states.ndim > len(tensor.shape) else states[..., None]
        return np.repeat(states, tensor.dtype.size_bytes // states.shape[-1], axis=-1)

    def element_states(self, tensor: NkiTensor) -> npt.NDArray[np.uint8]:
        """Return the lowest state of each element, in the tensor's shape."""
        states = self.seen(tensor)
        return states.min(axis=-1) if states.ndim > len(tensor.shape) else states

    def uniform_state(self, tensor: NkiTensor) -> int:
        """Return the one state of all bytes under ``tensor``, or -1 when they differ."""
        if self.state >= 0:
            return self.state
        states = self.seen(tensor)
        low = int(states.min())
        return low if low == int(states.max()) else -1

    def mark(self, tensor: NkiTensor, state: int, holes: Mask | None = None, only: Mask | None = None) -> None:
        """Set the state of the bytes under ``tensor``.

        Elements in ``holes`` (its shape) become unwritten; with ``only`` (its shape), others keep their state.
        """
        if holes is None:
            if self.state == state:
                return
            if only is None and tensor.size_bytes == self.size_bytes and not self.is_plane:
                self.state, self._shadow, self._pending_bytes, self._begun = state, None, 0, (0, UNWRITTEN)
                return
            if only is None and self._shadow is None and self._goes_on(tensor, state):
                return
        states = self.states(tensor)
        if holes is None and only is None:
            states[...] = state
            self._collapse(tensor.size_bytes, state)
            return
        if holes is None:
            states[only] = state
            return
        if states.ndim > holes.ndim:  # several granules an element
            holes, only = holes[..., None], None if only is None else only[..., None]
        after = np.where(holes, np.uint8(HOLE), np.uint8(state))
        np.copyto(states, after, where=True if only is None else only)

    def _goes_on(self, tensor: NkiTensor, state: int) -> bool:
        """Mark what follows on the right of all that was written, if that is what ``tensor`` is; else return False."""
        end, before = self._begun
        axis, rows = tensor.partition_axis, max(self.partitions, 1)
        if (
            self.is_plane
            or tensor.offset_bytes != end
            or self.state != (-1 if end else UNWRITTEN)
            or (end and before != state)
            or (axis >= 0 and (tensor.shape[axis] != rows or (rows > 1 and tensor.steps[axis] != 1)))
            or tensor.is_indirect()
            or not tensor.is_contiguous()
        ):
            return False
        end += tensor.size_bytes // rows
        self.state, self._begun = (state, (0, UNWRITTEN)) if end == self.row_bytes else (-1, (end, state))
        return True

    def copies(self, tensor: NkiTensor, states: Bytes) -> tuple[Bytes, Bytes]:
        """Return the states under ``tensor``, and what is to stand there where copies of bytes in ``states`` are.

        Both have one more axis than a tensor, for the granules of an element; ``states`` has one for its bytes.
        """
        copies = np.minimum(np.maximum(states, np.uint8(COPIED)), np.uint8(WRITTEN))
        if not tensor.aligned_to(self._granule) or (copies != copies[..., :1]).any():
            self._split()
        under = self.states(tensor)
        return under if under.ndim > len(tensor.shape) else under[..., None], copies[..., :: self._granule]

    def _collapse(self, size_bytes: int, state: int) -> None:
        """Return to the fast path once enough bytes were marked that all may have the same state."""
        self._pending_bytes += size_bytes
        if self._pending_bytes < self.size_bytes or self._shadow is None:
            return
        self._pending_bytes = 0
        if self._shadow.min() == state == self._shadow.max():
            self.state, self._shadow = state, None


class RegisterStorage(Storage):
    """Registers inside an engine: their bytes are there from the beginning, and stay the same ones.

    Attributes:
        floats: the bytes as float32, a view.
        words: the bytes as uint32, a view: [lanes, words of a lane].
    """

    __slots__ = ("floats", "words")

    def __init__(self, lanes: int, words: int) -> None:
        super().__init__(Memory.state, 0, 4 * lanes * words, 4)
        self.floats: npt.NDArray[np.float32] = self.buffer.view(np.float32)
        self.words: npt.NDArray[np.uint32] = self.buffer.view(np.uint32).reshape(lanes, words)


class SharedWrites:
    """What cores write into shared memory, as far as it tells whether they write the same.

    Attributes:
        silent: records that wrote what was there already.
        rows: by record and operand with a dynamic address, which rows it chose, ascending, where that is known.
        disputed: by (storage, number of meetings before), the bytes that the core that ran last left otherwise than the
            other had left them: first and last-plus-one of each run of such bytes, one after the other, ascending.
    """

    def __init__(self, rows: dict[tuple[int, str], tuple[int, ...]] | None = None) -> None:
        self.silent: set[int] = set()
        self.rows = {} if rows is None else rows
        self.disputed: dict[tuple[int, int], npt.NDArray[np.int64]] = {}
        self._writers: dict[int, int] = {}  # by storage, who wrote last since the last meeting
        self._left: dict[int, tuple[Storage, Bytes]] = {}  # by storage, what the one who wrote first left

    def begin(self, core: int, storage: Storage) -> None:
        """Note that a core is about to write."""
        if self._writers.get(storage.id, core) != core and storage.id not in self._left:
            self._left[storage.id] = storage, storage.buffer.copy()
        self._writers[storage.id] = core

    def meet(self, meetings: int) -> None:
        """Note that the cores meet, or have ended, after that many meetings before."""
        for number, (storage, left) in self._left.items():
            differs = np.zeros(storage.size_bytes + 2, np.bool_)
            np.not_equal(left, storage.buffer, out=differs[1:-1])
            self.disputed[number, meetings] = np.flatnonzero(differs[1:] != differs[:-1])
        self._writers.clear()
        self._left.clear()


@dataclass(slots=True, eq=False)
class Allocation:
    """One ``nl.ndarray`` (or input): what was asked for, and where its bytes are. It never changes.

    Attributes:
        storage: the bytes, its own, or the plane that tensors with an address share.
        name: given or made up.
        shape, dtype: as asked for.
        memory: the region as asked for (``shared_hbm`` and ``private_hbm`` differ here only).
        base_partition, base_bytes: where it begins in the storage.
        row_bytes: bytes it takes in each partition; in HBM, in all.
        stack: id of the call stack that allocated it.
        frames: that call stack, innermost first.
        index: number of the allocation in its kernel, from 1.
        mark: what its kernel knows it by, while the tensor and its bytes are gone as soon as nobody holds them.
        marks: those of its kernel, by which each call knows a tensor of its own run; None of one that shares bytes.
    """

    storage: Storage
    name: str
    shape: tuple[int, ...]
    dtype: DType
    memory: Memory
    base_partition: int
    base_bytes: int
    row_bytes: int
    stack: int
    frames: tuple[Frame, ...]
    index: int
    role: str = "tile"
    mark: object = field(default_factory=object)
    marks: list[object] | None = None

    @property
    def is_planed(self) -> bool:
        """Whether it shares its storage with other tensors that have an address."""
        return self.role == "plane"

    @property
    def where(self) -> tuple[str, ...]:
        """The call stack that allocated it as text, innermost first."""
        return tuple(map(str, self.frames))

    @property
    def label(self) -> str:
        """What messages call it: the name given, else the variable that it is assigned to."""
        return label(self.name, self.frames)

    def describe(self) -> str:
        """Name, shape, dtype and memory, for messages."""
        shape = ", ".join(map(str, self.shape))
        return f"{self.label}[{shape}] {self.dtype} in {self.memory.label}"


def array_bytes(array: npt.NDArray[Any]) -> Bytes:
    """Return the bytes of a C-contiguous array as a flat uint8 view (not a copy)."""
    return array.reshape(-1).view(np.uint8)
