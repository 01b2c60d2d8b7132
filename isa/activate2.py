"""An activation function of the result of two configurable operations, with a reduction, on Scalar of NeuronCore-v4.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``activate2``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from neurosim.chip import Chip
from neurosim.datapath.accumulators import (
    IDENTITY,
    begin,
    check_known,
    command_rule,
    reduced_holes,
    scalar_state,
    taint,
)
from neurosim.datapath.activations import warn_outside
from neurosim.datapath.modes import ReduceCmd
from neurosim.datapath.opcodes import one_of
from neurosim.datapath.operators import Operator
from neurosim.datapath.rules import Broken, column, same_dtype, same_elements, since
from neurosim.datapath.streams import stream
from neurosim.engines import Engine, Memory
from neurosim.execution.lanes import Float32s, Lanes
from neurosim.execution.registers import ACCUMULATOR
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit, lanewise_holes
from neurosim.numerics import act, alu
from neurosim.numerics.scan import cumulate
from neurosim.program import Access
from neurosim.work import AccumulatorRead, Lanewise, Work

_PAIRS = "multiply add, multiply subtract, multiply bypass, add bypass, subtract bypass, bypass bypass"
_START = {name: IDENTITY[name] for name in ("add", "maximum", "minimum")} | {"abs_max": 0.0, "abs_min": np.inf}
"""What the registers begin with after a reset, by ``reduce_op``."""
_REDUCES = (ReduceCmd.reduce, ReduceCmd.reset_reduce)


class Activate2(Instruction, mnemonic="activate2", engines=(Engine.scalar,)):
    """dst = op((data <op0> imm0) <op1> imm1), in float32; optionally reduced along the free axes into the registers.

    ``reverse0`` and ``reverse1`` exchange the sides of an operation; ``nl.bypass`` leaves one out, and its number with
    it. ``relu_param`` is the slope of ``nl.prelu`` below zero. The registers are those of ``activation``; they take the
    float32 results one by one, before these are rounded to dst's dtype (*assumed*), and ``reduce_res`` [P, 1] reads
    them out. Of ``abs_max`` and ``abs_min`` a reset leaves 0 and Inf (*assumed*).
    """

    dst: Tile = Out(Memory.sbuf, Memory.psum, indirect=True)
    op: Operator
    data: Tile = In(Memory.sbuf, Memory.psum, indirect=True)
    imm0: Tile | float | None = In(Memory.sbuf, Memory.psum, number=True, optional=True)
    imm1: Tile | float | None = In(Memory.sbuf, Memory.psum, number=True, optional=True)
    op0: Operator
    op1: Operator
    relu_param: Tile | float = In(Memory.sbuf, Memory.psum, number=True, default=0.0)
    reverse0: bool = False
    reverse1: bool = False
    reduce_op: Operator | None = None
    reduce_res: Tile | None = Out(Memory.sbuf, Memory.psum, default=None)
    reduce_cmd: ReduceCmd = ReduceCmd.idle
    name: str | None = None

    def _stages(self) -> tuple[tuple[int, Operator, Any, bool], ...]:
        return (0, self.op0, self.imm0, self.reverse0), (1, self.op1, self.imm1, self.reverse1)

    def _steps(self) -> tuple[tuple[int, Operator, Any, bool], ...]:
        return tuple(stage for stage in self._stages() if stage[1].name != "bypass")

    def _columns(self) -> tuple[Any, ...]:
        return (*(imm for _, _, imm, _ in self._steps()), self.relu_param)

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """NeuronCore-v4; equal extents, a function, a documented pair of operators, columns that match."""
        yield since(4, chip, "use nisa.activation, which takes scale= and bias=")
        yield same_elements("dst", self.dst, "data", self.data)
        if not isinstance(self.op, Operator) or self.op.name not in (*act.ACTIVATIONS, "prelu"):
            known = "known: prelu, " + ", ".join(act.ACTIVATIONS)
            yield Broken(f"op={self.op!r} is not an activation function", (known,))
        pair = " ".join(op.name if isinstance(op, Operator) else repr(op) for op in (self.op0, self.op1))
        if pair not in _PAIRS.split(", "):
            yield Broken(
                f"op0={self.op0!r} and op1={self.op1!r} are no pair of activate2",
                (f"known: {_PAIRS}",),
            )
            return
        yield from self._operand_rules()
        yield from self._reduce_rules()

    def _operand_rules(self) -> Iterator[Broken | None]:
        for number, op, imm, reverse in self._stages():
            yield column(f"imm{number}", imm, self.data, None)
            if op.name != "bypass" and imm is None:
                yield Broken(f"op{number} needs imm{number}", (), "pass a number or a [P, 1] tile")
            if op.name == "bypass" and reverse:
                yield Broken(f"reverse{number}=True with op{number}=nl.bypass", (), "there are no sides to exchange")
        if isinstance(self.imm0, Tile) and isinstance(self.imm1, Tile):
            yield same_dtype("imm0", self.imm0, "imm1", self.imm1)
        yield column("relu_param", self.relu_param, self.data, None)
        if self.op.name != "prelu" and (isinstance(self.relu_param, Tile) or self.relu_param):
            yield Broken(f"relu_param with {self.op!r}, which takes none", (), "it is the slope of nl.prelu")

    def _reduce_rules(self) -> Iterator[Broken | None]:
        yield command_rule(self.reduce_cmd, (ReduceCmd.idle, ReduceCmd.reset, *_REDUCES))
        if self.reduce_cmd is not ReduceCmd.idle:
            yield one_of("reduce_op", self.reduce_op, tuple(_START))
        elif self.reduce_op is not None:
            yield Broken(f"reduce_op={self.reduce_op!r} with reduce_cmd.idle", (), "pass reset_reduce")
        yield column("reduce_res", self.reduce_res, self.data, None)

    def state(self) -> tuple[tuple[str, Access], ...]:
        """Return the use of the accumulator registers."""
        return scalar_state(self.reduce_cmd, self.reduce_res is not None)

    def execute(self, lanes: Lanes) -> None:
        """Operate twice, apply the function, reduce, round."""
        value = lanes.f32(self.data)
        for _, op, imm, reverse in self._steps():
            other = lanes.column(imm)
            value = alu.binary(op.name, other, value) if reverse else alu.binary(op.name, value, other)
        warn_outside(self.mnemonic, self.op, value)
        result = self._function(value, lanes)
        registers = self._reduce(lanes, result)
        lanes.put(self.dst, result)
        if self.reduce_res is not None:
            lanes.put(self.reduce_res, registers.reshape(-1, 1).copy())

    def _function(self, value: Float32s, lanes: Lanes) -> Float32s:
        if self.op.name != "prelu":
            return act.activate(self.op.name, value)
        return np.where(value > 0, value, alu.binary("multiply", value, lanes.column(self.relu_param)))

    def _reduce(self, lanes: Lanes, result: Float32s) -> Float32s:
        """Return the registers of the tile's lanes, after what the command does to them."""
        count = self.data.partitions
        if self.reduce_cmd is ReduceCmd.idle or self.reduce_op is None:
            if self.reduce_res is not None:
                check_known(lanes, count)
            return lanes.registers(ACCUMULATOR)[:count]
        command = ReduceCmd.reduce if self.reduce_cmd is ReduceCmd.reduce else ReduceCmd.reset_reduce
        registers = begin(lanes, command, _START[self.reduce_op.name], count)
        if self.reduce_cmd in _REDUCES:
            registers[:] = cumulate(self.reduce_op.name, result, registers, reverse=True)[:, -1]
            taint(lanes, self.data, *self._columns())
        return registers

    def holes(self, holes: Holes) -> Holes:
        """Lane by lane into dst; a hole anywhere in a partition reaches its reduction."""
        unused = [f"imm{number}" for number, op, _, _ in self._stages() if op.name == "bypass"]
        mask = lanewise_holes(self.dst, [hole for name, hole in holes.items() if name not in unused])
        reduced = mask if self.reduce_cmd in _REDUCES else np.zeros_like(mask)
        return {"dst": mask, **reduced_holes(reduced.reshape(self.data.partitions, -1), self.reduce_res)}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream in, one out, a fetch per column; and a read of the accumulator."""
        pointers = sum(isinstance(entry, Tile) for entry in self._columns())
        inputs, output, elements = (stream(self.data),), stream(self.dst), self.dst.free_elements
        passing = Lanewise("activation", elements, inputs, output, pointers=pointers, table=self.op.name)
        return (passing,) if self.reduce_res is None else (passing, AccumulatorRead(self.data.partitions))


activate2 = emit(Activate2)
