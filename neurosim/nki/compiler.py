"""``nki.compiler``: decorators that speak to NKI's compiler, and the rest of it in words.

Source of the names: AWS Neuron SDK, ``release-notes/components/nki.rst`` (NKI of SDK 2.21), and public kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from neurosim.errors import Unsupported

F = TypeVar("F", bound=Callable[..., Any])


class NotHere(Unsupported, AttributeError):
    """A part of NKI's compiler that has no counterpart. An AttributeError too, so that ``hasattr`` works."""


def skip_middle_end_transformations(kernel: F) -> F:
    """Return the kernel as it is: neurosim transforms nothing, and instructions run in the order they are written."""
    return kernel


def enable_stack_allocator(kernel: F) -> F:
    """Return the kernel as it is: space is taken and freed as tiles live, and ``address=`` places a tile."""
    return kernel


def __getattr__(name: str) -> Any:
    raise NotHere(
        f"nki.compiler.{name} is part of NKI's compiler, which neurosim does not have",
        advice="write the kernel with nki.isa and nki.language; place tiles with nl.ndarray(..., address=)",
    )
