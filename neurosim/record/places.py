"""Where in a kernel something belongs: the line that an error comes from, the line that an instruction was called at.

These are entered for every instruction of some dialects, so they are plain classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neurosim.errors import NeurosimError

if TYPE_CHECKING:
    from neurosim.kernel import Kernel


class Located:
    """Gives errors raised inside the kernel line that they come from."""

    __slots__ = ("_kernel",)

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, NeurosimError):
            error.at(self._kernel.where())
            error.__suppress_context__ = True


class At:
    """Takes a call stack for the one inside: of an instruction that is issued later than it was called."""

    __slots__ = ("_before", "_kernel", "_stack")

    def __init__(self, kernel: Kernel, stack: int) -> None:
        self._kernel, self._stack, self._before = kernel, stack, -1

    def __enter__(self) -> None:
        self._before = self._kernel.pin(self._stack)

    def __exit__(self, *error: object) -> None:
        self._kernel.pin(self._before)
