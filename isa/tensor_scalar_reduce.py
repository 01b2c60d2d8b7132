"""``tensor_scalar`` with one operator, and a reduction of its result in the accumulator registers.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``tensor_scalar_reduce``; its cost: the same file of SDK 2.26.
"""

from __future__ import annotations

from collections.abc import Iterator

from neurosim.chip import Chip
from neurosim.datapath.accumulators import IDENTITY, accumulate, command_rule, reduced_holes, state, taint
from neurosim.datapath.modes import ReduceCmd
from neurosim.datapath.opcodes import known, one_of
from neurosim.datapath.operators import Operator
from neurosim.datapath.rules import Broken, column, operator_exists, same_elements
from neurosim.datapath.streams import stream
from neurosim.dtypes import float32
from neurosim.engines import Engine, Memory
from neurosim.execution.holes import lanewise_holes
from neurosim.execution.lanes import Lanes
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit
from neurosim.numerics import alu
from neurosim.program import Access
from neurosim.work import AccumulatorRead, Lanewise, Work


class TensorScalarReduce(Instruction, mnemonic="tensor_scalar_reduce", engines=(Engine.vector,)):
    """dst = data <op0> operand0, and ``reduce_res`` [P, 1] = its reduction over all free axes.

    The float32 results are reduced before they are rounded to dst's dtype (*assumed*: the manual reduces ``dst`` in a
    formula and ``data <op0> operand0`` in words). ``reduce_cmd`` resets the registers, goes on with what they hold, or
    loads ``reduce_init`` first; ``reduce_res=None`` leaves the result in them; ``reduce_res_negate`` negates what is
    written and not the registers.
    """

    dst: Tile = Out(Memory.sbuf, Memory.psum, indirect=True)
    data: Tile = In(Memory.sbuf, Memory.psum, indirect=True)
    op0: Operator
    operand0: Tile | float | None = In(Memory.sbuf, Memory.psum, number=True, optional=True)
    reduce_op: Operator
    reduce_res: Tile | None = Out(Memory.sbuf, Memory.psum, default=None)
    reverse0: bool = False
    reduce_cmd: ReduceCmd = ReduceCmd.reset_reduce
    reduce_init: Tile | float | None = In(Memory.sbuf, Memory.psum, number=True, default=None)
    reduce_res_negate: bool = False
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Equal extents, an arithmetic operator, a known reduction, and what its command needs."""
        yield same_elements("dst", self.dst, "data", self.data)
        yield from self._operator_rules(chip)
        yield one_of("reduce_op", self.reduce_op, tuple(IDENTITY))
        yield column("reduce_res", self.reduce_res, self.data, None)
        yield command_rule(self.reduce_cmd, (ReduceCmd.reset_reduce, ReduceCmd.reduce, ReduceCmd.load_reduce))
        yield column("reduce_init", self.reduce_init, self.data, (float32,))
        if (self.reduce_init is not None) != (self.reduce_cmd is ReduceCmd.load_reduce):
            yield Broken(
                f"reduce_init={'…' if isinstance(self.reduce_init, Tile) else self.reduce_init!r} "
                f"with reduce_cmd.{self.reduce_cmd.name}",
                (),
                "reduce_cmd.load_reduce needs reduce_init, and nothing else takes it",
            )
        if self.reduce_res_negate and self.reduce_res is None:
            yield Broken("reduce_res_negate without reduce_res", (), "nothing is written that could be negated")
        if self.reverse0:
            yield Broken("reverse0=True is not supported by NKI yet", (), "use nisa.tensor_scalar and tensor_reduce")

    def _operator_rules(self, chip: Chip) -> Iterator[Broken | None]:
        op = known(self.op0)
        if op is None or op.kind == "bitvec":
            yield Broken(f"op0={self.op0!r} is not an arithmetic operator", (), "bit operators run in tensor_scalar")
            return
        yield operator_exists(op.name, chip)
        if op.arity == 1:
            if self.operand0 is not None and (isinstance(self.operand0, Tile) or self.operand0 != 0):
                yield Broken(f"{self.op0!r} takes one side, and operand0 is given", (), "pass operand0=0.0")
        elif self.operand0 is None:
            yield Broken(f"{self.op0!r} needs operand0", (), "pass a number or a [P, 1] tile")
        yield column("operand0", self.operand0, self.data, (float32,))

    def state(self) -> tuple[tuple[str, Access], ...]:
        """Use the accumulator registers."""
        return state(self.reduce_cmd)

    def execute(self, lanes: Lanes) -> None:
        """Widen, operate, reduce, round."""
        op, data = alu.ALU[self.op0.name], lanes.f32(self.data)
        if op.arity == 1 or self.operand0 is None:
            value = alu.unary(op.name, data)
        else:
            value = alu.binary(op.name, data, lanes.column(self.operand0))
        start = 0.0 if self.reduce_init is None else lanes.column(self.reduce_init)
        result = accumulate(lanes, self.reduce_cmd, self.reduce_op.name, value, start)
        taint(lanes, self.data, self.operand0, self.reduce_init)
        lanes.put(self.dst, value)
        if self.reduce_res is not None:
            lanes.put(self.reduce_res, -result if self.reduce_res_negate else result)

    def holes(self, holes: Holes) -> Holes:
        """Lane by lane into dst; a hole anywhere in a partition reaches its result, one in ``reduce_init`` only it."""
        rows = self.data.partitions
        mask = lanewise_holes(self.dst, [hole for name, hole in holes.items() if name != "reduce_init"])
        reduced = mask.reshape(rows, -1)
        if "reduce_init" in holes:
            reduced = reduced | holes["reduce_init"].reshape(rows, 1)
        return {"dst": mask, **reduced_holes(reduced, self.reduce_res)}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream in, one out, a fetch per column; and a read of the registers."""
        pointers = isinstance(self.operand0, Tile) + isinstance(self.reduce_init, Tile)
        inputs = (stream(self.data),)
        passing = Lanewise(self.mnemonic, self.dst.free_elements, inputs, stream(self.dst), pointers=pointers)
        return (passing,) if self.reduce_res is None else (passing, AccumulatorRead(self.data.partitions))


tensor_scalar_reduce = emit(TensorScalarReduce)
