"""Arguments without data: shape and dtype alone, for runs that record and time without computing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import index as as_int
from typing import Any

from neurosim import dtypes
from neurosim.dtypes import DType
from neurosim.errors import IllegalOperand
from neurosim.spelling import spelt


@dataclass(frozen=True, slots=True)
class Spec:
    """An array that is not there: make it with :func:`spec`.

    Attributes:
        shape: extents.
        dtype: number format.
    """

    shape: tuple[int, ...]
    dtype: DType

    @property
    def size_bytes(self) -> int:
        """Bytes that the array would take."""
        return math.prod(self.shape) * self.dtype.size_bytes


@spelt
def spec(shape: Sequence[int], dtype: Any) -> Spec:
    """Return an argument that has a shape and a dtype and no data, for ``neurosim.simulate(kernel, values=False)``.

    Raises:
        IllegalOperand: a shape without elements, or an unknown dtype.
    """
    known = dtypes.of(dtype)
    if known is None:
        raise IllegalOperand(
            f"spec: dtype {dtype!r} is not an NKI dtype",
            numbers=("known: " + ", ".join(dtypes.ALL),),
            advice="pass one of these",
        )
    try:
        extents = tuple(as_int(extent) for extent in shape)
    except TypeError:
        raise IllegalOperand(f"spec: shape {shape!r} is not made of ints", advice="pass a tuple of ints") from None
    if not extents or min(extents) < 1:
        raise IllegalOperand(f"spec: shape {extents} has no elements", advice="each axis needs at least one")
    return Spec(extents, known)
