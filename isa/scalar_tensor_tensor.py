"""An operation with a number or column, then one with a second tile, in one pass.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``scalar_tensor_tensor``; its cost: the same file of SDK 2.26.
"""

from __future__ import annotations

from collections.abc import Iterator

from neurosim.chip import Chip
from neurosim.datapath.opcodes import arithmetic
from neurosim.datapath.operators import Operator
from neurosim.datapath.rules import Broken, column, not_both_in_psum, same_elements
from neurosim.datapath.streams import stream
from neurosim.dtypes import bfloat16
from neurosim.engines import Engine, Memory
from neurosim.execution.lanes import Lanes
from neurosim.instruction import In, Instruction, Out, Tile, emit
from neurosim.numerics import alu
from neurosim.work import Lanewise, Work


class ScalarTensorTensor(Instruction, mnemonic="scalar_tensor_tensor", engines=(Engine.vector,)):
    """dst = (data <op0> operand0) <op1> operand1; operand0 is a number or a [P, 1] tile, operand1 a full tile.

    Arithmetic is float32, rounded after each operation and once more to dst's dtype. ``reverse0`` and ``reverse1``
    exchange the two sides of an operation.
    """

    dst: Tile = Out(Memory.sbuf, Memory.psum)
    data: Tile = In(Memory.sbuf, Memory.psum)
    op0: Operator
    operand0: Tile | float = In(Memory.sbuf, Memory.psum, number=True)
    op1: Operator
    operand1: Tile = In(Memory.sbuf, Memory.psum)
    reverse0: bool = False
    reverse1: bool = False
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Equal extents, arithmetic operators, a column that matches, at most one full tile from PSUM."""
        yield same_elements("dst", self.dst, "data", self.data)
        yield same_elements("data", self.data, "operand1", self.operand1)
        yield not_both_in_psum("data", self.data, "operand1", self.operand1)
        yield column("operand0", self.operand0, self.data, None)
        yield arithmetic("op0", self.op0, chip)
        yield arithmetic("op1", self.op1, chip)

    def execute(self, lanes: Lanes) -> None:
        """Widen, operate twice, round."""
        data, operand0 = lanes.f32(self.data), lanes.column(self.operand0)
        operand1 = lanes.f32(self.operand1)
        room = lanes.room(self.dst, self.data, self.operand0, self.operand1)
        is_apart = self.operand1.allocation.storage is not self.dst.allocation.storage  # it is read again
        left, right = (operand0, data) if self.reverse0 else (data, operand0)
        value = alu.binary(self.op0.name, left, right, room if is_apart else None)
        left, right = (operand1, value) if self.reverse1 else (value, operand1)
        lanes.put(self.dst, alu.binary(self.op1.name, left, right, room))

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """Two streams in, one out; the documented fast case costs what ``tensor_tensor`` does."""
        inputs = (stream(self.data), stream(self.operand1))
        fast = (
            self.data.dtype == self.operand1.dtype == bfloat16
            and (self.op0.name, self.op1.name) == ("subtract", "multiply")
            and self.dst.free_elements % 2 == 0
        )
        law = "tensor_tensor" if fast else "scalar_tensor_tensor"
        pointers = int(isinstance(self.operand0, Tile))
        return (Lanewise(law, self.dst.free_elements, inputs, stream(self.dst), pointers=pointers, quick=fast),)


scalar_tensor_tensor = emit(ScalarTensorTensor)
