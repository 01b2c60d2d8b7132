"""Scalar registers: move, load, store. They steer loops on the device and place views.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``register_alloc``, ``register_move``, ``register_load``,
``register_store``; ``release-notes/components/nki.rst`` (a tensor as ``register_alloc``'s argument).

*Assumed*: all run on the Sync engine's sequencer, and a copy for the engine that uses the register costs nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import index as as_int
from typing import Any, ClassVar

from neurosim.chip import Chip
from neurosim.datapath.rules import Broken
from neurosim.engines import HBM, Engine, Memory
from neurosim.errors import UnknownBehavior
from neurosim.execution.lanes import Lanes
from neurosim.execution.scalar_registers import END, LEAST, NO_NUMBERS, VirtualRegister, allocate
from neurosim.instruction import In, Instruction, Out, Tile, emit
from neurosim.kernel import current
from neurosim.work import Control, Work


class _Register(Instruction):
    """Base of instructions on a register: a sequencer executes them, also where no values are computed."""

    is_dma = True  # a sequencer is no data path: the rules of their accesses do not hold for it
    is_control = True
    name: ClassVar[str | None] = None  # NKI gives these no label

    dst: Any

    def admit(self, lanes: Lanes) -> None:
        """A loop's variable is read only."""
        if isinstance(self.dst, VirtualRegister):
            self.dst.check_writable(self.mnemonic)


class RegisterMove(_Register, mnemonic="register_move", engines=(Engine.sync,)):
    """dst = src: a whole number of 32 bits, or what another register holds."""

    dst: Tile = Out(Memory.state)
    src: Tile | int = In(Memory.state, number=True, strict=True)

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """A whole number that fits."""
        if not isinstance(self.src, VirtualRegister):
            yield whole(self.src)

    def execute(self, lanes: Lanes) -> None:
        """Copy the value and its format."""
        assert isinstance(self.dst, VirtualRegister)
        if not isinstance(self.src, VirtualRegister):
            self.dst.put(as_int(self.src))  # type: ignore[arg-type]
        elif self.src.known:
            self.dst.array()[...] = self.src.array()
            self.dst.holds, self.dst.known = self.src.holds, True
        else:
            self.dst.forget(self.src.holds)

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One move."""
        return (Control("move"),)


class RegisterLoad(_Register, mnemonic="register_load", engines=(Engine.sync,)):
    """dst = src: one element of SBUF or HBM, of up to 32 bits."""

    dst: Tile = Out(Memory.state)
    src: Tile = In(Memory.sbuf, *HBM, strict=True, dynamic=True)

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """One element."""
        yield one_element("src", self.src)

    def execute(self, lanes: Lanes) -> None:
        """Read the element; without values the register's is unknown."""
        assert isinstance(self.dst, VirtualRegister)
        if lanes.values:
            self.dst.put_bits(self.src.array(), self.src.dtype)
        else:
            self.dst.forget(self.src.dtype)

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One load from where the element is."""
        return (Control("load", self.src.buffer),)


class RegisterStore(_Register, mnemonic="register_store", engines=(Engine.sync,)):
    """dst = src: what a register holds, as one element of SBUF or HBM.

    *Unknown*: a float stored as a whole number and the reverse, and a whole number that does not fit.
    """

    dst: Tile = Out(Memory.sbuf, *HBM)
    src: Tile = In(Memory.state, strict=True)

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """One element."""
        yield one_element("dst", self.dst)

    def execute(self, lanes: Lanes) -> None:
        """Write the element in its own format."""
        if not lanes.values:
            return
        assert isinstance(self.src, VirtualRegister)
        held, target = self.src.holds, self.dst.dtype
        if held == target:
            size = target.size_bytes
            bits = self.src.allocation.storage.buffer[:size]
            self.dst.array()[...] = bits.view(target.numpy)[0]
            return
        if held.kind in NO_NUMBERS or target.kind in NO_NUMBERS:
            raise UnknownBehavior(
                f"register_store: {self.src.describe()} holds {held} and dst is {target}: the manual does not say how",
                advice="store into a tile of the same kind, and convert it with nisa.tensor_copy",
            )
        value = self.src.value()
        if not target.min_value <= value <= target.max_value:
            raise UnknownBehavior(f"register_store: {value} does not fit {target}", advice="store into an int32 tile")
        self.dst.array()[...] = value

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One store to where the element goes."""
        return (Control("store", self.dst.buffer),)


def whole(value: Any) -> Broken | None:
    """A register takes whole numbers of 32 bits."""
    if hasattr(value, "__index__") and LEAST <= as_int(value) < END:
        return None
    return Broken(f"src {value!r} is no whole number of 32 bits", (f"{LEAST} to {END - 1}",), "give an int")


def one_element(name: str, tensor: Tile) -> Broken | None:
    """A register holds one element."""
    if tensor.size == 1:
        return None
    return Broken(
        f"{name} has {tensor.size} elements; a register holds one",
        (f"{name}  {tensor.describe()}",),
        "slice one element, e.g. t[0:1, 0:1]",
    )


register_move = emit(RegisterMove)
register_load = emit(RegisterLoad)
register_store = emit(RegisterStore)


def register_alloc(x: int | Tile | None = None) -> VirtualRegister:
    """Return a new scalar register: unwritten, or moved from a whole number, or loaded from a tensor of one element.

    Raises:
        IllegalOperand: a number that does not fit 32 bits, a tensor of more than one element.
    """
    register = allocate(current("nisa.register_alloc"))
    if isinstance(x, Tile) and not isinstance(x, VirtualRegister):
        register_load(register, x)
    elif x is not None:
        register_move(register, x)
    return register
