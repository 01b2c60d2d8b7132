"""Kernels for JAX Pallas in the interpret mode that simulates a TPU."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

BLOCK = 512


def _multiply(a: Any, b: Any, out: Any, total: Any) -> None:
    @pl.when(pl.program_id(2) == 0)
    def _clear() -> None:
        total[...] = jnp.zeros_like(total)

    total[...] += jnp.dot(a[...], b[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _store() -> None:
        out[...] = total[...].astype(out.dtype)


@functools.cache
def matmul(size: int, dtype: str) -> Any:
    """Return a function that multiplies two square arrays, in blocks of 512 × 512 × 512."""
    steps = size // BLOCK
    call = pl.pallas_call(
        _multiply,
        grid=(steps, steps, steps),
        in_specs=[
            pl.BlockSpec((BLOCK, BLOCK), lambda i, j, k: (i, k)),
            pl.BlockSpec((BLOCK, BLOCK), lambda i, j, k: (k, j)),
        ],
        out_specs=pl.BlockSpec((BLOCK, BLOCK), lambda i, j, k: (i, j)),
        out_shape=jax.ShapeDtypeStruct((size, size), dtype),
        scratch_shapes=[pltpu.VMEM((BLOCK, BLOCK), jnp.float32)],
        interpret=pltpu.InterpretParams(),
    )
    return jax.jit(call)


def _attend(q: Any, k: Any, v: Any, out: Any) -> None:
    scores = jnp.dot(q[...], k[...].T, preferred_element_type=jnp.float32) / math.sqrt(q.shape[1])
    weights = jnp.exp(scores - scores.max(axis=1, keepdims=True))
    weighted = jnp.dot(weights.astype(v.dtype), v[...], preferred_element_type=jnp.float32)
    out[...] = (weighted / weights.sum(axis=1, keepdims=True)).astype(out.dtype)


@functools.cache
def attention(size: int, width: int, dtype: str) -> Any:
    """Return a function for attention of one head: 128 rows of q at a time, keys and values whole in VMEM."""
    call = pl.pallas_call(
        _attend,
        grid=(size // 128,),
        in_specs=[
            pl.BlockSpec((128, width), lambda i: (i, 0)),
            pl.BlockSpec((size, width), lambda i: (0, 0)),
            pl.BlockSpec((size, width), lambda i: (0, 0)),
        ],
        out_specs=pl.BlockSpec((128, width), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((size, width), dtype),
        interpret=pltpu.InterpretParams(),
    )
    return jax.jit(call)
