"""Cores that take turns: one runs at a time, and hands over only where it has to wait for another.

Each core is a thread of Python, core 0 the caller's own, and a baton says which of them runs. So nothing is ever
concurrent, and the order is always the same: core 0 runs until it waits at a meeting or ends, then core 1, and so on;
whoever arrives last at a meeting carries it out for all and goes on.
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from neurosim.errors import Deadlock, IllegalOperand, NeurosimError

_LOOK_AGAIN_S: Final = 0.05


class Visitor(Protocol):
    """One core's part in a meeting."""

    core: int
    what: str
    """The instruction, in words."""
    where: tuple[str, ...]
    """Its line, innermost frame first."""


Visitors = Sequence[Any]
"""The parts of all cores that meet, by core."""


class Team(Protocol):
    """The cores of one launch, as an instruction sees them."""

    size: int

    def meet(
        self, visitor: Visitor, members: tuple[int, ...], key: Hashable, perform: Callable[[Visitors], None]
    ) -> None:
        """Wait for the other members at ``key``; ``perform`` is called once, by the last to arrive."""


class Mirror:
    """Stands for two cores that do the same, where there is one: for trying a single instruction.

    Attributes:
        met: the keys of the meetings so far.
    """

    size = 2

    def __init__(self) -> None:
        self.met: list[Hashable] = []

    def meet(
        self, visitor: Visitor, members: tuple[int, ...], key: Hashable, perform: Callable[[Visitors], None]
    ) -> None:
        """Meet nobody else."""
        self.met.append(key)
        perform([visitor])


class _Stop(SystemExit):
    """Ends a core's thread because the launch is over; Python prints nothing for it."""


@dataclass(slots=True)
class _Waiting:
    """Where a core waits."""

    visitor: Visitor
    members: tuple[int, ...]
    key: Hashable


class Cores:
    """The cores of one launch: runs a body on each, in turns.

    Attributes:
        size: how many.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._batons = [threading.Semaphore(0) for _ in range(size)]
        self._threads: list[threading.Thread | None] = [None] * size
        self._waiting: list[_Waiting | None] = [None] * size
        self._left = [False] * size  # its body, in whatever way
        self._ended = [False] * size
        self._results: list[Any] = [None] * size
        self._error: BaseException | None = None
        self._stopped = False
        self._bodies: Sequence[Callable[[], Any]] = ()
        self._contexts: list[contextvars.Context] = []

    def run(self, bodies: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run one body per core and return what they return. The first error ends all; no thread stays behind.

        Raises:
            Deadlock: no core can move.
        """
        self._bodies, self._contexts = bodies, [contextvars.copy_context() for _ in bodies]
        try:
            self._turn(0)
            if self._error is None and not all(self._ended):
                self._batons[0].acquire()  # the others have ended, or one of them failed
        finally:
            self._stop()
        error, self._error = self._error, None  # which holds frames, and so this: no cycle is left
        if error is not None:
            raise error
        return self._results

    def meet(
        self, visitor: Visitor, members: tuple[int, ...], key: Hashable, perform: Callable[[Visitors], None]
    ) -> None:
        """See :meth:`Team.meet`.

        Raises:
            Deadlock: no core can move.
        """
        self._check_over()
        me = visitor.core
        others = [core for core in members if core != me]
        found = [self._waiting[core] for core in others]
        if all(other is not None and other.key == key and other.members == members for other in found):
            perform(sorted([visitor, *(other.visitor for other in found if other)], key=lambda each: each.core))
            for core in others:
                self._waiting[core] = None
            return
        self._waiting[me] = _Waiting(visitor, members, key)
        self._hand_over(me)
        self._batons[me].acquire()
        self._check_over()

    def _check_over(self) -> None:
        """End a core that goes on although the launch is over, as one with a bare ``except`` does."""
        if self._stopped or self._error is not None:
            raise _Stop

    def _turn(self, core: int) -> None:
        """Run a core's body to its end, then hand over."""
        try:
            self._results[core] = self._body(core)
        except _Stop:
            return
        except BaseException as error:
            if self._error is None:
                self._error = _told(error, core)
            if core:
                self._batons[0].release()
            return
        self._ended[core] = True
        self._hand_over(core)

    def _body(self, core: int) -> Any:
        try:
            return self._bodies[core]()
        finally:
            self._left[core] = True

    def _hand_over(self, me: int) -> None:
        """Let the first core run that can; with none left, the caller goes on."""
        able = [core for core in range(self.size) if not self._ended[core] and self._waiting[core] is None]
        if able:
            self._wake(able[0])
            return
        if not all(self._ended):
            self._error = self._deadlock()
            if not me and self._waiting[0] is not None:
                self._batons[0].release()
        if me:
            self._batons[0].release()

    def _wake(self, core: int) -> None:
        if core and self._threads[core] is None:
            enter = self._contexts[core].run
            thread = threading.Thread(target=enter, args=(self._turn, core), name=f"core {core}", daemon=True)
            self._threads[core] = thread
            thread.start()
        else:
            self._batons[core].release()

    def _deadlock(self) -> Deadlock:
        lines = []
        where: tuple[str, ...] = ()
        for core in range(self.size):
            waiting = self._waiting[core]
            if waiting is None:
                lines.append(f"core {core} has ended")
                continue
            place = waiting.visitor.where[0] if waiting.visitor.where else "an unknown place"
            lines.append(f"core {core} waits at {waiting.visitor.what}, {place}")
            where = where or waiting.visitor.where
        return Deadlock(
            "no core can move: each waits for another",
            where=where,
            numbers=lines,
            advice="all cores must reach the same meetings in the same order: take no branch on nl.program_id around "
            "nisa.sendrecv and nisa.core_barrier",
        )

    def _stop(self) -> None:
        """End what still runs: threads that wait are woken, one that runs (after Ctrl-C) is interrupted.

        One that has left its body ends by itself, however long a busy machine takes: interrupted where Python takes a
        thread off its list, it would stay there.
        """
        self._stopped = True
        for baton in self._batons:
            baton.release()
        for core, thread in enumerate(self._threads):
            while thread is not None and thread.is_alive():
                thread.join(_LOOK_AGAIN_S)
                if thread.is_alive() and thread.ident is not None and not self._left[core]:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Stop))


def _told(error: BaseException, core: int) -> BaseException:
    """Say on which core an error was raised."""
    if isinstance(error, NeurosimError):
        error.numbers = (*error.numbers, f"on core {core}")
    elif isinstance(error, Exception):
        with contextlib.suppress(TypeError):
            error.add_note(f"on core {core}")
    return error


def alone(members: tuple[int, ...], what: str) -> IllegalOperand:
    """Return the error of an instruction that needs other cores in a launch on one."""
    return IllegalOperand(
        f"{what}: it meets cores {members}, and the kernel runs on one core",
        advice="launch on two: kernel[2](…); in kernels for both, ask nl.num_programs() first",
    )
