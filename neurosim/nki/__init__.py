"""``nki`` as kernels import it.

Source: AWS Neuron SDK, ``nki/api/nki/__init__.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from neurosim.devices import load_chip
from neurosim.errors import Unsupported
from neurosim.kernel import running
from neurosim.nki import collectives as collectives
from neurosim.nki import isa as isa
from neurosim.nki import language as language
from neurosim.run import simulate as _simulate

__all__ = ["Kernel", "collectives", "isa", "jit", "language", "simulate"]


class Kernel:
    """A kernel: call it on arrays to run it on the simulator, or from another kernel to inline it.

    Attributes:
        function: the undecorated function.
    """

    def __init__(self, function: Callable[..., Any], platform_target: str | None = None) -> None:
        self.function = function
        self._platform_target = platform_target
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arrays; within another kernel, on its tensors."""
        if running() is not None:
            return self.function(*args, **kwargs)
        return _simulate(self.function, self._platform_target)(*args, **kwargs).outputs

    def __getitem__(self, grid: Any) -> Kernel:
        if grid in (1, (1,)):
            return self
        raise Unsupported(
            f"{self.__name__}[{grid!r}]: launching on more than one NeuronCore is not built yet",  # type: ignore[attr-defined]
            advice="call the kernel without a grid",
        )

    def __repr__(self) -> str:
        return f"<nki kernel {self.__name__}>"  # type: ignore[attr-defined]


def jit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Make a kernel of a function; with or without arguments.

    Args:
        function: the kernel.
        options: ``platform_target`` names the chip that direct calls run on.

    Raises:
        Unsupported: any other option.
    """
    unknown = set(options) - {"platform_target"}
    if unknown:
        raise Unsupported(f"nki.jit: option {', '.join(sorted(unknown))} is not built yet", advice="leave it out")
    if "platform_target" in options:
        load_chip(options["platform_target"])
    if function is None:
        return lambda inner: Kernel(inner, **options)
    return Kernel(function, **options)


def simulate(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs ``kernel`` on arrays and returns what it returns, as arrays.

    Inputs that the kernel writes are updated in place. The chip is ``NEURON_PLATFORM_TARGET_OVERRIDE``, else trn2.
    """

    def simulated(*args: Any, **kwargs: Any) -> Any:
        target = getattr(kernel, "_platform_target", None)
        return _simulate(kernel, target)(*args, **kwargs).outputs

    return simulated
