"""Colors of engines and causes, the same in every picture and page."""

from __future__ import annotations

from typing import Final

from neurosim.timing.causes import CAUSES

UNIT_COLORS: Final = {
    "tensor": "#4e79a7",
    "load stationary": "#a0c4e4",
    "vector": "#f28e2b",
    "scalar": "#59a14f",
    "gpsimd": "#b07aa1",
    "sync": "#9c755f",
    "queue": "#c9b8a8",
    "dma": "#76b7b2",
}
"""By engine; ``dma`` for all DMA engines, and what else has rows of its own."""

WAIT: Final = "#e15759"

_PALETTE: Final = (
    *("#4e79a7", "#a0cbe8", "#f28e2b", "#ffbe7d", "#59a14f", "#8cd17d", "#b6992d", "#f1ce63", "#499894", "#86bcb6"),
    *("#e15759", "#ff9d9a", "#79706e", "#bab0ac", "#d37295", "#fabfd2", "#b07aa1", "#d4a6c8", "#9d7660", "#d7b5a6"),
)

CAUSES_IN_ORDER: Final = (*(cause for cause in CAUSES if cause != "idle"), "idle")
"""Causes as bars have them: what an engine does after its last instruction comes last."""

CAUSE_COLORS: Final = {
    cause: "#eeeeee" if cause == "idle" else _PALETTE[number % len(_PALETTE)] for number, cause in enumerate(CAUSES)
}
