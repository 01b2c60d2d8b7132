"""Reductions of ``nki.language``, and the functions that are made of them.

Source: AWS Neuron SDK, ``nki/api/nki/language/__init__.py``. It says what each computes, and of the instructions only
that ``mean`` has float32 intermediate values; the sequences are *assumed*. Axes are the last free axes of a tile, as an
int or a tuple or list of ints; reduced axes stay with extent 1 if ``keepdims``.
"""

from __future__ import annotations

import math
from typing import Any

from neurosim.datapath.operators import Operator
from neurosim.datapath.rules import is_number
from neurosim.dtypes import DType, float32
from neurosim.errors import IllegalOperand
from neurosim.nki import isa
from neurosim.nki._moving import broadcast_to
from neurosim.nki._tiles import activated, combined, dtype_of, fused, last_axes, new, scaled, spread, tile_of
from neurosim.view import NkiTensor


def reduction(
    name: str, op: str, x: NkiTensor, axis: Any, dtype: Any, keepdims: bool = False, negate: bool = False
) -> NkiTensor:
    """Return a new SBUF tile: a tile reduced along its last free axes by ``tensor_reduce`` with an operator."""
    call = f"nl.{name}"
    tile = tile_of(call, x)
    axes = last_axes(call, tile, axis)
    result = new(_reduced(tile, axes, keepdims), dtype_of(call, dtype, tile.dtype))
    isa.tensor_reduce(dst=result, op=Operator(op), data=tile, axis=axes, keepdims=keepdims, negate=negate)
    return result


def _reduced(tile: NkiTensor, axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    if not isinstance(keepdims, bool):
        raise IllegalOperand(f"keepdims={keepdims!r} of a reduction is not a bool", advice="pass True or False")
    shape = tile.shape[: axes[0]]
    return (*shape, *(1,) * len(axes)) if keepdims else shape


def _repeated(column: NkiTensor, tile: NkiTensor) -> NkiTensor:
    """Return a reduced tile, its reduced axes kept, as a view of the shape that was reduced."""
    return spread("nl", tile, column)[1]


def sum(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Return a new SBUF tile: the sum along axes, in float32 and in ascending order (``tensor_reduce``)."""
    return reduction("sum", "add", x, axis, dtype, keepdims)


def prod(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Return a new SBUF tile: the product along axes, in float32 and in ascending order (``tensor_reduce``)."""
    return reduction("prod", "multiply", x, axis, dtype, keepdims)


class _Extreme(Operator):
    """A reduction that kernels also pass as ``op=``, where it is the operator of two sides (nki-library does so)."""

    __slots__ = ()

    def __call__(self, x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
        """Return a new SBUF tile: the largest or smallest element along axes (``tensor_reduce``)."""
        return reduction(self.name[:3], self.name, x, axis, dtype, keepdims)


max = _Extreme("maximum")
min = _Extreme("minimum")


def all(x: NkiTensor, axis: Any, dtype: Any = None) -> NkiTensor:
    """Return a new SBUF tile: 1 where all elements along axes are non-zero, else 0 (``tensor_reduce``, logical and)."""
    return reduction("all", "logical_and", x, axis, dtype)


def mean(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Return a new SBUF tile: the mean along axes.

    Lowers to ``tensor_reduce`` into float32, and ``tensor_scalar`` that multiplies by 1/n, rounded to float32.
    """
    total = reduction("mean", "add", x, axis, float32, keepdims)
    count = x.size // total.size
    return scaled(total, "multiply", 1 / count, dtype=dtype_of("nl.mean", dtype, x.dtype))


def var(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Return a new SBUF tile: the population's variance along axes, which always stay with extent 1.

    ``keepdims`` must be a bool and changes nothing, as the manual says. Lowers to ``mean``, and the mean of the squares
    (``tensor_tensor``, ``activation``) of the differences from it, all in float32.
    """
    if not isinstance(keepdims, bool):
        raise IllegalOperand(f"nl.var: keepdims={keepdims!r} is not a bool", advice="pass True or False")
    difference = combined("subtract", x, _repeated(mean(x, axis, float32, keepdims=True), x))
    return mean(activated("square", difference), axis, dtype_of("nl.var", dtype, x.dtype), keepdims=True)


def softmax(x: NkiTensor, axis: Any = -1, dtype: Any = None) -> NkiTensor:
    """Return a new SBUF tile: exp(x - max) / sum of those, along axes, in float32.

    Lowers to ``tensor_reduce`` for the negated maximum, ``activation`` (exp), ``reciprocal``, and a product. Where all
    free axes are reduced, the activation adds the maximum as its bias and sums, and the product is ``tensor_scalar``;
    else ``tensor_tensor`` does both, and ``tensor_reduce`` sums.
    """
    tile = tile_of("nl.softmax", x)
    axes = last_axes("nl.softmax", tile, axis)
    target = dtype_of("nl.softmax", dtype, tile.dtype)
    top = reduction("softmax", "maximum", tile, axes, float32, keepdims=True, negate=True)
    total, inverse = new(top.shape, float32), new(top.shape, float32)
    if top.free_elements == 1:
        powers = new(tile.shape, float32)
        isa.activation_reduce(
            dst=powers, op=Operator("exp"), data=tile, reduce_op=Operator("add"), reduce_res=total, bias=top
        )
        isa.reciprocal(dst=inverse, data=total)
        return scaled(powers, "multiply", inverse, dtype=target)
    powers = activated("exp", combined("add", tile, _repeated(top, tile)))
    isa.tensor_reduce(dst=total, op=Operator("add"), data=powers, axis=axes, keepdims=True)
    isa.reciprocal(dst=inverse, data=total)
    return combined("multiply", powers, _repeated(inverse, tile), target)


def rms_norm(
    x: NkiTensor, w: NkiTensor, axis: Any, n: int, epsilon: float = 1e-06, dtype: Any = None, compute_dtype: Any = None
) -> NkiTensor:
    """Return a new SBUF tile: x / sqrt(sum(x²) / n + epsilon) · w.

    Args:
        x: a tile.
        w: weights; axes of extent 1 are repeated, the partition axis too.
        axis: the axes of the sum, the last free ones.
        n: what the sum is divided by.
        epsilon: keeps the root from being zero.
        dtype: of the result, by default that of x.
        compute_dtype: of the squares, their sums and the inverse root, by default float32.

    Lowers to ``activation`` (square), ``tensor_reduce``, ``tensor_scalar``, ``activation`` (rsqrt), and one
    ``scalar_tensor_tensor``, or two ``tensor_tensor`` where free axes are left.
    """
    call = "nl.rms_norm"
    tile, weight = tile_of(call, x), tile_of(call, w, "w")
    axes = last_axes(call, tile, axis)
    if not is_number(n) or n <= 0 or not is_number(epsilon) or math.isnan(epsilon):
        raise IllegalOperand(f"{call}: n={n!r}, epsilon={epsilon!r}", advice="n is a positive number, epsilon a number")
    target, inner = dtype_of(call, dtype, tile.dtype), _computing(call, compute_dtype)
    total = reduction("rms_norm", "add", activated("square", tile, inner), axes, inner, keepdims=True)
    inverse = activated("rsqrt", scaled(total, "multiply", 1 / n, "add", float(epsilon), dtype=inner), inner)
    if weight.shape[0] == 1 < tile.shape[0]:
        weight = broadcast_to(weight, (tile.shape[0], *weight.shape[1:]))
    weight = _repeated(weight, tile)
    if inverse.free_elements == 1:
        return fused(tile, "multiply", inverse, "multiply", weight, target)
    return combined("multiply", combined("multiply", tile, _repeated(inverse, tile)), weight, target)


def _computing(call: str, dtype: Any) -> DType:
    found = dtype_of(call, dtype, float32)
    if not found.is_float:
        raise IllegalOperand(f"{call}: compute_dtype {found} is not a float", advice="pass nl.float32, or leave it out")
    return found
