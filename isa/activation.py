"""Activation functions on the scalar engine, with scale, bias and a running sum.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``activation`` and ``activation_reduce``; functions and their
valid ranges: ``nki.api.shared.rst``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from neurosim import dtypes
from neurosim.chip import Chip
from neurosim.datapath import accumulators
from neurosim.datapath.activations import warn_outside
from neurosim.datapath.modes import ReduceCmd
from neurosim.datapath.operators import Operator
from neurosim.datapath.rules import Broken, column, same_elements
from neurosim.datapath.streams import stream
from neurosim.engines import Engine, Memory
from neurosim.errors import UnknownBehavior
from neurosim.execution.holes import lanewise_holes
from neurosim.execution.lanes import Lanes
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit
from neurosim.numerics import act, convert, reduce
from neurosim.program import Access
from neurosim.work import AccumulatorRead, Lanewise, Work


class _Shared(ABC):
    """Operands and behaviour that both instructions share; a subclass orders them as NKI does."""

    mnemonic: ClassVar[str]
    dst: Tile
    op: Operator
    data: Tile
    bias: Tile | float | None
    scale: Tile | float
    reduce_op: Operator | None
    reduce_res: Tile | None

    @abstractmethod
    def command(self) -> Any:
        """Return what happens to the accumulator registers."""

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Equal extents, a function of the table, columns that match, a sum as the only reduction."""
        yield same_elements("dst", self.dst, "data", self.data)
        if not isinstance(self.op, Operator) or self.op.name not in act.ACTIVATIONS:
            yield Broken(
                f"op={self.op!r} is not an activation function",
                ("known: " + ", ".join(act.ACTIVATIONS),),
            )
        yield column("scale", self.scale, self.data, (dtypes.float32,))
        yield column("bias", self.bias, self.data, tuple(dtype for dtype in dtypes.ALL if dtype != dtypes.tfloat32))
        if chip.generation < 3 and isinstance(self.bias, (int, float)):
            yield Broken("bias is a number; NeuronCore-v2 takes a [P, 1] tile only", (), "memset a tile with it")
        allowed = (ReduceCmd.idle, ReduceCmd.reset, ReduceCmd.reduce, ReduceCmd.reset_reduce)
        if self.command() not in allowed:
            yield Broken(f"reduce_cmd={self.command()!r}", (), "activation knows idle, reset, reduce, reset_reduce")
            return
        reduces = self.command() in (ReduceCmd.reduce, ReduceCmd.reset_reduce)
        if reduces and self.reduce_op != Operator("add"):
            yield Broken(f"reduce_op={self.reduce_op!r}; it must be nl.add", (), "Scalar accumulates sums only")
        if not reduces and self.reduce_op is not None:
            yield Broken(f"reduce_op={self.reduce_op!r} without a reduce_cmd that reduces", (), "pass reset_reduce")
        if self.reduce_res is not None:
            yield column("reduce_res", self.reduce_res, self.data, None)

    def state(self) -> tuple[tuple[str, Access], ...]:
        """Return the use of the accumulator registers."""
        return accumulators.scalar_state(self.command(), self.reduce_res is not None)

    def execute(self, lanes: Lanes) -> None:
        """Compute func(data · scale + bias) in float32; sum it before it is rounded to dst's dtype."""
        if lanes.only_bits and lanes.only_nearest and self._copies_bfloat16():
            lanes.put_bits(self.dst, convert.settled_bfloat16(lanes.bits(self.data)))
            return
        data, scale, bias = (
            lanes.f32(self.data),
            lanes.column(self.scale),
            None if self.bias is None else lanes.column(self.bias),
        )
        warn_outside(self.mnemonic, self.op, data, scale, bias)
        result = act.activate(self.op.name, data, scale, bias, lanes.room(self.dst, self.data, self.scale, self.bias))
        command = self.command()
        if command is ReduceCmd.idle and self.reduce_res is None:
            lanes.put(self.dst, result)
            return
        if command in (ReduceCmd.reduce, ReduceCmd.reset_reduce):
            total = reduce.reduce_free("add", result)[:, 0]
        lanes.put(self.dst, result)
        registers = lanes.registers("accumulator")[: self.data.partitions]
        if command in (ReduceCmd.reset, ReduceCmd.reset_reduce):
            accumulators.forget(lanes)
            registers.fill(0.0)
        else:
            accumulators.check_known(lanes, len(registers))
        if command in (ReduceCmd.reduce, ReduceCmd.reset_reduce):
            registers += total
            accumulators.taint(lanes, self.data, self.scale, self.bias)
        if self.reduce_res is not None:
            lanes.put(self.reduce_res, registers.reshape(-1, 1).copy())

    def _copies_bfloat16(self) -> bool:
        """Return whether dst gets the elements of data, NaN apart: no need to widen, multiply by 1 and round."""
        return (
            self.op.name == "copy"
            and self.dst.dtype == self.data.dtype == dtypes.bfloat16
            and self.bias is None
            and isinstance(self.scale, float)
            and self.scale == 1.0
            and self.command() is ReduceCmd.idle
            and self.reduce_res is None
        )

    def holes(self, holes: Holes) -> Holes:
        """Lane by lane into dst; a hole anywhere in a partition reaches its sum."""
        spread = {"dst": lanewise_holes(self.dst, holes.values())}
        if self.reduce_res is not None:
            spread["reduce_res"] = lanewise_holes(self.reduce_res, holes.values())
        elif self.command() in (ReduceCmd.reduce, ReduceCmd.reset_reduce):
            raise UnknownBehavior(
                f"{self.mnemonic}: unwritten elements would be summed into the accumulator registers",
                advice="write all of the tile first, or reduce only the part that was written",
            )
        return spread

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream in, one out, a fetch per column; and a read of the accumulator."""
        pointers = isinstance(self.scale, Tile) + isinstance(self.bias, Tile)
        elements = self.dst.free_elements
        stream_work = Lanewise(
            "activation", elements, (stream(self.data),), stream(self.dst), pointers=pointers, table=self.op.name
        )
        if self.reduce_res is None:
            return (stream_work,)
        return stream_work, AccumulatorRead(self.data.partitions)


class Activation(_Shared, Instruction, mnemonic="activation", engines=(Engine.scalar,)):
    """dst = op(data · scale + bias), in float32; optionally summed along the free axes into ``reduce_regs``.

    ``reduce_cmd`` resets the registers, adds to them, or both; ``reduce_res`` [P, 1] reads them out.
    """

    dst: Tile = Out(Memory.sbuf, Memory.psum, indirect=True)
    op: Operator
    data: Tile = In(Memory.sbuf, Memory.psum, indirect=True)
    bias: Tile | float | None = In(Memory.sbuf, Memory.psum, number=True, default=None)
    scale: Tile | float = In(Memory.sbuf, Memory.psum, number=True, default=1.0)
    reduce_op: Operator | None = None
    reduce_res: Tile | None = Out(Memory.sbuf, Memory.psum, default=None)
    reduce_cmd: ReduceCmd = ReduceCmd.idle
    name: str | None = None

    def command(self) -> Any:
        """Return ``reduce_cmd``."""
        return self.reduce_cmd


class ActivationReduce(_Shared, Instruction, mnemonic="activation_reduce", engines=(Engine.scalar,)):
    """``activation`` with ``reduce_cmd.reset_reduce``: dst = op(data · scale + bias), reduce_res = its sum."""

    dst: Tile = Out(Memory.sbuf, Memory.psum, indirect=True)
    op: Operator
    data: Tile = In(Memory.sbuf, Memory.psum, indirect=True)
    reduce_op: Operator
    reduce_res: Tile | None = Out(Memory.sbuf, Memory.psum, optional=True)
    bias: Tile | float | None = In(Memory.sbuf, Memory.psum, number=True, default=None)
    scale: Tile | float = In(Memory.sbuf, Memory.psum, number=True, default=1.0)
    name: str | None = None

    def command(self) -> Any:
        """Return the command that this instruction stands for."""
        return ReduceCmd.reset_reduce


activation = emit(Activation)
activation_reduce = emit(ActivationReduce)
