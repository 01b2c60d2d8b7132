"""How an instruction declares its operands: ``In``, ``Out`` and ``Accumulate``, with the memories that each allows."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Final

from neurosim.engines import Memory
from neurosim.program import Access


@dataclass(frozen=True, slots=True)
class Operand:
    """How one operand is declared.

    Attributes:
        access: read, written, or accumulated into.
        memories: where it may live.
        number: whether a Python number may stand for it.
        strict: whether a hole in it raises at once (an index, a predicate) instead of travelling.
        optional: whether None may stand for it.
        dynamic: whether its place may be known at run time only.
        indirect: whether offsets may choose its elements (tensor indirection).
        several: whether it is a list of tensors.
        is_written: whether it is not only read.
    """

    access: Access
    memories: tuple[Memory, ...]
    number: bool = False
    strict: bool = False
    optional: bool = False
    dynamic: bool = False
    indirect: bool = False
    several: bool = False
    is_written: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_written", self.access is not Access.READ)


INDEX: Final = Operand(Access.READ, (Memory.sbuf,), strict=True)
USED: Final = Operand(Access.READ, (Memory.sbuf,))
"""An index whose used part was looked at already."""


def _field(operand: Operand, default: Any) -> Any:
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata={"operand": operand})
    return dataclasses.field(default=default, metadata={"operand": operand})


def In(
    *memories: Memory,
    number: bool = False,
    strict: bool = False,
    optional: bool = False,
    dynamic: bool = False,
    indirect: bool = False,
    several: bool = False,
    default: Any = dataclasses.MISSING,
) -> Any:
    """Declare an operand that is read. With ``default=None`` it may be left out."""
    operand = Operand(Access.READ, memories, number, strict, optional or default is None, dynamic, indirect, several)
    return _field(operand, default)


def Out(
    *memories: Memory,
    optional: bool = False,
    dynamic: bool = False,
    indirect: bool = False,
    default: Any = dataclasses.MISSING,
) -> Any:
    """Declare an operand that is written. With ``default=None`` it may be left out."""
    left_out = optional or default is None
    operand = Operand(Access.WRITE, memories, optional=left_out, dynamic=dynamic, indirect=indirect)
    return _field(operand, default)


def Accumulate(*memories: Memory, indirect: bool = False) -> Any:
    """Declare an operand that is overwritten or added to in place; the instruction looks at its state itself."""
    return _field(Operand(Access.ACCUMULATE, memories, indirect=indirect), dataclasses.MISSING)
