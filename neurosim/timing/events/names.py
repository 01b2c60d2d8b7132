"""Engines, why they waited and what they did: names whose numbers are in the tables, and so in compiled code."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

ENGINES: Final = ("tensor", "vector", "scalar", "gpsimd", "sync")
"""Units with an instruction stream; ``dma0`` and so on come after them."""


class Stall(IntEnum):
    """Why a unit waited.

    Attributes:
        NONE: it did not.
        DATA_DMA: for data that a DMA brings.
        DATA_ENGINE: for a result of another engine, or of an earlier instruction of its own.
        OVERWRITE: for old contents that are still in use, or still being written (WAR, WAW).
        BUFFER: for space in SBUF or PSUM.
        EDGE: for a record that the kernel asked to wait for.
        QUEUE: for the DMA queue: its issue interval, or too many DMAs in flight.
        DESCRIPTORS: a DMA engine, for work.
        BANDWIDTH: a DMA engine, for HBM.
        MEETING: for the other core.
        LOOP: for the trip before, at the head of a loop on the device.
        THROTTLE: the tensor engine, for its clock: what it does takes longer than at the full one.
        PORT: for another engine to leave the port of SBUF, or the bank of PSUM, that it needs.
    """

    NONE = 0
    DATA_DMA = 1
    DATA_ENGINE = 2
    OVERWRITE = 3
    BUFFER = 4
    EDGE = 5
    QUEUE = 6
    DESCRIPTORS = 7
    BANDWIDTH = 8
    MEETING = 9
    LOOP = 10
    THROTTLE = 11
    PORT = 12


REASONS: Final = tuple(reason.name.lower() for reason in Stall)
"""Names of the reasons, by number."""


class Op(IntEnum):
    """What one op is: a record makes one or more."""

    INSTRUCTION = 0
    LOAD_STATIONARY = 1
    MATMUL = 2
    ACCUMULATOR_READ = 3
    TABLE_LOAD = 4
    TRIGGER = 5
    TRANSFER = 6
