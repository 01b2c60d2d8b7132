"""Convolution along one axis: a matmul per tap, each over a shifted view of the same tile, summed in PSUM."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

BLOCK = 2048  # output positions of one DMA, at most
BLOCK_BYTES = 32768  # what a block of the input may take of each partition, as far as one position allows
MAX_WEIGHT_BYTES = 98304  # what all weights together may take of each partition
TAPS = 64  # that are loaded and transposed together


@nki.jit
def conv1d(x, w, bias=None, stride=1, padding=0):
    """Return the cross-correlation of ``x`` [batch, channels_in, length] with ``w`` [channels_out, channels_in, taps].

    The result is [batch, channels_out, (length + 2 · padding - taps) // stride + 1] in the dtype of x. ``bias`` has
    shape [channels_out], or is None; ``padding`` zeros are put before and behind. All are in HBM: x and w in one
    dtype, bfloat16, float16 or float32. Any sizes, as long as ceil(channels_in / 128) · taps · channels_out · itemsize
    is at most 96 KiB. Sums are float32.
    """
    batch, channels_in, length = x.shape
    channels_out, channels_w, taps = w.shape
    assert channels_w == channels_in, f"x has {channels_in} channels and w has {channels_w}"
    assert length + 2 * padding >= taps, f"{taps} taps are more than {length} and twice the padding of {padding}"
    positions = (length + 2 * padding - taps) // stride + 1
    out = nl.ndarray((batch, channels_out, positions), dtype=x.dtype, buffer=nl.shared_hbm)
    weights = load_weights(w)
    biases = load_bias(bias)
    at_once, block = block_sizes(positions, stride, taps, -(-channels_in // nl.tile_size.pmax) * itemsize(x))
    for n, count in steps(batch, at_once):
        for position, size in steps(positions, block):
            start, span = position * stride - padding, (size - 1) * stride + taps
            inputs = []
            for channel, rows in steps(channels_in, nl.tile_size.pmax):
                inputs.append(load_padded(x[n : n + count, channel : channel + rows, :], start, span))
            convolve(out[n : n + count, :, position : position + size], inputs, weights, biases, stride)
    return out


def block_sizes(positions, stride, taps, element_bytes):
    """Return how many sequences and output positions make a block, for the bytes of one element of all channels."""
    block = min(BLOCK, positions)
    while block > 1 and ((block - 1) * stride + taps) * element_bytes > BLOCK_BYTES:
        block = -(-block // 2)
    if block < positions:
        return 1, block
    # short sequences share a matmul: a PSUM bank takes several
    sequence_bytes = ((block - 1) * stride + taps) * element_bytes
    return max(min(nl.tile_size.gemm_moving_fmax // positions, BLOCK_BYTES // sequence_bytes), 1), block


def load_weights(w):
    """Return an SBUF tile [channels_in, taps, channels_out] per 128 input channels, transposed by the tensor engine."""
    channels_out, channels_in, taps = w.shape
    pmax = nl.tile_size.pmax
    weight_bytes = -(-channels_in // pmax) * taps * channels_out * itemsize(w)
    assert weight_bytes <= MAX_WEIGHT_BYTES, f"weights take {weight_bytes} bytes of each partition, of 96 KiB"
    tiles = []
    for channel, rows in steps(channels_in, pmax):
        tile = nl.ndarray((rows, taps, channels_out), dtype=w.dtype, buffer=nl.sbuf)
        for target, size in steps(channels_out, pmax):
            for first, some in steps(taps, TAPS):
                strip = nl.ndarray((size, rows, some), dtype=w.dtype, buffer=nl.sbuf)
                part = w[target : target + size, channel : channel + rows, first : first + some]
                nisa.dma_copy(dst=strip, src=part)
                for tap in range(some):
                    turned = nl.ndarray((rows, size), dtype=w.dtype, buffer=nl.psum)
                    nisa.nc_transpose(dst=turned, data=strip[:, :, tap])
                    empty(tile[:, first + tap, target : target + size], turned, None, tap)
        tiles.append(tile)
    return tiles


def load_bias(bias):
    """Return a float32 column per 128 output channels; none without a bias."""
    columns = []
    if bias != None:
        for target, size in steps(bias.shape[0], nl.tile_size.pmax):
            column = nl.ndarray((size, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=column, src=bias[target : target + size].reshape((size, 1)))
            columns.append(column)
    return columns


def load_padded(x, start, span):
    """Return elements ``start`` to ``start + span`` of each sequence, as [channels, batch, span]; zeros outside."""
    count, channels, length = x.shape
    tile = nl.ndarray((channels, count, span), dtype=x.dtype, buffer=nl.sbuf)
    first, last = min(max(-start, 0), span), max(min(length - start, span), 0)
    if first > 0:
        nisa.memset(dst=tile[:, :, 0:first], value=0)
    if last < span:
        nisa.memset(dst=tile[:, :, max(first, last) : span], value=0)
    if first < last:
        nisa.dma_copy(dst=tile[:, :, first:last], src=x[:, :, start + first : start + last].permute((1, 0, 2)))
    return tile


def convolve(out, inputs, weights, biases, stride):
    """Compute and store ``out`` [batch, channels_out, positions] from tiles of the input and the weights."""
    count, channels_out, positions = out.shape
    taps = weights[0].shape[1]
    for target, rows in steps(channels_out, nl.tile_size.gemm_stationary_fmax):
        result = nl.ndarray((rows, count, positions), dtype=out.dtype, buffer=nl.sbuf)
        bias = biases[target // nl.tile_size.pmax] if len(biases) > 0 else None
        columns = nl.tile_size.gemm_moving_fmax // count
        for position, width in steps(positions, columns):
            sums = nl.ndarray((rows, count, width), dtype=nl.float32, buffer=nl.psum)
            for index in range(len(inputs)):
                for tap in range(taps):
                    begin = position * stride + tap
                    nisa.nc_matmul(
                        dst=sums,
                        stationary=weights[index][:, tap, target : target + rows],
                        moving=inputs[index][:, :, begin : begin + (width - 1) * stride + 1 : stride],
                        accumulate=index + tap > 0,
                    )
            empty(result[:, :, position : position + width], sums, bias, position // columns + target // rows)
        nisa.dma_copy(dst=out[:, target : target + rows, :].permute((1, 0, 2)), src=result)


def empty(dst, psum, bias, turn):
    """Copy a PSUM tile to SBUF and add the bias: Vector and Scalar take turns."""
    if turn % 2 == 1:
        nisa.activation(dst=dst, op=nl.copy, data=psum, bias=bias)
    elif bias == None:
        nisa.tensor_copy(dst=dst, src=psum)
    else:
        nisa.tensor_scalar(dst=dst, data=psum, op0=nl.add, operand0=bias)


def steps(extent, step):
    """Return (start, size) of the pieces of at most ``step`` that make ``extent``."""
    pieces = []
    for start in range(0, extent, step):
        pieces.append((start, min(step, extent - start)))
    return pieces


def itemsize(tensor):
    """Return the bytes of an element of a float tensor."""
    return 4 if "32" in str(tensor.dtype) else 2
