"""The matmul ladder: what each change of schedule is worth, from one tile at a time to blocks that stay in SBUF.

    python benchmarks/profiles/matmul_ladder.py [--size 2048] [--dtype bfloat16] [--chip trn2] [--plot ladder.png]

Simulated times without the launch. The plot has each rung under the roof of its own traffic.
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
from neurosim.report.units import decimal, digits, percent, time
from neurosim.report.words import words
from neurosim.shell.loading import load_kernel, packaged_kernel

RUNGS = ("matmul_tiled", "matmul_hoisted", "matmul_blocked_free", "matmul_blocked")
WIDTH = 110


def profiles(size: int, dtype: str, chip: str) -> dict[str, neurosim.Result]:
    """Return a run of each rung, recorded without values, and of the kernel that is there to be used."""
    specs = [neurosim.spec((size, size), dtype)] * 2
    targets = {rung: f"{packaged_kernel('matmul_ladder.py')}:{rung}" for rung in RUNGS}
    targets["matmul"] = f"{packaged_kernel('matmul.py')}:matmul"
    return {name: neurosim.profile(load_kernel(target), chip, values=False)(*specs) for name, target in targets.items()}


def table(results: dict[str, neurosim.Result]) -> Table:
    """Return a row per rung, with what it gained over the one before it and why."""
    found = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("rung", "time", "TFLOPS", "MFU", "HBM", "faster by"):
        found.add_column(name, justify="left" if name == "rung" else "right", no_wrap=True)
    found.add_column("mostly since the tensor engine's time changed by")
    before = None
    for name, result in results.items():
        summary = result.summary()
        moved = decimal(summary["hbm"]["read_bytes"] + summary["hbm"]["written_bytes"], "B")
        achieved = digits(summary["roofline"]["achieved_tflop_per_s"])
        cells = [name, time(summary["makespan_ps"]), achieved, percent(summary["mfu"]), moved]
        if before is None:
            found.add_row(*cells, "", "")
        else:
            change = neurosim.diff(before, result)
            gain = before.timeline.makespan_ps / result.timeline.makespan_ps
            cause, ps = next(iter(change.engines["tensor"].items()), ("nothing", 0.0))
            found.add_row(*cells, f"× {gain:.2f}", f"{words(cause)} {ps / 1e6:+.1f} µs")
        before = result
    return found


def plot(results: dict[str, neurosim.Result], path: Path) -> None:
    """Draw the rungs under the roof."""
    figure = new_figure(7, 5)
    axes = figure.subplots()
    roofs = {name: result.summary()["roofline"] for name, result in results.items()}
    intensities = [roof["intensity_flop_per_byte"] for roof in roofs.values()]
    roof = roofs[RUNGS[-1]]
    peak, ridge = roof["peak_tflop_per_s"], roof["ridge_flop_per_byte"]
    ends = [min(intensities) / 3, ridge, 3 * max(*intensities, ridge)]
    axes.plot(ends, [peak * min(end / ridge, 1) for end in ends], color="#555555")
    for (name, found), intensity in zip(roofs.items(), intensities, strict=True):
        axes.plot([intensity], [found["achieved_tflop_per_s"]], "o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="intensity [FLOP per byte of HBM traffic]", ylabel="TFLOP/s")
    axes.legend()
    write_figure(figure, path)


def main() -> None:
    """Parse options, run, print a table, write a plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=2048, help="M = K = N")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--chip", default="trn2")
    parser.add_argument("--plot", type=Path, help="a .png, .svg or .pdf file")
    options = parser.parse_args()
    try:
        results = profiles(options.size, options.dtype, options.chip)
        Console(width=WIDTH, highlight=False).print(
            f"{options.size}³ {options.dtype} on {options.chip}: simulated, not measured", table(results)
        )
        if options.plot:
            plot(results, options.plot)
    except NeurosimError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
