"""Element-wise operations of two tiles.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``tensor_tensor``.
"""

from __future__ import annotations

from collections.abc import Iterator

from neurosim.chip import Chip
from neurosim.datapath.operators import Operator
from neurosim.datapath.rules import Broken, not_both_in_psum, operator_exists, same_elements
from neurosim.datapath.streams import stream
from neurosim.dtypes import bfloat16, int32, uint32
from neurosim.engines import Engine, Memory
from neurosim.errors import UnknownBehavior
from neurosim.execution.lanes import Lanes
from neurosim.instruction import In, Instruction, Out, Tile, emit
from neurosim.numerics import alu
from neurosim.work import Lanewise, Work

_WORDS = (int32, uint32)
_QUICK = ("add", "multiply", "subtract")
_NOT_INTEGER = ("divide", "power", "mod", "fmod", "abs_max", "abs_min")


class TensorTensor(Instruction, mnemonic="tensor_tensor", engines=(Engine.vector, Engine.gpsimd)):
    """dst = data1 <op> data2, element by element.

    Arithmetic is float32; the result is rounded to dst's dtype. int32 and uint32 throughout run on GpSimd, exactly
    (unless a tile is in PSUM, or ``engine`` says Vector). Bit operations take integers as they are.
    """

    dst: Tile = Out(Memory.sbuf, Memory.psum, indirect=True)
    data1: Tile = In(Memory.sbuf, Memory.psum, indirect=True)
    data2: Tile = In(Memory.sbuf, Memory.psum)
    op: Operator
    engine: Engine = Engine.unknown
    name: str | None = None

    def _tiles(self) -> tuple[Tile, Tile, Tile]:
        return self.dst, self.data1, self.data2

    def _in_psum(self) -> bool:
        return any(tile.buffer is Memory.psum for tile in self._tiles())

    def _is_exact(self) -> bool:
        return self.dst.dtype in _WORDS and self.data1.dtype in _WORDS and self.data2.dtype in _WORDS

    def _is_bfloat16(self) -> bool:
        return self.dst.dtype == self.data1.dtype == self.data2.dtype == bfloat16

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Equal extents, a binary operator, memories that the engine reaches."""
        yield same_elements("dst", self.dst, "data1", self.data1)
        yield same_elements("data1", self.data1, "data2", self.data2)
        yield not_both_in_psum("data1", self.data1, "data2", self.data2)
        op = alu.ALU.get(self.op.name) if isinstance(self.op, Operator) else None
        if op is None or op.arity != 2:
            yield Broken(f"op={self.op!r} is not a binary operator", (), "see nl.add, nl.maximum, nl.bitwise_and, …")
            return
        yield operator_exists(op.name, chip)
        if op.kind == "bitvec":
            sizes = {tile.dtype.size_bytes for tile in self._tiles()}
            if len(sizes) > 1 or not all(tile.dtype.is_integer for tile in self._tiles()):
                yield Broken(
                    f"{self.op!r} takes integers of one size",
                    tuple(tile.describe() for tile in self._tiles()),
                    "view the float tiles as integers with .view()",
                )
        if self._in_psum() and (op.name == "power" or self.engine is Engine.gpsimd):
            yield Broken(
                "GpSimd does not reach PSUM" + (", and nl.power runs there" if op.name == "power" else ""),
                tuple(tile.describe() for tile in self._tiles()),
                "copy the tile to SBUF with nisa.tensor_copy",
            )
        if op.name == "power" and self.engine is Engine.vector:
            yield Broken("nl.power runs on GpSimd only", (), "leave engine= out")

    def place(self, chip: Chip) -> tuple[Engine, frozenset[Engine]]:
        """GpSimd for power and for exact 32-bit integers in SBUF, else Vector."""
        op = alu.ALU[self.op.name]
        if self._is_exact() and not self._in_psum() and self.engine is not Engine.vector and op.name in _NOT_INTEGER:
            raise UnknownBehavior(
                f"tensor_tensor: {self.op!r} of {self.data1.dtype} on GpSimd",
                numbers=tuple(tile.describe() for tile in self._tiles()),
                advice="the manual does not say how the integer result rounds: cast a tile to float32 first",
            )
        if self.engine is not Engine.unknown:
            return super().place(chip)
        if op.name == "power" or (self._is_exact() and op.kind != "bitvec" and not self._in_psum()):
            return Engine.gpsimd, frozenset({Engine.gpsimd})
        same = {Engine.vector} if self._in_psum() or self._is_exact() else {Engine.vector, Engine.gpsimd}
        return Engine.vector, frozenset(same)

    def execute(self, lanes: Lanes) -> None:
        """Widen, operate, round; or integers as they are."""
        op = alu.ALU[self.op.name]
        if op.kind == "bitvec":
            lanes.put_bits(self.dst, alu.binary_bits(op.name, lanes.bits(self.data1), lanes.bits(self.data2)))
        elif self._is_exact() and lanes.engine is Engine.gpsimd:
            exact = alu.binary_int(op.name, lanes.bits(self.data1), lanes.bits(self.data2))
            lanes.put_bits(self.dst, exact.astype(self.dst.dtype.numpy, copy=False))
        elif self._is_bfloat16() and lanes.only_bits and lanes.only_nearest:
            lanes.put_bits(self.dst, alu.binary_bfloat16(op.name, lanes.bits(self.data1), lanes.bits(self.data2)))
        else:
            out = lanes.room(self.dst, self.data1, self.data2)
            lanes.put(self.dst, alu.binary(op.name, lanes.f32(self.data1), lanes.f32(self.data2), out))

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """Two streams in, one out."""
        inputs = (stream(self.data1), stream(self.data2))
        quick = self.op.name in _QUICK
        return (Lanewise("tensor_tensor", self.dst.free_elements, inputs, stream(self.dst), quick=quick),)


tensor_tensor = emit(TensorTensor)
