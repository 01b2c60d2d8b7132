"""Loops of the legacy dialect, and iterations of ``affine_range`` that need each other's results.

``nl.affine_range`` says that its iterations can run in any order. Associative reductions are excepted: ``+=``,
``nl.loop_reduce`` and accumulation in PSUM. An iteration that reads what an earlier one wrote is an error here, where
the compiler produced wrong numbers ("considered unsafe and could lead to numerical errors").

Source: NKI 0.1 documentation, ``nki.language.affine_range`` and ``sequential_range``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from neurosim.errors import LoopCarriedDependence
from neurosim.view import NkiTensor


class LoopIndex(int):
    """The variable of a loop: an int."""

    __slots__ = ()


@dataclass(slots=True, eq=False)
class _Loop:
    """A running ``affine_range``: the numbers of the first write in it, and in its present iteration."""

    first: int
    current: int


@dataclass(slots=True)
class _Writers:
    """Who wrote each granule of a storage last: one number for all, or one per granule."""

    uniform: int
    granule: int
    each: npt.NDArray[np.uint32] | None = None


@dataclass
class Tracker:
    """Writes in ``affine_range`` loops, by number."""

    _loops: list[_Loop] = field(default_factory=list)
    _count: int = 1
    _writers: dict[int, _Writers] = field(default_factory=dict)
    _stacks: dict[int, int] = field(default_factory=dict)

    def affine(self, numbers: range, flush: Callable[[], None]) -> Iterator[LoopIndex]:
        """Yield the numbers of an ``affine_range``, and know the iteration meanwhile.

        ``flush`` issues what waits, so that it counts where it was called.
        """
        flush()
        loop = _Loop(self._count, self._count)
        self._loops.append(loop)
        try:
            for number in numbers:
                flush()
                loop.current = self._count
                yield LoopIndex(number)
            flush()
        finally:
            self._loops.remove(loop)

    def take(self) -> int:
        """Return a number for a write that belongs here and comes later."""
        number, self._count = self._count, self._count + 1
        return number

    def wrote(self, tensor: NkiTensor, kernel: Any, number: int | None = None) -> None:
        """Note a write at this place; ``number`` of one that belongs to an earlier time than the present."""
        if not self._loops:
            return
        storage = tensor.allocation.storage
        if number is None:
            number, self._count = self._count, self._count + 1
        self._stacks[number] = kernel.stack()
        writers = self._writers.get(storage.id)
        if tensor.size_bytes == storage.size_bytes and tensor.is_injective():
            self._writers[storage.id] = _Writers(number, tensor.dtype.size_bytes)
            return
        if writers is None:
            writers = self._writers[storage.id] = _Writers(0, tensor.dtype.size_bytes)
        self._granules(writers, tensor)[...] = number

    def reads(self, tensor: NkiTensor, kernel: Any, call: str) -> None:
        """Check a read.

        Raises:
            LoopCarriedDependence: an earlier iteration of a running ``affine_range`` wrote some of it.
        """
        if not self._loops or tensor.is_indirect():
            return
        writers = self._writers.get(tensor.allocation.storage.id)
        if writers is None:
            return
        if writers.each is None:
            for loop in self._loops:
                if loop.first <= writers.uniform < loop.current:
                    self._refuse(writers.uniform, tensor, kernel, call)
            return
        found = self._granules(writers, tensor)
        for loop in self._loops:
            if loop.current > loop.first:
                foreign = (found >= loop.first) & (found < loop.current)
                if foreign.any():
                    self._refuse(int(np.max(found[foreign])), tensor, kernel, call)

    def _refuse(self, number: int, tensor: NkiTensor, kernel: Any, call: str) -> None:
        writer = kernel.where(self._stacks[number])
        reader = kernel.where()
        raise LoopCarriedDependence(
            f"{call} reads {tensor.describe()}, which an earlier iteration of the same affine_range wrote",
            where=reader,
            numbers=(f"written at {writer[0] if writer else 'an unknown place'}",),
            advice="use nl.sequential_range, or accumulate with += or in PSUM",
        )

    def _granules(self, writers: _Writers, tensor: NkiTensor) -> npt.NDArray[np.uint32]:
        storage = tensor.allocation.storage
        if writers.each is None:
            writers.each = np.full(storage.size_bytes // writers.granule, writers.uniform, np.uint32)
        if not tensor.aligned_to(writers.granule):
            writers.each = np.repeat(writers.each, writers.granule)
            writers.granule = 1
        return tensor.over(writers.each, writers.granule)
