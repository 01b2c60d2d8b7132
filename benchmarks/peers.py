"""The simulator beside others: the same maths on the same machine in one run, each simulator in its own process.

    python benchmarks/peers.py [--size 2048] [--repeats 3] [--rounds 3] [--kept peers.jsonl] [--json peers.json] …

Peers come with the extra ``bench``; one that is not installed, fails or takes too long is a row that says so. Times are
medians after one run that is not counted (it compiles; where it takes minutes it is the only one, and counts), and
values are checked against float64. neurosim's rows hold values, checks and timeline; what one run of each tells is a
column. SCALE-Sim takes minutes and gigabytes for 2048, so that it runs at 512, beside neurosim at 512, unless
``--full`` is given. A peer that needs other versions of its libraries runs with
``--python 'SCALE-Sim=/path/to/python'``; one that is no Python package is timed by its command, which computes one
matmul of that size: ``--command 'ONNXim={"matmul bfloat16": "bin/Simulator …"}'``. With ``--kept`` a run that was
interrupted goes on where it was; its ratios then are of runs at several times.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from speed import describe_machine, without_slow_blas

from neurosim.errors import ConfigurationError
from neurosim.installation import own_digest
from neurosim.sweeps.journal import Journal

_HERE = Path(__file__).resolve().parent
CASES = ("matmul bfloat16", "matmul float32", "attention bfloat16")
OURS = "neurosim"
SLOW = {"SCALE-Sim": 512}
"""Peers that run at a size of their own."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "XLA_FLAGS")
"""Settings that change what a run takes."""
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


class Run(NamedTuple):
    """One peer on one case, in one of the rounds; how it is started: a Python, or a command of a shell."""

    case: str
    size: int
    peer: str
    round: int
    repeats: int
    python: str
    command: str | None

    @property
    def key(self) -> str:
        """Names what is run, and with which sources and settings of threads."""
        digest = hashlib.sha256(own_digest().encode())
        for source in sorted(_HERE.glob("peer_kernels/*.py")):
            digest.update(source.read_bytes())
        digest.update(repr((self, [os.environ.get(name) for name in THREADS])).encode())
        return digest.hexdigest()

    def found(self, limit_s: float) -> dict[str, Any]:
        """Return what the peer says, in a process of its own; a row in words where it says nothing."""
        try:
            if self.command is not None:
                return command_row(self.command, self.repeats, limit_s)
            return peer_row(self.python, [self.peer, self.case, str(self.size), str(self.repeats)], limit_s)
        except subprocess.TimeoutExpired:
            return {"missing": f"not done in {limit_s:g} s"}
        except OSError as error:
            return {"missing": f"it cannot be started: {error}"}


def peer_row(python: str, arguments: Sequence[str], limit_s: float) -> dict[str, Any]:
    """Return what ``peer_kernels.runs`` says; OSError where there is no such Python."""
    command = [python, "-m", "peer_kernels.runs", *arguments]
    environment = _with_paths(_HERE, _HERE.parent)
    done = _completed(command, limit_s, env=environment)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no word"])[-1]
        return {"missing": f"it fails ({done.returncode}): {said}"}
    try:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return {"missing": f"it says nothing that is a row: {done.stdout.strip()[-80:]!r}"}
    return found


def command_row(command: str, repeats: int, limit_s: float) -> dict[str, Any]:
    """Return the seconds that a command of a shell takes."""
    times, processor = [], []
    for _ in range(repeats + 1):
        start, used = time.perf_counter(), _of_children()
        done = _completed(["sh", "-c", command], limit_s)
        times.append(time.perf_counter() - start)
        processor.append(_of_children() - used)
        if done.returncode:
            return {"missing": f"its command ends with {done.returncode}: {done.stderr.strip()[-80:]}"}
    return {"times_s": times[1:], "cpu_s": processor[1:], "error": "", "version": "", "tells": ""}


def _completed(command: list[str], limit_s: float, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; at the limit, or when it is interrupted, what it started ends with it."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes, **options) as process:
        try:
            said, errors = process.communicate(timeout=limit_s)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, said, errors)


def _with_paths(*folders: Path) -> dict[str, str]:
    """Return the environment with more places for modules."""
    paths = [*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def _of_children() -> float:
    """Return the processor time of all processes that have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def planned(options: argparse.Namespace) -> list[Run]:
    """Return the runs of all rounds; in each round every simulator has its turn in every case."""
    from peer_kernels.runs import PEERS

    pythons, commands = dict(options.python), dict(options.command)
    names = [name for name in (*PEERS, *commands) if not options.only or name in options.only]
    sizes = {name: min(SLOW[name], options.size) for name in names if name in SLOW and not options.full}
    return [
        Run(case, size, name, turn, options.repeats, pythons.get(name, sys.executable), _command(commands, name, case))
        for turn in range(options.rounds)
        for case in options.case or CASES
        for size in dict.fromkeys([options.size, *sizes.values()])
        for name in names
        if size == sizes.get(name, options.size) or name == OURS
    ]


def _command(commands: dict[str, dict[str, str]], name: str, case: str) -> str | None:
    """Return the command of a peer that has one; one that says why there is none for this case."""
    return commands[name].get(case, "echo there is none for this >&2; exit 1") if name in commands else None


def measured(options: argparse.Namespace, journal: Journal) -> list[dict[str, Any]]:
    """Return a row per case and peer with the times of all rounds, ours first. What failed in one is in the others."""
    rows: dict[tuple[str, int, str], dict[str, Any]] = {}
    for run in planned(options):
        found = journal.entries.get(run.key)
        if found is None:
            found = run.found(options.limit)
            if "missing" not in found:
                journal.add(run.key, found)
        place = run[:3]
        row = {"case": run.case, "size": run.size, "peer": run.peer, **found}
        before = rows.setdefault(place, row)
        if before is not row and "times_s" in found:
            rows[place] = row | {times: before.get(times, []) + found[times] for times in ("times_s", "cpu_s")}
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return list(rows.values())


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
            made.add_row(*head, "", f"[dim]{escape(row['missing'][:70])}[/]")
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


def whole_process(size: int, repeats: int) -> dict[str, list[float]]:
    """Return the seconds of processes that import, launch twice and check, and of all processors; one is not counted.

    Raises:
        subprocess.CalledProcessError: it fails.
    """
    environment = _with_paths(_HERE.parent)
    times, processor = [], []
    for _ in range(repeats + 1):
        start, used = time.perf_counter(), _of_children()
        subprocess.run([sys.executable, "-c", _ONCE, str(size)], check=True, env=environment)
        times.append(time.perf_counter() - start)
        processor.append(_of_children() - used)
    return {"process_s": times[1:], "process_cpu_s": processor[1:]}


def _report_process(options: argparse.Namespace) -> dict[str, list[float]]:
    """Print and return what a whole process takes; nothing where it fails, which is printed."""
    try:
        process = whole_process(options.size, options.repeats)
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"a whole process, two launches and a check: it fails: {error}")
        return {}
    seconds, processor = map(statistics.median, process.values())
    budget = f"budget {PROCESS_BUDGET_S:g} s" if options.size == 2048 else "the budget is for 2048"
    print(f"a whole process, two launches and a check: {seconds:.2f} s, {processor:.2f} s of a processor ({budget})")
    return process


def named_path(text: str) -> tuple[str, str]:
    """Return name and path of ``NAME=PATH``."""
    name, sign, path = text.partition("=")
    if not (name and sign and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATH")
    return name, path


def named_commands(text: str) -> tuple[str, dict[str, str]]:
    """Return name and commands by case of ``NAME=JSON``."""
    name, path = named_path(text)
    try:
        commands = json.loads(path)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"what follows {name}= is no JSON: {error}") from None
    if not isinstance(commands, dict) or not set(commands) <= set(CASES):
        raise argparse.ArgumentTypeError(f"what follows {name}= has to be an object, its names of {', '.join(CASES)}")
    return name, commands


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--size", type=int, default=2048, help="a multiple of 512")
    parser.add_argument("--repeats", type=int, default=3, help="runs that count, in each process")
    parser.add_argument("--rounds", type=int, default=1, help="all of it so many times, each simulator in its turn")
    parser.add_argument("--full", action="store_true", help="slow simulators at the same size as the others, too")
    parser.add_argument("--case", action="append", choices=CASES, help="this case alone; may be given several times")
    parser.add_argument("--only", action="append", help="this simulator alone; may be given several times")
    parser.add_argument("--python", action="append", default=[], type=named_path, metavar="NAME=PATH")
    parser.add_argument(
        "--command", action="append", default=[], type=named_commands, metavar="NAME=JSON", help="by case, a command"
    )
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds for one simulator in one case, 3600")
    parser.add_argument(
        "--kept", type=Path, help="keep what each run took here; those of these sources do not run again"
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--plot", type=Path, help="draw the ratios into this file")
    options = parser.parse_args()
    if options.size < 512 or options.size % 512:
        parser.error("--size must be a multiple of 512")
    if min(options.repeats, options.rounds) < 1:
        parser.error("--repeats and --rounds must be 1 or more")
    without_slow_blas()
    describe_machine()
    try:
        with Journal(options.kept) as journal:
            rows = with_ratios(measured(options, journal))
    except ConfigurationError as error:
        sys.exit(str(error))
    if not rows:
        sys.exit("no simulator has such a name")
    Console(width=None if sys.stdout.isatty() else 200).print(table(rows))
    process = {} if options.only and OURS not in options.only else _report_process(options)
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, **process}, indent=1) + "\n")
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
