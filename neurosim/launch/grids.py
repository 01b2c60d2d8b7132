"""How many programs a kernel is launched as, and which core runs which.

Source: AWS Neuron SDK, ``nki/get-started/about/lnc.rst``: ``kernel[2]`` runs the kernel on two physical NeuronCores of
a logical one, as programs 0 and 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import index as as_int
from typing import Any, Final

from neurosim.chip import Chip
from neurosim.errors import IllegalOperand, Unsupported

_MOST_CORES: Final = 1024
"""More than any chip has; a chip's own number is looked at when it is known."""

ProgramId = tuple[int, ...]
"""A program's place in the grid, one number per axis; empty without a grid."""


@dataclass(frozen=True, slots=True)
class NeuronCores:
    """``nl.nc(2)``: a number of cores, as a grid's axis."""

    count: int

    def __post_init__(self) -> None:
        if type(self.count) is not int or self.count < 1:
            raise IllegalOperand(
                f"nl.nc({self.count!r}): pass how many cores, 1 or 2", advice="write nl.nc(2) for two cores"
            )


@dataclass(frozen=True, slots=True)
class Grid:
    """A launch.

    Attributes:
        extents: programs per axis, empty without a grid.
        programs: by core, the programs that it runs one after the other.
    """

    extents: tuple[int, ...] = ()
    programs: tuple[tuple[ProgramId, ...], ...] = (((),),)

    @property
    def cores(self) -> int:
        """How many cores run at once."""
        return len(self.programs)

    def program_id(self, place: ProgramId, axis: int) -> int:
        """Return a program's number along an axis; 0 without a grid.

        Raises:
            IllegalOperand: the grid has no such axis.
        """
        return (place or (0,))[self._axis("nl.program_id", axis)]

    def num_programs(self, axes: Any) -> int:
        """Return how many programs there are along axes, with None along all of them; 1 without a grid.

        Raises:
            IllegalOperand: the grid has no such axis.
        """
        if axes is None:
            return math.prod(self.extents)
        chosen = axes if isinstance(axes, (tuple, list)) else (axes,)
        extents = self.extents or (1,)
        return math.prod(extents[self._axis("nl.num_programs", axis)] for axis in chosen)

    def _axis(self, call: str, axis: Any) -> int:
        count = max(len(self.extents), 1)
        try:
            number = as_int(axis)
        except TypeError:
            number = -1
        if not 0 <= number < count:
            raise IllegalOperand(
                f"{call}: axis {axis!r}", numbers=(f"the launch grid is {self.extents or 'absent'}",), advice="use 0"
            )
        return number


ALONE: Final = Grid()
"""A call without a grid."""


def on_cores(count: int) -> Grid:
    """Return the launch of one program on each of ``count`` cores: ``kernel[count]``."""
    return Grid((count,), tuple(((core,),) for core in range(count)))


def grid_of(value: Any) -> Grid:
    """Return the launch that ``kernel[value]`` asks for: ``2``, ``(2,)`` or ``nl.nc(2)``.

    Raises:
        IllegalOperand: no number of cores.
        Unsupported: several axes.
    """
    if isinstance(value, (tuple, list)) and len(value) == 1:
        value = value[0]
    if isinstance(value, NeuronCores):
        value = value.count
    if isinstance(value, (tuple, list)):
        raise Unsupported(
            f"kernel[{', '.join(map(str, value))}]: a grid of {len(value)} axes",
            advice="NKI launches kernel[1] or kernel[2]: one number, of cores; loop over the rest in the kernel",
        )
    try:
        count = as_int(value)
    except TypeError:
        count = 0
    if not 0 < count <= _MOST_CORES or isinstance(value, bool):
        raise IllegalOperand(f"kernel[{value!r}]: not a number of cores", advice="launch with kernel[1] or kernel[2]")
    return on_cores(count)


def check_grid(grid: Grid, chip: Chip, kernel_name: str) -> None:
    """Refuse more cores than one launch can have.

    Raises:
        IllegalOperand: the chip has fewer.
    """
    if grid.cores > chip.cores:
        where = "trn2 and trn3 have two" if chip.cores == 1 else "a grid of programs on one core is legacy NKI"
        raise IllegalOperand(
            f"{kernel_name}[{grid.cores}]: a launch on {chip.name} has at most {chip.cores} "
            f"core{'s' if chip.cores > 1 else ''}",
            advice=f"launch with {kernel_name}[{chip.cores}] ({where})",
        )
