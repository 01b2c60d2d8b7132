"""Selecting elements by a predicate tile, with a running maximum.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``select_reduce``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from neurosim import dtypes
from neurosim.chip import Chip
from neurosim.datapath.accumulators import MAXIMUM, RunningMaximum, taint
from neurosim.datapath.modes import ReduceCmd
from neurosim.datapath.operators import Operator
from neurosim.datapath.rules import Broken, column, dtype_in, not_both_in_psum, result_dtype_in, same_elements
from neurosim.datapath.streams import stream
from neurosim.engines import Engine, Memory
from neurosim.execution.lanes import Lanes
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit
from neurosim.memory import Mask
from neurosim.work import Lanewise, Work


class SelectReduce(RunningMaximum, Instruction, mnemonic="select_reduce", engines=(Engine.vector,)):
    """dst = on_true where ``predicate`` is not zero, on_false elsewhere; reduce_res [P, 1] = the maximum of a row.

    Values pass as float32 and are reduced before they are rounded to dst's dtype (*assumed*). ``reverse_pred``
    exchanges the two sides. ``reduce_cmd.idle`` leaves the registers unknown; ``reduce_res=None`` leaves the maximum
    in them.
    """

    dst: Tile = Out(Memory.sbuf, Memory.psum)
    predicate: Tile = In(Memory.sbuf, Memory.psum, strict=True)
    on_true: Tile = In(Memory.sbuf, Memory.psum)
    on_false: Tile | float = In(Memory.sbuf, Memory.psum, number=True)
    reduce_res: Tile | None = Out(Memory.sbuf, Memory.psum, default=None)
    reduce_cmd: ReduceCmd = ReduceCmd.idle
    reduce_op: Operator = MAXIMUM
    reverse_pred: bool = False
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Equal extents, dtypes that the datapath has, at most one full tile from PSUM, a maximum."""
        yield same_elements("dst", self.dst, "on_true", self.on_true)
        yield same_elements("dst", self.dst, "predicate", self.predicate)
        yield not_both_in_psum("on_true", self.on_true, "predicate", self.predicate)
        allowed = (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16)
        yield dtype_in("predicate", self.predicate, allowed)
        if self.on_true.dtype in (dtypes.int32, dtypes.uint32, dtypes.tfloat32):
            yield Broken(
                f"on_true is {self.on_true.dtype}, which select_reduce does not take",
                (f"on_true  {self.on_true.describe()}",),
                "use nisa.tensor_copy_predicated, which moves bits",
            )
        yield column("on_false", self.on_false, self.dst, None)
        if self.reduce_res is not None:
            yield result_dtype_in("reduce_res", self.reduce_res, tuple(dtype for dtype in dtypes.ALL if dtype.is_float))
        yield from self.reduce_rules()

    def execute(self, lanes: Lanes) -> None:
        """Widen, choose, reduce, round."""
        self.taken = lanes.truth(self.predicate, self.reverse_pred)
        data = lanes.f32(self.on_true)
        chosen = np.where(self.taken, data, np.asarray(lanes.column(self.on_false), data.dtype))
        result = self.reduce(lanes, chosen)
        lanes.put(self.dst, chosen)
        if result is None:
            return
        taint(lanes, self.on_true, where=self.taken)
        taint(lanes, self.on_false, where=~self.taken)
        if self.reduce_res is not None:
            lanes.put(self.reduce_res, result)

    def holes(self, holes: Holes) -> Holes:
        """An element depends on the side that was chosen."""
        rows = self.dst.partitions
        mask: Mask = np.zeros((rows, self.dst.free_elements), np.bool_)
        for name, hole in holes.items():
            chosen = np.True_ if self.taken is None else self.taken == (name == "on_true")
            mask |= hole.reshape(rows, -1) & chosen
        return self.spread(mask)

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """Two streams in, one out."""
        inputs = (stream(self.on_true), stream(self.predicate))
        pointers = int(isinstance(self.on_false, Tile))
        return (Lanewise("select_reduce", self.dst.free_elements, inputs, stream(self.dst), pointers=pointers),)


select_reduce = emit(SelectReduce)
