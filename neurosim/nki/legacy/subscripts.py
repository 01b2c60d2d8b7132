"""What stands in a legacy tensor's brackets: ints, slices, ``nl.ds``, index tensors, tiles of indices.

Index tensors follow NumPy: they are broadcast with each other, and the result has their common shape. On chip, the
partition axis stays (an int keeps it with extent 1), and a tile has two axes at least.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neurosim.errors import IllegalOperand, OutOfBounds
from neurosim.nki.legacy.index import Affine, broadcast, is_int
from neurosim.views.indexing import DynamicSlice

_DS = "give a start, and a size of at least 1"


@dataclass(frozen=True)
class Dynamic:
    """An index that is known at run time only: the values of a tile, plus an affine expression.

    Attributes:
        tile: a legacy view of an SBUF column, or of one element.
        plus: what is added to each value.
    """

    tile: Any
    plus: Affine

    def __add__(self, other: Any) -> Dynamic:
        return Dynamic(self.tile, self.plus + other)

    __radd__ = __add__


Entry = Any
"""What stands in brackets for one axis, without its offset: 0 for an int, (extent, step) for a slice, (shape, steps)
for an index tensor, None for a new axis."""


@dataclass(frozen=True, slots=True)
class Brackets:
    """What stands in brackets.

    Attributes:
        entries: per axis of the view, and per new axis.
        offsets: per axis of the view, where the entry begins.
        dynamic: by axis of the view, tiles of indices.
    """

    entries: tuple[Entry, ...]
    offsets: tuple[int, ...]
    dynamic: dict[int, Any]


@dataclass(frozen=True, slots=True)
class Selection:
    """What brackets select.

    Attributes:
        shape: of the result.
        steps: per axis of the view, what one step along each of the result's axes adds to its index.
        par: the result's partition axis, -1 in HBM.
    """

    shape: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]
    par: int


def expand(shape: tuple[int, ...], key: Any, what: Callable[[], str]) -> list[Any]:
    """Return one entry per axis, with ``...`` and what is left out filled in, and None where an axis is added."""
    keys = list(key) if isinstance(key, tuple) else [key]
    gaps = [place for place, entry in enumerate(keys) if entry is Ellipsis]
    if len(gaps) > 1:
        raise IllegalOperand(
            f"index of {what()}: more than one '...'", advice="keep one '...', and write ':' for each other axis"
        )
    used = sum(entry is not None for entry in keys) - len(gaps)
    if used > len(shape):
        raise IllegalOperand(
            f"index of {what()}: {used} indices",
            numbers=(f"it has {len(shape)} axes",),
            advice="give at most one index per axis",
        )
    place = gaps[0] if gaps else len(keys)
    keys[place : place + len(gaps)] = [slice(None)] * (len(shape) - used)
    return keys


def read(shape: tuple[int, ...], key: Any, par: int, what: Callable[[], str], is_tile: Any) -> Brackets:
    """Read what stands in the brackets of a view.

    Args:
        shape: of the view.
        key: what stands in the brackets.
        par: the view's partition axis, -1 in HBM.
        what: describes the view, for messages.
        is_tile: says whether an entry is a tile of indices.
    """
    keys: Sequence[Any] = key if type(key) is tuple else (key,)
    if len(keys) != len(shape) or any(entry is None or entry is Ellipsis for entry in keys):
        keys = expand(shape, key, what)
    entries: list[Entry] = []
    offsets: list[int] = []
    dynamic: dict[int, Any] = {}
    axis = 0
    for entry in keys:
        if type(entry) is Affine:
            entries.append((entry.shape, entry.steps))
            offsets.append(entry.offset)
            axis += 1
            continue
        if entry is None:
            entries.append(None)
            continue
        if isinstance(entry, int) and type(entry) is not bool:
            entries.append(0 if axis != par else (1, 1))
            offsets.append(int(entry) + shape[axis] * (entry < 0))
            axis += 1
            continue
        if is_tile(entry):
            entry = Dynamic(entry, Affine(entry.shape, (0,) * len(entry.shape), 0))
        if isinstance(entry, Dynamic):
            dynamic[axis] = entry.tile
            entry = _upright(entry.plus, max(each.ndim for each in (*keys, entry.plus) if isinstance(each, Affine)))
        if isinstance(entry, np.ndarray):
            entry = _from_array(entry, what)
        if isinstance(entry, Affine):
            entries.append((entry.shape, entry.steps))
            offsets.append(entry.offset)
        else:
            start, extent, step = _basic(entry, shape[axis], axis, what)
            entries.append(0 if extent == 0 and axis != par else (max(extent, 1), step))
            offsets.append(start)
        axis += 1
    return Brackets(tuple(entries), tuple(offsets), dynamic)


def _upright(plus: Affine, ndim: int) -> Affine:
    """Return a column of indices with further axes at its end: a tile's first axis is that of its partitions."""
    missing = ndim - plus.ndim
    if plus.ndim != 2 or plus.shape[1] > 1 or missing < 1:
        return plus
    return Affine(plus.shape + (1,) * missing, plus.steps + (0,) * missing, plus.offset)


def _basic(entry: Any, extent: int, axis: int, what: Callable[[], str]) -> tuple[int, int, int]:
    """Return (start, extent, step) of a slice; of an int with extent 0."""
    if isinstance(entry, DynamicSlice):
        if not is_int(entry.start) or not is_int(entry.size) or entry.size < 1:
            raise IllegalOperand(f"nl.ds({entry.start!r}, {entry.size!r}) on axis {axis} of {what()}", advice=_DS)
        entry = slice(entry.start, entry.start + entry.size)
    if type(entry) is slice:
        if entry.start is None and entry.stop is None and entry.step is None and extent:
            return 0, extent, 1
        bounds = (entry.start, entry.stop, entry.step)
        if not all(bound is None or is_int(bound) for bound in bounds):
            raise IllegalOperand(
                f"slice {entry} on axis {axis} of {what()} is not made of ints",
                advice="write bounds and steps as Python ints, or use nl.ds(start, size)",
            )
        start = 0 if entry.start is None else int(entry.start)
        stop = extent if entry.stop is None else int(entry.stop)
        step = 1 if entry.step is None else int(entry.step)
        start, stop = start + extent * (start < 0), stop + extent * (stop < 0)
        count = len(range(start, stop, step)) if step else 0
        if count < 1:
            raise OutOfBounds(
                f"slice {start}:{stop} on axis {axis} of {what()} selects nothing",
                advice="check the bounds of the loop; a slice must select an element",
            )
        return start, count, step
    if is_int(entry):
        position = int(entry)
        return position + extent * (position < 0), 0, 1
    raise IllegalOperand(
        f"index {entry!r} on axis {axis} of {what()} is not an int, a slice, an index tensor or a tile of indices",
        advice="write ints, slices, nl.ds, nl.arange, or a tile of indices",
    )


def _from_array(values: Any, what: Callable[[], str]) -> Affine:
    """Return an array of ints as an affine expression."""
    array = np.asarray(values)
    if array.dtype.kind in "iu" and array.size:
        steps = tuple(
            int(array.take(1, axis=axis).flat[0]) - int(array.flat[0]) if extent > 1 else 0
            for axis, extent in enumerate(array.shape)
        )
        found = Affine(array.shape, steps, int(array.flat[0]))
        if (found.values() == array).all():
            return found
    raise IllegalOperand(
        f"index of {what()}: an array that is no affine sequence of ints",
        advice="index by a first element and equal steps, or by a tile of indices",
    )


def combined(entries: tuple[Entry, ...], par: int) -> Selection:
    """Lay out the result's axes: those of index tensors together at the first of them, one per slice."""
    indices = [entry for entry in entries if _is_index(entry)]
    common = broadcast(*(entry[0] for entry in indices))
    layout: list[Any] = []  # per result axis: ("slice", entry), ("new", None) or ("index", axis of common)
    kinds = [entry == 0 or _is_index(entry) for entry in entries]
    together = bool(indices) and "".join("x" if kind else " " for kind in kinds).strip().count(" ") == 0
    if indices and not together:
        layout += [("index", place) for place in range(len(common))]
    placed = bool(indices) and not together
    for position, entry in enumerate(entries):
        if entry is None:
            layout.append(("new", None))
        elif entry != 0 and not _is_index(entry):
            layout.append(("slice", position))
        elif indices and not placed:
            layout += [("index", place) for place in range(len(common))]
            placed = True
    first = next((at for at, (kind, _) in enumerate(layout) if kind == "index"), 0)
    shape = tuple(
        common[where] if kind == "index" else 1 if kind == "new" else entries[where][0] for kind, where in layout
    )
    found: list[tuple[int, ...]] = []
    for position, entry in enumerate(entries):
        if entry is None:
            continue
        steps = [0] * len(layout)
        if _is_index(entry):
            steps[first : first + len(common)] = (0,) * (len(common) - len(entry[0])) + entry[1]
        elif entry != 0:
            steps[layout.index(("slice", position))] = entry[1]
        found.append(Affine(shape, tuple(steps), 0).steps)
    if par >= 0:
        return _on_chip(shape, found, par)
    if not shape:
        return Selection((1,), tuple((0,) for _ in found), -1)
    return Selection(shape, tuple(found), -1)


def _is_index(entry: Any) -> bool:
    return isinstance(entry, tuple) and isinstance(entry[0], tuple)


def _on_chip(shape: tuple[int, ...], found: list[tuple[int, ...]], par: int) -> Selection:
    """Say which axis is the partition axis; an int or an index of one partition keeps one with extent 1."""
    along = [axis for axis, step in enumerate(found[par]) if step]
    if along:
        return Selection(shape, tuple(found), along[0])
    ones = [axis for axis, extent in enumerate(shape) if extent == 1 and not any(steps[axis] for steps in found)]
    if ones:
        return Selection(shape, tuple(found), ones[0])
    return Selection((1, *shape), tuple((0, *steps) for steps in found), 0)
