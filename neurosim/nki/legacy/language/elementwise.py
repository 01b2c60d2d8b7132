"""Legacy ``nki.language``: operators as functions on tiles and numbers, and Python's operators on tiles.

Source: NKI 0.1 documentation of each function. A result's dtype is the promoted one of the inputs, ``bool`` for
comparisons and logic.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from neurosim import dtypes
from neurosim.datapath.operators import Operator
from neurosim.datapath.rules import is_number
from neurosim.dtypes import DType
from neurosim.engines import Memory
from neurosim.errors import IllegalOperand
from neurosim.nki import _sequences, isa
from neurosim.nki.legacy.index import Affine
from neurosim.nki.legacy.lowering import common_shape, lanewise, moved_to_sbuf, tile, wrap
from neurosim.nki.legacy.promotion import result_dtype
from neurosim.nki.legacy.state import begin, run_of
from neurosim.nki.legacy.tensor import Tensor, dynamic_index
from neurosim.numerics.act import ACTIVATIONS
from neurosim.numerics.alu import ALU

_TRUTHS: Final = frozenset(
    [
        "equal",
        "not_equal",
        "greater",
        "greater_equal",
        "less",
        "less_equal",
        "logical_and",
        "logical_or",
        "logical_xor",
        "logical_not",
    ]
)
_BY_ALU: Final = frozenset({"invert", "logical_not"})
_SEQUENCES: Final = {
    name: getattr(_sequences, name) for name in ("sin", "cos", "tan", "arctan", "floor", "ceil", "trunc")
}
"""Functions that take several instructions: those of the new dialect, on whole tiles."""


class Function(Operator):
    """An operator: pass it as ``op=``, or call it on tiles and numbers."""

    __slots__ = ()

    def __call__(self, *operands: Any, dtype: Any = None, mask: Any = None) -> Tensor:
        """Return the operator of one or two operands, at least one of them a tile, broadcast to one shape."""
        call = f"nl.{self.name}"
        run = run_of(call)
        with run.kernel.located():
            arity = ALU[self.name].arity if self.name in ALU else 1
            if len(operands) != arity or not any(isinstance(operand, Tensor) for operand in operands):
                raise IllegalOperand(f"{call} of {len(operands)} operands", advice=f"give {arity}, one of them a tile")
            if dtype is None and self.name in _TRUTHS:
                dtype = dtypes.bool_
            if arity == 1:
                return unary(self, operands[0], dtype, mask)
            return binary(self, operands[0], operands[1], dtype, mask)


def unary(op: Operator, x: Any, dtype: Any, mask: Any) -> Tensor:
    """Return an operator of one tile."""
    call = f"nl.{op.name}"
    source = tile(x, "x", call)
    known = result_dtype(dtype, call, source)
    if op.name in _SEQUENCES:
        return _sequence(call, op.name, source, known, mask)

    def instruct(dst: Any, one: Any) -> None:
        if op.name == "reciprocal":
            isa.reciprocal(dst=dst, data=one)
        elif op.name == "copy":
            isa.tensor_copy(dst=dst, src=one)
        elif op.name in _BY_ALU:
            isa.tensor_scalar(dst=dst, data=one, op0=op, operand0=None)
        else:
            isa.activation(dst=dst, op=op, data=one)

    return lanewise(call, source.shape, known, mask, (source,), instruct)


def _sequence(call: str, name: str, source: Tensor, known: DType, mask: Any) -> Tensor:
    """Return a function that takes several instructions; a mask takes part of its result."""
    begin(call)
    made = wrap(_SEQUENCES[name](source.resolve(call), dtype=known)).like(source.shape)
    if mask is None:
        return made
    return lanewise(call, made.shape, known, mask, (made,), lambda dst, one: isa.tensor_copy(dst=dst, src=one))


def binary(op: Operator, x: Any, y: Any, dtype: Any, mask: Any) -> Tensor:
    """Return an operator of two tiles, or of a tile and a number."""
    call = f"nl.{op.name}"
    for operand in (x, y):
        if not isinstance(operand, Tensor) and not is_number(operand) and not isinstance(operand, bool):
            raise IllegalOperand(f"{call} of {operand!r}", advice="give tiles and numbers")
    known = result_dtype(dtype, call, x, y)
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        return _of_tiles(call, op, tile(x, "x", call), tile(y, "y", call), known, mask)
    source, number, reverse = (x, y, False) if isinstance(x, Tensor) else (y, x, True)
    source = tile(source, "x", call)
    bits = ALU[op.name].kind == "bitvec"
    side = int(number) if bits else float(number)
    return lanewise(
        call,
        source.shape,
        known,
        mask,
        (source,),
        lambda dst, one: isa.tensor_scalar(dst=dst, data=one, op0=op, operand0=side, reverse0=reverse),
    )


def _of_tiles(call: str, op: Operator, left: Tensor, right: Tensor, known: DType, mask: Any) -> Tensor:
    if left.buffer is right.buffer is Memory.psum:
        right = moved_to_sbuf(right, call)  # the compiler inserted that copy
    if op.name == "power":
        left, right = moved_to_sbuf(left, call), moved_to_sbuf(right, call)
    return lanewise(
        call,
        common_shape(call, left, right),
        known,
        mask,
        (left, right),
        lambda dst, one, two: isa.tensor_tensor(dst=dst, data1=one, data2=two, op=op),
    )


def negative(x: Any, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Return ``-x``."""
    known = result_dtype(dtype, "nl.negative", tile(x, "x", "nl.negative"))
    return binary(Operator("multiply"), x, -1.0, known, mask)


def accumulate(target: Tensor, value: Any, name: str) -> Tensor:
    """Return ``target`` after ``target <name>= value``: into PSUM by the tensor engine where ``value`` is a matmul."""
    from neurosim.nki.legacy.inplace import update

    return update(target, value, Operator(name))


def _operator_method(name: str, reverse: bool) -> Any:
    op = Operator(name)

    def method(self: Tensor, other: Any) -> Any:
        if isinstance(other, Affine) and name == "add":
            return dynamic_index(self, other)  # a place that is known at run time only
        if not isinstance(other, (Tensor, bool)) and not is_number(other):
            if name in ("equal", "not_equal") and not isinstance(other, (Affine, np.ndarray)):
                return NotImplemented
            raise IllegalOperand(f"nl.{name} of {self.describe()} and {other!r}", advice="give tiles and numbers")
        dtype = dtypes.bool_ if name in _TRUTHS else None
        with run_of(f"nl.{name}").kernel.located():
            return binary(op, other, self, dtype, None) if reverse else binary(op, self, other, dtype, None)

    return method


def _no_method(sign: str, advice: str) -> Any:
    def method(self: Tensor, *others: Any) -> Any:
        raise IllegalOperand(f"__{sign}__ of {self.describe()}: tiles do not have it", advice=f"use {advice}")

    return method


def _in_place_method(name: str) -> Any:
    def method(self: Tensor, other: Any) -> Any:
        with run_of(f"nl.{name}").kernel.located():
            return accumulate(self, other, name)

    return method


def install() -> None:
    """Give tensors Python's operators."""
    signs = {
        "add": "add",
        "sub": "subtract",
        "mul": "multiply",
        "truediv": "divide",
        "pow": "power",
        "mod": "mod",
        "and": "bitwise_and",
        "or": "bitwise_or",
        "xor": "bitwise_xor",
        "lshift": "left_shift",
        "rshift": "right_shift",
    }
    for sign, name in signs.items():
        setattr(Tensor, f"__{sign}__", _operator_method(name, False))
        setattr(Tensor, f"__r{sign}__", _operator_method(name, True))
        setattr(Tensor, f"__i{sign}__", _in_place_method(name))
    for sign, name in {
        "lt": "less",
        "le": "less_equal",
        "gt": "greater",
        "ge": "greater_equal",
        "eq": "equal",
        "ne": "not_equal",
    }.items():
        setattr(Tensor, f"__{sign}__", _operator_method(name, False))
    for sign, advice in {
        "floordiv": "nl.floor of the quotient",
        "rfloordiv": "nl.floor of the quotient",
        "matmul": "nl.matmul",
        "rmatmul": "nl.matmul",
        "abs": "nl.abs",
        "divmod": "nl.floor and nl.mod",
    }.items():
        setattr(Tensor, f"__{sign}__", _no_method(sign, advice))
    setattr(Tensor, "__neg__", lambda self: negative(self))  # noqa: B010 (the class declares none)
    setattr(Tensor, "__invert__", lambda self: unary(Operator("invert"), self, None, None))  # noqa: B010
    Tensor.__hash__ = object.__hash__  # type: ignore[method-assign]


FUNCTIONS: Final = {name: Function(name) for name in (*ALU, *ACTIVATIONS, *_SEQUENCES)}
"""Every operator, by name."""
