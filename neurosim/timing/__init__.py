"""Time: a pure function from a program and a chip to a timeline per core."""

from __future__ import annotations

from neurosim.chip import Chip
from neurosim.errors import ConfigurationError
from neurosim.program import Program
from neurosim.timing.assemble import timelines
from neurosim.timing.laws import LaunchOverhead, launch_overhead_ps
from neurosim.timing.lower import lower
from neurosim.timing.schedule import Schedule
from neurosim.timing.timeline import Account, Op, Stall, Timeline

__all__ = ["Account", "LaunchOverhead", "Op", "Stall", "Timeline", "launch_overhead_ps", "time"]


def time(program: Program, chip: Chip, launch_overhead: LaunchOverhead = True) -> dict[int, Timeline]:
    """Return when everything in a program happens on a chip, by core.

    Args:
        program: what was recorded.
        chip: the chip it was recorded for, or a variant of it (``Chip.replace``).
        launch_overhead: what ``launch_ps`` holds, which is in no makespan: what a call costs beside the kernel's body
            where ``nki.benchmark`` measures it (``True``, ``"benchmark"``) or in a profile's total time
            (``"profile"``), or 0 (``False``).

    Raises:
        ConfigurationError: the program was recorded for another generation, or there is no such launch overhead.
        CapacityExceeded: the chip has too little space for the program's live tiles.
    """
    if program.generation != chip.generation:
        raise ConfigurationError(
            f"timing: the program was recorded for {program.chip_name}, and {chip.name} is another generation",
            numbers=(f"generation {program.generation}, not {chip.generation}",),
            advice=f"run the kernel on {chip.name}: rules and results may differ there",
        )
    plan = lower(program, chip)
    return timelines(program, chip, plan, Schedule(plan, chip.dma.engines), launch_overhead_ps(launch_overhead, chip))
