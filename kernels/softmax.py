"""Softmax over the last axis: one pass over HBM, the maximum on Vector while Scalar exponentiates other rows."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

MAX_COLUMNS = 16000  # two blocks of 16-bit scores with float32 weights take 188 of the 192 KiB of a trn1 partition
TILE_BYTES = 8192  # of each partition and DMA, as far as whole rows make it


@nki.jit
def softmax(x):
    """Return the softmax of each row of ``x`` [rows, columns] in HBM, in the shape and dtype of x.

    Any number of rows; at most 16000 columns; bfloat16, float16 and float32. Everything between load and store is
    float32.
    """
    rows, columns = x.shape
    assert columns <= MAX_COLUMNS, f"x has {columns} columns; at most {MAX_COLUMNS} fit into SBUF"
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    # an engine runs its instructions in order: exponentiate a block before the block ahead of it is scaled, so that
    # Vector finds the maxima of one while Scalar has the other
    before = None
    for start, partitions, group in row_blocks(rows, TILE_BYTES // (4 * columns)):
        shape, end = (partitions, group, columns), start + partitions * group
        tile = nl.ndarray(shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[start:end, :].reshape(shape))
        weights, total = exponentiate(tile)
        if before != None:
            finish(*before)
        before = out[start:end, :].reshape(shape), tile, weights, total
    finish(*before)
    return out


def exponentiate(tile):
    """Return exp(tile - maximum of the row) in float32, and its sum per row."""
    partitions, group = tile.shape[0], tile.shape[1]
    weights = tile  # float32 weights take the place of their scores
    if "32" not in str(tile.dtype):
        weights = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
    shift = nl.ndarray((partitions, group), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((partitions, group), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=shift, op=nl.maximum, data=tile, axis=2, negate=True)
    for g in range(group):
        nisa.activation_reduce(
            dst=weights[:, g, :],
            op=nl.exp,
            data=tile[:, g, :],
            reduce_op=nl.add,
            reduce_res=total[:, g : g + 1],
            bias=shift[:, g : g + 1],
        )
    return weights, total


def finish(target, tile, weights, total):
    """Divide the weights by their sum and store them; ``tile``, which held the scores, takes the result."""
    nisa.reciprocal(dst=total, data=total)
    for g in range(tile.shape[1]):
        scale(tile[:, g, :], weights[:, g, :], total[:, g : g + 1])
    nisa.dma_copy(dst=target, src=tile)


def scale(dst, data, factor):
    """Write data · factor [partitions, 1] to ``dst``; Scalar takes half of a long row, as much as balances Vector."""
    columns = data.shape[1]
    cut = columns // 2 if columns >= 2048 else columns
    nisa.tensor_scalar(dst=dst[:, 0:cut], data=data[:, 0:cut], op0=nl.multiply, operand0=factor)
    if cut < columns:
        nisa.activation(dst=dst[:, cut:columns], op=nl.copy, data=data[:, cut:columns], scale=factor)


def row_blocks(rows, group):
    """Return (start, partitions, group) of blocks that cover ``rows`` in order; a partition takes ``group`` rows.

    Neighbouring rows on one partition make the descriptors of a DMA longer.
    """
    pmax = nl.tile_size.pmax
    blocks, start = [], 0
    while start < rows:
        left = rows - start
        each = max(min(group, left // pmax), 1)
        partitions = min(pmax, left // each)
        blocks.append((start, partitions, each))
        start += partitions * each
    return blocks
