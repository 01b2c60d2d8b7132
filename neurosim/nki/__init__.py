"""``nki`` as kernels import it.

Source: AWS Neuron SDK, ``nki/api/nki/__init__.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from neurosim.devices import folder, load_chip
from neurosim.errors import IllegalOperand, no_kernel
from neurosim.kernel import running
from neurosim.launch.grids import ALONE, Grid, grid_of, on_cores
from neurosim.launch.schedules import Schedule
from neurosim.nki import collectives as collectives
from neurosim.nki._measuring import check_options, measured
from neurosim.nki._missing import missing
from neurosim.run import Simulated
from neurosim.run import simulate as _simulate
from neurosim.spelling import spelt

try:
    from neurosim.nki import dtype as dtype
    from neurosim.nki import isa as isa
    from neurosim.nki import language as language
    from neurosim.nki import typing as typing
except ImportError:
    folder()  # says so when another package named isa came first
    raise

__all__ = [
    "Kernel",
    "baremetal",
    "benchmark",
    "collectives",
    "isa",
    "jit",
    "language",
    "profile",
    "simulate",
    "simulate_kernel",
]


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

    @property
    def func_name(self) -> str:
        """The function's name, as NKI 0.1 called it."""
        return self.__name__  # type: ignore[attr-defined, no-any-return]

    def __reduce__(self) -> str:
        return self.__qualname__  # type: ignore[attr-defined, no-any-return]  # pickled by reference, as functions are

    def __repr__(self) -> str:
        return f"<nki kernel {self.__name__}>"  # type: ignore[attr-defined]


def jit(fn: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Make a kernel of a function; with or without arguments.

    Args:
        fn: the kernel.
        kwargs: ``platform_target`` names the chip that direct calls run on (NKI 0.3 and later refuse it, and take
            ``NEURON_PLATFORM_TARGET_OVERRIDE`` instead); ``mode`` is ignored, as NKI 0.3 documents: every call here is
            simulated, as with ``NKI_SIMULATOR=1``. Options of NKI's compiler have no effect, which a warning says.

    Raises:
        Unsupported: another option.
    """
    check_options("nki.jit", kwargs, ("platform_target", "mode"))
    mode, target = kwargs.get("mode"), kwargs.get("platform_target")
    if mode is not None and not isinstance(mode, str):
        raise IllegalOperand(f"nki.jit: mode={mode!r} is not a string", advice="leave it out: it means nothing")
    if target is not None:
        load_chip(target)
    return (lambda inner: _kernel(inner, target)) if fn is None else _kernel(fn, target)


def _kernel(function: Any, target: str | None = None) -> Kernel:
    """Return a kernel as it is, on the chip ``target`` if given, or a function as a kernel."""
    if isinstance(function, Kernel):
        return function if target is None else Kernel(function.function, target, function.schedule, function.grid)
    if not callable(function):
        raise no_kernel(function)
    return Kernel(function, target)


def benchmark(kernel: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Make a kernel that keeps the time of its runs: ``k.benchmark_result.nc_latency.get_latency_percentile(50)``.

    Also as a decorator, with or without options; ``k[2]`` is measured on two cores. Times are in microseconds, and
    launch and kernel together, as ``nki.benchmark`` measures them on hardware.

    Args:
        kernel: an ``@nki.jit`` kernel, or a function.
        options: ``warmup`` and ``iters`` change nothing, as each run takes the same time.

    Raises:
        Unsupported: an option that nobody knows.
    """
    if kernel is None:
        return lambda inner: measured("nki.benchmark", _kernel(inner), options)
    return measured("nki.benchmark", _kernel(kernel), options)


def profile(func: Callable[..., Any] | None = None, *, working_directory: Any = None, **options: Any) -> Any:
    """Make a kernel that keeps the time of its runs, as :func:`benchmark`, and writes what happened in them.

    Args:
        func: an ``@nki.jit`` kernel, or a function.
        working_directory: where each run writes ``NAME.summary.json`` and ``NAME.trace.json.gz``, which
            https://ui.perfetto.dev opens; nothing is written without it.
        options: as of :func:`benchmark`.
    """
    if func is None:
        return lambda inner: measured("nki.profile", _kernel(inner), options, working_directory)
    return measured("nki.profile", _kernel(func), options, working_directory)


def baremetal(kernel: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Make a kernel that runs on arrays, as :func:`jit` does; also as a decorator, with or without options.

    Raises:
        Unsupported: an option that nobody knows.
    """
    check_options("nki.baremetal", options)
    return _kernel if kernel is None else _kernel(kernel)


def simulate_kernel(kernel: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a kernel on arrays and return what it returns: NKI 0.1's spelling of ``nki.simulate(kernel)(…)``."""
    return simulate(kernel)(*args, **kwargs)


@spelt
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
