"""Reciprocal on the vector engine.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``reciprocal``.
"""

from __future__ import annotations

from collections.abc import Iterator

from neurosim.chip import Chip
from neurosim.datapath.rules import Broken, same_elements
from neurosim.datapath.streams import stream
from neurosim.engines import Engine, Memory
from neurosim.execution.lanes import Lanes
from neurosim.instruction import In, Instruction, Out, Tile, emit
from neurosim.numerics import alu
from neurosim.work import Lanewise, Work


class Reciprocal(Instruction, mnemonic="reciprocal", engines=(Engine.vector,)):
    """dst = 1 / data in float32, correctly rounded (assumed: the manual says "higher precision" than Scalar's)."""

    dst: Tile = Out(Memory.sbuf, Memory.psum)
    data: Tile = In(Memory.sbuf, Memory.psum)
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Equal extents."""
        yield same_elements("dst", self.dst, "data", self.data)

    def execute(self, lanes: Lanes) -> None:
        """Widen, divide, round."""
        lanes.put(self.dst, alu.unary("reciprocal", lanes.f32(self.data), lanes.room(self.dst, self.data)))

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream in, one out."""
        return (Lanewise("reciprocal", self.dst.free_elements, (stream(self.data),), stream(self.dst)),)


reciprocal = emit(Reciprocal)
