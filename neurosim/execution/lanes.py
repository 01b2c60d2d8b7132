"""What ``execute`` sees: operands as arrays of lanes, and the way back into memory. No clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import numpy as np
import numpy.typing as npt

from neurosim.dtypes import DType, float32
from neurosim.engines import Engine, Memory
from neurosim.execution.registers import RANDOM, generator
from neurosim.memory import WRITTEN, Mask
from neurosim.numerics import convert, random
from neurosim.numerics.matmul import Rows
from neurosim.program import Access
from neurosim.view import NkiTensor
from neurosim.views.indirect import IndirectTensor

if TYPE_CHECKING:
    from neurosim.chip import Chip
    from neurosim.kernel import Kernel

Float32s = npt.NDArray[np.float32]
_TRUTH: Final = np.dtype(np.bool_)
#: Elements from which on a copy and a transpose of that take less than a transpose of what has gaps (measured).
_MANY: Final = 2048
Sums = Float32s | Rows
"""Float32 sums [partitions, free elements], to write in place."""
Elements = npt.NDArray[Any] | Rows
"""An operand of the tensor engine [partitions, free elements]."""
Operands = Iterable[tuple[str, NkiTensor, Any]]
"""Name, tensor and declaration of each."""
Arrange = Callable[..., npt.NDArray[Any]]
"""Chooses among elements and reorders them, and looks into none."""


class Executable(Protocol):
    """What runs on lanes."""

    def execute(self, lanes: Lanes) -> None:
        """Compute values."""


class Lanes:
    """One instruction's access to values, on one engine.

    Arrays are [partitions, free elements], C-contiguous, in program order of the operand's access pattern.

    Class attributes:
        only_bits: whether a tensor's bits say all of its values.
        only_nearest: whether what is written rounds to nearest even.
    """

    only_bits: ClassVar[bool] = True
    only_nearest: ClassVar[bool] = True

    __slots__ = ("_kernel", "engine")

    def __init__(self, kernel: Kernel, engine: Engine) -> None:
        self._kernel = kernel
        self.engine = engine

    def run(self, instruction: Executable, operands: Operands) -> None:
        """Execute an instruction; ``operands`` are its tensors."""
        instruction.execute(self)

    @property
    def cores(self) -> int:
        """How many cores the launch has."""
        return self._kernel.grid.cores

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
        elements = tensor.lanes()
        if tensor.dtype == float32 and elements.flags.c_contiguous:
            return elements
        return convert.widen(elements, tensor.dtype)

    def column(self, value: NkiTensor | float) -> Float32s | float:
        """Return a per-partition operand as float32 [partitions, 1], or a number as it is."""
        return self.f32(value) if isinstance(value, NkiTensor) else float(value)

    def bits(self, tensor: NkiTensor) -> npt.NDArray[Any]:
        """Return a tensor's elements as they are stored, in its own dtype."""
        return tensor.lanes()

    def truth(self, predicate: NkiTensor, reverse: bool) -> Mask:
        """Return where a predicate's elements are not zero; with ``reverse``, where they are."""
        elements = self.bits(predicate)
        found: Mask = elements == 0 if reverse else elements.astype(_TRUTH)
        return found

    def rounded(self, values: Float32s, dtype: DType) -> npt.NDArray[Any]:
        """Return float32 values in another format, as this engine rounds them when it writes."""
        return convert.narrow(values, dtype)

    def room(self, dst: NkiTensor, *sources: NkiTensor | float | None) -> Float32s | None:
        """Return where results of ``sources`` may be written at once, for :meth:`put` to find there; mostly None.

        An element may be written when its own sources have been read.
        """
        return None

    def put(self, tensor: NkiTensor, values: Float32s) -> None:
        """Round float32 values to the tensor's dtype and write them."""
        if isinstance(tensor, IndirectTensor):
            tensor.scatter(self.rounded(values, tensor.dtype).reshape(tensor.shape))
            return
        array = tensor.array()
        if values is array:
            return
        if _may_share(values, array):
            values = values.copy()  # float32 tensors are read in place, and all is read before anything is written
        if self.only_nearest and tensor.dtype == float32 and tensor.partition_axis <= 0:
            array[...] = values if values.shape == array.shape else values.reshape(array.shape)
        elif self.only_nearest and array.flags.c_contiguous:
            convert.narrow(values.reshape(array.shape), tensor.dtype, out=array)
        else:
            self._scatter(tensor, array, self.rounded(values, tensor.dtype))

    def put_bits(self, tensor: NkiTensor, values: npt.NDArray[Any], where: Mask | None = None) -> None:
        """Write elements that already have the tensor's dtype (or its size, as raw bits); those in ``where`` alone."""
        if isinstance(tensor, IndirectTensor):
            if values.dtype != tensor.dtype.numpy:
                values = values.view(tensor.dtype.numpy)
            tensor.scatter(values.reshape(tensor.shape), None if where is None else where.reshape(tensor.shape))
            return
        array = tensor.array()
        if values.dtype != array.dtype:
            array = array.view(values.dtype)
        if where is None and values.shape == array.shape and tensor.family.partition_axis <= 0:
            array[...] = values
        else:
            self._scatter(tensor, array, values, where)

    @staticmethod
    def _scatter(
        tensor: NkiTensor, array: npt.NDArray[Any], values: npt.NDArray[Any], where: Mask | None = None
    ) -> None:
        axis = tensor.family.partition_axis
        if axis > 0:
            array = np.moveaxis(array, axis, 0)
        shape = array.shape
        if values.shape != shape:
            values = values.reshape(shape)
        if where is None:
            array[...] = values
        else:
            np.copyto(array, values, where=where if where.shape == shape else where.reshape(shape))

    def move(self, dst: NkiTensor, arrange: Arrange, *sources: NkiTensor | float, where: Mask | None = None) -> None:
        """Write elements as they are: what ``arrange`` makes of those of the sources, those in ``where`` alone.

        Arrays are lanes; a number is one element [1, 1]. Sources of another format than dst's go through float32.
        """
        self.put_bits(dst, arrange(*[self._as(dst.dtype, source) for source in sources]), where)

    def _as(self, dtype: DType, source: NkiTensor | float) -> npt.NDArray[Any]:
        """Return a source's elements in the format ``dtype``, to be moved only."""
        if not isinstance(source, NkiTensor):
            elements = convert.cast(np.full((1, 1), source, np.float32), float32, dtype)
        else:
            elements = source.lanes()
            if source.dtype != dtype:
                elements = self.rounded(convert.widen(elements, source.dtype), dtype)
        return elements if dtype.moved is dtype.numpy else elements.view(dtype.moved)

    def transfer(
        self, dst: NkiTensor, src: NkiTensor, arrange: Arrange | None = None, where: Mask | None = None
    ) -> None:
        """Move elements as the DMA engines do, which know no lanes: row-major, arrays in the tensors' own shapes."""
        source = src.array()
        if src.dtype != dst.dtype:
            source = convert.cast(source, src.dtype, dst.dtype)
        self._store(dst, source if arrange is None else arrange(source), where)

    def flat(self, tensor: NkiTensor) -> Float32s:
        """Return a tensor widened to float32, [1, elements] in row-major order of its own shape."""
        return convert.widen(tensor.array().reshape(1, -1), tensor.dtype)

    def put_flat(self, tensor: NkiTensor, values: Float32s, where: Mask | None = None) -> None:
        """Round float32 values, in row-major order of the tensor's own shape, to its dtype and write them."""
        self._store(tensor, convert.cast(values, float32, tensor.dtype), where)

    @staticmethod
    def _store(dst: NkiTensor, elements: npt.NDArray[Any], where: Mask | None) -> None:
        elements = elements.reshape(dst.shape)
        where = None if where is None else where.reshape(dst.shape)
        if isinstance(dst, IndirectTensor):
            dst.scatter(elements, where)
        elif where is None:
            dst.array()[...] = elements
        else:
            np.copyto(dst.array(), elements, where=where)

    def fill(self, tensor: NkiTensor, value: Any) -> None:
        """Write one number, rounded once to the tensor's dtype, everywhere."""
        tensor.array()[...] = convert.from_number(value, tensor.dtype)

    def matrix(self, tensor: NkiTensor) -> tuple[Elements, DType]:
        """Return an operand of the tensor engine as elements [partitions, free elements], and their format."""
        return rows_of(tensor) or tensor.lanes(), tensor.dtype

    def sum_into(self, dst: NkiTensor, overwrite: bool, compute: Callable[[Sums, bool], None]) -> None:
        """Let ``compute`` write float32 sums [partitions, free elements], or add to what ``dst`` holds.

        In a shorter format it adds in float32 and rounds once.
        """
        if dst.dtype != float32:
            values = np.empty((dst.partitions, dst.free_elements), np.float32)
            if not overwrite:
                values[...] = self.f32(dst)
            compute(values, overwrite)
            self.put(dst, values)
            return
        rows = rows_of(dst)
        if rows is not None:
            compute(rows, overwrite)
            return
        psum = dst.array()
        values = psum if psum.ndim == 2 and not dst.is_indirect() else np.ascontiguousarray(dst.lanes())
        compute(values, overwrite)
        if values is not psum:
            self.put_bits(dst, values)

    def clear(self, tensor: NkiTensor, where: Mask) -> None:
        """Write zeros where ``where`` (the tensor's shape) says so."""
        self.put_bits(tensor, np.zeros((tensor.partitions, tensor.free_elements), tensor.dtype.numpy), where)

    def registers(self, kind: str) -> Float32s:
        """Return engine registers, one float32 per partition, to read and write in place."""
        return self._kernel.registers(kind, self.engine).floats

    def fill_registers(self, kind: str, bits: np.uint32) -> None:
        """Fill all engine registers of one kind with a word."""
        self._kernel.registers(kind, self.engine).words.fill(bits)

    def words(self, kind: str) -> npt.NDArray[np.uint32]:
        """Return engine registers of several words, uint32 [lanes, words], to read and write in place."""
        return self._kernel.registers(kind, self.engine).words

    def random(self, partitions: int, elements: int) -> npt.NDArray[np.uint32]:
        """Draw numbers of 32 bits from the first lanes' generators, uint32 [partitions, elements]."""
        return random.draw(generator(self.engine, self.chip), self.words(RANDOM)[:partitions], elements)

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


class Direct(Lanes):
    """Access to values of calls whose tensors :func:`is_direct`: their arrays are the lanes, and need no rounding."""

    __slots__ = ()

    f32 = staticmethod(NkiTensor.array)  # type: ignore[assignment]  # a call less than a method of ours

    def put(self, tensor: NkiTensor, values: Float32s) -> None:
        """Write float32 values."""
        array = tensor.array()
        if values is not array:
            if _may_share(values, array):
                values = values.copy()
            array[...] = values if values.shape == array.shape else values.reshape(array.shape)

    def room(self, dst: NkiTensor, *sources: NkiTensor | float | None) -> Float32s | None:
        """Return dst's lanes where no source has bytes of it, or all that have are the same elements in its order."""
        storage = dst.allocation.storage
        for source in sources:
            if (
                isinstance(source, NkiTensor)
                and source.allocation.storage is storage
                and source is not dst
                and (source.offset_bytes, source.spot, source.family, source.shape)
                != (dst.offset_bytes, dst.spot, dst.family, dst.shape)
            ):
                return None
        return dst.array()


def _may_share(values: npt.NDArray[Any], array: npt.NDArray[Any]) -> bool:
    """Return whether two arrays may have bytes in common.

    Bytes that an array of NumPy's own holds are reached through views of that array alone, which say so.
    """
    base, owner = values.base, array if array.base is None else array.base
    if base is None or (type(base) is np.ndarray and base.base is None and base is not owner):
        return False
    return np.may_share_memory(values, array)


def is_direct(tensor: NkiTensor) -> bool:
    """Return whether a tensor is a float32 tile [partitions, free elements], one after the other without a gap."""
    laid, shape = tensor.family.rows, tensor.shape
    if laid is None or len(shape) != 2:
        return False
    _, step, coded = laid
    return not coded and (shape[0] == 1 or step == shape[1])


def rows_of(tensor: NkiTensor) -> Rows | None:
    """Return a tile as the tensor engine's arithmetic takes it without a look at an array; None of most others."""
    laid, shape = tensor.family.rows, tensor.shape
    if laid is None or len(shape) != 2:
        return None
    size, step, coded = laid
    storage = tensor.allocation.storage
    start, wrong = divmod(tensor.start_partition * storage.row_bytes + tensor.offset_bytes, size)
    if wrong or step < shape[1] or storage.borrowed:
        return None
    return Rows(storage.buffer, start, step, coded, shape)


def laid(tensor: NkiTensor, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array of a tensor's shape as [partitions, free elements]."""
    if tensor.partition_axis > 0:
        array = np.moveaxis(array, tensor.partition_axis, 0)
    return array.reshape(tensor.partitions, -1)


def unlaid(tensor: NkiTensor, lanes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return [partitions, free elements] as an array of a tensor's shape."""
    axis = tensor.partition_axis
    if axis <= 0:
        return lanes.reshape(tensor.shape)
    shape = (tensor.shape[axis], *tensor.shape[:axis], *tensor.shape[axis + 1 :])
    return np.moveaxis(lanes.reshape(shape), 0, axis)


def turned(elements: npt.NDArray[Any], axes: tuple[int, ...] | None = None) -> npt.NDArray[Any]:
    """Return elements with their axes in another order, the reverse one by default.

    Of many with gaps a copy is turned, which NumPy reads in a third of the time: rows far apart share lines of caches.
    """
    return np.transpose(np.ascontiguousarray(elements) if elements.size > _MANY else elements, axes)


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
