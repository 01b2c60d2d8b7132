"""Two runs side by side: what moved, line by line and cause by cause, and why."""

from neurosim.comparison.changes import Diff
from neurosim.comparison.sides import diff

__all__ = ["Diff", "diff"]
