"""``rand``, ``random_seed`` and ``dropout`` of ``nki.language``, made of instructions.

Source: AWS Neuron SDK, ``nki/api/nki/language/__init__.py``; which instructions: ``release-notes/components/nki.rst``,
NKI 0.3.0, "Random Number Generation". There ``rand`` "may run on a different engine than ``random_seed``" before
NeuronCore-v4; here both are on Vector, so that a seed always has the effect that the manual's examples show.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from neurosim import dtypes
from neurosim.datapath.operators import Operator
from neurosim.engines import Memory
from neurosim.kernel import current
from neurosim.nki import isa
from neurosim.nki._tiles import tile_of
from neurosim.view import NkiTensor

_COLUMNS: Final = 2048
"""Of the tiles that HBM is filled from."""
_BELOW_ONE: Final = 1 - 2.0**-24


def rand(shape: Sequence[int], dtype: Any, buffer: Memory = Memory.sbuf, name: str = "") -> NkiTensor:
    """Return a new tensor of random numbers, uniform between 0 and 1.

    ``nisa.rand2`` on NeuronCore-v4; before, the bits of ``nisa.rng``, scaled in float32 and kept below 1 (*assumed*).
    In a dtype narrower than float32 the largest numbers may round to 1.

    Args:
        shape: extents.
        dtype: an NKI dtype.
        buffer: where it lives; HBM is filled from tiles in SBUF, one after the other.
        name: for messages and traces.
    """
    tensor = current("nl.rand").allocate(shape, dtype, buffer, name)
    if tensor.buffer.is_on_chip:
        _fill(tensor)
        return tensor
    columns = tensor.shape[-1]
    flat = tensor.reshape((math.prod(tensor.shape) // columns, columns))
    for row in range(0, flat.shape[0], _partitions()):
        for column in range(0, columns, _COLUMNS):
            part = flat[row : min(row + _partitions(), flat.shape[0]), column : min(column + _COLUMNS, columns)]
            tile = _tile(part.shape, tensor.dtype)
            _fill(tile)
            isa.dma_copy(dst=part, src=tile)
    return tensor


def _partitions() -> int:
    return current("nl.rand").chip.partitions


def _tile(shape: Sequence[int], dtype: Any) -> NkiTensor:
    return current("nl.rand").allocate(shape, dtype, Memory.sbuf)


def _fill(tile: NkiTensor) -> None:
    if current("nl.rand").chip.generation >= 4:
        isa.rand2(dst=tile, min=0.0, max=1.0)
        return
    bits = _tile(tile.shape, dtypes.uint32)
    isa.rng(dst=bits)
    isa.tensor_scalar(
        dst=tile,
        data=bits,
        op0=Operator("multiply"),
        operand0=2.0**-32,
        op1=Operator("minimum"),
        operand1=_BELOW_ONE,
    )


def random_seed(seed: NkiTensor) -> None:
    """Seed what ``nl.rand`` and ``nl.dropout`` draw from, with a [1, 1] tensor of 32 bits in SBUF or PSUM."""
    current("nl.random_seed")
    isa.set_rng_seed(src_seeds=seed)


def dropout(x: NkiTensor, rate: NkiTensor | float, dtype: Any = None) -> NkiTensor:
    """Return a new SBUF tile: a tile with elements replaced by zeros, with probability ``rate``; others unscaled.

    Args:
        x: a tile.
        rate: 0 to 1, or a tile (partitions of x, 1) with a probability for each partition.
        dtype: that of the result; x's if None.
    """
    kernel = current("nl.dropout")
    tile_of("nl.dropout", x)
    result = kernel.allocate(x.shape, x.dtype, Memory.sbuf)
    isa.dropout(dst=result, data=x, prob=rate)
    if dtype is None:
        return result
    converted = kernel.allocate(x.shape, dtype, Memory.sbuf)
    isa.tensor_copy(dst=converted, src=result)
    return converted
