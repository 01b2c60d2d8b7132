"""Generating affine patterns of numbers.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``iota``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from neurosim.chip import Chip
from neurosim.datapath.affine import affine_rules, affine_values
from neurosim.datapath.rules import Broken
from neurosim.datapath.streams import stream
from neurosim.dtypes import int32
from neurosim.engines import Engine, Memory
from neurosim.execution.lanes import Lanes
from neurosim.instruction import In, Instruction, Out, Tile, emit
from neurosim.work import Lanewise, Work


class Iota(Instruction, mnemonic="iota", engines=(Engine.gpsimd,)):
    """Write offset + partition · channel_multiplier + Σ index · step: int32 arithmetic, then a cast to dst's dtype.

    ``offset`` may be a register. Integers narrower than 32 bits saturate (assumed, as every other narrowing to integers
    does).
    """

    dst: Tile = Out(Memory.sbuf)
    pattern: Any
    offset: Tile | int = In(Memory.state, number=True, strict=True, default=0)
    channel_multiplier: int = 0
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """The pattern covers dst."""
        yield from affine_rules(self.pattern, self.offset, self.channel_multiplier, "dst", self.dst)

    def execute(self, lanes: Lanes) -> None:
        """Generate and cast."""
        values = affine_values(self.pattern, self.offset, self.channel_multiplier, self.dst.partitions)
        dtype = self.dst.dtype
        if dtype == int32:
            lanes.put_bits(self.dst, values)
        elif dtype.is_integer:
            limits = np.iinfo(dtype.numpy)
            lanes.put_bits(self.dst, np.clip(values.astype(np.int64), limits.min, limits.max).astype(dtype.numpy))
        else:
            lanes.put(self.dst, values.astype(np.float32))

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream out."""
        return (Lanewise("iota", self.dst.free_elements, (), stream(self.dst)),)


iota = emit(Iota)
