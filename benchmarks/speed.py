"""The simulator's own speed and memory, beside what they are to be.

    python benchmarks/speed.py [--repeats 5] [--write README.md]
    python benchmarks/speed.py --timing [--records 1000000]
    python benchmarks/speed.py --trace [--records 1000000]
    python benchmarks/speed.py --page [--records 100000]

These are wall times of this machine, not simulated times. Ratios are of work that is done in turns in one run: values,
checks and timeline of a bfloat16 kernel against the same maths in NumPy's float32, in a process that has run it for
seconds. What is said to be of a processor is its time, the least of many tries where it is of instructions. Peak memory
is that of a process that runs the simulator once and nothing else.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from costs import cases, processes
from costs.figures import Figure, show, write
from costs.processes import peak_mib
from costs.stages import show_stages, stages

CALL_US, RECORD_BYTES = 10.0, 200.0
"""What one more instruction is to take at most, the median over instructions on tiles of one element."""
MATMUL, LARGE_MATMUL, ATTENTION = 4.0, 3.5, 8.0
"""How many times NumPy's time the simulator is to take at most."""
PEAK_MB, IMPORT_S, FIRST_S, LATER_S = 250.0, 0.3, 15.0, 1.0
TIMING_BUDGET_S, TIMING_BUDGET_GIB = 5.0, 1.5
"""For lowering and scheduling a program of 1,000,000 records, the program's own memory included."""
AGAIN_BUDGET_S = 0.3
"""For timing a program of 100,000 records again, on a changed chip."""
TRACE_BUDGET_S = 30
"""For writing a trace of 1,000,000 records."""
PAGE_BUDGET_S, PAGE_BUDGET_MB = 3, 20
"""For a page of 100,000 records: from navigation to a zoom that is answered, in a headless Chromium."""
SLOWING = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
"""Settings that make NumPy's matmul slower, and the ratio look better than it is."""


def without_slow_blas() -> None:
    """Start again without the variables that slow NumPy down: OpenBLAS reads them when it is loaded."""
    if any(name in os.environ for name in SLOWING):
        environment = {name: value for name, value in os.environ.items() if name not in SLOWING}
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def seconds(action: Callable[[], Any], repeats: int) -> list[float]:
    """Return the wall times of ``repeats`` calls, after one that is not counted."""
    action()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return times


def parts(size: int, repeats: int) -> None:
    """Print where the time of a matmul goes."""
    import neurosim
    from neurosim.report.summary import summary
    from neurosim.timing import time as time_program

    case, chip = cases.matmul(size), neurosim.load_chip("trn2")
    profile, simulate = (partial(way, case.kernel, chip=chip) for way in (neurosim.profile, neurosim.simulate))
    result = simulate(replay=False)(*case.operands)
    program = result.program
    specs = [neurosim.spec(array.shape, array.dtype) for array in case.operands]
    rows: dict[str, Callable[[], Any]] = {
        "numpy float32 a @ b": case.numpy,
        "simulator: values and timeline": lambda: profile(replay=False)(*case.operands),
        "  values, checks and record": lambda: simulate(replay=False)(*case.operands),
        "  record alone, without values": lambda: simulate(replay=False, values=False)(*specs),
        "  timeline of the record": lambda: time_program(program, chip),
        "  summary, for a report": lambda: summary(program, result.timeline, chip),
        "the same run replayed": lambda: profile(replay=True)(*case.operands),
    }
    print(f"{size} × {size} × {size} bfloat16 on {chip.name}, {len(program)} instructions; wall time, not simulated")
    print(f"{'':34}{'median':>10}{'least':>10}{'most':>10}   ms")
    for name, action in rows.items():
        times = seconds(action, repeats)
        cells = (statistics.median(times), min(times), max(times))
        print(f"{name:34}" + "".join(f"{1e3 * cell:10.1f}" for cell in cells))


def instructions(repeats: int) -> list[Figure]:
    """Print what one more of each instruction costs, and return the medians over all."""
    from costs.instructions import LEAST_ROUNDS, costs, medians

    found = costs(max(8 * repeats, LEAST_ROUNDS))
    print(
        "one more instruction with values, on the smallest tile it takes: µs of a processor, the least of many bursts, "
        "and with a view of each operand"
    )
    for name, cost in sorted(found.items(), key=lambda entry: entry[1]):
        print(f"  {name:28}{1e6 * cost.call:8.1f}{1e6 * cost.viewed:8.1f}   {' × '.join(map(str, cost.largest))}")
    call, viewed = medians(found)
    return [
        Figure("one more instruction on a tile of one element, of a processor, median of all instructions",
               1e6 * call, CALL_US, "µs"),
        Figure("the same with a new view of a part of a tensor for each operand", 1e6 * viewed, CALL_US, "µs"),
    ]  # fmt: skip


def additions() -> int:
    """Return a sum, of a loop without the simulator: machines, and hours of one, differ by more than twice."""
    total = 0
    for number in range(10_000_000):
        total += number
    return total


def figures(repeats: int) -> list[Figure]:
    """Measure everything that has an aim."""
    matmul, large, attention = cases.matmul(2048), cases.matmul(4096), cases.attention()
    found = [Figure("for scale: a Python loop of 10,000,000 additions", statistics.median(seconds(additions, repeats)),
                    None, "s")]  # fmt: skip
    found += instructions(repeats)
    found += [
        Figure("memory that the record of an instruction keeps", processes.record_bytes(cases.long_program),
               RECORD_BYTES, "bytes"),
        Figure("matmul 2048³ bfloat16, against NumPy's float32", cases.ratio(matmul, repeats), MATMUL),
        Figure("the same, replayed", cases.ratio(matmul, repeats, replay=True), None),
        Figure("matmul 4096³ bfloat16, against NumPy's float32", cases.ratio(large, repeats), LARGE_MATMUL),
        Figure("attention 2048 × 128, one head, bfloat16, against NumPy's float32",
               cases.ratio(attention, 2 * repeats), ATTENTION),
        Figure("peak memory of a process that runs matmul 2048³", peak_of_one_run(2048), PEAK_MB, "MB"),
        Figure("`import neurosim`, of a processor", processes.seconds(processes.IMPORT, repeats), IMPORT_S, "s"),
        Figure("a first kernel where nothing is compiled yet, of a processor", processes.first_kernel(), FIRST_S, "s"),
        Figure("a first kernel in a later process, import to report, of a processor",
               processes.seconds(processes.SMALL, repeats), LATER_S, "s"),
    ]  # fmt: skip
    return found


def peak_of_one_run(size: int) -> float:
    """Return the peak memory in MB of a process that runs a matmul once, with values, times and report."""
    command = [sys.executable, __file__, "--size", str(size), "--once"]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) * 2**20 / 1e6


def once(size: int) -> None:
    """Run the simulator once; print the peak memory in MiB."""
    import neurosim
    from neurosim.shell.demo import matmul_inputs
    from neurosim.shell.loading import load_kernel, packaged_kernel

    kernel = load_kernel(f"{packaged_kernel('matmul.py')}:matmul")
    neurosim.profile(kernel, chip="trn2")(*matmul_inputs(size)).report()
    print(peak_mib())


def measure_timing(records: int) -> None:
    """Print how long a long program takes to lower and schedule, and one of a tenth to be timed again."""
    from neurosim.timing import time as time_program

    short = cases.long_program(records // 10)
    slow = short.chip.replace(hbm__bandwidth_gb_per_s=short.chip.hbm.bandwidth_gb_per_s / 2)
    time_program(short.program, slow)  # compiles, or reads what was compiled
    used = time.process_time()
    again = seconds(lambda: time_program(short.program, slow), 5)
    used = (time.process_time() - used) / 6
    print(
        f"timing {len(short.program)} records again, on a changed chip: {statistics.median(again):.2f} s "
        f"(least {min(again):.2f}), {used:.2f} s of a processor (budget {AGAIN_BUDGET_S:g} for 100,000)"
    )
    show_stages(stages(lambda: time_program(short.program, slow)))
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/program"
        cases.long_program(records).program.save(path)
        command = [sys.executable, __file__, "--scheduled", path]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="")


def scheduled(path: str) -> None:
    """Print how long a saved program takes to lower and schedule, in a process that does nothing else."""
    from neurosim.devices import load_chip
    from neurosim.program import Program
    from neurosim.timing.schedule import schedule

    chip = load_chip("trn2")
    schedule(cases.long_program(100).program, chip, "compiler", throttle=True)  # reads what was compiled
    program = Program.load(path)
    start, used = time.perf_counter(), time.process_time()
    steps = stages(lambda: schedule(program, chip, "compiler", throttle=True))
    taken, used = time.perf_counter() - start, time.process_time() - used
    print(
        f"lowering and scheduling {len(program)} records: {taken:.1f} s, {used:.1f} s of a processor "
        f"(budget {TIMING_BUDGET_S:g} for 1,000,000), {peak_mib() / 1024:.2f} GiB (budget {TIMING_BUDGET_GIB:g})"
    )
    show_stages(steps)


def measure_trace(records: int) -> None:
    """Print how long the trace of a long program takes to write, plain and compressed, each in its own process."""
    import neurosim  # noqa: F401  (makes nki importable)

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/program"
        cases.long_program(records).program.save(path)
        for name in ("trace.json", "trace.json.gz"):
            command = [sys.executable, __file__, "--traced", path, f"{folder}/{name}"]
            print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="")
            Path(folder, name).unlink()


def traced(path: str, trace: str) -> None:
    """Print how long a saved program's trace takes to write, and how much memory that takes beside the timeline's."""
    from neurosim.run import reopen

    result = reopen(path, "trn2")
    ops = sum(len(timeline.ops) for timeline in result.timelines.values())
    before_mib, start, used = peak_mib(), time.perf_counter(), time.process_time()
    result.perfetto(trace)
    taken, used = time.perf_counter() - start, time.process_time() - used
    print(
        f"{Path(trace).name} of {len(result.program)} records, {ops} ops: {taken:.1f} s, {used:.1f} s of a processor "
        f"(budget {TRACE_BUDGET_S} for 1,000,000); {Path(trace).stat().st_size / 2**20:.0f} MiB; "
        f"peak memory {before_mib:.0f} MiB before, {peak_mib():.0f} MiB after"
    )


def measure_page(records: int) -> None:
    """Print how large the page of a long program is, and how long a headless Chromium takes until it answers."""
    import shutil

    import neurosim  # noqa: F401  (makes nki importable)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "page.html")
        result = cases.long_program(records)
        start = time.perf_counter()
        result.html(path)
        print(
            f"page of {len(result.program)} records: {time.perf_counter() - start:.1f} s to write, "
            f"{path.stat().st_size / 1e6:.1f} MB (budget {PAGE_BUDGET_MB} for 100,000)"
        )
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        if chromium is None:
            print("no Chromium is on PATH to open it")
            return
        opened = [answered(path, chromium) for _ in range(3)]
    shown, zoomed = min(opened, key=lambda times: times[1])
    print(
        f"in a headless Chromium, the best of three: {shown:.1f} s until it is drawn, {zoomed:.1f} s until a zoom is "
        f"answered (budget {PAGE_BUDGET_S} for 100,000)"
    )


def answered(page: Path, chromium: str) -> tuple[float, float]:
    """Return the seconds from navigation until the page is drawn, and until a turn of the wheel has zoomed it."""
    from playwright.sync_api import sync_playwright

    plot = "Bokeh.documents[0].roots()[0]"
    span = f"{plot}.x_range.end - {plot}.x_range.start"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport={"width": 1300, "height": 900})
        start = time.perf_counter()
        tab.goto(page.as_uri(), wait_until="commit")
        tab.wait_for_function("window.Bokeh && Bokeh.documents.length && Bokeh.documents[0].is_idle", timeout=300_000)
        shown = time.perf_counter() - start
        whole = tab.evaluate(span)
        tab.mouse.move(700, 400)
        tab.mouse.wheel(0, -400)
        tab.wait_for_function(f"{span} < {whole}", timeout=300_000)
        zoomed = time.perf_counter() - start
        browser.close()
    return shown, zoomed


def describe_machine() -> str:
    """Print what the times depend on, and return it: the processors, and the BLAS that NumPy calls."""
    told = [f"{os.cpu_count()} processors"]
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        pass  # it comes with the `bench` extra
    else:
        import numpy  # noqa: F401  (loads its BLAS)

        told += [
            f"NumPy's BLAS {library['internal_api']} {library['version']} on {library['num_threads']} threads"
            for library in threadpool_info()
            if library.get("user_api") == "blas"
        ]
    told.append(f"Python {platform.python_version()}")
    print(text := ", ".join(told))
    return text


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--write", type=Path, help="a Markdown file whose table to replace")
    parser.add_argument("--size", type=int, default=2048, help=argparse.SUPPRESS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--timing", action="store_true", help="the speed of timing alone, on a long program")
    parser.add_argument("--trace", action="store_true", help="the speed of writing a trace, of a long program")
    parser.add_argument("--page", action="store_true", help="the size and speed of a page, of a long program")
    parser.add_argument("--records", type=int, help="of that program; 1,000,000, of a page 100,000")
    parser.add_argument("--scheduled", help=argparse.SUPPRESS)
    parser.add_argument("--traced", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    without_slow_blas()
    if options.scheduled:
        scheduled(options.scheduled)
        return
    if options.traced:
        traced(*options.traced)
        return
    if options.once:
        once(options.size)
        return
    machine = describe_machine()
    if options.timing:
        measure_timing(options.records or 1_000_000)
        return
    if options.page:
        measure_page(options.records or 100_000)
        return
    if options.trace:
        measure_trace(options.records or 1_000_000)
        return
    parts(options.size, options.repeats)
    found = figures(options.repeats)
    show(found)
    if options.write:
        write(options.write, found, machine)


if __name__ == "__main__":
    main()
