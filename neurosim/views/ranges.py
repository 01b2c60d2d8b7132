"""The numbers of a loop whose iterations are said to be independent: ``nl.affine_range``.

To Python it is a range: ints in order, a length, items, slices. A running kernel is told where each iteration begins
and ends, so that iterations that depend on each other can be found afterwards (:mod:`neurosim.analysis.independence`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import overload


class AffineRange(Sequence[int]):
    """A range that tells who runs through it.

    Attributes:
        numbers: the range.
        start, stop, step: of it.
    """

    __slots__ = ("_each", "numbers")

    def __init__(self, numbers: range, each: Callable[[range], Iterator[int]]) -> None:
        """Make it; ``each`` yields the numbers to a loop."""
        self.numbers = numbers
        self._each = each

    @property
    def start(self) -> int:
        """The first number."""
        return self.numbers.start

    @property
    def stop(self) -> int:
        """The end, exclusive."""
        return self.numbers.stop

    @property
    def step(self) -> int:
        """From number to number."""
        return self.numbers.step

    def __iter__(self) -> Iterator[int]:
        return self._each(self.numbers)

    def __reversed__(self) -> Iterator[int]:
        return self._each(self.numbers[::-1])

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> AffineRange: ...

    def __getitem__(self, index: int | slice) -> int | AffineRange:
        if isinstance(index, slice):
            return AffineRange(self.numbers[index], self._each)
        return self.numbers[index]

    def __contains__(self, value: object) -> bool:
        return value in self.numbers

    def __eq__(self, other: object) -> bool:
        return self.numbers == (other.numbers if isinstance(other, AffineRange) else other)

    def __hash__(self) -> int:
        return hash(self.numbers)

    def __repr__(self) -> str:
        return f"affine_{self.numbers!r}"
