"""Rotary position embedding: each head's halves turned by an angle that grows with the position."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

MAX_WIDTH = 8192  # x and the two products of such a position, all float32, take 96 KiB of a partition
TILE_BYTES = 8192  # of each partition and DMA, as far as whole positions make it


@nki.jit
def rope(x, cos, sin):
    """Return ``x`` [positions, heads, d] in HBM, rotated, in its own shape and dtype.

    ``cos`` and ``sin`` [positions, d / 2] belong to the pairs (x[..., i], x[..., i + d / 2]), the convention of Llama
    and GPT-NeoX. bfloat16, float16 and float32; d is even; heads · d is at most 8192. Products are float32.
    """
    positions, heads, d = x.shape
    half = d // 2
    assert d == 2 * half, f"d is {d}; halves are rotated, so it must be even"
    assert tuple(cos.shape) == tuple(sin.shape) == (positions, half), f"cos and sin must be [{positions}, {half}]"
    assert heads * d <= MAX_WIDTH, f"{heads} heads of {d}: at most {MAX_WIDTH} elements of a position fit"
    out = nl.ndarray((positions, heads, d), dtype=x.dtype, buffer=nl.shared_hbm)
    for start, partitions, group in row_blocks(positions, TILE_BYTES // (4 * heads * d)):
        end, shape = start + partitions * group, (partitions, group, heads, 2, half)
        tile = nl.ndarray(shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[start:end, :, :].reshape(shape))
        cosines = load(cos[start:end, :], (partitions, group, half))
        sines = load(sin[start:end, :], (partitions, group, half))
        rotate(tile, cosines, sines)
        nisa.dma_copy(dst=out[start:end, :, :].reshape(shape), src=tile)
    return out


def rotate(tile, cosines, sines):
    """Rotate ``tile`` [partitions, group, heads, 2, half] in place, half of the work on Vector and half on GpSimd."""
    heads = tile.shape[2]
    turned = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
    crossed = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
    gpsimd = nisa.engine.gpsimd
    for g in range(tile.shape[1]):
        cosine, sine = for_each_half(cosines, g, heads), for_each_half(sines, g, heads)
        nisa.tensor_tensor(dst=turned[:, g], data1=tile[:, g], data2=cosine, op=nl.multiply)
        nisa.tensor_tensor(dst=crossed[:, g], data1=tile[:, g], data2=sine, op=nl.multiply, engine=gpsimd)
    first, second = tile[:, :, :, 0, :], tile[:, :, :, 1, :]
    nisa.tensor_tensor(dst=first, data1=turned[:, :, :, 0, :], data2=crossed[:, :, :, 1, :], op=nl.subtract)
    nisa.tensor_tensor(dst=second, data1=turned[:, :, :, 1, :], data2=crossed[:, :, :, 0, :], op=nl.add, engine=gpsimd)


def for_each_half(angles, g, heads):
    """Return row ``g`` of ``angles`` [partitions, group, half] as [partitions, heads, 2, half], with steps of 0."""
    return angles[:, g : g + 1, :].expand_dim(1).broadcast(1, heads).broadcast(2, 2)


def load(source, shape):
    """Return an SBUF tile of ``shape`` with the elements of an HBM tensor."""
    tile = nl.ndarray(shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source.reshape(shape))
    return tile


def row_blocks(rows, group):
    """Return (start, partitions, group) of blocks that cover ``rows`` in order; a partition takes ``group`` rows.

    Neighbouring rows on one partition make the descriptors of a DMA longer.
    """
    pmax = nl.tile_size.pmax
    blocks, start = [], 0
    while start < rows:
        left = rows - start
        each = max(min(group, left // pmax), 1)
        partitions = min(pmax, left // each)
        blocks.append((start, partitions, each))
        start += partitions * each
    return blocks
