"""The simulator's own speed: a bfloat16 matmul, values and timeline, against NumPy's float32 ``a @ b`` in one run.

    python benchmarks/speed.py [--size 2048] [--repeats 5]

These are wall times of this machine, not simulated times. The budget is a ratio of 8 at size 2048. Peak memory is that
of a process that runs the simulator once and nothing else.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

BUDGET = 8.0
MEMORY_BUDGET_MIB = 400
SLOWING = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
"""Settings that make NumPy's matmul slower, and with it the ratio better than it is."""


def without_slow_blas() -> None:
    """Start again without the variables that slow NumPy down; OpenBLAS reads them when it is loaded."""
    if any(name in os.environ for name in SLOWING):
        environment = {name: value for name, value in os.environ.items() if name not in SLOWING}
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def seconds(action: Callable[[], Any], repeats: int) -> float:
    """Median wall time of ``repeats`` calls, after one that is not counted."""
    action()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def matmul_case(size: int) -> tuple[Any, Any, Any]:
    """The packaged matmul kernel with its operands."""
    from neurosim.demo import matmul_inputs
    from neurosim.loading import load_kernel, packaged_kernel

    return load_kernel(f"{packaged_kernel('matmul.py')}:matmul"), *matmul_inputs(size)


def measure(size: int, repeats: int) -> dict[str, float]:
    """Wall seconds of NumPy and of each part of the simulator."""
    import numpy as np

    import neurosim

    kernel, a_t, b = matmul_case(size)
    left, right = a_t.astype(np.float32).T.copy(), b.astype(np.float32)
    numpy = seconds(lambda: left @ right, 2 * repeats)
    del left, right
    total = seconds(lambda: neurosim.profile(kernel, chip="trn2")(a_t, b).timeline, repeats)
    values = seconds(lambda: neurosim.simulate(kernel, chip="trn2")(a_t, b), repeats)
    return {"numpy": numpy, "total": total, "values": values}


def peak_mib() -> float:
    """Peak resident memory of this process so far, in MiB (Linux counts KiB, macOS bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
