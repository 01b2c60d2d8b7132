"""RMS normalisation: Scalar squares and scales, Vector applies the weight, and neither waits for the other."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

MAX_COLUMNS = 12288  # two float32 rows, their weight and the squares take 176 of the 192 KiB of a trn1 partition
TILE_BYTES = 8192  # of each partition and DMA, as far as whole rows make it
PIECE = 1024  # columns that are scaled, and then multiplied by their weights, at once


@nki.jit
def rmsnorm(x, weight, eps=1e-6):
    """Return x / sqrt(mean(x²) + eps) · weight for each row of ``x`` [rows, columns], in the shape and dtype of x.

    ``weight`` has shape [columns]; both are in HBM. Any number of rows, at most 12288 columns; bfloat16, float16 and
    float32, also mixed. Everything between load and store is float32.
    """
    rows, columns = x.shape
    assert tuple(weight.shape) == (columns,), f"x has {columns} columns and weight has shape {weight.shape}"
    assert columns <= MAX_COLUMNS, f"x has {columns} columns; at most {MAX_COLUMNS} fit into SBUF"
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    weights = on_all_partitions(weight, min(rows, nl.tile_size.pmax))
    # an engine runs its instructions in order: square a block before the block ahead of it is scaled, so that Scalar
    # has work while Vector takes the root
    before = None
    for start, partitions, group in row_blocks(rows, TILE_BYTES // (4 * columns)):
        shape, end = (partitions, group, columns), start + partitions * group
        tile = nl.ndarray(shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[start:end, :].reshape(shape))
        factor = inverse_rms(tile, eps)
        if before is not None:
            finish(*before)
        before = out[start:end, :].reshape(shape), tile, factor, weights[0:partitions, :]
    finish(*before)
    return out


def inverse_rms(tile, eps):
    """Return 1 / sqrt(mean(row²) + eps) for each row of ``tile`` [partitions, group, columns]."""
    partitions, group, columns = tile.shape
    mean = nl.ndarray((partitions, group), dtype=nl.float32, buffer=nl.sbuf)
    squares = nl.ndarray((partitions, columns), dtype=nl.bfloat16, buffer=nl.sbuf)  # only their sum is wanted
    for g in range(group):
        nisa.activation_reduce(
            dst=squares,
            op=nl.square,
            data=tile[:, g, :],
            reduce_op=nl.add,
            reduce_res=mean[:, g : g + 1],
            scale=columns**-0.5,
        )
    # a power on Vector: rsqrt on Scalar is less exact, and wrong outside of its range
    factor = nl.ndarray((partitions, group), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=factor, data=mean, op0=nl.add, operand0=eps, op1=nl.power, operand1=-0.5)
    return factor


def finish(target, tile, factor, weights):
    """Scale the rows of ``tile`` in place, apply the weights, and store them."""
    partitions, group, columns = tile.shape
    turn = 0
    for g in range(group):
        for start in range(0, columns, PIECE):
            end = min(start + PIECE, columns)
            piece, scale = tile[:, g, start:end], factor[:, g : g + 1]
            scaled = nl.ndarray((partitions, end - start), dtype=nl.float32, buffer=nl.sbuf)
            # Vector scales half of them itself: then it is as busy as Scalar, which squares too
            if turn % 2 == 1:
                nisa.tensor_scalar(dst=scaled, data=piece, op0=nl.multiply, operand0=scale)
            else:
                nisa.activation(dst=scaled, op=nl.copy, data=piece, scale=scale)
            nisa.tensor_tensor(dst=piece, data1=scaled, data2=weights[:, start:end], op=nl.multiply)
            turn += 1
    nisa.dma_copy(dst=target, src=tile)


def on_all_partitions(vector, partitions):
    """Return an SBUF tile that holds an HBM vector on each partition."""
    size = vector.shape[0]
    tile = nl.ndarray((partitions, size), dtype=vector.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=vector.reshape((1, size)).broadcast(0, partitions))
    return tile


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
