"""Seeding the random number generators of the engines, saving and restoring their state.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``set_rng_seed``, ``rand_set_state`` and ``rand_get_state``.
How a state lies in its words, and what a single seed does: ``neurosim/numerics/random.py`` (*assumed*). Row i of a tile
belongs to lane i, whatever partition it begins at; lanes beyond a tile's rows keep their state (*assumed*).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from neurosim.chip import Chip
from neurosim.datapath.rules import Broken, axes_within, dtype_in, elements_within, since
from neurosim.datapath.streams import stream
from neurosim.dtypes import uint32
from neurosim.engines import Engine, Memory
from neurosim.execution.lanes import Lanes
from neurosim.execution.registers import RANDOM, generator
from neurosim.instruction import In, Instruction, Out, Tile, emit
from neurosim.numerics import random
from neurosim.program import Access
from neurosim.work import Lanewise, Work


class SetRngSeed(Instruction, mnemonic="set_rng_seed", engines=(Engine.vector,)):
    """Seed the generators of all lanes of Vector with the 32 bits of one element."""

    src_seeds: Tile = In(Memory.sbuf, Memory.psum, strict=True)
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """One element of 32 bits."""
        seeds = self.src_seeds
        if seeds.partitions != 1 or seeds.free_elements != 1:
            yield Broken(
                f"src_seeds has {seeds.partitions} partitions of {seeds.free_elements} elements; it must be [1, 1]",
                (f"src_seeds  {seeds.describe()}",),
                "slice one element; every lane takes its own state from it",
            )
        if seeds.dtype.size_bytes != 4:
            yield Broken(
                f"src_seeds is {seeds.dtype}; a seed has 32 bits", (f"src_seeds  {seeds.describe()}",), "use nl.uint32"
            )

    def state(self) -> tuple[tuple[str, Access], ...]:
        """Overwrite the state of all lanes."""
        return ((RANDOM, Access.WRITE),)

    def execute(self, lanes: Lanes) -> None:
        """Spread the seed."""
        seed = int(lanes.bits(self.src_seeds).view(np.uint32)[0, 0])
        known = generator(lanes.engine, lanes.chip)
        lanes.words(RANDOM)[:] = random.seeded(known, seed, lanes.chip.partitions)

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream in, and every word of a lane."""
        return (Lanewise("random_state", generator(engine, chip).lane_words, (stream(self.src_seeds),), None),)


def _rules(name: str, tile: Tile, wanted: Engine, chip: Chip) -> Iterator[Broken | None]:
    """GpSimd from NeuronCore-v3 on, Vector from v4; two axes, uint32, all words of a lane."""
    yield since(3, chip, "seed Vector with nisa.set_rng_seed")
    if not isinstance(wanted, Engine) or wanted not in (Engine.unknown, Engine.gpsimd, Engine.vector):
        yield Broken(f"cannot run on {wanted!r}", (), "it runs on gpsimd or vector")
        return
    engine = Engine.gpsimd if wanted is Engine.unknown else wanted
    if engine is Engine.vector:
        yield since(4, chip, "use nisa.engine.gpsimd, or seed Vector with nisa.set_rng_seed", "engine=vector")
    words = generator(engine, chip).lane_words
    yield elements_within(name, tile, words, words, f"a lane of {engine.name} has {words} words of state")
    yield axes_within(name, tile, 2)
    yield dtype_in(name, tile, (uint32,))


class RandSetState(Instruction, mnemonic="rand_set_state", engines=(Engine.gpsimd, Engine.vector)):
    """Set the state of one lane's generator per row: 6 words of XORWOW on GpSimd, four times 6 on Vector."""

    src_seeds: Tile = In(Memory.sbuf, strict=True)
    engine: Engine = Engine.gpsimd
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """An engine that the generation lets load its state, and the words of it."""
        yield from _rules("src_seeds", self.src_seeds, self.engine, chip)

    def state(self) -> tuple[tuple[str, Access], ...]:
        """Overwrite the lanes that have a row; the others keep theirs."""
        return ((RANDOM, Access.ACCUMULATE),)

    def execute(self, lanes: Lanes) -> None:
        """Move words."""
        lanes.words(RANDOM)[: self.src_seeds.partitions] = lanes.bits(self.src_seeds)

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream in."""
        return (Lanewise("random_state", self.src_seeds.free_elements, (stream(self.src_seeds),), None),)


class RandGetState(Instruction, mnemonic="rand_get_state", engines=(Engine.gpsimd, Engine.vector)):
    """dst = the state of one lane's generator per row, as ``rand_set_state`` takes it."""

    dst: Tile = Out(Memory.sbuf, Memory.psum)
    engine: Engine = Engine.gpsimd
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """An engine that the generation lets store its state, memory that it reaches, and the words of it."""
        yield from _rules("dst", self.dst, self.engine, chip)
        if self.dst.buffer is Memory.psum and self.engine is not Engine.vector:
            yield Broken("GpSimd does not reach PSUM", (f"dst  {self.dst.describe()}",), "give an SBUF tile")

    def state(self) -> tuple[tuple[str, Access], ...]:
        """Read the state."""
        return ((RANDOM, Access.READ),)

    def execute(self, lanes: Lanes) -> None:
        """Move words."""
        lanes.put_bits(self.dst, lanes.words(RANDOM)[: self.dst.partitions])

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream out."""
        return (Lanewise("random_state", self.dst.free_elements, (), stream(self.dst)),)


set_rng_seed = emit(SetRngSeed)
rand_set_state = emit(RandSetState)
rand_get_state = emit(RandGetState)
