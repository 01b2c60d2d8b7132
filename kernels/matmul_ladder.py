"""Four matrix multiplications, each faster than the one before: a ladder from the obvious kernel to a good one.

All compute a @ b from ``a_t`` [K, M] (K-major) and ``b`` [K, N] in HBM, any sizes, bfloat16, float16, float8 and
float32, and return [M, N] in the dtype of b; sums are float32. They make the same matmuls. What differs is how often
the operands cross from HBM to SBUF, in elements:

1. ``matmul_tiled``         M·K · N/512  + K·N · M/128     each matmul loads its two tiles
2. ``matmul_hoisted``       M·K          + K·N · M/128     a's tiles are loaded before the loop over N
3. ``matmul_blocked_free``  M·K          + K·N · M/256     whole columns of a block of tiles are loaded at once
4. ``matmul_blocked``       M·K · N/2048 + K·N · M/2048    K is blocked too, so that the blocks can be large

The ladder of the NKI tutorial on matrix multiplication; see ``matmul.py`` for a kernel to use.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

# Third rung. All of K is held for a block of each operand.
FREE_BLOCK_M, FREE_BLOCK_N = 256, 1024

# Last rung. The sums of a block take 128 KiB of each partition, the operands 32 KiB at these many bytes of a column.
BLOCK_M, BLOCK_N = 2048, 2048
BLOCK_K_BYTES = 1024


@nki.jit
def matmul_tiled(a_t, b):
    """Return a @ b; each matmul loads its two tiles, so the kernel waits for DMA most of the time."""
    out = result_for(a_t, b)
    for m, height in steps(out.shape[0], nl.tile_size.gemm_stationary_fmax):
        for n, width in steps(out.shape[1], nl.tile_size.gemm_moving_fmax):
            product = nl.ndarray((height, width), dtype=nl.float32, buffer=nl.psum)
            for k, rows in steps(b.shape[0], nl.tile_size.pmax):
                nisa.nc_matmul(
                    dst=product,
                    stationary=load(a_t, k, rows, m, height),
                    moving=load(b, k, rows, n, width),
                    accumulate=k > 0,
                )
            store(out, product, m, n)
    return out


@nki.jit
def matmul_hoisted(a_t, b):
    """Return a @ b; a's 128 columns are loaded once and stay for the whole loop over N (K is at most 32768)."""
    out = result_for(a_t, b)
    for m, height in steps(out.shape[0], nl.tile_size.gemm_stationary_fmax):
        a_tiles = load_columns(a_t, m, height)
        for n, width in steps(out.shape[1], nl.tile_size.gemm_moving_fmax):
            product = nl.ndarray((height, width), dtype=nl.float32, buffer=nl.psum)
            for k, rows in steps(b.shape[0], nl.tile_size.pmax):
                nisa.nc_matmul(
                    dst=product,
                    stationary=a_tiles[k // nl.tile_size.pmax],
                    moving=load(b, k, rows, n, width),
                    accumulate=k > 0,
                )
            store(out, product, m, n)
    return out


@nki.jit
def matmul_blocked_free(a_t, b):
    """Return a @ b; blocks of M and N, all of K, are loaded at once and used for each of their tiles.

    K is at most 32768, and the blocks get smaller where it does not fit otherwise.
    """
    out = result_for(a_t, b)
    M, N = out.shape
    block_m, block_n = free_blocks(b)
    for m0, m_size in steps(M, block_m):
        a_tiles = load_columns(a_t, m0, m_size)
        for n0, n_size in steps(N, block_n):
            b_tiles = load_columns(b, n0, n_size)
            for m, height in steps(m_size, nl.tile_size.gemm_stationary_fmax):
                for n, width in steps(n_size, nl.tile_size.gemm_moving_fmax):
                    store(out, multiply(a_tiles, b_tiles, m, height, n, width), m0 + m, n0 + n)
    return out


@nki.jit
def matmul_blocked(a_t, b):
    """Return a @ b; M, N and K are blocked, and sums over the blocks of K are kept in SBUF. Any K."""
    out = result_for(a_t, b)
    M, N = out.shape
    for m0, m_size in steps(M, BLOCK_M):
        for n0, n_size in steps(N, BLOCK_N):
            multiply_block(out[m0 : m0 + m_size, n0 : n0 + n_size], a_t[:, m0 : m0 + m_size], b[:, n0 : n0 + n_size])
    return out


def multiply_block(out, a_t, b):
    """Compute and store one block of the result from views of the operands in HBM."""
    K, n_size = b.shape
    block_k = BLOCK_K_BYTES // itemsize(b)
    strips = steps(out.shape[0], nl.tile_size.gemm_stationary_fmax)
    sums = []
    for _, height in strips:
        # one block of K needs no sums: its products are stored as they are
        sums.append(nl.ndarray((height, n_size), dtype=nl.float32, buffer=nl.sbuf) if block_k < K else None)
    for k, k_size in steps(K, block_k):
        a_tiles = load_columns(a_t[k : k + k_size, :], 0, a_t.shape[1])
        b_tiles = load_columns(b[k : k + k_size, :], 0, n_size)
        for index in range(len(strips)):
            m, height = strips[index]
            is_last = k + k_size == K
            row = nl.ndarray((height, n_size), dtype=out.dtype, buffer=nl.sbuf) if is_last else sums[index]
            for n, width in steps(n_size, nl.tile_size.gemm_moving_fmax):
                product = multiply(a_tiles, b_tiles, m, height, n, width)
                target = row[:, n : n + width]
                if k == 0:
                    nisa.activation(dst=target, op=nl.copy, data=product)
                else:
                    nisa.tensor_tensor(dst=target, data1=sums[index][:, n : n + width], data2=product, op=nl.add)
            if is_last:
                nisa.dma_copy(dst=out[m : m + height, :], src=row)


def multiply(a_tiles, b_tiles, m, height, n, width):
    """Return the product of columns of two operands in SBUF, as a PSUM tile [height, width]."""
    product = nl.ndarray((height, width), dtype=nl.float32, buffer=nl.psum)
    for k in range(len(a_tiles)):
        nisa.nc_matmul(
            dst=product,
            stationary=a_tiles[k][:, m : m + height],
            moving=b_tiles[k][:, n : n + width],
            accumulate=k > 0,
        )
    return product


def result_for(a_t, b):
    """Return a new HBM tensor for the product."""
    assert a_t.shape[0] == b.shape[0], f"a_t has {a_t.shape[0]} rows and b has {b.shape[0]}; both are K"
    return nl.ndarray((a_t.shape[1], b.shape[1]), dtype=b.dtype, buffer=nl.shared_hbm)


def load(tensor, row, rows, column, columns):
    """Return a part of an HBM matrix as an SBUF tile."""
    tile = nl.ndarray((rows, columns), dtype=tensor.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=tensor[row : row + rows, column : column + columns])
    return tile


def load_columns(tensor, column, columns):
    """Return columns of an HBM matrix as SBUF tiles of at most 128 rows."""
    tiles = []
    for row, rows in steps(tensor.shape[0], nl.tile_size.pmax):
        tiles.append(load(tensor, row, rows, column, columns))
    return tiles


def store(out, product, m, n):
    """Store a PSUM tile at row ``m`` and column ``n`` of the result, through SBUF."""
    height, width = product.shape
    tile = nl.ndarray((height, width), dtype=out.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=product)
    nisa.dma_copy(dst=out[m : m + height, n : n + width], src=tile)


def free_blocks(b):
    """Return the block sizes of the third rung: smaller than wished for where all of K does not fit into SBUF."""
    block_m, block_n = FREE_BLOCK_M, FREE_BLOCK_N
    column_bytes = -(-b.shape[0] // nl.tile_size.pmax) * itemsize(b)
    while column_bytes * (block_m + block_n) > nl.tile_size.sbuf_fmax_bytes * 7 // 8:
        # N first: how often b is loaded depends on M's block alone
        if block_n > 128:
            block_n //= 2
        else:
            block_m //= 2
    return block_m, block_n


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
