"""Flash attention, forward: softmax(q kᵀ / √d) v without ever holding the whole score matrix."""

from __future__ import annotations

import math

import nki
import nki.isa as nisa
import nki.language as nl

BLOCK = 512  # keys that are scored at once: one PSUM bank of float32
GROUP = 4  # row tiles that go through the engines together, so that none waits for the one before it
MASKED = -1e30  # score of a key that must not be seen; its exponential is 0


@nki.jit
def attention(q, k, v, causal=False, block=BLOCK, group=GROUP):
    """Return attention of ``q`` [S_q, d] over ``k`` and ``v`` [S_kv, d] in HBM, d at most 128, in the dtype of q.

    Any sequence lengths; bfloat16, float16 and float32. ``causal`` lets row i see keys up to i, and needs S_q = S_kv.
    ``block`` keys are scored at once, at most a bank of float32; ``group`` row tiles go through the engines together.
    """
    S_q, d = q.shape
    S_kv, d_k = k.shape
    assert d == d_k, f"q has {d} columns and k has {d_k}"
    assert tuple(v.shape) == (S_kv, d), f"k has shape {k.shape} and v has {v.shape}"
    assert d <= nl.tile_size.pmax, f"d is {d}; the array has {nl.tile_size.pmax} rows"
    assert 0 < block <= BLOCK, f"blocks of {block} keys; a PSUM bank holds the scores of {BLOCK}"
    assert group > 0, f"groups of {group} row tiles"
    assert not causal or S_q == S_kv, f"causal attention of {S_q} rows over {S_kv} keys"

    out = nl.ndarray((S_q, d), dtype=q.dtype, buffer=nl.shared_hbm)
    keys = KeyValueCache(k, v, block)
    step = group * nl.tile_size.pmax
    for first in range(0, S_q, step):
        tiles = [RowTile(q, first + start, rows, causal, S_kv) for start, rows in pieces(min(step, S_q - first))]
        for kv0 in range(0, max(tile.seen for tile in tiles), block):
            attend([tile for tile in tiles if kv0 < tile.seen], keys, kv0, 1.0 / math.sqrt(d))
        for tile in tiles:
            store_normalised(out, tile)
    return out


class RowTile(nl.NKIObject):
    """Up to 128 rows of q on their way: their transpose, and what they have gathered from the keys so far.

    Attributes:
        start, rows: which rows.
        seen: how many keys they see.
        diagonal: whether row i sees keys up to i only.
        q_t: [d, rows] in SBUF.
        shift: [rows, 1], -scale times the largest score so far.
        total: [rows, 1], sum of the weights exp(scale score + shift).
        weighted: [rows, d], sum of the weighted values.
    """

    def __init__(self, q, start, rows, causal, S_kv):
        self.start, self.rows, self.diagonal = start, rows, causal
        self.seen = start + rows if causal else S_kv
        self.q_t = transposed(load(q, start, rows))
        self.shift = self.total = self.weighted = None


def attend(tiles, keys, kv0, scale):
    """Let row tiles see the block of keys that begins at ``kv0``: stage by stage, so that the engines overlap."""
    blocks = [Block(tile, min(keys.size, tile.seen - kv0)) for tile in tiles]
    k_t, values = keys.block(kv0)
    for block in blocks:
        block.scores = score(block.tile, k_t[:, 0 : block.width], kv0)
    for block in blocks:
        block.shift = largest(block.tile, block.scores, scale)
    for block in blocks:
        block.weights, block.total = weigh(block.tile, block.scores, block.shift, scale)
    for block in blocks:
        block.weights_t = transposed_pieces(block.weights)
    for block in blocks:
        product = weighted_values(block.weights_t, values)
        gather(block.tile, block.shift, block.total, product)


class Block(nl.NKIObject):
    """A row tile and a block of keys on their way through the stages of :func:`attend`."""

    def __init__(self, tile, width):
        self.tile, self.width = tile, width
        self.scores = self.shift = self.weights = self.total = self.weights_t = None


class KeyValueCache(nl.NKIObject):
    """Blocks of up to ``size`` keys (transposed) and values, loaded at first use.

    They stay in SBUF if the whole sequence fits into half of it; a longer one is loaded again for each group of rows.
    """

    def __init__(self, k, v, size):
        self.k, self.v, self.size = k, v, size
        S_kv, d = k.shape
        tiles = -(-S_kv // nl.tile_size.pmax)
        itemsize = 4 if "32" in str(k.dtype) else 2
        self.keep = tiles * (nl.tile_size.pmax + d) * itemsize <= nl.tile_size.sbuf_fmax_bytes // 2
        self.blocks = []  # rows see blocks from the first one on, so they are loaded in order

    def block(self, start):
        """Return the block of keys that begins at ``start``: keys [d, width], and values in tiles of 128 rows."""
        index = start // self.size
        if self.keep and index < len(self.blocks):
            return self.blocks[index]
        width = min(self.size, self.k.shape[0] - start)
        keys = nl.ndarray((self.k.shape[1], width), dtype=self.k.dtype, buffer=nl.sbuf)
        values = []
        for offset, rows in pieces(width):
            transposed(load(self.k, start + offset, rows), keys[:, offset : offset + rows])
            values.append(load(self.v, start + offset, rows))
        if self.keep:
            self.blocks.append((keys, values))
        return keys, values


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
    if target == None:
        target = nl.ndarray((columns, rows), dtype=tile.dtype, buffer=nl.sbuf)
    nisa.activation(dst=target, op=nl.copy, data=psum)  # on Scalar: Vector has more to do
    return target


def transposed_pieces(tile):
    """Return the transposes of an SBUF tile's pieces of at most 128 columns, as SBUF tiles of as many rows.

    They lie side by side in a bank of PSUM, so that one copy moves them all; a shorter piece at the end takes another.
    """
    rows, columns = tile.shape
    whole = columns - columns % nl.tile_size.pmax
    found = []
    for first, last in ((0, whole), (whole, columns)):
        parts = pieces(last - first)
        if parts:
            height = parts[0][1]
            psum = nl.ndarray((height, len(parts) * rows), dtype=tile.dtype, buffer=nl.psum)
            target = nl.ndarray((height, len(parts) * rows), dtype=tile.dtype, buffer=nl.sbuf)
            places = [slice(index * rows, index * rows + rows) for index in range(len(parts))]
            for index in range(len(parts)):
                start = first + parts[index][0]
                nisa.nc_transpose(dst=psum[:, places[index]], data=tile[:, start : start + height])
            nisa.activation(dst=target, op=nl.copy, data=psum)  # on Scalar: Vector has more to do
            found += [target[:, place] for place in places]
    return found


def score(tile, k_t, kv0):
    """Return q kᵀ [rows, width] of a tile over the keys from ``kv0``, with keys that a row must not see masked."""
    rows, width = tile.rows, k_t.shape[1]
    scores = nl.ndarray((rows, width), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=scores, stationary=tile.q_t, moving=k_t, accumulate=False)
    if not tile.diagonal or kv0 + width <= tile.start + 1:
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
        offset=tile.start - kv0,
    )
    return visible


def largest(tile, scores, scale):
    """Return -scale · max of the scores so far [rows, 1], which is the bias that exp needs."""
    peak = column(tile.rows)
    nisa.tensor_reduce(dst=peak, op=nl.maximum, data=scores, axis=1)
    shift = column(tile.rows)
    if tile.shift == None:
        nisa.tensor_scalar(dst=shift, data=peak, op0=nl.multiply, operand0=-scale)
    else:
        nisa.tensor_scalar(dst=shift, data=peak, op0=nl.multiply, operand0=-scale, op1=nl.minimum, operand1=tile.shift)
    return shift


def weigh(tile, scores, shift, scale):
    """Return the weights exp(scale · scores + shift) [rows, width] in the dtype of q, and their sums [rows, 1]."""
    weights = nl.ndarray(scores.shape, dtype=tile.q_t.dtype, buffer=nl.sbuf)
    total = column(tile.rows)
    nisa.activation_reduce(
        dst=weights, op=nl.exp, data=scores, reduce_op=nl.add, reduce_res=total, bias=shift, scale=scale
    )
    return weights, total


def weighted_values(weights_t, values):
    """Return weights @ values [rows, d] in PSUM, from pieces of the transposed weights and of the values."""
    product = nl.ndarray((weights_t[0].shape[1], values[0].shape[1]), dtype=nl.float32, buffer=nl.psum)
    for index in range(len(weights_t)):
        nisa.nc_matmul(dst=product, stationary=weights_t[index], moving=values[index], accumulate=index > 0)
    return product


def gather(tile, shift, total, product):
    """Add a block's sums to a tile's; exp(new shift - old shift) brings the old ones to the new maximum."""
    weighted = nl.ndarray(product.shape, dtype=nl.float32, buffer=nl.sbuf)
    if tile.shift == None:
        nisa.tensor_copy(dst=weighted, src=product)
    else:
        decay = column(tile.rows)
        nisa.activation(dst=decay, op=nl.exp, data=tile.shift, bias=shift, scale=-1.0)
        nisa.tensor_scalar(dst=total, data=tile.total, op0=nl.multiply, operand0=decay, op1=nl.add, operand1=total)
        nisa.scalar_tensor_tensor(
            dst=weighted, data=tile.weighted, op0=nl.multiply, operand0=decay, op1=nl.add, operand1=product
        )
    tile.shift, tile.total, tile.weighted = shift, total, weighted


def store_normalised(out, tile):
    """Divide the weighted values by the sum of weights and store them as the tile's rows of ``out``."""
    inverse = column(tile.rows)
    nisa.reciprocal(dst=inverse, data=tile.total)
    result = nl.ndarray(tile.weighted.shape, dtype=out.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=result, data=tile.weighted, op0=nl.multiply, operand0=inverse)
    nisa.dma_copy(dst=out[tile.start : tile.start + tile.rows, :], src=result)


def column(rows):
    """Return a new float32 column, one number for each row."""
    return nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
