"""``neuronxcc.nki.typing``: names for annotations, and arguments without data.

``nt.tensor[[128, 512], nl.bfloat16]`` is an argument for ``nki.benchmark`` that has a shape and a dtype only.
"""

from __future__ import annotations

from typing import Any

from neurosim.launch.specs import Spec, spec


class tensor:
    """A tensor parameter, as in ``def kernel(x: tensor[128, 512])``; with a shape and a dtype, an argument."""

    def __class_getitem__(cls, key: Any) -> type[tensor] | Spec:
        if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], (tuple, list)):
            return spec([int(extent) for extent in key[0]], key[1])
        return cls


class mutable_tensor(tensor):
    """A tensor parameter that the kernel writes in place."""
