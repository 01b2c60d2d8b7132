"""Flash attention, forward: softmax(q kᵀ / √d) v without ever holding the whole score matrix."""

from __future__ import annotations

import math

import nki
import nki.isa as nisa
import nki.language as nl

BLOCK = 512  # keys that are scored at once: one PSUM bank of float32
MASKED = -1e30  # score of a key that must not be seen; its exponential is 0


@nki.jit
def attention(q, k, v, causal=False):
    """Return attention of ``q`` [S_q, d] over ``k`` and ``v`` [S_kv, d] in HBM, d at most 128, in the dtype of q.

    Any sequence lengths; bfloat16, float16 and float32. ``causal`` lets row i see keys up to i, and needs S_q = S_kv.
    """
    S_q, d = q.shape
    S_kv, d_k = k.shape
    assert d == d_k, f"q has {d} columns and k has {d_k}"
    assert tuple(v.shape) == (S_kv, d), f"k has shape {k.shape} and v has {v.shape}"
    assert d <= nl.tile_size.pmax, f"d is {d}; the array has {nl.tile_size.pmax} rows"
    assert not causal or S_q == S_kv, f"causal attention of {S_q} rows over {S_kv} keys"

    out = nl.ndarray((S_q, d), dtype=q.dtype, buffer=nl.shared_hbm)
    keys = KeyValueCache(k, v)
    pmax = nl.tile_size.pmax
    for q0 in range(0, S_q, pmax):
        rows = min(pmax, S_q - q0)
        q_t = transposed(load(q, q0, rows))
        seen = q0 + rows if causal else S_kv
        state = None
        for kv0 in range(0, seen, BLOCK):
            width = min(BLOCK, seen - kv0)
            crosses = causal and kv0 + width > q0 + 1
            scores = score_block(q_t, keys.key_block(kv0, width), q0 - kv0 if crosses else None)
            state = accumulate(state, scores, keys.value_tiles(kv0, width), 1.0 / math.sqrt(d))
        store_normalised(out, q0, state)
    return out


class KeyValueCache:
    """Keys (transposed, [d, S_kv]) and values of the sequence, loaded at first use.

    They stay in SBUF if they fit into half of it; a longer sequence is loaded again for each block of rows.
    """

    def __init__(self, k, v):
        self.k, self.v = k, v
        S_kv, d = k.shape
        tiles = -(-S_kv // nl.tile_size.pmax)
        itemsize = 4 if "32" in str(k.dtype) else 2
        self.keep = tiles * (nl.tile_size.pmax + d) * itemsize <= nl.tile_size.sbuf_fmax_bytes // 2
        self.key_blocks, self.values = {}, {}

    def key_block(self, start, width):
        """Return keys ``start`` to ``start + width``, transposed: [d, width] in SBUF."""
        if not self.keep:
            return self.load_keys(start, width)
        full = min(BLOCK, self.k.shape[0] - start)
        if start not in self.key_blocks:
            self.key_blocks[start] = [self.load_keys(start, width), width]
        block, have = self.key_blocks[start]
        if have < width:  # causal rows see a block piece by piece: load it whole the second time
            block = self.load_keys(start, full)
            self.key_blocks[start] = [block, full]
        return block[:, 0:width]

    def load_keys(self, start, width):
        """Load and transpose a block of keys."""
        block = nl.ndarray((self.k.shape[1], width), dtype=self.k.dtype, buffer=nl.sbuf)
        for offset, rows in pieces(width):
            transposed(load(self.k, start + offset, rows), block[:, offset : offset + rows])
        return block

    def value_tiles(self, start, width):
        """Return values ``start`` to ``start + width`` as tiles of at most 128 rows."""
        tiles = []
        for offset, rows in pieces(width):
            tile = self.values.get((start + offset, rows))
            if tile is None:
                tile = load(self.v, start + offset, rows)
                if self.keep:
                    self.values[start + offset, rows] = tile
            tiles.append(tile)
        return tiles


def pieces(width):
    """Return (offset, rows) of the pieces of at most 128 that make ``width``."""
    pmax = nl.tile_size.pmax
    return [(offset, min(pmax, width - offset)) for offset in range(0, width, pmax)]


def load(tensor, start, rows):
    """Return rows ``start`` to ``start + rows`` of an HBM tensor as an SBUF tile."""
    tile = nl.ndarray((rows, tensor.shape[1]), dtype=tensor.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=tensor[start : start + rows, :])
    return tile


def transposed(tile, target=None):
    """Write the transpose of an SBUF tile to ``target``, by default a new SBUF tile, and return that."""
    rows, columns = tile.shape
    psum = nl.ndarray((columns, rows), dtype=tile.dtype, buffer=nl.psum)
    nisa.nc_transpose(dst=psum, data=tile)
    if target is None:
        target = nl.ndarray((columns, rows), dtype=tile.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=target, src=psum, engine=nisa.engine.scalar)
    return target


def score_block(q_t, k_t, diagonal):
    """Return q kᵀ [rows, width]; where ``diagonal`` is given, row i sees columns up to i + diagonal."""
    rows, width = q_t.shape[1], k_t.shape[1]
    scores = nl.ndarray((rows, width), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=scores, stationary=q_t, moving=k_t, accumulate=False)
    if diagonal is None:
        return scores
    visible = nl.ndarray((rows, width), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=visible, src=scores)
    nisa.affine_select(
        dst=visible,
        pattern=[[-1, width]],
        channel_multiplier=1,
        on_true_tile=visible,
        on_false_value=MASKED,
        cmp_op=nl.greater_equal,
        offset=diagonal,
    )
    return visible


def accumulate(state, scores, values, scale):
    """Return (negated maximum, sum, weighted values) of the rows after one more block of keys."""
    rows, width = scores.shape
    d, dtype = values[0].shape[1], values[0].dtype

    # -scale · max, which is the bias that exp needs
    peak = column(rows)
    nisa.tensor_reduce(dst=peak, op=nl.maximum, data=scores, axis=1)
    shift = column(rows)
    nisa.tensor_scalar(dst=shift, data=peak, op0=nl.multiply, operand0=-scale)
    if state is not None:
        shift_old, total_old, weighted_old = state
        nisa.tensor_tensor(dst=shift, data1=shift, data2=shift_old, op=nl.minimum)

    weights = nl.ndarray((rows, width), dtype=dtype, buffer=nl.sbuf)
    total = column(rows)
    nisa.activation_reduce(
        dst=weights, op=nl.exp, data=scores, reduce_op=nl.add, reduce_res=total, bias=shift, scale=scale
    )
    product = nl.ndarray((rows, d), dtype=nl.float32, buffer=nl.psum)
    for index, (offset, size) in enumerate(pieces(width)):
        weights_t = transposed(weights[:, offset : offset + size])
        nisa.nc_matmul(dst=product, stationary=weights_t, moving=values[index], accumulate=index > 0)

    weighted = nl.ndarray((rows, d), dtype=nl.float32, buffer=nl.sbuf)
    if state is None:
        nisa.tensor_copy(dst=weighted, src=product)
        return shift, total, weighted
    # exp(scale · (old maximum - new maximum)) brings the old sums to the new maximum
    decay = column(rows)
    nisa.activation(dst=decay, op=nl.exp, data=shift_old, bias=shift, scale=-1.0)
    nisa.tensor_scalar(dst=total, data=total_old, op0=nl.multiply, operand0=decay, op1=nl.add, operand1=total)
    nisa.tensor_scalar(dst=weighted, data=weighted_old, op0=nl.multiply, operand0=decay)
    nisa.tensor_tensor(dst=weighted, data1=weighted, data2=product, op=nl.add)
    return shift, total, weighted


def store_normalised(out, q0, state):
    """Divide the weighted values by the sum of weights and store them as rows ``q0`` and on of ``out``."""
    _, total, weighted = state
    rows, d = weighted.shape
    inverse = column(rows)
    nisa.reciprocal(dst=inverse, data=total)
    result = nl.ndarray((rows, d), dtype=out.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=result, data=weighted, op0=nl.multiply, operand0=inverse)
    nisa.dma_copy(dst=out[q0 : q0 + rows, :], src=result)


def column(rows):
    """Return a new float32 column, one number for each row."""
    return nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
