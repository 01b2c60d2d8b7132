"""What one more instruction costs the simulator: each of ``nki.isa``, on the smallest tiles that it takes.

A call checks its operands, computes values, and is recorded. The calls are those of the manual's examples, on tiles of
one element where the instruction is legal on them. Two instructions at which cores meet have no cost of their own.
"""

from __future__ import annotations

import gc
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from neurosim.engines import Memory
from neurosim.errors import NeurosimError
from neurosim.kernel import Kernel, boundary, run
from neurosim.manual import trials
from neurosim.manual.calls import SHAPE, Call, Tile, examples
from neurosim.nki import _catalogue
from neurosim.program import Program
from neurosim.view import NkiTensor

IN_A_ROW: Final = 30
"""Calls that are timed together: so few that another process seldom comes between."""


class Cost(NamedTuple):
    """Seconds of one call of an instruction.

    Attributes:
        call: on tiles that are there.
        viewed: on a new view of each of its tiles, ``tile[0:1, 0:1]``.
        largest: extents of its largest tile.
    """

    call: float
    viewed: float
    largest: tuple[int, ...]


def costs(repeats: int, names: Iterable[str] | None = None) -> dict[str, Cost]:
    """Return the cost of each instruction (of all by default), the least of ``repeats`` tries."""
    found = {}
    for mnemonic in _catalogue.instructions() if names is None else names:
        cost = next(filter(None, (_cost(call, repeats) for call in _smallest(mnemonic))), None)
        if cost is not None:
            found[mnemonic] = cost
    return found


def medians(found: Mapping[str, Cost]) -> tuple[float, float]:
    """Return the medians over instructions of ``call`` and of ``viewed``."""
    return statistics.median(cost.call for cost in found.values()), statistics.median(
        cost.viewed for cost in found.values()
    )


def _smallest(mnemonic: str) -> Iterator[Call]:
    """Yield an instruction's plainest call with tiles of one element, of one row, of one column, and as it is."""
    first = examples(mnemonic).calls[0]
    for shape in ((1, 1), (1, SHAPE[1]), (SHAPE[0], 1)):
        yield first.but(**{name: _shrunk(value, shape) for name, value in first.operands.items()})
    yield first


def _shrunk(value: Any, shape: tuple[int, int]) -> Any:
    if isinstance(value, list):
        return [_shrunk(entry, shape) for entry in value]
    if not isinstance(value, Tile) or value.memory is Memory.state or len(value.shape) != 2:
        return value
    return replace(value, shape=tuple(min(pair) for pair in zip(value.shape, shape, strict=True)))


def _cost(call: Call, repeats: int) -> Cost | None:
    """Return the cost of a call on the newest chip that takes it, None where none does."""
    for chip in reversed(trials.chips().values()):
        if trials.attempt(call, chip, values=True).error is not None:
            continue
        kernel = Kernel(chip, Program(chip.name, chip.generation))
        with run(kernel), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return Cost(*_timed(kernel, call, repeats), _largest(call))
            except NeurosimError:
                continue  # it takes the call alone, and not again
    return None


def _largest(call: Call) -> tuple[int, ...]:
    values = [entry for value in call.operands.values() for entry in (value if isinstance(value, list) else [value])]
    return max((value.shape for value in values if isinstance(value, Tile)), key=np.prod, default=())


@boundary
def _timed(kernel: Kernel, call: Call, repeats: int) -> tuple[float, float]:
    given = {name: operand for name, (operand, _) in trials._issue(kernel, call, trials.Placing()).items()}
    function = _catalogue.instructions()[call.mnemonic]
    keys = {name: _whole(value) for name, value in given.items()}

    def plain() -> None:
        for _ in range(IN_A_ROW):
            function(**given)

    def viewed() -> None:
        for _ in range(IN_A_ROW):
            function(**{name: value if (key := keys[name]) is None else value[key] for name, value in given.items()})

    return _least(plain, repeats) / IN_A_ROW, _least(viewed, repeats) / IN_A_ROW


def _whole(value: Any) -> tuple[slice, ...] | None:
    """Return the slices that take all of a tensor, None for what is no plain one."""
    is_plain = isinstance(value, NkiTensor) and not value.is_indirect() and value.buffer is not Memory.state
    return tuple(slice(0, extent) for extent in value.shape) if is_plain else None


def _least(action: Callable[[], None], repeats: int) -> float:
    gc.collect()
    least = float("inf")
    for _ in range(repeats + 1):
        start = time.perf_counter()
        action()
        least = min(least, time.perf_counter() - start)
    return least
