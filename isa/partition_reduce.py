"""Reducing across partitions, on GpSimd.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``tensor_partition_reduce``; shapes: ``nki/test``, where
[128, 32, 4] becomes [1, 32, 4].
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from neurosim.chip import Chip
from neurosim.datapath.opcodes import one_of
from neurosim.datapath.operators import Operator
from neurosim.datapath.rules import Broken
from neurosim.datapath.streams import stream
from neurosim.engines import Engine, Memory
from neurosim.execution.lanes import Lanes
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit
from neurosim.numerics import alu, reduce
from neurosim.work import Lanewise, Work

_OPERATORS = ("add", "average", "maximum", "bitwise_or", "bitwise_and")


class TensorPartitionReduce(Instruction, mnemonic="tensor_partition_reduce", engines=(Engine.gpsimd,)):
    """dst [1, …] = the partitions of ``data`` reduced into one, element by element; free axes stay.

    *Assumed*, where the manual says nothing: float32, partitions in ascending order; ``nl.average`` is the sum divided
    by their number, rounded once more; bit operations keep integers of one dtype.
    """

    dst: Tile = Out(Memory.sbuf)
    op: Operator
    data: Tile = In(Memory.sbuf)
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """One partition with as many elements, a known reduction, integers for bits."""
        if self.dst.partitions != 1 or self.dst.free_elements != self.data.free_elements:
            yield Broken(
                f"dst has {self.dst.partitions} partitions of {self.dst.free_elements} elements; "
                f"the result has 1 of {self.data.free_elements}",
                (f"dst  {self.dst.describe()}", f"data  {self.data.describe()}"),
                f"allocate dst with shape {(1, *self.data.shape[1:])}",
            )
        yield one_of("op", self.op, _OPERATORS)
        if self._is_bitwise() and (not self.data.dtype.is_integer or self.dst.dtype != self.data.dtype):
            yield Broken(
                f"{self.op!r} takes integers of one dtype",
                (f"dst  {self.dst.describe()}", f"data  {self.data.describe()}"),
                "view float tiles as integers with .view()",
            )

    def _is_bitwise(self) -> bool:
        return self.op.name.startswith("bitwise")

    def execute(self, lanes: Lanes) -> None:
        """Turn partitions into rows, and reduce each."""
        if self._is_bitwise():
            across = np.ascontiguousarray(lanes.bits(self.data).T)
            lanes.put_bits(self.dst, reduce.reduce_free(self.op.name, across).T)
            return
        across = np.ascontiguousarray(lanes.f32(self.data).T)
        result = reduce.reduce_free("add" if self.op.name == "average" else self.op.name, across).T
        if self.op.name == "average":
            result = alu.binary("divide", result, float(self.data.partitions))
        lanes.put(self.dst, result)

    def holes(self, holes: Holes) -> Holes:
        """A hole in any partition reaches its element."""
        mask = holes["data"].reshape(self.data.partitions, -1).any(axis=0)
        return {"dst": mask.reshape(self.dst.shape)}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream in, every partition of it in turn."""
        elements = self.data.free_elements * self.data.partitions
        return (Lanewise("partition_reduce", elements, (stream(self.data),), stream(self.dst)),)


tensor_partition_reduce = emit(TensorPartitionReduce)
