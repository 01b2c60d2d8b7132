"""A grid: names with the values that each takes, and the points that these make."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from neurosim.chip import Chip
from neurosim.errors import ConfigurationError
from neurosim.launch.arrays import kind_of
from neurosim.launch.specs import Spec
from neurosim.plain_numbers import plain
from neurosim.run import check_kernel, chip_of
from neurosim.timing.options import TimingOptions
from neurosim.versions import nki_version_of

OPTIONS: Final = {"chip": None, "nki_version": None, "cores": None, "schedule": "compiler", "throttle": True}
"""Names that are not the kernel's parameters, with what holds where nobody says. A name with a point in it is a figure
of the chip."""


@dataclass(frozen=True)
class Setting:
    """What one point of a grid means for a run.

    Attributes:
        labels: name and value of the point as JSON takes them.
        arguments: of the kernel, by name.
        chip: with the point's figures in it.
        nki_version, cores: None where the kernel says.
        schedule, throttle: as :func:`neurosim.simulate` takes them.
    """

    labels: dict[str, Any]
    arguments: dict[str, Any]
    chip: Chip
    nki_version: str | None
    cores: int | None
    schedule: str
    throttle: bool


def checked(grid: Mapping[str, Iterable[Any]], kernel: Callable[..., Any]) -> dict[str, list[Any]]:
    """Return a grid with its values as lists.

    Raises:
        ConfigurationError: no grid, a name that is no parameter, option or figure, or one without values.
        IllegalOperand: what is no kernel.
    """
    if not isinstance(grid, Mapping) or not grid:
        raise ConfigurationError(
            "a sweep needs a grid", advice="give names with lists of values, such as tile_n=128,256 or chip=trn1,trn2"
        )
    check_kernel(kernel)
    parameters = inspect.signature(kernel).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    found = {}
    for name, values in grid.items():
        if name in OPTIONS and name in parameters:
            raise ConfigurationError(
                f"the grid's {name} is a parameter of {name_of(kernel)} and an option of the sweep",
                advice="rename the kernel's parameter",
            )
        if not (name in OPTIONS or "." in name or name in parameters or takes_any):
            raise ConfigurationError(
                f"{name_of(kernel)} has no parameter {name!r}",
                numbers=(f"it has {', '.join(parameters) or 'none'}", f"a sweep also has {', '.join(OPTIONS)}"),
                advice="a figure of the chip is written as in `neurosim chips trn2`: dma.engine_gb_per_s",
            )
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise ConfigurationError(f"the grid's {name} is {values!r}", advice="give a list of values")
        found[name] = list(values)
        if not found[name]:
            raise ConfigurationError(
                f"the grid's {name} has no values", advice="give at least one, or leave the parameter out"
            )
    return found


def settings(grid: Mapping[str, Sequence[Any]], kernel: Any, given: Mapping[str, Any]) -> Iterator[Setting]:
    """Yield the points of a grid, the last name's values changing fastest.

    Args:
        grid: as :func:`checked` returned it.
        kernel: whose own chip it is where nobody asks for one.
        given: options of all points, unless the grid says.

    Raises:
        ConfigurationError: an unknown chip, version, figure or schedule, or a number of cores that is none.
    """
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        figures = {name: value for name, value in point.items() if "." in name}
        options = {**OPTIONS, **given, **point}
        chip = chip_of(kernel, options["chip"])
        chip = chip.replace(**figures) if figures else chip
        asked = options["nki_version"]
        timing = TimingOptions(schedule=options["schedule"], throttle=options["throttle"]).check(chip)
        yield Setting(
            {name: label(value) for name, value in point.items()},
            {name: value for name, value in point.items() if name not in OPTIONS and name not in figures},
            chip,
            None if asked is None else str(nki_version_of(asked)),
            _cores(options["cores"]),
            timing.schedule,
            timing.throttle,
        )


def label(value: Any) -> Any:
    """Return a value of a grid as JSON takes it and people read it."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Chip):
        return value.name
    if isinstance(value, Spec) or kind_of(value) is not None:
        return f"{'x'.join(map(str, value.shape))}:{value.dtype}"
    return getattr(value, "__name__", None) or str(value)


def _cores(value: Any) -> int | None:
    count = plain(value)
    if count is None or (isinstance(count, int) and not isinstance(count, bool) and count >= 1):
        return count
    raise ConfigurationError(f"cores={value!r} is no number of cores", advice="give an int from 1")


def name_of(kernel: Any) -> str:
    """Return a kernel's name for messages."""
    return getattr(kernel, "__name__", "the kernel")
