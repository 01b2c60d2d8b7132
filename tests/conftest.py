"""Makes ``nki`` importable for every test, and hypothesis repeatable: the same examples on each run and machine.

Tests find kernels by path: ``neurosim.loading.load_kernel(f"{packaged_kernel('matmul.py')}:matmul")``.
"""

from __future__ import annotations

from hypothesis import settings

import neurosim  # noqa: F401 (its import makes nki importable)

settings.register_profile("neurosim", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("neurosim")
