"""The speed of arithmetic on arrays, against libraries that do the same work, measured in turns in one run.

    python benchmarks/numerics.py [--repeats 100]

Times are wall times of this machine, the least of all repeats. The ratio is what counts: a row says how many times
faster than its peer the work is at least, or how many times slower at most. The products have the same bits on one
and on two threads, or the run ends with an error.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from speed import describe_machine, without_slow_blas

MICROSECONDS = 1e6


class Row(NamedTuple):
    """What is measured: our way, another, and the largest part of the other's time that ours may take."""

    work: str
    ours: Callable[[], Any]
    peer_name: str
    peer: Callable[[], Any]
    limit: float


def least_seconds(actions: tuple[Callable[[], Any], ...], repeats: int) -> list[float]:
    """Return the least wall time of each action. They take turns, so that a busy machine hits all alike."""
    least = [float("inf")] * len(actions)
    for _ in range(repeats + 1):
        for index, action in enumerate(actions):
            start = time.perf_counter()
            action()
            least[index] = min(least[index], time.perf_counter() - start)
    return least


def conversions() -> list[Row]:
    """Return a tile of float32 to each narrow format, three times faster than ml_dtypes."""
    import numpy as np

    from neurosim import dtypes
    from neurosim.numerics import convert

    tile = np.random.default_rng(1).standard_normal((128, 2048), np.float32)
    formats = (dtypes.bfloat16, dtypes.float8_e4m3, dtypes.float8_e4m3fn, dtypes.float8_e5m2)
    return [
        Row(
            f"float32 to {dtype}, 128 × 2048",
            lambda dtype=dtype: convert.narrow(tile, dtype),
            "ml_dtypes, astype",
            lambda dtype=dtype: tile.astype(dtype.numpy),
            1 / 3,
        )
        for dtype in formats
    ]


def elementwise() -> list[Row]:
    """Return an activation function, and an operation on two tiles of bfloat16."""
    import numpy as np

    from neurosim import dtypes
    from neurosim.numerics import act, alu, convert

    rng = np.random.default_rng(2)
    single = rng.standard_normal((128, 512), np.float32)
    a, b = (convert.narrow(rng.standard_normal((128, 512), np.float32), dtypes.bfloat16) for _ in range(2))
    return [
        Row("exp, float32, 128 × 512", lambda: act.activate("exp", single), "numpy, exp", lambda: np.exp(single), 1.5),
        Row(
            "add, bfloat16, 128 × 512",
            lambda: alu.binary_bfloat16("add", a, b),
            "ml_dtypes, a + b",
            lambda: a + b,
            1 / 5,
        ),
    ]


def products() -> list[Row]:
    """Return a matmul in its one order of sums, on one and two threads, against BLAS on all threads."""
    import numpy as np

    from neurosim import pool
    from neurosim.numerics import matmul

    rng = np.random.default_rng(3)
    stationary, moving = rng.standard_normal((128, 128), np.float32), rng.standard_normal((128, 512), np.float32)
    transposed = stationary.T.copy()
    outs = [np.zeros((128, 512), np.float32) for _ in range(2)]

    def ours(threads: int) -> None:
        pool.limit_threads(threads)
        matmul.accumulate_into(outs[threads - 1], stationary, moving, 1, overwrite=True)

    started = time.perf_counter()
    while time.perf_counter() < started + 3.5:  # parallel work begins when it is known that even compiling it pays
        ours(1)
    ours(2)
    if outs[0].tobytes() != outs[1].tobytes():
        raise SystemExit("matmul: one thread and two give different bits")
    return [
        Row(
            f"matmul, {threads} thread{'s' * (threads > 1)}, 128 × 128 × 512",
            lambda threads=threads: ours(threads),
            "numpy, BLAS",
            lambda: transposed @ moving,
            2.0,
        )
        for threads in (1, 2)
    ]


def relation(ratio: float) -> str:
    """Say how two times compare: '3.1 × faster' or '1.2 × slower'."""
    return f"{1 / ratio:.1f} × faster" if ratio < 1 else f"{ratio:.2f} × slower"


def main() -> None:
    """Parse the command line, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--repeats", type=int, default=100)
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error("--repeats must be at least 1")
    without_slow_blas()
    describe_machine()
    table = Table(title="arithmetic on arrays; wall time of this machine, not simulated", title_justify="left")
    for heading in ("work", "µs", "peer", "µs of peer", "ratio", "wanted", ""):
        table.add_column(heading, justify="right" if "µs" in heading else "left")
    for row in (*conversions(), *elementwise(), *products()):
        ours, peer = least_seconds((row.ours, row.peer), options.repeats)
        cells = (f"{ours * MICROSECONDS:.1f}", row.peer_name, f"{peer * MICROSECONDS:.1f}", relation(ours / peer))
        table.add_row(row.work, *cells, relation(row.limit), "met" if ours / peer <= row.limit else "missed")
    console = Console()
    console.width = max(console.width, 160)  # rows stay lines, also in a file
    console.print(table)


if __name__ == "__main__":
    main()
