"""Call stacks: what is kept between calls for speed says the same as a walk through all frames."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from neurosim.record.call_stacks import CallStacks, boundary

TREES: Any = st.recursive(st.just(()), lambda inner: st.lists(st.tuples(st.integers(0, 3), inner), max_size=4))
"""What a function does in order: which of the ways below it takes, and what is done there."""


class Asking:
    """Asks for the stack wherever it is, and compares with the frames that there are."""

    def __init__(self) -> None:
        self.stacks = CallStacks([])
        self.moving: Iterator[None] | None = None

    def ask(self) -> None:
        frame: Any = sys._getframe(1)
        number, expected = self.stacks.number(frame), []
        while frame.f_code is not begin.__code__:
            expected.append((frame.f_code.co_name, frame.f_lineno))
            frame = frame.f_back
        assert [(frame.function, frame.line) for frame in self.stacks.stacks[number]] == expected
        assert self.stacks.stacks.index(self.stacks.stacks[number]) == number


def one(asking: Asking, tree: Any) -> None:
    asking.ask()
    for way, inner in tree:
        if way == 0:
            one(asking, inner)
        elif way == 1:
            two(asking, inner)
        elif way == 2:
            asking.moving = moving(asking, inner)
        elif asking.moving is not None:
            resumed, asking.moving = asking.moving, None  # none resumes itself
            next(resumed)
            further(resumed)
            further(resumed)
            asking.moving = resumed
        asking.ask()
    asking.ask()


def two(asking: Asking, tree: Any) -> None:
    for _ in range(2):
        three(asking)
    for part in tree:
        one(asking, [part])
    asking.ask()


def three(asking: Asking) -> None:
    asking.ask()
    asking.ask()


def moving(asking: Asking, tree: Any) -> Iterator[None]:
    """Go on under whoever resumes it."""
    one(asking, tree)
    while True:
        asking.ask()
        yield
        asking.ask()
        yield
        three(asking)
        yield
        three(asking)
        yield
        yield from staying(asking)


def staying(asking: Asking) -> Iterator[None]:
    """Ask in one place, for whoever resumes it."""
    for _ in range(4):
        three(asking)
        yield


def further(resumed: Iterator[None]) -> None:
    next(resumed)


@boundary
def begin(asking: Asking, tree: Any) -> None:
    one(asking, tree)
    two(asking, tree)


@given(TREES)
def test_a_stack_is_that_of_the_frames(tree: Any) -> None:
    asking = Asking()
    begin(asking, tree)
    begin(asking, tree)
