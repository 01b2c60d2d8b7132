"""Iterations of ``nl.affine_range`` that depend on each other.

``affine_range`` says that its iterations may run in any order, sums excepted. Here they run in order, as they do in
what the compiler of NKI 0.3 and later makes of them, so that values are right in any case; but the loop promises what
it does not hold, and older compilers believed it. Two iterations depend on each other where one of them writes bytes
that the other reads or writes:

- a later iteration reads what an earlier one wrote;
- a later iteration overwrites what an earlier one reads, as in a tile that is allocated before the loop;
- both write, and the later one wins.

A sum may go on from iteration to iteration: in PSUM, or in place by an operator that takes its operands in any order
(``tensor_tensor(dst=t, data1=t, data2=x, op=nl.add)``); also where the first iteration writes what the others add to.
It is a dependence all the same where the loop uses what the sum is so far. Registers inside an engine are left out,
as one engine goes in order, and so are operands whose place is known at run time only.

Source: AWS Neuron SDK, ``nki.language.affine_range`` ("when there is no loop carried dependency"; "associative
reductions are not considered loop carried dependencies") and the guide to NKI's loops (0.7: the three ranges are
Python's ``range``). Which operators are associative is ours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neurosim.analysis.dependences import dependences
from neurosim.analysis.regions import Region, region_of, relation
from neurosim.engines import Memory
from neurosim.program import Access, Frame, Iteration, Program, Signature
from neurosim.work import Handshake

Ints = NDArray[np.int64]

ASSOCIATIVE: Final = frozenset(
    {
        "add", "multiply", "maximum", "minimum", "logical_and", "logical_or", "logical_xor",
        "bitwise_and", "bitwise_or", "bitwise_xor",
    }
)  # fmt: skip
"""Operators of sums: of any order of their operands, rounding aside."""
ACCUMULATION: Final = "accumulate"
"""What adds up in PSUM."""


_PLAINEST: Final = ("reads", "adds to", "overwrites")
"""Of what a record does to what several others did, the first of these is told; a use before a write."""


@dataclass(frozen=True, slots=True)
class Carried:
    """Two iterations of one ``affine_range`` that depend on each other.

    Attributes:
        loop: where the loop stands.
        storage: what both access.
        first, second: the records, the earlier iteration's first.
        iterations: their numbers.
        does: what the second does: ``reads``, ``overwrites`` or ``adds to``.
        did: what the first does: ``wrote``, ``reads`` or ``added to``.
    """

    loop: Frame
    storage: int
    first: int
    second: int
    iterations: tuple[int, int]
    does: str
    did: str


class _Operand(NamedTuple):
    """One operand of a signature, as far as it counts here."""

    slot: int
    access: Access
    region: Region
    low: int


class _Touch(NamedTuple):
    """What an operand of a record accesses.

    Attributes:
        storage, byte: where its region begins.
        sums: the operator of a sum in place that it is part of, or an empty string.
    """

    operand: _Operand
    storage: int
    byte: int
    sums: str


class _Meeting(NamedTuple):
    """Operands of two records that conflict.

    Attributes:
        slot: of the later record's operand.
        reads: whether the later one reads what the earlier one writes.
        writes: whether the earlier one writes.
        sums, summed: the operator of a sum that the later and the earlier one are part of.
    """

    slot: int
    reads: bool
    writes: bool
    sums: str
    summed: str


def note(program: Program) -> str:
    """Return what a report says of loops, of at most two of them; an empty string where all is well."""
    found = carried(program)
    rest = len(found) - 2
    more = f"; and {rest} loop{'s' * (rest > 1)} more" if rest > 0 else ""
    return "; ".join(_words(program, one) for one in found[:2]) + more


def _words(program: Program, one: Carried) -> str:
    first, second = (_place(program.where(record)) for record in (one.first, one.second))
    earlier, later = one.iterations
    reused = one.does == "overwrites" and one.did == "reads"
    return (
        f"iterations of affine_range at {_place((one.loop,))} depend on each other: "
        f"iteration {later} {one.does} {program.label(one.storage)} at {second}, "
        f"which iteration {earlier} {one.did} at {first}; "
        + "allocate it in the loop, or " * reused
        + "use nl.sequential_range"
    )


def _place(frames: tuple[Frame, ...]) -> str:
    return f"{Path(frames[0].file).name}:{frames[0].line}" if frames else "an unknown line"


def carried(program: Program) -> list[Carried]:
    """Return for each ``affine_range`` of the source whose iterations depend on each other the first two that do."""
    if not program.iterations or not len(program):
        return []
    found = dependences(program)
    consumers = np.repeat(np.arange(len(program)), np.diff(found.starts))
    touches = _Touches(program)
    sums = touches.may_sum[np.array(program.signature_ids, dtype=np.int64)]
    result = []
    for loop, entered, number in _loops(program):
        inside = (entered[consumers] >= 0) & (entered[consumers] == entered[found.producers])
        across = number[consumers] != number[found.producers]
        rows = np.flatnonzero(inside & (across | sums[found.producers] | sums[consumers]))
        pairs = zip(consumers[rows].tolist(), found.producers[rows].tolist(), strict=True)
        one = _first(touches, program, loop, number, pairs)
        if one is not None:
            result.append(one)
    return result


def _loops(program: Program) -> Iterator[tuple[Frame, Ints, Ints]]:
    """Yield each loop of the source with, by record, which time it was entered (-1 outside) and the iteration."""
    cores = np.array(program.cores, dtype=np.int64)
    several = len(np.unique(cores)) > 1
    places: dict[Frame, list[Iteration]] = defaultdict(list)
    for iteration in program.iterations:
        places[program.stacks[iteration.stack][0]].append(iteration)
    for frame, iterations in places.items():
        entered, number = np.full(len(program), -1), np.full(len(program), -1)
        for iteration in iterations:
            span = slice(iteration.first, iteration.end)
            mine = cores[span] == iteration.core if several else slice(None)
            entered[span][mine] = iteration.entered
            number[span][mine] = iteration.number
        yield frame, entered, number


class _Touches:
    """What records access, and where two of them meet: the same pairs come again and again.

    Attributes:
        may_sum: by signature, whether its records may go on with a sum.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._operands = [list(_operands(signature)) for signature in program.signatures]
        self._operators = [_operator(signature) for signature in program.signatures]
        self._known: dict[tuple[int, ...], tuple[_Meeting, ...]] = {}
        self.may_sum = np.array(
            [
                bool(operator) or any(operand.access is Access.ACCUMULATE for operand in operands)
                for operator, operands in zip(self._operators, self._operands, strict=True)
            ],
            dtype=bool,
        )

    def meeting(self, later: int, earlier: int) -> tuple[_Meeting, ...]:
        """Return the operands of two records that conflict."""
        key = [self._program.signature_ids[later], self._program.signature_ids[earlier]]
        begins: dict[int, tuple[int, int]] = {}
        for storage, byte in (*self._slots(later), *self._slots(earlier)):
            number, first = begins.setdefault(storage, (len(begins), byte))
            key += (number, byte - first)
        found = self._known.get(tuple(key))
        if found is None:
            found = self._known[tuple(key)] = tuple(self._meetings(later, earlier))
        return found

    def storage(self, record: int, slot: int) -> int:
        """Return what an operand of a record is in."""
        return self._program.slots[self._program.slot_starts[record] + 2 * slot]

    def _slots(self, record: int) -> Iterator[tuple[int, int]]:
        program = self._program
        flat = program.slots[program.slot_starts[record] : program.slot_starts[record + 1]]
        return zip(flat[::2], flat[1::2], strict=True)

    def _meetings(self, later: int, earlier: int) -> Iterator[_Meeting]:
        for one in self._of(later):
            for other in self._of(earlier):
                reads, writes = one.operand.access is not Access.WRITE, other.operand.access is not Access.READ
                if (
                    one.storage == other.storage
                    and (writes or one.operand.access is not Access.READ)
                    and relation(one.operand.region, other.operand.region, other.byte - one.byte)
                ):
                    yield _Meeting(one.operand.slot, reads and writes, writes, one.sums, other.sums)

    def _of(self, record: int) -> list[_Touch]:
        """Return what a record accesses."""
        signature, slots = self._program.signature_ids[record], list(self._slots(record))
        places = [(operand, *slots[operand.slot]) for operand in self._operands[signature]]
        operator = self._operators[signature]
        in_place = _in_place(places) if operator else ()
        return [
            _Touch(
                operand,
                storage,
                byte + operand.low,
                ACCUMULATION if operand.access is Access.ACCUMULATE else operator * (operand.slot in in_place),
            )
            for operand, storage, byte in places
        ]


def _operands(signature: Signature) -> Iterator[_Operand]:
    """Yield the operands of a signature whose place the record knows, registers of an engine aside.

    Cores that wait for each other only name what they wait for.
    """
    if any(isinstance(work, Handshake) for work in signature.work):
        return
    dynamic = {pattern.role.removeprefix("index of ") for pattern in signature.patterns if "index of" in pattern.role}
    for slot, pattern in enumerate(signature.patterns):
        found = region_of(pattern)
        if found is not None and pattern.memory is not Memory.state and pattern.role not in dynamic:
            yield _Operand(slot, pattern.access, *found)


def _operator(signature: Signature) -> str:
    """Return the one operator that a signature has, if it is one of sums, else an empty string.

    In a program from a file, operators are words; they print as in the kernel all the same.
    """
    words = [repr(value) for _, value in signature.parameters if not isinstance(value, str)]
    operators = [word.removeprefix("nl.") for word in words if word.startswith("nl.")]
    return operators[0] if len(operators) == 1 and operators[0] in ASSOCIATIVE else ""


def _in_place(places: list[tuple[_Operand, int, int]]) -> tuple[int, ...]:
    """Return the slots of a tile that is read once and written in its place: none, or two."""
    written = [place for place in places if place[0].access is Access.WRITE]
    if len(written) != 1:
        return ()
    target, *where = written[0]
    same = [
        operand.slot
        for operand, *place in places
        if operand is not target and place == where and (operand.region, operand.low) == (target.region, target.low)
    ]
    return (target.slot, same[0]) if len(same) == 1 else ()


@dataclass(slots=True)
class _Chains:
    """Sums in a loop, by the records that add to them.

    Attributes:
        goes_on: records that go on with a sum of earlier iterations, with a record of one of these.
        begun: records that add to what an iteration but the first wrote, with the record that wrote it.
    """

    goes_on: dict[int, int]
    begun: dict[int, int]


def _first(
    touches: _Touches, program: Program, loop: Frame, number: Ints, pairs: Iterator[tuple[int, int]]
) -> Carried | None:
    """Return the first two iterations that depend on each other.

    Args:
        number: by record, its iteration.
        pairs: records that wait for one another: in different iterations, or one of them may be part of a sum.
    """
    chains = _Chains({}, {})
    for later, group in groupby(pairs, key=lambda pair: pair[0]):
        found = [one for _, earlier in group for one in _between(touches, program, number, later, earlier, chains)]
        if found:
            storage, first, does, did = min(found, key=lambda one: (_PLAINEST.index(one[2]), one[3] != "reads"))
            return Carried(loop, storage, first, later, (int(number[first]), int(number[later])), does, did)
    return None


def _between(
    touches: _Touches, program: Program, number: Ints, later: int, earlier: int, chains: _Chains
) -> Iterator[tuple[int, int, str, str]]:
    """Yield how one record depends on another: storage, the record of an earlier iteration, what the two do."""
    across = bool(number[later] != number[earlier])
    for met in touches.meeting(later, earlier):
        storage = touches.storage(later, met.slot)
        if met.sums and met.sums == met.summed:
            if earlier in chains.begun:
                chains.begun[later] = chains.begun[earlier]
                if across:
                    yield storage, chains.begun[earlier], "adds to", "wrote"
            if across or earlier in chains.goes_on:
                chains.goes_on[later] = chains.goes_on.get(earlier, earlier)
            continue
        if met.sums and met.writes and across and number[earlier] == 0:
            chains.goes_on[later] = earlier  # the first iteration writes what the others add to
            continue
        if met.sums and met.writes and not across and number[earlier]:
            chains.begun[later] = earlier
        if across or (met.summed and earlier in chains.goes_on):
            if not met.reads and program.storages[storage].role == "plane":
                continue  # two tensors at one address, a matter of space
            does = "adds to" if met.sums else "reads" if met.reads else "overwrites"
            did = "added to" if met.summed else "wrote" if met.writes else "reads"
            yield storage, earlier if across else chains.goes_on[earlier], does, did
