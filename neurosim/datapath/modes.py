"""Enumerations of ``nki.isa`` that several instructions take, with NKI's names and values.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py`` (``reduce_cmd``, ``dge_mode``, ``oob_mode``, ``dma_engine``).
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any


class Mode(Enum):
    """An enumeration of parameters: hashed by identity, since records hash their parameters."""

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        kind = re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()
        return f"nisa.{kind}.{self.name}"


class ReduceCmd(Mode):
    """What an instruction does to the accumulator registers of its engine."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class DgeMode(Mode):
    """Who generates the descriptors of a DMA."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class OobMode(Mode):
    """What an index out of bounds does in a DMA with dynamic addresses."""

    error = 0
    skip = 1


class DmaEngine(Mode):
    """Which DMA moves data between cores."""

    dma = 1
    gpsimd_dma = 2


def member(kind: type[Enum], value: Any) -> Any:
    """Return the member that an int is the value of, as kernels in use write ``dge_mode=3``; else ``value`` itself."""
    return kind(value) if type(value) is int and value in {entry.value for entry in kind} else value
