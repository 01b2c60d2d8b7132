"""``nki`` as kernels import it.

Source: AWS Neuron SDK, ``nki/api/nki/__init__.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from neurosim.devices import folder, load_chip
from neurosim.errors import Unsupported
from neurosim.kernel import running
from neurosim.nki import collectives as collectives
from neurosim.nki._missing import missing
from neurosim.run import simulate as _simulate
from neurosim.schedules import Schedule

try:
    from neurosim.nki import isa as isa
    from neurosim.nki import language as language
except ImportError:
    folder()  # says so when another package named isa came first
    raise

__all__ = ["Kernel", "collectives", "isa", "jit", "language", "simulate"]


class Kernel:
    """A kernel: call it on arrays to run it on the simulator, or from another kernel to inline it.

    Attributes:
        function: the undecorated function.
        platform_target: the chip to run on unless a caller says otherwise, None for the default.
        schedule: pairs of names that :meth:`with_schedule` added.
    """

    def __init__(
        self, function: Callable[..., Any], platform_target: str | None = None, schedule: Schedule = ()
    ) -> None:
        self.function = function
        self.platform_target = platform_target
        self.schedule = schedule
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arrays; within another kernel, on its tensors."""
        if running() is not None:
            return self.function(*args, **kwargs)
        return _simulate(self)(*args, **kwargs).outputs

    def with_schedule(self, edges: Schedule) -> Kernel:
        """Return this kernel with more dependences between named instructions.

        Args:
            edges: pairs (consumer, producer) of instructions' ``name=``; the producer may be a list of names.
                Unknown and ambiguous names raise IllegalOperand when the kernel runs.

        Source: AWS Neuron SDK, ``nki/guides/how-to-scheduling-apis.rst``.
        """
        return Kernel(self.function, self.platform_target, (*self.schedule, *edges))

    def __getitem__(self, grid: Any) -> Kernel:
        if grid in (1, (1,)):
            return self
        raise Unsupported(
            f"{self.__name__}[{grid!r}]: launching on more than one NeuronCore is not built yet",  # type: ignore[attr-defined]
            advice="call the kernel without a grid",
        )

    def __reduce__(self) -> str:
        return self.__qualname__  # type: ignore[attr-defined, no-any-return]  # pickled by reference, as functions are

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
        return _simulate(kernel)(*args, **kwargs).outputs

    return simulated


def __getattr__(name: str) -> Any:
    raise missing("nki", name, frozenset(), __all__)
