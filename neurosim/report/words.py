"""Keys of a summary in words: reasons to stall, and the finer causes."""

from __future__ import annotations

REASONS = {
    "data_dma": "data from DMA",
    "data_engine": "results",
    "overwrite": "old contents",
    "buffer": "space on chip",
    "edge": "an edge",
    "queue": "the DMA queue",
    "descriptors": "DMAs to move",
    "bandwidth": "HBM bandwidth",
    "meeting": "the other core",
    "loop": "a loop's trip",
    "throttle": "its full clock",
    "port": "a memory port",
}
"""Stall reasons in words."""

CAUSES = {
    "work": "its own work",
    "overhead": "overhead",
    "weights": "loading weights",
    "table_load": "table loads",
    "trigger": "triggers",
    "dma_latency": "DMA latency",
    "dma_issue": "DMA issue",
    "dma_descriptors": "DMA descriptors",
    "dma_bandwidth": "DMA bandwidth",
    "sbuf_space": "space in SBUF",
    "psum_space": "a PSUM bank",
    "no_dma": "a DMA to be triggered",
    "idle": "the end",
}
"""Causes that are no reason to stall, in words; the others have those of their reason."""


def words(key: str) -> str:
    """Return what a reason or a cause is called."""
    return CAUSES.get(key) or REASONS.get(key) or key.replace("_", " ")
