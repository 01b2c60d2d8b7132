"""The running legacy kernel: its loops, and the one value that has no place yet.

An instruction of this dialect returns its result. Where the result goes is known when it is assigned, as in
``tile[...] = nisa.activation(…)``, or used otherwise; so the last instruction waits for that, and is issued before
anything else happens.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from neurosim.errors import KernelError
from neurosim.kernel import Kernel
from neurosim.nki.legacy.dependence import Tracker

if TYPE_CHECKING:
    from neurosim.memory import Storage
    from neurosim.nki.legacy.roots import Fresh
    from neurosim.view import NkiTensor

_RUN: ContextVar[Run | None] = ContextVar("neurosim_legacy_run", default=None)

_ADVICE: Final = "decorate the kernel with @nki.jit of neuronxcc, and call it on arrays"


@dataclass
class Run:
    """One program of a legacy kernel.

    Attributes:
        kernel: the machine's side of it.
        tracker: who wrote what in which iteration.
        pending: the result that has no place yet.
        bound: results that stand in a tile they were assigned to, by storage; no longer than the storage or the result.
        seed: of the random functions, None before one is set.
        ones: a row of ones by its length, for matmuls that spread a row over partitions.
        view_of: makes a view of a root.
    """

    kernel: Kernel
    tracker: Tracker = field(default_factory=Tracker)
    pending: Fresh | None = None
    bound: weakref.WeakKeyDictionary[Storage, list[weakref.ref[Fresh]]] = field(
        default_factory=weakref.WeakKeyDictionary
    )
    seed: Any = None
    ones: dict[int, NkiTensor] = field(default_factory=dict)
    view_of: Callable[[Any], Any] = field(default=lambda root: root)

    def flush(self) -> None:
        """Issue the waiting instruction, if any, into a tile of its own."""
        if self.pending is not None:
            self.pending.settle(self.view_of)


def run_of(call: str) -> Run:
    """Return the running legacy kernel; KernelError names ``call`` when there is none."""
    run = _RUN.get()
    if run is None:
        raise KernelError(f"{call} of neuronxcc was called outside of a legacy kernel", advice=_ADVICE)
    return run


def begin(call: str) -> Run:
    """Return the running legacy kernel, with nothing waiting."""
    run = run_of(call)
    if run.pending is not None:
        run.flush()
    return run


def active() -> Run | None:
    """Return the running legacy kernel, or None."""
    return _RUN.get()


@contextlib.contextmanager
def running(run: Run) -> Iterator[Run]:
    """Make ``run`` the running one."""
    token = _RUN.set(run)
    try:
        yield run
    finally:
        _RUN.reset(token)
