"""What ``execute`` sees: operands as arrays of lanes, and the way back into memory. No clock."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from neurosim.engines import Engine, Memory
from neurosim.indirect import IndirectTensor
from neurosim.memory import WRITTEN, Mask
from neurosim.numerics import convert, random
from neurosim.program import Access
from neurosim.registers import RANDOM, generator
from neurosim.view import NkiTensor

if TYPE_CHECKING:
    from neurosim.chip import Chip
    from neurosim.kernel import Kernel

Float32s = npt.NDArray[np.float32]
Operands = Iterable[tuple[str, NkiTensor, Any]]
"""Name, tensor and declaration of each."""


class Lanes:
    """One instruction's access to values, on one engine.

    Arrays are [partitions, free elements], C-contiguous, in program order of the operand's access pattern.
    """

    __slots__ = ("_kernel", "engine")

    def __init__(self, kernel: Kernel, engine: Engine) -> None:
        self._kernel = kernel
        self.engine = engine

    @property
    def chip(self) -> Chip:
        """The chip that the kernel runs on."""
        return self._kernel.chip

    def is_outside(self, tensor: NkiTensor) -> bool:
        """Return whether a tensor was allocated before the loop on the device that this is in."""
        return self._kernel.is_outside(tensor.allocation)

    @property
    def values(self) -> bool:
        """Whether the run computes values."""
        return self._kernel.values

    def f32(self, tensor: NkiTensor) -> Float32s:
        """Return a tensor widened to float32, as every datapath does on reading. Do not write into it."""
        return convert.widen(tensor.lanes(), tensor.dtype)

    def column(self, value: NkiTensor | float) -> Float32s | float:
        """Return a per-partition operand as float32 [partitions, 1], or a number as it is."""
        return self.f32(value) if isinstance(value, NkiTensor) else float(value)

    def bits(self, tensor: NkiTensor) -> npt.NDArray[Any]:
        """Return a tensor's elements as they are stored, in its own dtype."""
        return tensor.lanes()

    def put(self, tensor: NkiTensor, values: Float32s) -> None:
        """Round float32 values to the tensor's dtype and write them."""
        if isinstance(tensor, IndirectTensor):
            tensor.scatter(convert.narrow(values, tensor.dtype).reshape(tensor.shape))
            return
        array = tensor.array()
        if np.may_share_memory(values, array):
            values = values.copy()  # float32 tensors are read in place, and all is read before anything is written
        if array.flags.c_contiguous:
            convert.narrow(values.reshape(array.shape), tensor.dtype, out=array)
        else:
            self._scatter(tensor, array, convert.narrow(values, tensor.dtype))

    def put_bits(self, tensor: NkiTensor, values: npt.NDArray[Any], where: Mask | None = None) -> None:
        """Write elements that already have the tensor's dtype (or its size, as raw bits); those in ``where`` alone."""
        values = values.view(tensor.dtype.numpy)
        if isinstance(tensor, IndirectTensor):
            tensor.scatter(values.reshape(tensor.shape), None if where is None else where.reshape(tensor.shape))
        else:
            self._scatter(tensor, tensor.array(), values, where)

    @staticmethod
    def _scatter(
        tensor: NkiTensor, array: npt.NDArray[Any], values: npt.NDArray[Any], where: Mask | None = None
    ) -> None:
        if tensor.partition_axis > 0:
            array = np.moveaxis(array, tensor.partition_axis, 0)
        if where is None:
            array[...] = values.reshape(array.shape)
        else:
            np.copyto(array, values.reshape(array.shape), where=where.reshape(array.shape))

    def registers(self, kind: str) -> Float32s:
        """Return engine registers, one float32 per partition, to read and write in place."""
        return self._kernel.registers(kind, self.engine).buffer.view(np.float32)

    def words(self, kind: str) -> npt.NDArray[np.uint32]:
        """Return engine registers of several words, uint32 [lanes, words], to read and write in place."""
        words: npt.NDArray[np.uint32] = self._kernel.registers(kind, self.engine).buffer.view(np.uint32)
        return words.reshape(self.chip.partitions, -1)

    def random(self, partitions: int, elements: int) -> npt.NDArray[np.uint32]:
        """Draw numbers of 32 bits from the first lanes' generators, uint32 [partitions, elements]."""
        known = generator(self.engine, self.chip)
        return random.draw(known, self.words(RANDOM)[:partitions], elements)

    def begin_shared(self, operands: Operands) -> list[bytes] | None:
        """Note that this core is about to write into shared HBM; return what :func:`shared_bytes` does."""
        for tensor in _shared(operands):
            self._kernel.writes.begin(self._kernel.core, tensor.allocation.storage)
        return shared_bytes(operands)

    def where_written(self, tensor: NkiTensor) -> int:
        """Return the one shadow state of all bytes of a tensor, or -1 when they differ."""
        return tensor.allocation.storage.uniform_state(tensor)

    def states(self, tensor: NkiTensor) -> npt.NDArray[np.uint8]:
        """Return the lowest shadow state of each element, in the tensor's shape."""
        return tensor.allocation.storage.element_states(tensor)

    def is_written(self, tensor: NkiTensor) -> bool:
        """Return whether all bytes of a tensor were written."""
        return tensor.allocation.storage.state >= WRITTEN or bool((self.states(tensor) >= WRITTEN).all())


def shared_bytes(operands: Operands) -> list[bytes] | None:
    """Return the bytes under operands in shared HBM that are written; None where they were never, or are none."""
    targets = _shared(operands)
    if not targets or any(_unwritten(tensor) for tensor in targets):
        return None
    return [tensor.array().tobytes() for tensor in targets]


def _unwritten(tensor: NkiTensor) -> bool:
    if isinstance(tensor, IndirectTensor):
        return tensor.unwritten() is not None
    return tensor.allocation.storage.unwritten(tensor) is not None


def note_rows(kernel: Kernel, operands: Operands) -> None:
    """Note for the record to come which rows of shared HBM the indices of its operands chose, where they are known."""
    for name, tensor, _ in operands:
        if isinstance(tensor, IndirectTensor) and tensor.buffer is Memory.shared_hbm:
            rows = tensor.rows()
            if rows is not None:
                kernel.writes.rows[len(kernel.program), name] = rows


def _shared(operands: Operands) -> list[NkiTensor]:
    return [
        tensor
        for _, tensor, operand in operands
        if operand.access is not Access.READ and tensor.buffer is Memory.shared_hbm
    ]
