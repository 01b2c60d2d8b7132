"""Registers inside an engine that outlive an instruction: how wide they are, and what they hold at first.

*Assumed*: an engine that no instruction has seeded draws as after the seed 0 (the documentation says that the state is
kept during the execution of a program and lost when the engine is reset, and not what it is then); every run of a
kernel begins there, and so does each core, so that the same kernel gives the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from neurosim import dtypes
from neurosim.chip import Chip
from neurosim.dtypes import DType
from neurosim.engines import Engine
from neurosim.numerics import random
from neurosim.numerics.random import Generator

ACCUMULATOR = "accumulator"
"""One float32 per lane, unknown until an instruction resets it."""
RANDOM = "random"
"""The state of the pseudo-random number generator."""


@dataclass(frozen=True, slots=True)
class Registers:
    """One kind of registers on one engine.

    Attributes:
        words: 32-bit words per lane.
        dtype: what a word is.
        initial: what the lanes hold before any instruction set them, (lanes, words); None for nothing known.
    """

    words: int
    dtype: DType
    initial: npt.NDArray[np.uint32] | None = None


def generator(engine: Engine, chip: Chip) -> Generator:
    """Return the pseudo-random number generator of an engine's lanes.

    Source: AWS Neuron SDK, ``trainium3_arch.rst``, "XORWOW-based PRNG": Vector has four states of XORWOW from
    NeuronCore-v4 on and an LFSR before; ``rand_set_state`` in ``nki/api/nki/isa/__init__.py``: GpSimd has one.
    """
    if engine is Engine.gpsimd:
        return random.XORWOW
    return random.XORWOW_BY_FOUR if chip.generation >= 4 else random.LFSR


def registers_of(kind: str, engine: Engine, chip: Chip) -> Registers:
    """Return what an engine has of one kind."""
    if kind == RANDOM:
        known = generator(engine, chip)
        return Registers(known.lane_words, dtypes.uint32, random.seeded(known, 0, chip.partitions))
    return Registers(1, dtypes.float32)
