"""The engines of a NeuronCore and the memories they reach, by their NKI names.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py`` (``engine``) and ``nki/api/nki/language/__init__.py``
(``MemoryRegion``).
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class Engine(Enum):
    """An engine with an instruction stream of its own. ``unknown`` lets the written rule choose."""

    unknown = 0
    tensor = 1
    scalar = 2
    gpsimd = 3
    dma = 4
    vector = 5
    sync = 6

    def __repr__(self) -> str:
        return f"nisa.engine.{self.name}"

    __hash__ = object.__hash__  # as below; no order of a set of engines shows anywhere


DESCRIPTOR_TRIGGERS: Final = (Engine.sync, Engine.scalar)
"""Engines that can have hardware make a DMA's descriptors, since NeuronCore-v3."""


class Memory(Enum):
    """Where a tensor lives: ``hbm`` is another name of ``private_hbm``.

    ``state`` holds what is not addressable: registers inside an engine.
    """

    sbuf = "sbuf"
    psum = "psum"
    private_hbm = "private_hbm"
    hbm = "private_hbm"  # noqa: PIE796 (NKI says so)
    shared_hbm = "shared_hbm"
    state = "state"

    @property
    def is_hbm(self) -> bool:
        """Whether this is device memory, of any visibility."""
        return self in _HBM

    @property
    def is_on_chip(self) -> bool:
        """Whether this memory has partitions."""
        return self is Memory.sbuf or self is Memory.psum

    @property
    def label(self) -> str:
        """The name used in messages: SBUF, PSUM, HBM."""
        return _LABELS[self]

    def __repr__(self) -> str:
        return f"nl.{self.name}"

    __hash__ = object.__hash__  # Enum's own hashes the name each time; records hash memories often


_HBM = frozenset({Memory.hbm, Memory.shared_hbm})
_LABELS = {memory: "HBM" if memory.is_hbm else memory.value.upper() for memory in Memory}

HBM = (Memory.hbm, Memory.shared_hbm)
"""All kinds of HBM, for operand declarations."""


def usual_trigger(source: Memory) -> Engine:
    """Return which of them compilers were seen to choose (``timing/triggers.py``): Sync loads, Scalar stores."""
    return Engine.sync if source.is_hbm else Engine.scalar
