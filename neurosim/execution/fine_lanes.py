"""Runs in which narrow formats round nothing: values stay float32 where the storage is narrower.

What the vendor's simulator does with ``NKI_PRECISE_FP=0`` (AWS Neuron SDK, ``nki/guides/nki_simulator.rst``, "Precise
Floating-Point Mode"): all low-precision tensors are stored as float32, so that a wrong algorithm can be told from lost
precision. Here the bytes are written as ever, and float32 values lie beside them (:mod:`neurosim.execution.fine`). So
dtypes, rules, space and time are those of the formats that the kernel names, and a view of the same bytes as another
format, as a bit pattern for one, sees what the hardware would have there.

Wider than stored are bfloat16, float16, tfloat32 and the float formats of 8 bits. Integers, scales and packed formats
are what they are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from neurosim.dtypes import DType, float32
from neurosim.engines import Engine
from neurosim.execution import fine
from neurosim.execution.lanes import Arrange, Elements, Executable, Float32s, Lanes, Operands, laid, unlaid
from neurosim.kernel import Kernel
from neurosim.memory import Mask
from neurosim.program import Access
from neurosim.view import NkiTensor

WIDE: Final = np.dtype(np.float32)


def is_kept(dtype: DType) -> bool:
    """Return whether a format holds less than float32, which is kept beside it."""
    return dtype.is_float and dtype != float32


def float32_of(tensor: NkiTensor) -> Float32s | None:
    """Return the float32 values of a tensor of a narrower format, in its shape; None of any other tensor."""
    if not is_kept(tensor.dtype):
        return None
    values: Float32s = fine.read(tensor, WIDE)[0]
    return values


class FineLanes(Lanes):
    """Access to values that are wider than their storage."""

    only_bits = False
    __slots__ = ("_kept",)

    def __init__(self, kernel: Kernel, engine: Engine) -> None:
        super().__init__(kernel, engine)
        self._kept: list[NkiTensor] = []

    def run(self, instruction: Executable, operands: Operands) -> None:
        """Execute; of what was written otherwise, the bytes are all there is."""
        super().run(instruction, operands)
        for _, tensor, operand in operands:
            if operand.access is not Access.READ and not any(tensor is kept for kept in self._kept):
                fine.forget(tensor)

    def _keep(self, tensor: NkiTensor, values: Any, known: Mask | None = None, where: Mask | None = None) -> None:
        """Keep values, in the tensor's shape, where its format is narrower."""
        if is_kept(tensor.dtype):
            fine.write(tensor, values, known, where)
            self._kept.append(tensor)

    def _shaped(self, tensor: NkiTensor) -> Float32s:
        """Return a tensor's values in its own shape."""
        values: Float32s = fine.read(tensor, WIDE)[0]
        return values

    def f32(self, tensor: NkiTensor) -> Float32s:
        """Return a tensor's float32 values."""
        if not is_kept(tensor.dtype) or tensor.allocation.storage.fine is None:
            return super().f32(tensor)
        return np.ascontiguousarray(laid(tensor, self._shaped(tensor)))

    def matrix(self, tensor: NkiTensor) -> tuple[Elements, DType]:
        """Return an operand of the tensor engine in float32, where its format is narrower."""
        return (self.f32(tensor), float32) if is_kept(tensor.dtype) else super().matrix(tensor)

    def put(self, tensor: NkiTensor, values: Float32s) -> None:
        """Write float32 values: rounded, and as they are."""
        kept = unlaid(tensor, values).copy() if is_kept(tensor.dtype) else None
        super().put(tensor, values)
        if kept is not None:
            self._keep(tensor, kept)

    def move(self, dst: NkiTensor, arrange: Arrange, *sources: NkiTensor | float, where: Mask | None = None) -> None:
        """Move elements with the values beside them; to another format, the values."""
        move_bits = partial(super().move, dst, arrange, *sources, where=where)
        shaped: Arrange = lambda *arrays: unlaid(dst, arrange(*map(_lanes_of, sources, arrays)))  # noqa: E731
        self._move(dst, shaped, sources, None if where is None else unlaid(dst, where), move_bits)

    def transfer(
        self, dst: NkiTensor, src: NkiTensor, arrange: Arrange | None = None, where: Mask | None = None
    ) -> None:
        """Move elements with the values beside them; to another format, the values."""
        move_bits = partial(super().transfer, dst, src, arrange, where)
        shaped: Arrange = lambda array: (array if arrange is None else arrange(array)).reshape(dst.shape)  # noqa: E731
        self._move(dst, shaped, (src,), where, move_bits)

    def _move(
        self,
        dst: NkiTensor,
        arrange: Arrange,
        sources: tuple[NkiTensor | float, ...],
        where: Mask | None,
        move_bits: Callable[[], None],
    ) -> None:
        """Move as ``move_bits`` does, and as ``arrange`` does with arrays in the tensors' own shapes."""
        parts = [self._parts(source) for source in sources]
        values = arrange(*(part for part, _ in parts))
        known = arrange(*(part for _, part in parts))
        same = all(not isinstance(source, NkiTensor) or source.dtype == dst.dtype for source in sources)
        if same or not any(is_kept(source.dtype) for source in sources if isinstance(source, NkiTensor)):
            move_bits()
            self._keep(dst, values, known if same else None, where)
        else:
            super().put_flat(dst, values, where)
            self._keep(dst, values, None, where)

    def _parts(self, source: NkiTensor | float) -> tuple[Any, Any]:
        if isinstance(source, NkiTensor):
            return fine.read(source, WIDE)
        return np.full((1, 1), source, np.float32), np.ones((1, 1), np.bool_)

    def flat(self, tensor: NkiTensor) -> Float32s:
        """Return a tensor's float32 values in row-major order."""
        return self._shaped(tensor).reshape(1, -1) if is_kept(tensor.dtype) else super().flat(tensor)

    def put_flat(self, tensor: NkiTensor, values: Float32s, where: Mask | None = None) -> None:
        """Write float32 values in row-major order: rounded, and as they are."""
        super().put_flat(tensor, values, where)
        self._keep(tensor, values, None, where)

    def fill(self, tensor: NkiTensor, value: Any) -> None:
        """Write one number everywhere: rounded, and as float32."""
        super().fill(tensor, value)
        self._keep(tensor, np.full(tensor.shape, value, np.float32))


def _lanes_of(source: NkiTensor | float, array: Any) -> Any:
    return laid(source, array) if isinstance(source, NkiTensor) else array
