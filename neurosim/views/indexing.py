"""Indices of a view: ints, slices with steps, ranges, ``...`` and ``nl.ds``, checked against the view's bounds."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index as as_int
from typing import TYPE_CHECKING, Any

import numpy as np

from neurosim.engines import Memory
from neurosim.errors import IllegalOperand, OutOfBounds, Unsupported
from neurosim.views.ranges import AffineRange

if TYPE_CHECKING:
    from neurosim.view import NkiTensor


@dataclass(frozen=True, slots=True)
class DynamicSlice:
    """``nl.ds(start, size)``: ``size`` elements from ``start``, an int or a register."""

    start: Any
    size: int


def sliced(tensor: NkiTensor, key: Any) -> NkiTensor | tuple[tuple[int, ...], int, int]:
    """Return ``tensor[key]``; of slices that keep each neighbour its shape, and the moves of its spot and its offset.

    Ints and such slices, one per axis, are most of all keys; :func:`indexed` knows what else is legal, and what is not.
    """
    shape, moves = tensor.shape, tensor.family.moves
    if type(key) is not tuple or len(key) != len(shape) or moves is None:
        return indexed(tensor, key)
    spot = offset = 0
    extents: list[int] = []
    has_ints = False
    for place, entry in enumerate(key):  # each step of Python counts
        extent = shape[place]
        if type(entry) is slice and entry.step is None:
            start, stop = entry.start, entry.stop
            if start is None:
                start = 0
            if stop is None:
                stop = extent
            if type(start) is not int or type(stop) is not int or not 0 <= start < stop <= extent:
                return indexed(tensor, key)
            extents.append(stop - start)
        elif type(entry) is int and 0 <= entry < extent:
            start, has_ints = entry, True
            extents.append(1)
        else:
            return indexed(tensor, key)
        if start:
            down, along = moves[place]
            spot += start * down
            offset += start * along
    return picked(tensor, key, extents, spot, offset) if has_ints else (tuple(extents), spot, offset)


def picked(tensor: NkiTensor, key: tuple[int | slice, ...], extents: list[int], spot: int, offset: int) -> NkiTensor:
    """Return ``tensor[key]`` where ints drop axes, but for that of partitions; ``extents`` count them as 1."""
    axis, steps = tensor.partition_axis, tensor.steps
    kept = [place for place, entry in enumerate(key) if type(entry) is slice or place == axis]
    if len(kept) < (2 if axis >= 0 else 1):
        return indexed(tensor, key)  # which keeps an axis more
    return tensor.patterned(
        tuple([extents[place] for place in kept]),
        tuple([steps[place] for place in kept]),
        kept.index(axis) if axis > 0 else axis,
        tensor.relative_partition + spot - offset * tensor.family.weight,
        tensor.free_offset + offset // tensor.dtype.size_bytes,
    )


def indexed(tensor: NkiTensor, key: Any) -> NkiTensor:
    """Return the view that ``tensor[key]`` stands for; see there."""
    keys = expand(tensor, key)
    if any(map(is_placed, keys)):
        return by_register(tensor, keys)
    shape: list[int] = []
    steps: list[int] = []
    partition_axis, nothing = -1, None
    start_partition, free_offset = tensor.relative_partition, tensor.free_offset
    last_dropped = 1
    for axis, (entry, step) in enumerate(zip(keys, tensor.steps, strict=True)):
        start, extent, stride, dropped = interval(tensor, axis, entry)
        if not extent and nothing is None:
            nothing = OutOfBounds(
                f"{_span(entry, start)} on axis {axis} of {tensor.describe()} selects nothing",
                numbers=(f"the axis has {tensor.shape[axis]} elements",),
                advice="slices are not clipped as in NumPy: use min() for the last tile, and skip one of no elements",
            )
        if axis == tensor.partition_axis:
            start_partition += start * step
            partition_axis = len(shape)
            dropped = False
        else:
            free_offset += start * step
        if dropped:
            last_dropped = step
        else:
            shape.append(extent)
            steps.append(step * stride)
    # on chip a view keeps a free axis, in HBM it keeps an axis (nki-language-guide, "Tensor Indexing")
    if len(shape) < (2 if tensor.partition_axis >= 0 else 1):
        shape.append(1)
        steps.append(last_dropped)
    if nothing is not None:
        from neurosim.views.unusable import unusable  # which is a view, too

        return unusable(tensor, tuple(shape), tuple(steps), partition_axis, nothing)
    return tensor.patterned(tuple(shape), tuple(steps), partition_axis, start_partition, free_offset)


def expand(tensor: NkiTensor, key: Any) -> list[Any]:
    """Return one index per axis, with ``...`` and what is left out filled in."""
    keys = list(key) if isinstance(key, tuple) else [key]
    gaps = [position for position, entry in enumerate(keys) if entry is Ellipsis]
    if len(gaps) > 1:
        raise IllegalOperand(
            f"index of {tensor.describe()}: more than one '...'",
            advice="keep one '...', and write ':' for each other axis",
        )
    missing = len(tensor.shape) - (len(keys) - len(gaps))
    if missing < 0:
        raise IllegalOperand(
            f"index of {tensor.describe()}: {len(keys) - len(gaps)} indices",
            numbers=(f"it has {len(tensor.shape)} axes",),
            advice="give at most one index per axis, or reshape the tensor first",
        )
    position = gaps[0] if gaps else len(keys)
    keys[position : position + len(gaps)] = [slice(None)] * missing
    return keys


def is_placed(entry: Any) -> bool:
    """Return whether an index is a register, or a slice that begins at one."""
    if isinstance(entry, DynamicSlice):
        entry = entry.start
    return hasattr(entry, "allocation") and entry.buffer is Memory.state


def by_register(tensor: NkiTensor, keys: list[Any]) -> NkiTensor:
    """Return the view of a tensor whose place along one axis a register says."""
    from neurosim.views.indirect import by_scalar  # which is a view, too

    axes = [axis for axis, entry in enumerate(keys) if is_placed(entry)]
    call = f"index by a register of {tensor.describe()}"
    if len(axes) > 1 or tensor.is_indirect():
        raise IllegalOperand(
            f"{call}: one register places a view, and there are more",
            advice="compute one index in SBUF, and load it with nisa.register_load",
        )
    axis = axes[0]
    if axis == tensor.partition_axis:
        raise IllegalOperand(
            f"{call}: axis {axis} is the partition axis, and an index cannot choose partitions",
            advice="move data between partitions with a DMA",
        )
    entry, extent, first = keys[axis], tensor.shape[axis], [*keys]
    if isinstance(entry, DynamicSlice):
        size = _as_int(tensor, axis, entry.size)
        if size < 1:
            raise OutOfBounds(f"{call}: nl.ds of {size} elements", advice="give at least one element")
        first[axis], entry, extent = slice(0, size), entry.start, extent - size + 1
    else:
        first[axis] = 0
    return by_scalar(tensor[tuple(first)], entry, tensor.steps[axis], extent, call)


def interval(tensor: NkiTensor, axis: int, entry: Any) -> tuple[int, int, int, bool]:
    """Return (start, extent, stride, whether the axis goes away) of one index; a slice of nothing has extent 0."""
    extent = tensor.shape[axis]
    if isinstance(entry, (range, AffineRange)):  # t[nl.affine_range(128), nl.affine_range(512)]
        entry = slice(entry.start, entry.stop, entry.step)
    if isinstance(entry, slice):
        if entry.start is None and entry.stop is None and entry.step is None:
            return 0, extent, 1, False
        start = 0 if entry.start is None else _as_int(tensor, axis, entry.start)
        stop = extent if entry.stop is None else _as_int(tensor, axis, entry.stop)
        stride = 1 if entry.step is None else _as_int(tensor, axis, entry.step)
        start, stop = start + extent * (start < 0), stop + extent * (stop < 0)
        return start, _count(tensor, axis, start, stop, stride), stride, False
    if isinstance(entry, DynamicSlice):
        start = _as_int(tensor, axis, entry.start)
        return start, _count(tensor, axis, start, start + _as_int(tensor, axis, entry.size), 1), 1, False
    position = _as_int(tensor, axis, entry)
    if not -extent <= position < extent:
        raise OutOfBounds(
            f"index {position} on axis {axis} of {tensor.describe()}",
            numbers=(f"the axis has {extent} elements: {-extent} to {extent - 1}",),
            advice="check the loop bounds",
        )
    return position % extent, 1, 1, True


def _count(tensor: NkiTensor, axis: int, start: int, stop: int, stride: int) -> int:
    extent = tensor.shape[axis]
    if stride < 1:
        raise IllegalOperand(
            f"slice step {stride} on axis {axis} of {tensor.describe()}",
            advice="NKI slices have a step of at least 1",
        )
    if 0 <= stop <= start <= extent:
        return 0
    if not 0 <= start < stop <= extent:
        raise OutOfBounds(
            f"slice {start}:{stop} on axis {axis} of {tensor.describe()} leaves the tensor",
            numbers=(f"the axis has {extent} elements",),
            advice="slices are not clipped as in NumPy: "
            + ("use min() for the last tile" if start else f"take {extent} elements at most, or allocate more"),
        )
    return -(-(stop - start) // stride)


def _span(entry: Any, start: int) -> str:
    """Return a slice without an element as text."""
    stop = entry.stop if isinstance(entry, slice) and entry.stop is not None else start
    return f"slice {start}:{stop}"


def _as_int(tensor: NkiTensor, axis: int, entry: Any) -> int:
    if hasattr(entry, "allocation"):
        raise Unsupported(
            f"index on axis {axis} of {tensor.describe()}: brackets do not take a tensor's value",
            advice="use .select(), .vector_select(), .ap() or nl.ds of a register for an index known at run time only",
        )
    if entry is None or isinstance(entry, (bool, np.bool_, np.ndarray)) or not hasattr(entry, "__index__"):
        raise IllegalOperand(
            f"index {entry!r} on axis {axis} of {tensor.describe()} is not an int, a slice, '...' or nl.ds",
            advice="use .expand_dim() for a new axis" if entry is None else "convert it to an int",
        )
    return as_int(entry)
