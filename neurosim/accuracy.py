"""Where a kernel loses precision: the errors of its lines and of its outputs, against a float64 shadow of the run."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from neurosim import dtypes
from neurosim.chip import Chip
from neurosim.errors import IllegalOperand
from neurosim.launch.arrays import kind_of, to_numpy
from neurosim.launch.objects import fields_of
from neurosim.plain_numbers import plain
from neurosim.program import Frame, Program
from neurosim.report.places import source_of
from neurosim.run import Result, Simulated, simulate
from neurosim.shadow import Place, Shadow, Tally, place_of, sum_of_squares
from neurosim.spelling import spelt
from neurosim.testing import ulp_distance
from neurosim.versions import NkiVersion

LINES: Final = 12
"""Of how many lines it is said what their error comes to, unless asked otherwise."""


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
        reach: what the error that is born here comes to in the outputs, if nothing else rounds: root mean square,
            relative to that of the output; the largest of all outputs. None where that was not asked for.
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
    reach: float | None = None


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

    def __init__(self, result: Result, shadow: Any, lines: Iterable[LineError]) -> None:
        self.result, self.shadow, self.lines = result, shadow, tuple(lines)
        self.outputs = tuple(_output(*pair) for pair in _pairs(result.outputs, shadow, "output"))

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


def _copied(value: Any, known: dict[int, Any]) -> Any:
    """Return a copy of what a kernel is given, as deep as it can be: of what takes no copy, itself.

    Args:
        value: an argument, or several.
        known: copies by ``id``, to which this adds: what is one thing twice is so in the copy.
    """
    if type(value) in (list, tuple):
        return type(value)(_copied(entry, known) for entry in value)
    if type(value) is dict:
        return {key: _copied(entry, known) for key, entry in value.items()}
    if kind_of(value) == "torch" and id(value) not in known:
        known[id(value)] = value.detach().clone()  # deepcopy takes none that was computed from one with gradients
    try:
        return copy.deepcopy(value, known)
    except Exception:  # modules, locks, generators: whatever their classes raise; no kernel writes to those
        return value


class Examined:
    """A kernel that is examined when it is called; ``[2]`` gives one that runs on two cores."""

    def __init__(self, simulated: Simulated, reach: int) -> None:
        self._simulated, self._reach = simulated, reach

    def __getitem__(self, grid: Any) -> Examined:
        return Examined(self._simulated[grid], self._reach)

    def __call__(self, *args: Any, **kwargs: Any) -> Precision:
        """Run the kernel on arrays."""
        given = _copied((args, kwargs), {}) if self._reach else ((), {})  # a kernel may write its arguments
        shadow = Shadow()
        result = self._simulated.shadowed(shadow)(*args, **kwargs)
        lines = _lines(result.program, shadow)
        born = [place for place, line in lines.items() if line.born]
        for place in sorted(born, reverse=True, key=lambda place: lines[place].born)[: self._reach]:
            lines[place] = replace(lines[place], reach=self._reached(place, shadow, *given))
        return Precision(result, shadow.outputs, lines.values())

    def _reached(self, place: Place, shadow: Shadow, args: Any, kwargs: Any) -> float:
        """Return what the errors that are born at one place come to in the outputs."""
        only = Shadow(place)
        args, kwargs = _copied((args, kwargs), {})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the first run gave them
            self._simulated.shadowed(only)(*args, **kwargs)
        return max((_apart(*pair) for *pair, _ in _pairs(only.outputs, shadow.outputs, "output")), default=0.0)


@spelt
def precision(
    kernel: Callable[..., Any],
    chip: str | Path | Chip | None = None,
    *,
    reach: int = LINES,
    rounding: str | None = None,
    rounding_seed: int | None = None,
    partial_outputs: Collection[str] = (),
    nki_version: str | NkiVersion | None = None,
) -> Examined:
    """Return a function that runs ``kernel`` on arrays beside a float64 shadow, and returns a :class:`Precision`.

    Inputs count as exact. Memory and time are several times those of a plain run, and as much again for each line
    whose error is followed to the outputs.

    Args:
        reach: of how many lines to say what their error comes to in the outputs, of those at which most is born.
        kernel, chip, rounding, rounding_seed, partial_outputs, nki_version: as :func:`neurosim.simulate` takes them.

    Raises:
        IllegalOperand: ``reach`` is no number of lines.
        KernelError: when called, as :func:`neurosim.simulate` does.
    """
    reach = plain(reach)
    if isinstance(reach, bool) or not isinstance(reach, int) or reach < 0:
        raise IllegalOperand(f"precision: reach={reach!r}", advice="pass a number of lines, 0 for none")
    made = simulate(
        kernel,
        chip,
        precise=True,
        rounding=rounding,
        rounding_seed=rounding_seed,
        partial_outputs=partial_outputs,
        nki_version=nki_version,
    )
    return Examined(made, reach)


def _lines(program: Program, shadow: Shadow) -> dict[Place, LineError]:
    """Add up what was counted by call stack, by the innermost kernel line."""
    lines: dict[Place, LineError] = {}
    places: dict[tuple[Frame, str, str], Tally] = {}
    for (stack, instruction, dtype), tally in shadow.tallies.items():
        frames = program.stacks[stack]
        frame = replace(frames[0], offset=0, column=0) if frames else Frame("?", 0, "?")
        key = frame, instruction, str(dtype)
        places[key] = places[key].plus(tally) if key in places else tally
    for (frame, instruction, format_), tally in places.items():
        size = tally.size
        lines[place_of(frame, instruction, format_)] = LineError(
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
    return lines


def _pairs(returned: Any, other: Any, path: str) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[np.float64], str]]:
    """Yield the float arrays of two results of one kernel side by side, each with its place."""
    if isinstance(returned, dict):
        for key, entry in returned.items():
            yield from _pairs(entry, other[key], f"{path}[{key!r}]")
    elif isinstance(returned, (list, tuple)):
        for index, entry in enumerate(returned):
            yield from _pairs(entry, other[index], f"{path}[{index}]")
    elif kind_of(returned) is not None:
        array = to_numpy(returned, path)
        dtype = dtypes.of(array.dtype)
        if array.dtype == np.float64 or (dtype is not None and dtype.is_float):
            yield array, other, path
    else:
        for name, entry in (fields_of(returned) or {}).items():
            yield from _pairs(entry, getattr(other, name), f"{path}.{name}")


def _apart(one: npt.NDArray[Any], other: npt.NDArray[np.float64]) -> float:
    """Return the root mean square of a difference, relative to that of ``other``; of finite values."""
    with np.errstate(invalid="ignore"):
        error = np.where(one == other, 0.0, np.abs(one - other))
    finite = np.isfinite(error) & np.isfinite(other)
    return _relative(sum_of_squares(np.where(finite, error, 0.0)), sum_of_squares(np.where(finite, other, 0.0)))


def _output(array: npt.NDArray[Any], shadow: npt.NDArray[np.float64], path: str) -> OutputError:
    real, distance = array.astype(np.float64), ulp_distance(array, shadow)
    with np.errstate(invalid="ignore"):
        error = np.where(distance == 0.0, 0.0, np.abs(real - shadow))
    finite = np.isfinite(error)
    error = np.where(finite, error, 0.0)
    worst = np.unravel_index(int(np.argmax(error)), error.shape)
    return OutputError(
        path,
        str(dtypes.of(array.dtype)),
        array.shape,
        float(distance.max()),
        float(error.max()),
        tuple(int(place) for place in worst),
        _apart(real, shadow),
        int(np.count_nonzero(~finite)),
    )


def _relative(error: float, size: float) -> float:
    """Return the root of a quotient of sums of squares; infinite where nothing but error is there."""
    if error == 0.0:
        return 0.0
    return float(np.sqrt(error / size)) if size else float("inf")


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {key: (None if isinstance(value, float) and not np.isfinite(value) else value) for key, value in row.items()}
