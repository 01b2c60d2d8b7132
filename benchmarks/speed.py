"""The simulator's own speed: a bfloat16 matmul, values and timeline, against NumPy's float32 ``a @ b`` in one run.

    python benchmarks/speed.py [--size 2048] [--repeats 5]
    python benchmarks/speed.py --timing [--records 1000000]
    python benchmarks/speed.py --trace [--records 1000000]
    python benchmarks/speed.py --page [--records 100000]

These are wall times of this machine, not simulated times. The budget is 8 times NumPy's at size 2048. Peak memory is
that of a process that runs the simulator once and nothing else.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

BUDGET = 8.0
MEMORY_BUDGET_MIB = 400
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


def matmul_case(size: int) -> tuple[Any, Any, Any]:
    """Return the packaged matmul kernel and its operands."""
    from neurosim.demo import matmul_inputs
    from neurosim.loading import load_kernel, packaged_kernel

    return load_kernel(f"{packaged_kernel('matmul.py')}:matmul"), *matmul_inputs(size)


def measure(size: int, repeats: int) -> None:
    """Print NumPy's time, the simulator's and its parts, and the ratio."""
    import numpy as np

    import neurosim
    from neurosim.report.summary import summary
    from neurosim.timing import time as time_program

    kernel, a_t, b = matmul_case(size)
    numpy_times = seconds(partial(np.matmul, a_t.astype(np.float32).T.copy(), b.astype(np.float32)), 2 * repeats)
    chip = neurosim.load_chip("trn2")
    all_times = seconds(lambda: neurosim.profile(kernel, chip=chip, replay=False)(a_t, b), repeats)
    value_times = seconds(lambda: neurosim.simulate(kernel, chip=chip, replay=False)(a_t, b), repeats)
    replay_times = seconds(lambda: neurosim.profile(kernel, chip=chip, replay=True)(a_t, b), repeats)
    result = neurosim.simulate(kernel, chip=chip)(a_t, b)
    program = result.program
    specs = [neurosim.spec(array.shape, array.dtype) for array in (a_t, b)]
    record_times = seconds(lambda: neurosim.simulate(kernel, chip=chip, values=False, replay=False)(*specs), repeats)
    time_times = seconds(lambda: time_program(program, chip), repeats)
    summary_times = seconds(lambda: summary(program, result.timeline, chip), repeats)

    print(f"{size} × {size} × {size} bfloat16 on {chip.name}, {len(program)} instructions; wall time, not simulated")
    rows = (
        ("numpy float32 a @ b", numpy_times),
        ("simulator: values and timeline", all_times),
        ("  values, checks and record", value_times),
        ("  record alone, without values", record_times),
        ("  timeline of the record", time_times),
        ("  summary, for a report", summary_times),
        ("the same run replayed", replay_times),
    )
    print(f"{'':34}{'median':>10}{'least':>10}{'most':>10}   ms")
    for name, times in rows:
        cells = (statistics.median(times), min(times), max(times))
        print(f"{name:34}" + "".join(f"{1e3 * cell:10.1f}" for cell in cells))
    per_instruction = statistics.median(record_times) / len(program)
    print(
        f"front end: {1e6 * per_instruction:.1f} µs an instruction of this kernel (record alone), "
        f"{1e6 * repeated_instruction(repeats):.1f} µs one that is repeated"
    )
    ratio = statistics.median(all_times) / statistics.median(numpy_times)
    budget = f"budget {BUDGET:g}" if size == 2048 else f"the budget of {BUDGET:g} is for 2048"
    print(f"ratio to numpy: {ratio:.1f} ({budget})")


def repeated_instruction(repeats: int, count: int = 10_000) -> float:
    """Return the seconds that recording one more instruction takes, when its like was recorded before."""
    import nki.isa as nisa
    import nki.language as nl

    import neurosim

    def kernel(x: Any, count: int) -> Any:
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        for _ in range(count):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=out, src=tile)
        return out

    run = neurosim.simulate(kernel, chip="trn2", values=False, replay=False)
    x = neurosim.spec((128, 512), "float32")
    return statistics.median(seconds(lambda: run(x, count), repeats)) / count


def measure_memory(size: int) -> None:
    """Print the peak memory of a process that runs the simulator once."""
    command = [sys.executable, __file__, "--size", str(size), "--once"]
    peak = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    budget = f"budget {MEMORY_BUDGET_MIB}" if size <= 2048 else f"the budget of {MEMORY_BUDGET_MIB} is for 2048"
    print(f"peak memory: {peak:.0f} MiB ({budget})")


def once(size: int) -> None:
    """Run the simulator once; print the peak memory in MiB."""
    import neurosim

    kernel, a_t, b = matmul_case(size)
    neurosim.profile(kernel, chip="trn2")(a_t, b).report()
    print(peak_mib())


def long_program(records: int) -> Any:
    """Return a kernel's run of about so many records: tiles that are loaded, multiplied, activated and stored."""
    import nki.isa as nisa
    import nki.language as nl

    import neurosim

    def kernel(x: Any, w: Any, trips: int) -> Any:
        out = nl.ndarray((trips * 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
        weights = nl.ndarray(w.shape, dtype=w.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=weights, src=w)
        for trip in range(trips):
            tile, sums, result = (
                nl.ndarray((128, 512), dtype=dtype, buffer=memory)
                for dtype, memory in ((x.dtype, nl.sbuf), (nl.float32, nl.psum), (x.dtype, nl.sbuf))
            )
            nisa.dma_copy(dst=tile, src=x)
            for _ in range(4):
                nisa.nc_matmul(dst=sums, stationary=weights, moving=tile)
            nisa.tensor_copy(dst=result, src=sums)
            nisa.activation(dst=result, data=result, op=nl.exp)
            nisa.tensor_tensor(dst=result, data1=result, data2=tile, op=nl.add)
            nisa.dma_copy(dst=out[trip * 128 : (trip + 1) * 128], src=result)
        return out

    x, w = (neurosim.spec(shape, "bfloat16") for shape in ((128, 512), (128, 128)))
    return neurosim.simulate(kernel, chip="trn2", values=False)(x, w, records // 9)


def measure_timing(records: int) -> None:
    """Print how long a long program takes to lower and schedule, and one of a tenth to be timed again."""
    from neurosim.timing import time as time_program

    short = long_program(records // 10)
    slow = short.chip.replace(hbm__bandwidth_gb_per_s=short.chip.hbm.bandwidth_gb_per_s / 2)
    time_program(short.program, slow)  # compiles, or reads what was compiled
    used = time.process_time()
    again = seconds(lambda: time_program(short.program, slow), 5)
    used = (time.process_time() - used) / 6
    print(
        f"timing {len(short.program)} records again, on a changed chip: {statistics.median(again):.2f} s "
        f"(least {min(again):.2f}), {used:.2f} s of a processor (budget {AGAIN_BUDGET_S:g} for 100,000)"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/program"
        long_program(records).program.save(path)
        command = [sys.executable, __file__, "--scheduled", path]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="")


def scheduled(path: str) -> None:
    """Print how long a saved program takes to lower and schedule, in a process that does nothing else."""
    from neurosim.devices import load_chip
    from neurosim.program import Program
    from neurosim.timing.schedule import schedule

    chip = load_chip("trn2")
    schedule(Program(chip.name, chip.generation), chip, "compiler", throttle=True)  # reads what was compiled
    program = Program.load(path)
    start, used = time.perf_counter(), time.process_time()
    schedule(program, chip, "compiler", throttle=True)
    taken, used = time.perf_counter() - start, time.process_time() - used
    print(
        f"lowering and scheduling {len(program)} records: {taken:.1f} s, {used:.1f} s of a processor "
        f"(budget {TIMING_BUDGET_S:g} for 1,000,000), {peak_mib() / 1024:.2f} GiB (budget {TIMING_BUDGET_GIB:g})"
    )


def measure_trace(records: int) -> None:
    """Print how long the trace of a long program takes to write, plain and compressed, each in its own process."""
    import neurosim  # noqa: F401  (makes nki importable)

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/program"
        long_program(records).program.save(path)
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
        result = long_program(records)
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


def peak_mib() -> float:
    """Return this process's peak memory. Linux's ``ru_maxrss`` remembers that of the process that started this one."""
    status = Path("/proc/self/status")
    if status.exists():
        kib = next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(kib) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def describe_machine() -> None:
    """Print what the times depend on: the processors, and the BLAS that NumPy calls."""
    print(f"{os.cpu_count()} processors")
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return  # it comes with the `bench` extra
    import numpy  # noqa: F401  (loads its BLAS)

    for library in threadpool_info():
        if library.get("user_api") == "blas":
            print(f"numpy's BLAS: {library['internal_api']} {library['version']}, {library['num_threads']} threads")


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--size", type=int, default=2048)
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
    describe_machine()
    if options.timing:
        measure_timing(options.records or 1_000_000)
        return
    if options.page:
        measure_page(options.records or 100_000)
        return
    if options.trace:
        measure_trace(options.records or 1_000_000)
        return
    measure(options.size, options.repeats)
    measure_memory(options.size)


if __name__ == "__main__":
    main()
