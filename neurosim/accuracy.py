"""Where a kernel loses precision: the errors of its lines and of its outputs, against a float64 shadow of the run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from neurosim import dtypes
from neurosim.arrays import kind_of, to_numpy
from neurosim.chip import Chip
from neurosim.objects import fields_of
from neurosim.program import Frame, Program
from neurosim.report.costs import source_of
from neurosim.run import Result, Simulated, simulate
from neurosim.shadow import Shadow, Tally, sum_of_squares
from neurosim.testing import ulp_distance
from neurosim.versions import NkiVersion


@dataclass(frozen=True)
class LineError:
    """The errors of what one instruction on one kernel line wrote in one format.

    Attributes:
        file, line, function, source: the line.
        instruction: mnemonic.
        dtype: format of what it wrote.
        records, elements: how often it ran, and how many numbers it wrote that could be compared.
        born_ulp: the largest error that is born here, in units in the last place of ``dtype``.
        inherited_ulp: the largest error that comes from the operands, likewise.
        born, inherited, both: root mean squares of these errors and of the whole error, relative to the root mean
            square of the values.
        not_finite: numbers that are NaN or infinite where float64 has a number, or the reverse.
        unshadowed: how often it did what has no meaning in float64, so that its results count as exact.
    """

    file: str
    line: int
    function: str
    source: str
    instruction: str
    dtype: str
    records: int
    elements: int
    born_ulp: float
    inherited_ulp: float
    born: float
    inherited: float
    both: float
    not_finite: int
    unshadowed: int


@dataclass(frozen=True)
class OutputError:
    """How far an output is from its shadow.

    Attributes:
        name: place in what the kernel returns.
        dtype, shape: of the output.
        max_ulp: the largest error, in units in the last place of ``dtype``; infinite where one of the two is not
            finite.
        max_error, worst: the largest finite error, and where it is.
        relative: root mean square of the error, relative to that of the shadow.
        not_finite: numbers that are NaN or infinite where the shadow is not, or the reverse.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    max_ulp: float
    max_error: float
    worst: tuple[int, ...]
    relative: float
    not_finite: int


class Precision:
    """What :func:`precision` found.

    Attributes:
        lines: errors by line, in the order in which lines first ran.
        outputs: errors of the outputs.
        result: the run itself.
        shadow: what the kernel returned, with float64 arrays in place of float tensors.
    """

    def __init__(self, result: Result, shadow: Shadow) -> None:
        self.result, self.shadow = result, shadow.outputs
        self.lines = tuple(_lines(result.program, shadow))
        self.outputs = tuple(_outputs(result.outputs, shadow.outputs, "output"))

    def to_dict(self) -> dict[str, Any]:
        """Return everything but arrays, as a dict that ``json.dumps`` takes; infinite numbers are None."""
        return {
            "schema": 1,
            "kernel": self.result.kernel_name,
            "chip": self.result.chip.name,
            "outputs": [_plain(asdict(output)) for output in self.outputs],
            "lines": [_plain(asdict(line)) for line in self.lines],
        }

    def text(self, *, color: bool = False) -> str:
        """Return a screen of text: the outputs, and the lines at which most error is born."""
        from neurosim.report.precision_text import text  # reports load when they are asked for

        return text(self.to_dict(), color=color)

    def plot(self, path: str | Path) -> None:
        """Draw what is born at each line beside what it inherits; the file's ending chooses the format.

        Raises:
            ConfigurationError: matplotlib is missing, or the file cannot be written.
        """
        from neurosim.report.precision_plot import plot

        plot(self.to_dict(), path)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"Precision({self.result.kernel_name} on {self.result.chip.name}, {len(self.lines)} lines)"


class Examined:
    """A kernel that is examined when it is called; ``[2]`` gives one that runs on two cores."""

    def __init__(self, simulated: Simulated) -> None:
        self._simulated = simulated

    def __getitem__(self, grid: Any) -> Examined:
        return Examined(self._simulated[grid])

    def __call__(self, *args: Any, **kwargs: Any) -> Precision:
        """Run the kernel on arrays."""
        shadow = Shadow()
        return Precision(self._simulated.shadowed(shadow)(*args, **kwargs), shadow)


def precision(
    kernel: Callable[..., Any],
    chip: str | Path | Chip | None = None,
    *,
    rounding: str | None = None,
    rounding_seed: int | None = None,
    partial_outputs: Collection[str] = (),
    nki_version: str | NkiVersion | None = None,
) -> Examined:
    """Return a function that runs ``kernel`` on arrays beside a float64 shadow, and returns a :class:`Precision`.

    Inputs count as exact. Memory and time are several times those of a plain run.

    Args:
        kernel, chip, rounding, rounding_seed, partial_outputs, nki_version: as :func:`neurosim.simulate` takes them.

    Raises (when called):
        KernelError: as :func:`neurosim.simulate` does.
    """
    made = simulate(
        kernel,
        chip,
        precise=True,
        rounding=rounding,
        rounding_seed=rounding_seed,
        partial_outputs=partial_outputs,
        nki_version=nki_version,
    )
    return Examined(made)


def _lines(program: Program, shadow: Shadow) -> Iterator[LineError]:
    """Add up what was counted by call stack, by the innermost kernel line."""
    places: dict[tuple[Frame, str, str], Tally] = {}
    for (stack, instruction, dtype), tally in shadow.tallies.items():
        frames = program.stacks[stack]
        frame = replace(frames[0], offset=0, column=0) if frames else Frame("?", 0, "?")
        key = frame, instruction, str(dtype)
        places[key] = places[key].plus(tally) if key in places else tally
    for (frame, instruction, format_), tally in places.items():
        size = tally.size
        yield LineError(
            frame.file,
            frame.line,
            frame.function,
            source_of(frame.path or frame.file, frame.line),
            instruction,
            format_,
            tally.records,
            tally.elements,
            tally.born_ulp,
            tally.inherited_ulp,
            _relative(tally.born, size),
            _relative(tally.inherited, size),
            _relative(tally.both, size),
            tally.not_finite,
            tally.unshadowed,
        )


def _outputs(returned: Any, shadow: Any, path: str) -> Iterator[OutputError]:
    """Compare what the kernel returned with its shadow, array by array."""
    if isinstance(returned, dict):
        for key, entry in returned.items():
            yield from _outputs(entry, shadow[key], f"{path}[{key!r}]")
    elif isinstance(returned, (list, tuple)):
        for index, entry in enumerate(returned):
            yield from _outputs(entry, shadow[index], f"{path}[{index}]")
    elif kind_of(returned) is not None:
        array = to_numpy(returned, path)
        dtype = dtypes.of(array.dtype)
        if dtype is not None and dtype.is_float:
            yield _output(array, shadow, path)
    else:
        for name, entry in (fields_of(returned) or {}).items():
            yield from _outputs(entry, getattr(shadow, name), f"{path}.{name}")


def _output(array: npt.NDArray[Any], shadow: npt.NDArray[np.float64], path: str) -> OutputError:
    real, distance = array.astype(np.float64), ulp_distance(array, shadow)
    with np.errstate(invalid="ignore"):
        error = np.where(distance == 0.0, 0.0, np.abs(real - shadow))
    finite = np.isfinite(error)
    error, exact = np.where(finite, error, 0.0), np.where(finite & np.isfinite(shadow), shadow, 0.0)
    worst = np.unravel_index(int(np.argmax(error)), error.shape)
    return OutputError(
        path,
        str(dtypes.of(array.dtype)),
        array.shape,
        float(distance.max()),
        float(error.max()),
        tuple(int(place) for place in worst),
        _relative(sum_of_squares(error), sum_of_squares(exact)),
        int(np.count_nonzero(~finite)),
    )


def _relative(error: float, size: float) -> float:
    """Return the root of a quotient of sums of squares; infinite where nothing but error is there."""
    if error == 0.0:
        return 0.0
    return float(np.sqrt(error / size)) if size else float("inf")


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {key: (None if isinstance(value, float) and not np.isfinite(value) else value) for key, value in row.items()}
