"""What a DMA's descriptors cost: the same tensor copied in blocks of columns, from narrow to wide.

    python benchmarks/profiles/dma_descriptors.py [--rows 1024] [--columns 4096] [--dtype float32] [--chip trn2,trn3]
        [--plot descriptors.png]

Each descriptor moves one row of a block. Small ones cost as much as larger ones, so that bandwidth grows with them
until the DMA engines or HBM are full. Simulated times without the launch.
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
from neurosim.report.picture import new_figure, write_figure
from neurosim.report.units import binary, digits, percent, time
from neurosim.shell.loading import load_kernel, packaged_kernel

WIDTH = 100


def widths(columns: int, least: int) -> list[int]:
    """Return powers of two from ``least`` up to all columns."""
    found = [columns]
    while found[-1] // 2 >= least:
        found.append(found[-1] // 2)
    return found[::-1]


def gb_per_s(summary: dict[str, object]) -> float:
    """Return the traffic with HBM, read and written, over the kernel's time."""
    hbm = summary["hbm"]
    return hbm["read_gb_per_s"] + hbm["written_gb_per_s"]  # type: ignore[index,no-any-return]


def table(found: neurosim.Sweep, itemsize: int) -> Table:
    """Return a row per size of descriptors and chip."""
    rows = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("descriptor", "chip", "time", "GB/s", "MBU", "descriptors' share"):
        rows.add_column(name, justify="right", no_wrap=True)
    for outcome in found:
        size = binary(outcome.point["columns"] * itemsize)
        summary = outcome.summary
        if summary is None:
            rows.add_row(size, outcome.point["chip"], str((outcome.error or {}).get("message", "")).partition("\n")[0])
            continue
        movers = [engine for name, engine in summary["engines"].items() if name.startswith("dma")]
        overhead = sum(engine["causes_ps"].get("overhead", 0) for engine in movers)
        busy = max(sum(engine["busy_ps"] for engine in movers), 1)
        moved = digits(gb_per_s(summary))
        cells = (time(summary["makespan_ps"]), moved, percent(summary["mbu"]), percent(overhead / busy))
        rows.add_row(size, outcome.point["chip"], *cells)
    return rows


def plot(found: neurosim.Sweep, itemsize: int, path: Path) -> None:
    """Draw bandwidth over the size of descriptors, a line per chip."""
    figure = new_figure(7, 4.5)
    axes = figure.subplots()
    lines: dict[str, list[tuple[int, float]]] = {}
    for outcome in found:
        if outcome.summary is not None:
            place = (outcome.point["columns"] * itemsize, gb_per_s(outcome.summary))
            lines.setdefault(outcome.point["chip"], []).append(place)
    for chip, places in lines.items():
        axes.plot(*zip(*sorted(places), strict=True), marker="o", label=chip)
    axes.set_xscale("log", base=2)
    axes.set(xlabel="bytes of a descriptor", ylabel="HBM traffic [GB/s]", title="simulated, not measured")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    write_figure(figure, path)


def main() -> None:
    """Parse options, run the grid in parallel, print a table, write a plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--columns", type=int, default=4096)
    parser.add_argument("--least", type=int, default=16, help="columns of the narrowest block")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--chip", default="trn2,trn3", help="chips, with commas between them")
    parser.add_argument("--jobs", type=int, help="processes; by default one per CPU")
    parser.add_argument("--plot", type=Path, help="a .png, .svg or .pdf file")
    options = parser.parse_args()
    try:
        kernel = load_kernel(f"{packaged_kernel('copy_columns.py')}:copy_columns")
        tensor = neurosim.spec((options.rows, options.columns), options.dtype)
        grid = {"columns": widths(options.columns, options.least), "chip": options.chip.split(",")}
        run = neurosim.sweep(kernel, grid, jobs=options.jobs)
        found, itemsize = run(tensor), tensor.dtype.size_bytes
        title = f"copying {options.rows} × {options.columns} {options.dtype} through SBUF: simulated, not measured"
        Console(width=WIDTH, highlight=False).print(title, table(found, itemsize))
        if options.plot:
            plot(found, itemsize, options.plot)
    except NeurosimError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
