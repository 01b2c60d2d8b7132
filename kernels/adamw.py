"""One step of AdamW: a stream of tiles, with the products on Scalar and the sums, powers and quotients on Vector."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

TILE_BYTES = 8192  # of each partition and tensor, in float32: seven of them and their successors fit


@nki.jit
def adamw(p, g, m, v, step, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    """Return (parameters, first moments, second moments) after one step of AdamW with decoupled weight decay.

    ``p`` and the gradients ``g`` are bfloat16, float16 or float32, the moments ``m`` and ``v`` float32; all have one
    shape, any, and are in HBM. ``step`` counts from 1. Everything between load and store is float32:

        m = beta1 · m + (1 - beta1) · g
        v = beta2 · v + (1 - beta2) · g²
        p = (1 - lr · weight_decay) · p - lr · m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps)
    """
    assert tuple(p.shape) == tuple(g.shape) == tuple(m.shape) == tuple(v.shape), "p, g, m and v have one shape"
    assert step >= 1, f"step is {step}; it counts from 1"
    assert lr > 0, f"lr is {lr}; it must be positive"
    # lr / (1 - beta1^step) is divided into the root and eps, which saves an instruction
    rate = lr / (1 - beta1**step)
    root_scale, root_eps = 1 / ((1 - beta2**step) * rate * rate), eps / rate

    outs = []
    for tensor in (p, m, v):
        outs.append(nl.ndarray(tensor.shape, dtype=tensor.dtype, buffer=nl.shared_hbm))
    for start, partitions, width in pieces(p.size, TILE_BYTES // 4):
        tiles = []
        for tensor in (p, g, m, v):
            tile = nl.ndarray((partitions, width), dtype=tensor.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=part(tensor, start, tile.shape))
            tiles.append(tile)
        p_tile, g_tile, m_tile, v_tile = tiles
        average(m_tile, g_tile, nl.copy, beta1, 1 - beta1)
        average(v_tile, g_tile, nl.square, beta2, (1 - beta2) ** 0.5)
        update(p_tile, m_tile, v_tile, 1 - lr * weight_decay, root_scale, root_eps)
        stored = (p_tile, m_tile, v_tile)
        for index in range(3):
            nisa.dma_copy(dst=part(outs[index], start, p_tile.shape), src=stored[index])
    return outs[0], outs[1], outs[2]


def average(moment, gradient, op, decay, scale):
    """Replace ``moment`` by decay · moment + op(scale · gradient)."""
    new = nl.ndarray(moment.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=new, op=op, data=gradient, scale=scale)
    nisa.activation(dst=moment, op=nl.copy, data=moment, scale=decay)
    nisa.tensor_tensor(dst=moment, data1=moment, data2=new, op=nl.add)


def update(parameters, m, v, decay, root_scale, root_eps):
    """Replace ``parameters`` by decay · parameters - m / (sqrt(root_scale · v) + root_eps)."""
    kept = nl.ndarray(m.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=kept, op=nl.copy, data=parameters, scale=decay)
    # powers on Vector: sqrt on Scalar is less exact, and wrong at 0, where rare rows of an embedding are
    change = nl.ndarray(m.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=change, data=v, op0=nl.multiply, operand0=root_scale, op1=nl.power, operand1=0.5)
    nisa.tensor_scalar(dst=change, data=change, op0=nl.add, operand0=root_eps, op1=nl.power, operand1=-1.0)
    nisa.tensor_tensor(dst=change, data1=m, data2=change, op=nl.multiply)
    nisa.tensor_tensor(dst=parameters, data1=kept, data2=change, op=nl.subtract)


def part(tensor, start, shape):
    """Return elements of an HBM tensor, from ``start`` on, as a view [partitions, width]."""
    return tensor.reshape((tensor.size,))[start : start + shape[0] * shape[1]].reshape(shape)


def pieces(total, width):
    """Return (start, partitions, width) of tiles that cover ``total`` elements in order.

    Whole tiles come first, then a narrower one on all partitions, then what is left, on one partition.
    """
    pmax = nl.tile_size.pmax
    tiles, start = [], 0
    while start < total:
        left = total - start
        columns = min(width, left // pmax) if left >= pmax else left
        partitions = pmax if left >= pmax else 1
        tiles.append((start, partitions, columns))
        start += partitions * columns
    return tiles
