"""Average pooling: a window is two axes of an access pattern, so that one instruction sums every window of a tile."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

TILE_BYTES = 16384  # of each partition and DMA, as far as whole rows of windows make it
MAX_WINDOW_BYTES = 65536  # what a row of windows may take


@nki.jit
def average_pool2d(x, pool):
    """Return the means of ``pool`` × ``pool`` windows of ``x`` [channels, height, width] in HBM, in the dtype of x.

    The windows lie side by side, and rows and columns that do not fill one are left out: the result is [channels,
    height // pool, width // pool]. Any number of channels; pool · width · itemsize is at most 64 KiB; bfloat16,
    float16 and float32. Sums are float32.
    """
    channels, height, width = x.shape
    rows, columns = height // pool, width // pool
    window_bytes = pool * width * itemsize(x)
    assert min(rows, columns) > 0, f"a window of {pool} × {pool} does not fit into {height} × {width}"
    assert window_bytes <= MAX_WINDOW_BYTES, f"{pool} rows take {window_bytes} bytes; at most {MAX_WINDOW_BYTES} fit"
    out = nl.ndarray((channels, rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    pmax = nl.tile_size.pmax
    at_once = max(TILE_BYTES // window_bytes, 1)
    for channel in range(0, channels, pmax):
        end = min(channel + pmax, channels)
        for row in range(0, rows, at_once):
            stop = min(row + at_once, rows)
            tile = nl.ndarray((end - channel, (stop - row) * pool, width), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[channel:end, row * pool : stop * pool, :])
            means = nl.ndarray((end - channel, stop - row, columns), dtype=x.dtype, buffer=nl.sbuf)
            average(means, tile, pool)
            nisa.dma_copy(dst=out[channel:end, row:stop, :], src=means)
    return out


def average(means, tile, pool):
    """Write the means of the windows of ``tile`` [channels, rows · pool, width] to ``means``."""
    _, rows, columns = means.shape
    used = tile[:, :, 0 : columns * pool]
    windows = used.reshape_dim(2, (columns, pool)).reshape_dim(1, (rows, pool)).permute((0, 1, 3, 2, 4))
    sums = nl.ndarray(means.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=sums, op=nl.add, data=windows, axis=(3, 4))
    nisa.activation(dst=means, op=nl.copy, data=sums, scale=1.0 / (pool * pool))


def itemsize(tensor):
    """Return the bytes of an element of a float tensor."""
    return 4 if "32" in str(tensor.dtype) else 2
