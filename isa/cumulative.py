"""An operation of a tile with a number or a column, and a running reduction along the free axes.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``tensor_scalar_cumulative``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from neurosim import dtypes
from neurosim.chip import Chip
from neurosim.datapath.accumulators import IDENTITY, begin, command_rule, state, taint
from neurosim.datapath.modes import ReduceCmd
from neurosim.datapath.opcodes import arithmetic, one_of
from neurosim.datapath.operators import Operator
from neurosim.datapath.rules import Broken, column, dtype_in, same_elements
from neurosim.datapath.streams import stream
from neurosim.engines import Engine, Memory
from neurosim.execution.lanes import Lanes
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit
from neurosim.numerics import alu
from neurosim.numerics.scan import cumulate
from neurosim.program import Access
from neurosim.work import Lanewise, Work

_START = {**IDENTITY, "subtract": 0.0}
"""What the registers begin with after ``reset_reduce``, by ``op1``."""
_FLOATS = (dtypes.float32, dtypes.bfloat16, dtypes.float16)
_FLOATS8 = (dtypes.float8_e4m3, dtypes.float8_e4m3fn, dtypes.float8_e5m2)
_INTEGERS = (dtypes.int8, dtypes.int16, dtypes.uint8, dtypes.uint16)


class TensorScalarCumulative(Instruction, mnemonic="tensor_scalar_cumulative", engines=(Engine.vector,)):
    """reg = (src[:, i] <op0> imm0) <op1> reg for ascending i, and dst[:, i] = reg.

    All free axes are one. The registers are float32 and not rounded to dst's dtype between elements; they are the
    accumulator registers of Vector, and hold the last value afterwards. ``reduce_cmd`` resets them first (0 for add and
    subtract, 1 for multiply, ∓Inf for maximum and minimum), goes on with what they hold, or loads ``imm1``, which the
    other commands leave alone.
    """

    dst: Tile = Out(Memory.sbuf, Memory.psum, indirect=True)
    src: Tile = In(Memory.sbuf, Memory.psum, indirect=True)
    op0: Operator
    op1: Operator
    imm0: Tile | float = In(Memory.sbuf, Memory.psum, number=True)
    imm1: Tile | float | None = In(Memory.sbuf, Memory.psum, number=True, default=None)
    reduce_cmd: ReduceCmd = ReduceCmd.reset_reduce
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Equal extents, no 32-bit integers, an arithmetic operator and a reduction, and what its command needs."""
        yield same_elements("dst", self.dst, "src", self.src)
        for name, tile in (("dst", self.dst), ("src", self.src)):
            yield dtype_in(name, tile, (*_FLOATS, *_FLOATS8, *_INTEGERS))
        yield arithmetic("op0", self.op0, chip)
        yield one_of("op1", self.op1, tuple(_START))
        yield column("imm0", self.imm0, self.src, (dtypes.float32,))
        yield column("imm1", self.imm1, self.src, (dtypes.float32,))
        yield command_rule(self.reduce_cmd, (ReduceCmd.reset_reduce, ReduceCmd.reduce, ReduceCmd.load_reduce))
        if self._loads() and self.imm1 is None:
            yield Broken("reduce_cmd.load_reduce without imm1", (), "pass what the registers begin with as imm1")

    def _loads(self) -> bool:
        return self.reduce_cmd is ReduceCmd.load_reduce

    def state(self) -> tuple[tuple[str, Access], ...]:
        """Use the accumulator registers."""
        return state(self.reduce_cmd)

    def execute(self, lanes: Lanes) -> None:
        """Widen, operate, carry the registers along, round what is kept."""
        values = alu.binary(self.op0.name, lanes.f32(self.src), lanes.column(self.imm0))
        start = lanes.column(self.imm1) if self._loads() and self.imm1 is not None else 0.0
        registers = begin(lanes, self.reduce_cmd, _START[self.op1.name], self.src.partitions, start)
        states = cumulate(self.op1.name, values, registers)
        registers[:] = states[:, -1]
        taint(lanes, self.src, self.imm0, self.imm1 if self._loads() else None)
        lanes.put(self.dst, states)

    def holes(self, holes: Holes) -> Holes:
        """A hole reaches every later value of its partition, one of a column all of them."""
        rows = self.dst.partitions
        mask = np.zeros((rows, self.dst.free_elements), np.bool_)
        for name, hole in holes.items():
            if name != "imm1" or self._loads():
                mask |= hole.reshape(rows, -1)
        return {"dst": np.logical_or.accumulate(mask, axis=1)}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream in, one out, and a fetch per column; each element waits for the one before, as in a scan."""
        pointers = isinstance(self.imm0, Tile) + (self._loads() and isinstance(self.imm1, Tile))
        return (Lanewise("scan", self.dst.free_elements, (stream(self.src),), stream(self.dst), pointers=pointers),)


tensor_scalar_cumulative = emit(TensorScalarCumulative)
