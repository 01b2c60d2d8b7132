"""Many lines of text that differ in numbers: written by compiled code, since a trace has millions of them.

A form is a text with holes. ``hole(column)`` marks one; a line is a form and a row of numbers. Python makes each form
once and never touches the lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neurosim.jit import compiled

Ints = NDArray[np.int64]

SEPARATOR: Final = ",\n"
"""What stands between the events of a trace; each form begins with it."""

PLAIN: Final = 0
"""A number as it is."""
THOUSANDTHS: Final = 1
"""A number as thousandths of what is written: 1234 is ``1.234``."""
HEX: Final = 2
"""A number in base 16, after ``0x``."""

_MARK: Final = "\x00"
_KINDS: Final = 3
_MOST_DIGITS: Final = 24


def hole(column: int, kind: int = PLAIN) -> str:
    """Return a place in a form that is filled with the number of a column, which is not negative."""
    return f"{_MARK}{column * _KINDS + kind}{_MARK}"


class Forms:
    """Forms as compiled code reads them: literals one after the other, each with the hole that follows it."""

    def __init__(self, texts: Sequence[str]) -> None:
        literals: list[bytes] = []
        holes: list[int] = []
        first_part, sizes_bytes = [0], []
        for text in texts:
            parts = text.split(_MARK)
            literals += [part.encode() for part in parts[::2]]
            holes += [*map(int, parts[1::2]), -1]
            first_part.append(len(holes))
            sizes_bytes.append(len(text.encode()) + _MOST_DIGITS * (len(parts) // 2))
        self._literals = np.frombuffer(bytearray(b"".join(literals)), dtype=np.uint8)
        self._literal_ends: Ints = np.cumsum([0, *map(len, literals)], dtype=np.int64)
        self._holes: Ints = np.array(holes, dtype=np.int64)
        self._first_part: Ints = np.array(first_part, dtype=np.int64)
        self._sizes_bytes: Ints = np.array(sizes_bytes, dtype=np.int64)

    def fill(self, form: Ints, columns: Sequence[Any]) -> memoryview:
        """Return the lines, one after the other.

        Args:
            form: by line, which form.
            columns: of integers, each by line.
        """
        numbers = np.empty((max(len(columns), 1), len(form)), dtype=np.int64)
        for row, column in zip(numbers, columns, strict=False):
            row[:] = column
        out = np.empty(int(self._sizes_bytes[form].sum()), dtype=np.uint8)
        form = np.ascontiguousarray(form, dtype=np.int64)
        size = _fill(out, self._literals, self._literal_ends, self._holes, self._first_part, form, numbers)
        return out[:size].data


@compiled
def _fill(
    out: NDArray[np.uint8],
    literals: NDArray[np.uint8],
    literal_ends: Ints,
    holes: Ints,
    first_part: Ints,
    forms: Ints,
    numbers: Any,
) -> int:
    """Write the lines into ``out`` and return how many bytes they take."""
    at = 0
    for line in range(len(forms)):
        form = forms[line]
        for part in range(first_part[form], first_part[form + 1]):
            for index in range(literal_ends[part], literal_ends[part + 1]):
                out[at] = literals[index]
                at += 1
            if holes[part] < 0:
                continue
            value = numbers[holes[part] // _KINDS, line]
            kind = holes[part] % _KINDS
            base = 16 if kind == HEX else 10
            if kind == HEX:
                out[at] = 48  # "0"
                out[at + 1] = 120  # "x"
                at += 2
            digits = 1
            rest = value // base
            while rest > 0:
                rest //= base
                digits += 1
            if kind == THOUSANDTHS:
                digits = max(digits, 4) + 1  # with the point
            at += digits
            for place in range(1, digits + 1):
                if kind == THOUSANDTHS and place == 4:
                    out[at - place] = 46  # "."
                    continue
                digit = value % base
                value //= base
                out[at - place] = digit + (48 if digit < 10 else 87)
    return at
