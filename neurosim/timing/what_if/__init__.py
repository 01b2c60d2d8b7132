"""What a kernel would take if something were otherwise: never estimated, the recorded program is timed again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neurosim.chip import Chip
from neurosim.errors import ConfigurationError
from neurosim.program import Program
from neurosim.timing.edits import Edit, has_wide_matmuls, operands_of, removable
from neurosim.timing.options import TimingOptions
from neurosim.timing.schedule import makespan_ps
from neurosim.timing.what_if.vocabulary import figures_of, words

__all__ = ["WhatIf", "what_if", "words"]

_OPTIONS: Final = ("schedule", "throttle")
_KERNEL: Final = ("matmul", "overwrites", "without", "earliest")


@dataclass(frozen=True, repr=False)
class WhatIf:
    """What would follow from some changes.

    Attributes:
        changes: what was asked for, by word.
        text: the changes in words.
        before_ps, after_ps: the kernel's makespan as it is, and with the changes.
        chip: the variant of the chip that was timed.
        timing: the options that were timed with.
        edit: what was timed in place of the record.
    """

    changes: Mapping[str, Any]
    text: str
    before_ps: int
    after_ps: int
    chip: Chip
    timing: TimingOptions
    edit: Edit

    @property
    def gain_ps(self) -> int:
        """By how much the kernel would be shorter; negative where it would be longer."""
        return self.before_ps - self.after_ps

    @property
    def speedup(self) -> float:
        """How many times as fast the kernel would be."""
        return self.before_ps / self.after_ps if self.after_ps else float("inf")

    def __str__(self) -> str:
        before, after = (f"{ps / 1e6:,.2f} µs" for ps in (self.before_ps, self.after_ps))
        return f"{self.text}: {before} would be {after}, {self.speedup:.3g} times as fast"

    def __repr__(self) -> str:
        return f"WhatIf({self})"


def what_if(
    program: Program, chip: Chip, timing: TimingOptions, changes: Mapping[str, Any], before_ps: int, text: str = ""
) -> WhatIf:
    """Return what would follow from some changes, all at once.

    Args:
        program: what was recorded.
        chip: what it ran on.
        timing: how it was timed.
        changes: by name: a word of :func:`words` with a factor; a figure's path with a value in its unit; ``schedule``
            or ``throttle`` as :class:`TimingOptions` has them; ``matmul="bfloat16"`` where 4-byte floats are
            multiplied; ``overwrites=False``, where no write waits for what it overwrites;
            ``without`` places (``"matmul.py:61"``, ``"matmul.py"``) or numbers of records, whose instructions take
            no time; ``earliest={record: start_ps}``, before which records do not start.
        before_ps: the makespan without the changes.
        text: the changes in words; by default as they are given.

    Raises:
        ConfigurationError: a name is unknown, a value makes no sense, or nothing is changed.
        CapacityExceeded: the chip with the changes has too little space.
    """
    if not changes:
        raise ConfigurationError("what_if: nothing is changed", advice="name a change, such as dma_bandwidth=2")
    own = {name: value for name, value in changes.items() if name in (*_OPTIONS, *_KERNEL)}
    figures = {name: value for name, value in changes.items() if name not in own}
    variant = chip.replace(**figures_of(chip, figures, (*_OPTIONS, *_KERNEL)))
    options = timing._replace(**{name: own[name] for name in _OPTIONS if name in own}).check(variant)
    edit = _edit(program, own)
    after_ps = makespan_ps(program, variant, options.schedule, throttle=options.throttle, edit=edit)
    given = text or ", ".join(f"{name}={_said(value)}" for name, value in changes.items())
    return WhatIf(dict(changes), given, before_ps, after_ps, variant, options, edit)


def _said(value: Any) -> str:
    if isinstance(value, tuple):
        return " and ".join(map(_said, value))
    return value if isinstance(value, str) else str(value)


def _edit(program: Program, given: Mapping[str, Any]) -> Edit:
    overwrites = given.get("overwrites", True)
    if not isinstance(overwrites, bool):
        raise ConfigurationError(f"what_if: overwrites={overwrites!r} is not a bool", advice="pass True or False")
    if "matmul" in given and not has_wide_matmuls(program):
        raise ConfigurationError(
            f"what_if: matmul={given['matmul']!r} changes nothing",
            numbers=("the kernel multiplies no 4-byte floats",),
            advice="ask it of a kernel that multiplies float32",
        )
    gone = None
    if "without" in given:
        gone = removable(program, records_at(program, given["without"]))
        if not gone.any():
            raise ConfigurationError(
                f"what_if: without={given['without']!r}",
                numbers=("nothing there can be left out: it orders what is around it",),
                advice="name a line with an instruction other than a meeting of cores or the head of a loop",
            )
    operands = operands_of(given["matmul"]) if "matmul" in given else None
    return Edit(gone, operands, overwrites, _earliest(program, given["earliest"]) if "earliest" in given else None)


def _earliest(program: Program, given: Any) -> NDArray[np.int64]:
    times = np.zeros(len(program), dtype=np.int64)
    for record, start_ps in given.items() if isinstance(given, Mapping) else ((None, None),):
        known = isinstance(record, int) and 0 <= record < len(program)
        if not known or not isinstance(start_ps, int) or start_ps < 0:
            raise ConfigurationError(
                f"what_if: earliest={given!r}",
                numbers=(f"records are 0 to {len(program) - 1}, times are whole picoseconds",),
                advice="give a time for each record, as in {17: 1_000_000}",
            )
        times[record] = start_ps
    return times


def records_at(program: Program, given: Any) -> list[int]:
    """Return the records that places or numbers name.

    Raises:
        ConfigurationError: there is no such record, or none comes from there.
    """
    try:
        places = [given] if isinstance(given, str) else list(given)
    except TypeError:  # one, or what names none
        places = [given]
    stacks = np.array(program.stack_ids, dtype=np.int64)
    found: set[int] = set()
    for place in places:
        if isinstance(place, str):
            wanted = np.array([any(frame.is_at(place) for frame in stack) for stack in program.stacks], dtype=bool)
            records = np.flatnonzero(wanted[stacks]).tolist() if len(stacks) else []
        elif isinstance(place, int | np.integer) and not isinstance(place, bool) and 0 <= place < len(program):
            records = [int(place)]
        else:
            raise ConfigurationError(
                f"what_if: without={place!r} names no instruction",
                numbers=(f"records are 0 to {len(program) - 1}, places are as in matmul.py:61",),
                advice="give one of these",
            )
        if not records:
            raise ConfigurationError(
                f"what_if: no instruction comes from {place}",
                numbers=(f"lines: {', '.join(_lines(program))}",),
                advice="write a line of the kernel, as in matmul.py:61",
            )
        if isinstance(place, str) and len(records) == len(program) and not _LINE.search(place):
            raise ConfigurationError(
                f"what_if: every instruction comes from {place}: without it, nothing would be left to time",
                numbers=(f"lines: {', '.join(_lines(program))}",),
                advice="write one of its lines, too, as in matmul.py:61",
            )
        found.update(records)
    return sorted(found)


_LISTED: Final = 8
_LINE: Final = re.compile(r":\d+$")


def _lines(program: Program) -> Iterable[str]:
    """Return the lines of some instructions."""
    names = sorted({f"{stack[0].file}:{stack[0].line}" for stack in program.stacks if stack})
    return (*names[:_LISTED], *(("…",) if len(names) > _LISTED else ()))
