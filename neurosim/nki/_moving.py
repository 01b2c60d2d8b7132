"""Functions of ``nki.language`` that move, choose and multiply tiles.

Source: AWS Neuron SDK, ``nki/api/nki/language/__init__.py``; ``gather_flattened`` is what ``nc_n_gather`` was called
before (release notes of SDK 2.27). Where the manual names no instruction, the sequence is *assumed*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index as as_int
from typing import Any, Final

from neurosim.datapath.operators import Operator
from neurosim.datapath.rules import is_number
from neurosim.dtypes import bfloat16, float16, float32, uint8, uint32
from neurosim.engines import Memory
from neurosim.errors import IllegalOperand, UnknownBehavior, Unsupported
from neurosim.nki import isa
from neurosim.nki._tiles import cast, dtype_of, new, scaled, spread, tile_of
from neurosim.view import NkiTensor

_QUADRANT: Final = 32
"""Partitions that ``nc_stream_shuffle`` fills at once."""

_BANK: Final = 512
"""Columns of float32 in a PSUM bank."""


def _assign(dst: NkiTensor, value: Any) -> None:
    """``t[key] = value``: a tile copied into a view, by ``dma_copy`` where either is in HBM, else by ``tensor_copy``.

    The migration guide of NKI 0.3 fills tiles so (``add_buf[0:128, i, 0:512] = nl.load(inp[i])``).
    """
    if not isinstance(value, NkiTensor):
        raise Unsupported(
            f"assignment of {type(value).__name__} to {dst.describe()}: tensors are written by instructions",
            advice="pass the view as dst=, e.g. nisa.memset(dst=t[...], value=…); a tile may be assigned",
        )
    if dst.shape != value.shape:
        raise IllegalOperand(
            "an assignment has two shapes",
            numbers=(f"left   {dst.describe()}", f"right  {value.describe()}"),
            advice="assign a tile of the view's shape",
        )
    copy = isa.dma_copy if dst.buffer.is_hbm or value.buffer.is_hbm else isa.tensor_copy
    copy(dst=dst, src=value)


NkiTensor._assign = _assign


def load_transpose2d(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Return a new SBUF tile [columns, rows] with the values of an HBM tensor [rows, columns].

    Lowers to ``dma_transpose``, whose rules hold (elements of 2 or 4 bytes, at most 128 columns), and to
    ``tensor_copy`` where ``dtype`` differs.
    """
    call = "nl.load_transpose2d"
    if not isinstance(src, NkiTensor) or src.ndim != 2 or not src.buffer.is_hbm:
        what = src.describe() if isinstance(src, NkiTensor) else repr(src)
        raise IllegalOperand(f"{call}: src is {what}", advice="give an HBM tensor of two axes")
    target = dtype_of(call, dtype, src.dtype)
    tile = new((src.shape[1], src.shape[0]), src.dtype)
    isa.dma_transpose(dst=tile, src=src)
    return cast(tile, target)


def gather_flattened(data: NkiTensor, indices: NkiTensor, axis: int = 0, dtype: Any = None) -> NkiTensor:
    """Return a new SBUF tile of the shape of ``indices``: data[p, indices[p, i]], over flattened free axes.

    Lowers to ``nc_n_gather``; to ``tensor_copy`` where the indices are not uint32, or ``dtype`` differs.

    Raises:
        UnknownBehavior: another axis than 0: the manual says only that indices select from the free axes.
    """
    call = "nl.gather_flattened"
    tile, index = tile_of(call, data, "data"), tile_of(call, indices, "indices")
    if not is_number(axis) or axis != 0:
        raise UnknownBehavior(
            f"{call}: axis={axis!r}: the manual says that indices count elements of the flattened free axes, "
            "and not what another axis means",
            advice="leave axis out",
        )
    result = new(index.shape, tile.dtype)
    isa.nc_n_gather(dst=result, data=tile, indices=cast(index, uint32))
    return cast(result, dtype_of(call, dtype, tile.dtype))


def where(condition: NkiTensor, x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """Return a new SBUF tile: x where ``condition`` is not zero, else y; x and y are tiles or numbers.

    Free axes of extent 1 are repeated. Lowers to ``tensor_scalar`` (the predicate as uint8), ``tensor_copy`` or
    ``memset`` for y, and ``tensor_copy_predicated``.
    """
    call = "nl.where"
    chosen = tile_of(call, condition, "condition")
    tiles = [value for value in (x, y) if isinstance(value, NkiTensor)]
    for value in (x, y):
        if not isinstance(value, NkiTensor) and not is_number(value):
            raise IllegalOperand(f"{call} of {value!r}", advice="give tiles and numbers")
    for tile in tiles:
        chosen = spread(call, chosen, tile_of(call, tile))[0]
    target = dtype_of(call, dtype, tiles[0].dtype if tiles else float32)
    predicate = scaled(chosen, "not_equal", 0.0, dtype=uint8)
    result = new(chosen.shape, target)
    if isinstance(y, NkiTensor):
        isa.tensor_copy(dst=result, src=spread(call, y, result)[0])
    else:
        isa.memset(dst=result, value=float(y) if target.is_float or y != int(y) else int(y))
    source = spread(call, cast(x, target), result)[0] if isinstance(x, NkiTensor) else x
    isa.tensor_copy_predicated(dst=result, src=source, predicate=predicate)
    return result


def expand_dims(x: NkiTensor, axis: int) -> NkiTensor:
    """Return a view of a tile with a new axis of extent 1; the partition axis stays first."""
    return tile_of("nl.expand_dims", x).expand_dim(axis)


def broadcast_to(x: NkiTensor, shape: Sequence[int], dtype: Any = None) -> NkiTensor:
    """Return a tile of ``shape`` that repeats x along its axes of extent 1, the partition axis too.

    A tile that has the shape and the dtype already is returned as it is. Else this lowers to ``tensor_copy``, and for
    partitions to ``nc_matmul`` with a row of ones ("a separate instruction on TensorE",
    ``nki/guides/tutorials/fused_mamba.rst:176`` of the AWS Neuron SDK; -0 becomes 0) and a copy to SBUF by the Scalar
    engine, which is *assumed*. Formats that the Tensor engine does not multiply take one ``nc_stream_shuffle`` per 32
    partitions.
    """
    call = "nl.broadcast_to"
    tile = tile_of(call, x)
    try:
        wanted = tuple(as_int(extent) for extent in shape)
    except TypeError:
        raise IllegalOperand(f"{call}: shape={shape!r} is not made of ints", advice="pass a tuple of ints") from None
    target = dtype_of(call, dtype, tile.dtype)
    pairs = list(zip(tile.shape, wanted, strict=False))
    if len(wanted) != tile.ndim or any(extent not in (1, want) for extent, want in pairs):
        raise IllegalOperand(
            f"{call}: {tile.describe()} to shape {wanted}",
            advice="the number of axes stays; each extent is that of x, or x has 1 there",
        )
    if tile.shape == wanted:
        return cast(tile, target)
    view = tile
    for axis in range(1, tile.ndim):
        if tile.shape[axis] != wanted[axis]:
            view = view.broadcast(axis, wanted[axis])
    if tile.shape[1:] != wanted[1:] or tile.dtype != target:
        row = new(view.shape, target)
        isa.tensor_copy(dst=row, src=view)
    else:
        row = tile
    if tile.shape[0] == wanted[0]:
        return row
    result = new(wanted, target)
    if target in (float32, bfloat16, float16) and row.buffer is Memory.sbuf and row.is_contiguous():
        _multiply_by_ones(result, row)
        return result
    for first in range(0, wanted[0], _QUADRANT):
        last = min(first + _QUADRANT, wanted[0])
        isa.nc_stream_shuffle(dst=result[first:last], src=row, shuffle_mask=[0] * _QUADRANT)
    return result


def _multiply_by_ones(dst: NkiTensor, row: NkiTensor) -> None:
    """Write a row to each partition of a tile, a PSUM bank at a time."""
    partitions, columns = dst.shape[0], math.prod(dst.shape[1:])
    ones = new((1, partitions), row.dtype)
    isa.memset(dst=ones, value=1.0, engine=isa.engine.gpsimd)
    moving, target = row.reshape((1, columns)), dst.reshape((partitions, columns))
    for first in range(0, columns, _BANK):
        piece = slice(first, min(first + _BANK, columns))
        product = new((partitions, piece.stop - first), float32, Memory.psum)
        isa.nc_matmul(dst=product, stationary=ones, moving=moving[:, piece])
        isa.activation(dst=target[:, piece], op=Operator("copy"), data=product)


def transpose(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Return a new PSUM tile: a 2D tile with partitions and free axis exchanged.

    Lowers to ``nc_transpose``, and to ``tensor_copy`` within PSUM where ``dtype`` differs.
    """
    tile = tile_of("nl.transpose", x)
    if tile.ndim != 2:
        raise IllegalOperand(
            f"nl.transpose: {tile.describe()} has {tile.ndim} axes; it must have 2",
            advice="reshape it to two axes, partitions first",
        )
    target = dtype_of("nl.transpose", dtype, tile.dtype)
    turned = new((tile.shape[1], tile.shape[0]), tile.dtype, Memory.psum)
    isa.nc_transpose(dst=turned, data=tile)
    if target == tile.dtype:
        return turned
    result = new(turned.shape, target, Memory.psum)
    isa.tensor_copy(dst=result, src=turned)
    return result


def matmul(x: NkiTensor, y: NkiTensor, transpose_x: bool = False) -> NkiTensor:
    """Return a new float32 PSUM tile [M, N]: x [M, K] @ y [K, N], or x.T @ y of x [K, M] with ``transpose_x``.

    Lowers to ``nc_matmul``; without ``transpose_x``, x goes through ``nc_transpose`` and ``tensor_copy`` first.
    """
    call = "nl.matmul"
    left, right = tile_of(call, x), tile_of(call, y, "y")
    if not isinstance(transpose_x, bool):
        raise IllegalOperand(f"{call}: transpose_x={transpose_x!r} is not a bool", advice="pass True or False")
    for name, tile in (("x", left), ("y", right)):
        if tile.ndim != 2:
            raise IllegalOperand(
                f"{call}: {name} {tile.describe()} has {tile.ndim} axes; it must have 2",
                advice="reshape it to two axes, partitions first",
            )
    inner = left.shape[0 if transpose_x else 1]
    if inner != right.shape[0]:
        raise IllegalOperand(
            f"{call}: x has {inner} elements to sum over, and y has {right.shape[0]} partitions",
            numbers=(f"x  {left.describe()}, transpose_x={transpose_x}", f"y  {right.describe()}"),
            advice="the axis of x that is summed over has as many elements as y has partitions",
        )
    if not transpose_x:
        turned = transpose(left)
        left = new(turned.shape, turned.dtype)
        isa.tensor_copy(dst=left, src=turned)
    result = new((left.shape[1], right.shape[1]), float32, Memory.psum)
    isa.nc_matmul(dst=result, stationary=left, moving=right)
    return result
