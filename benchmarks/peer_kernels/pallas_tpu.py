"""Kernels for JAX Pallas in the interpret mode that simulates a TPU's memories, DMAs and semaphores.

That mode pays for each step of a grid, so that the size of blocks decides how long it takes.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def _multiply(a: Any, b: Any, out: Any, total: Any) -> None:
    @pl.when(pl.program_id(2) == 0)
    def _clear() -> None:
        total[...] = jnp.zeros_like(total)

    total[...] += jnp.dot(a[...], b[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _store() -> None:
        out[...] = total[...].astype(out.dtype)


@functools.cache
def matmul(size: int, dtype: str, block: int, *, races: bool) -> Any:
    """Return a function that multiplies two square arrays, in blocks of ``block`` on each side."""
    steps = size // block
    call = pl.pallas_call(
        _multiply,
        grid=(steps, steps, steps),
        in_specs=[
            pl.BlockSpec((block, block), lambda i, j, k: (i, k)),
            pl.BlockSpec((block, block), lambda i, j, k: (k, j)),
        ],
        out_specs=pl.BlockSpec((block, block), lambda i, j, k: (i, j)),
        out_shape=jax.ShapeDtypeStruct((size, size), dtype),
        scratch_shapes=[pltpu.VMEM((block, block), jnp.float32)],
        interpret=pltpu.InterpretParams(detect_races=races),
    )
    return jax.jit(call)


def _attend(q: Any, k: Any, v: Any, out: Any, peak: Any, total: Any, weighted: Any) -> None:
    @pl.when(pl.program_id(1) == 0)
    def _clear() -> None:
        peak[...] = jnp.full_like(peak, -jnp.inf)
        total[...] = jnp.zeros_like(total)
        weighted[...] = jnp.zeros_like(weighted)

    scores = jnp.dot(q[...], k[...].T, preferred_element_type=jnp.float32) / math.sqrt(q.shape[1])
    before, after = peak[...], jnp.maximum(peak[...], scores.max(axis=1, keepdims=True))
    weights = jnp.exp(scores - after[:, :1])
    factor = jnp.exp(before - after)
    peak[...] = after
    total[...] = total[...] * factor + weights.sum(axis=1, keepdims=True)
    product = jnp.dot(weights.astype(v.dtype), v[...], preferred_element_type=jnp.float32)
    weighted[...] = weighted[...] * factor[:, :1] + product

    @pl.when(pl.program_id(1) == pl.num_programs(1) - 1)
    def _store() -> None:
        out[...] = (weighted[...] / total[:, :1]).astype(out.dtype)


@functools.cache
def attention(size: int, width: int, dtype: str, block: int, *, races: bool) -> Any:
    """Return a function for attention of one head, 128 rows of q and ``block`` keys at a time."""
    keys = pl.BlockSpec((block, width), lambda i, j: (j, 0))
    rows = pl.BlockSpec((128, width), lambda i, j: (i, 0))
    call = pl.pallas_call(
        _attend,
        grid=(size // 128, size // block),
        in_specs=[rows, keys, keys],
        out_specs=rows,
        out_shape=jax.ShapeDtypeStruct((size, width), dtype),
        scratch_shapes=[pltpu.VMEM((128, columns), jnp.float32) for columns in (128, 128, width)],
        interpret=pltpu.InterpretParams(detect_races=races),
    )
    return jax.jit(call)
