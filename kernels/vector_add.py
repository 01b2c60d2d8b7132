"""The sum of two vectors, in tiles of as many columns as asked for: what small DMAs cost, and large ones save.

A tile takes three DMAs, whatever its size, and each costs about 2 µs from its trigger to its completion. With few
columns the kernel waits for those; with thousands it moves bytes.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def vector_add(a, b, columns=2048):
    """Return a + b in the dtype of ``a``: vectors in HBM of one length, any length; bf16, fp16, fp32.

    Partition p holds the p-th of 128 equal parts of a vector, and a tile ``columns`` elements of each part. What does
    not divide by 128 comes last, on one partition.
    """
    assert tuple(a.shape) == tuple(b.shape), f"a has shape {a.shape} and b has {b.shape}"
    (length,) = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    even = length - length % nl.tile_size.pmax
    if even > 0:
        shape = (nl.tile_size.pmax, even // nl.tile_size.pmax)
        add_tiles(out[0:even].reshape(shape), a[0:even].reshape(shape), b[0:even].reshape(shape), columns)
    if even < length:
        shape = (1, length - even)
        add_tiles(
            out[even:length].reshape(shape), a[even:length].reshape(shape), b[even:length].reshape(shape), columns
        )
    return out


def add_tiles(out, a, b, columns):
    """Add matrices in HBM of at most 128 rows, ``columns`` columns at a time."""
    rows, width = a.shape
    for start in range(0, width, columns):
        end = min(start + columns, width)
        a_tile = nl.ndarray((rows, end - start), dtype=a.dtype, buffer=nl.sbuf)
        b_tile = nl.ndarray((rows, end - start), dtype=b.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a_tile, src=a[:, start:end])
        nisa.dma_copy(dst=b_tile, src=b[:, start:end])
        nisa.tensor_tensor(dst=a_tile, data1=a_tile, data2=b_tile, op=nl.add)
        nisa.dma_copy(dst=out[:, start:end], src=a_tile)
