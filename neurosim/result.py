"""What one run of a kernel gave: outputs, record and time, and every report of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neurosim.chip import Chip
from neurosim.errors import ConfigurationError
from neurosim.plain_numbers import plain
from neurosim.program import Program
from neurosim.questions import Questions
from neurosim.replay import Recording
from neurosim.spelling import spelt
from neurosim.timing import Timeline, TimingOptions, time

if TYPE_CHECKING:
    from numpy.typing import NDArray


PAGE_RECORDS: Final = 20_000
"""Instructions up to which a page has what-ifs and advice without being asked: timing these takes a few seconds."""


@spelt
class Result(Questions):
    """What one run of a kernel gave.

    Attributes:
        outputs: what the kernel returned, with arrays in place of tensors.
        program: the record.
        chip: what it ran on.
        kernel_name: the function's name.
        timing: how it is timed; see :func:`simulate`.
        replayed: whether the record is that of an earlier run, executed again without the kernel's Python.
        unreplayable: why a later run on such arguments cannot replay this one; empty if it can.
    """

    def __init__(
        self,
        outputs: Any,
        program: Program,
        chip: Chip,
        kernel_name: str,
        timing: TimingOptions | None = None,
        recording: Recording | None = None,
        *,
        replayed: bool = False,
        unreplayable: str = "",
    ) -> None:
        self.outputs = outputs
        self.program = program
        self.chip = chip
        self.kernel_name = kernel_name
        self.timing = timing or TimingOptions()
        self.replayed = replayed
        self.unreplayable = unreplayable
        self._recording = recording

    @cached_property
    def timelines(self) -> dict[int, Timeline]:
        """Per core, when everything happened. Computed when first asked for; once for all replays of a program."""
        if self._recording is not None and self.replayed:
            return self._recording.timelines(self.timing, self.program)
        return dict(time(self.program, self.chip, **self.timing._asdict()))

    def time_at_once(self) -> None:
        """Compute the timelines, and keep them for replays: only while nobody can have changed the program."""
        timelines = self.timelines
        if self._recording is not None and not self.replayed:
            self._recording.keep_timelines(self.timing, self.program, timelines)

    def summary(self, core: int | None = None) -> dict[str, Any]:
        """Return the figures of the report as a dict that ``json.dumps`` takes, with units in the names.

        Args:
            core: of this core alone; by default of the whole kernel.

        Raises:
            ConfigurationError: the kernel ran on no such core.
        """
        from neurosim.report.summary import kernel_summary, summary  # reports load when they are asked for

        if core is None:
            return kernel_summary(self.program, self.timelines, self.chip, kernel_name=self.kernel_name)
        return summary(self.program, self._timeline_of(core), self.chip, kernel_name=self.kernel_name)

    def report(self, core: int | None = None) -> str:
        """Return one screen of text: time, engines, bandwidth, utilisation, the lines that cost most.

        Args:
            core: of this core alone; by default of the whole kernel.
        """
        from neurosim.report.text import report

        return report(self.summary(core))

    def perfetto(
        self,
        path: str | Path,
        *,
        first_ps: int = 0,
        last_ps: int | None = None,
        engines: Sequence[str] = (),
        lines: Sequence[str] = (),
    ) -> None:
        """Write a trace that https://ui.perfetto.dev opens; compressed where the name ends in ``.gz``.

        Args:
            path: the file.
            first_ps, last_ps: only what overlaps this time.
            engines: only these tracks: names of ``Timeline.units``, or ``dma`` for all DMA engines and queues.
            lines: only what these kernel lines caused: ``matmul.py:61``, or ``matmul.py`` for a whole file.

        Raises:
            ConfigurationError: the file cannot be written, or an option names what is not there.
        """
        from neurosim.report.perfetto import TraceOptions, write_trace

        for name, value in (("engines", engines), ("lines", lines)):
            if not isinstance(value, (list, tuple)) or not all(isinstance(entry, str) for entry in value):
                raise ConfigurationError(
                    f"trace: {name}={value!r} is no list of names", advice="pass a list of strings"
                )
        options = TraceOptions(plain(first_ps), plain(last_ps), tuple(engines), tuple(lines))
        write_trace(path, self.program, self.timelines, self.chip, kernel_name=self.kernel_name, options=options)

    def operations(self) -> dict[str, NDArray[Any]]:
        """Return every operation as columns of NumPy arrays by name, as ``pandas.DataFrame`` takes them.

        :mod:`neurosim.report.operations` says what each column holds.
        """
        from neurosim.report.operations import Operations

        return Operations(self.program, self.timelines).columns()

    def csv(self, path: str | Path) -> None:
        """Write :meth:`operations` as CSV; compressed where the name ends in ``.gz``.

        Raises:
            ConfigurationError: the file cannot be written.
        """
        from neurosim.report.operations import Operations, write_csv

        write_csv(path, Operations(self.program, self.timelines))

    def parquet(self, path: str | Path) -> None:
        """Write :meth:`operations` as Parquet, with kernel, chip and options as metadata (the extra ``parquet``).

        Raises:
            ConfigurationError: pyarrow is not installed, or the file cannot be written.
        """
        from neurosim.report.operations import Operations, write_parquet

        options = {name: str(value) for name, value in self.timing._asdict().items()}
        about = {"kernel": self.kernel_name, "chip": self.chip.name, "nki_version": str(self.program.nki_version)}
        write_parquet(path, Operations(self.program, self.timelines), about | options)

    def html(self, path: str | Path, *, limits: bool | None = None) -> None:
        """Write a page: timelines to zoom into, where time went, SBUF and PSUM over time, costs beside the source.

        One file that needs no network; made with Bokeh (the extra ``report``).

        Args:
            path: the file.
            limits: with what-ifs and advice, which time the program again some 25 times; by default, where it has
                ``PAGE_RECORDS`` instructions or fewer.

        Raises:
            ConfigurationError: Bokeh is not installed, or the file cannot be written.
        """
        from neurosim.report.page import write_page

        if not (limits is None or isinstance(limits, bool)):
            raise ConfigurationError(f"html: limits={limits!r} is not a bool", advice="pass True, False or None")
        summary = self.summary()
        if limits or (limits is None and len(self.program) <= PAGE_RECORDS):
            summary |= self.limits()
        write_page(path, self.program, self.timelines, self.chip, summary)

    def plot_timeline(
        self,
        path: str | Path | None = None,
        *,
        first_ps: int = 0,
        last_ps: int | None = None,
        core: int | None = None,
    ) -> Any:
        """Draw when each engine worked, and return the figure; see :meth:`neurosim.timing.Timeline.plot`.

        Args:
            path: the .png, .svg or .pdf file to write; None to only return the figure.
            first_ps, last_ps: the time to show; by default all of it.
            core: of this core; by default of the one that ends last.

        Raises:
            ConfigurationError: matplotlib is not installed, no such time or core, or the file cannot be written.
        """
        return self._timeline_of(core).plot(path, first_ps=first_ps, last_ps=last_ps)

    def plot_engines(self, path: str | Path | None = None) -> Any:
        """Draw where each engine's time went, by cause, and return the figure.

        Args:
            path: the .png, .svg or .pdf file to write; None to only return the figure.

        Raises:
            ConfigurationError: matplotlib is not installed, or the file cannot be written.
        """
        from neurosim.report.plots import plot_engines

        return plot_engines(self.summary(), path)

    def plot_roofline(self, path: str | Path | None = None) -> Any:
        """Draw the roof that HBM and the tensor engine leave, and the kernel under it; return the figure.

        Args:
            path: the .png, .svg or .pdf file to write; None to only return the figure.

        Raises:
            ConfigurationError: matplotlib is not installed, or the file cannot be written.
        """
        from neurosim.report.plots import plot_roofline

        return plot_roofline(self.summary(), path)

    def plot_memory(self, path: str | Path | None = None, *, core: int | None = None) -> Any:
        """Draw how much of SBUF and PSUM was in use over time, and return the figure.

        Args:
            path: the .png, .svg or .pdf file to write; None to only return the figure.
            core: of this core; by default of the one that ends last.

        Raises:
            ConfigurationError: matplotlib is not installed, no such core, or the file cannot be written.
        """
        from neurosim.report.plots import plot_memory

        return plot_memory(self._timeline_of(core), self.chip, path)

    def _repr_html_(self) -> str:
        from neurosim.report.notebook import result_html

        return result_html(self.summary())

    def __repr__(self) -> str:
        return f"Result({self.kernel_name} on {self.chip.name}, {len(self.program)} instructions)"
