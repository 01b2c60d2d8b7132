"""``nki.benchmark`` and ``nki.profile``: times from the simulated timeline, in the shapes that scripts read.

A simulated run takes the same time every time, so that all percentiles are equal, and warm-up and iterations change
nothing. Times are in microseconds, as in the old package, and those of launch and kernel together, as it measures them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from neurosim.errors import IllegalOperand
from neurosim.launch.specs import Spec
from neurosim.nki.legacy.launch import Kernel, kernel_of
from neurosim.run import simulate

_PS_PER_US: Final = 1_000_000


@dataclass(frozen=True)
class Latency:
    """The time of a run on one core.

    Attributes:
        microseconds: simulated.
    """

    microseconds: float

    def get_latency_percentile(self, percentile: float) -> float:
        """Return a percentile of the latency, in microseconds; all are equal.

        Raises:
            IllegalOperand: no percentile.
        """
        if not 0 <= percentile <= 100:
            raise IllegalOperand(f"get_latency_percentile({percentile})", advice="give 0 to 100")
        return self.microseconds


@dataclass(frozen=True)
class BenchmarkResult:
    """What a benchmark found.

    Attributes:
        nc_latency: the time of a run on the core.
    """

    nc_latency: Latency


class Measured:
    """A kernel that also keeps how long its last run took.

    Attributes:
        benchmark_result: of the last call; None before one.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.benchmark_result: BenchmarkResult | None = None
        functools.update_wrapper(self, kernel.inner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arrays, or on shapes alone; keep the time, and return what the kernel returns."""
        has_data = not any(isinstance(value, Spec) for value in (*args, *kwargs.values()))
        result = simulate(self.kernel, values=has_data)(*args, **kwargs)
        self.benchmark_result = BenchmarkResult(Latency(result.timeline.total_ps / _PS_PER_US))
        return result.outputs

    def __getitem__(self, grid: Any) -> Measured:
        """Return this with a launch grid."""
        return Measured(self.kernel[grid])


def _decorator(call: str, function: Any, options: dict[str, Any], known: frozenset[str]) -> Any:
    unknown = set(options) - known
    if unknown:
        raise IllegalOperand(
            f"{call}: no option {', '.join(sorted(unknown))}", advice=f"known: {', '.join(sorted(known))}"
        )
    decorate: Callable[[Any], Measured] = lambda inner: Measured(kernel_of(inner))  # noqa: E731
    return decorate if function is None else decorate(function)


_COMMON: Final = frozenset(
    [
        "warmup",
        "iters",
        "save_neff_name",
        "save_trace_name",
        "additional_compile_opt",
        "benchmark_machine",
        "debug_kernel",
        "device_count",
        "device_lock",
        "num_execs",
        "working_directory",
        "artifacts_dir",
        "profile_nth",
        "overwrite",
        "platform_target",
    ]
)


def benchmark(kernel: Any = None, **options: Any) -> Any:
    """Make a kernel that keeps its time in ``benchmark_result``; options of the old package change nothing here."""
    return _decorator("nki.benchmark", kernel, options, _COMMON)


def profile(kernel: Any = None, **options: Any) -> Any:
    """Make a kernel that keeps its time, as :func:`benchmark`; for a whole report use ``neurosim.profile``."""
    return _decorator("nki.profile", kernel, options, _COMMON)
