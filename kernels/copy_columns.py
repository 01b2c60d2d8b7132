"""A copy through SBUF in blocks of columns: how wide a block is decides how large the DMA's descriptors are."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def copy_columns(x, columns):
    """Return a copy of ``x`` [R, C] in HBM, loaded and stored ``columns`` at a time.

    Any sizes and any dtype. A row of a block lies in one piece of HBM, so that a descriptor moves ``columns`` elements.
    """
    assert columns > 0, f"blocks of {columns} columns"
    R, C = x.shape
    out = nl.ndarray((R, C), dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, R, nl.tile_size.pmax):
        rows = min(nl.tile_size.pmax, R - r)
        for c in range(0, C, columns):
            width = min(columns, C - c)
            tile = nl.ndarray((rows, width), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[r : r + rows, c : c + width])
            nisa.dma_copy(dst=out[r : r + rows, c : c + width], src=tile)
    return out
