"""The command line: ``neurosim demo``, ``run``, ``profile``, ``precision``, ``time``, ``diff`` and others."""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neurosim import finder
from neurosim.chip import STANDINGS, Chip
from neurosim.errors import ConfigurationError, NeurosimError
from neurosim.shell.command_outputs import (
    Csv,
    Engines,
    FirstUs,
    Html,
    Json,
    LastUs,
    Lines,
    Outputs,
    Parquet,
    Part,
    Perfetto,
    check_places,
    check_plot,
    json_written,
)
from neurosim.shell.diff_command import diff
from neurosim.shell.loading import FORMS, check_call, load_kernel, parse_arguments, refuse_negative_extents
from neurosim.shell.question_options import Changes, Limits, answer, parsed
from neurosim.shell.streams import INTERRUPTED, Commands, orderly
from neurosim.shell.sweep_command import sweep
from neurosim.versions import ENVIRONMENT, nki_version_of
from neurosim.writing import write_json

if TYPE_CHECKING:
    from neurosim.run import Result
    from neurosim.timing import LaunchOverhead

HELP_WIDTH = 120
"""Columns of ``--help`` at most, on wider terminals."""

app = typer.Typer(
    cls=Commands,
    help="Run NKI kernels on a simulated NeuronCore: exact values, a time, and the reason for the time.",
    no_args_is_help=True,
    rich_markup_mode=None,  # its tables leave little room for help beside names and types
    context_settings={"max_content_width": HELP_WIDTH},
    pretty_exceptions_enable=False,
    add_completion=False,
)

KernelName = Annotated[str, typer.Argument(metavar="FILE:KERNEL", help="As in kernels/matmul.py:matmul.")]
ArgumentList = Annotated[list[str] | None, typer.Argument(metavar="ARGUMENT…", help=FORMS)]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random inputs.")]
Cores = Annotated[int | None, typer.Option(min=1, help="Launch it on this many cores, as KERNEL[2] does in Python.")]
ChipName = Annotated[
    str | None,
    typer.Option(
        "--chip",
        help="A chip's name or device file; by default what the environment asks for (README), else trn2.",
    ),
]


class LaunchName(StrEnum):
    """Whose view of a launch is added to the kernel's time."""

    benchmark = "benchmark"
    profile = "profile"
    none = "none"


Sensitive = Annotated[
    bool,
    typer.Option("--sensitivity", help="List how the kernel's time moves when each figure of the chip moves by 10 %."),
]
Launch = Annotated[
    LaunchName,
    typer.Option("--launch-overhead", help="What nki.benchmark, or a profile's total time, sees beside the body."),
]

NkiVersionName = Annotated[
    str | None,
    typer.Option(
        "--nki-version", help="Whose semantics hold: 0.3 to 0.6, or 0.1; by default NEUROSIM_NKI_VERSION, or 0.6."
    ),
]


Schedule = Annotated[
    str,
    typer.Option(
        "--schedule",
        help="compiler: engines take whatever may start, what comes first in the program first, after a compiler's "
        "passes; reorder: without these; program: each engine in program order.",
    ),
]


Throttle = Annotated[
    bool, typer.Option(help="Let the tensor engine begin at its lower clock, on chips that do, until it is busy.")
]


@app.command()
def demo(json_file: Json = None, chip: ChipName = None) -> None:
    """Run a matmul and causal attention, and check their values.

    The one is 2048³ in bfloat16, the other over 2048 × 128; both are checked against float64.
    """
    check_places(json_file)
    from neurosim.shell.demo import CASES, run_case

    summaries: list[dict[str, Any]] = []
    failed = []
    for case in CASES:
        result, check = run_case(case, chip)
        summaries.append(result.summary())
        last = case is CASES[-1]
        with json_written(json_file if last or str(json_file) != "-" else None, summaries):
            _print_report(summaries[-1])
            print(f"\n{case.kernel}: {check}\n")
        if not check.passed:
            failed.append(case.kernel)
        del result  # its memory is the next case's
    if failed:
        print(f"wrong values: {', '.join(failed)}", file=sys.stderr)
        raise typer.Exit(1)


@app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
def run(
    script: Annotated[Path, typer.Argument(help="A Python script that imports nki.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Its sys.argv[1:].")] = None,
    nki_version: NkiVersionName = None,
) -> None:
    """Run a Python script with neurosim standing in for nki."""
    if nki_version is not None:
        os.environ[ENVIRONMENT] = str(nki_version_of(nki_version))
    if not os.path.isfile(script):
        raise ConfigurationError(
            f"there is no file {script}", advice="check the path; it is taken from the folder that the command runs in"
        )
    sys.argv = [str(script), *(arguments or [])]
    sys.path.insert(0, str(script.resolve().parent))
    with _users_errors(str(script), (Exception, KeyboardInterrupt)):
        runpy.run_path(str(script), run_name="__main__")


@app.command()
def profile(
    kernel: KernelName,
    arguments: ArgumentList = None,
    chip: ChipName = None,
    json_file: Json = None,
    seed: Seed = 0,
    values: Annotated[bool, typer.Option(help="Compute; without, record and time only.")] = True,
    nki_version: NkiVersionName = None,
    cores: Cores = None,
    schedule: Schedule = "compiler",
    throttle: Throttle = True,
    perfetto: Perfetto = None,
    first_us: FirstUs = 0.0,
    last_us: LastUs = None,
    engine: Engines = None,
    line: Lines = None,
    html: Html = None,
    csv: Csv = None,
    parquet: Parquet = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save the program, for neurosim time or a bug report.")
    ] = None,
    launch: Launch = LaunchName.benchmark,
    sensitivity: Sensitive = False,
    advice: Limits = False,
    what_if: Changes = None,
) -> None:
    """Run one kernel on random inputs and print its report."""
    import neurosim

    changes = parsed(what_if or [])
    part = Part(first_us, last_us, engine or (), line or ())
    outputs = Outputs(json_file, perfetto, html, csv, parquet, save, part).check()
    _check_part(part, chip)
    part.check_lines(Path(kernel.rpartition(":")[0]))
    positional, named = parse_arguments(arguments or [], seed, values=values)
    with _users_errors(str(Path(kernel.rpartition(":")[0]).resolve())):
        function = load_kernel(kernel)
        check_call(function, positional, named)
        profiled = neurosim.profile(
            function,
            chip=chip,
            values=values,
            nki_version=nki_version,
            launch_overhead=_launch_overhead(launch),
            schedule=schedule,
            throttle=throttle,
        )
        result = (profiled if cores is None else profiled[cores])(*positional, **named)
    _tell(result, outputs, sensitivity=sensitivity, advice=advice, what_if=changes)


@app.command()
def precision(
    kernel: KernelName,
    arguments: ArgumentList = None,
    chip: ChipName = None,
    json_file: Json = None,
    seed: Seed = 0,
    nki_version: NkiVersionName = None,
    cores: Cores = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the errors by line, too: .png, .svg or .pdf.")
    ] = None,
    reach: Annotated[
        int, typer.Option(min=0, help="Say of so many lines what their error comes to in the outputs: a run for each.")
    ] = 12,
) -> None:
    """Run one kernel beside float64 and print where errors are born."""
    import neurosim

    check_places(json_file)
    check_plot(plot)
    positional, named = parse_arguments(arguments or [], seed)
    with _users_errors(str(Path(kernel.rpartition(":")[0]).resolve())):
        function = load_kernel(kernel)
        check_call(function, positional, named)
        examined = neurosim.precision(function, chip=chip, reach=reach, nki_version=nki_version)
        found = (examined if cores is None else examined[cores])(*positional, **named)
    if plot is not None:
        found.plot(plot)
    with json_written(json_file, found.to_dict()):
        print(found.text(color=_wants_color()), end="")


@app.command()
def time(
    program_file: Annotated[Path, typer.Argument(metavar="FILE", help="What neurosim profile --save wrote.")],
    chip: Annotated[
        str | None, typer.Option("--chip", help="A chip's name or device file; by default the program's own chip.")
    ] = None,
    json_file: Json = None,
    schedule: Schedule = "compiler",
    throttle: Throttle = True,
    perfetto: Perfetto = None,
    html: Html = None,
    csv: Csv = None,
    parquet: Parquet = None,
    first_us: FirstUs = 0.0,
    last_us: LastUs = None,
    engine: Engines = None,
    line: Lines = None,
    launch: Launch = LaunchName.benchmark,
    sensitivity: Sensitive = False,
    advice: Limits = False,
    what_if: Changes = None,
) -> None:
    """Time a saved program again and print its report. It is timed on its own chip, or on a variant of that."""
    from neurosim.run import reopen

    changes = parsed(what_if or [])
    part = Part(first_us, last_us, engine or (), line or ())
    outputs = Outputs(json_file, perfetto, html, csv, parquet, None, part).check()
    overhead = _launch_overhead(launch)
    result = reopen(program_file, chip, launch_overhead=overhead, schedule=schedule, throttle=throttle)
    _check_part(part.check_program(result.program), result.chip)
    _tell(result, outputs, sensitivity=sensitivity, advice=advice, what_if=changes)


@app.command()
def chips(
    name: Annotated[str | None, typer.Argument(help="Show all figures of this chip, or of a device file.")] = None,
) -> None:
    """List the chips, or the figures of one. Each has its unit, standing and source."""
    from neurosim.devices import available, load_chip

    if name is not None:
        found = [load_chip(name)]
        rows = [
            (path, _figure_text(figure.value), figure.unit, figure.standing, figure.source)
            for path, figure in found[0].figures.items()
        ]
        _print_columns([("figure", "value", "unit", "standing", "source"), *rows])
    else:
        found = [load_chip(known) for known in available()]
        titles = ("chip", "core", "TFLOPS", "SBUF MiB", "HBM GB/s", *STANDINGS)
        _print_columns([titles, *map(_overview, found)])
    unproven = [chip.name for chip in found if not chip.is_validated]
    if unproven:
        print(f"\nnot validated, since no figure was measured on the chip itself: {', '.join(unproven)}")


@app.command()
def isa(name: Annotated[str | None, typer.Argument(help="Show the manual's page of this instruction.")] = None) -> None:
    """List the instructions, or show the manual's page of one. The list says which chips have them."""
    from neurosim.manual.text import overview, page_text

    color = _wants_color()
    text = overview(color=color, whole=not sys.stdout.isatty()) if name is None else page_text(name, color=color)
    print(text, end="")


@app.command()
def schema() -> None:
    """Print the JSON Schema of what --json writes."""
    from neurosim.report.json_schema import json_schema

    write_json("-", json_schema())


@app.command()
def check(
    target: Annotated[str, typer.Argument(metavar="FILE[:KERNEL]", help="A Python file, or one kernel of it.")],
    strict: Annotated[bool, typer.Option(help="Report also what NKI documents neither as allowed nor as not.")] = False,
) -> None:
    """Find what the NKI compiler rejects in kernels that run here. The file is read, not run."""
    from neurosim import lint

    file, colon, kernel = target.rpartition(":")
    if not colon or not kernel.isidentifier():
        file, kernel = target, ""
    findings = lint.check(Path(file), kernel or None, strict=True)
    unlisted = [finding for finding in findings if finding.restriction is lint.Restriction.unlisted]
    if not strict:
        findings = [finding for finding in findings if finding not in unlisted]
    for finding in findings:
        print(f"{finding}\n")
    count = f"{len(findings) or 'no'} finding{'' if len(findings) == 1 else 's'}"
    more = f"; --strict reports {len(unlisted)} more, of which NKI's documentation does not speak"
    print(f"{file}: {count}{more if unlisted and not strict else ''}")
    if findings:
        raise typer.Exit(1)


def _check_part(part: Part, chip: str | Chip | None) -> None:
    """Refuse engines that a chip does not have before anything runs on it."""
    if part.engines:
        from neurosim.devices import load_chip
        from neurosim.timing.timeline import unit_names

        part.check_engines(unit_names(load_chip(chip)))


def _launch_overhead(name: LaunchName) -> LaunchOverhead:
    return False if name is LaunchName.none else "profile" if name is LaunchName.profile else "benchmark"


app.command()(sweep)
app.command()(diff)


def _overview(chip: Chip) -> tuple[str, ...]:
    """Return a line of the list of chips: what one core has, and how many figures have each standing."""
    mib = chip.sbuf.partition_bytes * chip.partitions / 2**20
    numbers = (f"{chip.tensor.peak_tflop_per_s():.1f}", f"{mib:g}", f"{chip.hbm.bandwidth_gb_per_s:g}")
    return (chip.name, f"NeuronCore-v{chip.generation}", *numbers, *map(str, chip.standings().values()))


def _print_columns(rows: list[tuple[str, ...]]) -> None:
    """Print rows in columns, which a few long cells do not widen."""
    widths = [max(len(cell) for cell in column if len(cell) < 48) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _figure_text(value: Any) -> str:
    """Return a value as a device file would have it, names without quotes."""
    if isinstance(value, tuple):
        return " ".join(f"[{' '.join(entry)}]" if isinstance(entry, tuple) else entry for entry in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


@contextlib.contextmanager
def _users_errors(file: str, kinds: tuple[type[BaseException], ...] = (Exception,)) -> Iterator[None]:
    """Print the traceback of an error of some kinds in a user's file from there on: how it was started says nothing."""
    try:
        yield
    except NeurosimError as error:
        raise error.at(_lines_in(file, error)) from error.__cause__
    except kinds as error:
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename != file:
            frames = frames.tb_next
        traceback.print_exception(type(error), error, frames or error.__traceback__)
        raise typer.Exit(1 if isinstance(error, Exception) else INTERRUPTED) from None


def _tell(
    result: Result, outputs: Outputs, *, sensitivity: bool, advice: bool, what_if: Sequence[dict[str, Any]]
) -> None:
    """Write the files that are asked for, and print a result's report."""
    summary = result.summary()
    answers = answer(result, summary, advice=advice, what_if=what_if, color=_wants_color())
    rows: list[tuple[str, ...]] = []
    if sensitivity:
        from neurosim.timing.sensitivity import as_rows, table

        found = result.sensitivity()
        rows = table(found)
        summary["sensitivity"] = as_rows(found)
    with outputs.written(result, summary):
        _print_report(summary)
        if rows:
            print()
            _print_columns(rows)
        print(answers, end="")


def _lines_in(file: str, error: BaseException) -> tuple[str, ...]:
    """Return the lines of a file that an error came through, innermost first."""
    frames = [entry for entry in traceback.extract_tb(error.__traceback__) if entry.filename == file]
    return tuple(f"{entry.filename}:{entry.lineno}  in {entry.name}" for entry in reversed(frames))


def _print_report(summary: dict[str, Any]) -> None:
    from neurosim.report.text import report

    print(report(summary, color=_wants_color()), end="")


def _wants_color() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def main() -> None:
    """Entry point. An error that neurosim raises on purpose is printed as its message, with exit code 1."""
    finder.install(force=True)
    is_script = sys.argv[1:2] == ["run"]
    try:
        if is_script:  # what follows is the script's, and so are the streams
            app()
        else:
            refuse_negative_extents(sys.argv[1:])
            with orderly():
                app()
    except NeurosimError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
