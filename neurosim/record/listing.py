"""A program as text: one line per record, for eyes and for golden tests.

``:=`` marks an operand that is written, ``+=`` one that is accumulated into, ``=`` one that is read. An operand is
its tensor's name, the byte offset of its first element where that is not 0, the first partition where that is not 0,
dtype, shape and memory, and the steps (in elements) where the elements are not dense. ``trip 2.0`` is the first trip of
a loop on the device, in the third of another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

import numpy as np

from neurosim.program import Access, Frame, Pattern, Program, Signature

_SIGNS = {Access.READ: "=", Access.WRITE: ":=", Access.ACCUMULATE: "+="}


def listing(program: Program, first: int = 0, last: int | None = None) -> str:
    """Return a heading and the records from ``first`` up to but not including ``last``, a line each."""
    return "\n".join((heading(program), *lines(program, first, last))) + "\n"


def heading(program: Program) -> str:
    """Return what the program is and how large, in one line."""
    counts = (
        (len(program), "record"),
        (len(program.signatures), "signature"),
        (len(program.storages), "tensor"),
    )
    sizes = ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for count, name in counts)
    return f"program for {program.chip_name} (NeuronCore-v{program.generation}): {sizes}"


def lines(program: Program, first: int = 0, last: int | None = None) -> Iterator[str]:
    """Yield a line per record: index, engine, instruction, operands, parameters, file and line."""
    index_width = len(str(max(len(program) - 1, 0)))
    width = max((len(signature.instruction) for signature in program.signatures), default=0)
    has_cores = any(program.cores)
    fixed = [_fixed_text(signature) for signature in program.signatures]
    producers = _producers(program)
    partners = _partners(program)
    for index in range(len(program))[first:last]:
        signature_id = program.signature_ids[index]
        signature = program.signatures[signature_id]
        core = f"core {program.cores[index]}  " if has_cores else ""
        parts = [_operands(program, index, fixed[signature_id]), parameters_text(signature)]
        if index in program.names:
            parts.append(f"name={program.names[index]!r}")
        if program.trip_ids[index] >= 0:
            parts.append("trip " + ".".join(map(str, trip_numbers(program, program.trip_ids[index]))))
        if index in producers:
            parts.append("after " + ", ".join(map(str, producers[index])))
        if index in partners:
            parts.append("meets " + ", ".join(map(str, partners[index])))
        yield (
            f"{index:>{index_width}}  {core}{signature.engine.name:<6}  {signature.instruction:<{width}}  "
            f"{'; '.join(filter(None, parts))}  {_place(program, index)}"
        )


def trip_numbers(program: Program, trip: int) -> tuple[int, ...]:
    """Return the number of a trip of a loop on the device, behind those of the loops around it, outermost first."""
    numbers: list[int] = []
    while trip >= 0:
        found = program.trips[trip]
        numbers.append(found.number)
        trip = found.parent
    return tuple(reversed(numbers))


def operand_text(pattern: Pattern) -> str:
    """Return dtype, shape and memory: ``bfloat16[128, 512] SBUF``."""
    return f"{pattern.dtype}{list(pattern.shape)} {pattern.memory.label}"


def parameters_text(signature: Signature) -> str:
    """Return the parameters that were given: ``op0=nl.multiply, operand0=2.0``."""
    given = ((name, value_text(value)) for name, value in signature.parameters if not _is_absent(value))
    return ", ".join(f"{name}={text}" for name, text in given)


def value_text(value: Any) -> str:
    """Return a parameter as people write it; NumPy's scalars as plain numbers."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, tuple):
        return f"({', '.join(map(value_text, value))}{',' if len(value) == 1 else ''})"
    return repr(value.item() if isinstance(value, np.generic) else value)


def place_text(stack: tuple[Frame, ...]) -> str:
    """Return ``file:line`` of a call stack's innermost kernel frame."""
    return f"{stack[0].file}:{stack[0].line}" if stack else "?"


def _is_absent(value: Any) -> bool:
    """Whether a parameter was left out: NKI's words for that are None, ``()`` and ``unknown``."""
    return value is None or (isinstance(value, tuple) and not value) or value_text(value) == "unknown"


def _fixed_text(signature: Signature) -> list[tuple[str, str]]:
    """Return, by operand, what comes before its tensor's name and offset, and what comes after."""
    return [
        (f"{pattern.role}{_SIGNS[pattern.access]}", f"{_partition(pattern)} {operand_text(pattern)}{_steps(pattern)}")
        for pattern in signature.patterns
    ]


def _operands(program: Program, index: int, fixed: list[tuple[str, str]]) -> str:
    """Return a record's operands, with the names of their tensors and byte offsets."""
    slots = program.slots[program.slot_starts[index] : program.slot_starts[index + 1]]
    texts = []
    for storage, offset_bytes, (before, behind) in zip(slots[::2], slots[1::2], fixed, strict=True):
        offset = f"+{offset_bytes}" if offset_bytes else ""
        texts.append(f"{before}{program.storages[storage].name}{offset}{behind}")
    return ", ".join(texts)


def _producers(program: Program) -> dict[int, list[int]]:
    """Return, by record, the records that the kernel asked it to wait for, each once."""
    producers: dict[int, set[int]] = {}
    for consumer, producer in program.edges:
        producers.setdefault(consumer, set()).add(producer)
    return {consumer: sorted(found) for consumer, found in producers.items()}


def _partners(program: Program) -> dict[int, list[int]]:
    """Return, by record, the records of other cores that it meets."""
    meetings = [range(first, first + count) for first, count in program.meetings]
    return {index: [other for other in meeting if other != index] for meeting in meetings for index in meeting}


def _partition(pattern: Pattern) -> str:
    return f" from partition {pattern.start_partition}" if pattern.start_partition else ""


def _steps(pattern: Pattern) -> str:
    """Return the steps, unless the elements lie one after the other (in each partition, the partitions too)."""
    dense = 1
    for axis in reversed(range(len(pattern.shape))):
        step, extent = pattern.steps[axis], pattern.shape[axis]
        expected = 1 if axis == pattern.partition_axis else dense
        if extent > 1 and step != expected:
            return f" steps {list(pattern.steps)}"
        if axis != pattern.partition_axis:
            dense *= extent
    return ""


def _place(program: Program, index: int) -> str:
    """Return the record's file, without its folders, and line: the same from whatever folder the kernel was run."""
    stack = program.where(index)
    return f"{stack[0].file.replace(chr(92), '/').rpartition('/')[2]}:{stack[0].line}" if stack else "?"
