"""``neurosim.sweep``: runs what is not known yet, keeps what comes in, and returns everything."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from neurosim.spelling import spelt
from neurosim.sweeps.grid import Setting, checked, name_of, settings
from neurosim.sweeps.journal import Journal
from neurosim.sweeps.keys import kernel_digest, key
from neurosim.sweeps.results import Outcome, Sweep
from neurosim.sweeps.running import Call, run_all


@spelt
def sweep(
    kernel: Callable[..., Any],
    grid: Mapping[str, Iterable[Any]],
    *,
    chip: Any = None,
    values: bool = False,
    nki_version: Any = None,
    cores: int | None = None,
    schedule: str = "compiler",
    throttle: bool = True,
    jobs: int | None = None,
    store: str | Path | None = None,
    progress: bool | None = None,
) -> Callable[..., Sweep]:
    """Return a function that times ``kernel`` at every point of a grid and returns a :class:`Sweep`.

    ``sweep(matmul, {"n_tile": [128, 512], "chip": ["trn1", "trn2"]})(a, b)`` is four runs. Points run in parallel in
    processes of their own. A point that fails is an outcome like others.

    Args:
        kernel: a kernel, as for :func:`neurosim.simulate`.
        grid: by name, the values to take: of the kernel's parameters, of ``chip``, ``nki_version``, ``cores``,
            ``schedule`` and ``throttle``, and of the chip's figures (``"dma.engine_gb_per_s"``). The last name changes
            fastest.
        chip, nki_version, cores, schedule, throttle: of all points, unless the grid says.
        values: whether to compute; times need no values, and arguments may be :func:`neurosim.spec`.
        jobs: processes at a time; by default one per CPU, or what ``joblib.parallel_config`` says, which also chooses
            a Dask or Ray cluster.
        store: a file that results are added to as they come in. What it knows is not run again: a sweep that was
            killed goes on where it stopped. Results are kept by content: kernel, arguments, chip, options, what
            the environment asks for, and neurosim's own source.
        progress: whether to show a bar on stderr; by default where that is a terminal.

    Raises:
        ConfigurationError: a senseless grid, arguments that the kernel does not take, a file of something else.
    """
    found = checked(grid, kernel)
    given = {"chip": chip, "nki_version": nki_version, "cores": cores, "schedule": schedule, "throttle": throttle}

    def run(*args: Any, **kwargs: Any) -> Sweep:
        call = Call(kernel, positional=args, named=tuple(kwargs.items()), values=values)
        points = list(settings(found, kernel, given))
        return swept(call, tuple(found), points, jobs=jobs, store=store, progress=progress)

    return run


def swept(
    call: Call,
    names: tuple[str, ...],
    points: list[Setting],
    *,
    jobs: int | None,
    store: str | Path | None,
    progress: bool | None,
) -> Sweep:
    """Run the points that ``store`` does not know; see :func:`sweep`."""
    keys = _keys(call, points)
    with Journal(store) as journal:
        missing = [number for number, entry in enumerate(keys) if not _is_known(journal.entries.get(entry))]
        first = {keys[number]: number for number in reversed(missing)}  # equal points run once
        numbers = sorted(first.values())
        with _bar(progress) as bar:
            task = bar.add_task(
                name_of(call.kernel), total=len(points), completed=len(points) - len(missing), failed=""
            )
            failed = 0
            for index, outcome in run_all(call, [points[number] for number in numbers], _jobs(jobs)):
                done = keys[numbers[index]]
                journal.add(done, outcome)
                failed += "error" in outcome
                bar.update(task, advance=keys.count(done), failed=f"{failed} failed" if failed else "")
        outcomes = [
            Outcome(setting.labels, known.get("summary"), known.get("error"), tuple(known.get("warnings", ())))
            for setting, known in zip(points, (journal.entries[entry] for entry in keys), strict=True)
        ]
    return Sweep(name_of(call.kernel), names, tuple(outcomes))


def _keys(call: Call, points: list[Setting]) -> list[str]:
    """Return the key of each point, having checked that the kernel takes its arguments."""
    digest = kernel_digest(call.kernel)
    keys = []
    for setting in points:
        arguments = call.arguments(setting, values=False)
        seed = call.seed if call.values else 0
        options = [setting.nki_version, setting.cores, setting.schedule, setting.throttle, call.environment]
        keys.append(key(digest, arguments, setting.chip, [call.values, seed, *options]))
    return keys


def _is_known(entry: dict[str, Any] | None) -> bool:
    """Whether a point need not be run: it has a summary, or an error that it would give again."""
    return entry is not None and ("summary" in entry or bool(entry.get("error", {}).get("is_final")))


def _jobs(jobs: int | None) -> int | None:
    """Return how many processes: one per CPU, unless the caller or ``joblib.parallel_config`` says."""
    from joblib.parallel import get_active_backend

    return -1 if jobs is None and get_active_backend()[1] in (None, 1) else jobs


def _bar(wanted: bool | None) -> Progress:
    shown = sys.stderr.isatty() if wanted is None else wanted
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[failed]}", style="red"),
        console=Console(stderr=True),
        disable=not shown,
    )
