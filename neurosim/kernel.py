"""The running kernel: its chip, its memory, its program. Context-local, and gone after an exception."""

from __future__ import annotations

import contextlib
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from operator import index as as_int
from types import FrameType
from typing import Any

from neurosim import dtypes
from neurosim.chip import Chip, psum_bytes
from neurosim.dtypes import DType
from neurosim.engines import Engine, Memory
from neurosim.errors import CapacityExceeded, IllegalOperand, KernelError, NeurosimError, OutOfBounds
from neurosim.execution import seen
from neurosim.execution.registers import registers_of
from neurosim.launch.cores import Team
from neurosim.launch.grids import ALONE, Grid, ProgramId
from neurosim.memory import UNWRITTEN, WRITTEN, Allocation, Bytes, RegisterStorage, SharedWrites, Storage
from neurosim.plane import Plane
from neurosim.program import MOST_ROWS, Program, StorageInfo
from neurosim.record.call_stacks import CallStacks
from neurosim.record.call_stacks import boundary as boundary
from neurosim.record.call_stacks import warn as warn
from neurosim.record.naming import default_name, label
from neurosim.record.places import At, Located
from neurosim.record.storages import MOST_BYTES
from neurosim.versions import NkiVersion
from neurosim.view import NkiTensor, whole
from neurosim.views.reshaping import checked_dtype, checked_name, checked_shape, united

_CURRENT: ContextVar[Kernel | None] = ContextVar("neurosim_kernel", default=None)

Action = Callable[[], Any]


@dataclass(slots=True)
class Body:
    """What a loop on the device does in a trip, as it was traced.

    Attributes:
        first: number of the first allocation that is made in it.
        actions: what it does in order, each with the call stack of its line.
        tensors: what it allocates; each trip finds them unwritten.
    """

    first: int
    actions: list[tuple[int, Action]] = field(default_factory=list)
    tensors: list[Allocation] = field(default_factory=list)


@dataclass(slots=True)
class Kernel:
    """One run of one kernel on one core.

    Attributes:
        chip: what the kernel runs on.
        program: what it has recorded so far.
        core: which NeuronCore this is.
        values: whether instructions compute; otherwise they are checked and recorded only.
        block: number of the ``no_reorder`` block that instructions are in now, -1 outside.
        grid: what the kernel was launched as.
        program_id: which program of the grid this is.
        team: the cores of the launch, None where there is one.
        shared: by place of allocation, the storages that all programs of the launch have in common.
        writes: of several cores, what they write into shared memory.
        trip: trip of a loop on the device that instructions are in now, -1 outside.
        bodies: what such loops do in a trip, of those whose body is being traced now, outermost first.
        whiles: loops on the device that ``while`` statements run, and whose body is being traced now.
        lanes: what gives instructions access to values, where it is not :class:`neurosim.execution.lanes.Lanes`.
        dry: whether instructions are checked and traced only, since the trip that they are in does not happen.
        signatures: what is known of each signature, by what it is known by.
        known: the same of calls by what they give, for those on plain tensors.
        straight: those of them that need a look at no more than the memory of their tensors.
        marks: one per allocation, in order. Only the kernel's own views hold allocations, so that the bytes of a tile
            that no variable holds any more are free, however many tiles a kernel makes.
        inputs: tensors that are there before the kernel begins: its arguments, then constants.
        addressed: by index, the allocations that have an address, whose bytes another may have overwritten.
        writers: the indices of allocations with an address that were written, in the order in which it happened.
        blank: storages that were read where nobody had written, so that their first bytes, which are 0, count.
        left: the first and the last allocation of each body of a loop on the device that was left; out of scope now.
    """

    chip: Chip
    program: Program
    core: int = 0
    values: bool = True
    block: int = -1
    grid: Grid = ALONE
    program_id: ProgramId = ()
    team: Team | None = None
    shared: dict[Any, Storage] = field(default_factory=dict)
    writes: SharedWrites = field(default_factory=SharedWrites)
    trip: int = -1
    bodies: list[Body] = field(default_factory=list)
    whiles: list[Any] = field(default_factory=list)
    lanes: Callable[[Kernel, Engine], Any] | None = None
    dry: bool = False
    signatures: dict[Any, Any] = field(default_factory=dict)
    known: dict[Any, Any] = field(default_factory=dict)
    straight: dict[Any, Any] = field(default_factory=dict)
    marks: list[object] = field(default_factory=list)
    inputs: list[Allocation] = field(default_factory=list)
    addressed: dict[int, Allocation] = field(default_factory=dict)
    writers: array[int] = field(default_factory=lambda: array("I"))
    blank: set[int] = field(default_factory=set)
    left: list[tuple[int, int]] = field(default_factory=list)
    _repeated: int = -1  # the call stack of what is done again in a later trip
    _inside: list[Body] = field(default_factory=list)  # bodies that a trip is in, traced or repeated
    _blocks: int = 0
    _block_last: int = -1
    _planes: dict[Memory, Plane] = field(default_factory=dict)
    _covered: dict[Memory, list[tuple[int, int]]] = field(default_factory=dict)
    _registers: dict[tuple[str, Engine], RegisterStorage] = field(default_factory=dict)
    _row_bytes: dict[Any, int] = field(default_factory=dict)  # of shapes, formats and memories that were allowed
    _pinned: int = -1
    _occurrences: dict[Any, int] = field(default_factory=dict)
    stacks: CallStacks = field(init=False)

    def __post_init__(self) -> None:
        self.stacks = CallStacks(self.program.stacks)
        self.program.settle()

    def beside(self, core: int) -> Kernel:
        """Return the run of the same kernel on another core: own SBUF, PSUM, engines; inputs and record in common.

        To be called when the arguments are tensors and nothing has run.
        """
        kernel = replace(
            self,
            core=core,
            marks=self.marks.copy(),
            addressed={},
            _planes={},
            _covered={},
            _registers={},
            _occurrences={},
            bodies=[],
            _inside=[],
            whiles=[],
            left=[],
        )
        kernel.stacks = self.stacks
        return kernel

    def begin(self, program: ProgramId) -> None:
        """Begin a program of the grid on this core: it allocates anew, and what is shared it finds."""
        self.program_id = program
        self._occurrences.clear()

    @property
    def nki_version(self) -> NkiVersion:
        """The version of NKI whose semantics hold in this run."""
        return self.program.nki_version

    # -- where are we ---------------------------------------------------------------------------------------------

    def stack(self, frame: FrameType | None = None) -> int:
        """Return the id of the kernel's call stack, innermost kernel frame first: here, or at ``frame``."""
        if self._repeated >= 0:
            return self._repeated
        if self._pinned >= 0:
            return self._pinned
        return self.stacks.number(sys._getframe(1) if frame is None else frame)

    def at(self, stack: int) -> At:
        """Take ``stack`` for the call stack inside: of an instruction that is issued later than it was called."""
        return At(self, stack)

    def pin(self, stack: int) -> int:
        """Take ``stack`` for the call stack from now on, -1 for the true one; return what was taken before."""
        self.stacks.forget()  # instructions look there first
        before, self._pinned = self._pinned, stack
        return before

    def where(self, stack: int | None = None) -> tuple[str, ...]:
        """Return a call stack as text, innermost frame first; the present one by default."""
        frames = self.program.stacks[self.stack() if stack is None else stack]
        return tuple(str(frame) for frame in frames)

    def _called(self, name: str) -> str:
        """Return what messages call a tensor that is being made here: its variable in place of a made-up name."""
        return label(name, self.program.stacks[self.stack()])

    # -- memory ---------------------------------------------------------------------------------------------------

    def allocate(
        self,
        shape: Sequence[int],
        dtype: Any,
        memory: Any,
        name: str = "",
        address: tuple[int, int] | None = None,
    ) -> NkiTensor:
        """Make a tensor: ``nl.ndarray``. Nothing is written yet.

        Raises:
            IllegalOperand: a senseless shape, an unknown dtype or memory, more than 128 partitions.
            CapacityExceeded: one tensor alone is larger than the memory.
        """
        try:  # as located() does, without what a with-block costs
            return self._allocate(checked_shape(shape), checked_dtype("nl.ndarray", dtype), memory, name, address)
        except NeurosimError as error:
            error.at(self.where())
            error.__suppress_context__ = True
            raise

    def _allocate(self, shape: tuple[int, ...], dtype: DType, memory: Any, name: Any, address: Any) -> NkiTensor:
        if not isinstance(memory, Memory) or memory is Memory.state:
            raise IllegalOperand(
                f"nl.ndarray: buffer={memory!r} is not a memory",
                advice="use nl.sbuf, nl.psum or nl.shared_hbm",
            )
        number = None if checked_name(name) else len(self.marks) + 1
        name = name if number is None else default_name(memory, number)
        row_bytes = self._row_bytes.get((shape, dtype, memory))
        if row_bytes is None:
            check = self._check_in_hbm if memory.is_hbm else self._check_on_chip
            row_bytes = self._row_bytes[shape, dtype, memory] = check(shape, dtype, memory, name)
        if address is None:
            return self._register(shape, dtype, memory, name, row_bytes, None, "tile", number)
        if memory.is_hbm:
            raise IllegalOperand(
                f"nl.ndarray {self._called(name)}: address= places SBUF and PSUM tensors only",
                advice="leave address out: the runtime places tensors in HBM",
            )
        return self._on_plane(shape, dtype, memory, name, row_bytes, address)

    def adopt(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        size_bytes: int,
        buffer: Bytes | None,
        name: str,
        memory: Memory = Memory.shared_hbm,
    ) -> NkiTensor:
        """Make an HBM tensor over a caller's bytes, if any; they are copied before the first write."""
        tensor = self._register(shape, dtype, memory, name, size_bytes, buffer, "input")
        self.inputs.append(tensor.allocation)
        return tensor

    def _register(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        memory: Memory,
        name: str,
        row_bytes: int,
        buffer: Bytes | None,
        role: str,
        number: int | None = None,
    ) -> NkiTensor:
        partitions = shape[0] if memory.is_on_chip else 0
        stack = self.stack()
        if memory is Memory.shared_hbm and role == "tile" and self.grid is not ALONE:
            storage = self._shared(StorageInfo(name, memory, shape, dtype, partitions, row_bytes, stack, role))
        else:
            storage = Storage(memory, partitions, row_bytes, dtype.size_bytes, buffer)
            storage.id = self.program.storages.add(
                name, memory, shape, dtype, partitions, row_bytes, stack, role, number
            )
        return self._finish(storage, name, shape, dtype, memory, (0, 0), row_bytes, stack, role)

    def _shared(self, info: StorageInfo) -> Storage:
        """Return the storage that all programs of the launch share.

        A tensor is the same in each program when it has the same name, or without one when it is allocated at the
        same place of the kernel, as often as there.
        """
        named = info.name != default_name(info.memory, len(self.marks) + 1)
        place = info.name if named else info.stack
        count = self._occurrences[place] = self._occurrences.get(place, 0) + 1
        found = self.shared.get((place, count))
        if found is None:
            found = self.shared[place, count] = Storage(info.memory, 0, info.row_bytes, info.dtype.size_bytes)
            self._add_storage(found, info)
            return found
        other = self.program.storages[found.id]
        if (other.shape, other.dtype) != (info.shape, info.dtype):
            raise IllegalOperand(
                f"nl.ndarray {self._called(info.name)}: {list(info.shape)} {info.dtype} in shared HBM, and another "
                f"program of the launch made it {list(other.shape)} {other.dtype}",
                numbers=tuple(f"there allocated at {line}" for line in self.where(other.stack)[:1]),
                advice="all programs allocate the same shared tensors; use nl.private_hbm for one of this core alone",
            )
        return found

    def _add_storage(self, storage: Storage, info: StorageInfo) -> None:
        storage.id = len(self.program.storages)
        self.program.storages.append(info)

    def _finish(
        self,
        storage: Storage,
        name: str,
        shape: tuple[int, ...],
        dtype: DType,
        memory: Memory,
        base: tuple[int, int],
        row_bytes: int,
        stack: int,
        role: str,
    ) -> NkiTensor:
        index = len(self.marks) + 1
        allocation = Allocation(
            storage,
            name,
            shape,
            dtype,
            memory,
            base[0],
            base[1],
            row_bytes,
            stack,
            self.program.stacks[stack],
            index,
            role,
            marks=None if role == "plane" else self.marks,
        )
        self.marks.append(allocation.mark)
        if allocation.is_planed:
            self.addressed[index] = allocation
        if role != "input":  # constants stay what they are
            for body in self.bodies:
                body.tensors.append(allocation)
        return whole(allocation)

    def _check_in_hbm(self, shape: tuple[int, ...], dtype: DType, memory: Memory, name: str) -> int:
        size_bytes = dtype.size_bytes
        for extent in shape:
            size_bytes *= extent
        if size_bytes > MOST_BYTES:
            raise CapacityExceeded(
                f"nl.ndarray {self._called(name)}: {size_bytes} bytes are more than any HBM has",
                advice="check the shape: extents multiply",
            )
        return size_bytes

    def _check_on_chip(self, shape: tuple[int, ...], dtype: DType, memory: Memory, name: str) -> int:
        row_bytes = dtype.size_bytes
        for extent in shape[1:]:
            row_bytes *= extent
        limit, capacity = self.chip.partitions, self.capacity_bytes(memory)
        if len(shape) >= 2 and shape[0] <= limit and row_bytes <= capacity:
            return row_bytes
        what = f"nl.ndarray {self._called(name)}{list(shape)} {dtype} in {memory.label}"
        if len(shape) < 2:
            down = f"({shape[0]}, 1) or " if 1 < shape[0] <= limit else ""
            raise IllegalOperand(f"{what}: one axis", advice=f"the first axis is partitions; use {down}(1, {shape[0]})")
        if shape[0] > limit:
            raise IllegalOperand(
                f"{what}: {shape[0]} partitions; {memory.label} has {limit}",
                advice=f"split the first axis into tiles of at most {limit} (nl.tile_size.pmax)",
            )
        raise CapacityExceeded(
            f"{what}: {row_bytes} bytes per partition; {memory.label} of {self.chip.name} has {capacity}",
            advice="split the free axis into smaller tiles",
        )

    def capacity_bytes(self, memory: Memory) -> int:
        """Return the bytes that each partition of SBUF or PSUM has."""
        if memory is Memory.sbuf:
            return self.chip.sbuf.partition_bytes
        return psum_bytes(self.chip)

    def _on_plane(
        self, shape: tuple[int, ...], dtype: DType, memory: Memory, name: str, row_bytes: int, address: Any
    ) -> NkiTensor:
        """Place a tensor at (partition, byte within the partition) of the plane that addressed tensors share."""
        try:
            partition, start = (as_int(part) for part in address)
        except (TypeError, ValueError):
            raise IllegalOperand(
                f"nl.ndarray {self._called(name)}: address={address!r}",
                advice="give (partition, byte within the partition)",
            ) from None
        capacity, partitions = self.capacity_bytes(memory), self.chip.partitions
        if not (partition >= 0 and partition + shape[0] <= partitions and start >= 0 and start + row_bytes <= capacity):
            raise OutOfBounds(
                f"nl.ndarray {self._called(name)}: address ({partition}, {start}) with {shape[0]} partitions of "
                f"{row_bytes} bytes",
                numbers=(f"{memory.label} has {partitions} partitions of {capacity} bytes",),
                advice="address is (first partition, byte in it); place it so that its end lies within the memory",
            )
        stack = self.stack()
        plane = self._planes.get(memory)
        if plane is None:
            plane = self._planes[memory] = Plane(memory, partitions, capacity, 2)
            info = StorageInfo(
                f"{memory.label} plane", memory, (partitions, 0), dtypes.uint8, partitions, 0, stack, "plane"
            )
            self._add_storage(plane, info)
        covered = self._covered[memory] = united([*self._covered.get(memory, ()), (start, start + row_bytes)])
        info = self.program.storages[plane.id]
        reserved = (partitions, sum(end - begin for begin, end in covered))
        self.program.storages[plane.id] = replace(info, shape=reserved, row_bytes=covered[-1][1])
        return self._finish(plane, name, shape, dtype, memory, (partition, start), row_bytes, stack, "plane")

    def registers(self, kind: str, engine: Engine) -> RegisterStorage:
        """Return the storage that stands for registers inside an engine (see :mod:`neurosim.execution.registers`)."""
        storage = self._registers.get((kind, engine))
        if storage is None:
            found, lanes = registers_of(kind, engine, self.chip), self.chip.partitions
            storage = self._registers[kind, engine] = RegisterStorage(lanes, found.words)
            shape = (lanes,) if found.words == 1 else (lanes, found.words)
            name = f"{engine.name} {kind}"
            self._add_storage(
                storage,
                StorageInfo(name, Memory.state, shape, found.dtype, 0, storage.row_bytes, self.stack(), "state"),
            )
            if found.initial is not None:
                storage.words[:] = found.initial
                storage.state = WRITTEN
        return storage

    def scalar_register(self, name: str = "") -> Allocation:
        """Allocate a sequencer's register: one scalar that instructions read and write like memory."""
        seen.note("a scalar register steers it on the device")
        name = name or f"register_{len(self.marks) + 1}"
        return self._register((1,), dtypes.int32, Memory.state, name, 4, None, "state").allocation

    # -- loops on the device --------------------------------------------------------------------------------------

    def perform(self, action: Action) -> None:
        """Do something now, and again in each later trip of the loop on the device whose body is being traced."""
        if self.bodies:
            self.bodies[-1].actions.append((self.stack(), action))
        if not self.dry:
            action()

    def begin_body(self) -> Body:
        """Begin to trace the body of a loop on the device."""
        body = Body(len(self.marks) + 1)
        self.bodies.append(body)
        self._inside.append(body)
        return body

    def end_body(self) -> None:
        """End the innermost body that is being traced."""
        self.bodies.pop()
        self._inside.pop()

    def repeat(self, body: Body) -> None:
        """Do again what a loop's body did when it was traced, each part at its own line."""
        self.stacks.forget()
        outer = self._repeated
        self._inside.append(body)
        for allocation in body.tensors:
            self._begin_trip(allocation)
        try:
            for stack, action in body.actions:
                self._repeated = stack
                action()
        finally:
            self._repeated = outer
            self._inside.pop()

    def _begin_trip(self, allocation: Allocation) -> None:
        """Let a trip find a tensor of its body unwritten; on the chip it takes its space anew, with its first write.

        From its last access in a trip to its first write in the next one, other tiles of the body may be there:
        nki-library's ``moe_cte`` (implementation 2) fits only so.
        """
        storage = allocation.storage
        if allocation.role == "tile" and allocation.memory.is_on_chip and not storage.is_all(UNWRITTEN):
            self._add_storage(storage, self.program.storages[storage.id])
        storage.mark(whole(allocation), UNWRITTEN)

    def is_outside(self, allocation: Allocation) -> bool:
        """Return whether a tensor was allocated before the body of a loop on the device that this is in."""
        return bool(self._inside) and allocation.index < self._inside[-1].first

    def leave(self, body: Body) -> None:
        """Close the scope of the tensors that a loop's body allocated."""
        self.left.append((body.first, max((tensor.index for tensor in body.tensors), default=0)))
        self.straight.clear()  # from now on each call looks whether its tensors are in scope

    def check_allocation(self, call: str, name: str, tensor: NkiTensor) -> None:
        """Refuse a tensor of another run, or of another core's program."""
        index = tensor.allocation.index
        if index > len(self.marks) or self.marks[index - 1] is not tensor.allocation.mark:
            other = "on another core or " if self.team is not None else ""
            raise IllegalOperand(
                f"{call}: {name} {tensor.describe()} was allocated {other}in another run of a kernel",
                advice="allocate it in this kernel, or pass data from run to run as arrays",
            )

    def check_scope(self, call: str, allocation: Allocation) -> None:
        """Refuse a tensor of a loop's body behind the loop.

        Source: AWS Neuron SDK, ``nki/migration/index.rst``, "Rules for migrated loops".
        """
        if self._repeated < 0 and any(first <= allocation.index <= last for first, last in self.left):
            raise IllegalOperand(
                f"{call}: {allocation.describe()} belongs to the body of a loop that was left",
                numbers=(f"allocated at {allocation.where[0] if allocation.where else 'an unknown place'}",),
                advice="allocate it before the loop",
            )

    def record(self, signature: int, slots: list[int], name: str | None, stack: int) -> int:
        """Append a record, made at the call stack ``stack``, and return its index."""
        index = self.program.append(signature, slots, stack, self.core, self.block, self.trip)
        self.recorded(index, name)
        return index

    def recorded(self, index: int, name: str | None) -> None:
        """Note what the row of a record does not say."""
        program = self.program
        if name is not None:
            program.names[index] = name
        if self.block >= 0:
            if self._block_last >= 0:
                program.edges.append((index, self._block_last))
            self._block_last = index
        if len(program.rows) >= MOST_ROWS:
            program.settle()

    @contextlib.contextmanager
    def no_reorder(self) -> Iterator[None]:
        """Keep the order of all instructions inside: each depends on the one before it. A block may be nested."""
        if self.block >= 0:
            yield
            return
        self.perform(self._begin_block)
        try:
            yield
        finally:
            self.perform(self._end_block)

    def _begin_block(self) -> None:
        self.block, self._blocks, self._block_last = self._blocks, self._blocks + 1, -1

    def _end_block(self) -> None:
        self.block = -1

    def located(self) -> Located:
        """Give errors raised inside the kernel line that they come from."""
        return Located(self)


def current(call: str) -> Kernel:
    """Return the running kernel; KernelError names ``call`` when there is none."""
    kernel = _CURRENT.get()
    if kernel is None:
        raise KernelError(
            f"{call} was called outside of a kernel",
            advice="call it in a function that nki.simulate(kernel)(…) or neurosim.simulate(kernel)(…) runs",
        )
    return kernel


running: Callable[[], Kernel | None] = _CURRENT.get
"""Return the running kernel, or None."""


@contextlib.contextmanager
def run(kernel: Kernel) -> Iterator[Kernel]:
    """Make ``kernel`` the running one, also nested in another; the former comes back after any exception."""
    token = _CURRENT.set(kernel)
    try:
        yield kernel
    finally:
        _CURRENT.reset(token)
        kernel.stacks.forget()
