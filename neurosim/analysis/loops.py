"""Which loops a record is in, and in which trip: read off the source's ``for`` and ``while`` statements.

Loops on the device are recorded, trip by trip. For all others nothing is while the kernel runs: a call stack knows its
lines, and the order of records tells the trips. A new trip of a loop has begun when a record lies at or before the
place of the one before it within the loop's body. So where a body holds nothing but an inner loop, its trips are
counted on the inner one.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType

from neurosim.program import Frame, Program
from neurosim.record.sources import notice, tree_of


@dataclass(frozen=True, slots=True)
class Trip:
    """One loop around a record.

    Attributes:
        file, line: of the loop statement.
        index: number of the trip since the loop was entered, from 0.
    """

    file: str
    line: int
    index: int


@lru_cache(maxsize=256)
def _loops_by_line(tree: ast.Module) -> dict[int, tuple[int, ...]]:
    """Return, for each line of a file that lies in a loop's body, the lines of the loops around it, outermost first."""
    found: dict[int, tuple[int, ...]] = {}
    _visit(tree, (), found)
    return found


def _visit(node: ast.AST, around: tuple[int, ...], found: dict[int, tuple[int, ...]]) -> None:
    for child in ast.iter_child_nodes(node):
        inner = around
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            inner = ()
        elif isinstance(node, (ast.For, ast.While)) and child in node.body:
            inner = (*around, node.lineno)
        if isinstance(child, ast.stmt) and not isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            for line in range(child.lineno, (child.end_lineno or child.lineno) + 1):
                found[line] = inner
        _visit(child, inner, found)


def enclosing(stack: tuple[Frame, ...]) -> tuple[tuple[str, int, int], ...]:
    """Return (file, loop line, depth of the frame) of the loops around a call stack, outermost first."""
    loops = []
    for depth, frame in enumerate(reversed(stack)):
        loops += [(frame.path, line, depth) for line in _loops_by_line(tree_of(frame.path)).get(frame.line, ())]
    return tuple(loops)


def trips(program: Program) -> Iterator[tuple[Trip, ...]]:
    """Yield, record by record, the loops around it with their trips, outermost first."""
    loops_of = [enclosing(stack) for stack in program.stacks]
    places = [tuple(frame.offset for frame in reversed(stack)) for stack in program.stacks]
    roots = [tuple((frame.path, frame.function) for frame in reversed(stack)) for stack in program.stacks]
    last = -1
    counts: dict[tuple[str, int, int], int] = {}
    last_trip = -1
    for stack, trip in zip(program.stack_ids, program.trip_ids, strict=True):
        begun = _begun_depth(program, last_trip, trip)
        last_trip = trip
        kept: dict[tuple[str, int, int], int] = {}
        fresh = False
        for loop in loops_of[stack]:
            depth = loop[2]
            here, before = places[stack][depth:], () if last < 0 else places[last][depth:]
            same = (
                last >= 0
                and not fresh
                and depth <= begun
                and loop in counts
                and roots[last][: depth + 1] == roots[stack][: depth + 1]
            )
            if same and places[last][:depth] != places[stack][:depth]:
                same = False  # the loop's function was called from another place
            if not same:
                kept[loop] = 0
                fresh = True
            elif here <= before and not _inner_turned(loops_of[stack], loop, loops_of[last]):
                kept[loop] = counts[loop] + 1
                fresh = True
            else:
                kept[loop] = counts[loop]
        counts, last = kept, stack
        yield _with_device_loops(program, trip, kept)


def _chain(program: Program, trip: int) -> list[int]:
    """Return a trip of a loop on the device, behind those around it, outermost first."""
    chain: list[int] = []
    while trip >= 0:
        chain.append(trip)
        trip = program.trips[trip].parent
    return chain[::-1]


def _depth(program: Program, trip: int) -> int:
    """Return the depth of the frame that a trip's loop stands in."""
    return len(program.stacks[program.trips[trip].stack]) - 1


def _begun_depth(program: Program, before: int, trip: int) -> int:
    """Return how deep frames go on from the record before: to where a trip of a loop on the device began."""
    if trip == before:
        return sys.maxsize
    known = set(_chain(program, before))
    return min((_depth(program, entry) for entry in _chain(program, trip) if entry not in known), default=sys.maxsize)


def _with_device_loops(program: Program, trip: int, kept: dict[tuple[str, int, int], int]) -> tuple[Trip, ...]:
    """Return the loops around a record with their trips: those of statements, and those on the device."""
    found = [(depth, Trip(file, line, index)) for (file, line, depth), index in kept.items()]
    for entry in _chain(program, trip):
        device, depth = program.trips[entry], _depth(program, entry)
        frame = program.stacks[device.stack][0]
        one = (depth, Trip(frame.path, frame.line, device.number))
        places = [
            place for place, (_, other) in enumerate(found) if (other.file, other.line) == (frame.path, frame.line)
        ]
        if places:
            found[places[0]] = one
        else:
            found.insert(sum(other <= depth for other, _ in found), one)
    return tuple(entry for _, entry in found)


def _inner_turned(
    loops: tuple[tuple[str, int, int], ...], loop: tuple[str, int, int], before: tuple[tuple[str, int, int], ...]
) -> bool:
    """Return whether going back may be a turn of a loop further in that both records are in."""
    inner = loops[loops.index(loop) + 1 :]
    return bool(inner) and inner[0] in before


@lru_cache(maxsize=256)
def _while_tests(tree: ast.Module) -> dict[int, int]:
    """Return, for each line of a plain ``while`` condition (a name, an attribute, an item), the statement's line."""
    return {
        line: node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.While) and isinstance(node.test, (ast.Name, ast.Attribute, ast.Subscript))
        for line in range(node.test.lineno, (node.test.end_lineno or node.test.lineno) + 1)
    }


def while_on_line(code: CodeType, line: int) -> int | None:
    """Return the line of the ``while`` statement whose condition is on a line and is one value, None for none."""
    notice(code)
    return _while_tests(tree_of(code.co_filename)).get(line)
