"""Legacy tensors: views by affine index expressions, of tiles whose partition axis need not come first.

A view keeps, for each axis of what it is a view of, the index as an affine expression of the view's own axes: its steps
in a layout, and its offset. So a mask can still cut it to a box, and bounds are checked after that.

Source: NKI 0.1 documentation, ``nki.tensor``; tiles, tensors and block dimensions: NKI 0.1 programming model.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from neurosim.dtypes import DType
from neurosim.engines import Memory
from neurosim.errors import IllegalOperand, OutOfBounds, Unsupported
from neurosim.nki.legacy.index import Affine, Box, Predicate, extents_of, is_int, whole_box
from neurosim.nki.legacy.layout import Layout, Steps, Walk, whole_layout
from neurosim.nki.legacy.roots import Fresh, Root, Whole, outdate
from neurosim.nki.legacy.state import active, run_of
from neurosim.nki.legacy.statements import assigns_expression
from neurosim.nki.legacy.subscripts import Dynamic, read
from neurosim.view import NkiTensor
from neurosim.views.reshaping import checked_dtype

_REFLECTED = {
    "add": "__radd__",
    "subtract": "__rsub__",
    "multiply": "__rmul__",
    "divide": "__rtruediv__",
    "power": "__rpow__",
    "remainder": "__rmod__",
    "bitwise_and": "__rand__",
    "bitwise_or": "__ror__",
    "bitwise_xor": "__rxor__",
    "left_shift": "__rlshift__",
    "right_shift": "__rrshift__",
    "less": "__gt__",
    "less_equal": "__ge__",
    "greater": "__lt__",
    "greater_equal": "__le__",
    "equal": "__eq__",
    "not_equal": "__ne__",
}
"""What Python calls on the right operand when NumPy's function would be called of the left one."""
READ, WRITE, ACCUMULATE = "read", "write", "accumulate"


class Tensor:
    """A legacy tensor or a view of one.

    Attributes:
        root: what it is a view of.
        layout: how it walks the root.
        offsets: per axis of the root, where it begins.
        shape: extent per axis.
        par: the partition axis, -1 in HBM; axes before it count tiles.
        dynamic: by axis of the root, tiles of indices that are added to the index.
        check_offsets: per check of the layout, where it begins.
        operand_mask: what brackets with a comparison selected, for matmul operands.
    """

    __slots__ = (
        "__weakref__",
        "_whole",
        "check_offsets",
        "dynamic",
        "layout",
        "offsets",
        "operand_mask",
        "par",
        "root",
        "shape",
    )

    def __init__(
        self,
        root: Root,
        layout: Layout,
        offsets: Steps,
        check_offsets: Steps = (),
        dynamic: dict[int, Any] | None = None,
        operand_mask: Any = None,
    ) -> None:
        self.root, self.layout, self.offsets, self.check_offsets = root, layout, offsets, check_offsets
        self.shape, self.par = layout.shape, layout.par
        self.dynamic, self.operand_mask = dynamic or {}, operand_mask
        self._whole: NkiTensor | None = None  # the machine's view of all of this, once it is known

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

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """What NumPy does with a tile: a NumPy number on the left of an operator leaves the operation to the tile."""
        turned = _REFLECTED.get(ufunc.__name__)
        is_number = isinstance(inputs[0], (np.generic, np.ndarray)) and inputs[0].ndim == 0
        if method == "__call__" and not options and turned and is_number and len(inputs) == 2:
            return getattr(self, turned)(np.asarray(inputs[0])[()])
        raise IllegalOperand(f"np.{ufunc.__name__} of {self.describe()}", advice=f"tiles take nl.{ufunc.__name__}")

    def __int__(self) -> int:
        raise IllegalOperand(
            f"{self.describe()}: a tensor is no number while the kernel is built",
            advice="compare it by nl.where or a predicated instruction, which choose on the device",
        )

    __float__ = __index__ = __int__

    def __iter__(self) -> Any:
        raise IllegalOperand(f"{self.describe()}: a tensor cannot be iterated over", advice="index it in a loop")

    # -- views ----------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Tensor:
        if isinstance(key, (Predicate, bool, np.bool_)):
            mask = key if self.operand_mask is None else self.operand_mask & key
            return Tensor(self.root, self.layout, self.offsets, self.check_offsets, self.dynamic, mask)
        brackets = read(self.shape, key, self.par, self.describe, _is_tile)
        layout = self.layout
        move = layout.move(brackets.entries, not layout.checks and self.shape == self.root.shape)
        return Tensor(
            self.root,
            move.layout,
            move.begins(self.offsets, brackets.offsets),
            move.checked(self.check_offsets, brackets.offsets),
            self._placed(brackets.dynamic) if brackets.dynamic or self.dynamic else None,
        )

    def _placed(self, chosen: dict[int, Tensor]) -> dict[int, Any]:
        """Return tiles of indices by axis of the root, where brackets have them by axis of this."""
        dynamic = dict(self.dynamic)
        for axis, tile in chosen.items():
            targets = [at for at, steps in enumerate(self.layout.steps) if steps[axis] or self._is_axis(at, axis)]
            if len(targets) != 1:
                raise IllegalOperand(
                    f"{self.describe()}: a tile of indices on an axis that is not one of the tensor's",
                    advice="index with the tile before reshaping or broadcasting",
                )
            dynamic[targets[0]] = tile
        return dynamic

    def _is_axis(self, root_axis: int, axis: int) -> bool:
        """Whether a view's axis of extent 1 stands for a root's axis: views that select nothing."""
        return self.ndim == len(self.root.shape) and root_axis == axis and self.shape[axis] == 1

    def __setitem__(self, key: Any, value: Any) -> None:
        from neurosim.nki.legacy.assignment import assign

        assign(self[key], value, is_temporary=assigns_expression())

    def _with(self, layout: Layout) -> Tensor:
        """Return this with other axes."""
        return Tensor(self.root, layout, self.offsets, self.check_offsets, self.dynamic)

    def permuted(self, order: tuple[int, ...]) -> Tensor:
        """Return this with its axes in another order; the partition axis stays where it is."""
        return self._with(self.layout.permuted(order))

    def expand_dims(self, axis: int) -> Tensor:
        """Return this with an axis of extent 1 at a position."""
        if not is_int(axis) or not -self.ndim - 1 <= axis <= self.ndim:
            raise IllegalOperand(
                f"expand_dims at axis {axis!r} of {self.describe()}",
                advice=f"give an int from {-self.ndim - 1} to {self.ndim}",
            )
        return self._with(self.layout.unsqueezed(axis % (self.ndim + 1)))

    def spread(self, shape: tuple[int, ...]) -> Tensor:
        """Return this repeated to a shape along axes of extent 1, by NumPy's rules; no copy."""
        layout = self.layout.spread(shape)
        if layout is None:
            raise IllegalOperand(
                f"{self.describe()} cannot be broadcast to {list(shape)}",
                advice="extents are equal or 1, counted from the last axis",
            )
        return self if layout is self.layout else self._with(layout)

    def broadcast_to(self, shape: Any) -> Tensor:
        """Return this repeated to a shape along axes of extent 1, by NumPy's rules."""
        from neurosim.nki.legacy.lowering import spread_partitions

        wanted = extents_of(shape, "broadcast_to")
        if any(own not in (1, to) for own, to in zip(self.shape[::-1], wanted[::-1], strict=False)):
            raise IllegalOperand(
                f"{self.describe()} cannot be broadcast to {list(wanted)}",
                advice="extents are equal or 1, counted from the last axis",
            )
        return spread_partitions(self.spread(wanted), "broadcast_to")

    def reshape(self, *extents: Any, shape: Any = None) -> Tensor:
        """Return the same elements with another shape, given as numbers, as one tuple or by name; partitions stay.

        Whole floats count as ints (*assumed*): ``height / 2`` is in msthaniana/asst4-trainium2, ``part2/conv2d.py``,
        which goes on to its course's extra credit on hardware.
        """
        if shape is not None and extents:
            raise IllegalOperand(f"reshape: both {extents} and shape={shape}", advice="give the shape once")
        given = extents if shape is None else (shape,)
        wanted = given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
        whole = [int(one) if isinstance(one, float) and one.is_integer() else one for one in wanted]
        numbers = extents_of(whole, "reshape")
        fitted = self.fitted(numbers)
        if fitted is not None:
            return fitted
        return view_of(Whole(self.resolve("reshape", use="").reshape(numbers)))

    def view(self, dtype: Any) -> Tensor:
        """Return the same bits as another dtype."""
        target = checked_dtype(f"view of {self.describe()}", dtype)
        return view_of(Whole(self.resolve("view", use="").view(target)))

    def as_tile(self) -> Tensor:
        """Return this: the old package tells brackets from the tile that they select, and kernels that ran ask for it.

        Source: biquando/trainium-quantum-sim@750a5a7, ``src/circuit.py``; no document names it.
        """
        return self

    def astype(self, dtype: Any) -> Tensor:
        """Return a copy with another dtype."""
        from neurosim.nki.legacy.language.memory import copy

        return copy(self, dtype=dtype)

    def fitted(self, shape: tuple[int, ...]) -> Tensor | None:
        """Return this with axes of extent 1 added or left out so that it has a shape, or None."""
        layout = self.layout.fitted(shape)
        return None if layout is None else self if layout is self.layout else self._with(layout)

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
            and other.offsets == self.offsets
            and other.shape == self.shape
            and other.layout.steps == self.layout.steps
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
        walk = self.layout.walk(box)
        tensor = self._whole if walk.is_whole else None
        if tensor is None:
            tensor = self._pattern(walk, use)
            if walk.is_whole and not isinstance(self.root, Fresh):  # of which it may be said that it is lost
                self._whole = tensor
        if self.dynamic:
            from neurosim.nki.legacy.dynamic import attached

            tensor = attached(self, tensor, whole_box(self.shape) if box is None else box, call)
        if use == READ:
            run.tracker.reads(tensor, run.kernel, call)
        elif use and not self.dynamic:
            outdate(run, tensor)
            run.tracker.wrote(tensor, run.kernel)
        return tensor

    def _pattern(self, walk: Walk, use: str) -> NkiTensor:
        root = self.root
        for (low, high, extent), offset in zip(walk.checks, self.check_offsets, strict=True):
            if offset + low < 0 or offset + high >= extent:
                raise self._outside(offset + low, offset + high, extent, "a view")
        blocks = root.blocks
        block = self._block(walk) if blocks else ()
        tile = root.tile(block, use in (WRITE, ACCUMULATE) and walk.size == root.tile_size)
        steps, shape, partition_axis = tile.steps, tile.shape, tile.partition_axis
        start, free = tile.relative_partition, tile.free_offset
        for axis in range(len(self.offsets) - blocks):  # a tile of one axis has a further one, of extent 1
            step = steps[axis]
            offset, span = self.offsets[axis + blocks], walk.spans[axis + blocks]
            if (offset + span.low < 0 or offset + span.high >= shape[axis]) and axis + blocks not in self.dynamic:
                raise self._outside(offset + span.low, offset + span.high, shape[axis], f"axis {axis + blocks}")
            if axis == partition_axis:
                start += (offset + span.first) * step
            else:
                free += (offset + span.first) * step
        found = walk.pattern(steps, partition_axis)
        if found is None:
            raise IllegalOperand(
                f"{self.describe()}: two axes index the partitions",
                advice="index the partition axis by one index tensor",
            )
        return tile.patterned(*found, start, free)

    def _block(self, walk: Walk) -> tuple[int, ...]:
        """Return which tile of a root with block dimensions this is of."""
        block = []
        for axis in range(self.root.blocks):
            span, extent = walk.spans[axis], self.root.shape[axis]
            if span.along:
                raise Unsupported(
                    f"{self.describe()}: one instruction over several tiles of a tensor with block dimensions",
                    advice="index the axes before nl.par_dim with ints, in a loop",
                )
            position = self.offsets[axis] + span.first
            if not 0 <= position < extent:
                raise OutOfBounds(
                    f"block index {position} on axis {axis} of {self.root.describe()}",
                    numbers=(f"the axis has {extent} tiles",),
                    advice="check the bounds of the loop",
                )
            block.append(position)
        return tuple(block)

    def _outside(self, low: int, high: int, extent: int, what: str) -> OutOfBounds:
        return OutOfBounds(
            f"indices {low} to {high} on {what} of {self.root.describe()}",
            numbers=(f"there are {extent} elements: 0 to {extent - 1}",),
            advice="give the instruction a mask=, e.g. mask=(i < n)",
        )


def _is_tile(entry: Any) -> bool:
    return isinstance(entry, Tensor)


def view_of(root: Root) -> Tensor:
    """Return the view of all of a root."""
    return Tensor(root, whole_layout(root.shape, root.par), (0,) * len(root.shape))


def dynamic_index(tile: Tensor, other: Any) -> Any:
    """Return a tile's values plus an affine expression, as an index."""
    return Dynamic(tile, Affine(other.shape, other.steps, other.offset))
