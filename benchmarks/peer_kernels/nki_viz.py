"""Kernels for triton-viz's NKI interpreter, in the instructions that it knows.

It takes outputs as arguments, and computes a matmul in the dtype of its operands.
"""

from __future__ import annotations

import math
from typing import Any

import nki.isa as nisa
import nki.language as nl


def matmul(a_t: Any, b: Any, out: Any) -> None:
    """Compute out = a_t.T @ b; all sides are multiples of 512. Operands are loaded once into SBUF."""
    k_size, m_size = a_t.shape
    n_size = b.shape[1]
    stationary, moving = [], []
    for k in range(0, k_size, 128):
        left = nl.ndarray((128, m_size), dtype=a_t.dtype, buffer=nl.sbuf)
        right = nl.ndarray((128, n_size), dtype=b.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=left, src=a_t[k : k + 128, :])
        nisa.dma_copy(dst=right, src=b[k : k + 128, :])
        stationary.append(left)
        moving.append(right)
    for m in range(0, m_size, 128):
        for n in range(0, n_size, 512):
            product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            for left, right in zip(stationary, moving, strict=True):
                nisa.nc_matmul(dst=product, stationary=left[:, m : m + 128], moving=right[:, n : n + 512])
            tile = nl.ndarray((128, 512), dtype=out.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=tile, src=product)
            nisa.dma_copy(dst=out[m : m + 128, n : n + 512], src=tile)


def attention(q: Any, k: Any, v: Any, out: Any) -> None:
    """Compute softmax(q k' / √d) v for [S, 128] operands; the scores of 128 rows of q at a time."""
    size, depth = q.shape
    keys_t, values = [], []
    for start in range(0, size, 128):
        keys_t.append(transposed(loaded(k, start), depth))
        values.append(loaded(v, start))
    for start in range(0, size, 128):
        rows_t = transposed(loaded(q, start), depth)
        scores = nl.ndarray((128, size), dtype=nl.float32, buffer=nl.sbuf)
        for place, key_t in enumerate(keys_t):
            product = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=product, stationary=rows_t, moving=key_t)
            nisa.tensor_copy(dst=scores[:, 128 * place : 128 * place + 128], src=product)
        peak = column()
        nisa.tensor_reduce(dst=peak, op=nl.maximum, data=scores, axis=1, negate=True, keepdims=True)
        shift = column()
        nisa.tensor_scalar(dst=shift, data=peak, op0=nl.multiply, operand0=1 / math.sqrt(depth))
        weights = nl.ndarray((128, size), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=weights, op=nl.exp, data=scores, bias=shift, scale=1 / math.sqrt(depth))
        total = column()
        nisa.tensor_reduce(dst=total, op=nl.add, data=weights, axis=1, keepdims=True)
        narrow = nl.ndarray((128, size), dtype=q.dtype, buffer=nl.sbuf)  # a sum of bfloat16 would be rounded each time
        nisa.tensor_copy(dst=narrow, src=weights)
        weighted = nl.ndarray((128, depth), dtype=nl.float32, buffer=nl.psum)
        for place, value in enumerate(values):
            part = transposed(narrow[:, 128 * place : 128 * place + 128], 128)
            nisa.nc_matmul(dst=weighted, stationary=part, moving=value)
        inverse = column()
        nisa.reciprocal(dst=inverse, data=total)
        tile = nl.ndarray((128, depth), dtype=out.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=tile, data=weighted, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=out[start : start + 128, :], src=tile)


def loaded(tensor: Any, start: int) -> Any:
    """Return 128 rows of an HBM tensor in SBUF."""
    tile = nl.ndarray((128, tensor.shape[1]), dtype=tensor.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=tensor[start : start + 128, :])
    return tile


def transposed(tile: Any, columns: int) -> Any:
    """Return the transpose of a tile [128, columns] in SBUF."""
    product = nl.ndarray((columns, 128), dtype=tile.dtype, buffer=nl.psum)
    nisa.nc_transpose(dst=product, data=tile)
    result = nl.ndarray((columns, 128), dtype=tile.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=product)
    return result


def column() -> Any:
    """Return a new float32 number for each of 128 partitions."""
    return nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
