"""What a signature is known by, and keeps: values that can be compared, and the patterns of operands."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np

from neurosim.chip import Chip
from neurosim.engines import Engine, Memory
from neurosim.execution.lanes import Lanes
from neurosim.execution.operands import Operand
from neurosim.execution.registers import registers_of
from neurosim.kernel import Kernel
from neurosim.memory import WRITTEN
from neurosim.program import Access, Pattern
from neurosim.view import NkiTensor
from neurosim.views.indirect import IndirectTensor

FLOATS: Final = (float, np.generic)
"""What may be -0.0, scalars of ml_dtypes included."""


class Known(NamedTuple):
    """What a run knows of a signature.

    Attributes:
        number: in the program's table.
        instruction: the class.
        engine, states: where it runs, and the registers there that it uses, as (kind, access).
        lanes: the access to values that all its calls share, None where each makes its own.
        admits: whether the class may refuse what operands have been through.
        in_part: whether it may write its results in part.
    """

    number: int
    instruction: type[Any]
    engine: Engine
    states: tuple[tuple[str, Access], ...]
    lanes: Lanes | None
    admits: bool
    in_part: bool


class Kinds:
    """The types of what a call gives: 1, 1.0 and True are equal, and not the same parameter."""

    __slots__ = ("_are_simple", "_floats", "_lists", "_results", "_state_written", "_tensors", "_tiles")

    def __init__(
        self, types: tuple[type, ...], declared: tuple[tuple[str, Operand | None], ...], state_written: int
    ) -> None:
        self._state_written = state_written
        self._tensors = [
            (place, name, operand)
            for place, (kind, (name, operand)) in enumerate(zip(types, declared, strict=True))
            if operand is not None and issubclass(kind, NkiTensor)
        ]
        self._results = [entry for entry in self._tensors if entry[2].is_written]
        self._tiles = [(place + 1, operand.is_written) for place, _, operand in self._tensors]
        self._floats = [place for place, kind in enumerate(types, start=1) if issubclass(kind, FLOATS)]
        self._lists = [place + 1 for place, kind in enumerate(types) if kind in (list, tuple)]
        # no tensor's place depends on values, and none is in a list: all can be compared
        self._are_simple = not any(
            issubclass(kind, IndirectTensor if operand is None else (IndirectTensor, list, tuple))
            for kind, (_, operand) in zip(types, declared, strict=True)
        )

    def look(
        self, given: tuple[Any, ...], kernel: Kernel
    ) -> tuple[Any, tuple[Any, ...] | None, list[int], list[NkiTensor]]:
        """Look at each of a call's tensors once.

        Returns:
            What is known of the signature, None where it asks for a closer look, or memory does: plain is what is
            read where all was written, and what shares no bytes; what the signature is known by, None where a closer
            look says that; the slots; and the tensors whose memory gets another state by being written.
        """
        slots: list[int] = []
        fresh: list[NkiTensor] = []
        if not self._are_simple:
            return None, None, slots, fresh
        parts: list[Any] = [self, *given]
        marks = kernel.marks
        is_plain = not kernel.dry
        for place, is_written in self._tiles:
            tensor = parts[place]
            parts[place] = tensor._key or tensor.key  # asked before, mostly
            allocation = tensor.allocation
            storage = allocation.storage
            slots += storage.id, tensor.offset_bytes
            if allocation.marks is not marks:
                is_plain = False
            elif not is_written:
                if storage.state < WRITTEN:
                    is_plain = False
            elif storage.borrowed:
                is_plain = False
            elif storage.state != self._state_written:
                fresh.append(tensor)
        for place in self._floats:
            if not parts[place]:
                parts[place] = str(parts[place])  # 0.0 and -0.0 are equal, and not the same parameter
        for place in self._lists:
            parts[place] = typed(parts[place])
        key = tuple(parts)
        try:
            found = kernel.straight.get(key)
        except (TypeError, ValueError):  # an array: rules say whether that is allowed
            return None, None, slots, fresh
        return found if is_plain else None, key, slots, fresh

    def operands(self, given: tuple[Any, ...]) -> list[tuple[str, NkiTensor, Operand]]:
        """Return name, tensor and declaration of each tensor."""
        return [(name, given[place], operand) for place, name, operand in self._tensors]

    def results(self, given: tuple[Any, ...]) -> list[tuple[str, NkiTensor, Operand]]:
        """Return those of each tensor that is written."""
        return [(name, given[place], operand) for place, name, operand in self._results]


class Calls:
    """What calls of an instruction give.

    Attributes:
        given: returns that of one call, in the declaration's order.
        kinds: by its types; those of a list and of a tuple are one.
    """

    __slots__ = ("_declared", "_state_written", "given", "kinds")

    def __init__(self, declared: tuple[tuple[str, Operand | None], ...], state_written: int) -> None:
        self._declared, self._state_written = declared, state_written
        self.given = getter([name for name, _ in declared])
        self.kinds: dict[tuple[type, ...], Kinds] = {}

    def add(self, types: tuple[type, ...]) -> Kinds:
        """Return the kinds of a call of such types for the first time."""
        same = tuple([tuple if kind is list else kind for kind in types])
        if same not in self.kinds:
            self.kinds[same] = Kinds(same, self._declared, self._state_written)
        found = self.kinds[types] = self.kinds[same]
        return found


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
        if value and set(map(type, value)) == _INTS:  # as most lists are
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
