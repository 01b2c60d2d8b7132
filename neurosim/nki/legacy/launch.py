"""Kernels of the legacy dialect: decorators, launch grids, and what scripts call on them.

Programs of a grid run one after the other, in order, on one core, also where ``nl.nc`` would spread them over cores.
HBM tensors that a kernel allocates are shared by its programs, as on hardware.

Source: NKI 0.1 documentation, ``nki.jit``, ``nki.benchmark``, ``nki.baremetal``, ``nki.profile``,
``nki.simulate_kernel``; launch grids: ``nki.language.nc``.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, Final

from neurosim.devices import load_chip
from neurosim.engines import Memory
from neurosim.errors import CapacityExceeded, IllegalOperand, Unsupported, no_kernel
from neurosim.kernel import boundary, current, warn
from neurosim.launch.grids import ALONE, Grid
from neurosim.nki.legacy.index import is_int
from neurosim.nki.legacy.joining import joined
from neurosim.nki.legacy.lowering import wrap
from neurosim.nki.legacy.state import Run, active, running
from neurosim.nki.legacy.tensor import Tensor, view_of
from neurosim.run import Result
from neurosim.run import simulate as simulate_machine
from neurosim.view import NkiTensor


class UnwrittenOutputWarning(UserWarning):
    """A kernel returned a tensor that it stored in part; the rest reads as 0."""


class SpillWarning(UserWarning):
    """More tiles are live than fit on the chip; the old compiler spilled some to HBM or reordered loops."""


class _AnyOutput(tuple[str, ...]):
    """Every output, and none by name: the old package returned what a kernel stored in part.

    So does this face, with a warning. What it stored of unwritten tiles stays an error, as nobody named the output.
    """

    __slots__ = ()
    takes_copies = False

    def __contains__(self, path: object) -> bool:
        warn(f"{path} was never fully stored; the rest is 0", UnwrittenOutputWarning)
        return True


class Kernel:
    """A legacy kernel: call it on arrays, or from another kernel on its tensors; ``kernel[4, 2]`` sets a grid.

    Attributes:
        function: the kernel as the machine runs it.
        inner: the undecorated function.
        grid: programs of the launch, all on one core.
        platform_target: the chip that calls run on, None for the default.
        nki_version: of the dialect.
        partial_outputs: outputs that may be stored in part.
    """

    nki_version = "0.1"
    partial_outputs = _AnyOutput()

    def __init__(self, inner: Callable[..., Any], grid: Grid = ALONE, platform_target: str | None = None) -> None:
        self.inner, self.grid, self.platform_target = inner, grid, platform_target
        self.function = _adapted(joined(inner))
        functools.update_wrapper(self, inner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arrays and return arrays; within another kernel, on its tensors."""
        if active() is not None:
            return self.function.__wrapped__(*args, **kwargs)  # type: ignore[attr-defined]
        return self.run(*args, **kwargs).outputs

    def run(self, *args: Any, **kwargs: Any) -> Result:
        """Run on arrays and return the result with its record."""
        return simulate_machine(self)(*args, **kwargs)

    def spills(self, error: CapacityExceeded) -> str:
        """Return a note on tiles that do not fit: the old compiler spilled them, which changes no value."""
        warn(f"{error}", SpillWarning)
        return "exceeded: the old compiler made the tiles fit, which these times leave out"

    def __getitem__(self, grid: Any) -> Kernel:
        """Return this kernel with a launch grid."""
        return Kernel(self.inner, _grid(grid), self.platform_target)

    def __reduce__(self) -> str:
        return self.__qualname__  # type: ignore[attr-defined, no-any-return]  # pickled by reference, as functions are

    def __repr__(self) -> str:
        return f"<legacy nki kernel {getattr(self, '__name__', 'kernel')}>"


def _adapted(inner: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function on the machine's tensors that runs one program."""

    @functools.wraps(inner)
    def adapted(*args: Any, **kwargs: Any) -> Any:
        kernel = current("a legacy kernel")
        kernel.program.notes["Dialect"] = "neuronxcc.nki (NKI 0.1)"
        run = Run(kernel, view_of=view_of)
        with running(run):
            returned = _call(inner, [_legacy(value) for value in args], {key: _legacy(kwargs[key]) for key in kwargs})
            run.flush()
            return _machine(returned)

    return adapted


_ADAPTED: Final = _adapted(lambda: None).__code__


def kernel_behind(function: Any) -> Callable[..., Any] | None:
    """Return the undecorated kernel that a machine's function runs; None where that is none of the legacy dialect."""
    if function.__code__ is not _ADAPTED:
        return None
    held = dict(zip(function.__code__.co_freevars, function.__closure__, strict=True))
    return held["inner"].cell_contents  # type: ignore[no-any-return]


def _grid(value: Any) -> Grid:
    """Return the launch that ``kernel[value]`` asks for: all programs on one core, in order.

    ``kernel[0]`` is no grid (*assumed*: published kernels are launched so).
    """
    if is_int(value) and int(value) == 0:
        return ALONE
    extents = value if isinstance(value, tuple) else (value,)
    if not extents or not all(is_int(extent) and extent > 0 for extent in extents):
        raise IllegalOperand(f"launch grid {value!r}", advice="give positive ints, as in kernel[4, 2]")
    counts = tuple(int(extent) for extent in extents)
    return Grid(counts, (tuple(itertools.product(*(range(count) for count in counts))),))


@boundary
def _call(inner: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    return inner(*args, **kwargs)


def _legacy(value: Any) -> Any:
    """Return arguments with legacy tensors in place of the machine's."""
    if isinstance(value, NkiTensor):
        return wrap(value)
    if isinstance(value, (list, tuple)):
        entries = [_legacy(entry) for entry in value]
        return type(value)(*entries) if hasattr(value, "_fields") else type(value)(entries)
    if isinstance(value, dict):
        return {key: _legacy(entry) for key, entry in value.items()}
    return value


def _machine(value: Any) -> Any:
    """Return what a kernel returns, with the machine's tensors."""
    if isinstance(value, Tensor):
        return value.resolve("return", use="") if value.buffer.is_hbm else _stored(value)
    if isinstance(value, (list, tuple)):
        entries = [_machine(entry) for entry in value]
        return type(value)(*entries) if hasattr(value, "_fields") else type(value)(entries)
    if isinstance(value, dict):
        return {key: _machine(entry) for key, entry in value.items()}
    return value


def _stored(value: Tensor) -> NkiTensor:
    """Return a tile, stored in HBM: the old simulator returned tiles too, though hardware has no such output."""
    from neurosim.nki.legacy.language.memory import ndarray, store

    made = ndarray(value.shape, value.format, buffer=Memory.shared_hbm)
    store(made, value)
    return made.resolve("return", use="")


def kernel_of(function: Any) -> Kernel:
    """Return a function, decorated or not, as a kernel."""
    if isinstance(function, Kernel):
        return function
    if not callable(function):
        raise no_kernel(function)
    return Kernel(function)


def jit(func: Any = None, mode: str = "auto", **options: Any) -> Any:
    """Make a kernel of a function; with or without arguments.

    Args:
        func: the kernel.
        mode: of the old package; here every mode simulates, ``benchmark`` and ``profile`` with their answers.
        options: ``platform_target`` names the chip; others configure the old compiler, and change nothing.
    """
    known = ("auto", "simulation", "trace", "baremetal", "torchxla", "jax", "benchmark", "profile")
    if mode not in known:
        raise Unsupported(f"nki.jit(mode={mode!r})", advice=f"modes are {', '.join(known)}")
    target = options.get("platform_target")
    if target is not None:
        load_chip(target)

    def decorate(inner: Any) -> Any:
        kernel = kernel_of(inner)
        made = Kernel(kernel.inner, kernel.grid, target or kernel.platform_target)
        if mode in ("benchmark", "profile"):
            from neurosim.nki.legacy.measuring import Measured

            return Measured(made)
        return made

    return decorate if func is None else decorate(func)


def trace(func: Any = None, **options: Any) -> Any:
    """Make a kernel of a function, as :func:`jit`."""
    return jit(func, **options)


def simulate_kernel(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a kernel on arrays and return what it returns; arrays that it writes are updated in place."""
    return kernel_of(kernel)(*args, **kwargs)


def baremetal(kernel: Any = None, **options: Any) -> Any:
    """Make a function that runs a kernel on arrays.

    Options name files and arguments of the old compiler; ``save_neff_name`` and ``save_trace_name`` would name
    files that exist only for hardware, and are not written.
    """
    return (lambda inner: kernel_of(inner)) if kernel is None else kernel_of(kernel)
