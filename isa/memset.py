"""Filling a tile with a constant.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``memset``; strict value types since NKI 0.3
(``release-notes/components/nki.rst``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from numbers import Integral
from typing import Any

import numpy as np

from neurosim.chip import Chip
from neurosim.datapath.rules import Broken, Shown, as_float, is_number, overflows
from neurosim.datapath.streams import stream
from neurosim.dtypes import Kind
from neurosim.engines import Engine, Memory
from neurosim.execution.lanes import Lanes
from neurosim.instruction import Instruction, Out, Tile, emit
from neurosim.work import Lanewise, Work


class Memset(Instruction, mnemonic="memset", engines=(Engine.vector, Engine.gpsimd)):
    """Fill ``dst`` with ``value``, which must be a value of its dtype: no float for integers, no overflow.

    Packed formats take 0 only, float8_e8m0fnu powers of two.
    """

    takes_packed = True

    dst: Tile = Out(Memory.sbuf, Memory.psum)
    value: Any
    engine: Engine = Engine.unknown
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """The value fits the dtype; GpSimd does not reach PSUM."""
        dtype, value = self.dst.dtype, self.value
        numbers = (Shown("dst", self.dst),)
        if isinstance(value, (bool, np.bool_)) and dtype.kind == Kind.BOOL:
            pass
        elif not is_number(value):
            yield Broken(f"value {value!r} is not a number", numbers, advice="pass a Python number")
        elif dtype.is_packed and value != 0:
            yield Broken(
                f"value {value!r} for {dtype}, {dtype.lanes} values in one element: 0 is the only one",
                numbers,
                "load other values from HBM with nisa.dma_copy, or fill a .view() of it as integers",
            )
        elif dtype.kind == Kind.SCALE and not _is_scale(as_float(value)):
            yield Broken(
                f"value {value!r} does not fit {dtype}",
                (*numbers, f"{dtype} holds powers of two from 2**-127 to 2**127"),
                "pass a power of two, or fill a .view(nl.uint8) of it with exponent + 127",
            )
        elif dtype.is_packed or dtype.kind == Kind.SCALE:
            pass
        elif dtype.is_integer and not isinstance(value, Integral):
            yield Broken(f"value {value!r} is not an integer, and dst is {dtype}", numbers, "pass an int")
        elif dtype.kind == Kind.BOOL and value not in (0, 1):
            yield Broken(f"value {value!r} is no truth value, and dst is bool", numbers, "pass True, False, 0 or 1")
        elif not dtype.is_float and not dtype.min_value <= value <= dtype.max_value:
            limits = f"{dtype} holds {dtype.min_value:.0f} to {dtype.max_value:.0f}"
            yield Broken(
                f"value {value!r} does not fit {dtype}",
                (*numbers, limits),
                advice="pass a number within these limits, or take another dtype",
            )
        elif dtype.is_float and (overflows(value, dtype) or (math.isinf(as_float(value)) and not dtype.has_inf)):
            yield Broken(
                f"value {value!r} does not fit {dtype}",
                (*numbers, f"{dtype} ends at {dtype.max_value}"),
                advice="pass a number within these limits, or take another dtype",
            )
        if self.engine is Engine.gpsimd and self.dst.buffer is Memory.psum:
            yield Broken("GpSimd does not reach PSUM", numbers, "use nisa.engine.vector")

    def place(self, chip: Chip) -> tuple[Engine, frozenset[Engine]]:
        """Vector unless asked otherwise; GpSimd gives the same bits in SBUF."""
        if self.engine is Engine.unknown and self.dst.buffer is Memory.psum:
            return Engine.vector, frozenset({Engine.vector})
        return super().place(chip)

    def execute(self, lanes: Lanes) -> None:
        """Write the one value everywhere."""
        lanes.fill(self.dst, self.value)

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream out; zeros may pass faster."""
        quick = bool(self.value == 0)
        return (Lanewise("memset", self.dst.free_elements, (), stream(self.dst), quick=quick),)


def _is_scale(value: float) -> bool:
    """Return whether float8_e8m0fnu has a number: a power of two, or NaN."""
    return math.isnan(value) or (2.0**-127 <= value <= 2.0**127 and math.frexp(value)[0] == 0.5)


memset = emit(Memset)
