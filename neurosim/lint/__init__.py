"""What the NKI compiler rejects in kernels that run on a simulator: ``neurosim check FILE[:KERNEL]``.

A simulator runs kernels as Python, and the compiler takes a part of Python. Only restrictions that NKI's documentation
states are findings; each names its section. A file is read, not imported. What is checked are the kernels (functions
under ``nki.jit``, or given to it) and the functions and classes of the same file that they use.
"""

from __future__ import annotations

from neurosim.lint.checks import check
from neurosim.lint.findings import Finding, Restriction

__all__ = ["Finding", "Restriction", "check"]
