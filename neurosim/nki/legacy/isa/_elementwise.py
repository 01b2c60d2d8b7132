"""Legacy ``nki.isa``: instructions that work element by element. Each returns its result.

Source: NKI 0.1 documentation of each function: ``dtype`` defaults to the input's, of two inputs to the promoted one.
"""

from __future__ import annotations

from typing import Any

from neurosim.datapath.modes import ReduceCmd
from neurosim.engines import Engine, Memory
from neurosim.errors import IllegalOperand
from neurosim.nki import isa
from neurosim.nki.legacy.index import boxes_of, extents_of
from neurosim.nki.legacy.lowering import column, common_shape, lanewise, moved_to_sbuf, number, result, tile
from neurosim.nki.legacy.operators import operator, optional_operator
from neurosim.nki.legacy.promotion import chosen, result_dtype
from neurosim.nki.legacy.roots import fill_value
from neurosim.nki.legacy.state import begin
from neurosim.nki.legacy.tensor import WRITE, Tensor
from neurosim.numerics.alu import ALU


def tensor_tensor(
    data1: Any,
    data2: Any,
    op: Any,
    *,
    dtype: Any = None,
    mask: Any = None,
    engine: Engine = Engine.unknown,
    name: str | None = None,
) -> Tensor:
    """Return ``data1 <op> data2``, element by element, broadcast to one shape."""
    call = "nisa.tensor_tensor"
    left, right, known = tile(data1, "data1", call), tile(data2, "data2", call), operator(op, call)
    if left.buffer is right.buffer is Memory.psum:
        right = moved_to_sbuf(right, call)  # the compiler inserted that copy
    if left.size == right.size and left.shape != right.shape:
        right = right.reshape(left.shape)
    return lanewise(
        call,
        common_shape(call, left, right),
        result_dtype(dtype, call, left, right),
        mask,
        (left, right),
        lambda dst, one, other: isa.tensor_tensor(dst=dst, data1=one, data2=other, op=known, engine=engine, name=name),
    )


def tensor_scalar(
    data: Any,
    op0: Any,
    operand0: Any,
    reverse0: bool = False,
    op1: Any = None,
    operand1: Any = None,
    reverse1: bool = False,
    *,
    dtype: Any = None,
    mask: Any = None,
    engine: Engine = Engine.unknown,
    name: str | None = None,
) -> Tensor:
    """Return ``(data <op0> operand0) <op1> operand1``; operands are numbers or [P, 1] tiles.

    Tiles of another dtype than float32 are cast first, as the compiler did (*assumed*).
    """
    call = "nisa.tensor_scalar"
    source, first, second = tile(data, "data", call), operator(op0, call), optional_operator(op1, call)
    bits = first.name in ALU and ALU[first.name].kind == "bitvec"
    wanted = source.format if bits else None
    sides = [
        column(operand, source.shape[0], call, dtype=wanted) if bits else column(operand, source.shape[0], call)
        for operand in (operand0, operand1)
    ]
    sides = [_number(side, bits) for side in sides]

    def instruct(dst: Any, one: Any) -> None:
        isa.tensor_scalar(
            dst=dst,
            data=one[0],
            op0=first,
            operand0=one[1],
            reverse0=reverse0,
            op1=second,
            operand1=one[2],
            reverse1=reverse1,
            engine=engine,
            name=name,
        )

    return lanewise(
        call,
        source.shape,
        result_dtype(dtype, call, source),
        mask,
        (source,),
        lambda dst, one, *rest: instruct(dst, (one, *_ordered(sides, rest))),
        columns=[side for side in sides if isinstance(side, Tensor)],
    )


def _ordered(sides: list[Any], tiles: tuple[Any, ...]) -> list[Any]:
    """Return the operands with the machine's tiles in place of the legacy ones."""
    waiting = list(tiles)
    return [waiting.pop(0) if isinstance(side, Tensor) else side for side in sides]


def _number(value: Any, bits: bool) -> Any:
    if value is None or isinstance(value, Tensor):
        return value
    return int(value) if bits and float(value).is_integer() else float(value)


def scalar_tensor_tensor(
    *,
    data: Any,
    op0: Any,
    operand0: Any,
    op1: Any,
    operand1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    dtype: Any = None,
    mask: Any = None,
    name: str | None = None,
) -> Tensor:
    """Return ``(data <op0> operand0) <op1> operand1``: first a number or [P, 1] tile, then a tile of data's shape."""
    call = "nisa.scalar_tensor_tensor"
    source, other = tile(data, "data", call), tile(operand1, "operand1", call)
    first, second = operator(op0, call), operator(op1, call)
    if source.buffer is other.buffer is Memory.psum:
        other = moved_to_sbuf(other, call)
    other = other.like(source.shape)
    return lanewise(
        call,
        source.shape,
        result_dtype(dtype, call, source, other),
        mask,
        (source, other),
        lambda dst, one, two, side: isa.scalar_tensor_tensor(
            dst=dst,
            data=one,
            op0=first,
            operand0=side,
            op1=second,
            operand1=two,
            reverse0=reverse0,
            reverse1=reverse1,
            name=name,
        ),
        columns=(column(operand0, source.shape[0], call),),
    )


def tensor_tensor_scan(
    data0: Any,
    data1: Any,
    initial: Any,
    op0: Any,
    op1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    *,
    dtype: Any = None,
    mask: Any = None,
    name: str | None = None,
) -> Tensor:
    """Return the scan ``r[i] = (data0[i] <op0> r[i-1]) <op1> data1[i]`` along the free axes."""
    call = "nisa.tensor_tensor_scan"
    left, right = tile(data0, "data0", call), tile(data1, "data1", call)
    if left.buffer is right.buffer is Memory.psum:
        right = moved_to_sbuf(right, call)
    first, second = operator(op0, call), operator(op1, call)
    shape = common_shape(call, left, right)
    start = column(initial, shape[0], call, dtype=None)
    return lanewise(
        call,
        shape,
        result_dtype(dtype, call, left, right),
        mask,
        (left, right),
        lambda dst, one, two, side: isa.tensor_tensor_scan(
            dst=dst,
            data0=one,
            data1=two,
            initial=side,
            op0=first,
            op1=second,
            reverse0=reverse0,
            reverse1=reverse1,
            name=name,
        ),
        columns=(start if isinstance(start, Tensor) else number(start, "initial", call),),
    )


def reciprocal(data: Any, *, dtype: Any = None, mask: Any = None, name: str | None = None) -> Tensor:
    """Return ``1 / data``, on Vector."""
    call = "nisa.reciprocal"
    source = tile(data, "data", call)
    return lanewise(
        call,
        source.shape,
        result_dtype(dtype, call, source),
        mask,
        (source,),
        lambda dst, one: isa.reciprocal(dst=dst, data=one, name=name),
    )


def tensor_copy(
    src: Any, *, mask: Any = None, dtype: Any = None, engine: Engine = Engine.unknown, name: str | None = None
) -> Tensor:
    """Return a copy of a tile; bits move as they are where dtypes are equal.

    Scalar has no tensor_copy before NeuronCore-v3: there its activation with ``nl.copy`` is what copies.
    """
    call = "nisa.tensor_copy"
    source = tile(src, "src", call)
    run = begin(call)
    by_activation = engine is Engine.scalar and run.kernel.chip.generation < 3

    def instruct(dst: Any, one: Any) -> None:
        if by_activation:
            isa.activation(dst=dst, op=operator("copy", call), data=one, name=name)
        else:
            isa.tensor_copy(dst=dst, src=one, engine=engine, name=name)

    return lanewise(call, source.shape, result_dtype(dtype, call, source), mask, (source,), instruct)


def memset(
    shape: Any, value: Any, dtype: Any, *, mask: Any = None, engine: Engine = Engine.unknown, name: str | None = None
) -> Tensor:
    """Return a new tile that holds ``value`` everywhere."""
    call = "nisa.memset"
    extents, known = extents_of(shape, call), chosen(dtype, call)
    extents = extents if len(extents) > 1 else (*extents, 1)
    filling = fill_value(value, known)
    begin(call)
    boxes = boxes_of(mask, extents, call)

    def issue(target: Tensor) -> None:
        for box in boxes:
            isa.memset(dst=target.resolve(call, box, WRITE), value=filling, engine=engine, name=name)

    return result(call, extents, known, issue, boxes=boxes, exact=True)


def activation(
    op: Any,
    data: Any,
    *,
    bias: Any = None,
    scale: Any = 1.0,
    reduce_op: Any = None,
    reduce_res: Any = None,
    reduce_cmd: ReduceCmd = ReduceCmd.idle,
    mask: Any = None,
    dtype: Any = None,
    name: str | None = None,
) -> Tensor:
    """Return ``op(data · scale + bias)``; optionally summed into the accumulator registers and ``reduce_res``.

    A tile ``scale`` of another dtype than float32 is cast first (*assumed*, as ``tensor_scalar``).
    """
    call = "nisa.activation"
    source, function = tile(data, "data", call), operator(op, call)
    rows = source.shape[0]
    sides = [_bias(bias, rows, call), column(scale, rows, call)]
    total = optional_operator(reduce_op, call)
    reads_out = reduce_res is not None
    if reads_out:
        sides.append(tile(reduce_res, "reduce_res", call).like((rows, 1)))
    begin(call)
    boxes = boxes_of(mask, source.shape, call)
    if len(boxes) > 1 and reduce_cmd is not ReduceCmd.idle:
        raise IllegalOperand(f"{call}: a mask that is no box, with a reduction", advice="mask one axis at a time")
    parts = []
    for box in boxes:
        column_box = (box[0], (0, 1))
        parts.append(
            (
                box,
                source.resolve(call, box),
                [side.resolve(call, column_box) if isinstance(side, Tensor) else side for side in sides[:2]],
            )
        )

    def issue(target: Tensor) -> None:
        for box, one, (add, factor) in parts:
            isa.activation(
                dst=target.resolve(call, box, WRITE),
                op=function,
                data=one,
                bias=add,
                scale=factor,
                reduce_op=total if reduce_cmd in (ReduceCmd.reduce, ReduceCmd.reset_reduce) else None,
                reduce_res=sides[2].resolve(call, (box[0], (0, 1)), WRITE) if reads_out else None,
                reduce_cmd=reduce_cmd,
                name=name,
            )

    return result(call, source.shape, result_dtype(dtype, call, source), issue, boxes=boxes)


def activation_reduce(
    op: Any,
    data: Any,
    *,
    reduce_op: Any,
    reduce_res: Any,
    bias: Any = None,
    scale: Any = 1.0,
    mask: Any = None,
    dtype: Any = None,
    name: str | None = None,
) -> Tensor:
    """Return ``op(data · scale + bias)``, and write its sum along the free axes to ``reduce_res``."""
    return activation(
        op,
        data,
        bias=bias,
        scale=scale,
        reduce_op=reduce_op,
        reduce_res=reduce_res,
        reduce_cmd=ReduceCmd.reset_reduce,
        mask=mask,
        dtype=dtype,
        name=name,
    )


def _bias(bias: Any, rows: int, call: str) -> Any:
    """Return a bias as the generation takes it: NeuronCore-v2 takes a tile only."""
    run = begin(call)
    if bias is None or isinstance(bias, Tensor):
        return None if bias is None else column(bias, rows, call, dtype=None)
    if run.kernel.chip.generation >= 3:
        return number(bias, "bias", call)
    made = memset((rows, 1), number(bias, "bias", call), "float32")
    made.resolve(call)
    return made


def dropout(data: Any, prob: Any, *, mask: Any = None, dtype: Any = None, name: str | None = None) -> Tensor:
    """Return ``data`` with elements replaced by zeros, each with probability ``prob`` (a number or [P, 1] tile)."""
    call = "nisa.dropout"
    source = tile(data, "data", call)
    return lanewise(
        call,
        source.shape,
        result_dtype(dtype, call, source),
        mask,
        (source,),
        lambda dst, one, side: isa.dropout(dst=dst, data=one, prob=side, name=name),
        columns=(column(prob, source.shape[0], call),),
    )
