"""What a trace says of an instruction: its name, operands, parameters and kernel lines."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neurosim.program import Program
from neurosim.record.listing import operand_text, parameters_text, place_text

Ints = NDArray[np.int64]


class Text(NamedTuple):
    """What events say of their instruction, as JSON without the quotes and braces around it.

    Attributes:
        name: what the kernel called it, else the instruction.
        short: arguments of a slice on a DMA engine, of which one DMA makes sixteen.
        full: arguments of all others.
    """

    name: str
    short: str
    full: str


class Texts:
    """Texts by signature, call stack and given name, made once for all records that share them.

    Attributes:
        number: by record, of its text.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._names = [None, *dict.fromkeys(program.names.values())]
        numbers = {name: number for number, name in enumerate(self._names)}
        name = np.zeros(len(program), dtype=np.int64)
        name[list(program.names)] = [numbers[given] for given in program.names.values()]
        signature, stack = np.array(program.signature_ids, np.int64), np.array(program.stack_ids, np.int64)
        key = (signature * max(len(program.stacks), 1) + stack) * len(self._names) + name
        self._keys, number = np.unique(key, return_inverse=True)
        self.number: Ints = number.reshape(-1)
        self._found: dict[int, Text] = {}

    def __getitem__(self, number: int) -> Text:
        return self._found.get(number) or self._make(number)

    def _make(self, number: int) -> Text:
        rest, name_id = divmod(int(self._keys[number]), len(self._names))
        signature_id, stack_id = divmod(rest, len(self._program.stacks))
        signature, stack = self._program.signatures[signature_id], self._program.stacks[stack_id]
        short: dict[str, Any] = {
            "instruction": signature.instruction,
            "where": place_text(stack),
            "operands": {pattern.role: operand_text(pattern) for pattern in signature.patterns},
        }
        more = {
            "parameters": parameters_text(signature),
            "called_from": " < ".join(place_text(stack[depth:]) for depth in range(1, len(stack))),
        }
        full = short | {name: text for name, text in more.items() if text}
        name = self._names[name_id]
        found = Text(bare(signature.instruction if name is None else name), bare(short), bare(full))
        self._found[number] = found
        return found


def bare(value: Any) -> str:
    """Return a string or a dict as JSON, without the quotes or braces around it."""
    return json.dumps(value)[1:-1]
