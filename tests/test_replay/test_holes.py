"""Replays of kernels that read memory which nobody wrote: what comes of it is as in a run."""

from __future__ import annotations

import dis
import inspect
from pathlib import Path
from types import CodeType

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.instruction import Instruction
from neurosim.shell.loading import load_module

load_module(Path(__file__).parent / "launching.py")  # puts this folder on the path
from launching import ONES, X, assert_replays, assert_runs, scaled  # noqa: E402

INSTRUCTIONS = [call.instruction for call in vars(nisa).values() if hasattr(call, "instruction")]


def half_written(x):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile[0:4], src=x[0:4])
    return tile


def computes_on_all(x):
    """Large tiles come and go, so that a replay has their bytes at hand."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for _ in range(3):
        full = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
        nisa.memset(dst=full, value=np.inf)
        tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile[0:8, 0:16], src=x)
        nisa.activation(dst=tile, op=nl.sin, data=tile)
        nisa.dma_copy(dst=out, src=tile[0:8, 0:16])
    return out


@pytest.mark.filterwarnings("error")  # sin of what stood in another tile would warn
def test_what_nobody_wrote_is_zero():
    assert_replays(computes_on_all, ONES)


def test_chosen_by_values():
    def kernel(x):
        tile = half_written(x)
        predicate = nl.ndarray(x.shape, dtype=nl.uint32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=predicate, src=nl.load(x))
        into = nl.load(x)
        nisa.tensor_copy_predicated(dst=into, src=tile, predicate=predicate)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=into)
        return out

    x = np.where(np.arange(8)[:, None] < 4, ONES, 0).astype(np.float32)
    assert_runs(kernel, "tensor_copy_predicated reads memory that was written in part", x)


def test_copies_that_stay_open():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=half_written(x))
        return out

    results = [neurosim.simulate(kernel, partial_outputs="output")(X) for _ in range(2)]
    assert [result.replayed for result in results] == [False, False]
    assert results[1].unreplayable == "output holds copies of what nobody wrote"


def test_what_was_left_out_of_psum():
    def kernel(x):
        product = nl.ndarray((16, 16), dtype=nl.float32, buffer=nl.psum)
        tile = half_written(x)
        nisa.nc_matmul(dst=product, stationary=tile, moving=tile)
        return scaled(x, 2.0)

    assert_runs(kernel, "nc_matmul reads memory that was written in part")


def codes(function):
    """Yield a function's code and what is defined in it."""
    waiting = [function.__code__]
    while waiting:
        code = waiting.pop()
        yield code
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def attributes(cls, method, operation):
    """Return the names of attributes that a method loads or stores."""
    function = inspect.unwrap(getattr(cls, method))
    return {step.argval for code in codes(function) for step in dis.get_instructions(code) if step.opname in operation}


@pytest.mark.parametrize("cls", INSTRUCTIONS, ids=lambda cls: cls.mnemonic)
def test_who_chooses_says_so(cls):
    """What ``execute`` keeps and ``holes`` looks at is known with values only."""
    kept = attributes(cls, "execute", ("STORE_ATTR",))
    assert cls.chooses == bool(kept & attributes(cls, "holes", ("LOAD_ATTR", "LOAD_METHOD")))
    assert issubclass(cls, Instruction)
