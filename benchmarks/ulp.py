"""The largest error of every activation function, over all float32 arguments of its valid range.

    pip install -e '.[bench]'
    python benchmarks/ulp.py [--stride 1] [--only gelu tanh] [--write NUMERICS.md]

The reference is float64: NumPy's and SciPy's functions, whose own error (about 1e-16) is a hundred-millionth of the
unit that errors are counted in, and nothing of ours. With a stride of 1 all patterns are tried (a minute or two for a
function on one core); any other visits every binade, too. ``--write`` replaces lines of the table between the
file's two markers.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

try:
    from scipy import special
except ImportError:  # said when the command line is read
    special = None

from neurosim.numerics.act import ACTIVATIONS, activate

Floats = NDArray[np.float64]
BLOCK = 1 << 24
"""Patterns that a process takes at once."""
CHUNK = 1 << 14
"""Patterns that are computed at once: their arrays stay in the cache."""
F32_INF = 0x7F800000
BEGIN, END = "<!-- ulp: begin (python benchmarks/ulp.py --write NUMERICS.md) -->", "<!-- ulp: end -->"
HEADING = [
    "| Function | Arguments of the valid range tried | Largest error, ulp | at | Bound |",
    "|---|---|---|---|---|",
]


def _sigmoid_product(x: Floats) -> Floats:
    return np.where(np.isneginf(x), -0.0, np.where(x < -700, -0.0, x) * special.expit(np.maximum(x, -700.0)))


def _sigmoid_product_dx(x: Floats) -> Floats:
    z = np.clip(x, -700.0, 700.0)
    s = special.expit(z)
    return s * (1.0 + z * special.expit(-z))


def _normal_pdf(x: Floats) -> Floats:
    return np.exp(-0.5 * x * x) / np.sqrt(2.0 * np.pi)


def _mish(x: Floats) -> Floats:
    z = np.maximum(x, -700.0)
    return np.where(x < -700.0, -0.0, z * np.tanh(np.logaddexp(0.0, z)))


def _gelu(x: Floats) -> Floats:
    z = np.maximum(x, -100.0)
    return np.where(x < -100.0, -0.0, z * special.ndtr(z))


def _gelu_tanh(x: Floats) -> Floats:
    z = np.clip(x, -100.0, None)
    return np.where(x < -100.0, -0.0, z * special.expit(1.5957691216057308 * (z + 0.044715 * z * z * z)))


def _gelu_dx(x: Floats) -> Floats:
    z = np.clip(x, -100.0, 100.0)
    return special.ndtr(z) + z * _normal_pdf(z)


TRUE: dict[str, Callable[[Floats], Floats]] = {
    "copy": lambda x: x,
    "square": np.square,
    "abs": np.abs,
    "sign": np.sign,
    "relu": lambda x: np.maximum(x, 0.0),
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "reciprocal": lambda x: 1.0 / x,
    "exp": np.exp,
    "sigmoid": lambda x: special.expit(x),
    "silu": _sigmoid_product,
    "silu_dx": _sigmoid_product_dx,
    "tanh": np.tanh,
    "softplus": lambda x: np.logaddexp(0.0, x),
    "mish": _mish,
    "gelu": _gelu,
    "gelu_dx": _gelu_dx,
    "gelu_apprx_tanh": _gelu_tanh,
    "gelu_apprx_sigmoid": lambda x: _sigmoid_product(1.702 * x) / 1.702,
    "gelu_apprx_sigmoid_dx": lambda x: _sigmoid_product_dx(1.702 * x),
    "erf": lambda x: special.erf(x),
    "erf_dx": lambda x: 2.0 / np.sqrt(np.pi) * np.exp(-x * x),
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "arctan": np.arctan,
}


class Worst(NamedTuple):
    """The largest error of a function in a block of arguments."""

    error_ulp: float
    argument: float
    tried: int


def in_range(name: str, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the arguments for which the function is documented to be right; NaN is none."""
    valid = ACTIVATIONS[name].valid_range
    if valid is None:
        inside = ~np.isnan(x)
    else:
        size = np.abs(x) if name == "reciprocal" else x
        inside = (size >= valid[0]) & (size <= valid[1])
    return x if inside.all() else x[inside]


def worst_of(name: str, x: NDArray[np.float32]) -> Worst:
    """Return the largest error of a function on some arguments of its valid range."""
    true = TRUE[name](x.astype(np.float64))
    near = true.astype(np.float32)
    got = activate(name, x)
    error = np.abs(got - true)
    error /= np.spacing(np.minimum(np.abs(near), np.float32(2.0**127)))
    odd = ~np.isfinite(error)
    if odd.any():  # the same infinity, or NaN, is no error; another is infinite
        same = (got == near) | (np.isnan(got) & np.isnan(near))
        error[odd] = np.where(same[odd], 0.0, np.inf)
    worst = int(np.argmax(error))
    return Worst(float(error[worst]), float(x[worst]), len(x))


def measure(name: str, stride: int, first: int) -> Worst:
    """Return the largest error among ``BLOCK`` patterns from ``first`` on."""
    worst, tried = Worst(0.0, 0.0, 0), 0
    with np.errstate(all="ignore"):
        for start in range(first, first + BLOCK, CHUNK * stride):
            last = min(start + CHUNK * stride, first + BLOCK)
            x = in_range(name, np.arange(start, last, stride, dtype=np.uint32).view(np.float32))
            if len(x):
                worst = max(worst, worst_of(name, x))
                tried += len(x)
    return worst._replace(tried=tried)


def rows(names: list[str], stride: int) -> dict[str, str]:
    """Return the line of each function in the table, as Markdown."""
    lines = {}
    blocks = range(0, 1 << 32, BLOCK)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        for name in names:
            found = list(pool.map(partial(measure, name, stride), blocks))
            worst = max(found)
            tried = f"{sum(entry.tried for entry in found):,}" + (", all" if stride == 1 else f", 1 in {stride}")
            bound = ACTIVATIONS[name].max_ulp
            lines[name] = f"| `{name}` | {tried} | {worst.error_ulp:.4f} | {worst.argument!r} | {bound:g} |"
            print(lines[name], flush=True)
            if worst.error_ulp > bound:
                raise SystemExit(f"{name}: {worst.error_ulp} ulp at {worst.argument!r}; the bound is {bound}")
    return lines


def write(path: Path, lines: dict[str, str]) -> None:
    """Replace lines of the table between the markers of a file; other functions keep theirs."""
    before, rest = path.read_text(encoding="utf-8").split(BEGIN)
    table, after = rest.split(END)
    known = {line.split("`")[1]: line for line in table.splitlines() if line.startswith("| `")} | lines
    kept = [known[name] for name in ACTIVATIONS if name in known]
    path.write_text("\n".join([before + BEGIN, "", *HEADING, *kept, "", END]) + after, encoding="utf-8")


def main() -> None:
    """Print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stride", type=int, default=1, help="try every n-th pattern; odd")
    parser.add_argument("--only", nargs="+", default=list(ACTIVATIONS), choices=list(ACTIVATIONS), metavar="NAME")
    parser.add_argument("--write", type=Path, help="the file whose table to replace")
    options: Any = parser.parse_args()
    if options.stride < 1 or options.stride % 2 == 0:
        parser.error("--stride must be odd, so that every last bit occurs")
    if special is None:
        parser.error("the true functions are SciPy's, which is not installed: pip install -e '.[bench]'")
    lines = rows(options.only, options.stride)
    if options.write:
        write(options.write, lines)


if __name__ == "__main__":
    main()
