"""Time: a pure function from a program and a chip to a timeline per core."""

from __future__ import annotations

from neurosim.chip import Chip
from neurosim.errors import ConfigurationError
from neurosim.program import Program
from neurosim.timing.assemble import timelines
from neurosim.timing.lower import lower
from neurosim.timing.schedule import Schedule
from neurosim.timing.timeline import Account, Op, Stall, Timeline

__all__ = ["Account", "Op", "Stall", "Timeline", "time"]


def time(program: Program, chip: Chip, launch: bool = True) -> dict[int, Timeline]:
    """Return when everything in a program happens on a chip, by core.

    Args:
        program: what was recorded.
        chip: the chip it was recorded for, or a variant of it (``Chip.replace``).
        launch: whether ``launch_ps`` holds what a call costs beside the kernel's body; it is in no makespan.

    Raises:
        ConfigurationError: the program was recorded for another generation.
        CapacityExceeded: the chip has too little space for the program's live tiles.
    """
    if program.generation != chip.generation:
        raise ConfigurationError(
            f"timing: the program was recorded for {program.chip_name}, and {chip.name} is another generation",
            numbers=(f"generation {program.generation}, not {chip.generation}",),
            advice=f"run the kernel on {chip.name}: rules and results may differ there",
        )
    plan = lower(program, chip)
    launch_ps = round(chip.launch.overhead_ns * 1000) if launch else 0
    return timelines(program, chip, plan, Schedule(plan, chip.dma.engines), launch_ps)
