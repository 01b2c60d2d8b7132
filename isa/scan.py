"""Scans along the free axis.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``tensor_tensor_scan``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from neurosim.chip import Chip
from neurosim.datapath.opcodes import arithmetic
from neurosim.datapath.operators import Operator
from neurosim.datapath.rules import Broken, column, not_both_in_psum, same_elements
from neurosim.datapath.streams import stream
from neurosim.engines import Engine, Memory
from neurosim.execution.lanes import Lanes
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit
from neurosim.numerics.scan import scan
from neurosim.work import Lanewise, Work


class TensorTensorScan(Instruction, mnemonic="tensor_tensor_scan", engines=(Engine.vector,)):
    """dst[:, i] = (data0[:, i] <op0> state) <op1> data1[:, i], where the state is the result before.

    ``initial``, a number or a [P, 1] tile, is the first state. All free axes are scanned as one. The state is float32
    and is not rounded to dst's dtype between steps. ``reverse0`` and ``reverse1`` exchange the sides of an operator.
    """

    dst: Tile = Out(Memory.sbuf, Memory.psum)
    data0: Tile = In(Memory.sbuf, Memory.psum)
    data1: Tile = In(Memory.sbuf, Memory.psum)
    initial: Tile | float = In(Memory.sbuf, Memory.psum, number=True)
    op0: Operator
    op1: Operator
    reverse0: bool = False
    reverse1: bool = False
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Equal extents, arithmetic operators, a column that matches, at most one full tile from PSUM."""
        yield same_elements("dst", self.dst, "data0", self.data0)
        yield same_elements("data0", self.data0, "data1", self.data1)
        yield not_both_in_psum("data0", self.data0, "data1", self.data1)
        yield column("initial", self.initial, self.data0, None)
        yield arithmetic("op0", self.op0, chip)
        yield arithmetic("op1", self.op1, chip)

    def execute(self, lanes: Lanes) -> None:
        """Widen, carry the state along, round what is kept."""
        data0, data1 = lanes.f32(self.data0), lanes.f32(self.data1)
        initial, room = lanes.column(self.initial), lanes.room(self.dst, self.data0, self.data1)
        states = scan(self.op0.name, self.op1.name, data0, data1, initial, self.reverse0, self.reverse1, room)
        lanes.put(self.dst, states)

    def holes(self, holes: Holes) -> Holes:
        """A hole reaches every later state of its partition."""
        rows = self.dst.partitions
        mask = np.zeros((rows, self.dst.free_elements), np.bool_)
        for hole in holes.values():
            mask |= hole.reshape(rows, -1)  # initial is [P, 1] and reaches the whole row
        return {"dst": np.logical_or.accumulate(mask, axis=1)}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """Two streams in, one out, and a fetch of the first state."""
        inputs = (stream(self.data0), stream(self.data1))
        pointers = int(isinstance(self.initial, Tile))
        return (Lanewise("scan", self.dst.free_elements, inputs, stream(self.dst), pointers=pointers),)


tensor_tensor_scan = emit(TensorTensorScan)
