"""What a signature is known by, and keeps: values that can be compared, and the patterns of operands."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import numpy as np

from neurosim.chip import Chip
from neurosim.engines import Engine, Memory
from neurosim.execution.lanes import Lanes
from neurosim.execution.registers import registers_of
from neurosim.program import Access, Pattern
from neurosim.view import NkiTensor
from neurosim.views.indirect import IndirectTensor

FLOATS: Final = (float, np.generic)
"""What may be -0.0, scalars of ml_dtypes included."""


@dataclass(slots=True)
class Known:
    """What a run knows of a signature.

    Attributes:
        number: in the program's table.
        instruction: the class.
        engine, states: where it runs, and the registers there that it uses, as (kind, access).
        lanes: the access to values that all its calls share, None where each makes its own.
        registers: slots of the registers that all its calls share, once a call has set those that it writes.
    """

    number: int
    instruction: type[Any]
    engine: Engine
    states: tuple[tuple[str, Access], ...]
    lanes: Lanes | None
    registers: tuple[int, ...] | None = None


_INTS: Final = {int}


def getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that gives an object's attributes of these names."""
    if len(names) < 2:  # of one name, attrgetter gives no tuple
        return lambda value: tuple(getattr(value, name) for name in names)
    return attrgetter(*names)


def typed(value: Any) -> Hashable:
    """Return lists as tuples and leaves with their types: equal parameters are not the same if one is 1, one True.

    Nor are 0.0 and -0.0.
    """
    if isinstance(value, (list, tuple)):
        if value and type(value[0]) is int and set(map(type, value)) == _INTS:  # as most lists are
            return (int, tuple(value))
        return tuple([typed(entry) for entry in value])
    if isinstance(value, FLOATS) and not value:
        return (type(value), str(value))
    return (type(value), value if isinstance(value, Hashable) else repr(value))


def freeze(value: Any) -> Hashable:
    """Return lists as tuples, so that parameters can be compared and hashed."""
    if isinstance(value, (list, tuple)):
        return tuple(freeze(entry) for entry in value)
    try:
        hash(value)
    except (TypeError, ValueError):  # a memoryview says that it can be hashed, and some can
        return repr(value)
    hashed: Hashable = value
    return hashed


def pattern(role: str, tensor: NkiTensor, access: Access) -> Pattern:
    """Return how an operand walks its memory."""
    if isinstance(tensor, IndirectTensor):
        tensor = tensor.reach  # the compiler orders a dynamic access against all that it may reach
    on_chip = tensor.partition_axis >= 0
    return Pattern(
        role,
        access,
        tensor.buffer,
        tensor.dtype,
        tensor.shape,
        tensor.steps,
        tensor.partition_axis,
        tensor.start_partition,
        tensor.allocation.storage.row_bytes if on_chip else 0,
    )


def state_pattern(kind: str, access: Access, engine: Engine, chip: Chip) -> Pattern:
    """Return the pattern of an engine's registers."""
    found = registers_of(kind, engine, chip)
    shape, steps = (chip.partitions * found.words,), (1,)
    return Pattern(kind, access, Memory.state, found.dtype, shape, steps, -1, 0, 0)
