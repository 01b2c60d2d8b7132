"""Views whose place is known at run time: one index for all, or one per partition.

Sources: AWS Neuron SDK, ``nki-aps.rst`` ("Dynamic Access"), ``nki/api/nki/language/__init__.py`` (``select``,
``vector_select``, ``ap``), ``nki/api/nki/isa/__init__.py`` (``dma_copy``, "Indirect addressing").
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import index as as_int
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from neurosim.dtypes import DType, int32, uint32
from neurosim.engines import Memory
from neurosim.errors import IllegalOperand, OutOfBounds
from neurosim.memory import HOLE, UNWRITTEN, Mask
from neurosim.plane import Plane
from neurosim.view import Array, NkiTensor

Indices = npt.NDArray[np.int64]


class IndirectTensor(NkiTensor):
    """A view at ``start + index · index_step`` elements, for an index that an on-chip tile holds.

    Attributes:
        index: SBUF tile of int32 or uint32: [P, N] for one index per row of axis 0, column after column (rows beyond
            the view's are not used); [1, 1] for one in all.
        index_step: elements that one unit of the index moves the view.
        limit: number of valid indices, from 0.
        per_lane: whether each row of axis 0 has its own index.
    """

    __slots__ = ("_is_assumed", "_positions", "_valid", "index", "index_step", "limit", "per_lane")

    index: NkiTensor
    index_step: int
    limit: int
    per_lane: bool
    _positions: Indices | None
    _valid: Mask | None
    _is_assumed: bool

    is_placed_by_pattern = False

    def is_indirect(self) -> bool:
        """Return True."""
        return True

    def is_injective(self) -> bool:
        """Return True: an index may repeat, and then the last row stays."""
        return True

    @property
    def key(self) -> tuple[Any, ...]:
        """What a signature keeps: the pattern, the index's pattern, and how the index moves it."""
        return (*super().key, self.index.key, self.index_step, self.limit, self.per_lane)

    @property
    def reach(self) -> NkiTensor:
        """All that any valid index can reach: axis 0 counts the indices, the others walk the pattern."""
        shape, steps = (self.shape[1:], self.steps[1:]) if self.per_lane else (self.shape, self.steps)
        axis = self.partition_axis + (0 if self.per_lane else 1) if self.partition_axis >= 0 else -1
        return NkiTensor(
            self.allocation,
            self.dtype,
            (self.limit, *shape),
            (self.index_step, *steps),
            axis,
            self.relative_partition,
            self.free_offset,
        )

    def _with(
        self,
        shape: Iterable[int],
        steps: Iterable[int],
        partition_axis: int | None = None,
        start_partition: int | None = None,
        free_offset: int | None = None,
        dtype: DType | None = None,
    ) -> NkiTensor:
        if dtype is not None and dtype != self.dtype:
            raise IllegalOperand(
                f"view({dtype}) of {self.describe()}: its place is known at run time only",
                advice="view the tensor before selecting from it",
            )
        static = super()._with(shape, steps, partition_axis, start_partition, free_offset)
        if self.per_lane and (static.shape[0] != self.shape[0] or static.steps[0] != 0):
            raise IllegalOperand(
                f"{self.describe()}: axis 0 has one index per row and stays whole and first",
                advice="slice the index instead",
            )
        return _attach(static, self.index, self.index_step, self.limit, self.per_lane)

    def _used(self) -> int:
        """Return how many entries of the index are used."""
        return self.shape[0] if self.per_lane else 1

    def used(self, mask: Mask | None) -> Mask | None:
        """Return the part of ``mask``, which is over the index, that is used."""
        if mask is None:
            return None
        rows, columns = self.index.partitions, self.index.free_elements
        keep = (np.arange(rows * columns) < self._used()).reshape(columns, rows).T
        return mask & keep.reshape(mask.shape)

    def resolved(self, *, skip: bool, values: bool) -> IndirectTensor:
        """Return this view with its indices read; without ``values`` they are assumed to be 0.

        Raises:
            OutOfBounds: an index below 0 or at ``limit`` and above, unless they are to be skipped.
        """
        if self.index.buffer is Memory.state:
            values = cast(Any, self.index).known  # a register may be known in runs without values
        count = self._used()
        lanes = self.index.lanes().T.reshape(-1)[:count].astype(np.int64) if values else np.zeros(count, np.int64)
        valid = (lanes >= 0) & (lanes < self.limit)
        if not valid.all() and not skip:
            lane = int(np.flatnonzero(~valid)[0])
            raise OutOfBounds(
                f"index {lanes[lane]} of {self._lane(lane)} into {self.describe()}",
                numbers=(f"{self.limit} indices are valid: 0 to {self.limit - 1}", f"index  {self.index.describe()}"),
                advice="check the indices, or pass oob_mode=nisa.oob_mode.skip to leave such rows out",
            )
        found = _attach(self, self.index, self.index_step, self.limit, self.per_lane)
        found._positions = np.where(valid, lanes, 0)
        found._valid = None if valid.all() else valid
        found._is_assumed = not values
        return found

    def _lane(self, lane: int) -> str:
        rows = self.index.partitions
        return f"lane {lane}" if self.index.free_elements == 1 else f"row {lane}, index[{lane % rows}, {lane // rows}],"

    def _at(self) -> Any:
        """Return what to index an array over ``reach`` with, for all elements of this view."""
        positions = cast(Indices, self._positions)
        return positions if self.per_lane else int(positions[0])

    def _spots(self, where: tuple[Indices, ...]) -> tuple[Any, ...]:
        """Return what to index an array over ``reach`` with, for the elements at ``where`` of this view."""
        positions = cast(Indices, self._positions)
        return (positions[where[0]], *where[1:]) if self.per_lane else (int(positions[0]), *where)

    def over(self, granules: Array, granule: int) -> Array:
        """Return a copy of the part of ``granules`` under the rows that the indices choose; skipped rows are filled."""
        part: Array = self.reach.over(granules, granule)[self._at()]
        return part if self._valid is None else np.where(self._lanes_of(part), part, granules.dtype.type(255))

    def _lanes_of(self, part: Array) -> Mask:
        valid = cast(Mask, self._valid)
        return valid.reshape(-1, *(1,) * (part.ndim - 1)) if self.per_lane else valid.reshape((1,) * part.ndim)

    def array(self) -> Array:
        """Return a copy of the elements; rows to be skipped hold those of index 0."""
        return np.array(self.reach.array()[self._at()])

    def chosen(self) -> Mask | None:
        """Return which elements (in this view's shape) have a valid index, or None when all have."""
        if self._valid is None:
            return None
        return np.broadcast_to(self._lanes_of(np.empty(self.shape, np.bool_)), self.shape)

    def unwritten(self) -> Mask | None:
        """Return which elements have unwritten bytes, or None when all are written.

        Indices without values are assumed to choose what is written, if any of it is.
        """
        storage = self.allocation.storage
        if not self._is_assumed or storage.state == UNWRITTEN:
            return storage.unwritten(self)
        mask = storage.unwritten(self.reach)
        return None if mask is None or not mask.all() else np.ones(self.shape, np.bool_)

    def repeated(self) -> int | None:
        """Return an index that several rows have, or None; rows to be skipped do not count."""
        positions = cast(Indices, self._positions)
        found, counts = np.unique(positions if self._valid is None else positions[self._valid], return_counts=True)
        return int(found[counts > 1][0]) if (counts > 1).any() else None

    def rows(self) -> tuple[int, ...] | None:
        """Return which indices were chosen, ascending and each once, or None where they are assumed."""
        if self._is_assumed:
            return None
        positions = cast(Indices, self._positions)
        return tuple(np.unique(positions if self._valid is None else positions[self._valid]).tolist())

    def scatter(self, values: Array, only: Mask | None = None) -> None:
        """Write elements, or those in ``only`` (this view's shape); of several with one index the last stays (assumed).

        ``values`` has this view's shape.
        """
        if np.may_share_memory(values, self.allocation.storage.buffer):
            values = values.copy()  # all is read before anything is written
        self.assign(self.reach.array(), values, only)

    def mark(self, state: int, holes: Mask | None, only: Mask | None = None) -> None:
        """Set the shadow state of what was written, and in a plane its owner; elements in ``holes`` become unwritten.

        Indices without values are assumed to reach, one time or another, all that they can reach.
        """
        storage, reach = self.allocation.storage, self.reach
        if isinstance(storage, Plane):
            self.assign(storage.owners(reach), np.full(self.shape, self.allocation.index, np.uint32), only)
        if self._is_assumed and holes is None:
            storage.mark(reach, state)
            return
        after = np.full(self.shape, state, np.uint8) if holes is None else np.where(holes, HOLE, state).astype(np.uint8)
        self.assign(storage.states(reach), after, only)

    def assign(self, target: Array, values: Array, only: Mask | None) -> None:
        """Set the elements that indices choose of ``target``, which lies over ``reach``, in program order.

        ``values`` have this view's shape, or one axis more where ``target`` has one for the granules of an element.
        """
        chosen = self.chosen()
        keep = only if chosen is None else chosen if only is None else chosen & only
        if target.ndim > len(self.reach.shape) and values.ndim == len(self.shape):
            values = values[..., None]
        if keep is None:
            target[self._at()] = values
            return
        where = np.nonzero(keep)
        target[self._spots(where)] = values[where]


def same_place(first: NkiTensor, second: NkiTensor) -> bool:
    """Return whether two views are of the same elements in the same order, those that the same index chooses."""
    if first.allocation is not second.allocation or first.key != second.key:
        return False
    if isinstance(first, IndirectTensor) != isinstance(second, IndirectTensor):
        return False
    if isinstance(first, IndirectTensor) and isinstance(second, IndirectTensor):
        return first.offset_bytes == second.offset_bytes and same_place(first.index, second.index)
    return first.offset_bytes == second.offset_bytes


def _attach(static: NkiTensor, index: NkiTensor, index_step: int, limit: int, per_lane: bool) -> IndirectTensor:
    tensor = IndirectTensor(
        static.allocation,
        static.dtype,
        static.shape,
        static.steps,
        static.partition_axis,
        static.relative_partition,
        static.free_offset,
    )
    tensor.index, tensor.index_step, tensor.limit, tensor.per_lane = index, index_step, limit, per_lane
    tensor._positions = tensor._valid = None
    tensor._is_assumed = False
    return tensor


def selected(tensor: NkiTensor, axis: int, index: NkiTensor, call: str) -> IndirectTensor:
    """Return what ``tensor.select`` does of an index in a tile."""
    if tensor.is_indirect():
        raise IllegalOperand(f"{call}: the view is placed by an index already", advice="select by ints")
    first = tensor[(slice(None),) * axis + (0,)]
    return by_scalar(first, index, tensor.steps[axis], tensor.shape[axis], call)


def vector_selected(tensor: NkiTensor, axis: int, index: Any, call: str) -> IndirectTensor:
    """Return what ``tensor.vector_select`` does."""
    if axis != 0 or tensor.is_indirect():
        raise IllegalOperand(
            f"{call}: only axis 0 of a static view can be selected from by a vector",
            advice="select along axis 0 of a tensor in HBM, before any other index",
        )
    row = tensor._with((1, *tensor.shape[1:]), (0, *tensor.steps[1:]))
    return by_lane(row, index, tensor.steps[0], tensor.shape[0], call)


def by_scalar(static: NkiTensor, index: Any, index_step: int, extent: int, call: str) -> IndirectTensor:
    """Return ``static`` moved by ``index · index_step`` elements; ``extent`` indices exist at most.

    Raises:
        IllegalOperand: an index that is neither a register nor an int32 or uint32 tile of one element in SBUF.
    """
    if not (isinstance(index, NkiTensor) and index.buffer is Memory.state):  # a register holds one index
        _check_index(index, 1, call)
    return _attach(static, index, index_step, _limit(static, index_step, extent, 0), False)


def by_lane(
    static: NkiTensor, index: Any, index_step: int, extent: int, call: str, rows: int | None = None
) -> IndirectTensor:
    """Return ``static``, whose axis 0 stands for one row, with a row per index.

    The index is an SBUF column; with ``rows``, a tile of at least so many entries, taken column after column.

    Raises:
        IllegalOperand: an index that is not an int32 or uint32 column in SBUF, or a tensor that is not in HBM.
    """
    if not static.buffer.is_hbm:
        raise IllegalOperand(
            f"{call}: the tensor is in {static.buffer.label}; it must be in HBM",
            advice="an index chooses rows of a tensor in HBM; nisa.nc_n_gather gathers on chip",
        )
    lanes = index.partitions if isinstance(index, NkiTensor) else 1
    _check_index(index, lanes, call, columns=None if rows else 1)
    if rows and index.size < rows:
        raise IllegalOperand(
            f"{call}: {rows} rows and {index.size} indices",
            numbers=(f"index  {index.describe()}",),
            advice="the first pair of the pattern counts rows; each has an index of its own",
        )
    limit = _limit(static, index_step, extent, 1)
    chosen = static._with((rows or lanes, *static.shape[1:]), (0, *static.steps[1:]))
    return _attach(chosen, index, index_step, limit, True)


def _check_index(index: Any, partitions: int, call: str, columns: int | None = 1) -> None:
    is_tile = (
        isinstance(index, NkiTensor)
        and not index.is_indirect()
        and index.free_elements == (columns or index.free_elements)
    )
    if not is_tile or index.buffer is not Memory.sbuf or index.dtype not in (int32, uint32):
        what = index.describe() if isinstance(index, NkiTensor) else repr(index)
        raise IllegalOperand(
            f"{call}: the index is {what}",
            advice=f"give an SBUF tile of shape ({partitions}, 1) of int32 or uint32",
        )
    if index.partitions != partitions:
        raise IllegalOperand(
            f"{call}: the index has {index.partitions} partitions; one index is wanted",
            advice="select one of them, as in index[0:1, 0:1]",
        )


def _limit(static: NkiTensor, index_step: int, extent: int, first_axis: int) -> int:
    """Return how many indices keep the whole pattern within the tensor, at most ``extent``."""
    elements = static.allocation.row_bytes // static.dtype.size_bytes
    axes = range(first_axis, len(static.shape))
    last = static.free_offset + sum(
        max(static.steps[axis], 0) * (static.shape[axis] - 1) for axis in axes if axis != static.partition_axis
    )
    if as_int(index_step) < 1:
        return extent
    return max(min(extent, (elements - 1 - last) // index_step + 1), 1)
