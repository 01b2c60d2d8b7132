"""Families of views: what an instruction knows its operands by, told apart by identity.

A signature is known by patterns, which are long to make and to compare. Views of one family and one shape that begin at
one spot have the same pattern.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from neurosim.engines import Memory

if TYPE_CHECKING:
    from neurosim.dtypes import DType


class Family:
    """What views have in common that walk memory alike, but for their extents and where they begin.

    Attributes:
        weight: what a byte of the beginning counts for in a view's ``spot``: in PSUM signatures tell places apart.
    """

    __slots__ = ("weight",)

    def __init__(self, weight: int) -> None:
        self.weight = weight


ALONE: Final = Family(0)
"""Of views that more than a pattern tells apart: each call looks at them closely."""
_PARTITIONS: Final = 1 << 8
"""More than any chip has."""


@lru_cache(maxsize=1 << 14)  # a family that is made again is another one, and its next call is looked at closely
def family_of(memory: Memory, dtype: DType, steps: tuple[int, ...], partition_axis: int, row_bytes: int) -> Family:
    """Return the family of such views."""
    return Family(_PARTITIONS if memory is Memory.psum else 0)
