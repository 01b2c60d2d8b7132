"""What can be asked of a run: where its time went, what limits it, what it would take if something were otherwise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from neurosim.chip import Chip
from neurosim.errors import ConfigurationError
from neurosim.program import Program
from neurosim.timing import Timeline, TimingOptions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from neurosim.advice import Advice
    from neurosim.timing.causes import Causes
    from neurosim.timing.critical import CriticalPath
    from neurosim.timing.sensitivity import Sensitivity
    from neurosim.timing.what_if import WhatIf


class Questions(ABC):
    """A run with a record, from which all answers are computed when they are asked for.

    Attributes:
        program: the record.
        chip: what it ran on.
        kernel_name: the function's name.
        timing: how it is timed.
    """

    program: Program
    chip: Chip
    kernel_name: str
    timing: TimingOptions

    @property
    @abstractmethod
    def timelines(self) -> dict[int, Timeline]:
        """Per core, when everything happened."""

    @property
    def timeline(self) -> Timeline:
        """The timeline of the core that ends last, which is the kernel's; of equal ones, of the first."""
        return max(self.timelines.values(), key=lambda timeline: timeline.makespan_ps)

    def causes(self, core: int | None = None) -> Causes:
        """Return where each engine's time went, by cause; see :mod:`neurosim.timing.causes`.

        Args:
            core: of this core; by default of the one that ends last.

        Raises:
            ConfigurationError: the kernel ran on no such core.
        """
        from neurosim.timing.causes import causes

        return causes(self.program, self._timeline_of(core))

    def _timeline_of(self, core: int | None) -> Timeline:
        """Return a core's timeline, by default that of the core that ends last."""
        if core is None:
            return self.timeline
        if not isinstance(core, Hashable) or core not in self.timelines:
            raise ConfigurationError(
                f"{self.kernel_name} ran on cores {', '.join(map(str, self.timelines))} only",
                advice="pass one of these, or leave core out for the whole kernel",
            )
        return self.timelines[core]

    def critical_path(self) -> CriticalPath:
        """Return the chain of instructions, each of which waited for the one before, that takes all of the time."""
        from neurosim.timing.critical import critical_path

        return critical_path(self.program, self.timelines)

    def slack_ps(self) -> NDArray[np.int64]:
        """Return, by record, how much later it could be before the kernel ended later, in picoseconds.

        All else stays in the order that it had: see :mod:`neurosim.timing.slack`. An instruction with slack is not on
        the critical path.
        """
        from neurosim.timing.slack import slack_ps

        return slack_ps(self.program, self.chip, self.timing)

    def advice(self) -> list[Advice]:
        """Return what the kernel could do better, each with the figure that triggers it and what it gains at most."""
        from neurosim.advice import advice

        return advice(self.program, self.timelines, self.chip, self.timing)

    def what_if(self, **changes: Any) -> WhatIf:
        """Return what the kernel would take if something were otherwise: the record is timed again.

        Args:
            changes: ``dma_bandwidth=2``, ``activation_latency=0``, ``throttle=False``, ``matmul="bfloat16"``,
                ``without="matmul.py:61"`` and more, all at once: see :func:`neurosim.timing.what_if.what_if`.

        Raises:
            ConfigurationError: a name is unknown, a value makes no sense, or nothing is changed.
        """
        from neurosim.timing.what_if import what_if

        return what_if(self.program, self.chip, self.timing, changes, self.timeline.makespan_ps)

    def what_ifs(self) -> list[WhatIf]:
        """Return what-ifs that are worth asking of any kernel, by what they gain; those that gain nothing left out.

        They include that the instructions of one line took no time, for each of the lines with most of the critical
        path.
        """
        from neurosim.report.limits import path_lines
        from neurosim.timing.what_if.ready import LINES, what_ifs

        lines = [f"{line['file']}:{line['line']}" for line in path_lines(self.program, self.timelines) if line["line"]]
        places = list(dict.fromkeys(lines))[:LINES]
        return what_ifs(self.program, self.chip, self.timing, self.timeline.makespan_ps, places)

    def limits(self) -> dict[str, Any]:
        """Return what-ifs and advice as a summary has them, plain data under ``what_ifs`` and ``advice``."""
        from neurosim.report.limits import advice_rows, what_if_rows

        found = advice_rows(self.advice(), self.timeline.makespan_ps)
        return {"what_ifs": what_if_rows(self.what_ifs()), "advice": found}

    def sensitivity(self, step: float = 0.1) -> list[Sensitivity]:
        """Return how the makespan moves when each figure of the chip moves by a part of it, the strongest first.

        Args:
            step: 0.1 moves each figure by 10 %, down and up, and times the program again each time.

        Raises:
            ConfigurationError: ``step`` is not between 0 and 1.
        """
        from neurosim.timing.schedule import makespan_ps as makespan
        from neurosim.timing.sensitivity import sensitivity

        def time_ps(chip: Chip) -> int:
            return makespan(self.program, chip, self.timing.schedule, throttle=self.timing.throttle)

        return sensitivity(time_ps, self.chip, step)
