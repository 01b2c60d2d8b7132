"""How legacy views walk their roots, worked out once for all views that walk alike.

A kernel takes the same brackets of the same tile again and again, and only where it begins differs from one iteration
to the next. So a view is a layout (shape, steps, partition axis) and offsets. What brackets make of a layout, and what
a box of it is in the machine's terms, depends on no offset, and is kept with the layout.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from neurosim.nki.legacy.index import Affine, Box, box_shape, whole_box
from neurosim.nki.legacy.subscripts import Entry, combined

Steps = tuple[int, ...]
Sum = tuple[tuple[int, int], ...]
"""Pairs (axis, factor): what index expressions add to an offset."""


@dataclass(frozen=True, slots=True)
class Move:
    """What brackets make of a layout.

    Attributes:
        layout: of what they select.
        adds: per root axis, what its offset grows by: factors of the brackets' own offsets.
        checks: the same for the checks that the view has already.
        further: view axes whose index is checked, too, from now on.
    """

    layout: Layout
    adds: tuple[Sum, ...]
    checks: tuple[Sum, ...]
    further: tuple[int, ...]

    def begins(self, offsets: Steps, own: Steps) -> Steps:
        """Return the offsets on the root's axes of what brackets with offsets ``own`` select."""
        return _grown(offsets, self.adds, own)

    def checked(self, offsets: Steps, own: Steps) -> Steps:
        """Return the offsets of the checks, of those that there are and of further ones."""
        if not offsets and not self.further:
            return ()
        return _grown(offsets, self.checks, own) + tuple([own[axis] for axis in self.further])


def _grown(offsets: Steps, sums: tuple[Sum, ...], own: Steps) -> Steps:
    grown = []
    for offset, terms in zip(offsets, sums, strict=True):
        for axis, factor in terms:
            offset += factor * own[axis]
        grown.append(offset)
    return tuple(grown)


@dataclass(frozen=True, slots=True)
class Span:
    """Where an index expression goes within a box, counted from its offset.

    Attributes:
        first, low, high: at the box's beginning, the least, the greatest.
        along: pairs (view axis, step) of axes on which it moves.
    """

    first: int
    low: int
    high: int
    along: Sum


class Walk:
    """A box of a layout.

    Attributes:
        shape, size: of the box.
        is_whole: whether it is everything.
        spans: per root axis.
        checks: per check, its least and greatest value, counted from its offset, and the extent.
    """

    __slots__ = ("_patterns", "box", "checks", "is_whole", "layout", "shape", "size", "spans")

    def __init__(self, layout: Layout, box: Box) -> None:
        self.layout, self.box, self.shape = layout, box, box_shape(box)
        self.is_whole = box == whole_box(layout.shape)
        self.size = math.prod(self.shape)
        self.spans = tuple(_span(steps, box) for steps in layout.steps)
        found = [(_span(steps, box), extent) for steps, extent in layout.checks]
        self.checks = tuple((span.low, span.high, extent) for span, extent in found)
        self._patterns: dict[tuple[Steps, int], tuple[Steps, Steps, int] | None] = {}

    def pattern(self, steps: Steps, partition_axis: int) -> tuple[Steps, Steps, int] | None:
        """Return (shape, steps, partition axis) of the box of a tile with ``steps``, which the last root axes index.

        None where two axes index the partitions.
        """
        key = steps, partition_axis
        if key not in self._patterns:
            self._patterns[key] = self._pattern(steps, partition_axis)
        return self._patterns[key]

    def _pattern(self, tile_steps: Steps, partition_axis: int) -> tuple[Steps, Steps, int] | None:
        steps, par = [0] * len(self.shape), -1
        blocks = max(0, len(self.spans) - len(tile_steps))
        for axis, (span, step) in enumerate(zip(self.spans[blocks:], tile_steps, strict=False)):
            if axis == partition_axis and len(span.along) > 1:
                return None
            for at, factor in span.along:
                steps[at] += factor * step
                par = at if axis == partition_axis else par
        if partition_axis < 0:
            return self.shape, tuple(steps), -1
        return self._with_partitions(steps, par)

    def _with_partitions(self, steps: list[int], par: int) -> tuple[Steps, Steps, int]:
        """Make sure of a partition axis, also where only one partition is selected."""
        shape, own = self.shape, self.layout.par
        if par >= 0 and steps[par]:
            along = par
        elif own >= 0 and (shape[own] == 1 or not steps[own]):
            along = own
            if shape[along] == 1:
                steps[along] = 1
        else:
            return (1, *shape), (1, *steps), 0
        kept = [axis for axis in range(len(shape)) if axis >= along or shape[axis] > 1]
        extents, left = [shape[axis] for axis in kept], [steps[axis] for axis in kept]
        if len(extents) < 2:
            extents.append(1)
            left.append(1)
        return tuple(extents), tuple(left), kept.index(along)


def _span(steps: Steps, box: Box) -> Span:
    first = low = high = 0
    along = []
    for at, ((begin, end), step) in enumerate(zip(box, steps, strict=True)):
        if not step:
            continue
        first += begin * step
        reach = step * (end - begin - 1)
        low, high = low + min(reach, 0), high + max(reach, 0)
        if end - begin > 1:
            along.append((at, step))
    return Span(first, first + low, first + high, tuple(along))


class Layout:
    """How a view walks its root, without where it begins.

    Attributes:
        shape: extent per axis.
        steps: per axis of the root, what one step along each of the view's axes adds to the index.
        par: the partition axis, -1 in HBM.
        checks: steps of index expressions that must stay below an extent, of views that this is a view of.
    """

    __slots__ = ("_made", "_moves", "_walks", "checks", "par", "shape", "steps")

    def __init__(self, shape: Steps, steps: tuple[Steps, ...], par: int, checks: tuple[tuple[Steps, int], ...]) -> None:
        self.shape, self.steps, self.par, self.checks = shape, steps, par, checks
        self._moves: dict[Any, Move] = {}
        self._walks: dict[Box | None, Walk] = {}
        self._made: dict[Any, Layout | None] = {}

    def move(self, entries: tuple[Entry, ...], is_whole: bool) -> Move:
        """Return what brackets select; ``is_whole`` says that the view has the root's shape and checks nothing.

        Args:
            entries: the brackets, with offsets 0.
            is_whole: then the root's own bounds say all.
        """
        key = entries, is_whole
        found = self._moves.get(key)
        if found is None:
            found = self._moves[key] = self._moved(entries, is_whole)
        return found

    def _moved(self, entries: tuple[Entry, ...], is_whole: bool) -> Move:
        chosen = combined(entries, self.par)
        shape = chosen.shape
        further = tuple(axis for axis, extent in enumerate(self.shape) if not is_whole or extent == 1)
        checks = [(_composed(steps, chosen.steps, shape), extent) for steps, extent in self.checks]
        checks += [(_composed_own(chosen.steps[axis], shape), self.shape[axis]) for axis in further]
        made = layout_of(
            shape,
            tuple(_composed(steps, chosen.steps, shape) for steps in self.steps),
            chosen.par,
            tuple(checks),
        )
        if made.par >= 0 and len(shape) - made.par < 2:
            made = made.unsqueezed(len(shape))
        return Move(made, tuple(map(_terms, self.steps)), tuple(_terms(steps) for steps, _ in self.checks), further)

    def walk(self, box: Box | None) -> Walk:
        """Return a box of this, None for all of it."""
        found = self._walks.get(box)
        if found is None:
            found = self._walks[box] = Walk(self, whole_box(self.shape) if box is None else box)
            if found.is_whole:
                found = self._walks[None] = self._walks[found.box] = self._walks.get(None, found)
        return found

    # -- other axes -----------------------------------------------------------------------------------------------

    def unsqueezed(self, axis: int) -> Layout:
        """Return this with an axis of extent 1 more."""
        shape = (*self.shape[:axis], 1, *self.shape[axis:])
        par = self.par + (0 <= axis <= self.par)
        return self._changed(("unsqueeze", axis), shape, lambda steps: (*steps[:axis], 0, *steps[axis:]), par)

    def squeezed(self, axis: int) -> Layout:
        """Return this without an axis of extent 1 that is not the partition axis."""
        shape = self.shape[:axis] + self.shape[axis + 1 :]
        par = self.par - (axis < self.par)
        return self._changed(("squeeze", axis), shape, lambda steps: steps[:axis] + steps[axis + 1 :], par)

    def permuted(self, order: tuple[int, ...]) -> Layout:
        """Return this with its axes in another order; the partition axis goes along."""
        shape = tuple(self.shape[axis] for axis in order)
        par = order.index(self.par)
        return self._changed(("permute", order), shape, lambda steps: tuple(steps[axis] for axis in order), par)

    def _changed(self, key: Any, shape: Steps, change: Callable[[Steps], Steps], par: int) -> Layout:
        """Return this with other axes, where ``change`` says what becomes of the steps of an index expression."""
        found = self._made.get(key)
        if found is None:
            checks = tuple((change(steps), extent) for steps, extent in self.checks)
            found = self._made[key] = layout_of(shape, tuple(map(change, self.steps)), par, checks)
        return found

    def spread(self, shape: Steps) -> Layout | None:
        """Return this repeated to a shape along axes of extent 1, or None where NumPy's rules do not allow it."""
        key = "spread", shape
        if key not in self._made:
            self._made[key] = self._spread(shape)
        return self._made[key]

    def _spread(self, shape: Steps) -> Layout | None:
        view = self
        while len(view.shape) < len(shape):
            is_column = view.par == 0 and view.shape[0] == shape[0] > 1
            view = view.unsqueezed(len(view.shape) if is_column else 0)
        if len(view.shape) != len(shape) or any(own not in (1, to) for own, to in zip(view.shape, shape, strict=True)):
            return None
        return layout_of(shape, view.steps, view.par, view.checks)  # an axis of extent 1 has step 0

    def fitted(self, shape: Steps) -> Layout | None:
        """Return this with axes of extent 1 added or left out so that it has a shape, or None."""
        if self.shape == shape:
            return self
        key = "fit", shape
        if key not in self._made:
            self._made[key] = self._fitted(shape)
        return self._made[key]

    def _fitted(self, shape: Steps) -> Layout | None:
        if [extent for extent in self.shape if extent > 1] != [extent for extent in shape if extent > 1]:
            return None
        view = self
        for axis in range(len(view.shape) - 1, -1, -1):
            if view.shape[axis] == 1 and axis != view.par:
                view = view.squeezed(axis)
        for axis, extent in enumerate(shape):
            if axis >= len(view.shape) or view.shape[axis] != extent:
                view = view.unsqueezed(axis)
        for axis in range(len(view.shape) - 1, -1, -1):
            if len(view.shape) > len(shape) and view.shape[axis] == 1 and axis != view.par:
                view = view.squeezed(axis)
        return view if view.shape == shape else None


def _terms(steps: Steps) -> Sum:
    return tuple((axis, step) for axis, step in enumerate(steps) if step)


def _composed(steps: Steps, chosen: tuple[Steps, ...], shape: Steps) -> Steps:
    """Return the steps of an index expression of a view's axes, on the axes of a view of the view."""
    total = [0] * len(shape)
    for factor, inner in zip(steps, chosen, strict=True):
        if factor:
            total = [step + factor * more for step, more in zip(total, inner, strict=True)]
    return _composed_own(tuple(total), shape)


def _composed_own(steps: Steps, shape: Steps) -> Steps:
    return Affine(shape, steps, 0).steps  # 0 where the extent is 1


@lru_cache(maxsize=2**15)
def layout_of(shape: Steps, steps: tuple[Steps, ...], par: int, checks: tuple[tuple[Steps, int], ...]) -> Layout:
    """Return the layout of these; the same one again, with all that is known of it."""
    return Layout(shape, steps, par, checks)


@lru_cache(maxsize=2**12)
def whole_layout(shape: Steps, par: int) -> Layout:
    """Return the layout of all of a root; a tile has two axes at least."""
    steps = [[0] * len(shape) for _ in shape]
    for axis, extent in enumerate(shape):
        steps[axis][axis] = int(extent > 1)
    made = layout_of(shape, tuple(map(tuple, steps)), par, ())
    return made.unsqueezed(len(shape)) if par >= 0 and len(shape) - par < 2 else made
