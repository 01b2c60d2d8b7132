"""Selecting elements by a predicate tile or by a range of positions, with a running maximum.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``select_reduce`` and ``range_select``.
"""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from typing import Any, ClassVar, Final

import numpy as np

from neurosim import dtypes
from neurosim.accumulators import accumulate, command_rule, forget, reduced_holes, state
from neurosim.chip import Chip
from neurosim.engines import Engine, Memory
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit
from neurosim.lanes import Float32s, Lanes
from neurosim.memory import Mask
from neurosim.modes import ReduceCmd
from neurosim.numerics import alu
from neurosim.opcodes import one_of
from neurosim.operators import Operator
from neurosim.program import Access
from neurosim.rules import Broken, column, dtype_in, is_number, not_both_in_psum, same_elements
from neurosim.streams import stream
from neurosim.work import Lanewise, Work

LOWEST: Final = -3.4028234663852886e38
"""The smallest float32, which ``range_select`` puts where the range ends."""
_FLOATS: Final = tuple(dtype for dtype in dtypes.ALL if dtype.is_float)
_EXACT_POSITIONS: Final = 2**24
_COMPARISONS: Final = ("equal", "less", "less_equal", "greater", "greater_equal")
_MAXIMUM: Final = Operator("maximum")


class _Shared:
    """The running maximum that both instructions keep."""

    mnemonic: ClassVar[str]
    dst: Tile
    reduce_res: Tile | None
    reduce_cmd: ReduceCmd
    reduce_op: Operator

    def __post_init__(self) -> None:
        self._taken: Mask | None = None  # which elements come from the tile, once the predicate's values are known

    def state(self) -> tuple[tuple[str, Access], ...]:
        """Use the accumulator registers."""
        return state(self.reduce_cmd)

    def _reduce_rules(self) -> Iterator[Broken | None]:
        yield one_of("reduce_op", self.reduce_op, ("maximum",))
        yield command_rule(self.reduce_cmd, (ReduceCmd.idle, ReduceCmd.reset_reduce, ReduceCmd.reduce))
        yield column("reduce_res", self.reduce_res, self.dst, None)
        if self.reduce_res is not None and self.reduce_cmd is ReduceCmd.idle:
            yield Broken(
                "reduce_res with reduce_cmd.idle, which does not reduce",
                (f"reduce_res  {self.reduce_res.describe()}",),
                "pass reduce_cmd=nisa.reduce_cmd.reset_reduce",
            )

    def _reduce(self, lanes: Lanes, values: Float32s) -> Float32s | None:
        if self.reduce_cmd is ReduceCmd.idle:
            forget(lanes)
            return None
        return accumulate(lanes, self.reduce_cmd, "maximum", values)

    def _spread(self, mask: Mask) -> Holes:
        reduces = self.reduce_cmd is not ReduceCmd.idle
        return {
            "dst": mask.reshape(self.dst.shape),
            **reduced_holes(self.mnemonic, mask, self.reduce_res, reduces),
        }


class SelectReduce(_Shared, Instruction, mnemonic="select_reduce", engines=(Engine.vector,)):
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
    reduce_op: Operator = _MAXIMUM
    reverse_pred: bool = False
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Equal extents, dtypes that the datapath has, at most one full tile from PSUM, a maximum."""
        yield same_elements("dst", self.dst, "on_true", self.on_true)
        yield same_elements("dst", self.dst, "predicate", self.predicate)
        yield not_both_in_psum("on_true", self.on_true, "predicate", self.predicate)
        allowed = (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16)
        yield dtype_in("predicate", self.predicate, allowed)
        if self.on_true.dtype in (dtypes.int32, dtypes.uint32):
            yield Broken(
                f"on_true is {self.on_true.dtype}, which select_reduce does not take",
                (f"on_true  {self.on_true.describe()}",),
                "use nisa.tensor_copy_predicated, which moves bits",
            )
        yield column("on_false", self.on_false, self.dst, None)
        if self.reduce_res is not None:
            yield dtype_in("reduce_res", self.reduce_res, _FLOATS)
        yield from self._reduce_rules()

    def execute(self, lanes: Lanes) -> None:
        """Widen, choose, reduce, round."""
        self._taken = (lanes.bits(self.predicate) != 0) != bool(self.reverse_pred)
        other = lanes.column(self.on_false)
        chosen = np.where(self._taken, lanes.f32(self.on_true), np.asarray(other, np.float32))
        result = self._reduce(lanes, chosen)
        lanes.put(self.dst, chosen)
        if self.reduce_res is not None and result is not None:
            lanes.put(self.reduce_res, result)

    def holes(self, holes: Holes) -> Holes:
        """An element depends on the side that was chosen."""
        rows = self.dst.partitions
        mask: Mask = np.zeros((rows, self.dst.free_elements), np.bool_)
        for name, hole in holes.items():
            chosen = np.True_ if self._taken is None else self._taken == (name == "on_true")
            mask |= hole.reshape(rows, -1) & chosen
        return self._spread(mask)

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """Two streams in, one out."""
        inputs = (stream(self.on_true), stream(self.predicate))
        pointers = int(isinstance(self.on_false, Tile))
        return (Lanewise("select_reduce", self.dst.free_elements, inputs, stream(self.dst), pointers=pointers),)


class RangeSelect(_Shared, Instruction, mnemonic="range_select", engines=(Engine.vector,)):
    """dst = on_true_tile where both ``comp_op(position, bound)`` hold, FP32_MIN elsewhere; reduce_res = the maximum.

    The position is ``range_start`` + the number of the element along all free axes, and is compared as float32. The
    maximum is taken before rounding. In a shorter float dtype FP32_MIN becomes -Inf, as the manual says; also in
    float8, where other values saturate.
    """

    dst: Tile = Out(Memory.sbuf, Memory.psum)
    on_true_tile: Tile = In(Memory.sbuf, Memory.psum)
    comp_op0: Operator
    comp_op1: Operator
    bound0: Tile = In(Memory.sbuf, Memory.psum, strict=True)
    bound1: Tile = In(Memory.sbuf, Memory.psum, strict=True)
    reduce_cmd: ReduceCmd = ReduceCmd.reset_reduce
    reduce_res: Tile | None = Out(Memory.sbuf, Memory.psum, default=None)
    reduce_op: Operator = _MAXIMUM
    range_start: int = 0
    on_false_value: float = LOWEST
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """NeuronCore-v3; a float tile, float32 bounds, comparisons, positions that float32 counts exactly."""
        if chip.generation < 3:
            yield Broken("needs NeuronCore-v3 (trn2)", (f"chip {chip.name}",), "use nisa.iota and select_reduce")
        yield same_elements("dst", self.dst, "on_true_tile", self.on_true_tile)
        yield dtype_in("on_true_tile", self.on_true_tile, _FLOATS)
        for name, bound in (("bound0", self.bound0), ("bound1", self.bound1)):
            yield column(name, bound, self.on_true_tile, (dtypes.float32,))
        yield one_of("comp_op0", self.comp_op0, _COMPARISONS)
        yield one_of("comp_op1", self.comp_op1, _COMPARISONS)
        if not is_number(self.on_false_value) or np.float32(self.on_false_value) != np.float32(LOWEST):
            yield Broken(
                f"on_false_value={self.on_false_value!r}; the hardware has FP32_MIN only",
                (f"FP32_MIN is {LOWEST!r}",),
                "leave it out",
            )
        yield self._position_rule()
        yield from self._reduce_rules()

    def _position_rule(self) -> Broken | None:
        start: Any = self.range_start
        if not isinstance(start, Integral):
            return Broken(f"range_start {start!r} is not an int")
        last = int(start) + self.dst.free_elements - 1
        if start >= -_EXACT_POSITIONS and last <= _EXACT_POSITIONS:
            return None
        return Broken(f"positions {start} to {last} leave the ±2^24 that float32 counts exactly")

    def execute(self, lanes: Lanes) -> None:
        """Compare, choose, reduce, round."""
        positions = np.arange(self.dst.free_elements, dtype=np.int64) + int(self.range_start)
        rows = np.broadcast_to(positions.astype(np.float32), (self.dst.partitions, len(positions)))
        self._taken = np.ones(rows.shape, np.bool_)
        for op, bound in ((self.comp_op0, self.bound0), (self.comp_op1, self.bound1)):
            self._taken &= alu.binary(op.name, rows, lanes.f32(bound)) != 0
        chosen = np.where(self._taken, lanes.f32(self.on_true_tile), np.float32(LOWEST))
        result = self._reduce(lanes, chosen)
        _put_lowest(lanes, self.dst, chosen)
        if self.reduce_res is not None and result is not None:
            _put_lowest(lanes, self.reduce_res, result)

    def holes(self, holes: Holes) -> Holes:
        """Chosen elements depend on the tile."""
        mask = holes["on_true_tile"].reshape(self.dst.partitions, -1)
        return self._spread(mask if self._taken is None else mask & self._taken)

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream in, one out, and a fetch of each bound."""
        inputs = (stream(self.on_true_tile),)
        return (Lanewise("range_select", self.dst.free_elements, inputs, stream(self.dst), pointers=2),)


def _put_lowest(lanes: Lanes, tile: Tile, values: Float32s) -> None:
    """Round and write; FP32_MIN becomes -Inf where the dtype is a shorter float that has one."""
    if tile.dtype.has_inf and tile.dtype.size_bytes < dtypes.float32.size_bytes:
        values = np.where(values == np.float32(LOWEST), np.float32(-np.inf), values)
    lanes.put(tile, values)


select_reduce = emit(SelectReduce)
range_select = emit(RangeSelect)
