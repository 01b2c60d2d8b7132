"""What a run did that another run on other values might do otherwise: the first reason, in words, if there was any.

A run without one has a record, checks and returned tensors that depend on shapes, dtypes and options alone, so that
:mod:`neurosim.replay` may go through the record again without the kernel's Python.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_REASONS: ContextVar[list[str] | None] = ContextVar("neurosim_seen", default=None)


def note(reason: str) -> None:
    """Note that the running kernel did what depends on values, or what is to be seen outside of it."""
    reasons = _REASONS.get()
    if reasons is not None:
        reasons.append(reason)


def is_noted() -> bool:
    """Return whether there is a reason already, or nobody asks."""
    reasons = _REASONS.get()
    return reasons is None or bool(reasons)


@contextlib.contextmanager
def watching() -> Iterator[list[str]]:
    """Collect the reasons of the run inside; those of a run within it are its own."""
    reasons: list[str] = []
    token = _REASONS.set(reasons)
    try:
        yield reasons
    finally:
        _REASONS.reset(token)
