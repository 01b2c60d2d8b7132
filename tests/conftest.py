"""Makes ``nki`` importable for every test, and hypothesis repeatable: the same examples on each run and machine.

Tests find kernels by path: ``neurosim.shell.loading.load_kernel(f"{packaged_kernel('matmul.py')}:matmul")``.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

import neurosim  # noqa: F401 (its import makes nki importable)

# Nothing here may fail because a machine is busy: no limit of time for an example, nor for drawing ten of them.
settings.register_profile(
    "neurosim",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("neurosim")
