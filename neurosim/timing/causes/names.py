"""What an engine's time can go into: a closed list of causes, finer than the reasons to stall.

Reasons that stand for several causes are split: data from a DMA by what its DMA was doing (``phases.py``), space by
memory. Every other reason to stall is a cause of its own, under the same name.
"""

from __future__ import annotations

from typing import Final

from neurosim.timing.events.names import REASONS, Stall

_OWN: Final = (
    "work",
    "overhead",
    "weights",
    "table_load",
    "trigger",
    "dma_latency",
    "dma_issue",
    "dma_descriptors",
    "dma_bandwidth",
    "sbuf_space",
    "psum_space",
    "no_dma",
    "idle",
)
_SPLIT: Final = (Stall.NONE, Stall.DATA_DMA, Stall.BUFFER, Stall.DESCRIPTORS, Stall.BANDWIDTH)

CAUSES: Final = (*_OWN, *(name for reason, name in zip(Stall, REASONS, strict=True) if reason not in _SPLIT))
"""Names of the causes, by number.

* ``work``: elements, rows or bytes that pass through the engine.
* ``overhead``: what instructions cost beside their elements, and descriptors beside their bytes.
* ``weights``: loading the stationary operand, as far as no MATMUL hides it.
* ``table_load``: loading an activation table.
* ``trigger``: executing DMA instructions.
* ``dma_latency``: waiting for a DMA that was between its trigger and its first byte, or past its last one.
* ``dma_issue``: waiting for data whose DMA waited for its queue, or for the engine that triggers it.
* ``dma_descriptors``: waiting for bytes that move in descriptors too small for the DMA engines' rate.
* ``dma_bandwidth``: waiting for bytes that move at the rate of the DMA engines, or of HBM.
* ``sbuf_space``, ``psum_space``: waiting for bytes of SBUF, or of a bank of PSUM, that other tiles still hold.
* ``no_dma``: (a DMA engine) no DMA was triggered.
* ``idle``: after the engine's last instruction.

The others are reasons to stall: :class:`neurosim.timing.events.names.Stall`.
"""

NUMBERS: Final = {name: number for number, name in enumerate(CAUSES)}

OF_STALL: Final = tuple(
    NUMBERS["dma_bandwidth"] if reason is Stall.BANDWIDTH else NUMBERS.get(name, NUMBERS["idle"])
    for reason, name in zip(Stall, REASONS, strict=True)
)
"""By number of a :class:`Stall`, its cause; of one that is split, a place holder."""

BUSY: Final = tuple(NUMBERS[name] for name in ("work", "overhead", "weights", "table_load", "trigger"))
"""Causes that are the engine's own doing."""
