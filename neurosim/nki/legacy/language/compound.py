"""Legacy ``nki.language``: reductions, matmul, transpose, softmax and the like, made of several instructions.

Source: NKI 0.1 documentation of each function.
"""

from __future__ import annotations

import math
from typing import Any

from neurosim import dtypes
from neurosim.datapath.operators import Operator
from neurosim.datapath.rules import is_number
from neurosim.engines import Memory
from neurosim.errors import IllegalOperand
from neurosim.nki import isa as machine
from neurosim.nki.legacy import isa
from neurosim.nki.legacy.index import boxes_of
from neurosim.nki.legacy.isa._reduce import reduced_axes
from neurosim.nki.legacy.language.elementwise import FUNCTIONS, binary
from neurosim.nki.legacy.language.memory import copy
from neurosim.nki.legacy.lowering import cast, common_shape, lanewise, number, result, tile, written_of
from neurosim.nki.legacy.promotion import chosen, promoted, result_dtype
from neurosim.nki.legacy.state import begin
from neurosim.nki.legacy.tensor import ACCUMULATE, WRITE, Tensor


def reduction(name: str, call: str, x: Any, axis: Any, dtype: Any, mask: Any, keepdims: bool) -> Tensor:
    """Return a tile reduced along its last free axes."""
    source = tile(x, "x", call)
    return isa.tensor_reduce(Operator(name), source, axis, dtype=dtype, mask=mask, keepdims=keepdims)


def sum(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False) -> Tensor:
    """Return the sum along free axes, in float32 and in ascending order."""
    return reduction("add", "nl.sum", x, axis, dtype, mask, keepdims)


def prod(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False) -> Tensor:
    """Return the product along free axes."""
    return reduction("multiply", "nl.prod", x, axis, dtype, mask, keepdims)


def max(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False) -> Tensor:
    """Return the largest element along free axes."""
    return reduction("maximum", "nl.max", x, axis, dtype, mask, keepdims)


def min(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False) -> Tensor:
    """Return the smallest element along free axes."""
    return reduction("minimum", "nl.min", x, axis, dtype, mask, keepdims)


def all(x: Any, axis: Any, *, dtype: Any = bool, mask: Any = None) -> Tensor:
    """Return whether all elements along free axes are not zero."""
    call = "nl.all"
    truth = FUNCTIONS["not_equal"](tile(x, "x", call), 0, dtype=dtypes.float32, mask=mask)
    return isa.tensor_reduce(Operator("minimum"), truth, axis, dtype=chosen(dtype, call), mask=mask)


def _count(source: Tensor, axis: Any, mask: Any, call: str) -> int:
    """Return how many elements are reduced to one."""
    axes = reduced_axes(axis, source.ndim, call)
    boxes = boxes_of(mask, source.shape, call)
    if len(boxes) != 1:
        raise IllegalOperand(
            f"{call}: the mask selects nothing, or no box",
            advice="mask with comparisons of index tensors that leave one box of elements",
        )
    return math.prod(boxes[0][at][1] - boxes[0][at][0] for at in axes)


def mean(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False) -> Tensor:
    """Return the mean along free axes: a sum, multiplied by the reciprocal of the count (*assumed*)."""
    call = "nl.mean"
    source = tile(x, "x", call)
    count = _count(source, axis, mask, call)
    known = result_dtype(dtype, call, source)
    if dtype is None and not known.is_float:
        known = dtypes.float32
    total = reduction("add", call, source, axis, dtypes.float32, mask, keepdims)
    return binary(Operator("multiply"), total, 1.0 / count, known, written_of(total))


def _rows(mask: Any, source: Tensor, call: str) -> Any:
    """Return a mask of the partitions that a mask of a tile selects."""
    if mask is None:
        return None
    from neurosim.nki.legacy.index import arange

    boxes = boxes_of(mask, source.shape, call)
    low, high = boxes[0][0] if boxes else (0, 0)
    index = arange(source.shape[0])[:, None]
    return (index >= low) & (index < high)


def var(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Return the variance along free axes: the mean of the squared differences from the mean."""
    call = "nl.var"
    source = tile(x, "x", call)
    axes = reduced_axes(axis, source.ndim, call)
    middle = mean(source, axis, dtype=dtypes.float32, mask=mask, keepdims=True)
    difference = binary(Operator("subtract"), source, middle, dtypes.float32, mask)
    squares = binary(Operator("multiply"), difference, difference, dtypes.float32, mask)
    return mean(squares, axes, dtype=result_dtype(dtype, call, source), mask=mask)


def matmul(x: Any, y: Any, *, transpose_x: bool = False, mask: Any = None) -> Tensor:
    """Return ``x @ y`` in PSUM, or ``x.T @ y``; without ``transpose_x`` the tensor engine transposes ``x`` first."""
    call = "nl.matmul"
    left, right = tile(x, "x", call), tile(y, "y", call)
    if not transpose_x:
        turned = isa.nc_transpose(left)
        left = copy(turned)
        left.resolve(call, use="")
    return isa.nc_matmul(left, right, mask=mask)


def transpose(x: Any, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Return the transpose of a tile in SBUF, by the tensor engine and a copy."""
    call = "nl.transpose"
    turned = isa.nc_transpose(tile(x, "x", call), mask=mask)
    return copy(turned, dtype=dtype, mask=written_of(turned))


def where(condition: Any, x: Any, y: Any, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Return ``x`` where ``condition`` is not zero, else ``y``: a copy of ``y``, and a predicated copy of ``x``."""
    call = "nl.where"
    chooser = tile(condition, "condition", call)
    shape = common_shape(call, chooser, x, y)
    known = result_dtype(dtype, call, *(value for value in (x, y)))
    if chooser.format not in (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.bool_):
        chooser = FUNCTIONS["not_equal"](chooser, 0, dtype=dtypes.uint8, mask=mask)
        chooser.resolve(call, use="")
    sides = [_side(value, known, call) for value in (x, y)]
    begin(call)
    boxes = boxes_of(mask, shape, call)
    parts = []
    for box in boxes:
        one, other = (_cut(side, shape, box, call) for side in sides)
        chosen_by = _cut(chooser, shape, box, call)
        parts.append((box, one, other, chosen_by.view(dtypes.uint8) if chooser.format == dtypes.bool_ else chosen_by))

    def issue(target: Tensor) -> None:
        for box, one, other, predicate in parts:
            dst = target.resolve(call, box, WRITE)
            if is_number(other):
                machine.memset(dst=dst, value=other if known.is_float else int(other))
            else:
                machine.tensor_copy(dst=dst, src=other)
            target.resolve(call, box, ACCUMULATE)
            machine.tensor_copy_predicated(dst=dst, src=one, predicate=predicate)

    return result(call, shape, known, issue, boxes=boxes, exact=True)


def _side(value: Any, dtype: Any, call: str) -> Any:
    if not isinstance(value, Tensor):
        return number(value, "x", call)
    source = tile(value, "x", call)
    return source if source.format == dtype else cast(source, dtype, call)


def _cut(value: Any, shape: tuple[int, ...], box: Any, call: str) -> Any:
    from neurosim.nki.legacy.lowering import spread_partitions

    if not isinstance(value, Tensor):
        return value
    return spread_partitions(value.spread(shape), call).resolve(call, box)


def softmax(x: Any, axis: Any, *, dtype: Any = None, compute_dtype: Any = None, mask: Any = None) -> Tensor:
    """Return the softmax along free axes: exp(x - max), multiplied by the reciprocal of its sum."""
    call = "nl.softmax"
    source = tile(x, "x", call)
    inner = dtypes.float32 if compute_dtype is None else chosen(compute_dtype, call)
    known = result_dtype(dtype, call, source)
    rows = _rows(mask, source, call)
    top = isa.tensor_reduce(Operator("maximum"), source, axis, mask=mask, dtype=inner, negate=True, keepdims=True)
    total = isa.memset((source.shape[0], 1), 0.0, dtypes.float32)
    if len(reduced_axes(axis, source.ndim, call)) == source.ndim - 1:
        powers = isa.activation(
            FUNCTIONS["exp"],
            source,
            bias=top,
            reduce_op=Operator("add"),
            reduce_res=total,
            reduce_cmd=isa.reduce_cmd.reset_reduce,
            mask=mask,
            dtype=inner,
        )
    else:
        difference = binary(Operator("add"), source, top, inner, mask)
        powers = FUNCTIONS["exp"](difference, mask=mask)
        total = isa.tensor_reduce(Operator("add"), powers, axis, mask=mask, dtype=dtypes.float32, keepdims=True)
    share = FUNCTIONS["reciprocal"](total, mask=rows if total.size == source.shape[0] else None)
    return binary(Operator("multiply"), powers, share, known, mask)


def rms_norm(
    x: Any,
    w: Any,
    axis: Any,
    n: int,
    epsilon: float = 1e-6,
    *,
    dtype: Any = None,
    compute_dtype: Any = None,
    mask: Any = None,
) -> Tensor:
    """Return ``x / sqrt(mean(x²) + epsilon) · w``, where the mean is a sum divided by ``n``."""
    call = "nl.rms_norm"
    source, weight = tile(x, "x", call), tile(w, "w", call)
    if not number(n, "n", call):
        raise IllegalOperand(
            f"{call}: n is {n!r}; it is how many elements the mean is of",
            advice="pass a number, as a rule the length of the row",
        )
    inner = dtypes.float32 if compute_dtype is None else chosen(compute_dtype, call)
    rows = _rows(mask, source, call)
    squares = FUNCTIONS["square"](source, dtype=inner, mask=mask)
    total = isa.tensor_reduce(Operator("add"), squares, axis, mask=mask, dtype=dtypes.float32, keepdims=True)
    average = isa.tensor_scalar(
        total, Operator("multiply"), 1.0 / n, op1=Operator("add"), operand1=float(epsilon), mask=rows
    )
    scale = FUNCTIONS["rsqrt"](average, mask=rows)
    scaled = binary(Operator("multiply"), source, scale, inner, mask)
    return binary(Operator("multiply"), scaled, weight, result_dtype(dtype, call, source), mask)


def gather_flattened(data: Any, indices: Any, *, mask: Any = None, dtype: Any = None) -> Tensor:
    """Return ``data`` at indices (uint32) into each partition's flattened free axes."""
    call = "nl.gather_flattened"
    source, places = tile(data, "data", call), tile(indices, "indices", call)
    return (
        lanewise(
            call,
            places.shape,
            source.format,
            mask,
            (places,),
            lambda dst, index: machine.nc_n_gather(dst=dst, data=source.resolve(call), indices=index),
            buffers=(Memory.sbuf,),
            exact=True,
        )
        if promoted(source) == result_dtype(dtype, call, source)
        else cast(gather_flattened(data, indices, mask=mask), chosen(dtype, call), call)
    )
