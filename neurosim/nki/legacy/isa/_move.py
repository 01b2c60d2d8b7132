"""Legacy ``nki.isa``: moving data, and choosing elements.

Source: NKI 0.1 documentation of each function.
"""

from __future__ import annotations

import math
from typing import Any

from neurosim import dtypes
from neurosim.datapath.modes import DgeMode, OobMode, ReduceCmd
from neurosim.datapath.operators import Operator
from neurosim.engines import Engine, Memory
from neurosim.errors import IllegalOperand, Unsupported
from neurosim.nki import isa
from neurosim.nki.legacy.index import (
    Affine,
    Box,
    Predicate,
    box_shape,
    boxes_of,
    broadcast,
    is_int,
    one_box,
    whole_box,
)
from neurosim.nki.legacy.lowering import (
    column,
    copied,
    cut_column,
    fitted,
    in_place,
    moved_to_sbuf,
    number,
    result,
    tile,
)
from neurosim.nki.legacy.operators import operator
from neurosim.nki.legacy.promotion import chosen, result_dtype
from neurosim.nki.legacy.state import begin
from neurosim.nki.legacy.tensor import ACCUMULATE, WRITE, Tensor

_PERMUTATIONS = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


def dma_copy(
    *,
    dst: Any,
    src: Any,
    mask: Any = None,
    dst_rmw_op: Any = None,
    oob_mode: OobMode = OobMode.error,
    dge_mode: DgeMode = DgeMode.unknown,
    name: str | None = None,
) -> None:
    """Copy between HBM and SBUF with the DMA engines; ``dst_rmw_op=np.add`` adds to what the destination holds."""
    call = "nisa.dma_copy"
    for operand, value in (("dst", dst), ("src", src)):
        if not isinstance(value, Tensor):
            raise IllegalOperand(
                f"{call}: {operand} is {value!r}; it must be a tensor", advice="pass a tensor of the kernel"
            )
    if dst_rmw_op is not None:
        if mask is not None or operator(dst_rmw_op, call).name != "add":
            raise Unsupported(f"{call}: dst_rmw_op={dst_rmw_op!r} with mask={mask!r}", advice="only np.add is known")
        add_into(dst, src, call, name)
        return
    moved = src.like(dst.shape)
    if moved.shape != dst.shape and mask is None:
        begin(call)
        source = moved.resolve(call)
        isa.dma_copy(dst=dst.resolve(call, use=WRITE), src=source, oob_mode=oob_mode, dge_mode=dge_mode, name=name)
        return
    for box in in_place(call, mask, dst):
        source = moved.resolve(call, box)
        isa.dma_copy(dst=dst.resolve(call, box, WRITE), src=source, oob_mode=oob_mode, dge_mode=dge_mode, name=name)


def add_into(dst: Tensor, src: Tensor, call: str, name: str | None) -> None:
    """Add a tensor to what a destination holds, with the DMA engines; each row has an index of its own."""
    begin(call)
    source = src.like(dst.shape).resolve(call)
    target = dst.resolve(call, use=ACCUMULATE)
    isa.dma_compute(dst=target, srcs=[source, target], reduce_op=Operator("add"), name=name)


def dma_transpose(
    src: Any,
    *,
    axes: Any = None,
    mask: Any = None,
    dtype: Any = None,
    dge_mode: DgeMode = DgeMode.unknown,
    name: str | None = None,
) -> Tensor:
    """Return the transpose of a tensor in HBM or SBUF, moved by the DMA engines."""
    call = "nisa.dma_transpose"
    if not isinstance(src, Tensor):
        raise IllegalOperand(f"{call}: src is {src!r}; it must be a tensor", advice="pass a tensor of the kernel")
    order = _PERMUTATIONS.get(src.ndim)
    if order is None:
        raise IllegalOperand(f"{call}: src has {src.ndim} axes", advice="give 2, 3 or 4")
    if axes is not None and (not isinstance(axes, (list, tuple)) or tuple(axes) != order):
        raise IllegalOperand(f"{call}: axes={axes!r} of a tensor with {src.ndim} axes", advice=f"axes are {order}")
    begin(call)
    boxes = boxes_of(mask, src.shape, call)
    turned = [tuple(box[axis] for axis in order) for box in boxes]
    parts = [(cut, src.resolve(call, box)) for cut, box in zip(turned, boxes, strict=True)]

    def issue(target: Tensor) -> None:
        for cut, source in parts:
            isa.dma_transpose(dst=target.resolve(call, cut, WRITE), src=source, axes=axes, dge_mode=dge_mode, name=name)

    made = result(
        call,
        tuple(src.shape[axis] for axis in order),
        src.format,
        issue,
        boxes=turned,
        buffers=(Memory.sbuf,),
        exact=True,
    )
    known = result_dtype(dtype, call, src)
    return made if known == src.format else copied(made, known, turned, call)


def tensor_copy_predicated(
    *,
    src: Any,
    dst: Any,
    predicate: Any,
    reverse_pred: bool = False,
    mask: Any = None,
    dtype: Any = None,
    name: str | None = None,
) -> None:
    """Write ``src`` to ``dst`` where ``predicate`` (uint8, uint16 or uint32) is not zero."""
    call = "nisa.tensor_copy_predicated"
    target, chooser = tile(dst, "dst", call), tile(predicate, "predicate", call)
    if dtype is not None and chosen(dtype, call) != target.format:
        raise IllegalOperand(
            f"{call}: dtype {dtype!r}, and dst is {target.format}", advice="leave dtype out: dst has it"
        )
    for box in in_place(call, mask, target):
        source = _value(src, target.shape, box, call)
        where = chooser.like(target.shape).resolve(call, box)
        if where.dtype == dtypes.bool_:
            where = where.view(dtypes.uint8)
        isa.tensor_copy_predicated(
            dst=target.resolve(call, box, ACCUMULATE), src=source, predicate=where, reverse_pred=reverse_pred, name=name
        )


def _value(value: Any, shape: tuple[int, ...], box: Box, call: str) -> Any:
    if not isinstance(value, Tensor):
        return number(value, "src", call)
    return value.spread(shape).resolve(call, box)


def tensor_copy_dynamic_src(
    src: Any, *, mask: Any = None, dtype: Any = None, engine: Engine = Engine.unknown, name: str | None = None
) -> Tensor:
    """Return a copy of a tile that begins where an element of another tile says.

    *Assumed*: a DMA moves it, since no engine's own dynamic access is built.
    """
    call = "nisa.tensor_copy_dynamic_src"
    source = tile(src, "src", call)
    begin(call)
    boxes = boxes_of(mask, source.shape, call)
    parts = [(box, source.resolve(call, box)) for box in boxes]

    def issue(target: Tensor) -> None:
        for box, moved in parts:
            isa.dma_copy(dst=target.resolve(call, box, WRITE), src=moved, name=name)

    known = result_dtype(dtype, call, source)
    return result(call, source.shape, known, issue, boxes=boxes, buffers=(Memory.sbuf,))


def tensor_copy_dynamic_dst(
    *, dst: Any, src: Any, mask: Any = None, dtype: Any = None, engine: Engine = Engine.unknown, name: str | None = None
) -> None:
    """Copy a tile to a place within another tile that an element of a third tile says; moved by a DMA (*assumed*)."""
    call = "nisa.tensor_copy_dynamic_dst"
    target, source = tile(dst, "dst", call), tile(src, "src", call)
    if dtype is not None and chosen(dtype, call) != target.format:
        raise IllegalOperand(
            f"{call}: dtype {dtype!r}, and dst is {target.format}", advice="leave dtype out: dst has it"
        )
    source = fitted(source, "src", target.shape, call)
    for box in in_place(call, mask, target):
        moved = source.resolve(call, box)
        isa.dma_copy(dst=target.resolve(call, box, WRITE), src=moved, name=name)


def nc_stream_shuffle(
    src: Any, dst: Any, shuffle_mask: Any, *, dtype: Any = None, mask: Any = None, name: str | None = None
) -> None:
    """Move partitions within quadrants of 32: partition i of ``dst`` takes partition ``shuffle_mask[i]`` of ``src``.

    A mask says what of ``dst`` is written.
    """
    call = "nisa.nc_stream_shuffle"
    target, source = tile(dst, "dst", call), tile(src, "src", call)
    if dtype is not None and chosen(dtype, call) != target.format:
        raise IllegalOperand(
            f"{call}: dtype {dtype!r}, and dst is {target.format}", advice="leave dtype out: dst has it"
        )
    indices = shuffle_mask
    if isinstance(indices, (list, tuple)):
        indices = [int(entry) if is_int(entry) else entry for entry in indices]
    for box in in_place(call, mask, target):
        cut = ((0, source.shape[0]), *box[1:]) if source.shape[1:] == target.shape[1:] else whole_box(source.shape)
        if box[0][0] % 32 or (cut[1:] != box[1:] and box != whole_box(target.shape)):
            raise Unsupported(
                f"{call}: a mask that begins at partition {box[0][0]}, or of tiles with different free axes",
                advice="slice dst and src",
            )
        quadrants = (box[0][0] if source.shape == target.shape else 0, source.shape[0])
        moved = source.resolve(call, (quadrants, *cut[1:]))
        isa.nc_stream_shuffle(dst=target.resolve(call, box, ACCUMULATE), src=moved, shuffle_mask=indices, name=name)


def local_gather(
    src_buffer: Any,
    index: Any,
    num_elem_per_idx: int = 1,
    num_valid_indices: Any = None,
    *,
    mask: Any = None,
    name: str | None = None,
) -> Tensor:
    """Return elements of ``src_buffer`` at indices that each 16 partitions share.

    A mask takes the first partitions, by 16, and the first indices.
    """
    call = "nisa.local_gather"
    source, places = tile(src_buffer, "src_buffer", call), tile(index, "index", call)
    count = num_valid_indices if num_valid_indices is not None else 16 * (places.size // places.shape[0])
    shape = (source.shape[0], int(count)) if num_elem_per_idx == 1 else (source.shape[0], int(count), num_elem_per_idx)
    begin(call)
    boxes = boxes_of(mask, shape, call)
    if boxes and (len(boxes) > 1 or any(low for low, _ in boxes[0]) or boxes[0][2:] != whole_box(shape)[2:]):
        raise Unsupported(
            f"{call}: a mask that does not take the first partitions and the first indices",
            advice="mask from the first partition and index on, in several calls if need be",
        )
    parts = []
    for box in boxes:
        rows = [one.resolve(call, (box[0], *whole_box(one.shape)[1:])) for one in (source, places)]
        parts.append((box, rows, num_valid_indices if box[1][1] == count else box[1][1]))

    def issue(target: Tensor) -> None:
        for box, (data, indices), valid in parts:
            isa.local_gather(
                dst=target.resolve(call, box, WRITE),
                src_buffer=data,
                index=indices,
                num_elem_per_idx=num_elem_per_idx,
                num_valid_indices=valid,
                name=name,
            )

    return result(call, shape, source.format, issue, boxes=boxes, buffers=(Memory.sbuf,), exact=True)


def iota(expr: Any, dtype: Any, *, mask: Any = None, name: str | None = None) -> Tensor:
    """Return a tile of the values of an index expression."""
    call = "nisa.iota"
    known = chosen(dtype, call)
    if not isinstance(expr, Affine):
        raise IllegalOperand(
            f"{call}: {expr!r} is no expression of nl.arange",
            advice="pass sums and products of nl.arange and ints, such as nl.arange(128)[:, None] * 2 + 1",
        )
    whole = expr.aligned(max(2, expr.ndim))
    begin(call)
    boxes = boxes_of(mask, whole.shape, call)

    def issue(target: Tensor) -> None:
        for box in boxes:
            pattern, offset = _walk(whole, box)
            isa.iota(
                dst=target.resolve(call, box, WRITE),
                pattern=pattern,
                offset=offset,
                channel_multiplier=whole.steps[0],
                name=name,
            )

    return result(call, whole.shape, known, issue, boxes=boxes, buffers=(Memory.sbuf,), exact=True)


def _walk(whole: Affine, box: Box) -> tuple[list[list[int]], int]:
    """Return the free axes as [step, count] pairs, and the value at the beginning of a box."""
    extents = box_shape(box)
    pattern = [[step, extent] for step, extent in zip(whole.steps[1:], extents[1:], strict=True)]
    return pattern, whole.offset + sum(low * step for (low, _), step in zip(box, whole.steps, strict=True))


def affine_select(
    pred: Any, on_true_tile: Any, on_false_value: Any, *, mask: Any = None, dtype: Any = None, name: str | None = None
) -> Tensor:
    """Return ``on_true_tile`` where one comparison of index expressions holds, elsewhere a number."""
    call = "nisa.affine_select"
    source = moved_to_sbuf(tile(on_true_tile, "on_true_tile", call), call)  # GpSimd does not reach PSUM
    if isinstance(pred, Affine):
        pred = Predicate(((pred, "greater"),))
    if not isinstance(pred, Predicate) or len(pred.terms) != 1:
        raise IllegalOperand(
            f"{call}: pred is {pred!r}; it must be one comparison of nl.arange expressions", advice="else use nl.where"
        )
    ((term, comparison),) = pred.terms
    placed = term.aligned(max(source.ndim, term.ndim))
    if broadcast(placed.shape, source.shape) != source.shape:
        raise IllegalOperand(
            f"{call}: pred has the shape {list(term.shape)}, and on_true_tile {list(source.shape)}",
            advice="make pred of the index tensors that index on_true_tile",
        )
    whole = Affine(source.shape, placed.steps, placed.offset)
    otherwise = number(on_false_value, "on_false_value", call)
    begin(call)
    boxes = boxes_of(mask, source.shape, call)
    moved = [source.resolve(call, box) for box in boxes]

    def issue(target: Tensor) -> None:
        for box, one in zip(boxes, moved, strict=True):
            pattern, offset = _walk(whole, box)
            isa.affine_select(
                dst=target.resolve(call, box, WRITE),
                pattern=pattern,
                channel_multiplier=whole.steps[0],
                on_true_tile=one,
                on_false_value=otherwise,
                cmp_op=Operator(comparison),
                offset=offset,
                name=name,
            )

    return result(call, source.shape, result_dtype(dtype, call, source), issue, buffers=(Memory.sbuf,), boxes=boxes)


def sequence_bounds(*, segment_ids: Any, dtype: Any = None, name: str | None = None) -> Tensor:
    """Return, per element of one partition, where its segment begins and ends: [1, 2, elements]."""
    call = "nisa.sequence_bounds"
    source = tile(segment_ids, "segment_ids", call)
    begin(call)
    moved = source.resolve(call)

    def issue(target: Tensor) -> None:
        isa.sequence_bounds(dst=target.resolve(call, use=WRITE), segment_ids=moved, name=name)

    shape = (source.shape[0], 2, source.size // source.shape[0])
    return result(call, shape, result_dtype(dtype, call, source), issue, boxes=None)


def tensor_scalar_cumulative(
    *,
    src: Any,
    dst: Any,
    op0: Any,
    op1: Any,
    imm0: Any,
    imm1: Any = None,
    reduce_cmd: ReduceCmd = ReduceCmd.reset_reduce,
    mask: Any = None,
    name: str | None = None,
) -> None:
    """Write the running ``op1`` of ``src <op0> imm0`` along the free axes to ``dst``; a mask cuts both to a box."""
    call = "nisa.tensor_scalar_cumulative"
    target, source = tile(dst, "dst", call), tile(src, "src", call)
    rows = source.shape[0]
    sides = [column(side, rows, call) for side in (imm0, imm1)]
    source = fitted(source, "src", target.shape, call)
    begin(call)
    box = one_box(mask, target.shape, call)
    if box is None:
        return
    moved = source.resolve(call, box)
    first, second = (cut_column(side, box, call) for side in sides)
    isa.tensor_scalar_cumulative(
        dst=target.resolve(call, box, WRITE),
        src=moved,
        op0=operator(op0, call),
        op1=operator(op1, call),
        imm0=first,
        imm1=second,
        reduce_cmd=reduce_cmd,
        name=name,
    )


def range_select(
    *,
    on_true_tile: Any,
    comp_op0: Any,
    comp_op1: Any,
    bound0: Any,
    bound1: Any,
    reduce_cmd: ReduceCmd = ReduceCmd.idle,
    reduce_res: Any = None,
    reduce_op: Any = "max",
    range_start: int = 0,
    on_false_value: Any = None,
    mask: Any = None,
    dtype: Any = None,
    name: str | None = None,
) -> Tensor:
    """Return ``on_true_tile`` where its index compares with two bounds per partition, elsewhere the lowest float32."""
    call = "nisa.range_select"
    source = tile(on_true_tile, "on_true_tile", call)
    rows = source.shape[0]
    bounds = [column(tile(bound, "bound", call), rows, call, dtype=None) for bound in (bound0, bound1)]
    if not is_int(range_start):
        raise IllegalOperand(f"{call}: range_start is {range_start!r}", advice="pass the first position as an int")
    res = None if reduce_res is None else (tile(reduce_res, "reduce_res", call).like((rows, 1)))
    options: dict[str, Any] = {"name": name}
    if on_false_value is not None:
        options["on_false_value"] = number(on_false_value, "on_false_value", call)
    begin(call)
    box = one_box(mask, source.shape, call)
    if box is not None and box[2:] != whole_box(source.shape)[2:]:
        raise Unsupported(
            f"{call}: a mask on axis 2 or later, where indices are not consecutive",
            advice="mask partitions and axis 1 only, in several calls if need be",
        )
    cut = whole_box(source.shape) if box is None else box
    start = int(range_start) + cut[1][0] * math.prod(source.shape[2:])
    moved, low, high = (
        one.resolve(call, (cut[0], *one_cut))
        for one, one_cut in ((source, cut[1:]), *((bound, ((0, 1),)) for bound in bounds))
    )

    def issue(target: Tensor) -> None:
        if box is None:
            return
        isa.range_select(
            dst=target.resolve(call, cut, WRITE),
            on_true_tile=moved,
            comp_op0=operator(comp_op0, call),
            comp_op1=operator(comp_op1, call),
            bound0=low,
            bound1=high,
            reduce_cmd=reduce_cmd,
            reduce_res=None if res is None else res.resolve(call, (cut[0], (0, 1)), WRITE),
            reduce_op=operator(reduce_op, call),
            range_start=start,
            **options,
        )

    known = result_dtype(dtype, call, source)
    return result(call, source.shape, known, issue, boxes=[] if box is None else [box])


def select_reduce(
    *,
    dst: Any,
    predicate: Any,
    on_true: Any,
    on_false: Any,
    reduce_res: Any = None,
    reduce_cmd: ReduceCmd = ReduceCmd.idle,
    reduce_op: Any = "max",
    reverse_pred: bool = False,
    mask: Any = None,
    dtype: Any = None,
    name: str | None = None,
) -> None:
    """Write ``on_true`` or ``on_false`` to ``dst`` by a predicate tile, optionally with the maximum per partition."""
    call = "nisa.select_reduce"
    target, source, chooser = tile(dst, "dst", call), tile(on_true, "on_true", call), tile(predicate, "predicate", call)
    if dtype is not None and chosen(dtype, call) != target.format:
        raise IllegalOperand(
            f"{call}: dtype {dtype!r}, and dst is {target.format}", advice="leave dtype out: dst has it"
        )
    rows = target.shape[0]
    other = column(on_false, rows, call, dtype=None)
    res = None if reduce_res is None else tile(reduce_res, "reduce_res", call).like((rows, 1))
    source = fitted(source, "on_true", target.shape, call)
    chooser = fitted(chooser, "predicate", target.shape, call)
    boxes = in_place(call, mask, target)
    if len(boxes) > 1 and (res is not None or reduce_cmd is not ReduceCmd.idle):
        raise IllegalOperand(f"{call}: a mask that is no box, with a reduction", advice="mask one axis at a time")
    for box in boxes:
        one, where = source.resolve(call, box), chooser.resolve(call, box)
        if where.dtype == dtypes.bool_:
            where = where.view(dtypes.uint8)  # bool is stored as uint8
        side = cut_column(other, box, call) if isinstance(other, Tensor) else number(other, "on_false", call)
        isa.select_reduce(
            dst=target.resolve(call, box, WRITE),
            predicate=where,
            on_true=one,
            on_false=side,
            reduce_res=None if res is None else res.resolve(call, (box[0], (0, 1)), WRITE),
            reduce_cmd=reduce_cmd,
            reduce_op=operator(reduce_op, call),
            reverse_pred=reverse_pred,
            name=name,
        )
