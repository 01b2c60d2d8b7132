"""Reductions along the free axes.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``tensor_reduce``; operators: ``nki.api.shared.rst``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from neurosim.chip import Chip
from neurosim.datapath.operators import Operator
from neurosim.datapath.rules import Broken, is_whole, same_partitions
from neurosim.datapath.streams import stream
from neurosim.engines import Engine, Memory
from neurosim.errors import UnknownBehavior
from neurosim.execution.lanes import Lanes
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit
from neurosim.numerics import alu, reduce
from neurosim.work import Lanewise, Work

_QUICK = ("add", "maximum")


class TensorReduce(Instruction, mnemonic="tensor_reduce", engines=(Engine.vector,)):
    """Reduce the last free axes of ``data``, in float32 and in ascending order; bit operations keep integers.

    ``keepdims`` says whether reduced axes stay in the result with extent 1; dst is checked by its elements, so either
    shape is taken.
    """

    dst: Tile = Out(Memory.sbuf, Memory.psum, indirect=True)
    op: Operator
    data: Tile = In(Memory.sbuf, Memory.psum, indirect=True)
    axis: Any
    negate: bool = False
    keepdims: bool = False
    name: str | None = None

    def _axes(self) -> tuple[int, ...]:
        axes = self.axis if isinstance(self.axis, (list, tuple)) else (self.axis,)
        return tuple(sorted(axis % self.data.ndim for axis in axes))

    def _outer(self) -> int:
        return math.prod(self.data.shape[1 : self._axes()[0]])

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Trailing free axes, a reduction operator, a destination of the right size."""
        yield same_partitions("dst", self.dst, "data", self.data)
        axes = self.axis if isinstance(self.axis, (list, tuple)) else (self.axis,)
        count = self.data.ndim
        if not axes or not all(is_whole(axis) and -count <= axis < count for axis in axes):
            yield Broken(
                f"axis={self.axis!r} of a tile with {count} axes",
                (f"data  {self.data.describe()}",),
                advice="give free axes from 1 on, or negative ones from the last",
            )
            return
        if self._axes() != tuple(range(count - len(axes), count)) or 0 in self._axes():
            yield Broken(
                f"axis={self.axis!r}: only the last free axes can be reduced, and never partitions",
                (f"data  {self.data.describe()}",),
                "permute the free axes, or transpose first",
            )
            return
        op = alu.ALU.get(self.op.name) if isinstance(self.op, Operator) else None
        if op is None or not op.reduces:
            yield Broken(
                f"op={self.op!r} is no reduction",
                ("known: " + ", ".join(reduce.REDUCTIONS),),
            )
            return
        if op.kind == "bitvec" and (self.negate or not self.data.dtype.is_integer or self.dst.dtype != self.data.dtype):
            yield Broken(
                f"{self.op!r} takes integers of one dtype and no negate=",
                (f"dst  {self.dst.describe()}", f"data  {self.data.describe()}"),
                advice="give dst the integer dtype of data, and leave negate out",
            )
        if self.dst.free_elements != self._outer():
            shape = (self.data.shape[0], *self.data.shape[1 : self._axes()[0]])
            if self.keepdims:
                shape += (1,) * len(axes)
            yield Broken(
                f"dst has {self.dst.free_elements} elements per partition; the result has {self._outer()}",
                (f"dst  {self.dst.describe()}", f"data  {self.data.describe()}, axis={self.axis!r}"),
                f"allocate dst with shape {shape if len(shape) > 1 else (*shape, 1)}",
            )

    def place(self, chip: Chip) -> tuple[Engine, frozenset[Engine]]:
        """Vector; a reduction that the manual names without saying what it computes is refused."""
        if self.op.name not in reduce.REDUCTIONS:
            raise UnknownBehavior(
                f"tensor_reduce: the manual allows {self.op!r} and does not say what it computes",
                advice="reduce with nl.add and negate=True, or say what you mean with several instructions",
            )
        return super().place(chip)

    def execute(self, lanes: Lanes) -> None:
        """Reduce each output's run of elements."""
        outer = self.dst.free_elements  # as many, by the rules
        if alu.ALU[self.op.name].kind == "bitvec":
            lanes.put_bits(self.dst, reduce.reduce_free(self.op.name, lanes.bits(self.data), outer))
            return
        result = reduce.reduce_free(self.op.name, lanes.f32(self.data), outer)
        lanes.put(self.dst, alu.binary("multiply", result, -1.0) if self.negate else result)

    def holes(self, holes: Holes) -> Holes:
        """A hole reaches the output that it is reduced into."""
        mask = holes["data"].reshape(self.data.partitions, self._outer(), -1).any(axis=2)
        return {"dst": mask.reshape(self.dst.shape)}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream in."""
        quick = self.op.name in _QUICK
        return (Lanewise("reduce", self.data.free_elements, (stream(self.data),), stream(self.dst), quick=quick),)


tensor_reduce = emit(TensorReduce)
