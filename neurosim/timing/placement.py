"""Which engine an instruction is timed on, where the record says that several give the same bits.

The rule, of ``docs/engine_choice.md``: an instruction that Vector and Scalar do alike goes where less is to be done.
What is to be done is counted over ``REACH`` consecutive records of a core: first everything that only one of the two
can do, then these instructions one by one, each to the engine that is through with its total sooner; of equals, to the
one where it was recorded. So activations leave the copies to Vector, and reductions leave them to Scalar, as the
compilers of trn1 and trn2 were seen to do. GpSimd is never chosen: in public traces it does none of this.

The body of a loop that runs on the device is one piece of code: all trips use the engines of the first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neurosim import tiers
from neurosim.chip import Chip
from neurosim.engines import Engine
from neurosim.jit import compiled
from neurosim.program import Program, Signature, present
from neurosim.timing.laws import lanewise_cost
from neurosim.work import AccumulatorRead, Lanewise

Ints = NDArray[np.int64]

REACH: Final = 256
"""Records over which engines are balanced: some trips of an inner loop."""

_SHARING: Final = (Engine.vector, Engine.scalar)


class Placement(NamedTuple):
    """On which engines a program's records are timed; all else stays as recorded, and what depends on it stays known.

    Attributes:
        signatures: the program's, and behind them those that do the same on another engine.
        numbers: by record, its signature.
    """

    signatures: list[Signature]
    numbers: Ints


def recorded(program: Program) -> Placement:
    """Return every record on the engine that the program says."""
    return Placement(program.signatures, np.array(program.signature_ids, dtype=np.int64))


def placed(program: Program, chip: Chip) -> Placement:
    """Return shared instructions on the engines that do them, and the rest as recorded."""
    shared = np.array([_is_shared(signature) for signature in program.signatures], dtype=bool)
    unchanged = recorded(program)
    numbers = unchanged.numbers
    if not shared[numbers].any():
        return unchanged
    signatures, twins = _with_twins(program.signatures, shared)
    # by signature: what it, or its twin, takes on each of the two engines
    held_ps = np.array([[_held_ps(signature, engine, chip) for engine in _SHARING] for signature in signatures])
    own = np.array([signature.engine is not _SHARING[0] for signature in signatures], dtype=np.int64)
    cores = np.array(program.cores, dtype=np.int64)
    models, loads_ps = _models(program), np.empty(len(_SHARING), dtype=np.int64)
    for core in present(cores).tolist():
        mine = np.flatnonzero(cores == core)
        tiers.run(len(mine), _balance, numbers, mine, models, shared, own, twins, held_ps, loads_ps, REACH)
    return Placement(signatures, numbers)


def _is_shared(signature: Signature) -> bool:
    return (
        signature.engine in _SHARING
        and signature.engines.issuperset(_SHARING)
        and len(signature.work) == 1
        and isinstance(signature.work[0], Lanewise)
    )


def _with_twins(signatures: list[Signature], shared: NDArray[np.bool_]) -> tuple[list[Signature], Ints]:
    """Return the signatures and, after them, the shared ones on the other engine; and by signature its twin."""
    result = list(signatures)
    twins = np.arange(len(signatures), dtype=np.int64)
    for number in np.flatnonzero(shared).tolist():
        (other,) = set(_SHARING) - {signatures[number].engine}
        twins[number] = len(result)
        result.append(replace(signatures[number], engine=other))
    return result, twins


def _held_ps(signature: Signature, engine: Engine, chip: Chip) -> int:
    """Return how long a signature holds one of the two engines; a shared one, either of them."""
    if signature.engine is not engine and not _is_shared(signature):
        return 0
    items = [item for item in signature.work if isinstance(item, Lanewise | AccumulatorRead)]
    return sum(lanewise_cost(item, engine, chip).issue_ps for item in items)


def _models(program: Program) -> Ints:
    """Return, by record, the same call in the first trip of its loop on the device; itself elsewhere."""
    models = np.arange(len(program), dtype=np.int64)
    trips = np.array(program.trip_ids, dtype=np.int64)
    records = np.flatnonzero(trips >= 0)
    if len(records):
        lines = np.array(program.cores, dtype=np.int64)[records] * len(program.stacks)
        lines += np.array(program.stack_ids, dtype=np.int64)[records]
        _, in_trip, counts = np.unique(
            trips[records] * (lines.max() + 1) + lines, return_inverse=True, return_counts=True
        )
        order = np.argsort(in_trip, kind="stable")
        calls = np.empty(len(records), dtype=np.int64)  # of the calls that one line makes in a trip
        calls[order] = np.arange(len(records)) - np.repeat(np.cumsum(counts) - counts, counts)
        _, firsts, same = np.unique(lines * (calls.max() + 1) + calls, return_index=True, return_inverse=True)
        models[records] = records[firsts[same]]
    return models


@compiled
def _balance(
    numbers: Any, records: Any, models: Any, shared: Any, own: Any, twins: Any, held_ps: Any, loads_ps: Any, reach: int
) -> None:
    """Put twins in the place of signatures where these have less to wait for.

    Args:
        numbers: by record of the program, its signature.
        records: of one core, in order; engines are balanced over so many (``reach``) at a time.
        models: by record of the program, an earlier one whose engine it takes, or itself.
        shared: by signature, whether both engines do it.
        own: by signature, which of the two it is for.
        twins: by signature, the same on the other engine.
        held_ps: by signature, how long it holds each of the two.
        loads_ps: room for how long the two are held, one number for each.
    """
    for start in range(0, len(records), reach):
        part = records[start : start + reach]
        loads_ps[0] = loads_ps[1] = 0
        for record in part:
            number = numbers[record]
            if not shared[number]:
                loads_ps[0] += held_ps[number][0]
                loads_ps[1] += held_ps[number][1]
        for record in part:
            number = numbers[record]
            if shared[number]:
                here, there = own[number], 1 - own[number]
                stays = loads_ps[here] + held_ps[number][here] <= loads_ps[there] + held_ps[number][there]
                if models[record] != record:
                    stays = own[numbers[models[record]]] == here
                if stays:
                    loads_ps[here] += held_ps[number][here]
                else:
                    loads_ps[there] += held_ps[number][there]
                    numbers[record] = twins[number]
