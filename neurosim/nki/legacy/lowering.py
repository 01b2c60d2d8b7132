"""From legacy calls to instructions: boxes of masks, broadcasting, and results that wait for a place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from neurosim.datapath.rules import is_number
from neurosim.dtypes import DType, float32
from neurosim.engines import Memory
from neurosim.errors import IllegalOperand
from neurosim.nki import isa
from neurosim.nki.legacy.index import Box, Boxes, boxes_of, whole_box
from neurosim.nki.legacy.roots import Fresh, Issue, Whole
from neurosim.nki.legacy.state import Run, begin
from neurosim.nki.legacy.tensor import WRITE, Tensor, view_of
from neurosim.view import NkiTensor

ON_CHIP = (Memory.sbuf, Memory.psum)

_QUADRANT: Final = 32
"""Partitions at whose multiples the Tensor engine begins to read."""


def tile(value: Any, name: str, call: str) -> Tensor:
    """Return an operand that must be a tile on chip.

    Raises:
        IllegalOperand: anything else.
    """
    if not isinstance(value, Tensor):
        raise IllegalOperand(
            f"{call}: {name} is {value!r}; it must be a tile", advice="pass a tile of the kernel, as nl.load makes"
        )
    if value.buffer.is_hbm:
        raise IllegalOperand(
            f"{call}: {name} is in HBM; it must be on chip",
            numbers=(f"{name}  {value.describe()}",),
            advice="load it with nl.load first",
        )
    return value


def result(
    call: str,
    shape: tuple[int, ...],
    dtype: DType,
    issue: Issue,
    *,
    boxes: list[Box] | None,
    buffer: Memory = Memory.sbuf,
    buffers: tuple[Memory, ...] = ON_CHIP,
    accumulates: Issue | None = None,
    needs_target: bool = False,
    exact: bool = False,
) -> Tensor:
    """Return the result of an instruction that waits for its place; see :class:`Fresh`.

    ``boxes`` are what of the result is written, None for all of it: an assignment leaves the rest of its target.
    """
    run = begin(call)
    root = Fresh(run, shape if len(shape) > 1 else (*shape, 1), dtype, buffer, issue, buffers, accumulates)
    root.needs_target, root.exact = needs_target, exact
    root.boxes = None if boxes is None else [box if len(box) > 1 else (*box, (0, 1)) for box in boxes]
    return view_of(root)


def lanewise(
    call: str,
    shape: tuple[int, ...],
    dtype: DType,
    mask: Any,
    operands: Sequence[Any],
    instruct: Callable[..., Any],
    *,
    columns: Sequence[Any] = (),
    buffer: Memory = Memory.sbuf,
    exact: bool = False,
    buffers: tuple[Memory, ...] = ON_CHIP,
) -> Tensor:
    """Return the result of an instruction that works element by element.

    Args:
        call: for messages.
        shape: of the result; operands are broadcast to it.
        dtype: of the result.
        mask: what of it is computed.
        operands: tiles.
        instruct: issues the instruction, given the destination, the operands, and the columns.
        columns: per-partition operands, which may be numbers or None.
        buffer: where the result goes unless it is assigned.
        exact: whether the instruction moves bits when dtypes are equal, so that its result has a dtype of its own.
        buffers: memories that it can write.
    """
    begin(call)
    boxes = boxes_of(mask, shape, call)
    spread = [spread_partitions(operand.spread(shape), call) for operand in operands]
    upright = [column(value, shape[0], call) for value in columns]
    parts = [
        (box, [one.resolve(call, box) for one in spread], [cut_column(one, box, call) for one in upright])
        for box in boxes
    ]

    def issue(target: Tensor) -> None:
        for box, tiles, sides in parts:
            instruct(target.resolve(call, box, WRITE), *tiles, *sides)

    return result(call, shape, dtype, issue, buffer=buffer, buffers=buffers, exact=exact, boxes=boxes)


def number(value: Any, name: str, call: str) -> float:
    """Return an operand that must be a number.

    Raises:
        IllegalOperand: anything else.
    """
    if not is_number(value) and not isinstance(value, (bool, np.bool_)):
        raise IllegalOperand(f"{call}: {name} is {value!r}; it must be a number", advice="pass a Python number")
    return float(value)


def fitted(value: Tensor, name: str, shape: tuple[int, ...], call: str) -> Tensor:
    """Return an operand with a shape that differs from its own in axes of extent 1 only.

    Raises:
        IllegalOperand: it has another shape.
    """
    found = value.fitted(shape)
    if found is None:
        raise IllegalOperand(
            f"{call}: {name} is {value.describe()}; it must have the shape {list(shape)}",
            advice="give it that shape, by slices or nl.broadcast_to",
        )
    return found


def column(value: Any, partitions: int, call: str, *, dtype: DType | None = float32) -> Any:
    """Return a per-partition operand: a number as it is, a tile as [partitions, 1] of a dtype (None for any)."""
    if not isinstance(value, Tensor):
        if value is not None:
            number(value, "operand", call)
        return float(value) if isinstance(value, np.generic) and value.dtype.kind == "V" else value
    tile(value, "operand", call)
    if value.size == 1 and partitions > 1:
        value = value.like((1, 1))
        value = spread_partitions(value.spread((partitions, 1)), call)
    fitted = value.fitted((partitions, 1))
    if fitted is None:
        raise IllegalOperand(
            f"{call}: an operand is {value.describe()}; it must be a number or a tile of shape ({partitions}, 1)",
            advice="pass a column, such as t[:, 0:1]",
        )
    return fitted if dtype is None or fitted.format == dtype else cast(fitted, dtype, call)


def cut_column(value: Any, box: Box, call: str) -> Any:
    """Return the rows of a per-partition operand that a box has; a number as it is."""
    return value.resolve(call, (box[0], (0, 1))) if isinstance(value, Tensor) else value


def copied(value: Tensor, dtype: DType, boxes: list[Box] | None, call: str) -> Tensor:
    """Return a copy of boxes of a tile with another dtype, which waits for its place."""
    begin(call)
    parts = [(box, value.resolve(call, box)) for box in (boxes if boxes is not None else [whole_box(value.shape)])]

    def issue(target: Tensor) -> None:
        for box, one in parts:
            isa.tensor_copy(dst=target.resolve(call, box, WRITE), src=one)

    return result(call, value.shape, dtype, issue, boxes=boxes)


def cast(value: Tensor, dtype: DType, call: str) -> Tensor:
    """Return a copy of a tile in SBUF with another dtype, made at once."""
    run = begin(call)
    source = value.resolve(call)
    made = run.kernel.allocate(source.shape, dtype, Memory.sbuf)
    isa.tensor_copy(dst=made, src=source)
    view = view_of(Whole(made))
    return view.like(value.shape)


def moved_to_sbuf(value: Tensor, call: str) -> Tensor:
    """Return a tile, copied to SBUF if it is in PSUM."""
    return cast(value, value.format, call) if value.buffer is Memory.psum else value


def spread_partitions(value: Tensor, call: str) -> Tensor:
    """Return a tile whose partitions are real: one that is broadcast along partitions is copied.

    A float32 tile is multiplied by ones on the Tensor engine, which rounds no value ("NKI invokes such matmul under the
    hood", ``nki/guides/architecture/trainium_inferentia2_arch.rst:203`` of the AWS Neuron SDK) and leaves it in PSUM.
    *Assumed*: for other formats, a DMA reads the one partition again and again.
    """
    if value.par < 0 or value.shape[value.par] == 1 or value.buffer.is_hbm:
        return value
    along = value.root.par
    if along < 0 or value.layout.steps[along][value.par]:
        return value
    run = begin(call)
    source = value.resolve(call)
    one = tuple((0, 1) if axis == value.par else (0, extent) for axis, extent in enumerate(value.shape))
    row = value.resolve(call, one)
    if value.buffer is Memory.psum:
        kept = run.kernel.allocate(row.shape, row.dtype, Memory.sbuf)
        isa.tensor_copy(dst=kept, src=row)
        row, source = kept, view_of(Whole(kept)).spread(source.shape).resolve(call)
    if row.dtype == float32 and row.is_contiguous() and row.start_partition % _QUADRANT == 0:
        return view_of(Whole(_by_ones(run, row, source.shape[0]))).like(value.shape)
    made = run.kernel.allocate(source.shape, source.dtype, Memory.sbuf)
    isa.dma_copy(dst=made, src=source)
    return view_of(Whole(made)).like(value.shape)


def written_of(value: Tensor) -> Boxes | None:
    """Return what a mask let be written of a result that is whole and just made; None for all of it."""
    boxes = value.root.boxes if isinstance(value.root, Fresh) else None
    return None if boxes is None else Boxes(boxes)


def _by_ones(run: Run, row: NkiTensor, partitions: int) -> NkiTensor:
    """Return a float32 row on many partitions, multiplied by ones: in PSUM where it fits into one bank.

    A longer one is copied to SBUF piece by piece. Seen in scans over states, with 1024 columns in place of 512:
    Scalar of trn2 is busy for 340 us longer, as long as 896 copies of 512 columns (Jerry2423/kda-for-trainium@90770f2,
    mamba_v2_w1024), and trn1 takes 4.4 ms in place of 3.3 (AWS fused-mamba tutorial, v2 and v3 with 1024).
    """
    ones = run.ones.get(partitions)
    if ones is None:
        ones = run.ones[partitions] = run.kernel.allocate((1, partitions), float32, Memory.sbuf)
        isa.memset(dst=ones, value=1.0)
    psum = run.kernel.chip.psum
    columns, step = math.prod(row.shape[1:]), psum.bank_bytes // float32.size_bytes
    is_small = columns <= step
    made = run.kernel.allocate((partitions, *row.shape[1:]), float32, Memory.psum if is_small else Memory.sbuf)
    flat, target = row.reshape((1, columns)), made.reshape((partitions, columns))
    for first in range(0, columns, step):
        piece = slice(first, min(first + step, columns))
        product = target[:, piece] if is_small else run.kernel.allocate(target[:, piece].shape, float32, Memory.psum)
        isa.nc_matmul(dst=product, stationary=ones, moving=flat[:, piece])
        if not is_small:
            isa.tensor_copy(dst=target[:, piece], src=product)
    return made


def common_shape(call: str, *operands: Any) -> tuple[int, ...]:
    """Return the shape that tiles are broadcast to: by NumPy's rules, and columns along all free axes.

    A column has one element on each partition. Kernels that passed a course's tests on hardware add one of shape
    [128, 1] to tiles of three and four axes (part2/conv2d.py of chenhzhu/asst4-trainium2, rishic3/asst4-trainium2 and
    a-argy/asst4-trainium2). Of other operands the ranks must go together as in NumPy: nothing says what was done.

    Raises:
        IllegalOperand: shapes that do not go together.
    """
    tiles = [operand for operand in operands if isinstance(operand, Tensor)]
    wide = max(tiles, key=lambda one: one.ndim)
    shapes = [
        one.shape for one in tiles if not (one.par == wide.par == 0 and one.size == one.shape[0] == wide.shape[0])
    ]
    try:
        return tuple(np.broadcast_shapes(*shapes, wide.shape))
    except ValueError:
        raise IllegalOperand(
            f"{call}: shapes do not go together",
            numbers=tuple(one.describe() for one in tiles),
            advice="give both the same number of axes, by reshape; each must have equal extents or extent 1",
        ) from None


def in_place(call: str, mask: Any, target: Tensor) -> list[Box]:
    """Return the boxes of a target that a mask selects, with nothing waiting."""
    begin(call)
    return boxes_of(mask, target.shape, call)


def wrap(tensor: NkiTensor) -> Tensor:
    """Return a legacy view of a machine's tensor."""
    return view_of(Whole(tensor))
