"""Constants that are in HBM before a kernel begins.

Source: AWS Neuron SDK, ``nki/api/nki/language/__init__.py``, ``shared_constant`` and ``shared_identity_matrix``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from neurosim import dtypes
from neurosim.dtypes import uint8
from neurosim.errors import IllegalOperand
from neurosim.execution import seen
from neurosim.kernel import current
from neurosim.memory import array_bytes
from neurosim.nki import isa
from neurosim.nki._tiles import dtype_of, new
from neurosim.view import NkiTensor

_FILL_BYTES: Final = 16384
"""Of each partition, at most, that the tile which HBM is filled from takes."""


def fill_hbm(tensor: NkiTensor, value: Any) -> None:
    """Write a number everywhere in an HBM tensor, from one SBUF tile."""
    flat, total = tensor.reshape((tensor.size,)), tensor.size
    rows = min(total, current("nl").chip.partitions)
    columns = min(-(-total // rows), _FILL_BYTES // tensor.dtype.size_bytes)
    tile = new((rows, columns), tensor.dtype)
    isa.memset(dst=tile, value=value)
    first = 0
    while first < total:
        height = min(rows, max((total - first) // columns, 1))
        width = min(columns, total - first)
        isa.dma_copy(dst=flat[first : first + height * width], src=tile[0:height, 0:width])
        first += height * width


def shared_constant(constant: Any) -> NkiTensor:
    """Return a tensor in shared HBM that holds an array, or the array in a ``.npy`` file.

    It is there before the kernel begins, as inputs are: no instruction writes it.

    Raises:
        IllegalOperand: no array, a dtype that NKI does not have, or no such file.
    """
    call = "nl.shared_constant"
    kernel = current(call)
    source = constant
    if isinstance(constant, (str, Path)):
        seen.note(f"{call} reads a file")
        try:
            source = np.load(constant, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise IllegalOperand(
                f"{call}: cannot read an array from {constant}: {error}",
                advice="give a .npy file that numpy.save wrote, without objects in it, or the array itself",
            ) from error
    if not isinstance(source, np.ndarray):
        raise IllegalOperand(f"{call} of {constant!r}", advice="give a NumPy array, or the path of a .npy file")
    dtype = dtypes.of(source.dtype)
    if dtype is None:
        raise IllegalOperand(
            f"{call}: {source.dtype} is not an NKI dtype",
            numbers=("known: " + ", ".join(dtypes.ALL),),
            advice="convert it first, e.g. with .astype(np.float32)",
        )
    if source.size == 0 or source.ndim == 0:
        raise IllegalOperand(f"{call}: an array of shape {source.shape}", advice="it needs an element and an axis")
    name = f"constant_{len(kernel.marks) + 1}"
    array = np.array(source, order="C")  # the kernel may change it, and so may the caller
    with kernel.located():
        return kernel.adopt(array.shape, dtype, array.nbytes, array_bytes(array), name)


def shared_identity_matrix(n: int, dtype: Any = uint8, dst: NkiTensor | None = None) -> NkiTensor:
    """Return an SBUF tile [n, n] with ones on its diagonal, ``dst`` if given.

    Lowers to ``shared_constant`` and ``dma_copy``.
    """
    call = "nl.shared_identity_matrix"
    current(call)
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise IllegalOperand(f"{call}: n={n!r}", advice="give the number of rows, from 1 to nl.tile_size.pmax")
    target = dtype_of(call, dtype, uint8)
    tile = new((int(n), int(n)), target) if dst is None else dst
    if not isinstance(tile, NkiTensor) or tile.shape != (n, n) or tile.dtype != target:
        what = tile.describe() if isinstance(tile, NkiTensor) else repr(tile)
        raise IllegalOperand(f"{call}: dst is {what}", advice=f"give a tile of shape ({n}, {n}) and dtype {target}")
    isa.dma_copy(dst=tile, src=shared_constant(np.eye(int(n)).astype(target.numpy)))
    return tile
