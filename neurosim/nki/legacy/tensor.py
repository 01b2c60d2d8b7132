"""Legacy tensors: views by affine index expressions, of tiles whose partition axis need not come first.

A view keeps, for each axis of what it is a view of, the index as an affine expression of the view's own axes. So a
mask can still cut it to a box, and bounds are checked after that.

Source: NKI 0.1 documentation, ``nki.tensor``; tiles, tensors and block dimensions: NKI 0.1 programming model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from neurosim import dtypes
from neurosim.dtypes import DType
from neurosim.engines import Memory
from neurosim.errors import IllegalOperand, OutOfBounds, Unsupported
from neurosim.nki.legacy.index import Affine, Box, Predicate, box_shape, whole_box
from neurosim.nki.legacy.roots import Fresh, Root, Whole, outdate
from neurosim.nki.legacy.state import active, run_of
from neurosim.nki.legacy.statements import assigns_expression
from neurosim.nki.legacy.subscripts import Dynamic, select
from neurosim.view import NkiTensor

Steps = tuple[int, ...]
READ, WRITE, ACCUMULATE = "read", "write", "accumulate"


class Tensor:
    """A legacy tensor or a view of one.

    Attributes:
        root: what it is a view of.
        shape: extent per axis.
        entries: per axis of the root, the index as an expression of this view's axes.
        par: the partition axis, -1 in HBM; axes before it count tiles.
        dynamic: by axis of the root, tiles of indices that are added to the expression.
        checks: index expressions that must stay below an extent, of views that this is a view of.
        operand_mask: what brackets with a comparison selected, for matmul operands.
    """

    __slots__ = ("__weakref__", "checks", "dynamic", "entries", "operand_mask", "par", "root", "shape")
    __array_ufunc__ = None  # NumPy scalars on the left leave the operation to us

    def __init__(
        self,
        root: Root,
        shape: tuple[int, ...],
        entries: tuple[Affine, ...],
        par: int,
        dynamic: dict[int, Any] | None = None,
        checks: tuple[tuple[Affine, int], ...] = (),
        operand_mask: Any = None,
    ) -> None:
        self.root, self.shape, self.entries, self.par = root, shape, entries, par
        self.dynamic, self.checks, self.operand_mask = dynamic or {}, checks, operand_mask

    # -- what a kernel asks ---------------------------------------------------------------------------------------

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type, as NumPy's."""
        return self.root.dtype.numpy

    @property
    def format(self) -> DType:
        """Data type, as the machine's."""
        return self.root.dtype

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.root.dtype.size_bytes

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def buffer(self) -> Memory:
        """Where it is."""
        return self.root.buffer

    def assert_shape(self, shape: Any) -> Tensor:
        """Return this tensor if it has the shape; AssertionError otherwise."""
        if tuple(shape) != self.shape:
            raise AssertionError(f"{self.describe()}: expected shape {tuple(shape)}")
        return self

    def describe(self) -> str:
        """Shape, dtype, memory and what it is a view of, for messages."""
        shape = ", ".join(map(str, self.shape))
        text = f"[{shape}] {self.format} in {self.buffer.label}"
        return self.root.describe() if self.shape == self.root.shape else f"{text}, a view of {self.root.describe()}"

    def __repr__(self) -> str:
        return f"tensor({self.describe()})"

    def __str__(self) -> str:
        return str(self.resolve("print"))

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        """Whether there is a tensor, as kernels ask of optional arguments; what is computed has no truth value."""
        if self.buffer.is_hbm:
            return True
        raise IllegalOperand(
            f"{self.describe()}: a tensor has no truth value while the kernel is built",
            advice="use nl.where or a mask",
        )

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise IllegalOperand(
            f"{self.describe()}: a tensor is no array within a kernel",
            advice="compute with nl and nisa functions; to look at values use nl.device_print",
        )

    def __iter__(self) -> Any:
        raise IllegalOperand(f"{self.describe()}: a tensor cannot be iterated over", advice="index it in a loop")

    # -- views ----------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Tensor:
        if isinstance(key, (Predicate, bool, np.bool_)):
            mask = key if self.operand_mask is None else self.operand_mask & key
            return Tensor(self.root, self.shape, self.entries, self.par, self.dynamic, self.checks, mask)
        chosen = select(self.shape, key, self.par, self.describe, lambda entry: isinstance(entry, Tensor))
        dynamic = dict(self.dynamic)
        for axis, tile in chosen.dynamic.items():
            targets = [at for at, entry in enumerate(self.entries) if entry.steps[axis] or self._is_axis(at, axis)]
            if len(targets) != 1:
                raise IllegalOperand(f"{self.describe()}: a tile of indices on an axis that is not one of the tensor's")
            dynamic[targets[0]] = tile
        entries = tuple(_composed(entry, chosen.entries, chosen.shape) for entry in self.entries)
        checks = [(_composed(check, chosen.entries, chosen.shape), extent) for check, extent in self.checks]
        is_whole = self.shape == self.root.shape and not self.checks
        checks += [
            (Affine(chosen.shape, entry.steps, entry.offset), extent)
            for entry, extent in zip(chosen.entries, self.shape, strict=True)
            if not is_whole or extent == 1
        ]
        view = Tensor(self.root, chosen.shape, entries, chosen.par, dynamic, tuple(checks))
        if view.par >= 0 and view.ndim - view.par < 2:
            view = view.unsqueezed(view.ndim)
        return view

    def _is_axis(self, root_axis: int, axis: int) -> bool:
        """Whether a view's axis of extent 1 stands for a root's axis: views that select nothing."""
        return self.ndim == len(self.root.shape) and root_axis == axis and self.shape[axis] == 1

    def __setitem__(self, key: Any, value: Any) -> None:
        from neurosim.nki.legacy.assignment import assign

        assign(self[key], value, is_temporary=assigns_expression())

    def unsqueezed(self, axis: int) -> Tensor:
        """Return this with an axis of extent 1 more."""
        shape = (*self.shape[:axis], 1, *self.shape[axis:])
        return self._changed(shape, lambda steps: (*steps[:axis], 0, *steps[axis:]), self.par + (0 <= axis <= self.par))

    def squeezed(self, axis: int) -> Tensor:
        """Return this without an axis of extent 1 that is not the partition axis."""
        shape = self.shape[:axis] + self.shape[axis + 1 :]
        return self._changed(shape, lambda steps: steps[:axis] + steps[axis + 1 :], self.par - (axis < self.par))

    def _changed(self, shape: tuple[int, ...], change: Callable[[Steps], Steps], par: int) -> Tensor:
        """Return a view with other axes, where ``change`` says what becomes of the steps of an index expression."""
        entries = tuple(Affine(shape, change(entry.steps), entry.offset) for entry in self.entries)
        checks = tuple((Affine(shape, change(check.steps), check.offset), extent) for check, extent in self.checks)
        return Tensor(self.root, shape, entries, par, self.dynamic, checks)

    def permuted(self, order: tuple[int, ...]) -> Tensor:
        """Return this with its axes in another order; the partition axis stays where it is."""
        shape = tuple(self.shape[axis] for axis in order)
        return self._changed(shape, lambda steps: tuple(steps[axis] for axis in order), order.index(self.par))

    def expand_dims(self, axis: int) -> Tensor:
        """Return this with an axis of extent 1 at a position."""
        return self.unsqueezed(axis % (self.ndim + 1))

    def spread(self, shape: tuple[int, ...]) -> Tensor:
        """Return this repeated to a shape along axes of extent 1, by NumPy's rules; no copy."""
        view = self
        while view.ndim < len(shape):
            view = view.unsqueezed(view.ndim if self.par == 0 and view.shape[0] == shape[0] > 1 else 0)
        if view.ndim != len(shape) or any(own not in (1, to) for own, to in zip(view.shape, shape, strict=True)):
            raise IllegalOperand(
                f"{self.describe()} cannot be broadcast to {list(shape)}",
                advice="extents are equal or 1, counted from the last axis",
            )
        return view._changed(shape, lambda steps: steps, view.par)  # an axis of extent 1 has step 0

    def broadcast_to(self, shape: Any) -> Tensor:
        """Return this repeated to a shape along axes of extent 1, by NumPy's rules."""
        from neurosim.nki.legacy.lowering import spread_partitions

        return spread_partitions(self.spread(tuple(int(extent) for extent in shape)), "broadcast_to")

    def reshape(self, *shape: Any) -> Tensor:
        """Return the same elements with another shape; partitions keep their extent."""
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        extents = tuple(int(extent) for extent in wanted)
        fitted = self.fitted(extents)
        if fitted is not None:
            return fitted
        return view_of(Whole(self.resolve("reshape", use="").reshape(extents)))

    def view(self, dtype: Any) -> Tensor:
        """Return the same bits as another dtype."""
        target = dtypes.of(dtype)
        if target is None:
            raise IllegalOperand(f"view({dtype!r}): not an NKI dtype")
        return view_of(Whole(self.resolve("view", use="").view(target)))

    def astype(self, dtype: Any) -> Tensor:
        """Return a copy with another dtype."""
        from neurosim.nki.legacy.language.memory import copy

        return copy(self, dtype=dtype)

    def fitted(self, shape: tuple[int, ...]) -> Tensor | None:
        """Return this with axes of extent 1 added or left out so that it has a shape, or None."""
        if self.shape == shape:
            return self
        if [extent for extent in self.shape if extent > 1] != [extent for extent in shape if extent > 1]:
            return None
        view = self
        for axis in range(self.ndim - 1, -1, -1):
            if view.shape[axis] == 1 and axis != view.par:
                view = view.squeezed(axis)
        axis = 0
        for axis, extent in enumerate(shape):
            if axis >= view.ndim or view.shape[axis] != extent:
                view = view.unsqueezed(axis)
        for axis in range(view.ndim - 1, -1, -1):
            if view.ndim > len(shape) and view.shape[axis] == 1 and axis != view.par:
                view = view.squeezed(axis)
        return view if view.shape == shape else None

    def like(self, shape: tuple[int, ...]) -> Tensor:
        """Return this with a shape that differs in axes of extent 1, or as it is."""
        fitted = self.fitted(shape)
        return self if fitted is None else fitted

    # -- the machine's side ---------------------------------------------------------------------------------------

    def is_same_place(self, other: Any) -> bool:
        """Return whether another view is the same part of the same root."""
        return (
            isinstance(other, Tensor)
            and other.root is self.root
            and other.shape == self.shape
            and all(
                (a.steps, a.offset) == (b.steps, b.offset) for a, b in zip(other.entries, self.entries, strict=True)
            )
        )

    def resolve(self, call: str, box: Box | None = None, use: str = READ) -> NkiTensor:
        """Return the machine's view of this, or of a box of it.

        Args:
            call: who asks, for messages.
            box: per axis, the first index and the last plus one; all by default.
            use: ``READ``, ``WRITE`` or ``ACCUMULATE`` notes it for loops; an empty string does not.

        Raises:
            OutOfBounds: the box leaves the tensor.
            LoopCarriedDependence: a read of what an earlier iteration wrote.
        """
        run = active() or run_of(call)
        if isinstance(self.root, Fresh) and self.root.is_open:
            run.flush()
        limits = whole_box(self.shape) if box is None else box
        tensor = self._pattern(limits, use)
        if self.dynamic:
            from neurosim.nki.legacy.dynamic import attached

            tensor = attached(self, tensor, limits, call)
        if use == READ:
            run.tracker.reads(tensor, run.kernel, call)
        elif use and not self.dynamic:
            outdate(run, tensor)
            run.tracker.wrote(tensor, run.kernel.stack())
        return tensor

    def _pattern(self, box: Box, use: str) -> NkiTensor:
        root, shape = self.root, box_shape(box)
        for check, extent in self.checks:
            self._check(check, box, extent, "a view")
        block = tuple(self._fixed(axis, box) for axis in range(root.blocks))
        covers = use in (WRITE, ACCUMULATE) and math.prod(shape) == math.prod(root.shape[root.blocks :])
        tile = root.tile(block, covers)
        steps = [0] * len(shape)
        par = -1
        start, free = tile.relative_partition, tile.free_offset
        for axis, entry in enumerate(self.entries[root.blocks :]):
            first, along = self._checked(entry, box, tile, axis)
            step = tile.steps[axis]
            if axis != tile.partition_axis:
                free += first * step
                for at, factor in along:
                    steps[at] += factor * step
                continue
            start += first * step
            if len(along) > 1:
                raise IllegalOperand(f"{self.describe()}: two axes index the partitions")
            for at, factor in along:
                par, steps[at] = at, factor * step
        if tile.partition_axis >= 0:
            shape, steps, par = self._with_partitions(shape, steps, par, box)
        return tile.patterned(tuple(shape), tuple(steps), par, start, free)

    def _fixed(self, axis: int, box: Box) -> int:
        entry = self.entries[axis]
        for (low, high), step in zip(box, entry.steps, strict=True):
            if step and high - low > 1:
                raise Unsupported(
                    f"{self.describe()}: one instruction over several tiles of a tensor with block dimensions",
                    advice="index the axes before nl.par_dim with ints, in a loop",
                )
        position = entry.offset + sum(low * step for (low, _), step in zip(box, entry.steps, strict=True))
        if not 0 <= position < self.root.shape[axis]:
            raise OutOfBounds(
                f"block index {position} on axis {axis} of {self.root.describe()}",
                numbers=(f"the axis has {self.root.shape[axis]} tiles",),
            )
        return position

    def _checked(self, entry: Affine, box: Box, tile: NkiTensor, axis: int) -> tuple[int, list[tuple[int, int]]]:
        """Return the index at the box's beginning, and (view axis, factor) where it moves."""
        first, low, high = entry.offset, 0, 0
        along = []
        for at, ((begin, end), step) in enumerate(zip(box, entry.steps, strict=True)):
            if not step:
                continue
            first += begin * step
            span = step * (end - begin - 1)
            low, high = low + min(span, 0), high + max(span, 0)
            if end - begin > 1:
                along.append((at, step))
        if axis + self.root.blocks not in self.dynamic:
            self._refuse_outside(first + low, first + high, tile.shape[axis], f"axis {axis + self.root.blocks}")
        return first, along

    def _check(self, check: Affine, box: Box, extent: int, what: str) -> None:
        cut = Affine(box_shape(box), check.steps, check.offset)
        begin = sum(low * step for (low, _), step in zip(box, check.steps, strict=True))
        low, high = cut.bounds()
        self._refuse_outside(begin + low, begin + high, extent, what)

    def _refuse_outside(self, low: int, high: int, extent: int, what: str) -> None:
        if low < 0 or high >= extent:
            raise OutOfBounds(
                f"indices {low} to {high} on {what} of {self.root.describe()}",
                numbers=(f"there are {extent} elements: 0 to {extent - 1}",),
                advice="give the instruction a mask=, e.g. mask=(i < n)",
            )

    def _with_partitions(
        self, shape: tuple[int, ...], steps: list[int], par: int, box: Box
    ) -> tuple[tuple[int, ...], list[int], int]:
        """Make sure of a partition axis, also where only one partition is selected."""
        if par >= 0 and steps[par]:
            along = par
        elif self.par >= 0 and (shape[self.par] == 1 or not steps[self.par]):
            along = self.par
            if shape[along] == 1:
                steps[along] = 1
        else:
            return (1, *shape), [1, *steps], 0
        drop = [axis for axis in range(along) if shape[axis] == 1]
        kept = [axis for axis in range(len(shape)) if axis not in drop]
        shape, steps = tuple(shape[axis] for axis in kept), [steps[axis] for axis in kept]
        along -= len(drop)
        if len(shape) < 2:
            shape, steps = (*shape, 1), [*steps, 1]
        return shape, steps, along


def _composed(entry: Affine, chosen: tuple[Affine, ...], shape: tuple[int, ...]) -> Affine:
    """Return an index expression of a view's axes as one of a view of the view."""
    steps = [0] * len(shape)
    offset = entry.offset
    for factor, inner in zip(entry.steps, chosen, strict=True):
        if factor:
            offset += factor * inner.offset
            steps = [step + factor * more for step, more in zip(steps, inner.steps, strict=True)]
    return Affine(shape, tuple(steps), offset)


def view_of(root: Root) -> Tensor:
    """Return the view of all of a root."""
    shape = root.shape
    entries = tuple(Affine(shape, tuple(int(at == axis) for at in range(len(shape))), 0) for axis in range(len(shape)))
    view = Tensor(root, shape, entries, root.par)
    if root.par >= 0 and len(shape) - root.par < 2:
        view = view.unsqueezed(len(shape))
    return view


def dynamic_index(tile: Tensor, other: Any) -> Any:
    """Return a tile's values plus an affine expression, as an index."""
    return Dynamic(tile, Affine(other.shape, other.steps, other.offset))
