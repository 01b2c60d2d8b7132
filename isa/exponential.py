"""The exponential function on Vector, after subtracting a maximum, with a running sum.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``exponential``; its rate: ``trainium3_arch.rst``, "Fast
Exponential Evaluation".
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from neurosim import dtypes
from neurosim.chip import Chip
from neurosim.datapath.accumulators import accumulate, command_rule, forget, reduced_holes, state, taint
from neurosim.datapath.modes import ReduceCmd
from neurosim.datapath.rules import Broken, axes_within, column, dtype_in, result_dtype_in, same_elements, since
from neurosim.datapath.streams import stream
from neurosim.engines import Engine, Memory
from neurosim.execution.lanes import Lanes
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit, lanewise_holes
from neurosim.numerics import act
from neurosim.program import Access
from neurosim.work import AccumulatorRead, Lanewise, Work

_FLOATS = (dtypes.float8_e4m3, dtypes.float8_e5m2, dtypes.float16, dtypes.bfloat16, dtypes.float32)
_INTEGERS = (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.uint8, dtypes.uint16)
_COMMANDS = (ReduceCmd.idle, ReduceCmd.reset_reduce, ReduceCmd.reduce, ReduceCmd.load_reduce)


class Exponential(Instruction, mnemonic="exponential", engines=(Engine.vector,)):
    """dst = exp(src - max_value) in float32, and optionally ``reduce_res`` [P, 1] = its sum over all free axes.

    The difference rounds, then the function is ``nl.exp``'s of Scalar (*assumed*); the sum takes the float32 results,
    before they are rounded to dst's dtype (*assumed*, as in every reduction of Vector). ``reduce_cmd`` resets the
    accumulator registers first, goes on with what they hold, loads ``reduce_init``, or (``idle``) leaves them unknown;
    ``reduce_res=None`` leaves the sum in them.
    """

    dst: Tile = Out(Memory.sbuf, Memory.psum, indirect=True)
    src: Tile = In(Memory.sbuf, Memory.psum, indirect=True)
    max_value: Tile | float = In(Memory.sbuf, Memory.psum, number=True, default=0.0)
    reduce_res: Tile | None = Out(Memory.sbuf, Memory.psum, default=None)
    reduce_cmd: ReduceCmd = ReduceCmd.idle
    reduce_init: Tile | float = In(Memory.sbuf, Memory.psum, number=True, default=0.0)
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """NeuronCore-v4; equal extents, dtypes that the datapath has, and what its command needs."""
        yield since(4, chip, "use nisa.activation(op=nl.exp), which subtracts with bias=")
        yield same_elements("dst", self.dst, "src", self.src)
        for name, tile in (("dst", self.dst), ("src", self.src)):
            yield axes_within(name, tile, 4)
        yield result_dtype_in("dst", self.dst, (*_FLOATS, dtypes.tfloat32, *_INTEGERS))
        yield dtype_in("src", self.src, (*_FLOATS, *_INTEGERS, dtypes.uint32))
        yield column("max_value", self.max_value, self.src, (dtypes.float32,))
        yield column("reduce_res", self.reduce_res, self.src, (*_FLOATS, dtypes.tfloat32))
        yield column("reduce_init", self.reduce_init, self.src, (dtypes.float32,))
        yield command_rule(self.reduce_cmd, _COMMANDS)
        if self.reduce_res is not None and self.reduce_cmd is ReduceCmd.idle:
            yield Broken("reduce_res with reduce_cmd.idle, which does not reduce", (), "pass reset_reduce")
        if self.reduce_cmd is not ReduceCmd.load_reduce and (isinstance(self.reduce_init, Tile) or self.reduce_init):
            yield Broken("reduce_init without reduce_cmd.load_reduce", (), "leave it out, or load it")

    def state(self) -> tuple[tuple[str, Access], ...]:
        """Use the accumulator registers."""
        return state(self.reduce_cmd)

    def execute(self, lanes: Lanes) -> None:
        """Widen, subtract, take the exponential, sum, round."""
        bias = -lanes.column(self.max_value)
        if self.reduce_cmd is ReduceCmd.idle:
            values = act.activate("exp", lanes.f32(self.src), bias=bias, out=lanes.room(self.dst, self.src))
            forget(lanes)
        else:
            values = act.activate("exp", lanes.f32(self.src), bias=bias)
            total = accumulate(lanes, self.reduce_cmd, "add", values, lanes.column(self.reduce_init))
            taint(lanes, self.src, self.max_value, self.reduce_init)
        lanes.put(self.dst, values)
        if self.reduce_res is not None:
            lanes.put(self.reduce_res, total)

    def holes(self, holes: Holes) -> Holes:
        """Lane by lane into dst; a hole anywhere in a partition reaches its sum, one in ``reduce_init`` only that."""
        rows = self.src.partitions
        mask = lanewise_holes(self.dst, [hole for name, hole in holes.items() if name != "reduce_init"])
        reduced = mask.reshape(rows, -1) | np.reshape(holes.get("reduce_init", np.zeros(rows, np.bool_)), (rows, 1))
        return {"dst": mask, **reduced_holes(reduced, self.reduce_res)}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream in, one out, a fetch per column; and a read of the registers."""
        pointers = isinstance(self.max_value, Tile) + isinstance(self.reduce_init, Tile)
        inputs = (stream(self.src),)
        passing = Lanewise("exponential", self.dst.free_elements, inputs, stream(self.dst), pointers=pointers)
        return (passing,) if self.reduce_res is None else (passing, AccumulatorRead(self.src.partitions))


exponential = emit(Exponential)
