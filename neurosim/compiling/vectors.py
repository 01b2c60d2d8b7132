"""LLVM's code of what numba would not vectorise as it should: see :mod:`neurosim.compiling.blocks`."""

from __future__ import annotations

from typing import Any, Final

import llvmlite.ir  # type: ignore[import-untyped,unused-ignore]
import numba  # type: ignore[import-untyped,unused-ignore]
import numba.core.cgutils  # type: ignore[import-untyped,unused-ignore]
import numpy as np

_types: Final[Any] = numba.types
_cgutils: Final[Any] = numba.core.cgutils

#: Rows by which packing asks memory for what it will read: rows are far apart, and each would be waited for in turn.
_ROWS_AHEAD: Final = 4
#: Floats of a line of the cache.
_LINE: Final = 16


def whole_registers() -> Any:
    """Have LLVM use all of AVX-512's registers in the function that calls it."""

    def typed(_: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            set.add(builder.function.attributes, '"prefer-vector-width"="512"')  # llvmlite knows names without a value
            return context.get_dummy_value()

        return _types.void(), generate

    return typed


def products(lanes: int, vectors: int, rows: int, exact: bool) -> Any:
    """Sum products."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _products_code(context, builder, signature.args, arguments, (lanes, vectors, rows, exact))
        return context.get_dummy_value()

    def typed(
        _: Any, left: Any, left_at: Any, right: Any, right_at: Any, depth: Any, out: Any, at: Any, stride: Any,
        rows: Any, overwrite: Any,
    ) -> Any:  # fmt: skip
        whole, flag = _types.intp, _types.boolean
        form = _types.void(left, whole, right, whole, whole, out, whole, whole, whole, flag)
        return form, generate

    return typed


def packing(size: int, coded: bool) -> Any:
    """Copy blocks."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found = _packing_code(context, builder, signature.args, arguments, (size, coded))
        return context.make_tuple(builder, signature.return_type, found)

    def typed(
        _: Any, source: Any, at: Any, stride: Any, depth: Any, blocks: Any, target: Any, target_at: Any, step: Any
    ) -> Any:
        whole, seen = _types.intp, _types.UniTuple(_types.uint32, 3)
        return seen(source, whole, whole, whole, whole, target, whole, whole), generate

    return typed


def _packing_code(context: Any, builder: Any, types: Any, arguments: Any, form: tuple[int, bool]) -> Any:
    """Write a packing kernel's code: a block is one vector, which LLVM cuts to the processor's."""
    (size, coded), ir, cgutils = form, llvmlite.ir, _cgutils
    at, stride, depth, blocks, target_at, step = (arguments[index] for index in (1, 2, 3, 4, 6, 7))
    source, target = (context.make_array(types[i])(context, builder, arguments[i]).data for i in (0, 5))
    word, words = ir.IntType(32), ir.VectorType(ir.IntType(32), size)
    part = ir.VectorType(ir.IntType(16), size) if coded else words

    def every(number: int) -> Any:
        return ir.Constant(words, [number] * size)

    starts = {"or": 0, "umin": 2**32 - 1, "umax": 0}
    seen = {name: cgutils.alloca_once_value(builder, every(number)) for name, number in starts.items()}
    ahead = builder.mul(stride, at.type(_ROWS_AHEAD))
    with cgutils.for_range(builder, depth) as row:
        line = builder.add(at, builder.mul(row.index, stride))
        lower = builder.add(target_at, builder.mul(row.index, at.type(size)))
        with cgutils.for_range(builder, blocks) as column:
            place = builder.add(line, builder.mul(column.index, at.type(size)))
            _prefetch(builder, builder.gep(source, [builder.add(place, ahead)]), to_write=False)
            place = builder.bitcast(builder.gep(source, [place]), part.as_pointer())
            values = builder.load(place, align=2 if coded else 4)
            if coded:
                values = builder.shl(builder.zext(values, words), every(16))
            place = builder.gep(target, [builder.add(lower, builder.mul(column.index, step))])
            builder.store(values, builder.bitcast(place, words.as_pointer()), align=4)
            magnitude = builder.and_(values, every(2**31 - 1))
            for name, found in zip(starts, (values, builder.sub(magnitude, every(1)), magnitude), strict=True):
                before = builder.load(seen[name])
                both = before, found
                after = builder.or_(*both) if name == "or" else _call(builder, f"llvm.{name}.v{size}i32", words, *both)
                builder.store(after, seen[name])
    return [_call(builder, f"llvm.vector.reduce.{name}.v{size}i32", word, builder.load(seen[name])) for name in starts]


def _call(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    """Write a call of one of LLVM's own functions."""
    form = llvmlite.ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(_cgutils.get_or_insert_function(builder.module, form, name), arguments)


def _prefetch(builder: Any, place: Any, *, to_write: bool) -> None:
    """Write the code that asks memory for a line of the cache, and waits for nothing."""
    ir = llvmlite.ir
    word, place = ir.IntType(32), builder.bitcast(place, ir.IntType(8).as_pointer())
    _call(builder, "llvm.prefetch.p0", ir.VoidType(), place, word(int(to_write)), word(3), word(1))


def _products_code(context: Any, builder: Any, types: Any, arguments: Any, form: Any) -> None:
    """Write a kernel's code: a loop over k around a step for each row and vector; LLVM keeps the sums in registers.

    The rows of the destination, which lie far apart, are on their way from memory meanwhile.
    """
    (lanes, vectors, block_rows, exact), cgutils, ir = form, _cgutils, llvmlite.ir
    block_columns = lanes * vectors
    left_at, right_at, depth, at, stride, rows, overwrite = (arguments[index] for index in (1, 3, 4, 6, 7, 8, 9))
    left, right, out = (context.make_array(types[i])(context, builder, arguments[i]).data for i in (0, 2, 5))
    vector = ir.VectorType(ir.FloatType(), lanes)
    undefined = ir.Constant(vector, ir.Undefined)

    def vector_at(base: Any, start: Any, number: int) -> Any:
        place = builder.add(start, start.type(number * lanes))
        return builder.bitcast(builder.gep(base, [place]), vector.as_pointer())

    totals = [
        cgutils.alloca_once_value(builder, ir.Constant(vector, [0.0] * lanes)) for _ in range(block_rows * vectors)
    ]
    for row in range(block_rows):
        start = builder.add(at, builder.mul(stride, stride.type(row)))
        for number in range(0, vectors, max(_LINE // lanes, 1)):
            _prefetch(builder, vector_at(out, start, number), to_write=True)
    with cgutils.for_range(builder, depth) as loop:
        start = builder.add(right_at, builder.mul(loop.index, depth.type(block_columns)))
        columns = [builder.load(vector_at(right, start, number), align=4) for number in range(vectors)]
        start = builder.add(left_at, builder.mul(loop.index, depth.type(block_rows)))
        for row in range(block_rows):
            element = builder.load(builder.gep(left, [builder.add(start, start.type(row))]))
            factor = _repeated(builder, undefined, element)
            for column, total in zip(columns, totals[row * vectors :], strict=False):
                before = builder.load(total)
                if exact:
                    after = _call(builder, f"llvm.fmuladd.v{lanes}f32", vector, factor, column, before)
                else:
                    after = builder.fadd(before, builder.fmul(factor, column))
                builder.store(after, total)
    nan, nothing = (ir.Constant(vector, [number] * lanes) for number in (np.nan, 0.0))
    for row in range(block_rows):
        start = builder.add(at, builder.mul(stride, stride.type(row)))
        with builder.if_then(builder.icmp_signed(">", rows, rows.type(row))):
            for number, total in enumerate(totals[row * vectors : (row + 1) * vectors]):
                place = vector_at(out, start, number)
                # a sum from +0.0 never is -0.0, so that it is the same when 0.0 is added
                before = builder.select(overwrite, nothing, builder.load(place, align=4))
                after = builder.fadd(before, builder.load(total))
                after = builder.select(builder.fcmp_unordered("uno", after, after), nan, after)
                builder.store(after, place, align=4)


def _repeated(builder: Any, vector: Any, element: Any) -> Any:
    """Write the code of a vector of one number."""
    word = llvmlite.ir.IntType(32)
    first = builder.insert_element(vector, element, word(0))
    places = llvmlite.ir.VectorType(word, vector.type.count)
    return builder.shuffle_vector(first, vector, llvmlite.ir.Constant(places, [0] * vector.type.count))
