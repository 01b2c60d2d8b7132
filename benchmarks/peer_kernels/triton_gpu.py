"""Kernels for Triton's interpreter (``TRITON_INTERPRET=1``), which runs programs of a grid one after the other.

Products are of float32: of bfloat16 operands Triton 3.9's interpreter multiplies the bits.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(a, b, out, size: tl.constexpr, block: tl.constexpr, depth: tl.constexpr):  # type: ignore[no-untyped-def]
    """Compute one block of out = a @ b."""
    rows = tl.program_id(0) * block + tl.arange(0, block)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    inner = tl.arange(0, depth)
    total = tl.zeros((block, block), dtype=tl.float32)
    for start in range(0, size, depth):
        left = tl.load(a + rows[:, None] * size + (start + inner)[None, :])
        right = tl.load(b + (start + inner)[:, None] * size + columns[None, :])
        total = tl.dot(left.to(tl.float32), right.to(tl.float32), total)
    tl.store(out + rows[:, None] * size + columns[None, :], total.to(out.dtype.element_ty))


@triton.jit
def attention_kernel(q, k, v, out, size: tl.constexpr, width: tl.constexpr, block: tl.constexpr, scale: tl.constexpr):  # type: ignore[no-untyped-def]
    """Compute one block of rows, with running maximum and sum over blocks of keys."""
    rows = tl.program_id(0) * block + tl.arange(0, block)
    lanes = tl.arange(0, width)
    query = tl.load(q + rows[:, None] * width + lanes[None, :]).to(tl.float32)
    peak = tl.full((block,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((block,), dtype=tl.float32)
    weighted = tl.zeros((block, width), dtype=tl.float32)
    for start in range(0, size, block):
        keys = start + tl.arange(0, block)
        key = tl.load(k + keys[:, None] * width + lanes[None, :])
        scores = tl.dot(query, tl.trans(key).to(tl.float32)) * scale
        higher = tl.maximum(peak, tl.max(scores, 1))
        weights = tl.exp(scores - higher[:, None])
        factor = tl.exp(peak - higher)
        total = total * factor + tl.sum(weights, 1)
        value = tl.load(v + keys[:, None] * width + lanes[None, :])
        weighted = tl.dot(weights, value.to(tl.float32), weighted * factor[:, None])
        peak = higher
    tl.store(out + rows[:, None] * width + lanes[None, :], (weighted / total[:, None]).to(out.dtype.element_ty))


def matmul(a: Any, b: Any, block: int = 128) -> Any:
    """Return a @ b of square torch tensors, in blocks of ``block`` on each side."""
    size = a.shape[0]
    out = torch.empty_like(a)
    matmul_kernel[(size // block, size // block)](a, b, out, size, block, block)
    return out


def attention(q: Any, k: Any, v: Any) -> Any:
    """Return softmax(q k' / √d) v of torch tensors [S, d], 128 rows and 128 keys at a time."""
    size, width = q.shape
    out = torch.empty_like(q)
    attention_kernel[(size // 128,)](q, k, v, out, size, width, 128, 1 / math.sqrt(width))
    return out
