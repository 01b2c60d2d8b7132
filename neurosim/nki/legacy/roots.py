"""What views are views of: tensors in HBM, tiles, tensors of many tiles, and results that have no place yet."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from neurosim.datapath.rules import is_number
from neurosim.dtypes import DType
from neurosim.engines import Memory
from neurosim.errors import IllegalOperand, Unsupported
from neurosim.nki import isa
from neurosim.nki.legacy.index import Box
from neurosim.nki.legacy.state import Run
from neurosim.view import NkiTensor

Placer = Callable[[tuple[int, ...], int, int], tuple[int, int]]
"""From block index, partitions and bytes per partition to (partition, byte within the partition)."""

Issue = Callable[[Any], None]
"""What issues an instruction into a view."""


class Root:
    """What a view is a view of.

    Attributes:
        shape, dtype, buffer: of all of it.
        blocks: number of leading axes that count tiles.
        par: index of the partition axis, -1 in HBM.
        tile_size: elements of one tile.
    """

    def __init__(self, shape: tuple[int, ...], dtype: DType, buffer: Memory, blocks: int, par: int) -> None:
        self.shape, self.dtype, self.buffer, self.blocks, self.par = shape, dtype, buffer, blocks, par
        self.tile_size = math.prod(shape[blocks:])

    def tile(self, block: tuple[int, ...], overwrites: bool = False) -> NkiTensor:
        """Return one tile; ``overwrites`` says that all of it is about to be overwritten."""
        raise NotImplementedError

    def describe(self) -> str:
        """Shape, dtype and memory, for messages."""
        return f"[{', '.join(map(str, self.shape))}] {self.dtype} in {self.buffer.label}"


class Whole(Root):
    """A tensor of the machine: an argument, an HBM tensor, a tile."""

    def __init__(self, tensor: NkiTensor) -> None:
        is_input = tensor.allocation.role == "input"  # which all programs of a grid share
        memory = Memory.shared_hbm if is_input else tensor.buffer
        super().__init__(tensor.shape, tensor.dtype, memory, 0, tensor.partition_axis)
        self.tensor = tensor

    def tile(self, block: tuple[int, ...], overwrites: bool = False) -> NkiTensor:
        """Return the tensor."""
        return self.tensor

    def describe(self) -> str:
        """Return the tensor's own description."""
        return self.tensor.describe()


class Blocks(Root):
    """Tiles in SBUF or PSUM, one per index of the axes before the partition axis.

    Each tile is a storage of its own, made when it is first touched; with ``fill`` it is filled then, unless what
    touches it overwrites all of it.
    """

    def __init__(
        self,
        run: Run,
        shape: tuple[int, ...],
        dtype: DType,
        buffer: Memory,
        par: int,
        name: str = "",
        fill: Any = None,
        place: Placer | None = None,
    ) -> None:
        super().__init__(shape, dtype, buffer, par, par)
        self._run, self._name, self._fill, self._place = run, name, fill, place
        self._stack, self._number = run.kernel.stack(), run.tracker.take()
        self._tiles: dict[tuple[int, ...], NkiTensor] = {}
        self._unfilled: set[tuple[int, ...]] = set()
        if math.prod(shape[:par]) == 1:
            self._make((0,) * par)  # so that impossible shapes are refused at their line

    def _make(self, block: tuple[int, ...]) -> NkiTensor:
        shape = self.shape[self.par :]
        kernel = self._run.kernel
        address = None
        if self._place is not None:
            address = self._place(block, shape[0], math.prod(shape[1:]) * self.dtype.size_bytes)
        name = f"{self._name}{list(block) if block else ''}" if self._name else ""
        with kernel.at(self._stack):
            tile = kernel.allocate(shape if len(shape) > 1 else (*shape, 1), self.dtype, self.buffer, name, address)
        self._tiles[block] = tile
        if self._fill is not None:
            self._unfilled.add(block)
        return tile

    def tile(self, block: tuple[int, ...], overwrites: bool = False) -> NkiTensor:
        """Return one tile, filled unless all of it is about to be overwritten."""
        found = self._tiles.get(block)
        if found is None:
            found = self._make(block)
        if block in self._unfilled:
            self._unfilled.discard(block)
            if not overwrites:
                with self._run.kernel.at(self._stack):
                    isa.memset(dst=found, value=fill_value(self._fill, self.dtype))
                    self._run.tracker.wrote(found, self._run.kernel, self._number)
        return found


class Fresh(Root):
    """The result of an instruction that waits for a place.

    Attributes:
        issue: what issues the instruction into a view of the result's shape; called once.
        buffers: memories that the instruction can write.
        accumulates: issues the instruction so that it adds to a view in PSUM; None where it cannot.
        needs_target: whether the instruction also reads the place that its result is assigned to.
        exact: whether the result has a dtype of its own, so that a place of another dtype takes a copy.
        boxes: what of the result a mask lets be written; None for all.
    """

    needs_target = False
    exact = False
    boxes: list[Box] | None = None

    def __init__(
        self,
        run: Run,
        shape: tuple[int, ...],
        dtype: DType,
        buffer: Memory,
        issue: Issue,
        buffers: tuple[Memory, ...],
        accumulates: Issue | None = None,
    ) -> None:
        super().__init__(shape, dtype, buffer, 0, 0)
        self.issue, self.buffers, self.accumulates = issue, buffers, accumulates
        self._run = run
        self._stack = run.kernel.stack()
        self._tensor: NkiTensor | None = None
        self._lost = ""
        run.pending = self

    @property
    def is_open(self) -> bool:
        """Whether the instruction still waits."""
        return self._run.pending is self

    def settle(self, view_of: Callable[[Root], Any]) -> None:
        """Issue the instruction into a new tile."""
        self._run.pending = None
        if self.needs_target:
            raise Unsupported(
                "nl.loop_reduce is not assigned to a tile: its destination is its other operand",
                advice="write tile[...] = nl.loop_reduce(…), or tile = nl.loop_reduce(…) where tile is one already",
            )
        kernel = self._run.kernel
        with kernel.at(self._stack):
            self._tensor = kernel.allocate(self.shape, self.dtype, self.buffer)
            self.issue(view_of(Whole(self._tensor)))

    def bind(self, target: Any, issue: Issue) -> None:
        """Issue the instruction into a view of the result's shape, which stands for the result from now on."""
        self._run.pending = None
        with self._run.kernel.at(self._stack):
            issue(target)
            self._tensor = tensor = target.resolve("", use="")
        if tensor.dtype != self.dtype:
            self._lost = f"as {tensor.dtype}"
        else:
            self._run.bound.setdefault(tensor.allocation.storage, []).append(weakref.ref(self))

    def tile(self, block: tuple[int, ...], overwrites: bool = False) -> NkiTensor:
        """Return where the result is.

        Raises:
            Unsupported: what it was assigned to does not hold it any more.
        """
        if self._tensor is None:
            raise IllegalOperand(
                "the result of an instruction that failed is used",
                advice="mend that instruction first: its own message says what is wrong with it",
            )
        if self._lost:
            raise Unsupported(
                f"the result of an instruction was assigned {self._lost}, and is used again",
                advice="keep it in a variable before it is assigned: value = nl.…; tile[...] = value",
            )
        return self._tensor

    def lose_if(self, tensor: NkiTensor) -> bool:
        """Note that a view is about to be overwritten; return whether what this was assigned to is in it."""
        if self._tensor is None or not _overlap(self._tensor, tensor):
            return False
        self._lost = "to a tile that was overwritten since"
        return True


def outdate(run: Run, tensor: NkiTensor) -> None:
    """Note that a view is about to be overwritten: results that stand there are lost."""
    bound = run.bound.get(tensor.allocation.storage)
    if not bound:
        return
    results = [reference() for reference in bound]
    bound[:] = [
        reference
        for reference, result in zip(bound, results, strict=True)
        if result is not None and not result.lose_if(tensor)
    ]


def _overlap(one: NkiTensor, other: NkiTensor) -> bool:
    arrays = one.array(), other.array()
    if not np.may_share_memory(*arrays):
        return False
    try:
        return bool(np.shares_memory(*arrays, max_work=10_000))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def fill_value(value: Any, dtype: DType) -> Any:
    """Return a number as ``nisa.memset`` takes it for a dtype.

    Raises:
        IllegalOperand: it is no number.
    """
    if not is_number(value) and not isinstance(value, (bool, np.bool_)):
        raise IllegalOperand(f"{value!r} is no number that fills a tile", advice="pass a Python number")
    if dtype.is_float:
        return float(value)
    return bool(value) if not dtype.is_integer else int(value)
