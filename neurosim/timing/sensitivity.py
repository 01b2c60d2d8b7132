"""How a kernel's time moves when a figure of the chip does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from neurosim.chip import Chip, Value
from neurosim.errors import CapacityExceeded, ConfigurationError
from neurosim.plain_numbers import plain
from neurosim.timing.influence import figures_read, moved

STEP: Final = 0.1
"""By which part a figure is moved, up and down."""

_LEAST: Final = 5e-5
"""A change that a hundredth of a percent shows."""


class Sensitivity(NamedTuple):
    """What follows from another value of one figure.

    Attributes:
        figure: its path, such as ``dma.load_gb_per_s``.
        value: as it is.
        unit: its unit.
        standing: documented, measured, fitted or assumed.
        step: by which part it was moved, down and up.
        less, more: the time with the figure smaller and larger, less the time as it is, as a part of that; None where
            the program does not fit on such a chip.
    """

    figure: str
    value: Value
    unit: str
    standing: str
    step: float
    less: float | None
    more: float | None

    @property
    def most(self) -> float:
        """The larger of both changes, without sign."""
        return max(abs(change) for change in (self.less or 0.0, self.more or 0.0))


def sensitivity(time_ps: Callable[[Chip], int], chip: Chip, step: float = STEP) -> list[Sensitivity]:
    """Return how a time moves with each figure that it is computed from, the strongest first.

    Args:
        time_ps: a time in picoseconds as a function of the chip.
        chip: the chip as it is.
        step: by which part each figure is moved, down and up, alone; a whole number moves by one at least.

    Raises:
        ConfigurationError: ``step`` is not between 0 and 1.
    """
    step = plain(step)
    if not isinstance(step, float) or not 0 < step < 1:
        raise ConfigurationError(
            f"sensitivity: step = {step!r}",
            numbers=("0.1 moves each figure by 10 %",),
            advice="give a fraction between 0 and 1",
        )
    before_ps = time_ps(chip)
    rows = []
    for path in figures_read(chip, time_ps):
        figure = chip.figures[path]
        less, more = (_change(time_ps, before_ps, chip, path, each) for each in (-step, step))
        rows.append(Sensitivity(path, figure.value, figure.unit, figure.standing, step, less, more))
    return sorted(rows, key=lambda row: (-row.most, row.figure))


def _change(time_ps: Callable[[Chip], int], before_ps: int, chip: Chip, path: str, relative: float) -> float | None:
    if chip.figures[path].value == 0:
        return 0.0  # a part of nothing
    try:
        return (time_ps(moved(chip, path, relative)) - before_ps) / max(before_ps, 1)
    except (CapacityExceeded, ConfigurationError):
        return None


def as_rows(found: list[Sensitivity]) -> list[dict[str, Any]]:
    """Return them as plain data that ``json.dumps`` takes."""
    return [row._asdict() for row in found]


def table(found: list[Sensitivity]) -> list[tuple[str, ...]]:
    """Return them as rows of text with a heading, without those that change nothing that shows."""
    percent = f"{100 * (found[0].step if found else STEP):g}%"
    heading = ("figure", "value", "unit", "standing", f"-{percent}", f"+{percent}")
    rows = [
        (row.figure, f"{row.value:g}", row.unit, row.standing, _text(row.less), _text(row.more))
        for row in found
        if row.most >= _LEAST or None in (row.less, row.more)
    ]
    return [heading, *rows]


def _text(change: float | None) -> str:
    return "does not fit" if change is None else f"{100 * change:+.2f} %"
