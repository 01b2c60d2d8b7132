"""Call stacks of kernels: which frames are a kernel's, and the numbers that the record keeps of stacks.

A stack is asked for at each instruction, so frames are told apart by their code's identity, and a stack that was seen
before is one look into a dict.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import warnings
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, TypeVar

from neurosim.execution import seen
from neurosim.program import Frame
from neurosim.record.sources import notice

F = TypeVar("F", bound=Callable[..., Any])

_OWN_FOLDERS = tuple(
    str(Path(folder)) + "/" for folder in (Path(__file__).parents[1], Path(__file__).parents[2] / "isa")
)
_OWN_FOLDERS += (contextlib.__file__,)  # stands between a kernel's line and our context managers
_KERNELS = str(Path(__file__).parents[1] / "_kernels") + "/"
_BOUNDARY: list[CodeType] = []

_SKIP: Final = -1
_STOP: Final = -2
"""What frames of code that is no kernel's do to a call stack: nothing, and end it."""
_NOBODY: Final = object()
_MOVES: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
"""Flags of code whose frames go on under another caller than they began under."""

_MOST_FRAMES: Final = 4096
_frames: Final[dict[tuple[int, int], tuple[CodeType, str, Frame]]] = {}
"""Frames that were made last, by the id of their code and the place in it, with the code and the working directory."""


def boundary(function: F) -> F:
    """Mark the function that calls kernels: call stacks end there."""
    _BOUNDARY.append(function.__code__)
    return function


class CallStacks:
    """The call stacks of one run, numbered in the order in which they were first seen.

    Attributes:
        stacks: by number, the frames, innermost first; the program's own table.
        frame: the kernel's frame that was asked about last: those that called it stand still as long as it runs.
        here: by place in it, the number.
    """

    def __init__(self, stacks: list[tuple[Frame, ...]]) -> None:
        self.stacks = stacks
        self.frame: object = _NOBODY
        self.here: dict[int, int] = {}
        self._outer: tuple[int, ...] = ()  # what the frames that called it are known by
        self._caller: object = _NOBODY  # the frame that called it, and where
        self._caller_at = 0
        self._numbers: dict[tuple[int, ...], int] = {}  # by (code's number, place in it) per frame
        self._roles: dict[int, int] = {}  # by id of code, its number, _SKIP or _STOP
        self._codes: dict[tuple[CodeType, str], int] = {}  # equal code may stand in several files
        self._seen: list[CodeType] = []  # kept, so that no other code gets its id

    def forget(self) -> None:
        """Let go of the frame, and with it of the kernel's variables."""
        self.frame, self.here, self._outer, self._caller = _NOBODY, {}, (), _NOBODY

    def number(self, frame: FrameType | None) -> int:
        """Return the number of the kernel's call stack at ``frame``, or at the frame of the kernel that called it."""
        known_role, role = self._roles.get, _STOP
        while frame is not None:
            found = known_role(id(frame.f_code))
            role = self._role(frame.f_code) if found is None else found
            if role != _SKIP:
                break
            frame = frame.f_back
        if frame is None or role == _STOP:
            return self._numbered(())
        last = frame.f_lasti
        if frame is self.frame:
            known = self.here.get(last)
            if known is None:
                known = self.here[last] = self._numbered((role, last, *self._outer))
            return known
        caller = frame.f_back
        if frame is self._caller:
            outer = self._outer[2:]  # it goes on after a call
        elif caller is not None and caller is self._caller and caller.f_lasti == self._caller_at:
            outer = self._outer  # it is called where another was
        else:
            outer = self._walk(caller)
        known = self._numbered((role, last, *outer))
        if not frame.f_code.co_flags & _MOVES:
            self.frame, self.here, self._outer = frame, {last: known}, outer
            if caller is None or caller.f_code.co_flags & _MOVES:
                self._caller = _NOBODY
            else:
                self._caller, self._caller_at = caller, caller.f_lasti
        return known

    def _walk(self, frame: FrameType | None) -> tuple[int, ...]:
        """Return what the kernel's call stack is known by from a frame outwards."""
        key: list[int] = []
        while frame is not None and (role := self._role(frame.f_code)) != _STOP:
            if role >= 0:
                key += (role, frame.f_lasti)
                if frame is self.frame:
                    return (*key, *self._outer)
            frame = frame.f_back
        return tuple(key)

    def _numbered(self, place: tuple[int, ...]) -> int:
        known = self._numbers.get(place)
        return self._add(place) if known is None else known

    def _role(self, code: CodeType) -> int:
        """Return the number of a kernel's code, the same for equal code of a file; ``_SKIP`` or ``_STOP`` for other."""
        known = self._roles.get(id(code))
        if known is not None:
            return known
        if code in _BOUNDARY:
            role = _STOP
        elif is_own(code):
            role = _SKIP
        else:
            notice(code)
            role = self._codes.setdefault((code, code.co_filename), len(self._codes))
        self._roles[id(code)] = role
        self._seen.append(code)
        return role

    def _add(self, key: tuple[int, ...]) -> int:
        codes, folder = list(self._codes), _folder()
        self.stacks.append(
            tuple(_frame(codes[role][0], last, folder) for role, last in zip(key[::2], key[1::2], strict=True))
        )
        self._numbers[key] = len(self.stacks) - 1
        return self._numbers[key]


def where_raised(error: BaseException) -> tuple[str, ...]:
    """Return the kernel frames that an error came through as text, innermost first."""
    frames: list[str] = []
    entry = error.__traceback__
    while entry is not None:
        code = entry.tb_frame.f_code
        if code in _BOUNDARY:
            frames.clear()
        elif not is_own(code):
            frames.append(f"{_short(code.co_filename)}:{entry.tb_lineno}  in {_function(code)}")
        entry = entry.tb_next
    return tuple(reversed(frames))


def warn(text: str, category: type[Warning]) -> None:
    """Warn at the innermost line that is not the simulator's own."""
    seen.note(f"it warns: {text}")
    frame, level = sys._getframe(1), 2
    while frame is not None and is_own(frame.f_code):
        frame, level = frame.f_back, level + 1  # type: ignore[assignment]
    warnings.warn(text, category, stacklevel=level)


def is_own(code: CodeType) -> bool:
    """Return whether code is the simulator's; the kernels that the wheel carries are not."""
    return code.co_filename.startswith(_OWN_FOLDERS) and not is_packaged(code)


def is_packaged(code: CodeType) -> bool:
    """Return whether code is a kernel's that the wheel carries."""
    return code.co_filename.startswith(_KERNELS)


def _folder() -> str:
    """Return the working directory, nothing where it is gone."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def _frame(code: CodeType, last: int, folder: str) -> Frame:
    """Return the frame of a kernel's code that is at an instruction of Python, as seen from a working directory.

    Many stacks have it. It is found by the code object itself, as equal ones may stand in other files and columns.
    """
    found = _frames.get((id(code), last))
    if found is not None and found[0] is code and found[1] == folder:
        return found[2]
    line, column = _place(code, last)
    frame = Frame(_short(code.co_filename), line, _function(code), code.co_filename, last, column)
    if len(_frames) >= _MOST_FRAMES:
        _frames.clear()
    _frames[id(code), last] = code, folder, frame
    return frame


def _function(code: CodeType) -> str:
    return code.co_qualname.split(".")[-1]


def _short(file: str) -> str:
    """Return a path as text that any file takes, relative to the working directory where that is shorter.

    Folders may have names of any bytes, for which Python has characters that no encoding has.
    """
    with contextlib.suppress(ValueError, OSError):  # OSError: the working directory is gone
        file = str(Path(file).relative_to(Path.cwd()))
    return file.encode(errors="backslashreplace").decode()


def _place(code: CodeType, last: int) -> tuple[int, int]:
    """Return line and column of the call that an instruction of Python makes."""
    line, _, column, _ = next(islice(code.co_positions(), last // 2, None))
    return line or code.co_firstlineno, column or 0
