"""Legacy ``nki.isa``: reductions, statistics and search.

Source: NKI 0.1 documentation of each function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neurosim import dtypes
from neurosim.dtypes import DType
from neurosim.errors import IllegalOperand
from neurosim.nki import isa
from neurosim.nki.legacy.index import Box, is_int, one_box, whole_box
from neurosim.nki.legacy.lowering import column, result, tile
from neurosim.nki.legacy.operators import operator
from neurosim.nki.legacy.promotion import chosen, result_dtype
from neurosim.nki.legacy.state import begin
from neurosim.nki.legacy.tensor import WRITE, Tensor


def rowwise(
    call: str,
    data: Tensor,
    shape: tuple[int, ...],
    dtype: DType,
    mask: Any,
    instruct: Callable[..., Any],
    others: tuple[Tensor, ...] = (),
) -> Tensor:
    """Return the result of an instruction that makes a row of each partition; a mask cuts ``data`` to a box."""
    begin(call)
    box = one_box(mask, data.shape, call)
    source = None if box is None else data.resolve(call, box)
    sides = [] if box is None else [other.resolve(call, (box[0], *whole_box(other.shape)[1:])) for other in others]

    def issue(target: Tensor) -> None:
        if box is not None:
            instruct(target.resolve(call, (box[0], *whole_box(target.shape)[1:]), WRITE), source, *sides)

    kept = [] if box is None else [(box[0], *whole_box(shape)[1:])]
    return result(call, shape, dtype, issue, boxes=kept)


def reduced_axes(axis: Any, ndim: int, call: str) -> list[int]:
    """Return the axes to reduce, counted from the front.

    Raises:
        IllegalOperand: no axis, or the partition axis.
    """
    given = axis if isinstance(axis, (list, tuple)) else (axis,)
    axes = sorted({int(entry) % ndim for entry in given if is_int(entry) and -ndim <= entry < ndim})
    if not axes or 0 in axes or len(axes) < len(given):
        raise IllegalOperand(
            f"{call}: axis={axis!r} of a tile with {ndim} axes",
            advice="free axes can be reduced; for partitions use nc_transpose or a matmul with ones",
        )
    return axes


def tensor_reduce(
    op: Any,
    data: Any,
    axis: Any,
    *,
    mask: Any = None,
    dtype: Any = None,
    negate: bool = False,
    keepdims: bool = False,
    name: str | None = None,
) -> Tensor:
    """Return ``data`` reduced along free axes; an axis of extent 1 stays where none would be left.

    The manual says the last axes only; public kernels name others, which the access pattern walks last.
    """
    call = "nisa.tensor_reduce"
    source, known = tile(data, "data", call), operator(op, call)
    axes = reduced_axes(axis, source.ndim, call)
    shape = tuple(1 if at in axes else extent for at, extent in enumerate(source.shape) if keepdims or at not in axes)
    begin(call)
    box = one_box(mask, source.shape, call)
    moved = None
    if box is not None:
        order = tuple(at for at in range(source.ndim) if at not in axes) + tuple(axes)
        moved = source.permuted(order).resolve(call, tuple(box[at] for at in order))

    kept: list[Box] = []
    if box is not None:
        limits = tuple((0, 1) if at in axes else cut for at, cut in enumerate(box) if keepdims or at not in axes)
        kept = [limits if len(limits) > 1 else (*limits, (0, 1))]

    def issue(target: Tensor) -> None:
        if moved is None:
            return
        dst = target.resolve(call, kept[0], WRITE)
        count = moved.ndim - len(axes)
        isa.tensor_reduce(dst=dst, op=known, data=moved, axis=tuple(range(count, moved.ndim)), negate=negate, name=name)

    return result(call, shape if len(shape) > 1 else (*shape, 1), result_dtype(dtype, call, source), issue, boxes=kept)


def tensor_partition_reduce(
    op: Any, data: Any, *, mask: Any = None, dtype: Any = None, name: str | None = None
) -> Tensor:
    """Return ``data`` reduced across partitions, on GpSimd: one partition."""
    call = "nisa.tensor_partition_reduce"
    source, known = tile(data, "data", call), operator(op, call)
    begin(call)
    box = one_box(mask, source.shape, call)
    moved = None if box is None else source.resolve(call, box)

    def issue(target: Tensor) -> None:
        if box is not None and moved is not None:
            isa.tensor_partition_reduce(
                dst=target.resolve(call, ((0, 1), *box[1:]), WRITE), op=known, data=moved, name=name
            )

    kept = [] if box is None else [((0, 1), *box[1:])]
    return result(call, (1, *source.shape[1:]), result_dtype(dtype, call, source), issue, boxes=kept)


def tensor_scalar_reduce(
    *,
    data: Any,
    op0: Any,
    operand0: Any,
    reduce_op: Any,
    reduce_res: Any,
    reverse0: bool = False,
    dtype: Any = None,
    mask: Any = None,
    name: str | None = None,
) -> Tensor:
    """Return ``data <op0> operand0``, and write its reduction along the free axes to ``reduce_res``."""
    call = "nisa.tensor_scalar_reduce"
    source, rows = tile(data, "data", call), data.shape[0]
    first, total = operator(op0, call), operator(reduce_op, call)
    side = column(operand0, rows, call)
    res = tile(reduce_res, "reduce_res", call).like((rows, 1))
    begin(call)
    box = one_box(mask, source.shape, call)
    if box is not None:
        rows_box = (box[0], (0, 1))
        moved = source.resolve(call, box)
        operand = side.resolve(call, rows_box) if isinstance(side, Tensor) else side

    def issue(target: Tensor) -> None:
        if box is not None:
            isa.tensor_scalar_reduce(
                dst=target.resolve(call, box, WRITE),
                data=moved,
                op0=first,
                operand0=operand,
                reduce_op=total,
                reduce_res=res.resolve(call, rows_box, WRITE),
                reverse0=reverse0,
                name=name,
            )

    kept = [] if box is None else [box]
    return result(call, source.shape, result_dtype(dtype, call, source), issue, boxes=kept)


def bn_stats(data: Any, *, mask: Any = None, dtype: Any = None, name: str | None = None) -> Tensor:
    """Return six statistics per partition: count, mean and variance · count of even and of odd elements."""
    call = "nisa.bn_stats"
    source = tile(data, "data", call)
    return rowwise(
        call,
        source,
        (source.shape[0], 6),
        result_dtype(dtype, call, source),
        mask,
        lambda dst, one: isa.bn_stats(dst=dst, data=one, name=name),
    )


def bn_aggr(data: Any, *, mask: Any = None, dtype: Any = None, name: str | None = None) -> Tensor:
    """Return mean and variance per partition from the statistics of ``bn_stats``."""
    call = "nisa.bn_aggr"
    source = tile(data, "data", call)
    return rowwise(
        call,
        source,
        (source.shape[0], 2),
        result_dtype(dtype, call, source),
        mask,
        lambda dst, one: isa.bn_aggr(dst=dst, data=one, name=name),
    )


def max8(*, src: Any, mask: Any = None, dtype: Any = None, name: str | None = None) -> Tensor:
    """Return the eight largest elements of each partition, in descending order."""
    call = "nisa.max8"
    source = tile(src, "src", call)
    return rowwise(
        call,
        source,
        (source.shape[0], 8),
        result_dtype(dtype, call, source),
        mask,
        lambda dst, one: isa.max8(dst=dst, src=one, name=name),
    )


def nc_find_index8(*, data: Any, vals: Any, mask: Any = None, dtype: Any = None, name: str | None = None) -> Tensor:
    """Return where each of eight values first occurs in its partition, as uint32 unless ``dtype`` says uint16."""
    call = "nisa.nc_find_index8"
    source, wanted = tile(data, "data", call), tile(vals, "vals", call)
    known = dtypes.uint32 if dtype is None else chosen(dtype, call)
    return rowwise(
        call,
        source,
        (source.shape[0], 8),
        known,
        mask,
        lambda dst, one, two: isa.nc_find_index8(dst=dst, data=one, vals=two, name=name),
        (wanted,),
    )


def nc_match_replace8(
    *,
    data: Any,
    vals: Any,
    imm: float,
    dst_idx: Any = None,
    mask: Any = None,
    dtype: Any = None,
    name: str | None = None,
) -> Tensor:
    """Return ``data`` with the first occurrence of each of eight values replaced, and their places in ``dst_idx``."""
    call = "nisa.nc_match_replace8"
    source, wanted = tile(data, "data", call), tile(vals, "vals", call)
    if dst_idx is not None:
        tile(dst_idx, "dst_idx", call)
    begin(call)
    box = one_box(mask, source.shape, call)
    if box is not None:
        moved = source.resolve(call, box)
        values = wanted.resolve(call, (box[0], *whole_box(wanted.shape)[1:]))

    def issue(target: Tensor) -> None:
        if box is not None:
            places = None
            if dst_idx is not None:
                places = dst_idx.resolve(call, (box[0], *whole_box(dst_idx.shape)[1:]), WRITE)
            isa.nc_match_replace8(
                dst=target.resolve(call, box, WRITE), data=moved, vals=values, imm=imm, dst_idx=places, name=name
            )

    kept = [] if box is None else [box]
    return result(call, source.shape, result_dtype(dtype, call, source), issue, boxes=kept)
