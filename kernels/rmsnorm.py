"""RMS normalisation: Scalar sums the squares of one block of rows while Vector scales the block before it."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

MAX_COLUMNS = 16384  # a float32 row, its weight and the squares take 160 of the 192 KiB of a trn1 partition
TILE_BYTES = 8192  # of each partition and DMA, as far as whole rows make it


@nki.jit
def rmsnorm(x, weight, eps=1e-6):
    """Return x / sqrt(mean(x²) + eps) · weight for each row of ``x`` [rows, columns], in the shape and dtype of x.

    ``weight`` has shape [columns]; both are in HBM. Any number of rows, at most 16384 columns; bfloat16, float16 and
    float32, also mixed. Everything between load and store is float32.
    """
    rows, columns = x.shape
    assert tuple(weight.shape) == (columns,), f"x has {columns} columns and weight has shape {weight.shape}"
    assert columns <= MAX_COLUMNS, f"x has {columns} columns; at most {MAX_COLUMNS} fit into SBUF"
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    weights = on_all_partitions(weight, min(rows, nl.tile_size.pmax))
    for start, partitions, group in row_blocks(rows, TILE_BYTES // (4 * columns)):
        shape, end = (partitions, group, columns), start + partitions * group
        tile = nl.ndarray(shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[start:end, :].reshape(shape))
        normalise(tile, weights[0:partitions, :], eps)
        nisa.dma_copy(dst=out[start:end, :].reshape(shape), src=tile)
    return out


def normalise(tile, weights, eps):
    """Normalise each row of ``tile`` [partitions, group, columns] in place."""
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
    for g in range(group):
        row, scale = tile[:, g, :], factor[:, g : g + 1]
        nisa.scalar_tensor_tensor(dst=row, data=row, op0=nl.multiply, operand0=scale, op1=nl.multiply, operand1=weights)


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
