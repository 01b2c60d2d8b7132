"""Mistakes seeded into the kernels: each is caught, by the kind of error that says what it is.

A mistake that the hardware would carry out without complaint (``None``) must change the values.
"""

from __future__ import annotations

import linecache

import numpy as np
import pytest

import neurosim
from neurosim.errors import CapacityExceeded, IllegalCall, IllegalOperand, OutOfBounds, Uninitialized, UnwrittenOutput
from neurosim.shell.loading import packaged_kernel

F = np.float32
MATMUL, ATTENTION = "matmul.py:matmul", "attention.py:attention"
MISTAKES = {
    "adds to what nobody wrote": (MATMUL, "accumulate=k > 0", "accumulate=True", Uninitialized),
    "forgets the earlier tiles": (MATMUL, "accumulate=k > 0", "accumulate=False", None),
    "forgets to store": (
        MATMUL,
        "nisa.dma_copy(dst=out[m0 + m : m0 + m + height, n0 : n0 + n_size], src=row)",
        "pass",
        UnwrittenOutput,
    ),
    "stores one row too few": (
        MATMUL,
        "dst=out[m0 + m : m0 + m + height, n0 : n0 + n_size], src=row)",
        "dst=out[m0 + m : m0 + m + height - 1, n0 : n0 + n_size], src=row[0 : height - 1])",
        UnwrittenOutput,
    ),
    "forgets to load": (
        MATMUL,
        "nisa.dma_copy(dst=tile, src=tensor[k : k + rows, start : start + size])",
        "pass",
        Uninitialized,
    ),
    "loads one row too few": (
        MATMUL,
        "dst=tile, src=tensor[k : k + rows, start : start + size]",
        "dst=tile[0 : rows - 1], src=tensor[k : k + rows - 1, start : start + size]",
        Uninitialized,
    ),
    "does not cut the last K tile": (MATMUL, "min(pmax, K - k)", "pmax", OutOfBounds),
    "does not cut the last columns": (MATMUL, "min(moving, n_size - n)", "moving", OutOfBounds),
    "multiplies into SBUF": (
        MATMUL,
        "dtype=nl.float32, buffer=nl.psum",
        "dtype=nl.float32, buffer=nl.sbuf",
        IllegalOperand,
    ),
    "swaps the operands": (
        MATMUL,
        ("stationary=a_rows", "moving=b_rows"),
        ("moving=a_rows", "stationary=b_rows"),
        IllegalOperand,
    ),
    "writes each tile to the same place": (
        MATMUL,
        "dst=row[:, n : n + width], src=product",
        "dst=row[:, 0:width], src=product",
        Uninitialized,
    ),
    "misspells an operand": (MATMUL, "stationary=a_rows", "stationery=a_rows", IllegalCall),
    "tiles wider than the array": (MATMUL, "nl.tile_size.gemm_stationary_fmax,", "256,", IllegalOperand),
    "tiles wider than a bank": (MATMUL, "nl.tile_size.gemm_moving_fmax", "1024", IllegalOperand),
    "loads the wrong block of keys": (
        ATTENTION,
        "load(self.k, start + offset, rows)",
        "load(self.k, offset, rows)",
        None,
    ),
    "masks the wrong diagonal": (ATTENTION, "offset=tile.start - kv0", "offset=tile.start - kv0 + 1", None),
    "does not mask": (ATTENTION, "if not tile.diagonal", "if True or not tile.diagonal", None),
    "forgets the scale": (ATTENTION, "operand0=-scale)", "operand0=-1.0)", None),
    "keeps the old maximum": (ATTENTION, "bias=shift, scale=-1.0)", "bias=tile.shift, scale=-1.0)", None),
    "transposes in SBUF": (
        ATTENTION,
        "psum = nl.ndarray((columns, rows), dtype=tile.dtype, buffer=nl.psum)",
        "psum = nl.ndarray((columns, rows), dtype=tile.dtype, buffer=nl.sbuf)",
        IllegalOperand,
    ),
    "transposes into float32": (
        ATTENTION,
        "psum = nl.ndarray((columns, rows), dtype=tile.dtype, buffer=nl.psum)",
        "psum = nl.ndarray((columns, rows), dtype=nl.float16, buffer=nl.psum)",
        IllegalOperand,
    ),
    "forgets the sum": (
        ATTENTION,
        "reduce_op=nl.add, reduce_res=total,",
        "reduce_op=nl.add, reduce_res=None,",
        Uninitialized,
    ),
}


def arguments(target):
    rng = np.random.default_rng(0)
    if target == MATMUL:
        return [rng.standard_normal(shape).astype(F) for shape in ((300, 200), (300, 700))], {}
    return [rng.standard_normal((700, 40)).astype(F) for _ in range(3)], {"causal": True}


def kernel(target, *changes):
    """Return a kernel made from the source with replacements."""
    file, _, name = target.partition(":")
    source = packaged_kernel(file).read_text()
    for old, new in changes:
        assert old in source, f"{file} has changed: {old!r} is gone"
        source = source.replace(old, new)
    path = f"<mutated {file}>"
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    namespace = {"__name__": "mutated"}
    exec(compile(source, path, "exec"), namespace)
    return namespace[name]


@pytest.fixture(scope="module")
def right():
    """Return the values of the kernels as they are."""
    found = {}
    for target in (MATMUL, ATTENTION):
        arrays, options = arguments(target)
        found[target] = neurosim.simulate(kernel(target))(*arrays, **options).outputs
    return found


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_caught(mistake, right):
    target, old, new, error = MISTAKES[mistake]
    changes = list(zip(old, new, strict=True)) if isinstance(old, tuple) else [(old, new)]
    mutated = kernel(target, *changes)
    arrays, options = arguments(target)
    if error is None:
        got = neurosim.simulate(mutated)(*arrays, **options).outputs
        assert (got != right[target]).any()
        return
    with pytest.raises(error) as caught:
        neurosim.simulate(mutated)(*arrays, **options)
    assert type(caught.value) is error
    assert caught.value.where[0].startswith(f"<mutated {target.partition(':')[0]}>:")


def test_blocks_that_do_not_fit_are_caught():
    """Without its choice of block sizes, matmul keeps more in SBUF than there is, for a long K."""
    mutated = kernel(MATMUL, ("block_m, block_n = block_sizes(", "block_m, block_n = 512, 2048; block_sizes("))
    specs = [neurosim.spec((8192, 600), "float32"), neurosim.spec((8192, 2048), "float32")]
    with pytest.raises(CapacityExceeded):
        neurosim.simulate(mutated, values=False)(*specs)
    neurosim.simulate(kernel(MATMUL), values=False)(*specs)
