"""Sweeps: one kernel at every point of a grid of arguments, chips and options, in parallel, and resumable."""

from neurosim.sweeps.results import Outcome as Outcome
from neurosim.sweeps.results import Sweep as Sweep
from neurosim.sweeps.sweeping import sweep as sweep
