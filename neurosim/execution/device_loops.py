"""Loops that run on the device: traced once, and then repeated, as the compiler's one copy of the body is.

Python runs a body for the first trip only, on that trip's values; each call that it makes is kept, and made again in
each later trip, on the same tensors, which each trip finds unwritten. So what Python computes beside it (a counter, a
list) has the first trip's state in all of them, on hardware as here. A body whose loop makes no trip is traced all the
same, checked and not executed.

Each head of a loop, one per trip and one at the end, is a record: a meeting of all engines and DMAs, behind which a
sequencer takes its turn. Nothing moves across it.

Sources: AWS Neuron SDK, ``nki/api/nki/language/__init__.py`` (``dynamic_range``, ``fori_loop``, ``while_loop``),
``nki/deep-dives/nki-dynamic-loops.rst``, ``nki/migration/index.rst`` ("Rules for migrated loops"). *Assumed*: bounds
are read once, when the loop is entered, and may not be written in it; that all engines meet is what users of trn2
report (``vllm-neuron``: a loop "is a barrier that quiesces all engines").
"""

from __future__ import annotations

import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from numbers import Integral
from operator import index as as_int
from types import FrameType
from typing import Any, ClassVar, Final

from neurosim.analysis.loops import while_on_line
from neurosim.chip import Chip
from neurosim.engines import Engine, Memory
from neurosim.errors import IllegalOperand
from neurosim.execution.lanes import Lanes
from neurosim.execution.scalar_registers import END, LEAST, VirtualRegister, allocate
from neurosim.instruction import In, Instruction, Out, Tile, issue
from neurosim.kernel import Action, Body, Kernel, current
from neurosim.program import DeviceTrip
from neurosim.record.naming import LOOP_CONDITION, LOOP_VARIABLE
from neurosim.versions import NKI_0_6
from neurosim.work import Control, Work

_MOST_TRIPS: Final = 1 << 20
"""Of one loop by condition: more are taken for a loop that never ends."""


class Turn(Instruction, mnemonic="loop", engines=(Engine.sync,)):
    """The head of a loop on the device: all engines meet, a register is tested and the loop's variable is set.

    No function of NKI makes it: loops do.
    """

    is_dma = True
    is_control = True
    name: ClassVar[str | None] = None

    variable: Tile | None = Out(Memory.state, default=None)
    start: Tile | int | None = In(Memory.state, number=True, strict=True, default=None)
    stop: Tile | int | None = In(Memory.state, number=True, strict=True, default=None)
    condition: Tile | None = In(Memory.state, strict=True, default=None)
    step: int | None = None

    def __post_init__(self) -> None:
        self.decide: Action = lambda: None

    def execute(self, lanes: Lanes) -> None:
        """Let the loop decide, now that what it reads is known to be written."""
        self.decide()

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One turn."""
        return (Control("turn", meets=True),)


class _Loop(ABC):
    """A loop on the device: opened before its body is traced, closed behind it."""

    def __init__(self, kernel: Kernel, call: str) -> None:
        self.kernel = kernel
        self.call = call
        self.stack = kernel.stack()
        self.body = Body(0)
        self.number = -1
        self.runs = False
        self.outer_trip = -1
        self.outer_dry = False

    @abstractmethod
    def turn(self) -> Turn:
        """Return the head's instruction for the next trip."""

    def open(self) -> None:
        """Enter the loop, and begin its first trip; from here on its body is traced."""
        if self.kernel.block >= 0:
            raise IllegalOperand(
                f"{self.call} in nl.no_reorder(): loops on the device cannot be in such a block",
                where=self.kernel.where(),
                advice="put the block into the loop's body",
            )
        self.outer_dry = self.kernel.dry
        if not self.outer_dry:
            self._enter()
            self._next()
        self.kernel.dry = not self.runs
        self.body = self.kernel.begin_body()

    def close(self) -> None:
        """Leave the body, make the remaining trips, and leave the loop."""
        kernel = self.kernel
        if not kernel.bodies or kernel.bodies[-1] is not self.body:
            raise _left_open(self.call, self.stack, kernel)
        kernel.end_body()
        kernel.dry = self.outer_dry
        if not self.outer_dry:
            self._next()
            self._finish()
        if kernel.bodies:  # of a loop around this one: each of its trips enters this one again
            kernel.bodies[-1].actions.append((self.stack, self._again))

    def _again(self) -> None:
        self._enter()
        self._next()
        self._finish()

    def _finish(self) -> None:
        while self.runs:
            self.kernel.repeat(self.body)
            self._next()

    def _enter(self) -> None:
        self.outer_trip = self.kernel.trip
        self.number, self.runs = -1, True

    def _next(self) -> None:
        """Take the turn before a trip, or the last one."""
        kernel = self.kernel
        if not self.runs:
            return
        kernel.trip = self.outer_trip
        self.number += 1
        issue(self.turn(), kernel)
        if self.runs:
            kernel.program.trips.append(DeviceTrip(self.outer_trip, kernel.stack(), self.number))
            kernel.trip = len(kernel.program.trips) - 1


class _Counted(_Loop):
    """A loop from a bound to another."""

    def __init__(self, kernel: Kernel, call: str, start: Any, stop: Any, step: int, name: str) -> None:
        super().__init__(kernel, call)
        self.start, self.stop, self.step = start, stop, step
        self.variable = allocate(kernel, name)
        self.variable.frozen = f"the variable of {call}, which the loop alone writes"
        self.next = self.end = 0
        self.held: list[VirtualRegister] = []

    def turn(self) -> Turn:
        """Set the variable; the first turn reads the bounds."""
        made = Turn(self.variable, self.start if self.number == 0 else None, self.stop, None, self.step)
        made.decide = self._decide
        return made

    def _decide(self) -> None:
        if self.number == 0:
            self.next, self.end = (_number(bound) for bound in (self.start, self.stop))
        self.runs = self.next < self.end
        self.variable.put(min(self.next, END - 1))
        self.next += self.step

    def open(self) -> None:
        """Keep the bounds as they are in the body."""
        bounds = [bound for bound in (self.start, self.stop) if isinstance(bound, VirtualRegister)]
        self.held = [bound for bound in bounds if not bound.frozen]
        for bound in self.held:
            bound.frozen = f"a bound of {self.call}, which is running"
        super().open()

    def close(self) -> None:
        """Let the bounds go."""
        super().close()
        for bound in self.held:
            bound.frozen = ""


class _Conditional(_Loop):
    """A loop for as long as a register is not 0. ``carried`` is the copy of it that a body gets, if any."""

    def __init__(self, kernel: Kernel, call: str, condition: VirtualRegister, carried: VirtualRegister | None) -> None:
        super().__init__(kernel, call)
        self.condition, self.following, self.carried = condition, condition, carried
        self.frame: FrameType | None = None
        self.line = 0

    def turn(self) -> Turn:
        """Test the condition; the first one is the loop's own, those behind it are the body's."""
        tested = self.condition if self.number == 0 else self.following
        made = Turn(self.carried, None, None, tested)
        made.decide = lambda: self._decide(tested)
        return made

    def _decide(self, tested: VirtualRegister) -> None:
        value = tested.value()
        self.runs = value != 0
        if self.carried is not None:
            self.carried.put(value)
        if self.number >= _MOST_TRIPS:
            raise IllegalOperand(
                f"{self.call} has made {self.number} trips, and {tested.describe()} is still {value}",
                advice="load the condition anew in each trip; the loop ends when it is 0",
            )


def _number(bound: Any) -> int:
    return bound.value() if isinstance(bound, VirtualRegister) else as_int(bound)


def _left_open(call: str, stack: int, kernel: Kernel) -> IllegalOperand:
    return IllegalOperand(
        f"{call} was left from within its body",
        where=kernel.where(stack),
        advice="a loop on the device ends by its bound or its condition: break and return cannot leave it",
    )


def _check_bound(call: str, name: str, bound: Any) -> None:
    if isinstance(bound, VirtualRegister):
        return
    if isinstance(bound, bool) or not isinstance(bound, Integral) or not LEAST <= as_int(bound) < END:
        raise IllegalOperand(
            f"{call}: {name} {bound!r} is neither an int of 32 bits nor a register",
            advice="pass an int, or a register that nisa.register_load filled",
        )


def _check_step(call: str, step: Any) -> int:
    known = not isinstance(step, bool) and isinstance(step, Integral)
    if not known or not 0 < as_int(step) < END:
        raise IllegalOperand(
            f"{call}: step {step!r} is no positive int",
            advice="the step is a constant of the loop's instruction, and loops count up",
        )
    return as_int(step)


def _counted(call: str, start: Any, stop: Any, step: Any, name: str = LOOP_VARIABLE) -> _Counted:
    kernel = current(call)
    with kernel.located():
        _check_bound(call, "start", start)
        _check_bound(call, "stop", stop)
        return _Counted(kernel, call, start, stop, _check_step(call, step), name)


def _parameter(body: Callable[..., object]) -> str:
    """Return what the body of a loop calls the loop's variable."""
    try:
        return next(iter(inspect.signature(body).parameters), LOOP_VARIABLE)
    except (TypeError, ValueError):
        return LOOP_VARIABLE


def _deprecated(kernel: Kernel, what: str, instead: str, level: int) -> None:
    """Warn as NKI 0.6 does (``release-notes/components/nki.rst``, "Deprecated and Removed APIs")."""
    if kernel.nki_version >= NKI_0_6:
        text = f"{what} is deprecated since NKI 0.6 and will be removed: use {instead}"
        warnings.warn(text, DeprecationWarning, stacklevel=level + 1)


def _check_version(kernel: Kernel, call: str, before: str) -> None:
    if kernel.nki_version < NKI_0_6:
        raise IllegalOperand(
            f"{call} came with NKI 0.6, and this run asks for {kernel.nki_version}",
            where=kernel.where(),
            advice=f"use {before}, or run with nki_version='0.6'",
        )


def dynamic_range(start: Any, stop: Any = None, step: int = 1) -> Iterator[VirtualRegister]:
    """Return an iterator that makes a ``for`` loop run on the device. Deprecated since NKI 0.6: use ``fori_loop``.

    Args:
        start: the first value, an int or a register; the stop if that is left out.
        stop: the value that ends the loop, exclusive.
        step: a positive int.

    Yields:
        The loop's variable: a register that cannot be written.

    Raises:
        IllegalOperand: a bound or a step that cannot be, a loop in ``nl.no_reorder``, a body that is left.
        Unsupported: in a run without values, a bound that is not known.
    """
    call = "nl.dynamic_range"
    _deprecated(current(call), call, "nl.fori_loop", 2)
    loop = _counted(call, 0 if stop is None else start, start if stop is None else stop, step)
    return _trips(loop)


def _trips(loop: _Counted) -> Iterator[VirtualRegister]:
    loop.stack = loop.kernel.stack()
    loop.open()
    yield loop.variable
    loop.close()


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[VirtualRegister], object], step: int = 1) -> None:
    """Run ``body_fun(i)`` on the device for each ``i`` from ``lower`` up to ``upper``, exclusive.

    Args:
        lower, upper: ints or registers.
        body_fun: takes the loop's variable, a register that cannot be written, and returns nothing.
        step: a positive int.

    Raises:
        IllegalOperand: a bound or a step that cannot be, a body that returns something, a loop in ``nl.no_reorder``.
        Unsupported: in a run without values, a bound that is not known.
    """
    call = "nl.fori_loop"
    _check_version(current(call), call, "nl.dynamic_range")
    loop = _counted(call, lower, upper, step, _parameter(body_fun))
    loop.open()
    returned = body_fun(loop.variable)
    if returned is not None:
        raise IllegalOperand(
            f"{call}: the body returned {returned!r}",
            where=loop.kernel.where(),
            advice="it returns nothing: carry results through SBUF or HBM",
        )
    loop.close()
    loop.kernel.leave(loop.body)


def while_loop(init: VirtualRegister, body_fun: Callable[[VirtualRegister], VirtualRegister]) -> None:
    """Run ``r = body_fun(r)`` on the device for as long as ``r`` is not 0, beginning with ``init``.

    Args:
        init: a register. The body gets a copy, which it may write.
        body_fun: takes a register and returns the next trip's.

    Raises:
        IllegalOperand: no register given or returned, a loop in ``nl.no_reorder``, a loop that does not end.
        Unsupported: in a run without values, a condition that is not known.
    """
    call = "nl.while_loop"
    kernel = current(call)
    _check_version(kernel, call, "while with a register")
    _check_register(kernel, call, "init", init)
    loop = _Conditional(kernel, call, init, allocate(kernel, LOOP_CONDITION))
    loop.open()
    assert loop.carried is not None
    returned = body_fun(loop.carried)
    _check_register(kernel, call, "what the body returned", returned)
    loop.following = returned
    loop.close()
    kernel.leave(loop.body)


def _check_register(kernel: Kernel, call: str, name: str, value: Any) -> None:
    if not isinstance(value, VirtualRegister):
        raise IllegalOperand(
            f"{call}: {name} is {value!r}; it must be a register",
            where=kernel.where(),
            advice="load the condition with nisa.register_load",
        )


def while_test(register: VirtualRegister, frame: FrameType) -> bool:
    """Return whether Python goes into the body of ``while register:``: once, to trace it.

    Raises:
        IllegalOperand: the register is no condition of a ``while`` statement.
    """
    kernel = current("the truth of a register")
    with kernel.located():
        line = while_on_line(frame.f_code, frame.f_lineno)
        if line is None:
            raise IllegalOperand(
                f"{register.describe()} as a Python truth value: its value is known on the device only",
                advice="write `while register:` with the register alone as the condition, or use nl.while_loop",
            )
        loop = next((loop for loop in kernel.whiles if loop.frame is frame and loop.line == line), None)
        if loop is not None:
            kernel.whiles.remove(loop)
            loop.frame = None
            loop.following = register
            loop.close()
            return False
        _deprecated(kernel, "while with a register", "nl.while_loop", 3)
        loop = _Conditional(kernel, "while", register, None)
        loop.frame, loop.line = frame, line
        loop.open()
        kernel.whiles.append(loop)
        return True


def check_left(kernel: Kernel) -> None:
    """Refuse a kernel that returned from within the body of a loop on the device."""
    if kernel.bodies:
        stack = kernel.program.trips[kernel.trip].stack if kernel.trip >= 0 else -1
        where = kernel.where(stack) if stack >= 0 else ()
        raise IllegalOperand(
            "a loop on the device was left from within its body",
            where=where,
            advice="it ends by its bound or its condition: break and return cannot leave it",
        )
