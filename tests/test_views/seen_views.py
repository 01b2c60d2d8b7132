"""What a view of a tensor reads, and what it answers about itself: both inside a kernel."""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
import numpy as np

import neurosim


def numbers(shape, dtype=np.int32):
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


def copied(view, array, buffer=nl.shared_hbm):
    """Return what ``view`` of a tensor that holds ``array`` reads."""

    def kernel(a):
        source = a
        if buffer is not nl.shared_hbm:
            source = nl.ndarray(a.shape, a.dtype, nl.sbuf)
            nisa.dma_copy(dst=source, src=a)
        if buffer is nl.psum:
            psum = nl.ndarray(a.shape, a.dtype, nl.psum)
            nisa.tensor_copy(dst=psum, src=source)
            seen = view(psum)
            tile = nl.ndarray(seen.shape, seen.dtype, nl.sbuf)
            nisa.tensor_copy(dst=tile, src=seen)
        else:
            tile = view(source)
        out = nl.ndarray(tile.shape, tile.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    return neurosim.simulate(kernel)(array).outputs


def asked(question, shape=(128, 64), dtype=nl.float32, buffer=nl.sbuf):
    """Return what ``question`` answers about a new tensor, inside a kernel."""

    def kernel():
        return question(nl.ndarray(shape, dtype, buffer, name="t"))

    return neurosim.simulate(kernel)().outputs
