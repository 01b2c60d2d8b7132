"""What is run: kernels with their operands, and the same maths in NumPy's float32."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

import neurosim
from neurosim.shell.demo import matmul_inputs
from neurosim.shell.loading import load_kernel, packaged_kernel

Action = Callable[[], Any]


class Case(NamedTuple):
    """One kernel on its operands, and NumPy's way."""

    kernel: Any
    operands: tuple[Any, ...]
    numpy: Action


def matmul(size: int) -> Case:
    """Return a matmul in bfloat16, and NumPy's ``a @ b``."""
    a_t, b = matmul_inputs(size)
    kernel = load_kernel(f"{packaged_kernel('matmul.py')}:matmul")
    return Case(kernel, (a_t, b), partial(np.matmul, a_t.astype(np.float32).T.copy(), b.astype(np.float32)))


def attention(rows: int = 2048, columns: int = 128) -> Case:
    """Return attention of one head in bfloat16, all keys seen, and what NumPy needs for the same."""
    random = np.random.default_rng(0)
    single = [random.standard_normal((rows, columns), np.float32) for _ in range(3)]
    from neurosim import dtypes

    operands = tuple(array.astype(dtypes.bfloat16.numpy) for array in single)
    kernel = load_kernel(f"{packaged_kernel('attention.py')}:attention")
    return Case(kernel, operands, partial(_attention, *(array.astype(np.float32) for array in operands)))


def _attention(q: npt.NDArray[Any], k: npt.NDArray[Any], v: npt.NDArray[Any]) -> npt.NDArray[Any]:
    weights = q @ k.T
    weights *= np.float32(1 / math.sqrt(q.shape[1]))
    weights -= weights.max(axis=1, keepdims=True)
    np.exp(weights, out=weights)
    product: npt.NDArray[Any] = weights @ v
    product /= weights.sum(axis=1, keepdims=True)
    return product


SETTLED_S: Final = 4.0
"""What runs take that are not counted: a process multiplies for a second before it has threads for that."""


def ratio(case: Case, repeats: int, *, replay: bool = False) -> float:
    """Return how many times NumPy's time a run with values, checks and timeline takes: the median of pairs.

    Runs of ``SETTLED_S`` come first.
    """
    simulated = neurosim.profile(case.kernel, chip="trn2", replay=replay)
    ours, ratios = partial(simulated, *case.operands), []
    settled = time.perf_counter() + SETTLED_S
    ours()
    while time.perf_counter() < settled:
        ours()
    case.numpy()
    for _ in range(repeats):
        taken = []
        for action in (case.numpy, ours):
            start = time.perf_counter()
            action()
            taken.append(time.perf_counter() - start)
        ratios.append(taken[1] / taken[0])
    return statistics.median(ratios)


def long_program(records: int) -> Any:
    """Return a kernel's run of about so many records: tiles that are loaded, multiplied, activated and stored."""
    import nki.isa as nisa
    import nki.language as nl

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
    return neurosim.simulate(kernel, chip="trn2", values=False, replay=False)(x, w, records // 9)
