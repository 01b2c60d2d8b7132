"""Affine number patterns over partitions and free axes, as GpSimd generates them.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``iota`` and ``affine_select``; that ``offset`` may be a
register: ``release-notes/components/nki.rst``, "dynamic register offsets".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from neurosim.datapath.rules import Broken, Shown
from neurosim.numerics.affine import affine
from neurosim.view import NkiTensor


def affine_rules(
    pattern: Any, offset: Any, channel_multiplier: Any, name: str, tensor: NkiTensor
) -> Iterator[Broken | None]:
    """Up to four [step, count] pairs of ints, as many elements as ``tensor`` has per partition, int32 everywhere."""
    numbers = (f"pattern {pattern!r}", Shown(name, tensor))
    ok = isinstance(pattern, (list, tuple)) and 1 <= len(pattern) <= 4
    ok = ok and all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 and all(_is_int32(part) for part in pair) for pair in pattern
    )
    if not ok:
        yield Broken(
            "pattern is not a list of one to four [step, count] pairs of int32",
            numbers,
            advice="write it as [[step, count], …], the outermost axis first",
        )
        return
    count = 1
    for _, extent in pattern:
        count *= extent
    if min(extent for _, extent in pattern) < 1 or count != tensor.free_elements:
        yield Broken(
            f"pattern makes {count} elements and {name} has {tensor.free_elements} per partition",
            numbers,
            "make the counts multiply to the free extent",
        )
    for label, value in (("offset", offset), ("channel_multiplier", channel_multiplier)):
        if not isinstance(value, NkiTensor) and not _is_int32(value):
            yield Broken(f"{label} {value!r} is not an int32", numbers, advice="pass a Python int of 32 bits")


def _is_int32(value: Any) -> bool:
    return type(value) is not bool and isinstance(value, Integral) and -(2**31) <= int(value) < 2**31


def affine_values(
    pattern: Any, offset: int | NkiTensor, channel_multiplier: int, partitions: int
) -> npt.NDArray[np.int32]:
    """Return int32 [partitions, product of counts]: offset + partition · multiplier + Σ index · step, modulo 2³².

    A register as ``offset`` counts with the whole number that it holds.
    """
    offset = int(offset.lanes()[0, 0]) if isinstance(offset, NkiTensor) else int(offset)
    row = _row(tuple([(int(step), int(count)) for step, count in pattern]))
    return affine(row, offset, int(channel_multiplier), partitions)


@lru_cache(maxsize=64)
def _row(pattern: tuple[tuple[int, int], ...]) -> npt.NDArray[np.int64]:
    """Return the values of one partition before anything is added, [product of counts]. To be read only."""
    values = np.zeros(1, np.int64)
    for step, count in pattern:
        values = (values[:, None] + np.arange(count, dtype=np.int64) * step).reshape(-1)
    return values
