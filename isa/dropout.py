"""Dropout: zeros in place of random elements.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``dropout``; its cost: the same file of SDK 2.26. The numbers
are those of ``rng`` on Vector: row i draws from lane i (*assumed*).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from neurosim import dtypes
from neurosim.chip import Chip
from neurosim.datapath.rules import Broken, column, same_dtype, same_elements
from neurosim.datapath.streams import stream
from neurosim.engines import Engine, Memory
from neurosim.execution.lanes import Lanes
from neurosim.execution.registers import RANDOM
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit
from neurosim.memory import Mask
from neurosim.numerics import random
from neurosim.program import Access
from neurosim.work import Lanewise, Work


class Dropout(Instruction, mnemonic="dropout", engines=(Engine.vector,)):
    """dst = 0 with probability ``prob``, else data as it is, unscaled; ``prob`` is a number or a [P, 1] tile.

    *Assumed*: an element is dropped where u < prob, as float32, with u in [0, 1) from the upper 24 bits of a number.
    So 0.0 drops nothing and 1.0 everything, and so does a tile's value beyond them.
    """

    chooses = True
    dst: Tile = Out(Memory.sbuf, Memory.psum)
    data: Tile = In(Memory.sbuf, Memory.psum)
    prob: Tile | float = In(Memory.sbuf, Memory.psum, number=True, strict=True)
    name: str | None = None

    def __post_init__(self) -> None:
        self.kept: Mask | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Equal extents and dtypes; a probability, float32 for integers and of any float format for floats."""
        yield same_elements("dst", self.dst, "data", self.data)
        yield same_dtype("dst", self.dst, "data", self.data)
        floats = tuple(dtype for dtype in dtypes.ALL if dtype.is_float)
        yield column("prob", self.prob, self.data, floats if self.data.dtype.is_float else (dtypes.float32,))
        if not isinstance(self.prob, Tile) and not 0 <= self.prob <= 1:
            yield Broken(f"prob={self.prob!r} is no probability", (), "pass 0.0 to 1.0")

    def state(self) -> tuple[tuple[str, Access], ...]:
        """Move the generator's state on."""
        return ((RANDOM, Access.ACCUMULATE),)

    def execute(self, lanes: Lanes) -> None:
        """Draw, compare, move bits."""
        fraction = random.unit(lanes.random(self.dst.partitions, self.dst.free_elements))
        kept = self.kept = ~(fraction < np.float32(lanes.column(self.prob)))
        lanes.move(self.dst, lambda data: np.where(kept, data, np.zeros_like(data)), self.data)

    def holes(self, holes: Holes) -> Holes:
        """A hole that is kept stays one."""
        mask = holes["data"].reshape(self.dst.partitions, -1)
        return {"dst": (mask if self.kept is None else mask & self.kept).reshape(self.dst.shape)}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream in, one out."""
        pointers = int(isinstance(self.prob, Tile))
        inputs = (stream(self.data),)
        return (Lanewise("dropout", self.dst.free_elements, inputs, stream(self.dst), pointers=pointers),)


dropout = emit(Dropout)
