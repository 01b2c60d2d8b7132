"""Files that a command writes of a result, beside what it prints: options, and where they can be written."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neurosim.errors import ConfigurationError
from neurosim.writing import write_json

if TYPE_CHECKING:
    from neurosim.program import Program
    from neurosim.result import Result

Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the summary as JSON, too.")]
Perfetto = Annotated[
    Path | None,
    typer.Option("--perfetto", metavar="FILE", help="Write a trace for ui.perfetto.dev, too; .gz compresses it."),
]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write a page with timelines, memory over time, costs by line, too."),
]
Csv = Annotated[
    Path | None,
    typer.Option("--csv", metavar="FILE", help="Write every operation as CSV, too; .gz compresses it."),
]
Parquet = Annotated[
    Path | None, typer.Option("--parquet", metavar="FILE", help="Write every operation as Parquet, too.")
]
FirstUs = Annotated[float, typer.Option(help="The trace begins with what happens at this time, in µs.")]
LastUs = Annotated[float | None, typer.Option(help="The trace ends with what begins before, in µs.")]
Engines = Annotated[
    list[str] | None,
    typer.Option(help="The trace has only this engine: tensor, dma, dma3, … (or sbuf, psum); repeatable."),
]
Lines = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE[:LINE]", help="The trace has only what this line caused; repeatable."),
]


@dataclass(frozen=True)
class Part:
    """What of a timeline goes into a trace, in the words of the command line.

    Attributes:
        first_us, last_us: a span of time.
        engines, lines: names; empty for all.
    """

    first_us: float = 0.0
    last_us: float | None = None
    engines: Sequence[str] = ()
    lines: Sequence[str] = ()

    def check(self, perfetto: Path | None) -> Part:
        """Return this, or refuse to choose from a trace that is not written.

        Raises:
            ConfigurationError: there is no trace.
        """
        shaping = {
            "--first-us": self.first_us,
            "--last-us": self.last_us is not None,
            "--engine": self.engines,
            "--line": self.lines,
        }
        if perfetto is None and any(shaping.values()):
            given = ", ".join(name for name, value in shaping.items() if value)
            raise ConfigurationError(
                f"{given}: this says what goes into a trace, and no trace is written", advice="add --perfetto FILE"
            )
        last_us = math.inf if self.last_us is None else self.last_us
        if not (0 <= self.first_us < math.inf and self.first_us < last_us) or self.last_us == math.inf:
            raise ConfigurationError(
                f"there is no time from {self.first_us:g} to {last_us:g} µs",
                advice="begin at 0 or later, and end after that; leave --last-us out for the end",
            )
        return self

    def check_engines(self, units: Sequence[str]) -> Part:
        """Return this, or refuse engines that a chip does not have, whatever runs on it.

        Raises:
            ConfigurationError: there is no such engine.
        """
        from neurosim.report.perfetto import check_engines

        check_engines(self.engines, units)
        return self

    def check_program(self, program: Program) -> Part:
        """Return this, or refuse lines that a program does not have.

        Raises:
            ConfigurationError: no instruction comes from one of them.
        """
        from neurosim.report.perfetto import check_lines

        check_lines(self.lines, program)
        return self

    def check_lines(self, kernel: Path) -> Part:
        """Return this, or refuse lines that a kernel's file does not have; what other files have shows in the run.

        Raises:
            ConfigurationError: the number is none, or the file ends before.
        """
        from neurosim.program import is_named

        source = kernel.resolve()
        for text in self.lines:
            file, colon, number = text.rpartition(":")
            if not colon:
                continue
            if not number.isascii() or not number.isdecimal():
                raise ConfigurationError(f"--line {text}: {number!r} is no line", advice="write FILE or FILE:LINE")
            if source.is_file() and is_named(source.as_posix(), file):
                count = len(source.read_bytes().splitlines())
                if not 0 < int(number) <= count:
                    raise ConfigurationError(
                        f"--line {text}: no instruction comes from there",
                        numbers=(f"{source.name} has {count} lines",),
                        advice="write FILE or FILE:LINE",
                    )
        return self

    def options(self) -> dict[str, Any]:
        """Return them as ``Result.perfetto`` takes them."""
        first_ps, last_ps = round(self.first_us * 10**6), None if self.last_us is None else round(self.last_us * 10**6)
        return {"first_ps": first_ps, "last_ps": last_ps, "engines": self.engines, "lines": self.lines}


@dataclass(frozen=True)
class Outputs:
    """Files to write; None for those that are not asked for.

    Attributes:
        json: the summary; ``-`` is the standard output.
        perfetto: a trace, of which ``part`` says how much.
        html: a page.
        csv, parquet: every operation as a row of a table.
        save: the program.
    """

    json: Path | None = None
    perfetto: Path | None = None
    html: Path | None = None
    csv: Path | None = None
    parquet: Path | None = None
    save: Path | None = None
    part: Part = Part()

    def check(self) -> Outputs:
        """Return this, or refuse before anything runs what could not be written after it.

        Raises:
            ConfigurationError: a folder is not there or takes no files, or there is no trace to choose from.
        """
        self.part.check(self.perfetto)
        check_places(self.json, self.perfetto, self.html, self.csv, self.parquet, self.save)
        return self

    @contextlib.contextmanager
    def written(self, result: Result, summary: dict[str, Any]) -> Iterator[None]:
        """Write them before what is printed inside, as :func:`json_written` does."""
        if self.perfetto is not None:
            result.perfetto(self.perfetto, **self.part.options())
        if self.html is not None:
            result.html(self.html, limits=True if "advice" in summary else None)
        if self.csv is not None:
            result.csv(self.csv)
        if self.parquet is not None:
            result.parquet(self.parquet)
        if self.save is not None:
            result.program.save(self.save)
        with json_written(self.json, summary):
            yield


@contextlib.contextmanager
def json_written(path: Path | None, content: Any) -> Iterator[None]:
    """Write a file before what is printed inside: who reads that may go away. The standard output gets it after."""
    to_output = str(path) == "-"
    if path is not None and not to_output:
        write_json(path, content)
    yield
    if path is not None and to_output:
        write_json(path, content)


def check_plot(path: Path | None) -> None:
    """Refuse a plot that could not be written after a run.

    Raises:
        ConfigurationError: its name asks for no picture that is written here, or as :func:`check_places`.
    """
    from neurosim.report.picture import ending_of

    check_places(path)
    if path is not None:
        ending_of(path)


def check_places(*paths: Path | None) -> None:
    """Refuse files that cannot be written where they are to be.

    Raises:
        ConfigurationError: the folder is not there or takes no files, or the file itself is a folder.
    """
    for path in paths:
        if path is None or str(path) == "-":
            continue
        folder = Path(os.path.realpath(path)).parent
        reason = None
        if os.path.isdir(path):  # unlike Path's, this takes a name that is too long
            reason = "it is a folder"
        elif not os.path.isdir(folder):
            reason = f"there is no folder {folder}"
        elif not os.access(path if os.path.exists(path) and not os.path.isfile(path) else folder, os.W_OK):
            reason = f"{folder} takes no files of yours"
        if reason:
            raise ConfigurationError(f"cannot write {path}: {reason}", advice="name a file in a folder of yours")
