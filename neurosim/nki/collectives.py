"""``nki.collectives``: not built yet; every name says so."""

from __future__ import annotations

from typing import Any

from neurosim.nki._missing import missing

_NAMES = frozenset(
    {
        "ReplicaGroup",
        "all_gather",
        "all_gather_v",
        "all_reduce",
        "all_to_all",
        "all_to_all_v",
        "collective_permute",
        "collective_permute_implicit",
        "collective_permute_implicit_current_processing_rank_id",
        "collective_permute_implicit_reduce",
        "rank_id",
        "reduce_scatter",
    }
)


def __getattr__(name: str) -> Any:
    raise missing("nki.collectives", name, _NAMES)
