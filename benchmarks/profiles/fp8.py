"""FP8 against BF16: the same matmul with half of the bytes, and with two products of a cell at once.

    python benchmarks/profiles/fp8.py [--sizes 512,1024,2048] [--chip trn2] [--plot fp8.png]

``float8`` alone saves traffic; ``double_row`` also halves the tensor engine's rows. Simulated times without the launch.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table

import neurosim
from neurosim.errors import NeurosimError
from neurosim.report.picture import new_figure, write_figure
from neurosim.report.units import decimal, digits, percent, time
from neurosim.shell.loading import load_kernel, packaged_kernel

WIDTH = 100
CASES = {
    "bfloat16": ("matmul.py:matmul", "bfloat16"),
    "float8": ("matmul.py:matmul", "float8_e4m3"),
    "float8 double_row": ("matmul_double_row.py:matmul_double_row", "float8_e4m3"),
}


class Row(NamedTuple):
    """A run: which case at which size, and its result, or why there is none."""

    case: str
    size: int
    result: neurosim.Result | None
    refusal: str


def numbers(text: str) -> list[int]:
    """Return the numbers of a list such as ``512,1024``."""
    found = text.split(",")
    if not all(part.isdecimal() and int(part) > 0 for part in found):
        raise argparse.ArgumentTypeError(f"{text!r} is no list such as 512,1024")
    return [int(part) for part in found]


def run(case: str, size: int, chip: neurosim.Chip) -> Row:
    """Run a case without values; a chip that has no such instruction says so."""
    target, dtype = CASES[case]
    file, _, name = target.partition(":")
    kernel = load_kernel(f"{packaged_kernel(file)}:{name}")
    try:
        return Row(
            case, size, neurosim.profile(kernel, chip, values=False)(*[neurosim.spec((size, size), dtype)] * 2), ""
        )
    except (NeurosimError, AssertionError) as error:
        return Row(case, size, None, str(error).partition("\n")[0])


def table(rows: list[Row]) -> Table:
    """Return a row per case and size, with how much faster than bfloat16 it is."""
    found = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("size", "case", "time", "TFLOPS", "MFU", "HBM", "against bfloat16"):
        found.add_column(name, justify="left" if name == "case" else "right", no_wrap=True)
    base = {row.size: row.result.timeline.makespan_ps for row in rows if row.case == "bfloat16" and row.result}
    for row in rows:
        if row.result is None:
            found.add_row(str(row.size), f"{row.case}: {row.refusal}")
            continue
        summary = row.result.summary()
        moved = decimal(summary["hbm"]["read_bytes"] + summary["hbm"]["written_bytes"], "B")
        achieved = digits(summary["roofline"]["achieved_tflop_per_s"])
        gain = f"× {base[row.size] / summary['makespan_ps']:.2f}" if row.size in base else ""
        taken = time(summary["makespan_ps"])
        found.add_row(str(row.size), row.case, taken, achieved, percent(summary["mfu"]), moved, gain)
    return found


def plot(rows: list[Row], path: Path) -> None:
    """Draw what each case achieves over the size."""
    figure = new_figure(7, 4.5)
    axes = figure.subplots()
    for case in CASES:
        done = [(row.size, row.result) for row in rows if row.case == case and row.result]
        if done:
            reached = [result.summary()["roofline"]["achieved_tflop_per_s"] for _, result in done]
            axes.plot([size for size, _ in done], reached, marker="o", label=case)
    axes.set_xscale("log", base=2)
    axes.set(xlabel="M = K = N", ylabel="TFLOP/s", title="simulated, not measured")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    write_figure(figure, path)


def main() -> None:
    """Parse options, run, print a table, write a plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=numbers, default=[512, 1024, 2048], help="M = K = N, with commas between them")
    parser.add_argument("--chip", default="trn2")
    parser.add_argument("--plot", type=Path, help="a .png, .svg or .pdf file")
    options = parser.parse_args()
    try:
        chip = neurosim.load_chip(options.chip)
        rows = [run(case, size, chip) for size in options.sizes for case in CASES]
        Console(width=WIDTH, highlight=False).print(f"on {chip.name}: simulated, not measured", table(rows))
        if options.plot:
            plot(rows, options.plot)
    except NeurosimError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
