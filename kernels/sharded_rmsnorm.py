"""RMS normalisation on two cores: each takes half of the columns, and they exchange the sums of their halves."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

MAX_COLUMNS = 16384  # of one core: a float32 row, its weight and the squares
TILE_BYTES = 8192  # of each partition and DMA, as far as whole rows make it
MAX_GROUP = 64  # sums that are exchanged at once; GpSimd's DMA takes at most 256


@nki.jit
def sharded_rmsnorm(x, weight, eps=1e-6):
    """Return x / sqrt(mean(x²) + eps) · weight for each row of ``x`` [rows, columns], in the shape and dtype of x.

    Launched as ``sharded_rmsnorm[2]`` it runs on two cores, otherwise on one. ``weight`` has shape [columns]; both are
    in HBM. Any number of rows, at most 16384 columns per core; bfloat16, float16 and float32, also mixed. Everything
    between load and store is float32.
    """
    rows, columns = x.shape
    assert tuple(weight.shape) == (columns,), f"x has {columns} columns and weight has shape {weight.shape}"
    cores, core = nl.num_programs(), nl.program_id(0)
    share = -(-columns // cores)
    assert share <= MAX_COLUMNS, f"{columns} columns on {cores} cores; at most {MAX_COLUMNS} fit into SBUF of each"
    first, own = core * share, min(share, columns - core * share)  # the last core may have fewer, also none
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    if own:
        weights = on_all_partitions(weight[first : first + own], min(rows, nl.tile_size.pmax))
    for start, partitions, group in row_blocks(rows, min(TILE_BYTES // (4 * share), MAX_GROUP)):
        end, shape = start + partitions * group, (partitions, group, columns)
        mean = nl.ndarray((partitions, group), dtype=nl.float32, buffer=nl.sbuf)
        if own:
            tile = nl.ndarray((partitions, group, own), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[start:end, :].reshape(shape)[:, :, first : first + own])
            sum_squares(mean, tile, columns)
        else:
            nisa.memset(dst=mean, value=0.0)
        if cores > 1:
            add_the_others(mean, 1 - core)
        if own:
            normalise(tile, mean, weights[0:partitions, :], eps)
            nisa.dma_copy(dst=out[start:end, :].reshape(shape)[:, :, first : first + own], src=tile)
    return out


def sum_squares(mean, tile, columns):
    """Write each row's part of the mean of its squares to ``mean`` [partitions, group]."""
    partitions, group, own = tile.shape
    squares = nl.ndarray((partitions, own), dtype=nl.bfloat16, buffer=nl.sbuf)  # only their sum is wanted
    for g in range(group):
        nisa.activation_reduce(
            dst=squares,
            op=nl.square,
            data=tile[:, g, :],
            reduce_op=nl.add,
            reduce_res=mean[:, g : g + 1],
            scale=columns**-0.5,
        )


def add_the_others(mean, other):
    """Add what the other core has to ``mean``; both have the same sums then, to the bit."""
    theirs = nl.ndarray(mean.shape, dtype=mean.dtype, buffer=nl.sbuf)
    nisa.sendrecv(
        src=mean,
        dst=theirs,
        send_to_rank=other,
        recv_from_rank=other,
        pipe_id=0,
        dma_engine=nisa.dma_engine.gpsimd_dma,
    )
    nisa.tensor_tensor(dst=mean, data1=mean, data2=theirs, op=nl.add)


def normalise(tile, mean, weights, eps):
    """Normalise each row of ``tile`` [partitions, group, columns] in place."""
    factor = nl.ndarray(mean.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=factor, data=mean, op0=nl.add, operand0=eps, op1=nl.power, operand1=-0.5)
    for g in range(tile.shape[1]):
        row, scale = tile[:, g, :], factor[:, g : g + 1]
        nisa.scalar_tensor_tensor(dst=row, data=row, op0=nl.multiply, operand0=scale, op1=nl.multiply, operand1=weights)


def on_all_partitions(vector, partitions):
    """Return an SBUF tile that holds an HBM vector on each partition."""
    size = vector.shape[0]
    tile = nl.ndarray((partitions, size), dtype=vector.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=vector.reshape((1, size)).broadcast(0, partitions))
    return tile


def row_blocks(rows, group):
    """Return (start, partitions, group) of blocks that cover ``rows`` in order; a partition takes ``group`` rows."""
    pmax = nl.tile_size.pmax
    blocks, start = [], 0
    while start < rows:
        left = rows - start
        each = max(min(group, left // pmax), 1)
        partitions = min(pmax, left // each)
        blocks.append((start, partitions, each))
        start += partitions * each
    return blocks
