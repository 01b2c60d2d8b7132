"""The selective scan of Mamba: a linear recurrence along the sequence, whose coefficients depend on the input.

All engines work on one state each: Scalar on the decay of the next, Vector on the scan itself, GpSimd on the products
before and behind it, and the tensor engine, which multiplies by the identity, adds the states up in PSUM.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

CHUNK = 512  # positions: a PSUM bank of float32
COEFFICIENTS = 8192  # of b, and of c, that a partition holds for a chunk: all states at once


@nki.jit
def selective_scan(u, delta, a, b, c):
    """Return y[n, d, t] = sum over s of c[n, s, t] · h[n, d, s, t], in the shape and dtype of ``u``, where

        h[n, d, s, t] = exp(delta[n, d, t] · a[d, s]) · h[n, d, s, t - 1] + delta[n, d, t] · u[n, d, t] · b[n, s, t]

    ``u`` and ``delta`` are [batch, channels, length], ``a`` [channels, states], ``b`` and ``c`` [batch, states,
    length], all in HBM; bfloat16, float16 and float32. Any sizes, as long as states · ceil(channels / 128) is at most
    8192. All arithmetic is float32, and h is never rounded to less.
    """
    batch, channels, length = u.shape
    states = a.shape[1]
    assert tuple(delta.shape) == tuple(u.shape), f"u has shape {u.shape} and delta has {delta.shape}"
    assert a.shape[0] == channels, f"u has {channels} channels and a has {a.shape[0]}"
    assert tuple(b.shape) == tuple(c.shape) == (batch, states, length), f"b and c must be [{batch}, {states}, {length}]"
    out = nl.ndarray((batch, channels, length), dtype=u.dtype, buffer=nl.shared_hbm)
    tiles = steps(channels, nl.tile_size.pmax)
    assert states * len(tiles) <= 8192, f"{states} states of {channels} channels do not fit into SBUF"
    identity = identity_matrix(tiles[0][1])
    rates = []
    for d, size in tiles:
        rates.append(load(a[d : d + size, :], nl.float32))
    for n in range(batch):
        carried = []  # what h was at the end of the last chunk, per tile of channels
        for _, size in tiles:
            carried.append(nl.ndarray((size, states), dtype=nl.float32, buffer=nl.sbuf))
        for t, width in steps(length, min(CHUNK, COEFFICIENTS // states)):
            for index in range(len(tiles)):
                d, size = tiles[index]
                u_tile = load(u[n, d : d + size, t : t + width], u.dtype)
                delta_tile = load(delta[n, d : d + size, t : t + width], delta.dtype)
                if index == 0:  # behind the first inputs, which are needed sooner than the last coefficient
                    coefficients = load_coefficients(b[n, :, t : t + width], c[n, :, t : t + width], size)
                ends = (t == 0, t + width == length)
                tile = scan_chunk(u_tile, delta_tile, rates[index], coefficients, identity, carried[index], *ends)
                nisa.dma_copy(dst=out[n, d : d + size, t : t + width], src=tile)
    return out


def scan_chunk(u, delta, rates, coefficients, identity, carried, is_first, is_last):
    """Return y of one tile of channels and one chunk of positions; ``carried`` [channels, states] takes h's last."""
    size, width = u.shape
    driven = nl.ndarray((size, width), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=driven, data1=delta, data2=u, op=nl.multiply)
    sums = nl.ndarray((size, width), dtype=nl.float32, buffer=nl.psum)
    decay, drive = recurrence(delta, driven, rates[:, 0:1], coefficients[0][0])
    states = len(coefficients)
    for s in range(states):
        h = nl.ndarray((size, width), dtype=nl.float32, buffer=nl.sbuf)
        initial = 0.0 if is_first else carried[:, s : s + 1]
        nisa.tensor_tensor_scan(dst=h, data0=decay, data1=drive, initial=initial, op0=nl.multiply, op1=nl.add)
        # an engine runs its instructions in order: what the next scan needs comes before what follows this one
        if s + 1 < states:
            decay, drive = recurrence(delta, driven, rates[:, s + 1 : s + 2], coefficients[s + 1][0])
        if not is_last:
            nisa.activation(dst=carried[:, s : s + 1], op=nl.copy, data=h[:, width - 1 : width])
        seen = nl.ndarray((size, width), dtype=nl.float32, buffer=nl.sbuf)
        multiply(seen, h, coefficients[s][1])
        nisa.nc_matmul(
            dst=sums, stationary=identity[0:size, 0:size], moving=seen, is_stationary_onezero=True, accumulate=s > 0
        )
    tile = nl.ndarray((size, width), dtype=u.dtype, buffer=nl.sbuf)
    nisa.activation(dst=tile, op=nl.copy, data=sums)
    return tile


def recurrence(delta, driven, rate, b):
    """Return exp(delta · rate) and driven · b: by what h decays, and what is added to it."""
    decay = nl.ndarray(delta.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=decay, op=nl.exp, data=delta, scale=rate)
    drive = nl.ndarray(delta.shape, dtype=nl.float32, buffer=nl.sbuf)
    multiply(drive, driven, b)
    return decay, drive


def multiply(dst, data, coefficient):
    """Multiply by a coefficient, which may span more partitions, on GpSimd: Vector is busy with the scans."""
    size = data.shape[0]
    nisa.tensor_tensor(dst=dst, data1=data, data2=coefficient[0:size, :], op=nl.multiply, engine=nisa.engine.gpsimd)


def load_coefficients(b, c, partitions):
    """Return tiles (b, c) of each of [states, width], the same on all partitions; one DMA each, to start early."""
    states, width = b.shape
    pairs = []
    for s in range(states):
        rows = []
        for source in (b, c):
            row = nl.ndarray((partitions, width), dtype=source.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=row, src=source[s : s + 1, :].broadcast(0, partitions))
            rows.append(row)
        pairs.append(rows)
    return pairs


def load(source, dtype):
    """Return an HBM matrix as an SBUF tile of ``dtype``."""
    tile = nl.ndarray(source.shape, dtype=dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def identity_matrix(size):
    """Return the float32 identity [size, size] in SBUF."""
    matrix = nl.ndarray((size, size), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=matrix, value=1.0)
    nisa.affine_select(
        dst=matrix,
        pattern=[[-1, size]],
        channel_multiplier=1,
        on_true_tile=matrix,
        on_false_value=0.0,
        cmp_op=nl.equal,
    )
    return matrix


def steps(extent, step):
    """Return (start, size) of the pieces of at most ``step`` that make ``extent``."""
    pieces = []
    for start in range(0, extent, step):
        pieces.append((start, min(step, extent - start)))
    return pieces
