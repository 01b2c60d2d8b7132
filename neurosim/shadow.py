"""A float64 shadow beside the real run, and how far each instruction's result is from it.

Each instruction that writes floats is executed three times. As the hardware does it, on the real values, for the
result that the kernel goes on with. In float64 on the same values: the difference of the two is the error that is
*born* here. And in float64 on the shadow of the values, for the shadow of the result: the difference of the two
float64 results is the error that is *inherited* from the operands.

Integers, bits, packed formats and random numbers have no shadow: an instruction that computes floats from the bits of
floats, or draws, gives a result whose shadow is the result itself. Nor is rounding to an integer an error: it is what
the kernel asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from neurosim.dtypes import DType, float32
from neurosim.engines import Engine
from neurosim.errors import NeurosimError
from neurosim.execution import fine
from neurosim.execution.lanes import Arrange, Lanes, Operands, laid, unlaid
from neurosim.kernel import Kernel
from neurosim.memory import Mask
from neurosim.numerics import wide
from neurosim.program import Access, Frame
from neurosim.testing import ulp_of
from neurosim.view import NkiTensor

Floats = npt.NDArray[np.float64]
WIDE = np.dtype(np.float64)


class NoShadowError(Exception):
    """What an instruction does has no meaning in float64."""


class WideLanes(Lanes):
    """Access to values as float64, which writes into no memory.

    Attributes:
        results: what was written: tensor, float64 in its shape, and which elements (None for all).
    """

    only_bits = False
    __slots__ = ("_cleared", "_registers", "_shadowed", "results")

    def __init__(self, kernel: Kernel, engine: Engine, registers: dict[Hashable, Floats], shadowed: bool) -> None:
        super().__init__(kernel, engine)
        self.results: list[tuple[NkiTensor, Floats, Mask | None]] = []
        self._registers, self._shadowed = registers, shadowed
        self._cleared: Mask | None = None

    def _shaped(self, tensor: NkiTensor) -> Floats:
        """Return a tensor's float64 values in its own shape."""
        values: Floats = fine.read(tensor, WIDE)[0] if self._shadowed else fine.stored(tensor).astype(np.float64)
        return values

    def _write(self, tensor: NkiTensor, values: Any, where: Mask | None = None) -> None:
        """Note a result, in the tensor's shape."""
        if tensor.dtype.is_float:
            self.results.append((tensor, np.array(values, np.float64), where))

    def f32(self, tensor: NkiTensor) -> Any:
        """Return a tensor as float64."""
        return np.ascontiguousarray(laid(tensor, self._shaped(tensor)))

    def bits(self, tensor: NkiTensor) -> npt.NDArray[Any]:
        """Return the elements of a tensor that has no shadow."""
        if tensor.dtype.is_float:
            raise NoShadowError
        return super().bits(tensor)

    def put(self, tensor: NkiTensor, values: Any) -> None:
        """Note a result."""
        self._write(tensor, unlaid(tensor, values))

    def put_bits(self, tensor: NkiTensor, values: npt.NDArray[Any], where: Mask | None = None) -> None:
        """Pass over what has no shadow."""
        if tensor.dtype.is_float:
            raise NoShadowError

    def move(self, dst: NkiTensor, arrange: Arrange, *sources: NkiTensor | float, where: Mask | None = None) -> None:
        """Move float64 values."""
        arrays = (self.f32(source) if isinstance(source, NkiTensor) else np.full((1, 1), source) for source in sources)
        self._write(dst, unlaid(dst, arrange(*arrays)), None if where is None else unlaid(dst, where))

    def transfer(
        self, dst: NkiTensor, src: NkiTensor, arrange: Arrange | None = None, where: Mask | None = None
    ) -> None:
        """Move float64 values."""
        source = self._shaped(src)
        moved = source if arrange is None else arrange(source)
        self._write(dst, moved.reshape(dst.shape), None if where is None else where.reshape(dst.shape))

    def flat(self, tensor: NkiTensor) -> Any:
        """Return a tensor as float64, in row-major order."""
        return self._shaped(tensor).reshape(1, -1)

    def put_flat(self, tensor: NkiTensor, values: Any, where: Mask | None = None) -> None:
        """Note a result."""
        self._write(tensor, values.reshape(tensor.shape), None if where is None else where.reshape(tensor.shape))

    def fill(self, tensor: NkiTensor, value: Any) -> None:
        """Note a constant."""
        self._write(tensor, np.full(tensor.shape, float(value)))

    def matrix(self, tensor: NkiTensor) -> tuple[npt.NDArray[Any], DType]:
        """Return an operand of the tensor engine as float64."""
        return self.f32(tensor), float32

    def sum_into(self, dst: NkiTensor, overwrite: bool, compute: Callable[[Any, bool], None]) -> None:
        """Let ``compute`` add float64."""
        values = self.f32(dst).copy()
        if self._cleared is not None:
            values[laid(dst, self._cleared)] = 0.0
        compute(values, overwrite)
        self.put(dst, values)

    def clear(self, tensor: NkiTensor, where: Mask) -> None:
        """Take zeros for what is there, in :meth:`sum_into`."""
        self._cleared = where

    def registers(self, kind: str) -> Any:
        """Return engine registers as float64; real ones are copied at first use."""
        key = self._kernel.core, kind, self.engine
        if key not in self._registers:
            with np.errstate(invalid="ignore"):  # what marks unknown registers is a NaN
                self._registers[key] = super().registers(kind).astype(np.float64)
        return self._registers[key]

    def fill_registers(self, kind: str, bits: np.uint32) -> None:
        """Fill the registers' float64 with a word, which is a NaN where it is one as float32."""
        self.registers(kind).view(np.uint32).fill(bits)

    def words(self, kind: str) -> npt.NDArray[np.uint32]:
        """Return a copy of engine registers' words."""
        return super().words(kind).copy()

    def random(self, partitions: int, elements: int) -> npt.NDArray[np.uint32]:
        """Refuse: only the real run draws."""
        raise NoShadowError


@dataclass(slots=True)
class Tally:
    """Errors of the results that one line, instruction and format gave.

    Attributes:
        records: instructions.
        elements: numbers that they wrote, and that are finite or rightly infinite.
        not_finite: numbers that are NaN or infinite where the float64 result is not, or the reverse.
        unshadowed: instructions that have no meaning in float64.
        born_ulp, inherited_ulp: the largest error, in units in the last place of dst.
        born, inherited, both: sums of squares of the errors; of what is born, what is inherited, what there is.
        size: sum of squares of the shadow.
    """

    records: int = 0
    elements: int = 0
    not_finite: int = 0
    unshadowed: int = 0
    born_ulp: float = 0.0
    inherited_ulp: float = 0.0
    born: float = 0.0
    inherited: float = 0.0
    both: float = 0.0
    size: float = 0.0

    def plus(self, other: Tally) -> Tally:
        """Return what both counted."""
        most, total = ("born_ulp", "inherited_ulp"), {}
        for field in fields(Tally):
            pair = getattr(self, field.name), getattr(other, field.name)
            total[field.name] = max(pair) if field.name in most else sum(pair)
        return Tally(**total)

    def add(self, dtype: DType, real: Floats, local: Floats, shadow: Floats) -> None:
        """Count the elements of one result, given flat."""
        with np.errstate(invalid="ignore"):
            parts = [_difference(*pair) for pair in ((real, local), (local, shadow), (real, shadow))]
        known = np.isfinite(parts).all(axis=0)
        self.elements += int(np.count_nonzero(known))
        self.not_finite += int(np.count_nonzero(~known))
        born, inherited, both = (np.where(known, part, 0.0) for part in parts)
        self.born_ulp = max(self.born_ulp, _most(born, local, dtype))
        self.inherited_ulp = max(self.inherited_ulp, _most(inherited, np.maximum(np.abs(local), np.abs(shadow)), dtype))
        self.born += sum_of_squares(born)
        self.inherited += sum_of_squares(inherited)
        self.both += sum_of_squares(both)
        self.size += sum_of_squares(np.where(known & np.isfinite(shadow), shadow, 0.0))


def _most(errors: Floats, values: Floats, dtype: DType) -> float:
    """Return the largest error, in units in the last place at ``values``."""
    units = ulp_of(np.where(np.isfinite(values), values, 0.0), dtype)
    return float((errors / units).max(initial=0.0))


def _difference(one: Floats, other: Floats) -> Floats:
    """Return how far apart values are; equal infinities and two NaNs are not."""
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    return np.where(same, 0.0, np.abs(one - other))


def sum_of_squares(values: Floats) -> float:
    """Return the sum of squares, added in a fixed order."""
    if values.size == 0:
        return 0.0
    with np.errstate(over="ignore"):
        return float(wide.reduce_free("add", np.square(values).reshape(1, -1), 1)[0, 0])


Place = tuple[str, int, str, str]
"""Where errors are born: file, line, instruction, format of the result."""


class Shadow:
    """The shadow of one run.

    Attributes:
        only: with a place, only the errors that are born there are in the shadow: it says what they come to. Nothing
            is counted then.
        tallies: by call stack, instruction and format of the result, what came of it.
        registers: of engines, by core, kind and engine.
        outputs: what the kernel returned, with float64 arrays in place of float tensors, once it has run.
    """

    def __init__(self, only: Place | None = None) -> None:
        self.only = only
        self.outputs: Any = None
        self.tallies: dict[tuple[int, str, DType], Tally] = {}
        self.registers: dict[Hashable, Floats] = {}

    def beside(self, lanes: Callable[[Kernel, Engine], Lanes] | None) -> Callable[[Kernel, Engine], Lanes]:
        """Return what gives instructions the access to values that ``lanes`` gives (or the usual), and shadows them."""
        return lambda kernel, engine: ShadowedLanes(kernel, engine, self, (lanes or Lanes)(kernel, engine))

    def shadow_of(self, tensor: NkiTensor) -> Floats | None:
        """Return a float tensor's shadow, in its shape; None of any other tensor."""
        if not tensor.dtype.is_float:
            return None
        values: Floats = fine.read(tensor, WIDE)[0]
        return values


class ShadowedLanes(Lanes):
    """Access to real values that shadows what the instruction does with them."""

    __slots__ = ("_real", "_shadow")

    def __init__(self, kernel: Kernel, engine: Engine, shadow: Shadow, real: Lanes) -> None:
        super().__init__(kernel, engine)
        self._shadow, self._real = shadow, real

    def run(self, instruction: Any, operands: Operands) -> None:
        """Execute in float64 on real values and on their shadows, then really, and compare."""
        written = [(name, tensor) for name, tensor, operand in operands if operand.access is not Access.READ]
        local, shadow = self._attempts(instruction) if any(tensor.dtype.is_float for _, tensor in written) else ([], [])
        self._real.run(instruction, operands)
        if not shadow:
            for kind, _ in instruction.state():  # whatever they hold now, it is the real run's
                self._shadow.registers.pop((self._kernel.core, kind, self.engine), None)
        chosen = instruction.written()
        for name, tensor in written:
            found = [result[1:] for result in shadow if result[0] is tensor]
            if found:
                values, where = found[0]
                exact = _put(tensor, next(result[1] for result in local if result[0] is tensor), where)
                if self._shadow.only is not None:
                    _put(tensor, self._with_born(instruction, tensor, exact, values), where)
                    continue
                values = _put(tensor, values, where)
                self._tally(instruction, tensor).add(tensor.dtype, *_kept(where, fine.stored(tensor), exact, values))
            else:
                where = chosen.get(name)
                fine.forget(tensor, None if where is None else where.reshape(tensor.shape))
                if tensor.dtype.is_float:
                    self._tally(instruction, tensor).unshadowed += 1

    def _attempts(self, instruction: Any) -> tuple[list[Any], list[Any]]:
        """Return the results in float64 on real values, and on their shadows; none where these have no meaning."""
        real = WideLanes(self._kernel, self.engine, {}, shadowed=False)
        shadowed = WideLanes(self._kernel, self.engine, self._shadow.registers, shadowed=True)
        try:
            instruction.execute(real)
            instruction.execute(shadowed)
        except (NoShadowError, NeurosimError):  # an error of the kernel's will come again in the real run
            return [], []
        return real.results, shadowed.results

    def _with_born(self, instruction: Any, tensor: NkiTensor, exact: Floats, values: Floats) -> Floats:
        """Return a result's shadow with the error that is born here, where it is this place's that are looked for."""
        frames = self._kernel.program.stacks[self._kernel.stack()]
        if not frames or place_of(frames[0], instruction.mnemonic, tensor.dtype) != self._shadow.only:
            return values
        with np.errstate(invalid="ignore"):
            born = fine.stored(tensor) - exact
        return values + np.where(np.isfinite(born), born, 0.0)

    def _tally(self, instruction: Any, tensor: NkiTensor) -> Tally:
        key = self._kernel.stack(), instruction.mnemonic, tensor.dtype
        tally = self._shadow.tallies.setdefault(key, Tally())
        tally.records += 1
        return tally


def place_of(frame: Frame, instruction: str, dtype: str) -> Place:
    """Return the place of errors that an instruction at a line gives birth to."""
    return frame.path or frame.file, frame.line, instruction, str(dtype)


def _put(tensor: NkiTensor, values: Floats, where: Mask | None) -> Floats:
    """Keep values beside a tensor's bytes and return what is there then: of equal indices the last one stays."""
    fine.write(tensor, values, only=where)
    return fine.read(tensor, WIDE)[0] if tensor.is_indirect() else values


def _kept(where: Mask | None, *arrays: Floats) -> tuple[Floats, ...]:
    """Return the elements in ``where`` of each array, flat and as float64."""
    return tuple(
        np.asarray(array, np.float64).reshape(-1) if where is None else np.asarray(array, np.float64)[where]
        for array in arrays
    )
