"""Operators of ``nki.language`` as functions on tiles: ``nl.add(a, b)`` makes a new SBUF tile with an instruction.

Source: AWS Neuron SDK, ``nki/api/nki/language/__init__.py``. Which instruction a function becomes is the manual's where
it says so ("Engine Selection" in ``nki.api.shared.rst``, release notes of 0.5 for ``rsqrt`` and of 0.6 for ``copy``),
else the engine that has the operator; a result has the inputs' dtype, the more precise of two (the manual says no
more):

- two tiles: ``tensor_tensor``; a tile and a number: ``tensor_scalar``, in either order;
- ``reciprocal``: ``nisa.reciprocal``; ``invert``, ``logical_not``, ``bypass``: ``tensor_scalar``;
- ``rsqrt``: ``tensor_scalar`` on GpSimd, which reads no PSUM (before NKI 0.5 ``activation``);
- ``logical_not`` gives 1 for zero and 0 else; *assumed* of values other than 0 and 1, for which the manual, whose
  ``logical_not`` is "XOR with 1", asks for ``equal(x, 0)``;
- ``copy``: ``tensor_copy`` (before NKI 0.6 ``activation``, which goes through float32 and stays in its memory);
- ``sin`` and ``arctan``: several instructions, see :mod:`neurosim.nki._sequences`;
- all other functions of one tile: ``activation``.

Known limits of NKI's own functions are not limits here: the release notes of 0.3 and 0.4 say that ``divide``, ``mod``
and ``fmod`` do not compile for hardware, that ``power`` takes no number and that tiles do not broadcast.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from neurosim.datapath.operators import Operator
from neurosim.datapath.rules import is_number
from neurosim.dtypes import DType
from neurosim.engines import Engine, Memory
from neurosim.errors import IllegalCall, IllegalOperand, Unsupported
from neurosim.kernel import current
from neurosim.nki import _sequences, isa
from neurosim.nki._tiles import combined, dtype_of, new, precise, scaled, spread, tile_of
from neurosim.numerics.act import ACTIVATIONS
from neurosim.numerics.alu import ALU
from neurosim.spelling import unknown_keyword
from neurosim.versions import NKI_0_5, NKI_0_6
from neurosim.view import NkiTensor

CONSTANTS: Final = ("prelu", "average")
"""Documented names of operators that are no functions on tiles, and that no instruction takes here yet."""
_BY_ALU: Final = frozenset({"invert", "logical_not", "bypass"})
_SEQUENCES: Final[dict[str, Callable[..., NkiTensor]]] = {"sin": _sequences.sin, "arctan": _sequences.arctan}


def _parameters(*names: str) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    dtype = inspect.Parameter("dtype", kind, default=None)
    return inspect.Signature([*(inspect.Parameter(name, kind) for name in names), dtype])


_ONE_TILE: Final = _parameters("x")
_TWO_TILES: Final = _parameters("x", "y")


class Function(Operator):
    """An operator that kernels may also call on tiles and numbers."""

    __slots__ = ()

    @property
    def __signature__(self) -> inspect.Signature:
        """(x, dtype=None), or (x, y, dtype=None)."""
        return _ONE_TILE if self.name not in ALU or ALU[self.name].arity == 1 else _TWO_TILES

    def __call__(self, *args: Any, **kwargs: Any) -> NkiTensor:
        """Return a new SBUF tile: the operator of ``x``, or of ``x`` and ``y``, at least one of them a tile.

        Raises:
            IllegalOperand: no tile, another number of operands, or shapes that do not go together.
            Unsupported: a name that stands for an operator only.
        """
        call = f"nl.{self.name}"
        current(call)
        if self.name in CONSTANTS:
            raise Unsupported(f"{call} is the name of an operator, and no function on tiles", advice="pass it as op=")
        signature = self.__signature__
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            unknown = next((name for name in kwargs if name not in signature.parameters), None)
            if unknown is not None:
                raise unknown_keyword(call, unknown, signature.parameters) from None
            raise IllegalCall(f"{call}: {error}", advice=f"it takes {signature}") from None
        dtype = given.pop("dtype", None)
        operands = list(given.values())
        tiles = [tile_of(call, operand) for operand in operands if isinstance(operand, NkiTensor)]
        if not tiles:
            raise IllegalOperand(f"{call} of no tile", advice="give tiles; Python computes with numbers")
        target = dtype_of(call, dtype, precise(tiles))
        return self._unary(call, operands[0], target) if len(operands) == 1 else self._binary(call, operands, target)

    def _unary(self, call: str, tile: NkiTensor, dtype: DType) -> NkiTensor:
        if self.name in _SEQUENCES:
            return _SEQUENCES[self.name](tile, dtype)
        version = current(call).nki_version
        if self.name == "rsqrt" and version >= NKI_0_5:
            if tile.buffer is Memory.psum:
                raise IllegalOperand(
                    f"{call}: x {tile.describe()} is in PSUM, which GpSimd does not reach",
                    advice="use nisa.activation(op=nl.rsqrt), or copy the tile to SBUF with nisa.tensor_copy",
                )
            return scaled(tile, "rsqrt", 0.0, dtype=dtype, engine=Engine.gpsimd)
        result = new(tile.shape, dtype)
        if self.name == "reciprocal":
            isa.reciprocal(dst=result, data=tile)
        elif self.name == "copy" and version >= NKI_0_6:
            isa.tensor_copy(dst=result, src=tile)
        elif self.name in _BY_ALU:
            isa.tensor_scalar(dst=result, data=tile, op0=self, operand0=None)
        else:
            if self.name == "copy" and tile.buffer is Memory.psum:
                raise IllegalOperand(
                    f"{call}: x {tile.describe()} is in PSUM; before NKI 0.6 nl.copy stays in one memory",
                    advice="use nisa.tensor_copy, or nki_version 0.6",
                )
            isa.activation(dst=result, op=self, data=tile)
        return result

    def _binary(self, call: str, operands: list[Any], dtype: DType) -> NkiTensor:
        left, right = operands
        for operand in (left, right):
            if not isinstance(operand, NkiTensor) and not is_number(operand):
                raise IllegalOperand(f"{call} of {operand!r}", advice="give tiles and numbers")
        if not isinstance(right, NkiTensor):
            return scaled(left, self.name, right, dtype=dtype)
        if not isinstance(left, NkiTensor):
            return scaled(right, self.name, left, dtype=dtype, reverse0=True)
        return combined(self.name, *spread(call, left, right), dtype)


OPERATORS: Final = {name: Function(name) for name in (*ALU, *ACTIVATIONS, *CONSTANTS)}
