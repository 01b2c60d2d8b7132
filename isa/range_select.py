"""Selecting elements by a range of positions, with a running maximum.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``range_select``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import numpy as np

from neurosim import dtypes
from neurosim.chip import Chip
from neurosim.datapath.accumulators import MAXIMUM, RunningMaximum, taint
from neurosim.datapath.modes import ReduceCmd
from neurosim.datapath.opcodes import one_of
from neurosim.datapath.operators import Operator
from neurosim.datapath.rules import Broken, as_float, column, dtype_in, is_number, is_whole, same_elements
from neurosim.datapath.streams import stream
from neurosim.engines import Engine, Memory
from neurosim.execution.lanes import Float32s, Lanes
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit
from neurosim.numerics import alu
from neurosim.work import Lanewise, Work

LOWEST: Final = -3.4028234663852886e38
"""The smallest float32, which takes the place of what the range leaves out."""
_LOWEST: Final = np.float32(LOWEST)
_FLOATS: Final = tuple(dtype for dtype in dtypes.ALL if dtype.is_float)
_EXACT_POSITIONS: Final = 2**24
_COMPARISONS: Final = ("equal", "less", "less_equal", "greater", "greater_equal")


@lru_cache(maxsize=16)
def _positions(first: int, count: int) -> Float32s:
    """Return the positions of a row's elements, float32 [1, count]. To be read only."""
    return np.arange(first, first + count, dtype=np.int64).astype(np.float32)[None]


class RangeSelect(RunningMaximum, Instruction, mnemonic="range_select", engines=(Engine.vector,)):
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
    reduce_op: Operator = MAXIMUM
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
        if not is_number(self.on_false_value) or np.float32(as_float(self.on_false_value)) != _LOWEST:
            yield Broken(
                f"on_false_value={self.on_false_value!r}; the hardware has FP32_MIN only",
                (f"FP32_MIN is {LOWEST!r}",),
                "leave it out",
            )
        yield self._position_rule()
        yield from self.reduce_rules()

    def _position_rule(self) -> Broken | None:
        start: Any = self.range_start
        if not is_whole(start):
            return Broken(
                f"range_start {start!r} is not an int", advice="pass the position of the first element as a Python int"
            )
        first = int(start)
        last = first + self.dst.free_elements - 1
        if first >= -_EXACT_POSITIONS and last <= _EXACT_POSITIONS:
            return None
        return Broken(
            f"positions {first} to {last} leave the ±2^24 that float32 counts exactly",
            advice="begin at another range_start, and move the bounds by as much",
        )

    def execute(self, lanes: Lanes) -> None:
        """Compare, choose, reduce, round."""
        positions = _positions(int(self.range_start), self.dst.free_elements)
        self.taken = alu.compare(self.comp_op0.name, positions, lanes.f32(self.bound0))
        self.taken &= alu.compare(self.comp_op1.name, positions, lanes.f32(self.bound1))
        chosen = np.where(self.taken, lanes.f32(self.on_true_tile), _LOWEST)
        result = self.reduce(lanes, chosen)
        taint(lanes, self.on_true_tile, where=self.taken)
        _put_lowest(lanes, self.dst, chosen)
        if self.reduce_res is not None and result is not None:
            _put_lowest(lanes, self.reduce_res, result)

    def holes(self, holes: Holes) -> Holes:
        """Chosen elements depend on the tile."""
        mask = holes["on_true_tile"].reshape(self.dst.partitions, -1)
        return self.spread(mask if self.taken is None else mask & self.taken)

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream in, one out, and a fetch of each bound."""
        inputs = (stream(self.on_true_tile),)
        return (Lanewise("range_select", self.dst.free_elements, inputs, stream(self.dst), pointers=2),)


def _put_lowest(lanes: Lanes, tile: Tile, values: Float32s) -> None:
    """Round and write; FP32_MIN becomes -Inf where the dtype is a shorter float that has one."""
    if tile.dtype.has_inf and tile.dtype.size_bytes < dtypes.float32.size_bytes:
        values = np.where(values == _LOWEST, np.float32(-np.inf), values)
    lanes.put(tile, values)


range_select = emit(RangeSelect)
