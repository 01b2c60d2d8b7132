"""Layer normalisation: Scalar finds mean and variance of one block of rows while Vector scales the block before it."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

MAX_COLUMNS = 12288  # a float32 row, weight, bias and a 16-bit tile take 168 of the 192 KiB of a trn1 partition
TILE_BYTES = 8192  # of each partition and DMA, as far as whole rows make it
PIECE = 2048  # columns that Vector holds in float32 between its two instructions


@nki.jit
def layernorm(x, weight, bias, eps=1e-5):
    """Return (x - mean) / sqrt(variance + eps) · weight + bias for each row of ``x`` [rows, columns] in HBM.

    ``weight`` and ``bias`` have shape [columns]. Any number of rows, at most 12288 columns; bfloat16, float16 and
    float32, also mixed; the result has the shape and dtype of x. Everything between load and store is float32, and the
    variance is the mean of (x - mean)², which does not cancel where the mean is large.
    """
    rows, columns = x.shape
    assert tuple(weight.shape) == (columns,), f"x has {columns} columns and weight has shape {weight.shape}"
    assert tuple(bias.shape) == (columns,), f"x has {columns} columns and bias has shape {bias.shape}"
    assert columns <= MAX_COLUMNS, f"x has {columns} columns; at most {MAX_COLUMNS} fit into SBUF"
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    weights = on_all_partitions(weight, min(rows, nl.tile_size.pmax))
    biases = on_all_partitions(bias, min(rows, nl.tile_size.pmax))
    unused = nl.ndarray((min(rows, nl.tile_size.pmax), columns), dtype=nl.bfloat16, buffer=nl.sbuf)
    for start, partitions, group in row_blocks(rows, TILE_BYTES // (4 * columns)):
        shape, end = (partitions, group, columns), start + partitions * group
        tile = nl.ndarray(shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[start:end, :].reshape(shape))
        shift, scale = statistics(tile, unused[0:partitions, :], eps)
        for g in range(group):
            normalise(
                tile[:, g, :],
                shift[:, g : g + 1],
                scale[:, g : g + 1],
                weights[0:partitions, :],
                biases[0:partitions, :],
            )
        nisa.dma_copy(dst=out[start:end, :].reshape(shape), src=tile)
    return out


def statistics(tile, unused, eps):
    """Return -mean and 1 / sqrt(variance + eps) of each row of ``tile`` [partitions, group, columns]."""
    partitions, group, columns = tile.shape
    shift = nl.ndarray((partitions, group), dtype=nl.float32, buffer=nl.sbuf)
    variance = nl.ndarray((partitions, group), dtype=nl.float32, buffer=nl.sbuf)
    for g in range(group):
        nisa.activation_reduce(
            dst=unused,
            op=nl.copy,
            data=tile[:, g, :],
            reduce_op=nl.add,
            reduce_res=shift[:, g : g + 1],
            scale=-1.0 / columns,
        )
    for g in range(group):
        nisa.activation_reduce(
            dst=unused,
            op=nl.square,
            data=tile[:, g, :],
            reduce_op=nl.add,
            reduce_res=variance[:, g : g + 1],
            bias=shift[:, g : g + 1],
        )
    # a power on Vector: rsqrt on Scalar is less exact, and wrong outside of its range
    scale = nl.ndarray((partitions, group), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=variance, data=variance, op0=nl.multiply, operand0=1.0 / columns, op1=nl.add, operand1=eps)
    nisa.tensor_scalar(dst=scale, data=variance, op0=nl.power, operand0=-0.5)
    return shift, scale


def normalise(row, shift, scale, weights, biases):
    """Replace ``row`` [partitions, columns] by (row + shift) · scale · weights + biases."""
    partitions, columns = row.shape
    for start in range(0, columns, PIECE):
        end = min(start + PIECE, columns)
        piece = row[:, start:end]
        centred = piece
        if "32" not in str(row.dtype):
            centred = nl.ndarray((partitions, end - start), dtype=nl.float32, buffer=nl.sbuf)
        nisa.scalar_tensor_tensor(
            dst=centred, data=piece, op0=nl.add, operand0=shift, op1=nl.multiply, operand1=weights[:, start:end]
        )
        nisa.scalar_tensor_tensor(
            dst=piece, data=centred, op0=nl.multiply, operand0=scale, op1=nl.add, operand1=biases[:, start:end]
        )


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
