"""``neurosim diff``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from neurosim.errors import ConfigurationError
from neurosim.shell.command_outputs import check_places, json_written
from neurosim.shell.loading import FORMS, load_kernel
from neurosim.shell.sweep_command import value_of

if TYPE_CHECKING:
    from neurosim.comparison.changes import Side

RUN = "FILE:KERNEL, a file of neurosim profile --save, or one of --json"
OWN = "a parameter, a chip's figure, chip, nki_version, cores, schedule or throttle"


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=RUN)],
    b: Annotated[str, typer.Argument(metavar="B", help="The same.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENT…", help=f"Of kernels: {FORMS}")] = None,
    in_a: Annotated[
        list[str] | None, typer.Option("--a", metavar="NAME=VALUE", help=f"Of A alone: {OWN}; repeatable.")
    ] = None,
    in_b: Annotated[list[str] | None, typer.Option("--b", metavar="NAME=VALUE", help="Of B alone; repeatable.")] = None,
    chip: Annotated[str | None, typer.Option(help="A chip's name or device file, for both.")] = None,
    values: Annotated[bool, typer.Option(help="Compute; times need no values.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random inputs.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write it as JSON, too.")] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write it as a page, too.")] = None,
) -> None:
    """Compare two runs line by line: what moved, and why. They may be of two kernels, chips or options."""
    from neurosim.comparison.changes import Diff

    check_places(json_file, html)
    if arguments and all(_is_file(target) for target in (a, b)):
        raise ConfigurationError(f"{a} and {b} were run already", advice="leave arguments out, or name a kernel")
    inputs = Inputs(tuple(arguments or ()), chip, seed, values)
    sides = [_side(a, inputs, _options(in_a or [], "--a")), _side(b, inputs, _options(in_b or [], "--b"))]
    found = Diff(*sides)
    if html is not None:
        found.html(html)
    with json_written(json_file, found.to_dict()):
        typer.echo(found.text(color=sys.stdout.isatty() and "NO_COLOR" not in os.environ), nl=False)


class Inputs(NamedTuple):
    """What both runs are given."""

    words: tuple[str, ...]
    chip: str | None
    seed: int
    values: bool


def _is_file(target: str) -> bool:
    """Whether a word names a run that a file holds: not FILE:KERNEL, and no file of Python."""
    path = Path(target)
    return path.suffix != ".py" and (os.path.exists(path) or ":" not in target)


def _side(target: str, inputs: Inputs, options: dict[str, Any]) -> Side:
    """Return what a word of the command line stands for."""
    if _is_file(target):
        return _of_file(Path(target), options, inputs.chip)
    return _of_kernel(target, inputs, options)


def _options(words: list[str], option: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not (name and equals and text):
            raise ConfigurationError(f"{option} {word!r} is no name with a value", advice="write tile_n=128")
        if name in found:
            raise ConfigurationError(f"{option} {name} is given twice", advice="leave one out")
        found[name] = value_of(name, text, option)
    return found


def _of_kernel(target: str, inputs: Inputs, options: dict[str, Any]) -> Side:
    from neurosim.comparison.sides import side_of_result
    from neurosim.sweeps.grid import checked, settings
    from neurosim.sweeps.running import Call, launched

    kernel = load_kernel(target)
    grid = checked({name: [value] for name, value in options.items()}, kernel) if options else {}
    (setting,) = settings(grid, kernel, {"chip": inputs.chip})
    result = launched(Call(kernel, inputs.words, inputs.seed, values=inputs.values), setting)
    return side_of_result(result, {name: str(value) for name, value in setting.arguments.items()})


def _of_file(path: Path, options: dict[str, Any], chip: str | None) -> Side:
    """Return the run of a file; of a program, timed with the options that timing has."""
    from neurosim.comparison.sides import side, side_of_result, summary_in
    from neurosim.devices import load_chip
    from neurosim.run import reopen

    figures = {name: value for name, value in options.items() if "." in name}
    timing = {name: value for name, value in options.items() if name in ("schedule", "throttle")}
    others = sorted(set(options) - set(figures) - set(timing) - {"chip"})
    is_summary = summary_in(path) is not None
    if others or (is_summary and (options or chip)):
        given = ", ".join(others or options or ["--chip"])
        raise ConfigurationError(
            f"{given}: {path} was run already",
            advice="a summary stays as it is" if is_summary else "a program takes chip, figures, schedule and throttle",
        )
    if is_summary:
        return side(path)
    wanted = options.get("chip", chip)
    result = reopen(path, wanted, **timing)
    if figures:
        result = reopen(path, load_chip(result.chip).replace(**figures), **timing)
    return side_of_result(result)
