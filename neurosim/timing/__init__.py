"""Time: a pure function from a program and a chip to a timeline per core."""

from __future__ import annotations

from typing import Final

from neurosim.chip import Chip
from neurosim.errors import ConfigurationError
from neurosim.program import Program
from neurosim.spelling import spelt
from neurosim.timing.assemble import timelines
from neurosim.timing.laws import LaunchOverhead, launch_overhead_ps
from neurosim.timing.options import TimingOptions
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
    "TimingOptions",
    "launch_overhead_ps",
    "time",
]

SCHEDULES: Final = tuple(WINDOWS)
"""Names of the orders in which engines may take their instructions."""


@spelt
def time(
    program: Program,
    chip: Chip,
    launch_overhead: LaunchOverhead = True,
    schedule: str = "compiler",
    throttle: bool = True,
) -> dict[int, Timeline]:
    """Return when everything in a program happens on a chip, by core.

    Args:
        program: what was recorded.
        chip: the chip it was recorded for, or a variant of it (``Chip.replace``).
        launch_overhead, schedule, throttle: see :class:`TimingOptions`; the launch overhead is in no makespan.

    Raises:
        ConfigurationError: the program was recorded for another generation, there is no such launch overhead or
            schedule, or these are no program and no chip.
        CapacityExceeded: the chip has too little space for the program's live tiles.
    """
    if not isinstance(program, Program) or not isinstance(chip, Chip):
        raise ConfigurationError(
            f"timing: program is a {type(program).__name__} and chip a {type(chip).__name__}",
            advice="pass a result's .program, and its .chip or what neurosim.load_chip returns",
        )
    TimingOptions(launch_overhead, schedule, throttle).check(chip)
    if program.generation != chip.generation:
        raise ConfigurationError(
            f"timing: the program was recorded for {program.chip_name}, and {chip.name} is another generation",
            numbers=(f"generation {program.generation}, not {chip.generation}",),
            advice=f"run the kernel on {chip.name}: rules and results may differ there",
        )
    launch_ps = launch_overhead_ps(launch_overhead, chip)
    scheduled = run(program, chip, schedule, throttle=throttle)
    return timelines(scheduled, chip, schedule=schedule, throttle=throttle, launch_ps=launch_ps)
