"""The MLP of Llama, (silu(x Wg) ∘ (x Wu)) Wd: two matmuls that never meet HBM in between, and no transpose of h.

The hidden activations are computed transposed, with the hidden axis on partitions, which is how the second matmul
wants them as its stationary operand. Weights stream through SBUF once per block of tokens.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

TOKENS = 512  # a block: one PSUM bank of float32, and enough work per weight to hide its load
HIDDEN_TILES = 2  # computed at once; with gate and up they take four of the eight PSUM banks
CHUNK = 1024  # rows of a weight that one DMA brings


@nki.jit
def swiglu(x, w_gate, w_up, w_down):
    """Return (silu(x @ w_gate) * (x @ w_up)) @ w_down of shape [tokens, outputs], in the dtype of ``x``.

    ``x`` [tokens, width], ``w_gate`` and ``w_up`` [width, hidden] and ``w_down`` [hidden, outputs] are in HBM, in one
    dtype: bfloat16, float16 or float32. Any sizes, as long as 128 tokens of x and of the hidden activations fit into
    5/8 of SBUF: width + max(width, hidden) is at most 61440 in 16 bits, 30720 in float32. Sums and silu are float32;
    the hidden activations are rounded to the dtype of x.
    """
    tokens, width = x.shape
    hidden, outputs = w_down.shape
    assert tuple(w_gate.shape) == tuple(w_up.shape) == (width, hidden), f"w_gate and w_up must be [{width}, {hidden}]"
    out = nl.ndarray((tokens, outputs), dtype=x.dtype, buffer=nl.shared_hbm)
    for token, count in steps(tokens, tokens_at_once(x, width, hidden)):
        x_t = load_transposed(x[token : token + count, :])
        h_t = hidden_activations(x_t, w_gate, w_up)
        project(out[token : token + count, :], h_t, w_down)
    return out


def tokens_at_once(x, width, hidden):
    """Return how many tokens fit: 512, or fewer where x, and then its transpose or h, take more than 5/8 of SBUF."""
    pmax = nl.tile_size.pmax
    token_bytes = (-(-width // pmax) + -(-max(width, hidden) // pmax)) * itemsize(x)
    tokens = TOKENS
    while tokens > pmax and tokens * token_bytes > nl.tile_size.sbuf_fmax_bytes * 5 // 8:
        tokens //= 2
    return tokens


def load_transposed(x):
    """Return ``x`` [tokens, width] as SBUF tiles [128 of width, tokens], transposed by the tensor engine."""
    pmax = nl.tile_size.pmax
    tokens, width = x.shape
    strips = load_rows(x, 0, tokens, 0, width)
    tiles = []
    for d, size in steps(width, pmax):
        bank = nl.ndarray((size, tokens), dtype=x.dtype, buffer=nl.psum)
        for index in range(len(strips)):
            rows = strips[index].shape[0]
            columns = bank[:, index * pmax : index * pmax + rows]
            nisa.nc_transpose(dst=columns, data=strips[index][:, d : d + size])
        tile = nl.ndarray((size, tokens), dtype=x.dtype, buffer=nl.sbuf)
        empty(tile, bank, d // pmax)
        tiles.append(tile)
    return tiles


def hidden_activations(x_t, w_gate, w_up):
    """Return the transpose of silu(x w_gate) ∘ (x w_up), as SBUF tiles [128 of hidden, tokens]."""
    pmax = nl.tile_size.pmax
    tokens, hidden = x_t[0].shape[1], w_gate.shape[1]
    tiles = []
    for f, size in steps(hidden, HIDDEN_TILES * pmax):
        columns = steps(size, pmax)
        gates, ups = psum_tiles(columns, tokens), psum_tiles(columns, tokens)
        for d, rows in steps(w_gate.shape[0], CHUNK):
            gate_rows = load_rows(w_gate, d, rows, f, size)
            up_rows = load_rows(w_up, d, rows, f, size)
            for index in range(len(columns)):
                start, end = columns[index][0], columns[index][0] + columns[index][1]
                for k in range(len(gate_rows)):
                    moving, is_more = x_t[d // pmax + k], d + k > 0
                    nisa.nc_matmul(gates[index], gate_rows[k][:, start:end], moving, accumulate=is_more)
                    nisa.nc_matmul(ups[index], up_rows[k][:, start:end], moving, accumulate=is_more)
        for index in range(len(columns)):
            activated = nl.ndarray(gates[index].shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=activated, op=nl.silu, data=gates[index])
            tile = nl.ndarray(gates[index].shape, dtype=x_t[0].dtype, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=tile, data1=activated, data2=ups[index], op=nl.multiply)
            tiles.append(tile)
    return tiles


def project(out, h_t, w_down):
    """Store h w_down, from the transposed tiles of h, as ``out`` [tokens, outputs]."""
    pmax = nl.tile_size.pmax
    tokens = steps(out.shape[0], pmax)
    for column, width in steps(out.shape[1], nl.tile_size.gemm_moving_fmax):
        sums = psum_tiles(tokens, width)
        for f, rows in steps(w_down.shape[0], CHUNK):
            weights = load_rows(w_down, f, rows, column, width)
            for index in range(len(tokens)):
                start, end = tokens[index][0], tokens[index][0] + tokens[index][1]
                for k in range(len(weights)):
                    stationary = h_t[f // pmax + k][:, start:end]
                    nisa.nc_matmul(sums[index], stationary, weights[k], accumulate=f + k > 0)
        for index in range(len(tokens)):
            start, end = tokens[index][0], tokens[index][0] + tokens[index][1]
            tile = nl.ndarray(sums[index].shape, dtype=out.dtype, buffer=nl.sbuf)
            empty(tile, sums[index], index)
            nisa.dma_copy(dst=out[start:end, column : column + width], src=tile)


def empty(dst, psum, turn):
    """Copy a PSUM tile to SBUF: Vector and Scalar take turns."""
    if turn % 2 == 0:
        nisa.tensor_copy(dst=dst, src=psum)
    else:
        nisa.activation(dst=dst, op=nl.copy, data=psum)


def psum_tiles(pieces, width):
    """Return a float32 PSUM tile [size, width] for each (start, size)."""
    tiles = []
    for _, size in pieces:
        tiles.append(nl.ndarray((size, width), dtype=nl.float32, buffer=nl.psum))
    return tiles


def load_rows(tensor, row, rows, column, width):
    """Return a part of an HBM matrix as tiles of 128 rows: the whole ones by one DMA, what is left by another."""
    pmax = nl.tile_size.pmax
    whole = rows // pmax
    tiles = []
    if whole > 0:
        tile = nl.ndarray((pmax, whole, width), dtype=tensor.dtype, buffer=nl.sbuf)
        part = tensor[row : row + whole * pmax, column : column + width]
        nisa.dma_copy(dst=tile, src=part.reshape_dim(0, (whole, pmax)).permute((1, 0, 2)))
        for index in range(whole):
            tiles.append(tile[:, index, :])
    if rows > whole * pmax:
        tile = nl.ndarray((rows - whole * pmax, width), dtype=tensor.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=tensor[row + whole * pmax : row + rows, column : column + width])
        tiles.append(tile)
    return tiles


def steps(extent, step):
    """Return (start, size) of the pieces of at most ``step`` that make ``extent``."""
    pieces = []
    for start in range(0, extent, step):
        pieces.append((start, min(step, extent - start)))
    return pieces


def itemsize(tensor):
    """Return the bytes of an element of a float tensor."""
    return 4 if "32" in str(tensor.dtype) else 2
