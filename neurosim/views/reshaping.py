"""Steps of reshaped views: which shapes a strided layout can take without moving an element."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from operator import index as as_int
from typing import Any

import numpy as np

from neurosim import dtypes
from neurosim.dtypes import DType
from neurosim.errors import IllegalOperand


def resolve_minus_one(shape: tuple[int, ...], size: int, what: str) -> tuple[int, ...]:
    """Return ``shape`` with its one -1 (if any) made out of ``size``; IllegalOperand when it does not fit."""
    known = math.prod(extent for extent in shape if extent != -1)
    if shape.count(-1) == 1 and known > 0 and size % known == 0:
        shape = tuple(size // known if extent == -1 else extent for extent in shape)
    if any(extent < 1 for extent in shape) or math.prod(shape) != size:
        raise IllegalOperand(
            f"shape {shape} for {what}",
            numbers=(f"{math.prod(shape)} elements asked for, {size} there",),
            advice="give a shape with as many elements; one extent may be -1",
        )
    return shape


def merge_steps(shape: tuple[int, ...], steps: tuple[int, ...]) -> int | None:
    """Return the step of these axes taken as one, or None when they are not dense among themselves."""
    axes = [(extent, step) for extent, step in zip(shape, steps, strict=True) if extent > 1]
    if not axes:
        return 1
    for (_, outer), (extent, inner) in pairwise(axes):
        if outer != inner * extent:
            return None
    return axes[-1][1]


def split_groups(shape: tuple[int, ...], steps: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the steps of ``target`` over a layout (shape, steps), or None when the layout does not allow it.

    Both shapes are cut into the smallest groups of equal size; each group of the layout must be dense within itself.
    """
    result = [1] * len(target)
    axes = [(extent, step) for extent, step in zip(shape, steps, strict=True) if extent != 1]
    wanted = [position for position, extent in enumerate(target) if extent != 1]
    have = need = 0
    while have < len(axes) and need < len(wanted):
        last_have, last_need = have + 1, need + 1
        size, goal = axes[have][0], target[wanted[need]]
        while size != goal:
            if size < goal:
                size *= axes[last_have][0]
                last_have += 1
            else:
                goal *= target[wanted[last_need]]
                last_need += 1
        group = axes[have:last_have]
        step = merge_steps(tuple(extent for extent, _ in group), tuple(step for _, step in group))
        if step is None:
            return None
        for position in reversed(wanted[need:last_need]):
            result[position] = step
            step *= target[position]
        have, need = last_have, last_need
    return tuple(result)


def reaches_each_once(pairs: list[tuple[int, int]]) -> bool:
    """Return whether no two indices of (step, extent) axes meet; counts, so for patterns no larger than a tile."""
    offsets = np.zeros(1, np.int64)
    for step, extent in pairs:
        offsets = (offsets[:, None] + step * np.arange(extent)).reshape(-1)
    return len(np.unique(offsets)) == len(offsets)


def is_injective(shape: tuple[int, ...], steps: tuple[int, ...], partition_axis: int) -> bool:
    """Return whether no two indices reach the same element."""
    reach = 0
    pairs = sorted(
        (abs(step), extent)
        for axis, (step, extent) in enumerate(zip(steps, shape, strict=True))
        if extent > 1 and axis != partition_axis
    )
    for step, extent in pairs:
        if step <= reach:
            return step > 0 and reaches_each_once(pairs)
        reach += step * (extent - 1)
    return partition_axis < 0 or steps[partition_axis] != 0 or shape[partition_axis] == 1


def is_dense(shape: tuple[int, ...], steps: tuple[int, ...], partition_axis: int) -> bool:
    """Return whether elements lie one after the other in row-major order, within each partition where there are any."""
    expected = 1
    for axis in range(len(shape) - 1, -1, -1):
        if axis == partition_axis or shape[axis] == 1:
            continue
        if steps[axis] != expected:
            return False
        expected *= shape[axis]
    return True


def row_major(shape: tuple[int, ...], step: int) -> tuple[int, ...]:
    """Return the steps of a dense shape whose last axis has ``step``."""
    if len(shape) == 1:  # as most tiles have beside their partitions
        return (step,)
    steps = []
    for extent in reversed(shape):
        steps.append(step)
        step *= extent
    return tuple(reversed(steps))


def an_int(value: Any) -> int:
    """Return an int, which an axis or an extent has to be.

    Raises:
        IllegalOperand: it is none.
    """
    try:
        return as_int(value)
    except TypeError:
        raise IllegalOperand(f"{value!r} is not an int", advice="axes and extents of a view are ints") from None


def ints(values: Any) -> tuple[int, ...]:
    """Return the ints of a list or tuple.

    Raises:
        IllegalOperand: it is none, or not of ints.
    """
    if not isinstance(values, (list, tuple)):
        raise IllegalOperand(f"{values!r} is no list of ints", advice="axes and extents of a view are ints")
    return tuple(map(an_int, values))


def checked_name(name: Any) -> str:
    """Return the name that a kernel gives a new tensor; None is none."""
    if name is not None and not isinstance(name, str):
        raise IllegalOperand(f"nl.ndarray: name={name!r} is not a string", advice="names label messages and traces")
    return name or ""


Describe = Callable[[], str]
Layout = tuple[tuple[int, ...], tuple[int, ...], int]
"""Shape, steps and offset of a view, in elements."""


def recast(layout: Layout, partition_axis: int, old_bytes: int, target: DType, describe: Describe) -> Layout:
    """Return the layout of the same bits as elements of another dtype; the last axis shrinks or grows.

    Raises:
        IllegalOperand: elements do not lie on whole elements of ``target``.
    """
    (shape, steps, offset), new_bytes = layout, target.size_bytes
    if old_bytes == new_bytes:
        return layout
    if steps[-1] != 1 or len(shape) - 1 == partition_axis or (shape[-1] * old_bytes) % new_bytes:
        raise IllegalOperand(
            f"view({target}) of {describe()}: its last axis is not dense, or not a multiple of {target}",
            numbers=(f"{shape[-1]} elements of {old_bytes} bytes, step {steps[-1]}",),
            advice="take a view whose last axis is dense and holds whole elements",
        )
    scaled = [step * new_bytes if axis == partition_axis else step * old_bytes for axis, step in enumerate(steps[:-1])]
    if any(bytes_ % new_bytes for bytes_ in (*scaled, offset * old_bytes)):
        raise IllegalOperand(
            f"view({target}) of {describe()}: its rows do not begin on whole elements",
            advice="slice at multiples of the larger element first",
        )
    grown = (*shape[:-1], shape[-1] * old_bytes // new_bytes)
    return grown, (*(step // new_bytes for step in scaled), 1), offset * old_bytes // new_bytes


def checked_dtype(call: str, dtype: Any) -> DType:
    """Return a format by whatever names it.

    Raises:
        IllegalOperand: it names none.
    """
    known = dtypes.of(dtype)
    if known is None:
        raise IllegalOperand(
            f"{call}: dtype {dtype!r} is not an NKI dtype",
            numbers=("known: " + ", ".join(dtypes.ALL),),
            advice="pass one of them, as in nl.float32",
        )
    return known


def checked_shape(shape: Any) -> tuple[int, ...]:
    """Return the extents that a kernel asks a new tensor for."""
    try:
        extents = tuple(map(as_int, shape if isinstance(shape, (tuple, list)) else (shape,)))
    except TypeError:
        raise IllegalOperand(
            f"nl.ndarray: shape {shape!r} is not made of ints", advice="pass a tuple of Python ints"
        ) from None
    if not extents or min(extents) < 1:
        raise IllegalOperand(f"nl.ndarray: shape {extents} has no elements", advice="each axis needs at least one")
    return extents


def united(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return intervals in order, with those that touch or overlap taken as one."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged
