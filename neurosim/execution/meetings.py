"""Instructions at which cores meet: each core waits for the others, and the last to arrive carries it out for all.

A meeting leaves one record per core, one after the other, so that in the record everything before a meeting stands
before the records of all its members. What is read is read when all have arrived; no core has moved on by then.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from neurosim.engines import Engine
from neurosim.errors import IllegalOperand
from neurosim.execution import seen
from neurosim.execution.calls import label_of
from neurosim.execution.handle import NkiInstruction
from neurosim.execution.interning import Known
from neurosim.execution.lanes import Lanes
from neurosim.execution.operands import Operand
from neurosim.instruction import Instruction
from neurosim.kernel import Kernel
from neurosim.launch.cores import alone
from neurosim.memory import Mask, Origin
from neurosim.view import NkiTensor


@dataclass(slots=True)
class Visit:
    """One core's part in a meeting.

    Attributes:
        call: what it issued.
        kernel: its run.
        core, where, what: which core, its line, the instruction in words.
        engine: where the instruction runs.
        signature, slots, label, stack: what its record will hold.
        holes: by operand that is read, its unwritten elements.
        origin: says where these come from.
        record: the index of its record, once all have met.
    """

    call: Any
    kernel: Kernel
    core: int
    where: tuple[str, ...]
    what: str
    engine: Engine
    signature: int
    slots: list[int]
    label: str | None
    stack: int
    holes: dict[str, Mask]
    origin: Origin | None
    record: int = -1


class Meeting(Instruction):
    """Base of the instructions at which cores meet."""

    @abstractmethod
    def members(self, kernel: Kernel) -> tuple[int, ...]:
        """Return the cores that meet, ascending."""

    @abstractmethod
    def key(self) -> Hashable:
        """Return what must be equal on all cores for them to meet here."""

    @abstractmethod
    def say(self) -> str:
        """Return the instruction in words, with what the key depends on."""

    @abstractmethod
    def perform(self, visits: Sequence[Visit]) -> None:
        """Carry it out for all cores. ``visits`` are in the order of cores."""

    def exchange(self, calls: Sequence[Any]) -> None:
        """Move values between the cores. ``calls`` are what each core issued, in the order of cores."""

    def execute(self, lanes: Lanes) -> None:
        """Nothing: :meth:`exchange` does it, for all cores at once."""

    def _lanes(self, kernel: Kernel, engine: Engine, tensors: list[tuple[str, NkiTensor, Operand]]) -> None:
        """Return None: nothing is executed before all are there, not even alone."""

    def _run(
        self,
        kernel: Kernel,
        signature: Known,
        tensors: list[tuple[str, NkiTensor, Operand]],
        caller: FrameType | None,
    ) -> NkiInstruction:
        label = label_of(self)
        stack = kernel.stack(caller)
        slots, holes, origin = self._take(kernel, tensors)
        if holes:
            seen.note(f"{self.mnemonic} reads memory that was written in part")
        visit = Visit(
            self,
            kernel,
            kernel.core,
            kernel.where(stack),
            self.say(),
            signature.engine,
            signature.number,
            slots,
            label,
            stack,
            holes,
            origin,
        )
        members = self.members(kernel)
        if members == (kernel.core,):
            self._meet([visit])
        elif kernel.team is None:
            raise alone(members, self.say())
        else:
            kernel.team.meet(visit, members, (type(self), self.key()), self._meet)
        return NkiInstruction(kernel.program, visit.record, label)

    def _meet(self, visits: Sequence[Visit]) -> None:
        self.perform(visits)
        for visit in visits:
            visit.kernel.writers.extend(_at_addresses(visit.call))
            visit.record = visit.kernel.record(visit.signature, visit.slots, visit.label, visit.stack)
        if len(visits) > 1:
            kernel = visits[0].kernel
            kernel.writes.meet(len(kernel.program.meetings))
            kernel.program.meetings.append((visits[0].record, len(visits)))


def _at_addresses(call: Instruction) -> Iterator[int]:
    """Yield the numbers of the tensors with an address that an instruction writes."""
    for name, operand in call.declared():
        if operand is not None and operand.is_written:
            allocation = getattr(call, name).allocation
            if allocation.storage.is_plane:
                yield allocation.index


def differ(visits: Sequence[Visit], what: str, values: Sequence[object]) -> None:
    """Refuse a meeting at which the cores do not say the same.

    Raises:
        IllegalOperand: ``values``, one per core, are not equal.
    """
    if any(value != values[0] for value in values):
        raise IllegalOperand(
            f"{visits[0].call.mnemonic}: the cores meet with different {what}",
            numbers=tuple(
                f"core {visit.core}: {value}, at {visit.where[0] if visit.where else '?'}"
                for visit, value in zip(visits, values, strict=True)
            ),
            advice="all cores of a meeting run the same call",
        )
