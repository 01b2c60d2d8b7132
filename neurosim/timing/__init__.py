"""Time: a pure function from a program and a chip to a timeline per core."""

from __future__ import annotations

from typing import Final

from neurosim.chip import Chip
from neurosim.errors import ConfigurationError
from neurosim.program import Program
from neurosim.timing.assemble import timelines
from neurosim.timing.laws import LaunchOverhead, launch_overhead_ps
from neurosim.timing.schedule import WINDOWS
from neurosim.timing.schedule import schedule as run
from neurosim.timing.timeline import Account, Op, Stall, Timeline

__all__ = [
    "SCHEDULES",
    "Account",
    "LaunchOverhead",
    "Op",
    "Stall",
    "Timeline",
    "check_schedule",
    "launch_overhead_ps",
    "time",
]

SCHEDULES: Final = tuple(WINDOWS)
"""Names of the orders in which engines may take their instructions; the last one is what is taken by default."""


def check_schedule(schedule: str) -> None:
    """Refuse what is not the name of a schedule.

    Raises:
        ConfigurationError: in words.
    """
    if schedule not in SCHEDULES:
        names = " or ".join(repr(name) for name in SCHEDULES)
        raise ConfigurationError(f"schedule={schedule!r} is unknown", advice=f"pass {names}")


def time(
    program: Program, chip: Chip, launch_overhead: LaunchOverhead = True, schedule: str = "compiler"
) -> dict[int, Timeline]:
    """Return when everything in a program happens on a chip, by core.

    Args:
        program: what was recorded.
        chip: the chip it was recorded for, or a variant of it (``Chip.replace``).
        launch_overhead: what ``launch_ps`` holds, which is in no makespan: what a call costs beside the kernel's body
            where ``nki.benchmark`` measures it (``True``, ``"benchmark"``) or in a profile's total time
            (``"profile"``), or 0 (``False``).
        schedule: ``"program"``, where each engine takes its instructions in program order, or ``"compiler"``, where it
            takes whatever may start, first what comes first in the program: see ``timing/events/loop.py``.

    Raises:
        ConfigurationError: the program was recorded for another generation, or there is no such launch overhead or
            schedule.
        CapacityExceeded: the chip has too little space for the program's live tiles.
    """
    check_schedule(schedule)
    if program.generation != chip.generation:
        raise ConfigurationError(
            f"timing: the program was recorded for {program.chip_name}, and {chip.name} is another generation",
            numbers=(f"generation {program.generation}, not {chip.generation}",),
            advice=f"run the kernel on {chip.name}: rules and results may differ there",
        )
    launch_ps = launch_overhead_ps(launch_overhead, chip)
    return timelines(program, chip, *run(program, chip, schedule), schedule=schedule, launch_ps=launch_ps)
