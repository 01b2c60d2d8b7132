"""``nki.collectives``: replica groups, and collectives that say when they are called that they are not built.

A collective talks to the cores of other ranks, and a run here is one logical core. Kernels that only may call one run;
one that does call it is told which, at its line. Names, parameters and defaults are those of NKI 0.6.

Source: AWS Neuron SDK, ``nki/api/nki/collectives/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from neurosim.errors import IllegalOperand, Unsupported
from neurosim.kernel import current
from neurosim.launch.objects import NKIObject
from neurosim.nki._missing import missing

Tensors = Sequence[Any]
__all__ = [
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
]


@dataclass
class ReplicaGroup(NKIObject):
    """Groups of ranks that take part in a collective, as lists of ranks: ``ReplicaGroup([[0, 1], [2, 3]])``.

    Attributes:
        groups: the lists (the manual does not name its field). No rank is in two places.

    Raises:
        IllegalOperand: no lists of ranks, or a rank that is there twice.
    """

    groups: Sequence[Sequence[int]]

    def __post_init__(self) -> None:
        lists = isinstance(self.groups, (list, tuple)) and all(
            isinstance(group, (list, tuple)) for group in self.groups
        )
        ranks = [rank for group in self.groups for rank in group] if lists else []
        whole = all(isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0 for rank in ranks)
        if not ranks or not whole:
            raise IllegalOperand(f"ReplicaGroup({self.groups!r})", advice="give lists of ranks, as in [[0, 1], [2, 3]]")
        twice = sorted({rank for rank in ranks if ranks.count(rank) > 1})
        if twice:
            raise IllegalOperand(
                f"ReplicaGroup({self.groups!r}): rank {twice[0]} is there twice",
                advice="groups do not overlap: each rank is in one place",
            )


def _refuse(name: str) -> NoReturn:
    call = f"nki.collectives.{name}"
    kernel = current(call)
    raise Unsupported(
        f"{call} is not built yet: a run is one logical NeuronCore, and no other rank is there to talk to",
        where=kernel.where(),
        advice="run what each rank computes on its own, and combine the results outside of the kernel",
    )


def all_reduce(
    srcs: Tensors, dsts: Tensors, replica_group: Any, op: Any, priority: int | None = None, name: str | None = None
) -> NoReturn:
    """Reduce tensors over the ranks of a group, for all of them. Raises Unsupported."""
    _refuse("all_reduce")


def all_gather(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: Any,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> NoReturn:
    """Put the tensors of a group's ranks together, for all of them. Raises Unsupported."""
    _refuse("all_gather")


def all_gather_v(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: Any,
    metadata_tensor: Any,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> NoReturn:
    """Put chunks of any length of a group's ranks together, for all of them. Raises Unsupported."""
    _refuse("all_gather_v")


def reduce_scatter(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: Any,
    collective_dim: int,
    op: Any,
    priority: int | None = None,
    name: str | None = None,
) -> NoReturn:
    """Reduce tensors over the ranks of a group, a part for each. Raises Unsupported."""
    _refuse("reduce_scatter")


def all_to_all(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: Any,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> NoReturn:
    """Send a part of each rank's tensors to each other rank. Raises Unsupported."""
    _refuse("all_to_all")


def all_to_all_v(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: Any,
    metadata_tensor: Any,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> NoReturn:
    """Send a part of any length of each rank's tensors to each other rank. Raises Unsupported."""
    _refuse("all_to_all_v")


def collective_permute(
    srcs: Tensors,
    dsts: Tensors,
    source_target_pairs: Sequence[tuple[int, int]],
    priority: int | None = None,
    name: str | None = None,
) -> NoReturn:
    """Send tensors from rank to rank, by pairs. Raises Unsupported."""
    _refuse("collective_permute")


def collective_permute_implicit(
    srcs_by_channel: Sequence[Tensors],
    dsts_by_channel: Sequence[Tensors],
    replica_group: Any,
    channel_ids: Sequence[int] = (0,),
    priority: int | None = None,
    name: str | None = None,
) -> NoReturn:
    """Send tensors to the next rank of a ring. Raises Unsupported."""
    _refuse("collective_permute_implicit")


def collective_permute_implicit_reduce(
    srcs0_by_channel: Sequence[Tensors],
    srcs1_by_channel: Sequence[Tensors],
    dsts_by_channel: Sequence[Tensors],
    replica_group: Any,
    op: Any,
    channel_ids: Sequence[int] = (0,),
    priority: int | None = None,
    name: str | None = None,
) -> NoReturn:
    """Send the reduction of two tensors to the next rank of a ring. Raises Unsupported."""
    _refuse("collective_permute_implicit_reduce")


def collective_permute_implicit_current_processing_rank_id(
    iteration_id: int, replica_group: Any, channel_id: int = 0, name: str | None = None
) -> NoReturn:
    """Ask whose data a step of a ring works on. Raises Unsupported."""
    _refuse("collective_permute_implicit_current_processing_rank_id")


def rank_id(name: str | None = None) -> NoReturn:
    """Ask which rank this is. Raises Unsupported."""
    _refuse("rank_id")


def __getattr__(name: str) -> Any:
    raise missing("nki.collectives", name, frozenset(), __all__)
