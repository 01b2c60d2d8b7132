"""``nki.benchmark``, ``nki.profile`` and ``nki.baremetal``: kernels that keep how long they took, as scripts read it.

NKI 0.1 has them, and NKI 0.2 and later do not (``release-notes/components/nki.rst``); public scripts of both use them.
A simulated run takes the same time each time, so that warm-up and iterations change nothing and all percentiles are
equal. Options that speak to NKI's compiler or profiler have no effect here, and a warning says so.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from neurosim.datapath.rules import is_number
from neurosim.errors import ConfigurationError, IllegalOperand, KernelError, Unsupported
from neurosim.kernel import running
from neurosim.plain_numbers import plain
from neurosim.run import Result, profile
from neurosim.spelling import meant
from neurosim.writing import write_json

_PS_PER_US: Final = 1_000_000
COMPILER: Final = frozenset(
    [
        "additional_compile_opt",
        "artifacts_dir",
        "benchmark_machine",
        "debug",
        "debug_kernel",
        "device_count",
        "device_lock",
        "experimental_flags",
        "kernel_return",
        "num_execs",
        "overwrite",
        "profile_nth",
        "save_neff_name",
        "save_trace_name",
        "show_compiler_tb",
    ]
)
"""Options that public scripts pass, of NKI's compiler, profiler and device."""
_REPEATS: Final = frozenset(["warmup", "iters"])


class CompilerOptionWarning(UserWarning):
    """An option speaks to NKI's compiler, profiler or device, of which neurosim has none."""


class NotMeasured(KernelError, AttributeError):
    """A time was asked for before the kernel was called."""


def check_options(call: str, options: Mapping[str, Any], own: Collection[str] = ()) -> None:
    """Warn of options without effect here.

    Raises:
        Unsupported: an option that is neither among them nor among the call's ``own``.
    """
    unknown = sorted(set(options) - COMPILER - set(own))
    if unknown:
        raise Unsupported(
            f"{call}: option {', '.join(unknown)} is not built",
            advice=meant(unknown[0], [*own, *sorted(COMPILER)]) or "leave it out",
        )
    silent = sorted(set(options) & COMPILER)
    if silent:
        warnings.warn(
            f"{call}: {', '.join(silent)} without effect: neurosim compiles nothing",
            CompilerOptionWarning,
            stacklevel=4,
        )


@dataclass(frozen=True)
class Latency:
    """How long a run takes on the device.

    Attributes:
        latency_us: launch and kernel, in microseconds, as ``nki.benchmark`` on hardware measures them.
    """

    latency_us: float

    def get_latency_percentile(self, percentile: float) -> float:
        """Return a percentile in microseconds; all are equal.

        Raises:
            IllegalOperand: no number from 0 to 100.
        """
        if not is_number(percentile) or not 0 <= percentile <= 100:
            raise IllegalOperand(f"get_latency_percentile({percentile!r})", advice="give a number from 0 to 100")
        return self.latency_us


@dataclass(frozen=True)
class BenchmarkResult:
    """What a benchmark found: ``nc_latency``, the time of a run on the NeuronCore."""

    nc_latency: Latency


class Measured:
    """A kernel that keeps how long its last run took.

    Attributes:
        kernel: what runs.
        result: the last run, with its report and its traces; None before one.
    """

    def __init__(self, kernel: Any, folder: Path | None = None) -> None:
        self.kernel = kernel
        self.result: Result | None = None
        self._folder = folder
        functools.update_wrapper(self, kernel.function)

    @property
    def benchmark_result(self) -> BenchmarkResult:
        """The times of the last run."""
        if self.result is None:
            raise AttributeError("benchmark_result")  # Python asks __getattr__ then, which says why
        return BenchmarkResult(Latency(self.result.timeline.total_ps / _PS_PER_US))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arrays, keep the time, and return what the kernel returns."""
        if running() is not None:
            return self.kernel(*args, **kwargs)
        self.result = profile(self.kernel)(*args, **kwargs)
        if self._folder is not None:
            self._write(self.result)
        return self.result.outputs

    def _write(self, result: Result) -> None:
        assert self._folder is not None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"working_directory {self._folder}: {error.strerror or error}",
                advice="give a folder that can be written",
            ) from None
        write_json(self._folder / f"{result.kernel_name}.summary.json", result.summary())
        result.perfetto(self._folder / f"{result.kernel_name}.trace.json.gz")

    def __getitem__(self, grid: Any) -> Measured:
        """Return this with a launch grid; times are kept in what is called."""
        return Measured(self.kernel[grid], self._folder)

    def __getattr__(self, name: str) -> Any:
        """Look like the kernel that it measures."""
        if name == "benchmark_result":
            raise NotMeasured(
                f"benchmark_result of {self.kernel!r}: it did not run yet", advice="call it on arrays first"
            )
        if name == "kernel":  # not there yet, e.g. while it is copied
            raise AttributeError(name)
        return getattr(self.kernel, name)

    def __repr__(self) -> str:
        return f"<measured {self.kernel!r}>"


def measured(call: str, kernel: Any, options: Mapping[str, Any], folder: Any = None) -> Measured:
    """Return a kernel that keeps its time; see :func:`check_options`."""
    check_options(call, options, _REPEATS)
    for name in sorted(_REPEATS & set(options)):
        count = plain(options[name])
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise IllegalOperand(f"{call}: {name}={count!r}", advice="give how often, as an int")
    try:
        return Measured(kernel, None if folder is None else Path(folder))
    except TypeError:
        raise IllegalOperand(f"{call}: working_directory={folder!r}", advice="give the path of a folder") from None
