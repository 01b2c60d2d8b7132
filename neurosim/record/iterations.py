"""Telling the record where the iterations of ``nl.affine_range`` begin and end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from neurosim.kernel import running
from neurosim.program import Iteration


def iterations(numbers: range) -> Iterator[int]:
    """Yield numbers to a loop; a running kernel's record knows which iteration each of its instructions is in."""
    kernel = running()
    if kernel is None:
        yield from numbers
        return
    program, stack = kernel.program, kernel.stack()
    entered = len(program.iterations)
    for position, number in enumerate(numbers):
        own = len(program.iterations)
        program.iterations.append(Iteration(entered, kernel.core, stack, position, len(program), len(program)))
        try:
            yield number
        finally:  # also where the loop is left
            program.iterations[own] = replace(program.iterations[own], end=len(program))
