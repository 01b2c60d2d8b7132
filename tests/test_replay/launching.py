"""Launches one after the other, as tests of replays need them."""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
import numpy as np

import neurosim

X = np.arange(8 * 16, dtype=np.float32).reshape(8, 16)
ONES = np.ones((8, 16), np.float32)


def scaled(x, factor):
    """What the kernels here do in the end."""
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def doubled(x):
    return scaled(x, 2.0)


def runs(kernel, *arguments, times=2, **options):
    return [neurosim.simulate(kernel, **options)(*(arguments or (X,))) for _ in range(times)]


def assert_replays(kernel, *arguments):
    first, second = runs(kernel, *arguments)
    assert (first.unreplayable, second.replayed) == ("", True)
    assert np.array_equal(first.outputs, second.outputs)


def assert_runs(kernel, reason, *arguments):
    """The kernel's Python runs each time, and the result says why."""
    for result in runs(kernel, *arguments, times=3):
        assert not result.replayed
        assert reason in result.unreplayable
