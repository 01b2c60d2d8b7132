"""Running a kernel: arrays in, arrays out, and everything that was recorded in between."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from neurosim import dtypes
from neurosim.chip import Chip
from neurosim.devices import load_chip
from neurosim.errors import IllegalOperand, NeurosimError, Uninitialized, UnwrittenOutput
from neurosim.kernel import Kernel, boundary, run
from neurosim.lifetimes import check_capacity
from neurosim.memory import array_bytes
from neurosim.program import Program
from neurosim.rules import bounding_box
from neurosim.timing import Timeline, time
from neurosim.view import NkiTensor

Array = npt.NDArray[Any]


class Result:
    """What one run of a kernel gave.

    Attributes:
        outputs: what the kernel returned, with arrays in place of tensors.
        program: the record.
        chip: what it ran on.
        kernel_name: the function's name.
    """

    def __init__(self, outputs: Any, program: Program, chip: Chip, kernel_name: str) -> None:
        self.outputs = outputs
        self.program = program
        self.chip = chip
        self.kernel_name = kernel_name

    @cached_property
    def timelines(self) -> dict[int, Timeline]:
        """Per core, when everything happened. Computed when first asked for."""
        return dict(time(self.program, self.chip))

    @property
    def timeline(self) -> Timeline:
        """The timeline of the one core."""
        (timeline,) = self.timelines.values()
        return timeline

    def summary(self) -> dict[str, Any]:
        """Return the figures of the report as a dict that ``json.dumps`` takes, with units in the names."""
        from neurosim.report.summary import summary  # reports load when they are asked for

        return summary(self.program, self.timeline, self.chip, kernel_name=self.kernel_name)

    def report(self) -> str:
        """Return one screen of text: time, engines, bandwidth, utilisation, the lines that cost most."""
        from neurosim.report.text import report

        return report(self.summary())

    def __repr__(self) -> str:
        return f"Result({self.kernel_name} on {self.chip.name}, {len(self.program)} instructions)"


def simulate(kernel: Callable[..., Any], chip: str | Path | Chip | None = None) -> Callable[..., Result]:
    """Return a function that runs ``kernel`` on arrays and returns a :class:`Result`.

    Args:
        kernel: an ``@nki.jit`` kernel, or a plain function.
        chip: a name (``"trn2"``), a device file, or a :class:`Chip`; by default ``NEURON_PLATFORM_TARGET_OVERRIDE``,
            else trn2.

    Raises (when called):
        KernelError: the kernel is wrong; ``Unsupported`` and ``UnknownBehavior`` where neurosim stops short.
    """
    function = getattr(kernel, "function", kernel)
    target = load_chip(chip)

    def simulated(*args: Any, **kwargs: Any) -> Result:
        return _run(function, target, args, kwargs)

    simulated.__name__ = getattr(function, "__name__", "kernel")
    simulated.__doc__ = function.__doc__
    return simulated


def profile(kernel: Callable[..., Any], chip: str | Path | Chip | None = None) -> Callable[..., Result]:
    """Like :func:`simulate`, and times the program at once."""
    simulated = simulate(kernel, chip)

    def profiled(*args: Any, **kwargs: Any) -> Result:
        result = simulated(*args, **kwargs)
        _ = result.timelines
        return result

    profiled.__name__ = simulated.__name__
    profiled.__doc__ = simulated.__doc__
    return profiled


class _Arguments:
    """Turns arrays into tensors, and remembers which array each came from."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._tensors: dict[int, tuple[Array, NkiTensor]] = {}

    def adopt(self, value: Any, name: str) -> Any:
        """Return ``value`` with a tensor in place of each array in it."""
        if isinstance(value, np.ndarray):
            return self._tensor(value, name)
        if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            return type(value)(self.adopt(entry, f"{name}[{index}]") for index, entry in enumerate(value))
        if isinstance(value, dict):
            return {key: self.adopt(entry, f"{name}[{key!r}]") for key, entry in value.items()}
        return value

    def _tensor(self, array: Array, name: str) -> NkiTensor:
        if id(array) in self._tensors:
            return self._tensors[id(array)][1]
        dtype = dtypes.of(array.dtype)
        if dtype is None:
            raise IllegalOperand(
                f"argument {name} is {array.dtype}, which is not an NKI dtype",
                numbers=("known: " + ", ".join(dtypes.ALL),),
                advice="convert it first, e.g. with .astype(np.float32)",
            )
        if array.size == 0 or array.ndim == 0:
            kind = "has no elements" if array.size == 0 else "has no axes"
            raise IllegalOperand(
                f"argument {name} {list(array.shape)} {dtype} {kind}",
                advice="a tensor needs at least one element and axis",
            )
        buffer = array_bytes(np.ascontiguousarray(array))
        tensor = self._kernel.adopt(array.shape, dtype, buffer, name)
        self._tensors[id(array)] = (array, tensor)
        return tensor

    def write_back(self) -> None:
        """Update the caller's arrays that the kernel wrote in place."""
        for array, tensor in self._tensors.values():
            if not tensor.allocation.storage.borrowed and array.flags.writeable:
                array[...] = tensor.array()


def _run(function: Callable[..., Any], chip: Chip, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Result:
    name = getattr(function, "__name__", "kernel")
    program = Program(chip.name, chip.generation)
    kernel = Kernel(chip, program)
    arguments = _Arguments(kernel)
    bound = inspect.signature(function).bind(*args, **kwargs)
    with run(kernel):
        for parameter, value in bound.arguments.items():
            bound.arguments[parameter] = arguments.adopt(value, parameter)
        try:
            returned = _call(function, bound)
        except NeurosimError as error:  # views know nothing of the kernel that makes them
            raise error.at(kernel.where_raised(error)) from error.__cause__
        check_capacity(program, chip.name, chip.sbuf.partition_bytes, chip.psum.banks * chip.psum.bank_bytes)
        outputs = _outputs(returned, name)
    arguments.write_back()
    return Result(outputs, program, chip, name)


@boundary
def _call(function: Callable[..., Any], bound: inspect.BoundArguments) -> Any:
    return function(*bound.args, **bound.kwargs)


def _outputs(returned: Any, name: str) -> Any:
    """Return arrays in place of tensors; every byte of them must have been written."""
    problems: list[Uninitialized | UnwrittenOutput] = []
    outputs = _collect(returned, name, problems)
    if problems:
        if isinstance(problems[0], UnwrittenOutput):
            problems[0].outputs = outputs
        raise problems[0]
    return outputs


def _collect(value: Any, what: str, problems: list[Any]) -> Any:
    if isinstance(value, NkiTensor):
        if not value.buffer.is_hbm:
            raise IllegalOperand(
                f"{what} returns {value.describe()}; an output must be in HBM",
                where=value.allocation.where,
                advice="allocate it with buffer=nl.shared_hbm and store the tile with nisa.dma_copy",
            )
        problem = _unwritten(value, what)
        if problem is not None:
            problems.append(problem)
        array = value.array()
        return array.copy() if value.allocation.storage.borrowed else array
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_collect(entry, what, problems) for entry in value)
    if isinstance(value, dict):
        return {key: _collect(entry, what, problems) for key, entry in value.items()}
    return value


def _unwritten(tensor: NkiTensor, what: str) -> Uninitialized | UnwrittenOutput | None:
    storage = tensor.allocation.storage
    mask = storage.unwritten(tensor)
    if mask is None:
        return None
    origin = storage.origin
    if origin is not None:
        from neurosim.instruction import uninitialized

        error = uninitialized(f"{what}: output {tensor.describe()}", bounding_box(mask), origin)
        error.at(origin.where)
        return error
    return UnwrittenOutput(
        f"{what}: output {tensor.describe()} was never fully stored",
        where=tensor.allocation.where,
        numbers=(f"never stored: {bounding_box(mask)}",),
        advice="store every tile of it with nisa.dma_copy; the last tile of each axis may be smaller",
    )
