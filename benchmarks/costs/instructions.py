"""What one more instruction costs the simulator: each of ``nki.isa``, on the smallest tiles that it takes.

A call checks its operands, computes values, and is recorded. The calls are those of the manual's examples, on tiles of
one element where the instruction is legal on them. Two instructions at which cores meet have no cost of their own.

Costs are processor time of the thread, the least of many bursts, which all instructions take in turns: on a machine
that others use too, wall time is theirs as well, and its clock may be slower for seconds on end.
"""

from __future__ import annotations

import gc
import math
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
from neurosim.manual.calls import SHAPE, Call, Tile, examples, operands
from neurosim.nki import _catalogue
from neurosim.program import Program
from neurosim.view import NkiTensor, whole

IN_A_ROW: Final = 30
"""Calls that are timed together, a burst: so few that another process seldom comes between."""
LEAST_ROUNDS: Final = 20
"""Bursts of each instruction: with fewer, those of some all fall into times of a slower clock."""


class Cost(NamedTuple):
    """Seconds of a processor for one call of an instruction.

    Attributes:
        call: on tiles that are there.
        viewed: on a new view of a part of a tensor for each of its tiles, ``tensor[0:1, 5:6]``.
        largest: extents of its largest tile.
    """

    call: float
    viewed: float
    largest: tuple[int, ...]


class Trial(NamedTuple):
    """An instruction that is ready to be timed: bursts of it, in its own kernel.

    Attributes:
        kernel: on the newest chip that takes the call.
        plain: calls on tiles that are there.
        viewed: calls on views of parts.
        largest: extents of its largest tile.
    """

    kernel: Kernel
    plain: Callable[[], None]
    viewed: Callable[[], None]
    largest: tuple[int, ...]


def costs(rounds: int, names: Iterable[str] | None = None) -> dict[str, Cost]:
    """Return the cost of each instruction (of all by default), the least of ``rounds`` bursts."""
    ready = {}
    for mnemonic in _catalogue.instructions() if names is None else names:
        trial = next(filter(None, map(_trial, _smallest(mnemonic))), None)
        if trial is not None:
            ready[mnemonic] = trial
    found = {mnemonic: Cost(math.inf, math.inf, trial.largest) for mnemonic, trial in ready.items()}
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(rounds):
            for mnemonic, trial in ready.items():
                least = found[mnemonic]
                with run(trial.kernel):
                    call, viewed = min(least.call, _timed(trial.plain)), min(least.viewed, _timed(trial.viewed))
                found[mnemonic] = least._replace(call=call, viewed=viewed)
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


def _trial(call: Call) -> Trial | None:
    """Return a call ready to be timed on the newest chip that takes it, None where none does."""
    for chip in reversed(trials.chips().values()):
        if trials.attempt(call, chip, values=True).error is not None:
            continue
        kernel = Kernel(chip, Program(chip.name, chip.generation))
        with run(kernel), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return Trial(kernel, *_bursts(kernel, call), _largest(call))
            except NeurosimError:
                continue  # it takes the call alone, and not again
    return None


def _largest(call: Call) -> tuple[int, ...]:
    values = [entry for value in call.operands.values() for entry in (value if isinstance(value, list) else [value])]
    return max((value.shape for value in values if isinstance(value, Tile)), key=np.prod, default=())


@boundary
def _bursts(kernel: Kernel, call: Call) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return bursts of a call on tiles, and on views of parts of tensors, both of which have run once."""
    function: Any = _catalogue.instructions()[call.mnemonic]
    given, wider = _given(kernel, call, trials.Placing()), _given(kernel, call, trials.Placing("offset"))
    parts = {name: _part(value) for name, value in wider.items()}
    for name, operand in operands(call.mnemonic).items():
        if operand is not None and operand.is_written and isinstance(tensor := parts.get(name, (None,))[0], NkiTensor):
            # what holds other parts was written, as a rule, when one is used
            tensor.allocation.storage.mark(tensor, function.instruction.state_written)

    def plain() -> None:
        for _ in range(IN_A_ROW):
            function(**given)

    def viewed() -> None:
        for _ in range(IN_A_ROW):
            function(**{name: value if key is None else value[key] for name, (value, key) in parts.items()})

    plain()
    viewed()
    return plain, viewed


def _given(kernel: Kernel, call: Call, placing: trials.Placing) -> dict[str, Any]:
    return {name: operand for name, (operand, _) in trials._issue(kernel, call, placing).items()}


def _part(value: Any) -> tuple[Any, tuple[slice, ...] | None]:
    """Return the tensor that a tile is a part of, and the slices that take it; of all else itself and None."""
    if not isinstance(value, NkiTensor) or value.is_indirect() or value.buffer is Memory.state:
        return value, None
    tensor = whole(value.allocation)
    firsts = [0] * (value.ndim - 1) + [tensor.shape[-1] - value.shape[-1]]
    return tensor, tuple(slice(first, first + extent) for first, extent in zip(firsts, value.shape, strict=True))


@boundary
def _timed(burst: Callable[[], None]) -> float:
    """Return the seconds of this thread for one call of a burst."""
    start = time.thread_time()
    burst()
    return (time.thread_time() - start) / IN_A_ROW
