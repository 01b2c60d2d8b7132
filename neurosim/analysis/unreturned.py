"""Tensors in HBM that a kernel stores to, and neither returns nor reads: what they hold is lost.

Mostly a ``return`` that was forgotten. The documents of NKI say nothing of it (the release notes of SDK 2.20 say that
outputs "are explicitly returned"), and the vendor's simulator gives back what is returned. It is a warning and no
error, since scratch that is stored for nothing changes no output.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from neurosim.analysis.dependences import Operands
from neurosim.engines import HBM
from neurosim.program import Program

LOST: Final = "Lost"
"""Heading of the program's note on them."""

NAMED: Final = 3
"""Tensors that are named; of others, how many."""


class UnreturnedOutputWarning(UserWarning):
    """A kernel stores to a tensor in HBM that it neither returns nor reads."""


def unreturned(program: Program) -> str:
    """Return which of a finished record's tensors in HBM are stored to and lost, in words; empty if none is.

    A record that stores to a tensor and reads it, as sums in place do, is no reader of it.
    """
    own = program.storages.column(lambda info: info.memory in HBM and info.role == "tile", np.bool_)
    if not own.any():
        return ""
    operands = Operands.of(program)
    stores = operands.is_write(program)
    place = operands.record * len(own) + operands.storage
    reads = ~stores & ~np.isin(place, place[stores])
    lost = sorted(set(operands.storage[stores & own[operands.storage]]) - set(operands.storage[reads]))
    more = [f"and {len(lost) - NAMED} more"] if len(lost) > NAMED else []
    return "; ".join([_told(program, int(storage)) for storage in lost[:NAMED]] + more)


def _told(program: Program, storage: int) -> str:
    info = program.storages[storage]
    frames = program.stacks[info.stack]
    where = f", allocated at {frames[0].file}:{frames[0].line}," if frames else ""
    return (
        f"{program.label(storage)} {list(info.shape)} {info.dtype}{where} is stored to, and neither returned nor read"
    )
