"""Dependences between named instructions, as ``kernel.with_schedule`` gives them.

Source: AWS Neuron SDK, ``nki/guides/how-to-scheduling-apis.rst``, "Adding dependency edges".
"""

from __future__ import annotations

from collections.abc import Sequence

from neurosim.errors import IllegalOperand, Unsupported
from neurosim.program import Program
from neurosim.spelling import meant

Schedule = Sequence[tuple[str, str | Sequence[str]]]
"""Pairs (consumer, producer or producers) of instruction names."""


def add_edges(program: Program, schedule: Schedule) -> None:
    """Add the schedule's edges to a program; of several cores, to each.

    Raises:
        IllegalOperand: a name that no instruction has, or several.
        Unsupported: a producer that comes after its consumer in the program.
    """
    for core in sorted(set(program.cores)) if schedule else ():
        _add_edges(program, schedule, core)


def _add_edges(program: Program, schedule: Schedule, core: int) -> None:
    places: dict[str, list[int]] = {}
    for index, name in program.names.items():
        if program.cores[index] == core:
            places.setdefault(name, []).append(index)
    for consumer, producers in schedule:
        for producer in [producers] if isinstance(producers, str) else producers:
            later, earlier = _place(program, places, consumer), _place(program, places, producer)
            if earlier >= later:
                raise Unsupported(
                    f"with_schedule: {consumer!r} is to run after {producer!r}, which the kernel issues later",
                    where=tuple(map(str, program.where(earlier))),
                    advice="issue them in the order in which they are to run",
                )
            program.edges.append((later, earlier))


def _place(program: Program, places: dict[str, list[int]], name: str) -> int:
    found = places.get(name, [])
    if len(found) == 1:
        return found[0]
    if found:
        raise IllegalOperand(
            f"with_schedule: {len(found)} instructions have the name {name!r}",
            where=tuple(str(program.where(index)[0]) for index in found[:3]),
            advice="give each a name of its own, e.g. with the loop's index in it",
        )
    raise IllegalOperand(
        f"with_schedule: no instruction has the name {name!r}",
        advice=meant(name, places) or "name it with name= where it is issued",
    )
