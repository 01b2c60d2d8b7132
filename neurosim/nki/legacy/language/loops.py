"""Legacy ``nki.language``: loops, and a program's place in the launch grid.

Source: NKI 0.1 documentation of each function.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from neurosim.errors import IllegalOperand
from neurosim.nki.legacy.compiler import Directive
from neurosim.nki.legacy.dependence import LoopIndex
from neurosim.nki.legacy.index import is_int
from neurosim.nki.legacy.state import active, run_of


def affine_range(
    *args: int, directives: Any = None, precise_schedule: bool = False, **hints: Any
) -> Iterator[LoopIndex]:
    """Return the numbers of a loop whose iterations need nothing of each other, reductions excepted.

    ``directives`` are those of ``nki.compiler``. With ``precise_schedule`` iterations run in their order and may need
    each other (*assumed*, documented nowhere: nki-samples' ``pipelined_attention.py``, checked on a chip by its author,
    hands tiles from one to the next). Other hints to the compiler change nothing here.

    Raises (in the loop):
        LoopCarriedDependence: an iteration reads what an earlier one wrote.
    """
    run = active()
    numbers = _numbers(args, "nl.affine_range")
    if run is None:
        return map(LoopIndex, numbers)
    return _directed(run.tracker.affine(numbers, run.flush, in_order=bool(precise_schedule)), directives)


def sequential_range(*args: int, directives: Any = None, **hints: Any) -> Iterator[LoopIndex]:
    """Return the numbers of a loop whose iterations run one after the other; see :func:`affine_range` for hints."""
    run = active()
    numbers = _numbers(args, "nl.sequential_range")
    return _directed(map(LoopIndex, numbers) if run is None else run.tracker.body(numbers), directives)


def static_range(*args: int) -> Iterator[LoopIndex]:
    """Return the numbers of a loop that is unrolled."""
    return map(LoopIndex, _numbers(args, "nl.static_range"))


def _numbers(args: tuple[Any, ...], call: str) -> range:
    if not 1 <= len(args) <= 3 or not all(is_int(bound) for bound in args) or (len(args) == 3 and not args[2]):
        raise IllegalOperand(f"{call}{args}", advice="give one to three ints, known while the kernel is built")
    return range(*args)


def _directed(numbers: Iterator[LoopIndex], directives: Any) -> Iterator[LoopIndex]:
    """Yield the numbers of a loop, with its instructions in order if a directive says so."""
    given = directives if isinstance(directives, (tuple, list)) else () if directives is None else (directives,)
    for directive in given:
        if not isinstance(directive, Directive):
            raise IllegalOperand(f"directives={directive!r}", advice="see nki.compiler.no_reorder and multi_buffer")
    run = active()
    if run is None or not any(directive.keeps_order for directive in given):
        yield from numbers
        return
    run.flush()
    with run.kernel.no_reorder():
        yield from numbers
        run.flush()


def program_id(axis: int) -> int:
    """Return this program's index along an axis of the launch grid; 0 without one.

    Raises:
        IllegalOperand: an axis that the grid does not have.
    """
    kernel = run_of("nl.program_id").kernel
    return kernel.grid.program_id(kernel.program_id, axis)


def num_programs(axes: Any = None) -> int:
    """Return the number of programs along one axis, several axes, or all of the launch grid."""
    return run_of("nl.num_programs").kernel.grid.num_programs(axes)


def program_ndim() -> int:
    """Return the number of axes of the launch grid; 0 without one."""
    return len(run_of("nl.program_ndim").kernel.grid.extents)


class nc(int):
    """A number of physical cores along an axis of a launch grid: ``kernel[nl.nc(2), 4]``, ``kernel[nl.nc(2) * 2]``.

    Programs run one after the other here, in order, so that which core takes which changes nothing.
    """

    def __mul__(self, other: Any) -> Any:
        return spmd_dim(self, other)

    __rmul__ = __mul__


def spmd_dim(*dims: Any) -> int:
    """Return the extent of an axis of a launch grid that is split over cores and programs."""
    return math.prod(int(dim) for dim in dims)
