"""Tensor indirection: elements of on-chip tensors at offsets that a tile holds, for compute instructions on trn3.

Sources: AWS Neuron SDK, ``nki/api/nki/language/__init__.py`` (``NkiTensor.indirect``); ``nki/api/nki/isa/__init__.py``
("Tensor indirection" of each instruction that takes it: where operands begin); ``trainium3_arch.rst`` ("SBUF/PSUM
indirect access"). They leave open, and *assumed* is here:

- each group of partitions takes the offsets that lie in its own rows of the index, as ``local_gather`` does;
- an offset counts elements of the view's free axes, so that a view with a step gives the bits of a dense copy;
- the index has 16-bit or 32-bit integers; an offset outside of the view raises, as the manual names no ``oob_mode``;
- of several elements scattered to one place the last stays;
- elements pass at the rate of a pattern with a wide step, and fetching the offsets takes no time of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import index as as_int
from typing import Any, Final, cast

import numpy as np

from neurosim.chip import Chip
from neurosim.datapath.rules import Broken, merged_axes
from neurosim.dtypes import int16, int32, uint16, uint32
from neurosim.engines import Engine, Memory
from neurosim.errors import IllegalOperand, OutOfBounds
from neurosim.memory import Mask
from neurosim.program import Access
from neurosim.view import NkiTensor
from neurosim.views.indirect import Indices, IndirectTensor

GROUP: Final = 16
"""Partitions that share their offsets, on Vector, Scalar and GpSimd."""
TENSOR_GROUP: Final = 32
"""The same on the tensor engine."""
_INDEX: Final = (uint16, int16, uint32, int32)


class ColumnTensor(IndirectTensor):
    """A view [P, offsets] of an on-chip tensor; each group of partitions has its own offsets along the free axes.

    Attributes:
        base: what the offsets count elements of: [P, elements] where its free axes have one step.
        group: partitions that share their offsets, 0 as long as the engine is not known.
    """

    __slots__ = ("base", "group")

    base: NkiTensor
    group: int

    @property
    def key(self) -> tuple[Any, ...]:
        """What a signature keeps: the pattern, the index's pattern, and what is chosen from."""
        return (*super().key, self.base.key, self.group)

    @property
    def reach(self) -> NkiTensor:
        """All that offsets can reach."""
        return self.base

    def _with(self, *args: Any, **kwargs: Any) -> NkiTensor:
        raise IllegalOperand(
            f"a view of {self.describe()}, which offsets choose",
            advice="make other views first, and .indirect(…) last",
        )

    def grouped(self, engines: Iterable[Engine]) -> ColumnTensor:
        """Return this view as an instruction of ``engines`` sees it."""
        return _made(self.base, self.index, self.shape[1], TENSOR_GROUP if Engine.tensor in engines else GROUP)

    @property
    def capacity(self) -> int:
        """How many offsets each group has: those of the last group, which may have fewer rows."""
        rows = self.shape[0] % self.group
        return rows if rows else self.group * self.index.free_elements

    def _entries(self) -> tuple[Indices, Indices]:
        """Return row and column of the index for each element: offset i is row i mod G of its group, column i div G."""
        number = np.arange(self.shape[1], dtype=np.int64)
        first = np.arange(self.shape[0], dtype=np.int64)[:, None] // self.group * self.group
        return np.broadcast_to(first + number % self.group, self.shape), np.broadcast_to(
            number // self.group, self.shape
        )

    def used(self, mask: Mask | None) -> Mask | None:
        """Return the part of ``mask``, which is over the index, that is used."""
        if mask is None:
            return None
        keep = np.zeros((self.index.partitions, self.index.free_elements), np.bool_)
        keep[self._entries()] = True
        return mask & keep.reshape(mask.shape)

    def resolved(self, *, skip: bool, values: bool) -> IndirectTensor:
        """Return this view with its offsets read; without ``values`` they are assumed to be 0, 1, 2, ….

        Raises:
            OutOfBounds: an offset outside of the free elements.
        """
        rows, columns = self._entries()
        found = _made(self.base, self.index, self.shape[1], self.group)
        if values:
            places = self.index.lanes()[rows, columns].astype(np.int64)
        else:
            places = np.broadcast_to(np.arange(self.shape[1], dtype=np.int64) % self.limit, self.shape)
        outside = np.argwhere((places < 0) | (places >= self.limit))
        if outside.size:
            place = tuple(outside[0])
            raise OutOfBounds(
                f"index[{rows[place]}, {columns[place]}] is {places[place]}: it chooses element {place[1]} of "
                f"{self.base.describe()}",
                numbers=(f"{self.limit} offsets are valid: 0 to {self.limit - 1}", f"index  {self.index.describe()}"),
                advice="an offset counts elements along the free axes of the view that .indirect() was called on",
            )
        found._positions, found._is_assumed = places, not values
        return found

    def _at(self) -> Any:
        return np.arange(self.shape[0])[:, None], cast(Indices, self._positions)

    def _spots(self, where: tuple[Indices, ...]) -> tuple[Any, ...]:
        return where[0], cast(Indices, self._positions)[where]

    def is_injective(self) -> bool:
        """Return whether different offsets reach different elements."""
        return self.base.is_injective()

    def repeats(self) -> bool:
        """Return whether two elements of a partition have the same place."""
        places = np.sort(cast(Indices, self._positions), axis=1)
        return bool((places[:, 1:] == places[:, :-1]).any())


def _made(base: NkiTensor, index: NkiTensor, count: int, group: int) -> ColumnTensor:
    step, *_ = (*base.steps[1:], 1)
    limit = base.free_elements
    tensor = ColumnTensor(
        base.allocation,
        base.dtype,
        (base.shape[0], count),
        (base.steps[0], step * limit),  # for laws: neighbours may be as far apart as the view is wide
        base.partition_axis,
        base.relative_partition,
        base.free_offset,
    )
    tensor.base, tensor.index, tensor.group = base, index, group
    tensor.index_step, tensor.limit, tensor.per_lane = step, limit, False
    tensor._positions = tensor._valid = None
    tensor._is_assumed = False
    return tensor


def by_columns(tensor: NkiTensor, index: Any, num_elem: Any) -> ColumnTensor:
    """Return ``tensor.indirect(index, num_elem)``; see there."""
    call = f"indirect view of {tensor.describe()}"
    if tensor.partition_axis != 0 or tensor.is_indirect():
        raise IllegalOperand(
            f"{call}: it must be a static view in SBUF or PSUM", advice="rows of HBM are chosen by .vector_select(…)"
        )
    if not isinstance(index, NkiTensor) or index.is_indirect():
        raise IllegalOperand(f"{call}: the index is {index!r}", advice="give a tile of offsets in SBUF")
    if index.buffer is not Memory.sbuf or index.dtype not in _INDEX or index.partitions != tensor.partitions:
        raise IllegalOperand(
            f"{call}: the index is {index.describe()}",
            numbers=(f"it must be in SBUF, have {tensor.partitions} partitions, and be {' or '.join(_INDEX)}",),
            advice="offsets lie in the same number of partitions as the tensor",
        )
    try:
        count = index.size if num_elem is None else as_int(num_elem)
    except TypeError:
        count = 0
    if count < 1:
        raise IllegalOperand(
            f"{call}: num_elem {num_elem!r} is not a positive int", advice="pass how many elements each index moves"
        )
    axes = merged_axes(tensor)
    if len(axes) > 1:
        return _made(tensor, index, count, 0)  # refused where it is used, by a rule
    step, extent = axes[0] if axes else (1, 1)
    flat = tensor.patterned(
        (tensor.partitions, extent), (tensor.steps[0], step), 0, tensor.relative_partition, tensor.free_offset
    )
    return _made(flat, index, count, 0)


def operand_rules(name: str, tensor: ColumnTensor, chip: Chip) -> Iterator[Broken | None]:
    """The generation has indirection, each group has offsets enough, and the free axes have one step."""
    width = max(len(name), len("index"))
    numbers = (f"{name:{width}}  {tensor.base.describe()}", f"{'index':{width}}  {tensor.index.describe()}")
    if chip.generation < 4:
        yield Broken(
            f"{name} is chosen by offsets; tensor indirection needs NeuronCore-v4 (trn3)",
            (f"chip {chip.name}", *numbers),
            "gather with nisa.nc_n_gather or nisa.local_gather",
        )
    if tensor.base.ndim > 2:
        yield Broken(
            f"{name} is chosen by offsets along free axes that have several steps",
            (f"pattern {tensor.base.get_pattern()}", *numbers),
            "choose from a view whose free axes are dense among themselves",
        )
    if tensor.shape[1] > tensor.capacity:
        yield Broken(
            f"{name} takes {tensor.shape[1]} offsets; each group of {tensor.group} partitions has {tensor.capacity}",
            numbers,
            "pass num_elem=, or give the index more columns: offset i is in row i mod group, column i div group",
        )


def place_rules(operands: list[tuple[str, NkiTensor, Any]], engine: Engine) -> Iterator[Broken | None]:
    """Where manually allocated operands begin, and what Scalar cannot scatter to.

    ``operands`` are (name, tensor, declaration). The first input that takes indirection is what the others align to.
    """
    columns = [(name, tensor, operand) for name, tensor, operand in operands if isinstance(tensor, ColumnTensor)]
    if not columns:
        return
    source_name, source = next(
        (name, tensor) for name, tensor, operand in operands if operand.indirect and operand.access is Access.READ
    )
    for name, tensor, operand in columns:
        if operand.access is Access.READ:
            yield _same_start(name, tensor, f"index of {name}", tensor.index)
        elif source.buffer is Memory.sbuf:
            yield _same_start(f"index of {name}", tensor.index, source_name, source)
        elif isinstance(source, ColumnTensor):
            yield _same_start(f"index of {name}", tensor.index, f"index of {source_name}", source.index)
        if operand.access is not Access.READ and engine is Engine.scalar and tensor.buffer is Memory.psum:
            yield Broken(f"{name} is scattered into PSUM by Scalar", (tensor.base.describe(),), "use another engine")


def _same_start(name: str, tensor: NkiTensor, other_name: str, other: NkiTensor) -> Broken | None:
    placed = tensor.allocation.is_planed and other.allocation.is_planed  # the compiler places the rest as it must
    if not placed or tensor.start_partition == other.start_partition:
        return None
    return Broken(
        f"{name} begins at partition {tensor.start_partition} and {other_name} at {other.start_partition}",
        (tensor.describe(), other.describe()),
        "with tensor indirection both begin at the same partition",
    )
