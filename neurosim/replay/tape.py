"""A record as instructions to execute again on other values, without the kernel's Python and without its checks.

Each record becomes the instruction that it was: signature and slots say all of it. What the recorded run checked
depends on shapes alone (else :mod:`neurosim.execution.seen` has a reason, and there is no tape), so that it holds
again. What remains is to execute, and to keep the shadow of memory that the tensor engine accumulates into: whether a
matmul overwrites or adds is read there. Every other byte is written before it is read, as the recorded run has checked,
or what comes of it reaches no output; it is 0 then, as in a run.

Tensors with an address in PSUM share their bytes, and what one of them wrote is unwritten to the others. The record
says where they are and not which is which, so that the run keeps that beside it, of each operand that is written.

A tensor's bytes are taken at its first record and given on after its last one; inputs and outputs have their own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from neurosim.chip import Chip, psum_bytes
from neurosim.dtypes import DType
from neurosim.engines import Engine, Memory
from neurosim.execution.lanes import Lanes
from neurosim.execution.meetings import Meeting
from neurosim.execution.operands import Operand
from neurosim.instruction import Instruction
from neurosim.kernel import Kernel
from neurosim.memory import UNWRITTEN, WRITTEN, Allocation, Bytes, Storage
from neurosim.plane import Plane
from neurosim.program import Access, Pattern, Program, Signature
from neurosim.replay.template import Place
from neurosim.view import NkiTensor, whole

Classes = Sequence[type[Instruction]]
"""The class of each signature's instruction."""
LanesOf = Callable[[Kernel, Engine], Any]
_SMALLEST_KEPT = 4096
"""Bytes; a smaller buffer is made as fast as it is found again."""


class Unreplayable(Exception):
    """A record that cannot be made an instruction again, with the reason."""


@dataclass(slots=True)
class _Step:
    """One record, ready to execute.

    Attributes:
        core, engine, instruction, operands: what executes, where, on which tensors.
        admits: whether it looks at what memory has been through before it executes.
        is_meeting: whether cores meet here, and the first of them executes for all.
        marks: the operands whose shadow is kept and that it writes.
        detached: inputs that it writes, which are the caller's bytes until then.
        taken, given: storages whose bytes are first used here, and last.
        calls: of a meeting's first record, what all cores issued, in their order; none of the others.
    """

    core: int
    engine: Engine
    instruction: Instruction
    operands: list[tuple[str, NkiTensor, Operand]]
    admits: bool
    is_meeting: bool
    marks: list[NkiTensor]
    detached: list[Storage]
    taken: list[Storage]
    given: list[Storage]
    calls: list[Meeting]


class _Inputs(Kernel):
    """A run whose tensors are there already: arguments take their places, in their order."""

    def adopt(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        size_bytes: int,
        buffer: Bytes | None,
        name: str,
        memory: Memory = Memory.shared_hbm,
    ) -> NkiTensor:
        """Put a caller's bytes into the next input."""
        allocation = self.inputs[self.adopted]
        if (allocation.shape, allocation.dtype) != (shape, dtype):
            raise Unreplayable(f"{name} is not as it was recorded")
        self.adopted += 1
        allocation.storage.renew(buffer, WRITTEN)
        return whole(allocation)

    adopted: int = 0


class Tape:
    """A program that can be executed again; one run at a time.

    Attributes:
        lock: who has it may run.
    """

    def __init__(
        self,
        program: Program,
        chip: Chip,
        classes: Classes,
        constants: dict[int, Bytes],
        writers: Sequence[int] = (),
        blank: Collection[int] = (),
    ) -> None:
        self.lock = threading.Lock()
        self._program, self._chip, self._classes = program, chip, classes
        self._constants, self._blank = constants, blank
        self._writers = iter(writers)
        self._owners: dict[tuple[int, int], Allocation] = {}
        self._planes = {number for number, info in enumerate(program.storages) if info.role == "plane"}
        self._allocations = [self._allocation(number) for number in range(len(program.storages))]
        self._tensors: dict[tuple[int, ...], NkiTensor] = {}
        self._forms = [_Form(signature, cls) for signature, cls in zip(program.signatures, classes, strict=True)]
        self._steps: list[_Step] = [self._step(record) for record in range(len(program))]
        self._tensors.clear()
        self._owners.clear()
        if next(self._writers, None) is not None:
            raise Unreplayable("more tensors with an address were written than the record has")
        for begin, count in program.meetings:
            calls = [step.instruction for step in self._steps[begin : begin + count]]
            self._steps[begin].calls = [call for call in calls if isinstance(call, Meeting)]
        self._find_lifetimes()

    def _find_lifetimes(self) -> None:
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        begins, ends = self._spans()
        for index, step in enumerate(self._steps):
            for _, tensor, _ in step.operands:
                number = tensor.allocation.storage.id
                first.setdefault(number, begins.get(index, index))
                last[number] = ends.get(index, index)
        for number, allocation in enumerate(self._allocations):
            if number in first and allocation.role != "input":
                self._steps[first[number]].taken.append(allocation.storage)
                self._steps[last[number]].given.append(allocation.storage)

    def _spans(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the first and the last record of each meeting, by each of its records: it is carried out as one."""
        meetings = [range(first, first + count) for first, count in self._program.meetings]
        return (
            {index: meeting[0] for meeting in meetings for index in meeting},
            {index: meeting[-1] for meeting in meetings for index in meeting},
        )

    def kernel(self) -> Kernel:
        """Return a run to adopt arguments in and to take outputs from."""
        recorded = self._program
        scratch = Program(recorded.chip_name, recorded.generation, recorded.nki_version)
        scratch.storages, scratch.stacks = recorded.storages.copy(), [()]
        kernel = _Inputs(self._chip, scratch)
        kernel.inputs = self._allocations
        kernel.marks = [allocation.mark for allocation in self._allocations]
        kernel.pin(0)
        return kernel

    def execute(self, kernel: Kernel, outputs: frozenset[int]) -> None:
        """Execute all records; ``outputs`` are the storages that are returned."""
        pool: dict[int, list[Bytes]] = {}
        for number, constant in self._constants.items():
            self._allocations[number].storage.renew(constant, WRITTEN)
        for number in outputs:
            if self._allocations[number].role != "input":
                self._allocations[number].storage.renew(None, WRITTEN)
        cores = [kernel, *(kernel.beside(core) for core in range(1, max(self._program.cores, default=0) + 1))]
        shared = [{engine: Lanes(core, engine) for engine in Engine} for core in cores]
        make = kernel.lanes
        for step in self._steps:
            for storage in step.taken:
                if storage.id not in outputs:
                    kept = None if storage.id in self._blank else pool.get(storage.size_bytes)
                    state = UNWRITTEN if storage.memory is Memory.psum else WRITTEN
                    storage.renew(kept.pop() if kept else None, state, borrowed=False)
            for storage in step.detached:
                storage.detach()
            lanes = shared[step.core][step.engine] if make is None else make(cores[step.core], step.engine)
            if step.admits:
                step.instruction.admit(lanes)
            if not step.is_meeting:
                lanes.run(step.instruction, step.operands)
            elif step.calls:
                step.calls[0].exchange(step.calls)
            for tensor in step.marks:
                tensor.allocation.storage.mark(tensor, step.instruction.state_written)
            for storage in step.given:
                if storage.id not in outputs:
                    _give(storage, pool)

    def release(self) -> None:
        """Let go of all bytes."""
        for allocation in self._allocations:
            allocation.storage.renew(None, WRITTEN)

    def view(self, place: Place) -> NkiTensor:
        """Return the tensor at a place of what the kernel returned."""
        first = place.offset_bytes // place.dtype.size_bytes
        return NkiTensor(self._allocations[place.storage], place.dtype, place.shape, place.steps, -1, 0, first)

    # -- from records to instructions -----------------------------------------------------------------------------

    def _allocation(self, number: int) -> Allocation:
        info = self._program.storages[number]
        row_bytes = info.row_bytes
        if number in self._planes:
            row_bytes = self._chip.sbuf.partition_bytes if info.memory is Memory.sbuf else psum_bytes(self._chip)
        keeps_owners = number in self._planes and info.memory is Memory.psum
        make = Plane if keeps_owners else Storage
        storage = make(info.memory, info.partitions, row_bytes, info.dtype.size_bytes)
        storage.id = number
        role, frames = "input" if info.role == "input" else "tile", self._program.stacks[info.stack]
        return Allocation(
            storage, info.name, info.shape, info.dtype, info.memory, 0, 0, row_bytes, 0, frames, number + 1, role
        )

    def _home(self, storage: int, pattern: Pattern) -> Allocation:
        """Return the allocation of an operand: in a plane, of what is written, the tensor that the run wrote."""
        home = self._allocations[storage]
        if storage not in self._planes or pattern.access is Access.READ:
            return home
        owner = next(self._writers, None)
        if owner is None:
            raise Unreplayable("fewer tensors with an address were written than the record has")
        return (
            self._owners.setdefault((storage, owner), replace(home, index=owner, role="plane"))
            if home.storage.is_plane
            else home
        )

    def _tensor(self, signature: int, role: int, pattern: Pattern, storage: int, offset_bytes: int) -> NkiTensor:
        home = self._home(storage, pattern)
        key = (signature, role, home.index, storage, offset_bytes)
        found = self._tensors.get(key)
        if found is None:
            first, rest = divmod(offset_bytes, pattern.dtype.size_bytes)
            if rest:
                raise Unreplayable("a tensor that begins within an element")
            found = self._tensors[key] = NkiTensor(
                home,
                pattern.dtype,
                pattern.shape,
                pattern.steps,
                pattern.partition_axis,
                pattern.start_partition,
                first,
            )
        return found

    def _step(self, index: int) -> _Step:
        program = self._program
        number = program.signature_ids[index]
        form = self._forms[number]
        slots = program.slots[program.slot_starts[index] : program.slot_starts[index + 1]]
        tensors = [
            self._tensor(number, role, pattern, slots[2 * role], slots[2 * role + 1])
            for role, pattern in enumerate(form.patterns)
        ]
        instruction, operands = form.made(tensors)
        written = [tensor for _, tensor, operand in operands if operand.access is not Access.READ]
        return _Step(
            program.cores[index],
            form.signature.engine,
            instruction,
            operands,
            form.admits,
            isinstance(instruction, Meeting),
            [tensor for tensor in written if tensor.buffer is Memory.psum],
            [tensor.allocation.storage for tensor in written if tensor.allocation.role == "input"],
            [],
            [],
            [],
        )


class _Form:
    """How records of one signature become instructions."""

    def __init__(self, signature: Signature, cls: type[Instruction]) -> None:
        self.signature = signature
        self.admits = cls.admit is not Instruction.admit
        self.patterns = [pattern for pattern in signature.patterns if pattern.memory is not Memory.state]
        declared = {name: operand for name, operand in cls.declared() if operand is not None}
        self._cls, self._fixed = cls, dict(signature.parameters)
        self._operands: list[tuple[str, Operand]] = []
        self._lists: dict[str, list[int]] = {}
        for place, pattern in enumerate(self.patterns):
            name = pattern.role.partition("[")[0]
            if name not in declared:
                raise Unreplayable(f"{signature.instruction} has an operand {pattern.role!r}")
            self._operands.append((pattern.role, declared[name]))
            if declared[name].several:
                self._lists.setdefault(name, []).append(place)

    def made(self, tensors: list[NkiTensor]) -> tuple[Instruction, list[tuple[str, NkiTensor, Operand]]]:
        """Return the instruction on these tensors, and its operands."""
        operands = [(role, tensor, operand) for (role, operand), tensor in zip(self._operands, tensors, strict=True)]
        fields: dict[str, Any] = {role: tensor for role, tensor, operand in operands if not operand.several}
        fields |= {name: [tensors[place] for place in entries] for name, entries in self._lists.items()}
        return self._cls(**self._fixed, **fields), operands


def _give(storage: Storage, pool: dict[int, list[Bytes]]) -> None:
    buffer = storage.give()
    if buffer is not None and buffer.size >= _SMALLEST_KEPT:
        pool.setdefault(buffer.size, []).append(buffer)
