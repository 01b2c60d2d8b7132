"""Convolution over two axes, with max-pooling behind it: a matmul per tap over shifted views of a strip of rows.

A strip is as many rows of the result as a PSUM bank holds. Its input is loaded once and serves all taps and all output
channels; each strip has tiles of its own, so that loads run ahead.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

MAX_WEIGHT_BYTES = 98304  # what all weights together may take of each partition


@nki.jit
def conv2d(x, w, bias, pool=1):
    """Return the cross-correlation of ``x`` with ``w``, plus the bias, each pool × pool square reduced to its maximum.

    ``x`` is [batch, channels_in, height, width], ``w`` [channels_out, channels_in, tap_rows, tap_columns] and ``bias``
    [channels_out], in HBM; bfloat16, float16 or float32, x and w alike. The result is [batch, channels_out,
    (height - tap_rows + 1) / pool, (width - tap_columns + 1) / pool] in the dtype of x; pool divides both sizes. Rows
    of the convolution have at most 512 / pool elements, and ceil(channels_in / 128) · tap_rows · tap_columns ·
    channels_out · itemsize is at most 96 KiB. Sums are float32.
    """
    batch, channels_in, height, width = x.shape
    channels_out, channels_w, tap_rows, tap_columns = w.shape
    assert channels_w == channels_in, f"x has {channels_in} channels and w has {channels_w}"
    rows, columns = height - tap_rows + 1, width - tap_columns + 1
    assert min(rows, columns) > 0, f"{tap_rows} × {tap_columns} taps are more than {height} × {width}"
    assert rows % pool + columns % pool == 0, f"pool {pool} divides not both of {rows} and {columns}"
    at_once = nl.tile_size.gemm_moving_fmax // columns // pool * pool
    assert at_once > 0, f"{pool} rows of {columns} do not fit into a PSUM bank"
    out = nl.ndarray((batch, channels_out, rows // pool, columns // pool), dtype=x.dtype, buffer=nl.shared_hbm)
    weights, biases = load_weights(w), load_bias(bias)
    for n in range(batch):
        for row, count in steps(rows, at_once):
            strips = []
            for channel, size in steps(channels_in, nl.tile_size.pmax):
                strip = nl.ndarray((size, count + tap_rows - 1, width), dtype=x.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=strip, src=x[n, channel : channel + size, row : row + count + tap_rows - 1, :])
                strips.append(strip)
            target = out[n, :, row // pool : (row + count) // pool, :]
            convolve(target, strips, weights, biases, (tap_rows, tap_columns), pool)
    return out


def convolve(out, strips, weights, biases, taps, pool):
    """Compute and store ``out`` [channels_out, rows, columns] from strips of the input and the weights."""
    channels_out, rows, columns = out.shape
    for target, size in steps(channels_out, nl.tile_size.gemm_stationary_fmax):
        sums = nl.ndarray((size, rows * pool, columns * pool), dtype=nl.float32, buffer=nl.psum)
        for index in range(len(strips)):
            for i in range(taps[0]):
                for j in range(taps[1]):
                    nisa.nc_matmul(
                        dst=sums,
                        stationary=weights[index][:, i * taps[1] + j, target : target + size],
                        moving=strips[index][:, i : i + rows * pool, j : j + columns * pool],
                        accumulate=index + i + j > 0,
                    )
        result = nl.ndarray((size, rows, columns), dtype=out.dtype, buffer=nl.sbuf)
        largest = sums if pool == 1 else maxima(sums, pool)
        nisa.tensor_scalar(dst=result, data=largest, op0=nl.add, operand0=biases[target // nl.tile_size.pmax])
        nisa.dma_copy(dst=out[target : target + size, :, :], src=result)


def maxima(sums, pool):
    """Return the maximum of each pool × pool square of a PSUM tile, in float32."""
    size, rows, columns = sums.shape
    largest = nl.ndarray((size, rows // pool, columns // pool), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=largest, src=sums[:, 0::pool, 0::pool])
    for i in range(pool):
        for j in range(pool):
            if i + j > 0:
                nisa.tensor_tensor(dst=largest, data1=largest, data2=sums[:, i::pool, j::pool], op=nl.maximum)
    return largest


def load_weights(w):
    """Return an SBUF tile [channels_in, taps, channels_out] per 128 input channels, transposed by the tensor engine."""
    channels_out, channels_in, tap_rows, tap_columns = w.shape
    pmax, taps = nl.tile_size.pmax, tap_rows * tap_columns
    weight_bytes = -(-channels_in // pmax) * taps * channels_out * itemsize(w)
    assert weight_bytes <= MAX_WEIGHT_BYTES, f"weights take {weight_bytes} bytes of each partition, of 96 KiB"
    flat = w.reshape((channels_out, channels_in, taps))
    tiles = []
    for channel, size in steps(channels_in, pmax):
        tile = nl.ndarray((size, taps, channels_out), dtype=w.dtype, buffer=nl.sbuf)
        for target, rows in steps(channels_out, pmax):
            part = nl.ndarray((rows, size, taps), dtype=w.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=part, src=flat[target : target + rows, channel : channel + size, :])
            for tap in range(taps):
                turned = nl.ndarray((size, rows), dtype=w.dtype, buffer=nl.psum)
                nisa.nc_transpose(dst=turned, data=part[:, :, tap])
                nisa.tensor_copy(dst=tile[:, tap, target : target + rows], src=turned)
        tiles.append(tile)
    return tiles


def load_bias(bias):
    """Return a float32 column per 128 output channels."""
    columns = []
    for target, size in steps(bias.shape[0], nl.tile_size.pmax):
        column = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=column, src=bias[target : target + size].reshape((size, 1)))
        columns.append(column)
    return columns


def steps(extent, step):
    """Return (start, size) of the pieces of at most ``step`` that make ``extent``."""
    pieces = []
    for start in range(0, extent, step):
        pieces.append((start, min(step, extent - start)))
    return pieces


def itemsize(tensor):
    """Return the bytes of an element: the dtypes that a matmul takes have 1, 2 or 4."""
    name = str(tensor.dtype)
    return 4 if "32" in name else 2 if "16" in name else 1
