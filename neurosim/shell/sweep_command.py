"""``neurosim sweep``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from neurosim.errors import ConfigurationError
from neurosim.shell.command_outputs import check_places, check_plot, json_written
from neurosim.shell.loading import FORMS, load_kernel

if TYPE_CHECKING:
    from neurosim.sweeps import Sweep


Grid = Annotated[
    list[str] | None,
    typer.Option(
        "--grid",
        metavar="NAME=V1,V2,…",
        help="Values of a parameter, a chip's figure, chip, nki_version, cores, schedule or throttle; repeatable.",
    ),
]
Store = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Keep results here, and run only what it lacks; by default KERNEL.sweep.jsonl."),
]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all summaries as JSON.")]
Csv = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write a row per point as CSV.")]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a plot (.png, .svg, .pdf).")]
Cluster = Annotated[
    str | None,
    typer.Option(metavar="dask|ray[=ADDRESS]", help="Run on a cluster; without an address, on one of this machine."),
]


def sweep(
    kernel: Annotated[str, typer.Argument(metavar="FILE:KERNEL", help="As in kernels/matmul.py:matmul.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENT…", help=f"Of all points: {FORMS}")] = None,
    grid: Grid = None,
    chip: Annotated[str | None, typer.Option(help="A chip's name or device file, unless the grid says.")] = None,
    values: Annotated[bool, typer.Option(help="Compute; times need no values.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random inputs.")] = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes at a time; by default one per CPU.")] = None,
    store: Store = None,
    json_file: Json = None,
    csv_file: Csv = None,
    plot: Plot = None,
    x: Annotated[str | None, typer.Option(help="The name along the plot's axis.")] = None,
    cluster: Cluster = None,
) -> None:
    """Time a kernel at every point of a grid, in parallel. A sweep that was killed goes on where it stopped."""
    from neurosim.sweeps.grid import checked, settings  # joblib loads for this command alone
    from neurosim.sweeps.running import Call
    from neurosim.sweeps.sweeping import swept

    check_places(json_file, csv_file)
    check_plot(plot)
    found = load_kernel(kernel)
    axes = checked(_axes(grid or []), found)
    call = Call(found, tuple(arguments or ()), seed, values=values)
    points = list(settings(axes, found, {"chip": chip}))
    kept = Path(f"{kernel.rpartition(':')[2]}.sweep.jsonl") if store is None else store
    out = Console(stderr=True, highlight=False)
    try:
        with _cluster(cluster):
            result = swept(call, tuple(axes), points, jobs=jobs, store=kept, progress=None)
    except KeyboardInterrupt:
        out.print(f"interrupted: what was done is in {kept}; the same command goes on from there")
        raise typer.Exit(130) from None
    if csv_file is not None:
        result.to_csv(csv_file)
    if plot is not None:
        result.plot(plot, x=x)
    rows = [{"point": one.point, "summary": one.summary, "error": one.error} for one in result]
    with json_written(json_file, rows):
        _show(result)
        out.print(f"{len(result)} points, {len(result.failed)} failed; kept in {kept}")
    if len(result.failed) == len(result):
        raise typer.Exit(1)


def _axes(words: list[str]) -> dict[str, list[Any]]:
    axes = dict(map(_axis, words))
    if len(axes) < len(words):
        raise ConfigurationError("a name stands twice in the grid", advice="give all of its values at once: a=1,2")
    return axes


def _axis(word: str) -> tuple[str, list[Any]]:
    """Return a name of the grid and its values, those of options and figures as what they are."""
    name, equals, text = word.partition("=")
    values = text.split(",")
    if not equals or not name or not all(values):
        raise ConfigurationError(f"--grid {word!r} is no name with values", advice="write tile_n=128,256,512")
    return name, [value_of(name, value, "--grid") for value in values]


def value_of(name: str, text: str, option: str) -> Any:
    """Return a value of a grid's name: of options and figures what it is, of a kernel's parameter the text.

    Args:
        name: what it is a value of.
        text: as the command line has it.
        option: which option it was given by, for messages.

    Raises:
        ConfigurationError: it is none.
    """
    from neurosim.sweeps.grid import OPTIONS
    from neurosim.sweeps.running import Text

    if name == "cores" or "." in name:
        return _number(name, text, option)
    if name == "throttle":
        return _flag(name, text, option)
    return text if name in OPTIONS else Text(text)


def _number(name: str, text: str, option: str) -> int | float:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    raise ConfigurationError(f"{option} {name}: {text!r} is no number", advice="write numbers, as in M=128,256")


def _flag(name: str, text: str, option: str) -> bool:
    found = {"true": True, "false": False}.get(text.lower())
    if found is None:
        raise ConfigurationError(f"{option} {name}: {text!r} is neither true nor false", advice="write true or false")
    return found


def _show(result: Sweep) -> None:
    console = Console(highlight=False, emoji=False, markup=False)
    if console.is_terminal:
        console.print(result.table())
    else:
        typer.echo(str(result))


@contextlib.contextmanager
def _cluster(wanted: str | None) -> Iterator[None]:
    """Run what joblib runs inside on a cluster of Dask or Ray."""
    if wanted is None:
        yield
        return
    import joblib

    kind, _, address = wanted.partition("=")
    if kind not in ("dask", "ray"):
        raise ConfigurationError(
            f"--cluster {wanted}: no such cluster", advice="dask or ray, as in dask=tcp://host:8786"
        )
    try:
        if kind == "dask":
            from distributed import Client

            with Client(address or None), joblib.parallel_config(backend="dask"):
                yield
        else:
            import ray
            from ray.util.joblib import register_ray

            ray.init(address=address or None)
            register_ray()
            with joblib.parallel_config(backend="ray"):
                yield
    except ImportError as error:
        raise ConfigurationError(f"--cluster {kind}: {error}", advice=f"pip install '{_PACKAGES[kind]}'") from None
    except OSError as error:
        raise ConfigurationError(f"--cluster {wanted}: {error}", advice="is its scheduler running there?") from error


_PACKAGES = {"dask": "dask[distributed]", "ray": "ray"}
