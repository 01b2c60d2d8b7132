"""A NeuronCore on a laptop: runs NKI kernels on any CPU, exactly, and says how long the hardware takes and why.

``import neurosim`` makes ``nki`` importable where the real package is missing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from neurosim import finder as _finder

if TYPE_CHECKING:
    from neurosim.accuracy import precision
    from neurosim.chip import Chip
    from neurosim.comparison import Diff, diff
    from neurosim.devices import load_chip
    from neurosim.launch.specs import spec
    from neurosim.result import Result
    from neurosim.run import profile, simulate
    from neurosim.sweeps import Sweep, sweep

__all__ = ["Chip", "Diff", "Result", "Sweep", "diff", "load_chip", "precision", "profile", "simulate", "spec", "sweep"]
__version__ = "0.1.0"

_HOMES = {
    "Chip": "neurosim.chip",
    "Diff": "neurosim.comparison",
    "Result": "neurosim.result",
    "Sweep": "neurosim.sweeps",
    "diff": "neurosim.comparison",
    "load_chip": "neurosim.devices",
    "precision": "neurosim.accuracy",
    "profile": "neurosim.run",
    "simulate": "neurosim.run",
    "spec": "neurosim.launch.specs",
    "sweep": "neurosim.sweeps",
}

_finder.install()


def __getattr__(name: str) -> Any:
    """Load the public names when they are first used: ``import neurosim`` itself stays quick."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "testing":
        return import_module("neurosim.testing")
    raise AttributeError(f"module 'neurosim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "testing"})
