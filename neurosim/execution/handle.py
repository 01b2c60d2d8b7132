"""What a call of an instruction returns: a handle of its record, to wait for others."""

from __future__ import annotations

from neurosim.errors import IllegalOperand
from neurosim.kernel import running
from neurosim.program import Program


class NkiInstruction:
    """Handle of a recorded instruction, as every ``nki.isa`` call returns it.

    Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``NkiInstruction``.
    """

    __slots__ = ("_program", "index", "name")

    def __init__(self, program: Program, index: int, name: str | None) -> None:
        self._program = program
        self.index = index
        self.name = name

    def depends_on(self, *producers: NkiInstruction) -> NkiInstruction:
        """Make this instruction run after each producer has completed; returns itself.

        Raises:
            IllegalOperand: a producer that is no earlier instruction of the same kernel.
        """
        kernel = running()
        if kernel is None or kernel.program is not self._program:
            self._wait_for(producers)
        else:
            kernel.perform(lambda: self._wait_for(producers))
        return self

    def _wait_for(self, producers: tuple[NkiInstruction, ...]) -> None:
        trips = self._program.trip_ids
        for producer in producers:
            known = isinstance(producer, NkiInstruction) and producer._program is self._program
            if not known or producer.index >= self.index:
                raise IllegalOperand(
                    f"depends_on: {producer!r} is not an earlier instruction of this kernel",
                    where=tuple(map(str, self._program.where(self.index))),
                    advice="pass what an earlier nki.isa call returned",
                )
            if not self._program.is_within(trips[self.index], trips[producer.index]):
                raise IllegalOperand(
                    f"depends_on: {producer!r} is in a trip of a loop on the device that {self!r} is not in",
                    where=tuple(map(str, self._program.where(self.index))),
                    advice="wait outside of the loop for nothing inside it: its head is a meeting of all engines",
                )
            self._program.edges.append((self.index, producer.index))

    def again(self, later: NkiInstruction) -> None:
        """Stand for what the same instruction did in a later trip of a loop on the device."""
        self.index = later.index

    def __repr__(self) -> str:
        return f"NkiInstruction({self._program.record(self.index).signature.instruction}, {self.index})"
