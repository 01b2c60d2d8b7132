"""SiLU, x · sigmoid(x): a stream of tiles through the scalar engine, as fast as DMA brings them."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

# What a tile takes of each partition. Descriptors of 8 KiB move at the full rate of the DMA engines, and 1 MiB per DMA
# takes far longer than the 0.6 µs after which a queue takes the next one.
TILE_BYTES = 8192


@nki.jit
def silu(x):
    """Return silu(x), element by element, in the shape and dtype of ``x`` (HBM): any shape; bf16, fp16, fp32."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    source, target = x.reshape((x.size,)), out.reshape((x.size,))
    for start, partitions, width in pieces(x.size, TILE_BYTES // itemsize(x)):
        end = start + partitions * width
        tile = nl.ndarray((partitions, width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=source[start:end].reshape((partitions, width)))
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        nisa.dma_copy(dst=target[start:end].reshape((partitions, width)), src=tile)
    return out


def pieces(total, width):
    """Return (start, partitions, width) of tiles that cover ``total`` elements in order.

    Whole tiles come first, then a narrower one on all partitions, then what is left, on one partition.
    """
    pmax = nl.tile_size.pmax
    tiles, start = [], 0
    while start < total:
        left = total - start
        columns = min(width, left // pmax) if left >= pmax else left
        partitions = pmax if left >= pmax else 1
        tiles.append((start, partitions, columns))
        start += partitions * columns
    return tiles


def itemsize(tensor):
    """Return the bytes of an element of a float tensor."""
    return 4 if "32" in str(tensor.dtype) else 2
