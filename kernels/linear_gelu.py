"""A linear layer and its activation, gelu(x @ w + bias), without a trip through HBM in between.

As many columns of the weights as half of SBUF holds stay there while all rows of x pass by.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def linear_gelu(x_t, w, bias):
    """Return gelu(x @ w + bias) [M, N] in the dtype of ``w``.

    ``x_t`` [K, M] (K-major), ``w`` [K, N] and ``bias`` [1, N] are in HBM, in one dtype: bfloat16, float16 or float32.
    Any sizes, as long as ceil(K / 128) · 512 · itemsize is at most 96 KiB. Sums, bias and gelu are float32.
    """
    K, M = x_t.shape
    N = w.shape[1]
    assert w.shape[0] == K, f"x_t has {K} rows and w has {w.shape[0]}; both are K"
    out = nl.ndarray((M, N), dtype=w.dtype, buffer=nl.shared_hbm)
    bank = nl.tile_size.gemm_moving_fmax
    column_bytes = -(-K // nl.tile_size.pmax) * itemsize(w)
    at_once = max(nl.tile_size.sbuf_fmax_bytes // 2 // column_bytes // bank, 1) * bank
    for n, columns in steps(N, at_once):
        weights = load_columns(w, n, columns)
        biases = nl.ndarray((nl.tile_size.pmax, columns), dtype=bias.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=biases, src=bias[:, n : n + columns].broadcast(0, nl.tile_size.pmax))
        for m, rows in steps(M, nl.tile_size.gemm_stationary_fmax):
            layer(out[m : m + rows, n : n + columns], load_columns(x_t, m, rows), weights, biases)
    return out


def layer(out, x_tiles, weights, biases):
    """Compute and store ``out`` from tiles of x and w, a PSUM bank of columns at a time."""
    rows, columns = out.shape
    for n, width in steps(columns, nl.tile_size.gemm_moving_fmax):
        sums = nl.ndarray((rows, width), dtype=nl.float32, buffer=nl.psum)
        for k in range(len(x_tiles)):
            nisa.nc_matmul(dst=sums, stationary=x_tiles[k], moving=weights[k][:, n : n + width], accumulate=k > 0)
        biased = nl.ndarray((rows, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=biased, data1=sums, data2=biases[0:rows, n : n + width], op=nl.add)
        result = nl.ndarray((rows, width), dtype=out.dtype, buffer=nl.sbuf)
        nisa.activation(dst=result, op=nl.gelu, data=biased)
        nisa.dma_copy(dst=out[:, n : n + width], src=result)


def load_columns(tensor, column, columns):
    """Return columns of an HBM matrix as SBUF tiles of at most 128 rows."""
    tiles = []
    for row, rows in steps(tensor.shape[0], nl.tile_size.pmax):
        tile = nl.ndarray((rows, columns), dtype=tensor.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=tensor[row : row + rows, column : column + columns])
        tiles.append(tile)
    return tiles


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
