"""Matrix multiplication of 8-bit floats, two products of a cell at once: twice the rows of K in the time of one."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

BLOCK_N = 2048  # columns of b and of the result that are loaded and stored at once


@nki.jit
def matmul_double_row(a_t, b):
    """Return a @ b of shape [M, N] in bfloat16, from ``a_t`` [K, M] (K-major) and ``b`` [K, N] in HBM.

    8-bit floats, an even K, any M and N; sums are float32 in PSUM. From NeuronCore-v3 on.
    """
    K, M = a_t.shape
    K_b, N = b.shape
    assert K_b == K, f"a_t has {K} rows and b has {K_b}; both are K"
    assert K % 2 == 0, f"K is {K}; rows are multiplied in pairs"
    out = nl.ndarray((M, N), dtype=nl.bfloat16, buffer=nl.shared_hbm)

    columns, moving = nl.tile_size.gemm_stationary_fmax, nl.tile_size.gemm_moving_fmax
    step = 2 * nl.tile_size.pmax
    pairs = [(k, min(step, K - k) // 2) for k in range(0, K, step)]
    a_rows = [load_pairs(a_t, k, rows, 0, M) for k, rows in pairs]
    for n0 in range(0, N, BLOCK_N):
        n_size = min(BLOCK_N, N - n0)
        b_rows = [load_pairs(b, k, rows, n0, n_size) for k, rows in pairs]
        for m in range(0, M, columns):
            height = min(columns, M - m)
            row = nl.ndarray((height, n_size), dtype=out.dtype, buffer=nl.sbuf)
            for n in range(0, n_size, moving):
                width = min(moving, n_size - n)
                product = nl.ndarray((height, width), dtype=nl.float32, buffer=nl.psum)
                for k in range(len(pairs)):
                    nisa.nc_matmul(
                        dst=product,
                        stationary=a_rows[k][:, :, m : m + height],
                        moving=b_rows[k][:, :, n : n + width],
                        accumulate=k > 0,
                        perf_mode=nisa.matmul_perf_mode.double_row,
                    )
                nisa.tensor_copy(dst=row[:, n : n + width], src=product)
            nisa.dma_copy(dst=out[m : m + height, n0 : n0 + n_size], src=row)
    return out


def load_pairs(tensor, k, rows, start, size):
    """Return an SBUF tile [rows, 2, size]: row p holds rows k + p and k + rows + p of an HBM tensor."""
    tile = nl.ndarray((rows, 2, size), dtype=tensor.dtype, buffer=nl.sbuf)
    for half in range(2):
        first = k + half * rows
        nisa.dma_copy(dst=tile[:, half, :], src=tensor[first : first + rows, start : start + size])
    return tile
