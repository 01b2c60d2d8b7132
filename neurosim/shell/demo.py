"""The demonstration: two kernels, checked against float64, with their reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from neurosim.shell.loading import load_kernel, packaged_kernel

Array = npt.NDArray[Any]
ROWS = 256
"""Rows that an oracle works on at a time: float64 copies of whole operands would dominate the memory."""
_TINY = float(np.finfo(np.float64).tiny)  # keeps 0 / 0 out where the exact value and its bound are 0


@dataclass(frozen=True)
class Check:
    """How far a kernel's output is from float64.

    Attributes:
        max_error: the largest absolute difference.
        at_value: the exact value there.
        max_ratio: the largest ratio of a difference to its bound; up to 1 is right.
    """

    max_error: float
    at_value: float
    max_ratio: float

    @property
    def passed(self) -> bool:
        """Whether every element is finite and within its bound."""
        return self.max_ratio <= 1.0

    def __str__(self) -> str:
        verdict = "ok" if self.passed else "WRONG"
        return (
            f"values against float64: {verdict}; max |error| {self.max_error:.3g} (at {self.at_value:.3g}), "
            f"{self.max_ratio:.2f} of the rounding bound"
        )


@dataclass(frozen=True)
class Case:
    """One kernel of the demonstration."""

    file: str
    kernel: str
    inputs: Callable[[], tuple[Array, ...]]
    arguments: dict[str, Any]
    check: Callable[..., Check]


def matmul_inputs(size: int = 2048) -> tuple[Array, ...]:
    """K-major bfloat16 operands of a size × size × size product."""
    return _normal(0, 2, (size, size))


def check_matmul(output: Array, a_t: Array, b: Array) -> Check:
    """Compare with the float64 product.

    The bound is one rounding to bfloat16 (2⁻⁸ of the value, a unit in the last place) plus K roundings of a
    float32 sum, which Cauchy and Schwarz bound by the norms of the operands.
    """
    k = a_t.shape[0]
    wide = b.astype(np.float64)
    norms = np.sqrt(np.sum(wide * wide, axis=0))

    def blocks() -> Iterator[tuple[Array, Array, Array]]:
        for first in range(0, output.shape[0], ROWS):
            rows = a_t[:, first : first + ROWS].astype(np.float64)
            exact = rows.T @ wide
            spread = np.sqrt(np.sum(rows * rows, axis=0))[:, None] * norms[None, :]
            yield output[first : first + ROWS], exact, 2.0**-8 * np.abs(exact) + k * 2.0**-24 * spread

    return _compare(blocks())


def attention_inputs(sequence: int = 2048, depth: int = 128) -> tuple[Array, ...]:
    """Query, key and value of one head, bfloat16."""
    return _normal(1, 3, (sequence, depth))


def check_attention(output: Array, q: Array, k: Array, v: Array) -> Check:
    """Compare with causal softmax attention in float64.

    The bound is four bfloat16 roundings of the probabilities and the output, each 2⁻⁸ of Σ p·|v|.
    """
    keys, values = k.astype(np.float64), v.astype(np.float64)
    scale = 1.0 / np.sqrt(q.shape[1])

    def blocks() -> Iterator[tuple[Array, Array, Array]]:
        for first in range(0, output.shape[0], ROWS):
            queries = q[first : first + ROWS].astype(np.float64)
            last = first + queries.shape[0]
            scores = (queries @ keys[:last].T) * scale
            ahead = np.arange(last)[None, :] > np.arange(first, last)[:, None]
            scores[ahead] = -np.inf
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            bound = 4 * 2.0**-8 * (weights @ np.abs(values[:last]))
            yield output[first:last], weights @ values[:last], bound

    return _compare(blocks())


def _normal(seed: int, count: int, shape: tuple[int, int]) -> tuple[Array, ...]:
    generator = np.random.default_rng(seed)
    floats = (generator.standard_normal(shape, dtype=np.float32) for _ in range(count))
    return tuple(array.astype(ml_dtypes.bfloat16) for array in floats)


def _compare(blocks: Iterator[tuple[Array, Array, Array]]) -> Check:
    worst = Check(0.0, 0.0, 0.0)
    for output, exact, bound in blocks:
        error = np.abs(output.astype(np.float64) - exact)
        error[~np.isfinite(error)] = np.inf
        place = np.unravel_index(np.argmax(error), error.shape)
        ratio = max(worst.max_ratio, float(np.max(error / np.maximum(bound, _TINY))))
        if error[place] >= worst.max_error:
            worst = Check(float(error[place]), float(exact[place]), ratio)
        else:
            worst = Check(worst.max_error, worst.at_value, ratio)
    return worst


CASES = (
    Case("matmul.py", "matmul", matmul_inputs, {}, check_matmul),
    Case("attention.py", "attention", attention_inputs, {"causal": True}, check_attention),
)


def run_case(case: Case, chip: str | None = None) -> tuple[Any, Check]:
    """Profile one kernel on a chip; return its Result and the check of its output."""
    from neurosim import profile

    kernel = load_kernel(f"{packaged_kernel(case.file)}:{case.kernel}")
    inputs = case.inputs()
    result = profile(kernel, chip=chip)(*inputs, **case.arguments)
    output = result.outputs[0] if isinstance(result.outputs, (tuple, list)) else result.outputs
    return result, case.check(np.asarray(output), *inputs)
