"""Tensors as access patterns: every NKI view is a start and one (step, extent) pair per axis.

Sources: AWS Neuron SDK, ``nki/api/nki/language/__init__.py`` (``NkiTensor``), ``nki-language-guide.rst`` ("Tensor
Indexing"), ``nki-aps.rst``. On ``.ap`` the first and the last differ: the API text adds ``offset`` to the view's own,
the deep-dive ignores the view's. neurosim follows the API text, as do public kernels that were verified on devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import numpy as np
import numpy.typing as npt

from neurosim import dtypes
from neurosim.dtypes import DType
from neurosim.engines import Memory
from neurosim.errors import IllegalOperand, OutOfBounds
from neurosim.execution import seen
from neurosim.views.arithmetic import BY_VALUE, NoOperators
from neurosim.views.families import Family, family_of, family_of_whole
from neurosim.views.indexing import sliced
from neurosim.views.reshaping import (
    an_int,
    checked_dtype,
    ints,
    is_dense,
    is_injective,
    merge_steps,
    recast,
    resolve_minus_one,
    row_major,
    split_groups,
)

if TYPE_CHECKING:
    from neurosim.memory import Allocation

Array = npt.NDArray[Any]
_new: Final = object.__new__


class NkiTensor(NoOperators):
    """A tensor, or a view of one. Views share bytes; nothing is copied.

    On-chip tensors have a partition axis (axis 0 in this dialect, but any axis may be it here); HBM tensors have none.

    Attributes:
        shape: extent per axis.
        dtype: number format.
        allocation: what this is a view of.
        offset_bytes: byte of the storage's row (in HBM: of the storage) at which the view begins.
        family, spot: views with the same of these, and of one shape, have one :attr:`key`; cheaper to ask for.

    Class attributes:
        is_placed_by_pattern: whether its pattern says where each element is.
    """

    __slots__ = (
        "_array",
        "_over",
        "allocation",
        "dtype",
        "family",
        "offset_bytes",
        "shape",
        "spot",
    )
    is_placed_by_pattern: ClassVar[bool] = True
    _assign: ClassVar[Callable[[NkiTensor, Any], None]]  # copies into a view; given by the face, which knows how

    def __init__(
        self,
        allocation: Allocation,
        dtype: DType,
        shape: tuple[int, ...],
        steps: tuple[int, ...],
        partition_axis: int,
        start_partition: int,
        free_offset: int,
    ) -> None:
        self.allocation = allocation
        self.dtype = dtype
        self.shape = shape
        self.offset_bytes = allocation.base_bytes + free_offset * dtype.size_bytes
        row_bytes = allocation.storage.row_bytes if partition_axis >= 0 else 0
        self.family = (
            family_of(allocation.memory, dtype, steps, partition_axis, row_bytes)
            if self.is_placed_by_pattern
            else Family(steps, partition_axis)
        )
        self.spot = allocation.base_partition + start_partition + self.offset_bytes * self.family.weight
        self._array: Array | None = None
        self._over: Array | None = None  # the bytes that it is a view of

    # -- what a kernel asks about a tensor ------------------------------------------------------------------------

    @property
    def buffer(self) -> Memory:
        """The memory region (``nl.sbuf``, ``nl.psum``, ``nl.shared_hbm``, …)."""
        return self.allocation.memory

    @property
    def name(self) -> str:
        """The name given at allocation, or a made-up one."""
        return self.allocation.name

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Payload in bytes."""
        return math.prod(self.shape) * self.dtype.size_bytes

    @property
    def row_elements(self) -> int:
        """Elements of the whole tensor in each partition; in HBM, in all."""
        return self.allocation.row_bytes // self.dtype.size_bytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours per axis; along partitions, the free elements of the whole tensor."""
        if self.partition_axis < 0:
            return self.steps
        row = self.row_elements
        return tuple(step * row if axis == self.partition_axis else step for axis, step in enumerate(self.steps))

    @property
    def offset(self) -> int:
        """Elements from the tensor's beginning to the view's, partitions laid end to end."""
        return self.relative_partition * self.row_elements + self.free_offset

    def get_pattern(self) -> list[list[int]]:
        """Return ``[[stride, count], …]``, in the form that :meth:`ap` takes."""
        return [[stride, extent] for stride, extent in zip(self.strides, self.shape, strict=True)]

    def is_contiguous(self) -> bool:
        """Return whether the elements are dense and in row-major order (within each partition, on chip)."""
        return is_dense(self.shape, self.steps, self.partition_axis)

    def is_indirect(self) -> bool:
        """Return whether the view is addressed by a value known only at run time."""
        return False

    # -- what the machine asks ------------------------------------------------------------------------------------

    @property
    def partitions(self) -> int:
        """Extent of the partition axis; 1 in HBM."""
        axis = self.family.partition_axis
        return self.shape[axis] if axis >= 0 else 1

    @property
    def free_elements(self) -> int:
        """Elements per partition; in HBM, all."""
        shape = self.shape
        return shape[1] if self.family.partition_axis == 0 and len(shape) == 2 else math.prod(shape) // self.partitions

    @property
    def start_partition(self) -> int:
        """First partition in the memory, 0 in HBM."""
        return self.spot - self.offset_bytes * self.family.weight

    @property
    def free_offset(self) -> int:
        """Elements from the tensor's beginning in its partition (in HBM: from its beginning)."""
        return (self.offset_bytes - self.allocation.base_bytes) // self.dtype.size_bytes

    @property
    def relative_partition(self) -> int:
        """First partition, counted from the tensor's own first."""
        return self.start_partition - self.allocation.base_partition

    @property
    def partition_axis(self) -> int:
        """Index of the partition axis, -1 in HBM."""
        return self.family.partition_axis

    @property
    def steps(self) -> tuple[int, ...]:
        """Elements between neighbours per axis; along partitions, partitions."""
        return self.family.steps

    @property
    def key(self) -> tuple[Any, ...]:
        """Everything that a signature keeps of the operand; equal keys walk memory alike.

        In PSUM the place counts too, since rules about bank crossings depend on it.
        """
        allocation, axis, memory = self.allocation, self.partition_axis, self.allocation.memory
        return (
            memory,
            self.dtype,
            self.shape,
            self.steps,
            axis,
            self.start_partition,
            allocation.storage.row_bytes if axis >= 0 else 0,
            self.offset_bytes if memory is Memory.psum else 0,
        )

    def aligned_to(self, granule: int) -> bool:
        """Return whether each element begins and ends on a multiple of ``granule`` bytes."""
        if granule == 1:
            return True
        return self.dtype.size_bytes % granule == 0 and self.allocation.base_bytes % granule == 0

    def over(self, granules: Array, granule: int) -> Array:
        """Return the part of ``granules`` (one entry per ``granule`` bytes of the storage) under this view.

        The result has the view's shape, and one axis more when an element covers several granules.
        """
        storage = self.allocation.storage
        scale = self.dtype.size_bytes // granule
        row = storage.row_bytes // granule
        item = granules.itemsize
        strides = [step * scale * item for step in self.steps]
        start, axis = 0, self.partition_axis
        if axis >= 0:
            strides[axis] = self.steps[axis] * row * item
            start = self.start_partition * row
        start += self.offset_bytes // granule
        shape = self.shape
        if scale > 1:
            shape, strides = (*shape, scale), [*strides, item]
        return cast(Array, np.ndarray(shape, granules.dtype, granules.data, start * item, strides))

    def array(self) -> Array:
        """Return the elements as a NumPy view of the storage's bytes: shape and dtype of this tensor."""
        array, storage = self._array, self.allocation.storage
        if array is None or self._over is not storage.held:
            size, family, start = self.dtype.size_bytes, self.family, self.offset_bytes
            strides = [step * size for step in family.steps]
            if (axis := family.partition_axis) >= 0:
                row = storage.row_bytes
                strides[axis] = family.steps[axis] * row
                start += self.start_partition * row
            self._over = storage.buffer
            array = self._array = np.ndarray(self.shape, self.dtype.numpy, self._over, start, strides)
        return array

    def lanes(self) -> Array:
        """Return the elements as [partitions, free elements]: a view where the layout allows, else a copy."""
        array = self._array  # None of a view that gathers
        if array is None or self._over is not self.allocation.storage.held:
            array = self.array()
        axis = self.family.partition_axis
        if axis > 0:
            array = np.moveaxis(array, axis, 0)
        return array if len(self.shape) == 2 else array.reshape(self.partitions, -1)

    def is_injective(self) -> bool:
        """Return whether no two indices reach the same element, as a written operand must be."""
        return is_injective(self.shape, self.steps, self.partition_axis)

    def describe(self) -> str:
        """Shape, dtype, memory and the slice of which tensor, for messages."""
        shape = ", ".join(map(str, self.shape))
        text = f"[{shape}] {self.dtype} in {self.buffer.label}"
        if self.shape == self.allocation.shape:
            return f"{self.allocation.label} {text}"
        return f"{text}, a view of {self.allocation.describe()}"

    def __array__(self, *args: Any, **kwargs: Any) -> Array:
        raise IllegalOperand(
            f"{self.describe()}: a tensor is no array within a kernel",
            advice="compute with instructions; to look at values, print the tensor or use nl.device_print",
        )

    def __repr__(self) -> str:
        return f"NkiTensor({self.describe()})"

    def __str__(self) -> str:
        seen.note(f"it shows the values of {self.allocation.label}")
        mask = self.allocation.storage.unwritten(self)
        if mask is None:
            return f"{self.describe()}\n{self.array()}"
        if mask.all():
            return f"{self.describe()}\nnothing of it is written"
        return f"{self.describe()}\n{np.ma.array(self.array(), mask=mask)}\n(-- is not written)"

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        """Return True: a tensor that is there, as kernels ask of optional ones (``if bias and …``).

        A tile of one element is refused: it would be taken for its value. One in HBM is not (nki-library's tkg MLP).
        """
        if self.size == 1 and not self.allocation.memory.is_hbm:
            raise IllegalOperand(
                f"{self.describe()}: a tensor has no truth value while the kernel is built",
                advice=f"compare with None where it may be missing; {BY_VALUE}",
            )
        return True

    # -- views ----------------------------------------------------------------------------------------------------

    def _with(
        self,
        shape: Iterable[int],
        steps: Iterable[int],
        partition_axis: int | None = None,
        start_partition: int | None = None,
        free_offset: int | None = None,
        dtype: DType | None = None,
    ) -> NkiTensor:
        return NkiTensor(
            self.allocation,
            self.dtype if dtype is None else dtype,
            tuple(shape),  # of a tuple, the same one
            tuple(steps),
            self.partition_axis if partition_axis is None else partition_axis,
            self.relative_partition if start_partition is None else start_partition,
            self.free_offset if free_offset is None else free_offset,
        )

    def axis(self, dim: int, call: str, *, free_only: bool = False, extra: int = 0) -> int:
        """Return ``dim`` counted from the front; OutOfBounds or IllegalOperand name ``call``."""
        count = len(self.shape) + extra
        axis = an_int(dim)
        if not -count <= axis < count:
            what, numbers = f"{call}: axis {dim} of {self.describe()}", (f"it has {count} axes",)
            raise OutOfBounds(what, numbers=numbers, advice="count axes from 0, or from -1 backwards")
        axis %= count
        if free_only and axis == self.partition_axis:
            raise IllegalOperand(
                f"{call}: axis {dim} of {self.describe()} is the partition axis",
                advice="partitions are separate memories; move data between them with a transpose, a shuffle or a DMA",
            )
        return axis

    def moved(self, start_partition: int, free_offset: int) -> NkiTensor:
        """Return the same pattern from another beginning within the tensor. Unchecked."""
        return self._with(self.shape, self.steps, None, start_partition, free_offset)

    def patterned(
        self, shape: tuple[int, ...], steps: tuple[int, ...], partition_axis: int, start_partition: int, offset: int
    ) -> NkiTensor:
        """Return another pattern over the tensor. Unchecked."""
        return self._with(shape, steps, partition_axis, start_partition, offset)

    def __getitem__(self, key: Any) -> NkiTensor:
        """Index with ints, slices with steps, ``...`` and ``nl.ds``; see the class for what an int drops.

        Raises:
            OutOfBounds: an index or a slice leaves the view. Slices are not clipped as NumPy does.
            IllegalOperand: too many indices, or a kind of index that NKI does not have.
        """
        shape: tuple[int, ...] | None = None
        family = self.family
        pair = family.pair
        if pair is not None and type(key) is tuple and len(key) == 2:
            # two slices of two axes are most of all keys: each step of Python counts, and chained comparisons are slow
            rows, columns = key
            if type(rows) is slice and type(columns) is slice and rows.step is None and columns.step is None:
                first, last, left, right = rows.start, rows.stop, columns.start, columns.stop
                extent, width = self.shape
                if first is None:
                    first = 0
                if last is None:
                    last = extent
                if left is None:
                    left = 0
                if right is None:
                    right = width
                if type(first) is int and type(last) is int and type(left) is int and type(right) is int:  # noqa: SIM102
                    if first >= 0 and first < last and last <= extent and left >= 0 and left < right and right <= width:
                        shape = height, breadth = last - first, right - left
                        if height == extent and breadth == width:
                            return self  # as a third of all views are, and more
                        down, down_bytes, along, along_bytes = pair
                        spot = self.spot + first * down + left * along
                        offset = self.offset_bytes + first * down_bytes + left * along_bytes
        if shape is None:
            found = sliced(self, key)
            if isinstance(found, NkiTensor):
                return found
            shape, moved, offset = found
            spot, offset = self.spot + moved, self.offset_bytes + offset
        view = _new(NkiTensor)  # what __init__ would make of it takes half as long again
        view.allocation = allocation = self.allocation
        view.dtype, view.shape = self.dtype, shape
        view.family, view.spot = family, spot
        view.offset_bytes = offset
        view._over = held = allocation.storage.held
        if held is None:
            view._array = None
        elif self._over is held and (array := self._array) is not None:
            view._array = array[key]  # NumPy slices in less time than it makes an array
        else:
            view._array = self.array()[key]
        return view

    def __setitem__(self, key: Any, value: Any) -> None:
        self[key]._assign(value)

    def slice(self, dim: int, start: int, end: int, step: int = 1) -> NkiTensor:
        """Return elements ``start`` to ``end`` (exclusive) of one axis, each ``step``-th."""
        axis = self.axis(dim, "slice")
        return self[(slice(None),) * axis + (slice(start, end, step),)]

    def select(self, dim: int, index: int | NkiTensor) -> NkiTensor:
        """Return one element of an axis, which goes away (the partition axis stays, with extent 1).

        ``index`` is an int, or an SBUF tile [1, 1] whose value chooses at run time, once per view.
        """
        axis = self.axis(dim, "select", free_only=isinstance(index, NkiTensor))
        if isinstance(index, NkiTensor):
            from neurosim.views.indirect import selected

            return selected(self, axis, index, f"select({dim}) of {self.describe()}")
        return self[(slice(None),) * axis + (index,)]

    def permute(self, dims: Sequence[int]) -> NkiTensor:
        """Reorder the axes. On chip the partition axis stays where it is."""
        order = ints(dims)
        if sorted(order) != list(range(len(self.shape))):
            raise IllegalOperand(
                f"permute{order} of {self.describe()}",
                advice=f"give each of the axes 0 to {len(self.shape) - 1} once",
            )
        if self.partition_axis >= 0 and order[self.partition_axis] != self.partition_axis:
            raise IllegalOperand(
                f"permute{order} of {self.describe()} moves the partition axis",
                advice="use nisa.nc_transpose to exchange partitions with the free axis",
            )
        return self._with((self.shape[dim] for dim in order), (self.steps[dim] for dim in order))

    def broadcast(self, dim: int, size: int) -> NkiTensor:
        """Repeat an axis of extent 1 ``size`` times, with step 0. Not along partitions."""
        axis = self.axis(dim, "broadcast", free_only=True)
        if self.shape[axis] != 1 or an_int(size) < 1:
            raise IllegalOperand(
                f"broadcast of axis {dim} of {self.describe()} to {size}",
                numbers=(f"the axis has {self.shape[axis]} elements; it must have 1",),
                advice="select one element of the axis first, or repeat along a new axis that expand_dim makes",
            )
        shape, steps = list(self.shape), list(self.steps)
        shape[axis], steps[axis] = an_int(size), 0
        return self._with(shape, steps)

    def expand_dim(self, dim: int) -> NkiTensor:
        """Insert an axis of extent 1 before axis ``dim``; on chip not before the partitions."""
        axis = self.axis(dim, "expand_dim", extra=1)
        if self.partition_axis >= 0 and axis <= self.partition_axis:
            raise IllegalOperand(
                f"expand_dim({dim}) of {self.describe()}",
                advice="an on-chip tensor begins with its partition axis",
            )
        shape, steps = list(self.shape), list(self.steps)
        shape.insert(axis, 1)
        steps.insert(axis, 1)
        return self._with(shape, steps)

    def squeeze_dim(self, dim: int) -> NkiTensor:
        """Remove an axis of extent 1 that is not the partition axis."""
        axis = self.axis(dim, "squeeze_dim", free_only=True)
        if self.shape[axis] != 1:
            raise IllegalOperand(
                f"squeeze_dim({dim}) of {self.describe()}",
                numbers=(f"the axis has {self.shape[axis]} elements",),
                advice="only an axis of extent 1 goes away; select one element with t[…, i]",
            )
        shape, steps = list(self.shape), list(self.steps)
        del shape[axis], steps[axis]
        return self._with(shape, steps)

    def reshape(self, shape: Sequence[int]) -> NkiTensor:
        """Give the elements another shape without moving them; the partition axis keeps its extent.

        Raises:
            IllegalOperand: another number of elements, or a layout that the shape cannot describe.
        """
        target = resolve_minus_one(ints(shape), self.size, self.describe())
        head = self.partition_axis + 1
        if head and target[:head] != self.shape[:head]:
            raise IllegalOperand(
                f"reshape{target} of {self.describe()} changes the partition axis",
                advice=f"keep {self.shape[0]} partitions as the first axis",
            )
        steps = split_groups(self.shape[head:], self.steps[head:], target[head:])
        if steps is None:
            raise IllegalOperand(
                f"reshape{target} of {self.describe()}: the layout has gaps that this shape cannot describe",
                numbers=(f"pattern {self.get_pattern()}",),
                advice="copy it into a new tensor first, or reshape before slicing",
            )
        return self._with(target, self.steps[:head] + steps)

    def reshape_dim(self, dim: int, shape: Sequence[int]) -> NkiTensor:
        """Split one axis into several whose product is its extent; one of them may be -1."""
        axis = self.axis(dim, "reshape_dim", free_only=len(ints(shape)) > 1)
        parts = resolve_minus_one(ints(shape), self.shape[axis], self.describe())
        return self._with(
            self.shape[:axis] + parts + self.shape[axis + 1 :],
            self.steps[:axis] + row_major(parts, self.steps[axis]) + self.steps[axis + 1 :],
        )

    def flatten_dims(self, start_dim: int, end_dim: int) -> NkiTensor:
        """Merge the axes ``start_dim`` to ``end_dim`` (inclusive), which must be dense among themselves."""
        first = self.axis(start_dim, "flatten_dims", free_only=True)
        last = self.axis(end_dim, "flatten_dims", free_only=True)
        step = merge_steps(self.shape[first : last + 1], self.steps[first : last + 1]) if first <= last else None
        if step is None:
            raise IllegalOperand(
                f"flatten_dims({start_dim}, {end_dim}) of {self.describe()}: the axes are not dense among themselves",
                numbers=(f"pattern {self.get_pattern()}",),
                advice="flatten axes that follow one another without a gap, or copy the view to a dense tile first",
            )
        extent = math.prod(self.shape[first : last + 1])
        return self._with(
            (*self.shape[:first], extent, *self.shape[last + 1 :]),
            (*self.steps[:first], step, *self.steps[last + 1 :]),
        )

    def rearrange(self, src_pattern: Any, dst_pattern: Any, fixed_sizes: dict[str, int] | None = None) -> NkiTensor:
        """Split, reorder and merge named axes: ``t.rearrange(("p", ("h", "w")), ("p", "w", "h"), {"h": 4})``.

        A tuple within a pattern is an axis made of several; the size of one of them follows from the others.

        Raises:
            IllegalOperand: patterns that do not fit the shape or each other, or a layout that cannot be merged.
        """
        from neurosim.views.rearranging import rearrange  # composed of the views above

        return rearrange(self, src_pattern, dst_pattern, {} if fixed_sizes is None else fixed_sizes)

    def view(self, dtype: Any) -> NkiTensor:
        """Read the same bits as another dtype; the last axis shrinks or grows with the size of the elements."""
        target = dtypes.of(dtype) or checked_dtype(f"view of {self.describe()}", dtype)
        layout, old_bytes = (self.shape, self.steps, self.free_offset), self.dtype.size_bytes
        shape, steps, offset = recast(layout, self.partition_axis, old_bytes, target, self.describe)
        return self._with(shape, steps, free_offset=offset, dtype=target)

    def reinterpret_cast(self, dtype: Any) -> NkiTensor:
        """Another name of :meth:`view`."""
        return self.view(dtype)

    def ap(
        self,
        pattern: Sequence[Sequence[int]],
        offset: int | None = None,
        scalar_offset: Any = None,
        vector_offset: Any = None,
        indirect_dim: int = 0,
        dtype: Any = None,
    ) -> NkiTensor:
        """Return an explicit access pattern ``[[step, count], …]`` over the whole tensor.

        ``offset`` (elements of ``dtype``) is added to this view's own offset. On chip the first pair walks the
        partitions; its step is the number of free elements of the tensor, or of this view. ``scalar_offset`` (an SBUF
        tile [1, 1]) or ``vector_offset`` (an SBUF column, one index per row; the first pair's step is not used) move
        the pattern by index · stride of axis ``indirect_dim`` of this view.

        Raises:
            OutOfBounds: the pattern leaves the tensor and is used.
            IllegalOperand: a malformed pattern or index, or a pattern that skips partitions.
        """
        from neurosim.views.access_pattern import access_pattern  # patterns are views too

        return access_pattern(self, pattern, offset, scalar_offset, vector_offset, indirect_dim, dtype)

    def vector_select(self, dim: int, vector_offset: NkiTensor) -> NkiTensor:
        """Return one row of axis 0 (of an HBM tensor) per index of an SBUF column: [indices, rest of the shape]."""
        from neurosim.views.indirect import vector_selected

        axis = self.axis(dim, "vector_select")
        return vector_selected(self, axis, vector_offset, f"vector_select({dim}) of {self.describe()}")

    def indirect(self, index: NkiTensor, num_elem: int | None = None) -> NkiTensor:
        """Return [P, num_elem]: elements along the free axes at offsets that an SBUF tile [P, K] holds; on trn3 only.

        Each group of G partitions (16; 32 on the tensor engine) takes offset i from row i mod G of its own rows of
        ``index``, column i div G: ``index.size`` of them by default. See :mod:`neurosim.views.indirection`.
        """
        from neurosim.views.indirection import by_columns

        return by_columns(self, index, num_elem)


def whole(allocation: Allocation) -> NkiTensor:
    """Return the view of a whole allocation: partitions first on chip, row-major otherwise."""
    view, shape, dtype = _new(NkiTensor), allocation.shape, allocation.dtype
    view.allocation, view.shape, view.dtype = allocation, shape, dtype
    view.family = family = family_of_whole(allocation.memory, dtype, shape, allocation.storage.row_bytes)
    view.offset_bytes = allocation.base_bytes
    view.spot = allocation.base_partition + allocation.base_bytes * family.weight
    view._array = view._over = None
    return view
