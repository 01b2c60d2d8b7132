"""Element-wise operations of a tile with numbers or per-partition columns.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``tensor_scalar``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from neurosim.chip import Chip
from neurosim.datapath.operators import Operator
from neurosim.datapath.rules import Broken, column, operator_exists, same_elements
from neurosim.datapath.streams import stream
from neurosim.dtypes import float32, int32, uint32
from neurosim.engines import Engine, Memory
from neurosim.errors import UnknownBehavior
from neurosim.execution.lanes import Lanes
from neurosim.instruction import In, Instruction, Out, Tile, emit
from neurosim.numerics import alu
from neurosim.work import Lanewise, Work

_ON_SCALAR = {("multiply", "add"), ("multiply", None), ("add", None)}


class TensorScalar(Instruction, mnemonic="tensor_scalar", engines=(Engine.vector, Engine.scalar, Engine.gpsimd)):
    """dst = (data <op0> operand0) <op1> operand1; operands are numbers or float32 [P, 1] tiles.

    Arithmetic is float32, rounded after each operation and once more to dst's dtype. Bit operations take integers as
    they are, on Vector. ``reverse`` exchanges the two sides of an operation.
    """

    dst: Tile = Out(Memory.sbuf, Memory.psum, indirect=True)
    data: Tile = In(Memory.sbuf, Memory.psum, indirect=True)
    op0: Operator
    operand0: Tile | float | None = In(Memory.sbuf, Memory.psum, number=True, optional=True)
    reverse0: bool = False
    op1: Operator | None = None
    operand1: Tile | float | None = In(Memory.sbuf, Memory.psum, number=True, default=None)
    reverse1: bool = False
    engine: Engine = Engine.unknown
    name: str | None = None

    def _steps(self) -> list[tuple[str, Any, Any, bool]]:
        steps = [("operand0", self.op0, self.operand0, self.reverse0)]
        if self.op1 is not None:
            steps.append(("operand1", self.op1, self.operand1, self.reverse1))
        return steps

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Equal extents, known operators of one kind, columns that match, engines that have the operators."""
        yield same_elements("dst", self.dst, "data", self.data)
        kinds = set()
        for name, op, operand, _ in self._steps():
            known = alu.ALU.get(op.name) if isinstance(op, Operator) else None
            if known is None:
                yield Broken(f"op={op!r} is not an operator of tensor_scalar", (), "see nl.add, nl.multiply, …")
                return
            kinds.add("bitvec" if known.kind == "bitvec" else "arithmetic")
            yield operator_exists(known.name, chip)
            yield from self._operand_rules(known, name, operand)
        if self.op1 is None and self.operand1 is not None:
            yield Broken("operand1 is given without op1", (), "give both or neither")
        if len(kinds) > 1:
            yield Broken(f"{self.op0!r} and {self.op1!r} mix bit and arithmetic operators", (), "use two instructions")
        yield from self._engine_rules(chip, "bitvec" in kinds)

    def _operand_rules(self, op: alu.AluOp, name: str, operand: Any) -> Iterator[Broken | None]:
        tiles = (self.dst, self.data)
        if op.kind == "bitvec" and not all(
            tile.dtype.is_integer and tile.dtype.size_bytes == self.data.dtype.size_bytes for tile in tiles
        ):
            yield Broken(
                f"nl.{op.name} takes integers of one size",
                tuple(tile.describe() for tile in tiles),
                advice="view all of them as integers of one size",
            )
        if op.arity == 1:
            if operand is not None and not (isinstance(operand, (int, float)) and operand == 0):
                yield Broken(f"nl.{op.name} takes one side, and {name} is {operand!r}", (), f"pass {name}=0.0")
        elif operand is None:
            yield Broken(f"nl.{op.name} needs {name}", (), "pass a number or a [P, 1] tile")
        elif op.kind == "bitvec":
            if not isinstance(operand, (Tile, int, np.integer)):
                yield Broken(f"nl.{op.name}: {name} is {operand!r}", (), "pass an int or an integer tile")
            yield column(name, operand, self.data, (self.data.dtype,))
        else:
            yield column(name, operand, self.data, (float32,))

    def _engine_rules(self, chip: Chip, bits: bool) -> Iterator[Broken | None]:
        ops = (self.op0.name, self.op1.name if self.op1 else None)
        if self.engine is Engine.scalar and (chip.generation < 3 or bits or ops not in _ON_SCALAR):
            yield Broken(
                f"Scalar cannot run {self.op0!r}" + (f" then {self.op1!r}" if self.op1 else ""),
                ("it runs multiply, add, or multiply then add, from NeuronCore-v3 (trn2) on",),
                "leave engine= out, or use nisa.engine.vector",
            )
        if self.engine is Engine.gpsimd and ops != ("rsqrt", None):
            yield Broken("GpSimd runs nl.rsqrt only in tensor_scalar", (), "leave engine= out")
        if self.engine is Engine.gpsimd and Memory.psum in (self.dst.buffer, self.data.buffer):
            yield Broken("GpSimd does not reach PSUM", (), "copy the tile to SBUF with nisa.tensor_copy")

    def place(self, chip: Chip) -> tuple[Engine, frozenset[Engine]]:
        """Vector unless asked otherwise; Scalar computes the same where it has the operators.

        On trn1 that is an activation that copies, with its scale and its bias.
        """
        words = all(tile.dtype in (int32, uint32) for tile in (self.dst, self.data))
        if words and (self.dst.is_indirect() or self.data.is_indirect()) and alu.ALU[self.op0.name].kind != "bitvec":
            raise UnknownBehavior(
                f"tensor_scalar: {self.op0!r} of {self.data.dtype} with tensor indirection",
                numbers=(f"dst   {self.dst.describe()}", f"data  {self.data.describe()}"),
                advice="the manual excludes address arithmetic, and does not say what that is: gather with tensor_copy",
            )
        if self.engine is not Engine.unknown:
            return super().place(chip)
        ops = (self.op0.name, self.op1.name if self.op1 else None)
        on_scalar = ops in _ON_SCALAR and not (self.dst.is_indirect() or self.data.is_indirect())
        return Engine.vector, frozenset({Engine.vector, Engine.scalar} if on_scalar else {Engine.vector})

    def execute(self, lanes: Lanes) -> None:
        """Widen, operate once or twice, round."""
        if alu.ALU[self.op0.name].kind == "bitvec":
            self._execute_bits(lanes)
            return
        value, out = lanes.f32(self.data), None
        for name, op, operand, reverse in self._steps():
            if self.op1 is None or name == "operand1":
                out = lanes.room(self.dst, self.data, operand)
            known = alu.ALU[op.name]
            if known.arity == 1:
                value = alu.unary(known.name, value, out)
            else:
                other = lanes.column(operand)
                first, second = (other, value) if reverse else (value, other)
                value = alu.binary(known.name, first, second, out)
        lanes.put(self.dst, value)

    def _execute_bits(self, lanes: Lanes) -> None:
        value = lanes.bits(self.data)
        for _, op, operand, reverse in self._steps():
            known = alu.ALU[op.name]
            if known.arity == 1:
                value = alu.binary_bits(known.name, value, 0)
                continue
            if isinstance(operand, Tile):
                other = lanes.bits(operand)
            else:
                other = np.array([[int(operand) & (2 ** (8 * value.itemsize) - 1)]]).astype(value.dtype)
            value = alu.binary_bits(known.name, other, value) if reverse else alu.binary_bits(known.name, value, other)
        lanes.put_bits(self.dst, value)

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream in, one out, and a fetch per column."""
        pointers = sum(isinstance(operand, Tile) for _, _, operand, _ in self._steps())
        return (
            Lanewise(
                "tensor_scalar",
                self.dst.free_elements,
                (stream(self.data),),
                stream(self.dst),
                pointers=pointers,
            ),
        )


tensor_scalar = emit(TensorScalar)
