"""Registers of an engine's sequencer: one 32-bit scalar that steers loops and places views.

A register is state that instructions read and write like memory, so that dependences and unwritten checks hold: it is
a tensor of one element in ``Memory.state``. Sources: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``
(``VirtualRegister``, ``register_alloc``), ``nki-language-guide.rst`` ("Dynamic Control Flow").

*Assumed*, where these say nothing: a register remembers the format that it was loaded from; a whole number narrower
than 32 bits is widened with its sign; and a register that holds no whole number is no index, no bound and no condition.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np

from neurosim.dtypes import DType, Kind, int32, uint32
from neurosim.engines import Memory
from neurosim.errors import IllegalOperand, Uninitialized, UnknownBehavior, Unsupported
from neurosim.kernel import Kernel
from neurosim.memory import UNWRITTEN, WRITTEN, Allocation
from neurosim.view import Array, NkiTensor
from neurosim.views.indexing import indexed

LEAST: Final = -(1 << 31)
END: Final = 1 << 31
"""Whole numbers from ``LEAST`` up to ``END``, exclusive, fit a register."""
NO_NUMBERS: Final = (Kind.FLOAT, Kind.SCALE)
"""Kinds of formats that a register holds as their bits."""


class VirtualRegister(NkiTensor):
    """A scalar register, as ``nisa.register_alloc`` returns it.

    Attributes:
        holds: the format of what was put into it last.
        known: whether its value is known; only in runs without values it may not be.
        frozen: why it cannot be written, empty where it can.
    """

    __slots__ = ("frozen", "holds", "known")

    operator_advice = (
        "a register's value is known on the device only: as a place, give it itself, in t[nl.ds(i, size)] or "
        ".ap(…, scalar_offset=i); instead of a multiple of a loop's variable, count in steps of it "
        "(nl.fori_loop(…, step=128)); for the rest compute in an SBUF tile, and load that with nisa.register_load"
    )

    def __init__(self, allocation: Allocation) -> None:
        super().__init__(allocation, int32, (1,), (1,), -1, 0, 0)
        self.holds: DType = int32
        self.known = False
        self.frozen = ""

    def describe(self) -> str:
        """The register's name, for messages."""
        return f"register {self.allocation.label}"

    def __repr__(self) -> str:
        return f"VirtualRegister({self.allocation.label})"

    def __str__(self) -> str:
        if self.allocation.storage.state == UNWRITTEN:
            return f"{self.describe()}, never written"
        return f"{self.describe()} = {self.value() if self.known else 'unknown without values'}"

    def __getitem__(self, key: Any) -> NkiTensor:
        """Raise IllegalOperand, whatever the key."""
        return indexed(self, key)

    def _with(self, *_: Any, **__: Any) -> NkiTensor:
        raise IllegalOperand(
            f"a view of {self.describe()}: a register is one scalar",
            advice="store it into a tensor with nisa.register_store",
        )

    # -- its value ------------------------------------------------------------------------------------------------

    def value(self) -> int:
        """Return the whole number that the register holds.

        Raises:
            Uninitialized: nothing was put into it.
            UnknownBehavior: it holds a float.
            Unsupported: the run computes no values, and this one is not known without.
        """
        if self.allocation.storage.state < WRITTEN:
            raise Uninitialized(
                f"{self.describe()} is read and was never written",
                numbers=(f"allocated at {self.allocation.where[0] if self.allocation.where else 'an unknown place'}",),
                advice="give register_alloc a number, or load it with nisa.register_load",
            )
        if not self.known:
            raise Unsupported(
                f"{self.describe()}: its value is needed, and this run computes none",
                advice="run with values=True, or give the number itself",
            )
        if self.holds.kind in NO_NUMBERS:
            raise UnknownBehavior(
                f"{self.describe()} holds {self.holds} and is used as a whole number: the manual does not say how",
                advice="convert the tile to nl.int32 with nisa.tensor_copy before nisa.register_load",
            )
        dtype = np.uint32 if self.holds == uint32 else np.int32
        return int(self.allocation.storage.buffer.view(dtype)[0])

    def put(self, value: int) -> None:
        """Make the register hold a whole number within 32 bits."""
        self.allocation.storage.buffer.view(np.int32)[0] = value
        self.allocation.storage.state = WRITTEN
        self.holds, self.known = int32, True

    def put_bits(self, source: Array, dtype: DType) -> None:
        """Make the register hold one element: whole numbers with their value, the rest with their bits."""
        buffer = self.allocation.storage.buffer
        if dtype.kind in NO_NUMBERS or dtype == uint32:
            buffer[:] = 0
            buffer[: dtype.size_bytes] = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
        else:
            buffer.view(np.int32)[0] = int(source.reshape(-1)[0])
        self.holds, self.known = dtype, True

    def forget(self, dtype: DType) -> None:
        """Make the register hold something unknown, as loads do in runs without values."""
        self.holds, self.known = dtype, False

    def check_writable(self, call: str) -> None:
        """Raise IllegalOperand where the register must not be written."""
        if self.frozen:
            raise IllegalOperand(
                f"{call}: {self.describe()} is {self.frozen}", advice="carry state through SBUF or HBM"
            )

    def lanes(self) -> Array:
        """Return the value as an index, [1, 1]."""
        return np.array([[self.value()]], np.int64)

    # -- what Python asks -----------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        from neurosim.execution.device_loops import while_test  # a loop is made of instructions

        return while_test(self, sys._getframe(1))

    def _number(self) -> int:
        raise IllegalOperand(
            f"{self.describe()} as a Python number: its value is known on the device only",
            advice="loop with nl.fori_loop or nl.while_loop; as an offset take .ap(scalar_offset=…) or nl.ds(…)",
        )

    __int__ = __index__ = __float__ = _number


def allocate(kernel: Kernel, name: str = "") -> VirtualRegister:
    """Return a new register that holds nothing."""
    return VirtualRegister(kernel.scalar_register(name))


def is_register(value: Any) -> bool:
    """Return whether a value is a register, also where its module must not be known."""
    return isinstance(value, NkiTensor) and value.buffer is Memory.state
