"""How a program is timed, where that is for the caller to say."""

from __future__ import annotations

from typing import NamedTuple

from neurosim.chip import Chip
from neurosim.errors import ConfigurationError
from neurosim.timing.laws import LaunchOverhead, launch_overhead_ps
from neurosim.timing.schedule import WINDOWS


class TimingOptions(NamedTuple):
    """How a program is timed.

    Attributes:
        launch_overhead: what counts beside the kernel's body, as an item of its own: what ``nki.benchmark`` measures
            more (``True``, ``"benchmark"``), what a profile's total time holds more (``"profile"``), or nothing.
        schedule: ``"program"``, where each engine takes its instructions in program order; ``"reorder"``, where it
            takes whatever may start, first what comes first in the program (``timing/events/loop.py``); or
            ``"compiler"``, where it does so after a compiler's passes (``timing/passes``).
        throttle: whether the tensor engine begins at a lower clock, on chips that do so, and stays there until it is
            busy enough.
    """

    launch_overhead: LaunchOverhead = True
    schedule: str = "compiler"
    throttle: bool = True

    def check(self, chip: Chip) -> TimingOptions:
        """Return these options, or refuse what they cannot be.

        Raises:
            ConfigurationError: in words.
        """
        launch_overhead_ps(self.launch_overhead, chip)
        if not isinstance(self.schedule, str) or self.schedule not in WINDOWS:
            names = " or ".join(repr(name) for name in WINDOWS)
            raise ConfigurationError(f"schedule={self.schedule!r} is unknown", advice=f"pass {names}")
        if not isinstance(self.throttle, bool):
            raise ConfigurationError(f"throttle={self.throttle!r} is not a bool", advice="pass True or False")
        return self
