"""``nki.typing``: names for annotations of kernels' parameters. They mean nothing at run time."""

from __future__ import annotations

from typing import Any


class tensor:
    """A tensor parameter, as in ``def kernel(x: tensor[128, 512])``."""

    def __class_getitem__(cls, shape: Any) -> type[tensor]:
        return cls


class mutable_tensor(tensor):
    """A tensor parameter that the kernel writes in place."""
