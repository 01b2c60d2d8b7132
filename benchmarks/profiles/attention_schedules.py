"""Schedules of attention: how many keys are scored at once, and how many row tiles go through the engines together.

    python benchmarks/profiles/attention_schedules.py [--length 2048] [--width 128] [--blocks 128,256,512]
        [--groups 1,2,4,8] [--chip trn2] [--plot attention.png]

One row tile at a time leaves each engine waiting for the one before it; several are what buffering is elsewhere: the
engines have one tile's work while another one's waits. Simulated times without the launch.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

import neurosim
from neurosim.errors import NeurosimError
from neurosim.report.units import percent, time
from neurosim.report.words import words
from neurosim.shell.loading import load_kernel, packaged_kernel

WIDTH = 110
COMPUTE = ("tensor", "vector", "scalar", "gpsimd")


def numbers(text: str) -> list[int]:
    """Return the numbers of a list such as ``1,2,4``."""
    found = text.split(",")
    if not all(part.isdecimal() and int(part) > 0 for part in found):
        raise argparse.ArgumentTypeError(f"{text!r} is no list such as 1,2,4")
    return [int(part) for part in found]


def table(found: neurosim.Sweep) -> Table:
    """Return a row per schedule: time, use of the tensor engine, space, and what the busiest engine waits for."""
    rows = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in (*found.names, "time", "MFU", "SBUF", "PSUM"):
        rows.add_column(name, justify="right", no_wrap=True)
    rows.add_column("busiest engine, and what it mostly waits for")
    for outcome in found:
        cells = [str(outcome.point[name]) for name in found.names]
        summary = outcome.summary
        if summary is None:
            rows.add_row(*cells, "–", "", "", "", str((outcome.error or {}).get("message", "")).partition("\n")[0])
            continue
        name = max(COMPUTE, key=lambda engine: summary["engines"][engine]["busy_ps"])
        engine, whole = summary["engines"][name], max(summary["makespan_ps"], 1)
        reason, ps = max(engine["stall_ps"].items(), key=lambda item: item[1], default=("nothing", 0))
        rows.add_row(
            *cells,
            time(summary["makespan_ps"]) + (" ◀" if outcome is found.best else ""),
            percent(summary["mfu"]),
            f"{summary['sbuf']['peak_partition_bytes'] / 1024:.1f} KiB",
            f"{summary['psum']['peak_partition_bytes'] / 1024:.1f} KiB",
            f"{name} {percent(engine['busy_ps'] / whole)}; {words(reason)} {percent(ps / whole)}",
        )
    return rows


def main() -> None:
    """Parse options, run the grid in parallel, print a table, write a plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=2048, help="rows of q, k and v")
    parser.add_argument("--width", type=int, default=128, help="of a head")
    parser.add_argument("--blocks", type=numbers, default=[128, 256, 512], help="keys at once")
    parser.add_argument("--groups", type=numbers, default=[1, 2, 4, 8], help="row tiles that go together")
    parser.add_argument("--chip", default="trn2")
    parser.add_argument("--jobs", type=int, help="processes; by default one per CPU")
    parser.add_argument("--plot", type=Path, help="a .png, .svg or .pdf file")
    options = parser.parse_args()
    try:
        kernel = load_kernel(f"{packaged_kernel('attention.py')}:attention")
        grid = {"block": options.blocks, "group": options.groups}
        tensor = neurosim.spec((options.length, options.width), "bfloat16")
        found = neurosim.sweep(kernel, grid, chip=options.chip, jobs=options.jobs)(tensor, tensor, tensor)
        title = f"attention {options.length} × {options.width} bfloat16 on {options.chip}: simulated, not measured"
        Console(width=WIDTH, highlight=False).print(title, table(found))
        if options.plot:
            found.plot(options.plot, x="group")
    except NeurosimError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
