"""``nki`` as kernels import it.

Source: AWS Neuron SDK, ``nki/api/nki/__init__.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from neurosim.devices import folder, load_chip
from neurosim.errors import IllegalOperand, Unsupported
from neurosim.grids import ALONE, Grid, grid_of, on_cores
from neurosim.kernel import running
from neurosim.nki import collectives as collectives
from neurosim.nki._missing import missing
from neurosim.run import Simulated
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
        grid: what it is launched as.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        platform_target: str | None = None,
        schedule: Schedule = (),
        grid: Grid = ALONE,
    ) -> None:
        self.function = function
        self.platform_target = platform_target
        self.schedule = schedule
        self.grid = grid
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arrays; within another kernel, on its tensors and as its program of the grid."""
        around = running()
        if around is not None:
            if self.grid not in (ALONE, on_cores(1)) and self.grid.extents != around.grid.extents:
                raise IllegalOperand(
                    f"{self.__name__}{list(self.grid.extents)} within a kernel that was launched as "  # type: ignore[attr-defined]
                    f"{list(around.grid.extents) or 'one program'}",
                    advice="launch the outer kernel on these cores, and call the inner one without a grid",
                )
            return self.function(*args, **kwargs)
        return _simulate(self)(*args, **kwargs).outputs

    def with_schedule(self, edges: Schedule) -> Kernel:
        """Return this kernel with more dependences between named instructions.

        Args:
            edges: pairs (consumer, producer) of instructions' ``name=``; the producer may be a list of names.
                Unknown and ambiguous names raise IllegalOperand when the kernel runs.

        Source: AWS Neuron SDK, ``nki/guides/how-to-scheduling-apis.rst``.
        """
        return Kernel(self.function, self.platform_target, (*self.schedule, *edges), self.grid)

    def __getitem__(self, grid: Any) -> Kernel:
        """Return this kernel for a number of cores: ``kernel[2]``, ``kernel[nl.nc(2)]``.

        Source: AWS Neuron SDK, ``nki/get-started/about/lnc.rst``.
        """
        return Kernel(self.function, self.platform_target, self.schedule, grid_of(grid))

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
    Both ``simulate(kernel[2])(…)`` and ``simulate(kernel)[2](…)`` run on two cores.
    """
    return _Outputs(_simulate(kernel))


class _Outputs:
    """What :func:`simulate` returns: a run of which the outputs count."""

    def __init__(self, simulated: Simulated) -> None:
        self._simulated = simulated
        self.__name__, self.__doc__ = simulated.__name__, simulated.__doc__

    def __getitem__(self, grid: Any) -> _Outputs:
        return _Outputs(self._simulated[grid])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._simulated(*args, **kwargs).outputs


def __getattr__(name: str) -> Any:
    raise missing("nki", name, frozenset(), __all__)
