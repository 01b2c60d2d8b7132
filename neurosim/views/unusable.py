"""Views of no use: patterns that leave their tensor, slices without an element.

NKI's documents do not say when these are refused. Kernels make them and leave them alone: nki-library's
``cross_entropy.py`` slices what a core has no part of.
"""

from __future__ import annotations

from typing import Any, NoReturn

from neurosim.errors import OutOfBounds
from neurosim.view import Array, NkiTensor


class UnusableTensor(NkiTensor):
    """A view that may be made and asked for its shape, since that touches nothing, and each use of which raises.

    Attributes:
        error: what it raises.
    """

    __slots__ = ("error",)

    error: OutOfBounds

    is_placed_by_pattern = False

    def refuse(self) -> NoReturn:
        """Raise the error."""
        raise OutOfBounds(self.error.what, numbers=self.error.numbers, advice=self.error.advice)

    def __getitem__(self, key: Any) -> NkiTensor:
        """Raise the error."""
        self.refuse()

    @property
    def free_elements(self) -> int:
        """Raise the error."""
        self.refuse()

    @property
    def key(self) -> tuple[Any, ...]:
        """What a signature would keep: an instruction asks for it first."""
        self.refuse()

    def array(self) -> Array:
        """Raise the error."""
        self.refuse()

    def over(self, granules: Array, granule: int) -> Array:
        """Raise the error."""
        self.refuse()

    def _with(self, *args: Any, **kwargs: Any) -> NkiTensor:
        self.refuse()


def unusable(
    tensor: NkiTensor, shape: tuple[int, ...], steps: tuple[int, ...], partition_axis: int, error: OutOfBounds
) -> UnusableTensor:
    """Return a view of ``tensor`` each use of which raises ``error``."""
    found = UnusableTensor(tensor.allocation, tensor.dtype, shape, steps, partition_axis, 0, 0)
    found.error = error
    return found
