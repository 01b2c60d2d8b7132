"""Operators of ``nki.language`` as functions on tiles: ``nl.add(a, b)`` makes a new SBUF tile with an instruction.

Source: AWS Neuron SDK, ``nki/api/nki/language/__init__.py``. Which instruction a function becomes is the manual's where
it says so ("Engine Selection" in ``nki.api.shared.rst``), else the engine that has the operator; a result has the
inputs' dtype, the more precise of two (the manual says no more).
"""

from __future__ import annotations

from typing import Any

from neurosim import dtypes
from neurosim.dtypes import DType
from neurosim.engines import Memory
from neurosim.errors import IllegalOperand
from neurosim.kernel import current
from neurosim.nki import isa
from neurosim.numerics.act import ACTIVATIONS
from neurosim.numerics.alu import ALU
from neurosim.operators import Operator
from neurosim.rules import is_number
from neurosim.view import NkiTensor

_BY_ALU = frozenset({"invert", "logical_not", "bypass"})
_RANGE_REDUCED = frozenset({"sin", "arctan"})
"""Functions that NKI makes of several instructions, so that they hold outside of the engine's range; not built."""


class Function(Operator):
    """An operator that kernels may also call on tiles and numbers."""

    __slots__ = ()

    def __call__(self, *operands: Any, dtype: Any = None) -> NkiTensor:
        """Return a new SBUF tile: the operator of one or two operands, at least one of them a tile.

        Raises:
            IllegalOperand: no tile, another number of operands, or shapes that do not go together.
            Unsupported: a function that is not built yet.
        """
        call = f"nl.{self.name}"
        current(call)
        tiles = [operand for operand in operands if isinstance(operand, NkiTensor)]
        if self.name in _RANGE_REDUCED or (self.name not in ALU and self.name not in ACTIVATIONS):
            self.refuse()
        arity = ALU[self.name].arity if self.name in ALU else 1
        if len(operands) != arity or not tiles:
            raise IllegalOperand(
                f"{call} of {len(operands)} operands, {len(tiles)} of them tiles", advice=f"give {arity}"
            )
        target = dtypes.of(dtype) if dtype is not None else _precise(tiles)
        if target is None:
            raise IllegalOperand(f"{call}: dtype {dtype!r} is not an NKI dtype")
        if arity == 1:
            return self._unary(operands[0], target)
        return self._binary(call, operands[0], operands[1], target)

    def _unary(self, tile: NkiTensor, dtype: DType) -> NkiTensor:
        result = _new(tile.shape, dtype)
        if self.name == "reciprocal":
            isa.reciprocal(dst=result, data=tile)
        elif self.name == "copy":
            isa.tensor_copy(dst=result, src=tile)
        elif self.name in _BY_ALU:
            isa.tensor_scalar(dst=result, data=tile, op0=self, operand0=None)
        else:
            isa.activation(dst=result, op=self, data=tile)
        return result

    def _binary(self, call: str, left: Any, right: Any, dtype: DType) -> NkiTensor:
        for operand in (left, right):
            if not isinstance(operand, NkiTensor) and not is_number(operand):
                raise IllegalOperand(f"{call} of {operand!r}", advice="give tiles and numbers")
        if not isinstance(right, NkiTensor):
            return self._scalar(left, right, False, dtype)
        if not isinstance(left, NkiTensor):
            return self._scalar(right, left, True, dtype)
        left, right = _spread(call, left, right)
        result = _new(left.shape, dtype)
        isa.tensor_tensor(dst=result, data1=left, data2=right, op=self)
        return result

    def _scalar(self, tile: NkiTensor, number: float, reverse: bool, dtype: DType) -> NkiTensor:
        result = _new(tile.shape, dtype)
        isa.tensor_scalar(dst=result, data=tile, op0=self, operand0=number, reverse0=reverse)
        return result


def _new(shape: tuple[int, ...], dtype: DType) -> NkiTensor:
    return current("nl").allocate(shape, dtype, Memory.sbuf)


def _precise(tiles: list[NkiTensor]) -> DType:
    """Return the tiles' dtype, or the more precise of two: floats over integers, wider over narrower."""
    found = {tile.dtype for tile in tiles}
    if found == {dtypes.bfloat16, dtypes.float16}:
        return dtypes.float32  # neither holds the other
    return max(found, key=lambda dtype: (dtype.is_float, dtype.size_bytes, dtype))


def _spread(call: str, left: NkiTensor, right: NkiTensor) -> tuple[NkiTensor, NkiTensor]:
    """Repeat free axes of extent 1 so that both tiles have one shape."""
    if left.ndim != right.ndim:
        raise IllegalOperand(
            f"{call} of tiles with {left.ndim} and {right.ndim} axes",
            numbers=(left.describe(), right.describe()),
            advice="make the axes equal with .expand_dim()",
        )
    for axis in range(1, left.ndim):
        if left.shape[axis] != right.shape[axis]:
            if left.shape[axis] == 1:
                left = left.broadcast(axis, right.shape[axis])
            elif right.shape[axis] == 1:
                right = right.broadcast(axis, left.shape[axis])
    return left, right


def reduction(name: str, tile: NkiTensor, axis: Any, dtype: Any, keepdims: bool) -> NkiTensor:
    """Return a new SBUF tile: a tile reduced along its last free axes by the operator ``name``."""
    axes = axis if isinstance(axis, (list, tuple)) else (axis,)
    reduced = {entry % tile.ndim for entry in axes}
    shape = tuple(
        1 if dim in reduced else extent for dim, extent in enumerate(tile.shape) if keepdims or dim not in reduced
    )
    target = tile.dtype if dtype is None else dtype
    result = current(f"nl.{name}").allocate(shape if len(shape) > 1 else (*shape, 1), target, Memory.sbuf)
    isa.tensor_reduce(dst=result, op=Operator(name), data=tile, axis=axis, keepdims=keepdims)
    return result
