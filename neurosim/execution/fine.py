"""Values that are kept in a wider format than the bytes of their storage can hold.

The bytes stay what they are: each view of them, each index and each rule sees what the hardware would have. Beside them
lie wider values of those elements that were written with one, which only reads through the same format find again.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from neurosim.dtypes import DType
from neurosim.memory import Bytes, Mask, Storage
from neurosim.numerics import convert
from neurosim.view import NkiTensor
from neurosim.views.indirect import IndirectTensor

Floats = npt.NDArray[Any]
_REST: Final = 0x80
"""Marks the granules of an element that follow its first."""


class Fine:
    """The wider values of one storage.

    There is one per granule (a number of bytes that all elements are multiples of), at the first granule of each
    element that has one; beside it, what format the element was written in.
    """

    def __init__(self, storage: Storage, granule: int, wide: npt.DTypeLike) -> None:
        count = storage.size_bytes // granule
        self._granule = granule
        self._values: Floats = np.zeros(count, wide)  # untouched pages of zeros cost nothing
        self._formats: Bytes = np.zeros(count, np.uint8)

    def _refine(self, tensor: NkiTensor) -> None:
        """Split granules to single bytes where the elements of ``tensor`` are not whole ones."""
        granule = self._granule
        if tensor.aligned_to(granule):
            return
        values = np.zeros(len(self._values) * granule, self._values.dtype)
        values[::granule] = self._values
        formats = np.repeat(self._formats, granule)
        later = np.arange(len(formats)) % granule > 0
        formats[later & (formats > 0)] |= _REST
        self._values, self._formats, self._granule = values, formats, 1

    def read(self, tensor: NkiTensor) -> tuple[Floats, Mask]:
        """Return the wider values under ``tensor`` and which elements have one, both in its shape."""
        self._refine(tensor)
        values, formats = (tensor.over(part, self._granule) for part in (self._values, self._formats))
        first = _mark_of(tensor.dtype)
        if formats.ndim == len(tensor.shape):
            return values, formats == first
        return values[..., 0], (formats[..., 0] == first) & (formats[..., 1:] == first | _REST).all(axis=-1)

    def write(self, tensor: NkiTensor, values: Floats, known: Mask, only: Mask | None = None) -> None:
        """Keep ``values`` where they are ``known``, and nothing elsewhere; outside of ``only`` all stays as it was.

        All have the tensor's shape.
        """
        self._refine(tensor)
        first, size = _mark_of(tensor.dtype), tensor.dtype.size_bytes // self._granule
        marks: Any = np.where(known, first, 0)
        if size > 1:
            rest = np.where(known, first | _REST, 0)
            marks = np.stack([marks] + [rest] * (size - 1), axis=-1)
            values = np.broadcast_to(values[..., None], marks.shape)
        for part, given in ((self._values, values), (self._formats, marks.astype(np.uint8))):
            _assign(tensor, part, self._granule, given, only)


def _mark_of(dtype: DType) -> int:
    return dtype.code + 1


def _assign(tensor: NkiTensor, part: Any, granule: int, given: Any, only: Mask | None) -> None:
    if isinstance(tensor, IndirectTensor):
        tensor.assign(tensor.reach.over(part, granule), given, only)
        return
    target = tensor.over(part, granule)
    if only is not None and target.ndim > only.ndim:
        only = only[..., None]
    np.copyto(target, given, where=True if only is None else only)


def stored(tensor: NkiTensor) -> npt.NDArray[Any]:
    """Return a tensor's numbers as they are stored, in its shape: floats as float32, others in their own format."""
    return convert.widen(tensor.array(), tensor.dtype) if tensor.dtype.is_float else tensor.array()


def read(tensor: NkiTensor, wide: npt.DTypeLike) -> tuple[Floats, Mask]:
    """Return a tensor's values in the format ``wide``, and which of them are more than what is stored; in its shape."""
    elements, fine = stored(tensor).astype(wide), tensor.allocation.storage.fine
    if fine is None:
        return elements, np.zeros(tensor.shape, np.bool_)
    values, known = fine.read(tensor)
    return np.where(known, values, elements), known


def write(tensor: NkiTensor, values: Floats, known: Mask | None = None, only: Mask | None = None) -> None:
    """Keep wider values of a tensor; of all its elements, or where they are ``known``; see :meth:`Fine.write`."""
    storage = tensor.allocation.storage
    if storage.fine is None:
        granule = 1 if tensor.allocation.is_planed else tensor.allocation.dtype.size_bytes
        storage.fine = Fine(storage, granule, values.dtype)
    shape = tensor.shape
    known = np.ones(shape, np.bool_) if known is None else known.reshape(shape)
    storage.fine.write(tensor, values.reshape(shape), known, None if only is None else only.reshape(shape))


Copy = tuple[npt.NDArray[Any], Floats | None, Mask | None]
"""Elements, and where there are some their wider values and which of them count."""


def copied(tensor: NkiTensor) -> Copy:
    """Return all that a tensor holds."""
    elements, fine = tensor.array().copy(), tensor.allocation.storage.fine
    if fine is None:
        return elements, None, None
    values, known = fine.read(tensor)
    return elements, values.copy(), known


def paste(tensor: NkiTensor, copy: Copy) -> None:
    """Write what :func:`copied` returned of a tensor of the same shape and dtype."""
    elements, values, known = copy
    tensor.array()[...] = elements
    if values is None:
        forget(tensor)
    else:
        write(tensor, values, known)


def forget(tensor: NkiTensor, only: Mask | None = None) -> None:
    """Keep no wider value of a tensor: what is stored is all there is."""
    if tensor.allocation.storage.fine is not None:
        write(tensor, np.zeros(tensor.shape), np.zeros(tensor.shape, np.bool_), only)
