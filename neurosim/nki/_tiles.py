"""What functions on tiles share: new tiles, dtypes of results, shapes that go together, axes to reduce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neurosim import dtypes
from neurosim.datapath.operators import Operator
from neurosim.dtypes import DType, float32
from neurosim.engines import Memory
from neurosim.errors import IllegalOperand
from neurosim.kernel import current
from neurosim.nki import isa
from neurosim.view import NkiTensor
from neurosim.views.reshaping import checked_dtype


def new(shape: Sequence[int], dtype: DType, memory: Memory = Memory.sbuf) -> NkiTensor:
    """Return a new, unwritten tile; one axis gets a second of extent 1."""
    return current("nl").allocate(tuple(shape) if len(shape) > 1 else (*shape, 1), dtype, memory)


def tile_of(call: str, value: Any, name: str = "x") -> NkiTensor:
    """Return an operand that has to be a tile on chip.

    Raises:
        IllegalOperand: it is none.
    """
    current(call)
    if not isinstance(value, NkiTensor):
        raise IllegalOperand(f"{call}: {name} is {value!r}", advice="give a tile in SBUF or PSUM")
    if value.buffer.is_hbm:
        raise IllegalOperand(
            f"{call}: {name} {value.describe()} is in HBM", advice="load it with nl.load or nisa.dma_copy first"
        )
    return value


def dtype_of(call: str, dtype: Any, default: DType) -> DType:
    """Return the dtype that a result gets.

    Raises:
        IllegalOperand: no NKI dtype.
    """
    return default if dtype is None else checked_dtype(call, dtype)


def precise(tiles: Sequence[NkiTensor]) -> DType:
    """Return the tiles' dtype, or the more precise of two: floats over integers, wider over narrower."""
    found = {tile.dtype for tile in tiles}
    if found == {dtypes.bfloat16, dtypes.float16}:
        return float32  # neither holds the other
    return max(found, key=lambda dtype: (dtype.is_float, dtype.size_bytes, dtype))


def spread(call: str, left: NkiTensor, right: NkiTensor) -> tuple[NkiTensor, NkiTensor]:
    """Repeat free axes of extent 1 so that both tiles have one shape."""
    if left.ndim != right.ndim:
        raise IllegalOperand(
            f"{call} of tiles with {left.ndim} and {right.ndim} axes",
            numbers=(left.describe(), right.describe()),
            advice="make the axes equal with .expand_dim()",
        )
    for axis in range(1, left.ndim):
        if left.shape[axis] != right.shape[axis]:
            if left.shape[axis] == 1:
                left = left.broadcast(axis, right.shape[axis])
            elif right.shape[axis] == 1:
                right = right.broadcast(axis, left.shape[axis])
    return left, right


def cast(tile: NkiTensor, dtype: DType) -> NkiTensor:
    """Return the tile, or a new SBUF tile with its values in another dtype: ``tensor_copy``."""
    if tile.dtype == dtype:
        return tile
    result = new(tile.shape, dtype)
    isa.tensor_copy(dst=result, src=tile)
    return result


def scaled(
    tile: NkiTensor, op0: str, operand0: Any, op1: str | None = None, operand1: Any = None, **options: Any
) -> NkiTensor:
    """Return a new SBUF tile: ``tensor_scalar`` of a tile, in float32 unless ``dtype`` says otherwise."""
    result = new(tile.shape, options.pop("dtype", float32))
    second = {} if op1 is None else {"op1": Operator(op1), "operand1": operand1}
    isa.tensor_scalar(dst=result, data=tile, op0=Operator(op0), operand0=operand0, **second, **options)
    return result


def combined(op: str, left: NkiTensor, right: NkiTensor, dtype: DType = float32) -> NkiTensor:
    """Return a new SBUF tile: ``tensor_tensor`` of two tiles of one shape."""
    result = new(left.shape, dtype)
    isa.tensor_tensor(dst=result, data1=left, data2=right, op=Operator(op))
    return result


def fused(
    data: NkiTensor, op0: str, operand0: Any, op1: str, operand1: NkiTensor, dtype: DType = float32, **options: Any
) -> NkiTensor:
    """Return a new SBUF tile: ``scalar_tensor_tensor`` of two tiles of one shape."""
    result = new(data.shape, dtype)
    isa.scalar_tensor_tensor(
        dst=result, data=data, op0=Operator(op0), operand0=operand0, op1=Operator(op1), operand1=operand1, **options
    )
    return result


def activated(op: str, tile: NkiTensor, dtype: DType = float32, **options: Any) -> NkiTensor:
    """Return a new SBUF tile: ``activation`` of a tile."""
    result = new(tile.shape, dtype)
    isa.activation(dst=result, op=Operator(op), data=tile, **options)
    return result


def last_axes(call: str, tile: NkiTensor, axis: Any) -> tuple[int, ...]:
    """Return the axes to reduce, from the front.

    Raises:
        IllegalOperand: they are not the last free axes.
    """
    axes = axis if isinstance(axis, (list, tuple)) else (axis,)
    count = tile.ndim
    if axes and all(isinstance(entry, int) and not isinstance(entry, bool) for entry in axes):
        found = tuple(sorted(entry + count if entry < 0 else entry for entry in axes))
        if found == tuple(range(count - len(axes), count)) and 0 not in found:
            return found
    raise IllegalOperand(
        f"{call}: axis={axis!r} of {tile.describe()}",
        advice="only the last free axes can be reduced, and never partitions: permute free axes, or transpose first",
    )
