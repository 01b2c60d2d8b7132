"""Two transposes: of a matrix in HBM, on the tensor engine; and of the free axes of a tile, by strided copies."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

ROWS = 1024  # of the matrix that are loaded together: columns of a block of the result, and its runs in HBM
COLUMNS = 1024
TILE_BYTES = 16384  # of each partition and DMA, for the free axes


@nki.jit
def transpose2d(x):
    """Return the transpose [columns, rows] of a matrix ``x`` [rows, columns] in HBM: the same values, exactly.

    Any sizes; bfloat16, float16 and float32. Before trn2 the tensor engine multiplies by an identity to transpose,
    which NaN and Inf do not survive.
    """
    rows, columns = x.shape
    out = nl.ndarray((columns, rows), dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, rows, ROWS):
        for column in range(0, columns, COLUMNS):
            strips = load_strips(x, row, min(ROWS, rows - row), column, min(COLUMNS, columns - column))
            transpose_block(out[:, row : row + min(ROWS, rows - row)], strips, column)
    return out


def load_strips(x, row, height, column, width):
    """Return tiles of 128 rows each: the whole ones are parts of one DMA, the rest of the rows is another."""
    pmax = nl.tile_size.pmax
    whole = height // pmax
    strips = []
    if whole > 0:
        tile = nl.ndarray((pmax, whole, width), dtype=x.dtype, buffer=nl.sbuf)
        block = x[row : row + whole * pmax, column : column + width]
        nisa.dma_copy(dst=tile, src=block.reshape_dim(0, (whole, pmax)).permute((1, 0, 2)))
        for index in range(whole):
            strips.append(tile[:, index, :])
    rest = height - whole * pmax
    if rest > 0:
        tile = nl.ndarray((rest, width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row + whole * pmax : row + height, column : column + width])
        strips.append(tile)
    return strips


def transpose_block(out, strips, column):
    """Store the transposes of strips [rows, width] side by side as rows ``column`` and on of ``out``."""
    pmax = nl.tile_size.pmax
    width = strips[0].shape[1]
    in_bank = nl.tile_size.psum_bank_fmax_bytes // itemsize(out) // pmax
    for start in range(0, width, pmax):
        height = min(pmax, width - start)
        result = nl.ndarray((height, out.shape[1]), dtype=out.dtype, buffer=nl.sbuf)
        for first in range(0, len(strips), in_bank):
            some = strips[first : first + in_bank]
            end = min((first + in_bank) * pmax, out.shape[1])
            bank = nl.ndarray((height, end - first * pmax), dtype=out.dtype, buffer=nl.psum)
            for index in range(len(some)):
                rows = some[index].shape[0]
                nisa.nc_transpose(
                    dst=bank[:, index * pmax : index * pmax + rows], data=some[index][:, start : start + height]
                )
            # Vector and Scalar take turns to empty PSUM
            if (start // pmax + first // in_bank) % 2 == 0:
                nisa.tensor_copy(dst=result[:, first * pmax : end], src=bank)
            else:
                nisa.activation(dst=result[:, first * pmax : end], op=nl.copy, data=bank)
        nisa.dma_copy(dst=out[column + start : column + start + height, :], src=result)


@nki.jit
def transpose_free(x):
    """Return ``x`` [rows, height, width] in HBM with its last two axes exchanged: [rows, width, height].

    Each row stays on its partition. Any number of rows; height · width · itemsize is at most 64 KiB; bfloat16, float16
    and float32.
    """
    rows, height, width = x.shape
    out = nl.ndarray((rows, width, height), dtype=x.dtype, buffer=nl.shared_hbm)
    row_bytes = height * width * itemsize(x)
    assert row_bytes <= 65536, f"a row of {height} × {width} takes {row_bytes} bytes; at most 65536 fit into SBUF"
    for start, partitions, group in row_blocks(rows, TILE_BYTES // row_bytes):
        end = start + partitions * group
        tile = nl.ndarray((partitions, group, height, width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[start:end, :, :].reshape(tile.shape))
        result = nl.ndarray((partitions, group, width, height), dtype=x.dtype, buffer=nl.sbuf)
        exchange(result, tile)
        nisa.dma_copy(dst=out[start:end, :, :].reshape(result.shape), src=result)
    return out


def exchange(result, tile):
    """Copy ``tile`` [partitions, group, height, width] with its last two axes exchanged."""
    group, height = tile.shape[1], tile.shape[2]
    turned = result.permute((0, 1, 3, 2))
    if group > 1:
        cut = group * 2 // 3
        nisa.tensor_copy(dst=turned[:, 0:cut], src=tile[:, 0:cut])
        nisa.activation(dst=turned[:, cut:group], op=nl.copy, data=tile[:, cut:group])
    else:
        cut = max(height * 2 // 3, 1)
        nisa.tensor_copy(dst=turned[:, :, 0:cut, :], src=tile[:, :, 0:cut, :])
        if cut < height:
            nisa.activation(dst=turned[:, :, cut:height, :], op=nl.copy, data=tile[:, :, cut:height, :])


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


def itemsize(tensor):
    """Return the bytes of an element of a float tensor."""
    return 4 if "32" in str(tensor.dtype) else 2
