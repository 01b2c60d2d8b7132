"""Many small matmuls, a[i] @ b[i]: everything of one is on chip at once, and a is transposed before any is multiplied.

The transposes of a whole matrix come first, so that the tensor engine then multiplies without a pause.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

STORE_BANKS = 2  # PSUM banks whose columns one store writes


@nki.jit
def batched_matmul(a, b):
    """Return a @ b [batch, M, N] in the dtype of ``b``, for ``a`` [batch, M, K] and ``b`` [batch, K, N] in HBM.

    K is at most 128; the others are any sizes whose matrices fit into SBUF, one of each: with N and M multiples of 128,
    (M + N) · itemsize is at most 96 KiB. bfloat16, float16 or float32; sums are float32.
    """
    batch, M, K = a.shape
    N = b.shape[2]
    assert tuple(b.shape[0:2]) == (batch, K), f"a is {a.shape} and b is {b.shape}: batch and K must agree"
    assert a.shape[2] <= nl.tile_size.pmax, f"K is {K}; the array has {nl.tile_size.pmax} rows"
    out = nl.ndarray((batch, M, N), dtype=b.dtype, buffer=nl.shared_hbm)
    for index in range(batch):
        moving = nl.ndarray((K, N), dtype=b.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=moving, src=b[index, :, :])
        multiply(out[index, :, :], load_transposed(a[index, :, :]), moving)
    return out


def load_transposed(a):
    """Return ``a`` [M, K] as an SBUF tile [K, M], transposed by the tensor engine, 128 rows at a time."""
    M, K = a.shape
    turned = nl.ndarray((K, M), dtype=a.dtype, buffer=nl.sbuf)
    for m, rows in steps(M, nl.tile_size.pmax):
        part = nl.ndarray((rows, K), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=part, src=a[m : m + rows, :])
        bank = nl.ndarray((K, rows), dtype=a.dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=bank, data=part)
        nisa.tensor_copy(dst=turned[:, m : m + rows], src=bank)
    return turned


def multiply(out, stationary, moving):
    """Compute and store ``out`` [M, N] from SBUF tiles [K, M] and [K, N]: Vector and Scalar empty PSUM in turns."""
    M, N = out.shape
    bank = nl.tile_size.gemm_moving_fmax
    for m, rows in steps(M, nl.tile_size.gemm_stationary_fmax):
        for start, width in steps(N, STORE_BANKS * bank):
            result = nl.ndarray((rows, width), dtype=out.dtype, buffer=nl.sbuf)
            for n, columns in steps(width, bank):
                product = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.psum)
                part = moving[:, start + n : start + n + columns]
                nisa.nc_matmul(dst=product, stationary=stationary[:, m : m + rows], moving=part)
                if n // bank % 2 == 0:
                    nisa.tensor_copy(dst=result[:, n : n + columns], src=product)
                else:
                    nisa.activation(dst=result[:, n : n + columns], op=nl.copy, data=product)
            nisa.dma_copy(dst=out[m : m + rows, start : start + width], src=result)


def steps(extent, step):
    """Return (start, size) of the pieces of at most ``step`` that make ``extent``."""
    pieces = []
    for start in range(0, extent, step):
        pieces.append((start, min(step, extent - start)))
    return pieces
