"""Matrix multiplication, blocked: operands stay in SBUF as long as they fit, so that each is loaded few times."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

# Columns of a_t, and of b and the result, that are loaded by one DMA per 128 rows. With 2 bytes an element that makes
# descriptors of 1 KiB and 4 KiB, and 96 KiB of each partition for K = 2048.
BLOCK_M = 512
BLOCK_N = 2048


@nki.jit
def matmul(a_t, b):
    """Return a @ b of shape [M, N] in the dtype of b, from ``a_t`` [K, M] (K-major) and ``b`` [K, N] in HBM.

    bfloat16, float16, float8 and float32, any sizes; sums are float32 in PSUM.
    """
    K, M = a_t.shape
    K_b, N = b.shape
    assert K_b == K, f"a_t has {K} rows and b has {K_b}; both are K"
    out = nl.ndarray((M, N), dtype=b.dtype, buffer=nl.shared_hbm)

    pmax = nl.tile_size.pmax
    k_tiles = [(k, min(pmax, K - k)) for k in range(0, K, pmax)]
    block_m, block_n = block_sizes(len(k_tiles) * max(itemsize(a_t), itemsize(b)))
    for n0 in range(0, N, block_n):
        n_size = min(block_n, N - n0)
        b_rows = load_rows(b, k_tiles, n0, n_size)
        for m0 in range(0, M, block_m):
            m_size = min(block_m, M - m0)
            a_rows = load_rows(a_t, k_tiles, m0, m_size)
            multiply_block(out, a_rows, b_rows, m0, m_size, n0, n_size)
    return out


def multiply_block(out, a_rows, b_rows, m0, m_size, n0, n_size):
    """Compute and store out[m0 : m0 + m_size, n0 : n0 + n_size] from operands in SBUF."""
    columns, moving = nl.tile_size.gemm_stationary_fmax, nl.tile_size.gemm_moving_fmax
    for m in range(0, m_size, columns):
        height = min(columns, m_size - m)
        row = nl.ndarray((height, n_size), dtype=out.dtype, buffer=nl.sbuf)
        for n in range(0, n_size, moving):
            width = min(moving, n_size - n)
            product = nl.ndarray((height, width), dtype=nl.float32, buffer=nl.psum)
            for k in range(len(a_rows)):
                nisa.nc_matmul(
                    dst=product,
                    stationary=a_rows[k][:, m : m + height],
                    moving=b_rows[k][:, n : n + width],
                    accumulate=k > 0,
                )
            nisa.tensor_copy(dst=row[:, n : n + width], src=product)
        nisa.dma_copy(dst=out[m0 + m : m0 + m + height, n0 : n0 + n_size], src=row)


def load_rows(tensor, k_tiles, start, size):
    """Return one SBUF tile per K-tile, with columns ``start`` to ``start + size`` of an HBM tensor."""
    tiles = []
    for k, rows in k_tiles:
        tile = nl.ndarray((rows, size), dtype=tensor.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=tensor[k : k + rows, start : start + size])
        tiles.append(tile)
    return tiles


def block_sizes(bytes_per_column):
    """Return block sizes for M and N at which a block of b and two of a_t (one on its way in) fit into SBUF.

    ``bytes_per_column`` is what one column of K elements takes of each partition.
    """
    block_m, block_n = BLOCK_M, BLOCK_N
    room = nl.tile_size.sbuf_fmax_bytes - 4 * BLOCK_N * 4  # rows of the result on their way out
    while bytes_per_column * (block_n + 2 * block_m) > room and block_n > 1:
        block_n = max(block_n // 2, 1)
        block_m = min(block_m, block_n)
    return block_m, block_n


def itemsize(tensor):
    """Return the bytes of an element: the dtypes that a matmul takes have 1, 2 or 4."""
    name = str(tensor.dtype)
    return 4 if "32" in name else 2 if "16" in name else 1
