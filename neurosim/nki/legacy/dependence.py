"""Loops of the legacy dialect, and iterations of ``affine_range`` that need each other's results.

``nl.affine_range`` says that its iterations can run in any order. Associative reductions are excepted: ``+=``,
``nl.loop_reduce`` and accumulation in PSUM. An iteration that reads what an earlier one wrote is an error here, where
the compiler produced wrong numbers ("considered unsafe and could lead to numerical errors").

Source: NKI 0.1 documentation, ``nki.language.affine_range`` and ``sequential_range``.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from neurosim.errors import LoopCarriedDependence
from neurosim.memory import Storage
from neurosim.view import NkiTensor


class LoopIndex(int):
    """The variable of a loop: an int."""

    __slots__ = ()


@dataclass(slots=True, eq=False)
class _Loop:
    """A running ``affine_range``.

    Attributes:
        first, current: numbers of the first write in it, and in its present iteration; both the first where iterations
            may need each other.
    """

    first: int
    current: int


@dataclass(slots=True, eq=False)
class _Body:
    """What a running loop allocates, which the old compiler traced once.

    Attributes:
        placed: by call stack, how many tensors were placed there in the present iteration.
        places: of an outermost loop, by call stack and that count, the place that the first one got.
    """

    placed: dict[int, int] = field(default_factory=dict)
    places: dict[tuple[int, int], Any] = field(default_factory=dict)


_LOGGED = 64
"""Writes to parts of a storage that are kept one by one, before there is a number for each granule."""


@dataclass(slots=True)
class _Writers:
    """Who wrote each granule of a storage last: one number for all, and later writes to parts of it.

    Attributes:
        uniform: of the last write of everything.
        granule: bytes.
        parts: by pattern, later writes in their order; the same pattern again replaces what was there. Only of tensors
            with an address is the view kept: their storage outlives them, and others are not to be kept from going.
        each: a number per granule, once a read has to know.
    """

    uniform: int
    granule: int
    parts: dict[Any, tuple[NkiTensor | None, int]] = field(default_factory=dict)
    each: npt.NDArray[np.uint32] | None = None

    def add(self, tensor: NkiTensor, number: int) -> None:
        """Note a write to a part."""
        if self.each is not None:
            self.granules(tensor)[...] = number
            return
        pattern = tensor.dtype, tensor.shape, tensor.steps, tensor.partition_axis
        start = tensor.relative_partition, tensor.free_offset
        is_planed = tensor.allocation.is_planed
        key = (*pattern, *start, tensor.allocation.index if is_planed else 0)
        self.parts.pop(key, None)
        self.parts[key] = tensor if is_planed else None, number
        if len(self.parts) > _LOGGED:
            self.granules(tensor)

    def numbers(self) -> list[int]:
        """Return which writes may be the last of some granule, while there is no number for each."""
        return [self.uniform, *[number for _, number in self.parts.values()]]

    def granules(self, tensor: NkiTensor) -> npt.NDArray[np.uint32]:
        """Return the numbers of the granules under a view, as a view."""
        if self.each is None:
            storage = tensor.allocation.storage
            self.each = np.full(storage.size_bytes // self.granule, self.uniform, np.uint32)
            parts, self.parts = self.parts, {}
            for key, (part, number) in parts.items():
                self.granules(NkiTensor(tensor.allocation, *key[:-1]) if part is None else part)[...] = number
        if not tensor.aligned_to(self.granule):
            self.each = np.repeat(self.each, self.granule)
            self.granule = 1
        return tensor.over(self.each, self.granule)


@dataclass
class Tracker:
    """Writes in ``affine_range`` loops, by number."""

    _loops: list[_Loop] = field(default_factory=list)
    _bodies: list[_Body] = field(default_factory=list)
    _count: int = 1
    _writers: WeakKeyDictionary[Storage, _Writers] = field(default_factory=WeakKeyDictionary)
    _stacks: array[int] = field(default_factory=lambda: array("q", [-1]))  # by number, where it is

    def affine(self, numbers: range, flush: Callable[[], None], in_order: bool = False) -> Iterator[LoopIndex]:
        """Yield the numbers of an ``affine_range``, and know the iteration meanwhile.

        ``flush`` issues what waits, so that it counts where it was called. Iterations ``in_order`` may need each other.
        """
        flush()
        loop = _Loop(self._count, self._count)
        self._loops.append(loop)
        try:
            for index in self.body(numbers):
                flush()
                loop.current = loop.first if in_order else self._count
                yield index
            flush()
        finally:
            self._loops.remove(loop)
            if not self._loops:
                self._writers.clear()  # no loop that is yet to come has these for its own

    def body(self, numbers: range) -> Iterator[LoopIndex]:
        """Yield the numbers of a loop that the old compiler traced once."""
        body = _Body()
        self._bodies.append(body)
        try:
            for number in numbers:
                body.placed.clear()
                yield LoopIndex(number)
        finally:
            self._bodies.remove(body)

    def traced(self, stack: int, place: Any) -> Any:
        """Return the place of a tensor that the call stack ``stack`` allocates: in a loop, as in its first iteration.

        The old compiler traced a loop once, so that ``address += size`` in it adds once (nki-samples'
        ``allocated_attention.py`` and ``pipelined_attention.py``, whose addresses would leave SBUF otherwise).
        """
        if not self._bodies:
            return place
        inner, outer = self._bodies[-1], self._bodies[0]
        count = inner.placed[stack] = inner.placed.get(stack, 0) + 1
        return outer.places.setdefault((stack, count), place)

    def take(self) -> int:
        """Return a number for a write that belongs here and comes later."""
        number, self._count = self._count, self._count + 1
        self._stacks.append(-1)
        return number

    def wrote(self, tensor: NkiTensor, kernel: Any, number: int | None = None) -> None:
        """Note a write at this place; ``number`` of one that belongs to an earlier time than the present."""
        if not self._loops:
            return
        storage = tensor.allocation.storage
        if number is None:
            number = self.take()
        self._stacks[number] = kernel.stack()
        if tensor.size_bytes == storage.size_bytes and tensor.is_injective():
            self._writers[storage] = _Writers(number, tensor.dtype.size_bytes)
            return
        writers = self._writers.get(storage)
        if writers is None:
            writers = self._writers[storage] = _Writers(0, tensor.dtype.size_bytes)
        writers.add(tensor, number)

    def reads(self, tensor: NkiTensor, kernel: Any, call: str) -> None:
        """Check a read.

        Raises:
            LoopCarriedDependence: an earlier iteration of a running ``affine_range`` wrote some of it.
        """
        if not self._loops or tensor.is_indirect():
            return
        writers = self._writers.get(tensor.allocation.storage)
        if writers is None:
            return
        if writers.each is None and not any(
            loop.first <= number < loop.current for number in writers.numbers() for loop in self._loops
        ):
            return
        found = writers.granules(tensor)
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
