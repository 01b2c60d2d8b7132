"""What a schedule is worth: the matmul ladder and attention on each chip, in simulated time.

    python benchmarks/schedules.py [--size 2048x2048x2048] [--attention 2048x128] [--dtype bfloat16] [--chip trn2]

No values are computed, so that ``--size 4096x8192x8192`` takes seconds. Times are the kernel's, without the launch.
The stall is the largest of the engine that is busiest: what to change next.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table

import neurosim
from neurosim.chip import Chip
from neurosim.devices import available
from neurosim.errors import NeurosimError
from neurosim.report.units import percent
from neurosim.report.units import time as time_text
from neurosim.report.words import REASONS
from neurosim.shell.loading import load_kernel, packaged_kernel

WIDTH = 100
"""Columns of the tables, whatever the terminal."""

RUNGS = ("matmul_tiled", "matmul_hoisted", "matmul_blocked_free", "matmul_blocked")
COMPUTE = ("tensor", "vector", "scalar", "gpsimd")


class Case(NamedTuple):
    """A kernel and the shapes of its arguments."""

    name: str
    target: str
    shapes: tuple[tuple[int, ...], ...]


class Row(NamedTuple):
    """What one run showed.

    Attributes:
        makespan_ps: time of the kernel.
        mfu, mbu: shares of the tensor engine's peak and of HBM's bandwidth.
        busiest, busy: the busiest engine and its share of the time.
        stall, stalled: what that engine waited for most, and for which share of the time; None if it never waited.
    """

    makespan_ps: int
    mfu: float
    mbu: float
    busiest: str
    busy: float
    stall: str | None
    stalled: float


def extents(count: int, form: str) -> Callable[[str], tuple[int, ...]]:
    """Return a parser of ``count`` sizes with × or x between them; ``form`` says what they are."""

    def parse(text: str) -> tuple[int, ...]:
        parts = re.split("[x×]", text)
        if len(parts) != count or not all(part.isdecimal() and int(part) > 0 for part in parts):
            raise argparse.ArgumentTypeError(f"{text!r} is not {form}")
        return tuple(map(int, parts))

    return parse


def cases(size: tuple[int, ...], attention: tuple[int, ...]) -> list[Case]:
    """Return the rungs of the ladder, the kernel that is there to be used, and attention."""
    m, k, n = size
    operands = ((k, m), (k, n))
    found = [Case(rung, f"{packaged_kernel('matmul_ladder.py')}:{rung}", operands) for rung in RUNGS]
    found.append(Case("matmul", f"{packaged_kernel('matmul.py')}:matmul", operands))
    found.append(Case("attention", f"{packaged_kernel('attention.py')}:attention", (attention,) * 3))
    return found


def measure(case: Case, chip: Chip, dtype: str) -> Row:
    """Record a kernel without values on a chip, and time it."""
    run = neurosim.profile(load_kernel(case.target), chip=chip, values=False)
    result = run(*[neurosim.spec(shape, dtype) for shape in case.shapes])
    timeline = result.timeline
    makespan_ps = max(timeline.makespan_ps, 1)
    busiest = max(COMPUTE, key=lambda name: timeline.engines[name].busy_ps)
    account = timeline.engines[busiest]
    reason, stalled_ps = max(account.stall_ps.items(), key=lambda item: item[1], default=(None, 0))
    return Row(
        makespan_ps=timeline.makespan_ps,
        mfu=timeline.mfu,
        mbu=timeline.mbu,
        busiest=busiest,
        busy=account.busy_ps / makespan_ps,
        stall=reason if stalled_ps else None,
        stalled=stalled_ps / makespan_ps,
    )


def rows(chip: Chip, found: list[Case], dtype: str) -> Iterator[tuple[str, ...]]:
    """Yield the cells of a chip's table; a kernel that a chip refuses says why."""
    for case in found:
        try:
            row = measure(case, chip, dtype)
        except (NeurosimError, AssertionError) as error:
            yield case.name, "–", "", "", "", str(error).splitlines()[0]
            continue
        stall = "nothing" if row.stall is None else f"{REASONS[row.stall]} {percent(row.stalled)}"
        yield (
            case.name,
            time_text(row.makespan_ps),
            percent(row.mfu),
            percent(row.mbu),
            f"{row.busiest} {percent(row.busy)}",
            stall,
        )


def table(chip: Chip, found: list[Case], dtype: str) -> Table:
    """Return the table of one chip."""
    title = f"{chip.name}: simulated, not measured"
    result = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for name in ("kernel", "time", "MFU", "MBU"):
        result.add_column(name, justify="left" if name == "kernel" else "right", no_wrap=True)
    result.add_column("busiest engine", no_wrap=True)
    result.add_column("which mostly waits for")
    for cells in rows(chip, found, dtype):
        result.add_row(*cells)
    return result


def main() -> None:
    """Parse options, run, print a table per chip."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size, attention = extents(3, "MxKxN, as in 2048x2048x2048"), extents(2, "SxD, as in 2048x128")
    parser.add_argument("--size", type=size, default=(2048, 2048, 2048), help="M×K×N of the matmul, 2048x2048x2048")
    parser.add_argument("--attention", type=attention, default=(2048, 128), help="length × width of a head, 2048x128")
    parser.add_argument("--dtype", default="bfloat16", help="bfloat16 (default), float16 or float32")
    parser.add_argument("--chip", action="append", help="a chip or a device file, any number of times; default: all")
    options = parser.parse_args()

    m, k, n = options.size
    length, width = options.attention
    console = Console(width=WIDTH, highlight=False)
    try:
        neurosim.spec((1,), options.dtype)
        chips = [neurosim.load_chip(chip) for chip in options.chip or available()]
        console.print(f"matmul {m} × {k} × {n} (M × K × N), attention {length} × {width}, {options.dtype}")
        for chip in chips:
            console.print(table(chip, cases(options.size, options.attention), options.dtype))
    except NeurosimError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
