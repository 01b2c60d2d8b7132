"""What whole processes cost: importing, the first kernel with and without compiled code, memory, bytes of a record."""

from __future__ import annotations

import gc
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

IMPORT: Final = "import neurosim"
SMALL: Final = (
    "import neurosim\n"
    "from neurosim.shell.demo import matmul_inputs\n"
    "from neurosim.shell.loading import load_kernel, packaged_kernel\n"
    "kernel = load_kernel(f\"{packaged_kernel('matmul.py')}:matmul\")\n"
    "neurosim.profile(kernel, chip='trn2', replay=False)(*matmul_inputs(512)).report()\n"
)
"""A first kernel: values, times, report."""


def seconds(program: str, repeats: int) -> float:
    """Return the processor's time of a process that runs a program, Python's own start taken off; the median.

    It finds the bytecode of all modules, as a later process does unless Python is told to keep none.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        _once(program, environment)
        return _median(program, repeats, environment) - _median("pass", repeats, environment)


def _median(program: str, repeats: int, environment: Mapping[str, str]) -> float:
    return statistics.median(_once(program, environment) for _ in range(repeats))


def _once(program: str, environment: Mapping[str, str]) -> float:
    before = _used()
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, capture_output=True)
    return _used() - before


def _used() -> float:
    """Return the seconds that ended children of this process kept a processor busy: what else runs hardly matters."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def first_kernel() -> float:
    """Return the seconds that a first kernel takes where nothing is compiled yet."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NEUROSIM_CACHE_DIR": cache}
        return _once(SMALL, environment) - _once("pass", environment)


def record_bytes(record: Callable[[int], Any], records: int = 18_000) -> float:
    """Return the bytes that one more instruction keeps of memory, of a run of so many: ``record(count)`` does it."""
    record(records // 10)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    result = record(records)
    gc.collect()  # what is to be collected is not kept
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return kept / len(result.program)


def peak_mib() -> float:
    """Return this process's peak memory. Linux's ``ru_maxrss`` remembers that of the process that started this one."""
    status = Path("/proc/self/status")
    if status.exists():
        kib = next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(kib) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
