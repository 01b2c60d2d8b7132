"""The error family, and how a message is laid out.

Each message has four parts: what (instruction, operand), where (kernel file:line, innermost frame first),
numbers (limit and actual, shape, dtype, memory, byte range), and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

REPORT: Final = (
    "this is a mistake of neurosim and none of the kernel: please report it, with the file that program.save writes"
)


_OBJECT: Final = re.compile(
    r"<(?:class '(?P<class>[\w.<>]+)'"
    r"|(?:bound |built-in )?(?:function|method) (?P<function>[\w.]*(?:<\w+>)?[\w.]*)(?: of <[^>]*>| [^>]*)?"
    r"|module '(?P<module>[\w.]+)'.*?|(?P<object>[\w.<>]+) object(?: at 0x[0-9a-f]+)?)>"
)
"""How Python shows classes, functions, modules and what has no text of its own."""


def plain(text: str) -> str:
    """Return a message with names in place of what Python shows of objects, addresses in memory among it."""
    if "<" not in text:
        return text
    return _OBJECT.sub(lambda found: f"the {found.lastgroup} {found[found.lastgroup or 0]}", text)


class NeurosimError(Exception):
    """Base of everything that neurosim raises on purpose. Whoever raises one says what to do.

    Attributes:
        what: the instruction or operand, and what is wrong with it.
        where: kernel ``file:line`` entries, innermost first.
        numbers: facts, one per line.
        advice: what to do.
    """

    def __init__(self, what: str, *, where: Sequence[str] = (), numbers: Sequence[str] = (), advice: str = "") -> None:
        self.what = plain(what)
        self.where = tuple(where)
        self.numbers = tuple(map(plain, numbers))
        self.advice = advice
        super().__init__(self.what)

    def at(self, where: Sequence[str]) -> NeurosimError:
        """Fill in the place, unless it is known already; returns self for ``raise error.at(...)``."""
        if not self.where:
            self.where = tuple(where)
        return self

    def __str__(self) -> str:
        lines = [self.what, *self.where, *self.numbers]
        if self.advice:
            lines.append(self.advice)
        return "\n  ".join(lines)


class KernelError(NeurosimError):
    """The kernel is wrong."""


class NkiValidationError(KernelError):
    """NKI's own name for a broken hardware constraint (``nki.isa.NkiValidationError``)."""


class IllegalOperand(NkiValidationError):
    """A rule of an instruction is broken."""


def no_kernel(value: object, why: str = "") -> IllegalOperand:
    """Return the error for what was given as a kernel and is none; ``why`` begins with a colon."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:
        return IllegalOperand(f"{value!r} is no kernel{why}", advice="give a function, or what @nki.jit made of one")
    return IllegalOperand(
        f"an array {tuple(shape)} of {dtype} is no kernel",
        advice="give the kernel itself, and its arguments to what comes back: profile(kernel)(x)",
    )


class IllegalCall(IllegalOperand, TypeError):
    """An instruction was called with an operand that it does not have, or without one that it needs."""


class UnknownName(KernelError, AttributeError):
    """A name that NKI does not have. An AttributeError too, so that ``hasattr`` works."""


class OutOfBounds(KernelError, IndexError):
    """A view leaves its tensor, or a DMA index leaves its range."""


class Uninitialized(KernelError):
    """A read of bytes that nobody wrote, or a result that depends on them."""


class UnwrittenOutput(KernelError):
    """A kernel output has bytes that were never stored. ``outputs`` carries the arrays as they are."""

    outputs: Any = None


class CapacityExceeded(KernelError):
    """The live tiles do not fit into SBUF or PSUM."""


class DataRace(KernelError):
    """Two cores access the same bytes, one of them to write, without a meeting between them."""


class Deadlock(KernelError):
    """No core can move."""


class LoopCarriedDependence(KernelError):
    """An iteration of a legacy ``affine_range`` needs another's result."""


class Unsupported(NeurosimError):
    """Real on hardware, not built here."""


class UnknownBehavior(NeurosimError):
    """The manual does not say what happens; neurosim refuses to guess."""


class ConfigurationError(NeurosimError):
    """A device file or an option is wrong."""


class SimulatorBug(NeurosimError):
    """Our own mistake. Please report it with the program that triggers it."""

    def __init__(self, what: str, *, where: Sequence[str] = (), numbers: Sequence[str] = (), advice: str = "") -> None:
        super().__init__(what, where=where, numbers=numbers, advice=advice or REPORT)
