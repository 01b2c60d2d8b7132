"""The simulator beside others: the same maths on the same machine in one run, each simulator in its own process.

    python benchmarks/peers.py [--size 2048] [--repeats 3] [--rounds 3] [--json peers.json] [--plot peers.png]

Peers come with the extra ``bench``; one that is not installed is a row that says so. Times are medians after one run
that is not counted (it compiles), and values are checked against float64. neurosim's rows hold values, checks and
timeline; what one run of each tells is a column. SCALE-Sim takes minutes and gigabytes for 2048, so that it runs at
512, beside neurosim at 512, unless ``--full`` is given. A peer that needs other versions of its libraries runs with
``--python 'SCALE-Sim=/path/to/python'``; one that is no Python package is timed by its command, which computes one
matmul of that size: ``--command 'ONNXim={"matmul bfloat16": "bin/Simulator …"}'``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from speed import describe_machine, without_slow_blas

CASES = ("matmul bfloat16", "matmul float32", "attention bfloat16")
OURS = "neurosim"
SLOW = {"SCALE-Sim": 512}
"""Peers that run at a size of their own."""
PROCESS_BUDGET_S = 1.5
"""For a whole process: import, two launches of a 2048 × 2048 × 2048 bfloat16 matmul, and a check."""
_ONCE = """
import sys
import numpy as np, neurosim
from neurosim.shell.demo import matmul_inputs
from neurosim.shell.loading import load_kernel, packaged_kernel
kernel = load_kernel(f"{packaged_kernel('matmul.py')}:matmul")
a_t, b = matmul_inputs(int(sys.argv[1]))
first, second = (neurosim.profile(kernel, "trn2")(a_t, b).outputs for _ in range(2))
wide = a_t.astype(np.float32).T @ b.astype(np.float32)
assert np.array_equal(first.view(np.uint16), second.view(np.uint16))
assert np.abs(first.astype(np.float32) - wide).max() < 0.01 * np.abs(wide).max()
"""


def run(name: str, case: str, size: int, repeats: int, python: str) -> dict[str, Any]:
    """Run one peer on one case in a process of its own; return what it says, and its peak memory."""
    command = [python, "-m", "peer_kernels.runs", name, case, str(size), str(repeats)]
    folder = Path(__file__).resolve().parent
    paths = [str(folder), str(folder.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        return {"missing": f"it fails: {(done.stderr.strip().splitlines() or ['no word'])[-1]}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def command_row(command: str, repeats: int) -> dict[str, Any]:
    """Return the seconds that a command of a shell takes."""
    times, processor = [], []
    for _ in range(repeats + 1):
        start, used = time.perf_counter(), _of_children()
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        times.append(time.perf_counter() - start)
        processor.append(_of_children() - used)
        if done.returncode:
            return {"missing": f"its command ends with {done.returncode}: {done.stderr.strip()[-80:]}"}
    return {"times_s": times[1:], "cpu_s": processor[1:], "error": "", "version": "", "tells": ""}


def _of_children() -> float:
    """Return the processor time of all processes that have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a row per case and peer, ours first."""
    from peer_kernels.runs import PEERS

    pythons = dict(entry.split("=", 1) for entry in options.python)
    commands = {name: json.loads(text) for name, text in (entry.split("=", 1) for entry in options.command)}
    names = [name for name in (*PEERS, *commands) if not options.only or name in options.only]
    sizes = {name: min(SLOW[name], options.size) for name in names if name in SLOW and not options.full}
    rows = []
    for case in options.case or CASES:
        for size in dict.fromkeys([options.size, *sizes.values()]):
            for name in names:
                if size != sizes.get(name, options.size) and name != OURS:
                    continue
                if name in commands:
                    text = commands[name].get(case)
                    found = command_row(text, options.repeats) if text else {"missing": "no command for this"}
                else:
                    found = run(name, case, size, options.repeats, pythons.get(name, sys.executable))
                rows.append({"case": case, "size": size, "peer": name, **found})
                print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return rows


def in_rounds(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return rows of several rounds, so that each simulator has its share of what else the machine does."""
    first, *others = [measured(options) for _ in range(options.rounds)]
    for rows in others:
        for row, again in zip(first, rows, strict=True):
            for times in ("times_s", "cpu_s"):
                if times in row:
                    row[times] += again.get(times, [])
    return first


def with_ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with medians, and how often as long as neurosim's run of the same size they take.

    ``ratio`` is of the time on the clock, ``cpu_ratio`` of all processors' time, which other processes disturb less.
    """
    result = []
    for row in rows:
        ours = next((one for one in rows if _place(one) == _place(row) and one["peer"] == OURS), {})
        more = {}
        for times, median, ratio in (("times_s", "median_s", "ratio"), ("cpu_s", "cpu_median_s", "cpu_ratio")):
            if times in row:
                more[median] = statistics.median(row[times])
                if times in ours:
                    more[ratio] = more[median] / statistics.median(ours[times])
        result.append(row | more)
    return result


def _place(row: dict[str, Any]) -> tuple[str, int]:
    return row["case"], row["size"]


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return the rows as a table for a terminal."""
    made = Table("case", "size", "simulator", "version", "tells", box=None, pad_edge=False)
    for heading in ("median ms", "least", "most", "× neurosim", "cpu ms", "× neurosim", "peak MiB", "largest error"):
        made.add_column(heading, justify="right")
    for row in rows:
        head = (row["case"], str(row["size"]), row["peer"])
        if "missing" in row:
            made.add_row(*head, f"[dim]{row['missing'][:70]}[/]")
            continue
        times = [f"{1e3 * value:.1f}" for value in (row["median_s"], min(row["times_s"]), max(row["times_s"]))]
        ratio, cpu_ratio = (f"{row[name]:.2f}" if name in row else "" for name in ("ratio", "cpu_ratio"))
        used = (f"{1e3 * row['cpu_median_s']:.1f}", cpu_ratio)
        tells = (row["version"], row["tells"])
        made.add_row(*head, *tells, *times, ratio, *used, str(row.get("peak_mib", "")), row["error"])
    return made


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw how often as long as neurosim each peer takes, per case."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    cases = list(dict.fromkeys(row["case"] for row in rows))
    figure, axes = pyplot.subplots(1, len(cases), figsize=(4.2 * len(cases), 3.2), squeeze=False, layout="constrained")
    for axis, case in zip(axes[0], cases, strict=True):
        shown = [row for row in rows if row["case"] == case and "ratio" in row]
        labels = [row["peer"] + ("" if row["size"] == rows[0]["size"] else f" ({row['size']})") for row in shown]
        places = range(len(shown))
        colours = ["tab:orange" if row["peer"].startswith(OURS) else "tab:blue" for row in shown]
        axis.barh(places, [row["ratio"] for row in shown], color=colours)
        axis.set_yticks(places, labels)
        axis.invert_yaxis()
        axis.set_xscale("log")
        axis.set_xlabel("wall time, multiples of neurosim's")
        axis.set_title(case)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def whole_process(size: int, repeats: int) -> list[float]:
    """Return the seconds of processes that import, launch twice and check; one is not counted."""
    root = str(Path(__file__).resolve().parents[1])
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", _ONCE, str(size)], check=True, env=os.environ | {"PYTHONPATH": paths})
        times.append(time.perf_counter() - start)
    return times[1:]


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--size", type=int, default=2048, help="a multiple of 512")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1, help="all of it so many times, each simulator in its turn")
    parser.add_argument("--full", action="store_true", help="slow simulators at the same size as the others, too")
    parser.add_argument("--case", action="append", choices=CASES, help="this case alone; may be given several times")
    parser.add_argument("--only", action="append", help="this simulator alone; may be given several times")
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--command", action="append", default=[], metavar="NAME=JSON", help="by case, a command")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--plot", type=Path, help="draw the ratios into this file")
    options = parser.parse_args()
    if options.size % 512:
        parser.error("--size must be a multiple of 512")
    without_slow_blas()
    describe_machine()
    rows = with_ratios(in_rounds(options))
    Console(width=None if sys.stdout.isatty() else 200).print(table(rows))
    process = whole_process(options.size, options.repeats)
    budget = f"budget {PROCESS_BUDGET_S:g} s" if options.size == 2048 else "the budget is for 2048"
    print(f"a whole process, two launches and a check: {statistics.median(process):.2f} s ({budget})")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "process_s": process}, indent=1) + "\n")
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
