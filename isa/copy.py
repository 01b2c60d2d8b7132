"""Copies within the on-chip memories.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``tensor_copy``.
"""

from __future__ import annotations

from collections.abc import Iterator

from neurosim.chip import Chip
from neurosim.datapath.rules import Broken, same_elements, same_format
from neurosim.datapath.streams import stream
from neurosim.dtypes import float32
from neurosim.engines import Engine, Memory
from neurosim.execution.lanes import Lanes
from neurosim.instruction import In, Instruction, Out, Tile, emit
from neurosim.views.indirect import IndirectTensor
from neurosim.views.indirection import ColumnTensor
from neurosim.work import Control, Lanewise, Work


class TensorCopy(Instruction, mnemonic="tensor_copy", engines=(Engine.vector, Engine.scalar, Engine.gpsimd)):
    """Copy ``src`` to ``dst``: same partitions, same number of elements per partition, SBUF or PSUM.

    On Vector and GpSimd equal dtypes move bits; different dtypes, and everything on Scalar, go through float32. The
    place of either along a free axis may be known at run time only: one index for all, which the engine loads into a
    register first (*assumed*) unless it is in one.
    """

    takes_packed = True

    dst: Tile = Out(Memory.sbuf, Memory.psum, indirect=True, dynamic=True)
    src: Tile = In(Memory.sbuf, Memory.psum, indirect=True, dynamic=True)
    engine: Engine = Engine.unknown
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Equal extents; engines that reach the memories and exist in the generation."""
        yield same_elements("dst", self.dst, "src", self.src)
        yield same_format("dst", self.dst, "src", self.src)
        if self.engine is Engine.scalar and self.src.dtype.is_packed:
            yield Broken(
                f"Scalar goes through float32, and src is {self.src.dtype}",
                (f"src  {self.src.describe()}",),
                "use nisa.engine.vector, or copy a .view() of it as integers",
            )
        if self.engine is Engine.gpsimd and self._in_psum():
            yield Broken(
                "GpSimd does not reach PSUM",
                (f"dst  {self.dst.describe()}", f"src  {self.src.describe()}"),
                "use nisa.engine.vector or nisa.engine.scalar",
            )
        if self.engine is Engine.gpsimd and self._is_indirect():
            yield Broken("GpSimd has no tensor_copy with tensor indirection", (), "use another engine")
        if self.engine is Engine.scalar and chip.generation < 3:
            yield Broken("Scalar has no tensor_copy before NeuronCore-v3 (trn2)", (), "use nisa.activation(op=nl.copy)")

    def _in_psum(self) -> bool:
        return Memory.psum in (self.dst.buffer, self.src.buffer)

    def _is_indirect(self) -> bool:
        return any(isinstance(tile, ColumnTensor) for tile in (self.dst, self.src))

    def _loads(self) -> list[Work]:
        """Loads of places that SBUF holds."""
        tiles = [tile for tile in (self.dst, self.src) if isinstance(tile, IndirectTensor)]
        places = [tile.index.buffer for tile in tiles if not isinstance(tile, ColumnTensor)]
        return [Control("load", place) for place in places if place is not Memory.state]

    def place(self, chip: Chip) -> tuple[Engine, frozenset[Engine]]:
        """Vector unless asked otherwise; GpSimd gives the same bits outside PSUM and without indirection.

        So does Scalar where Vector goes through float32 as well, and with float32 on both sides; on trn1 as an
        activation that copies.
        """
        if self.engine is not Engine.unknown:
            return super().place(chip)
        same = {Engine.vector}
        if not (self._in_psum() or self._is_indirect()):
            same.add(Engine.gpsimd)
        through_float32 = self.src.dtype != self.dst.dtype or self.src.dtype == float32
        if through_float32 and not self.src.dtype.is_packed:
            same.add(Engine.scalar)
        return Engine.vector, frozenset(same)

    def execute(self, lanes: Lanes) -> None:
        """Move bits, or widen and round."""
        if self.src.dtype == self.dst.dtype and lanes.engine is not Engine.scalar:
            lanes.move(self.dst, lambda elements: elements, self.src)
        else:
            lanes.put(self.dst, lanes.f32(self.src))

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream in, one out."""
        copy = Lanewise("copy", self.dst.free_elements, (stream(self.src),), stream(self.dst))
        return (*self._loads(), copy)


tensor_copy = emit(TensorCopy)
