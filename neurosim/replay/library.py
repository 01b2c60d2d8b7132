"""Recordings that are kept to be replayed: those used last, as many as fit."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from neurosim.chip import Chip
from neurosim.memory import Bytes
from neurosim.program import Program
from neurosim.replay.tape import Classes, Tape
from neurosim.replay.template import places
from neurosim.timing import Timeline, TimingOptions, time

MOST_RECORDS: Final = 100_000
"""Of all recordings together. A record takes about 150 bytes, and 1.5 KB more once it was replayed with values."""
MOST_PROGRAMS: Final = 64
_METHODS: Final = ("rules", "access", "admit", "execute", "work", "place", "state", "holes", "written")
"""Of an instruction's class: what a test may replace for a while."""


@dataclass(eq=False)
class Recording:
    """What a run left to be replayed.

    Attributes:
        program: the record; each result has a copy.
        chip: what it was recorded on.
        classes: of each signature's instruction.
        returned: what the kernel returned, with places for tensors.
        constants: by storage, bytes that are there before the kernel begins.
        writers: of each operand that is written at an address, in the record's order, the number of the tensor.
        blank: storages that are read where nobody has written.
    """

    program: Program
    chip: Chip
    classes: Classes
    returned: Any
    constants: dict[int, Bytes]
    writers: Sequence[int] = ()
    blank: frozenset[int] = frozenset()
    _tape: Tape | None = None
    _timed: tuple[TimingOptions, dict[int, Timeline]] | None = None  # one is kept: it is as large as the record

    def __post_init__(self) -> None:
        self.outputs = frozenset(place.storage for place in places(self.returned))
        self._methods = self._found()

    def timelines(self, options: TimingOptions, program: Program) -> dict[int, Timeline]:
        """Return the record in time, to be kept with a copy of its program; computed once for the same options.

        What is done to these is not seen in the next ones.
        """
        timed = self._timed
        if timed is None or timed[0] != options:
            timed = self._timed = options, dict(time(self.program, self.chip, **options._asdict()))
        return {core: timeline.copy(self.program, program) for core, timeline in timed[1].items()}

    def keep_timelines(self, options: TimingOptions, program: Program, timelines: Mapping[int, Timeline]) -> None:
        """Keep the time of a program that nobody has changed since it was recorded."""
        self._timed = options, {core: timeline.copy(program, self.program) for core, timeline in timelines.items()}

    def _found(self) -> list[Any]:
        return [getattr(cls, name) for cls in dict.fromkeys(self.classes) for name in _METHODS]

    @property
    def is_intact(self) -> bool:
        """Whether nobody has replaced a part of an instruction since."""
        return self._methods == self._found()

    def tape(self) -> Tape:
        """Return the record as instructions; made when first asked for.

        Raises:
            Unreplayable: a record that cannot be made an instruction again.
        """
        if self._tape is None:
            self._tape = Tape(self.program, self.chip, self.classes, self.constants, self.writers, self.blank)
        return self._tape


class Library:
    """Recordings by key. Safe to be used by several threads."""

    def __init__(self, most_records: int = MOST_RECORDS, most_programs: int = MOST_PROGRAMS) -> None:
        self._most_records, self._most_programs = most_records, most_programs
        self._kept: OrderedDict[str, Recording] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> Recording | None:
        """Return a recording, None where there is none that is as it was."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None and not found.is_intact:
                del self._kept[key]
                found = None
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: str, recording: Recording) -> bool:
        """Keep a recording, and let go of those used longest ago; return whether it is not too long to be kept."""
        if len(recording.program) > self._most_records:
            return False
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = recording
            records = sum(len(kept.program) for kept in self._kept.values())
            while records > self._most_records or len(self._kept) > self._most_programs:
                records -= len(self._kept.popitem(last=False)[1].program)
        return True

    def drop(self, key: str) -> None:
        """Let go of a recording."""
        with self._lock:
            self._kept.pop(key, None)

    def clear(self) -> None:
        """Let go of all."""
        with self._lock:
            self._kept.clear()

    def __len__(self) -> int:
        return len(self._kept)


LIBRARY: Final = Library()
"""Of this process."""
