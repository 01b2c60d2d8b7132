"""Families of views: what an instruction knows its operands by, told apart by identity.

A signature is known by patterns, which are long to make and to compare. Views of one family and one shape that begin at
one spot have the same pattern.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from neurosim.dtypes import DType, bfloat16, float32
from neurosim.engines import Memory
from neurosim.views.reshaping import row_major


class Family:
    """What views have in common that walk memory alike, but for their extents and where they begin.

    Attributes:
        weight: what a byte of the beginning counts for in a view's ``spot``: in PSUM signatures tell places apart.
        steps: elements between neighbours per axis; along partitions, partitions.
        partition_axis: which axis partitions are, -1 in HBM.
        moves: by how much an index along each axis moves a view's ``spot``, and its ``offset_bytes``; None of views
            that are placed otherwise, each of which is of a family of its own: each call looks at them closely.
        pair: moves of the first of two axes, then of the second; None of other numbers of axes.
        rows: of plain tiles of bfloat16 and float32 bytes of an element, elements from one partition to the next, and
            whether it is bfloat16; None of all others.
    """

    __slots__ = ("moves", "pair", "partition_axis", "rows", "steps", "weight")

    def __init__(
        self,
        steps: tuple[int, ...],
        partition_axis: int,
        weight: int = 0,
        moves: tuple[tuple[int, int], ...] | None = None,
        rows: tuple[int, int, bool] | None = None,
    ) -> None:
        self.steps, self.partition_axis, self.weight, self.moves, self.rows = steps, partition_axis, weight, moves, rows
        self.pair = (*moves[0], *moves[1]) if moves is not None and len(moves) == 2 else None


_PARTITIONS: Final = 1 << 8
"""More than any chip has."""


@lru_cache(maxsize=1 << 14)  # a family that is made again is another one, and its next call is looked at closely
def family_of(memory: Memory, dtype: DType, steps: tuple[int, ...], partition_axis: int, row_bytes: int) -> Family:
    """Return the family of such views."""
    rows = None
    if partition_axis == 0 and len(steps) == 2 and steps[1] == 1 and dtype in (bfloat16, float32):
        step, rest = divmod(steps[0] * row_bytes, dtype.size_bytes)
        rows = None if rest else (dtype.size_bytes, step, dtype == bfloat16)
    weight, size = _PARTITIONS if memory is Memory.psum else 0, dtype.size_bytes
    moves = [(step * size * weight, step * size) for step in steps]
    if partition_axis >= 0:
        moves[partition_axis] = steps[partition_axis], 0
    return Family(steps, partition_axis, weight, tuple(moves), rows)


@lru_cache(maxsize=1 << 12)
def family_of_whole(memory: Memory, dtype: DType, shape: tuple[int, ...], row_bytes: int) -> Family:
    """Return the family of views of whole tensors: partitions first on chip, row-major otherwise."""
    if memory.is_on_chip:
        return family_of(memory, dtype, (1, *row_major(shape[1:], 1)), 0, row_bytes)
    return family_of(memory, dtype, row_major(shape, 1), -1, 0)
