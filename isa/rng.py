"""Random numbers.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``rng`` and ``rand2``. Which generator an engine
has: ``neurosim/execution/registers.py``; what it computes: ``neurosim/numerics/random.py``. Row i of a tile draws from
lane i, whatever partition the tile begins at (*assumed*), its elements in the order of the access pattern.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from neurosim import dtypes
from neurosim.chip import Chip
from neurosim.datapath.rules import Broken, column, overflows, result_dtype_in, since
from neurosim.datapath.streams import stream
from neurosim.engines import Engine, Memory
from neurosim.errors import IllegalOperand
from neurosim.execution.lanes import Lanes
from neurosim.execution.registers import RANDOM
from neurosim.instruction import In, Instruction, Out, Tile, emit
from neurosim.numerics import random
from neurosim.program import Access
from neurosim.work import Lanewise, Work

_INTEGERS = (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.uint8, dtypes.uint16, dtypes.uint32)
_FLOATS8 = (dtypes.float8_e4m3, dtypes.float8_e5m2)
_FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.tfloat32)


class _Drawing:
    """What instructions that draw numbers share."""

    def state(self) -> tuple[tuple[str, Access], ...]:
        """Move the generator's state on."""
        return ((RANDOM, Access.ACCUMULATE),)


class Rng(_Drawing, Instruction, mnemonic="rng", engines=(Engine.vector, Engine.gpsimd)):
    """dst = 32 random bits for each element, of which a narrower integer takes the least significant ones."""

    dst: Tile = Out(Memory.sbuf, Memory.psum)
    engine: Engine = Engine.vector
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Integers; GpSimd from NeuronCore-v3 on, and in SBUF."""
        yield result_dtype_in("dst", self.dst, _INTEGERS)
        if self.engine is Engine.gpsimd:
            yield since(3, chip, "use nisa.engine.vector", "engine=gpsimd")
            if self.dst.buffer is Memory.psum:
                yield Broken("GpSimd does not reach PSUM", (f"dst  {self.dst.describe()}",), "use nisa.engine.vector")

    def execute(self, lanes: Lanes) -> None:
        """Draw and cut."""
        numbers = lanes.random(self.dst.partitions, self.dst.free_elements)
        lanes.put_bits(self.dst, numbers.astype(self.dst.dtype.bits, copy=False))

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream out."""
        return (Lanewise("random", self.dst.free_elements, (), stream(self.dst)),)


class Rand2(_Drawing, Instruction, mnemonic="rand2", engines=(Engine.vector,)):
    """dst = random numbers between ``min`` and ``max``, each a number or a float32 [P, 1] tile.

    *Assumed*: min + u · (max - min) in float32, rounded after each operation and once more to dst's dtype, where u has
    the upper 24 bits of a number and lies in [0, 1). So ``max`` comes up by rounding only.
    """

    dst: Tile = Out(Memory.sbuf, Memory.psum)
    min: Tile | float = In(Memory.sbuf, Memory.psum, number=True, strict=True)
    max: Tile | float = In(Memory.sbuf, Memory.psum, number=True, strict=True)
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """NeuronCore-v4; dtypes that the datapath has; bounds that match."""
        yield since(4, chip, "draw bits with nisa.rng and scale them with nisa.tensor_scalar")
        yield result_dtype_in("dst", self.dst, (*_FLOATS8, *_FLOATS, *_INTEGERS))
        yield column("min", self.min, self.dst, (dtypes.float32,))
        yield column("max", self.max, self.dst, (dtypes.float32,))
        if not isinstance(self.min, Tile) and not isinstance(self.max, Tile):
            yield _range_rule(self.min, self.max)

    def execute(self, lanes: Lanes) -> None:
        """Draw, scale, round."""
        rows = self.dst.partitions
        low, high = (np.broadcast_to(np.float32(lanes.column(bound)), (rows, 1)) for bound in (self.min, self.max))
        for row, (least, most) in enumerate(zip(low[:, 0], high[:, 0], strict=True)):
            broken = _range_rule(least, most)
            if broken is not None:
                raise IllegalOperand(f"rand2: {broken.what} in row {row}", numbers=broken.lines, advice=broken.advice)
        fraction = random.unit(lanes.random(rows, self.dst.free_elements))
        lanes.put(self.dst, low + fraction * (high - low))

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream out, and a fetch of each bound."""
        pointers = isinstance(self.min, Tile) + isinstance(self.max, Tile)
        return (Lanewise("random", self.dst.free_elements, (), stream(self.dst), pointers=pointers),)


def _range_rule(low: Any, high: Any) -> Broken | None:
    """The bounds are in order, and so close that float32 holds their distance."""
    if np.float32(low) < np.float32(high) and not overflows(float(high) - float(low), dtypes.float32):
        return None
    what = f"min {float(low):g} and max {float(high):g} are no range"
    return Broken(what, (), "min must be less than max, and max - min a finite float32")


rng = emit(Rng)
rand2 = emit(Rand2)
