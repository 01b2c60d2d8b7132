"""What stands in a legacy tensor's brackets: ints, slices, ``nl.ds``, index tensors, tiles of indices.

Index tensors follow NumPy: they are broadcast with each other, and the result has their common shape. On chip, the
partition axis stays (an int keeps it with extent 1), and a tile has two axes at least.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from neurosim.errors import IllegalOperand, OutOfBounds
from neurosim.indexing import DynamicSlice
from neurosim.nki.legacy.index import Affine, broadcast, is_int


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


@dataclass(frozen=True)
class Selection:
    """What brackets select.

    Attributes:
        shape: of the result.
        entries: per axis of the view, the index as an expression of the result's axes.
        par: the result's partition axis, -1 in HBM.
        dynamic: by axis of the view, tiles of indices.
    """

    shape: tuple[int, ...]
    entries: tuple[Affine, ...]
    par: int
    dynamic: dict[int, Any]


def expand(shape: tuple[int, ...], key: Any, what: Callable[[], str]) -> list[Any]:
    """Return one entry per axis, with ``...`` and what is left out filled in, and None where an axis is added."""
    keys = list(key) if isinstance(key, tuple) else [key]
    gaps = [place for place, entry in enumerate(keys) if entry is Ellipsis]
    if len(gaps) > 1:
        raise IllegalOperand(f"index of {what()}: more than one '...'")
    used = sum(entry is not None for entry in keys) - len(gaps)
    if used > len(shape):
        raise IllegalOperand(f"index of {what()}: {used} indices", numbers=(f"it has {len(shape)} axes",))
    place = gaps[0] if gaps else len(keys)
    keys[place : place + len(gaps)] = [slice(None)] * (len(shape) - used)
    return keys


def select(shape: tuple[int, ...], key: Any, par: int, what: Callable[[], str], is_tile: Any) -> Selection:
    """Work out what a key selects from a view.

    Args:
        shape: of the view.
        key: what stands in the brackets.
        par: the view's partition axis, -1 in HBM.
        what: describes the view, for messages.
        is_tile: says whether an entry is a tile of indices.
    """
    keys = expand(shape, key, what)
    entries: list[Any] = []
    dynamic: dict[int, Any] = {}
    advanced: list[Affine] = []
    ndim = max((entry.ndim for entry in keys if isinstance(entry, Affine)), default=0)
    axis = 0
    for entry in keys:
        if entry is None:
            entries.append(None)
            continue
        extent = shape[axis]
        if is_tile(entry):
            entry = Dynamic(entry, Affine(entry.shape, (0,) * len(entry.shape), 0))
        if isinstance(entry, Dynamic):
            dynamic[axis] = entry.tile
            entry = _upright(entry.plus, ndim)
        if isinstance(entry, np.ndarray):
            entry = _from_array(entry, what)
        if isinstance(entry, Affine):
            advanced.append(entry)
        else:
            entry = _basic(entry, extent, axis, axis == par, what)
        entries.append(entry)
        axis += 1
    return _combined(entries, advanced, par, dynamic)


def _upright(plus: Affine, ndim: int) -> Affine:
    """Return a column of indices with further axes at its end: a tile's first axis is that of its partitions."""
    missing = ndim - plus.ndim
    if plus.ndim != 2 or plus.shape[1] > 1 or missing < 1:
        return plus
    return Affine(plus.shape + (1,) * missing, plus.steps + (0,) * missing, plus.offset)


def _basic(entry: Any, extent: int, axis: int, keep: bool, what: Callable[[], str]) -> Any:
    """Return (start, extent, step) of a slice, or an int."""
    if isinstance(entry, DynamicSlice):
        entry = slice(entry.start, entry.start + entry.size)
    if isinstance(entry, slice):
        bounds = (entry.start, entry.stop, entry.step)
        if not all(bound is None or is_int(bound) for bound in bounds):
            raise IllegalOperand(f"slice {entry} on axis {axis} of {what()} is not made of ints")
        start = 0 if entry.start is None else int(entry.start)
        stop = extent if entry.stop is None else int(entry.stop)
        step = 1 if entry.step is None else int(entry.step)
        start, stop = start + extent * (start < 0), stop + extent * (stop < 0)
        count = len(range(start, stop, step)) if step else 0
        if count < 1:
            raise OutOfBounds(f"slice {start}:{stop} on axis {axis} of {what()} selects nothing")
        return start, count, step
    if is_int(entry):
        position = int(entry)
        position += extent * (position < 0)
        return (position, 1, 1) if keep else position
    raise IllegalOperand(
        f"index {entry!r} on axis {axis} of {what()} is not an int, a slice, an index tensor or a tile of indices"
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
    raise IllegalOperand(f"index of {what()}: an array that is no affine sequence of ints")


def _combined(entries: list[Any], advanced: list[Affine], par: int, dynamic: dict[int, Any]) -> Selection:
    """Lay out the result's axes: those of index tensors together at the first of them, one per slice."""
    common = broadcast(*(entry.shape for entry in advanced))
    layout: list[Any] = []  # per result axis: ("slice", entry), ("new", None) or ("index", axis of common)
    kinds = [isinstance(entry, Affine) or is_int(entry) for entry in entries]
    together = advanced and "".join("x" if kind else " " for kind in kinds).strip().count(" ") == 0
    if advanced and not together:
        layout += [("index", place) for place in range(len(common))]
    placed = bool(advanced) and not together
    for position, entry in enumerate(entries):
        if entry is None:
            layout.append(("new", None))
        elif isinstance(entry, tuple):
            layout.append(("slice", position))
        elif advanced and not placed and (isinstance(entry, Affine) or together):
            layout += [("index", place) for place in range(len(common))]
            placed = True
    first = next((at for at, (kind, _) in enumerate(layout) if kind == "index"), 0)
    shape = tuple(
        common[where] if kind == "index" else 1 if kind == "new" else entries[where][1] for kind, where in layout
    )
    ndim = len(layout)
    found: list[Affine] = []
    for position, entry in enumerate(entries):
        if entry is None:
            continue
        steps = [0] * ndim
        offset = entry
        if isinstance(entry, tuple):
            offset = entry[0]
            steps[layout.index(("slice", position))] = entry[2]
        elif isinstance(entry, Affine):
            placed_entry = entry.aligned(len(common))
            steps[first : first + len(common)] = placed_entry.steps
            offset = placed_entry.offset
        found.append(Affine(shape, tuple(steps), int(offset)))
    if par < 0:
        return Selection(shape or (1,), tuple(_deeper(found) if not shape else found), -1, dynamic)
    return _on_chip(shape, found, par, dynamic)


def _deeper(found: list[Affine]) -> list[Affine]:
    return [Affine((*entry.shape, 1), (*entry.steps, 0), entry.offset) for entry in found]


def _on_chip(shape: tuple[int, ...], found: list[Affine], par: int, dynamic: dict[int, Any]) -> Selection:
    """Say which axis is the partition axis; an int or an index of one partition keeps one with extent 1."""
    along = [axis for axis, step in enumerate(found[par].steps) if step]
    if along:
        place = along[0]
    else:
        ones = [
            axis for axis, extent in enumerate(shape) if extent == 1 and not any(entry.steps[axis] for entry in found)
        ]
        if ones:
            place = ones[0]
        else:
            place, shape = 0, (1, *shape)
            found = [Affine(shape, (0, *entry.steps), entry.offset) for entry in found]
    return Selection(shape, tuple(found), place, dynamic)
