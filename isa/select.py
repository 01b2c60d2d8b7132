"""Selecting elements by a predicate.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``affine_select``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from neurosim.chip import Chip
from neurosim.datapath.affine import affine_rules, affine_values
from neurosim.datapath.operators import Operator
from neurosim.datapath.rules import Broken, fits_float32, is_number, same_elements
from neurosim.datapath.streams import stream
from neurosim.engines import Engine, Memory
from neurosim.execution.lanes import Lanes
from neurosim.execution.scalar_registers import VirtualRegister
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit
from neurosim.work import Lanewise, Work

_COMPARE: dict[str, Any] = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}


class AffineSelect(Instruction, mnemonic="affine_select", engines=(Engine.gpsimd,)):
    """Where ``cmp_op(affine value, 0)`` holds, dst = on_true_tile, elsewhere the float32 on_false_value.

    The affine value is int32, as in ``iota``, and ``offset`` may be a register. Equal dtypes copy the bits of
    ``on_true_tile``; others go through float32.
    """

    dst: Tile = Out(Memory.sbuf)
    pattern: Any
    channel_multiplier: int
    on_true_tile: Tile = In(Memory.sbuf)
    on_false_value: float
    cmp_op: Operator = Operator("equal")
    offset: Tile | int = In(Memory.state, number=True, strict=True, default=0)
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """The pattern covers both tiles; a comparison; a number."""
        yield same_elements("dst", self.dst, "on_true_tile", self.on_true_tile)
        yield from affine_rules(self.pattern, self.offset, self.channel_multiplier, "dst", self.dst)
        if not isinstance(self.cmp_op, Operator) or self.cmp_op.name not in _COMPARE:
            yield Broken(
                f"cmp_op {self.cmp_op!r} is no comparison",
                ("known: " + ", ".join(_COMPARE),),
            )
        if not is_number(self.on_false_value):
            yield Broken(f"on_false_value {self.on_false_value!r} is not a number", advice="pass a Python number")
        yield fits_float32("on_false_value", self.on_false_value)

    def _predicate(self) -> Any:
        values = affine_values(self.pattern, self.offset, self.channel_multiplier, self.dst.partitions)
        return _COMPARE[self.cmp_op.name](values, 0)

    def execute(self, lanes: Lanes) -> None:
        """Pick bits."""
        taken = self._predicate()

        def choose(chosen: npt.NDArray[Any], fill: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return np.where(taken, chosen, fill)

        lanes.move(self.dst, choose, self.on_true_tile, self.on_false_value)

    def holes(self, holes: Holes) -> Holes:
        """Only chosen elements depend on the tile; where a run does not know the register, all."""
        if isinstance(self.offset, VirtualRegister) and not self.offset.known:
            return {"dst": holes["on_true_tile"].reshape(self.dst.shape)}
        mask = holes["on_true_tile"].reshape(self.dst.partitions, -1) & self._predicate()
        return {"dst": mask.reshape(self.dst.shape)}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream in, one out."""
        return (Lanewise("affine_select", self.dst.free_elements, (stream(self.on_true_tile),), stream(self.dst)),)


affine_select = emit(AffineSelect)
