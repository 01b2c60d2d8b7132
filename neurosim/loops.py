"""Which loops a record is in, and in which trip: read off the source's ``for`` and ``while`` statements.

Nothing is recorded for this while the kernel runs: a call stack knows its lines, and the order of records tells the
trips. A new trip of a loop has begun when a record lies at or before the place of the one before it within the loop's
body. So where a body holds nothing but an inner loop, its trips are counted on the inner one.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from neurosim.program import Frame, Program


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
def _loops_by_line(file: str) -> dict[int, tuple[int, ...]]:
    """Return, for each line of a file that lies in a loop's body, the lines of the loops around it, outermost first."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return {}
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
        loops += [(frame.path, line, depth) for line in _loops_by_line(frame.path).get(frame.line, ())]
    return tuple(loops)


def trips(program: Program) -> Iterator[tuple[Trip, ...]]:
    """Yield, record by record, the loops around it with their trips, outermost first."""
    loops_of = [enclosing(stack) for stack in program.stacks]
    places = [tuple(frame.offset for frame in reversed(stack)) for stack in program.stacks]
    roots = [tuple((frame.path, frame.function) for frame in reversed(stack)) for stack in program.stacks]
    last = -1
    counts: dict[tuple[str, int, int], int] = {}
    for stack in program.stack_ids:
        kept: dict[tuple[str, int, int], int] = {}
        fresh = False
        for loop in loops_of[stack]:
            depth = loop[2]
            here, before = places[stack][depth:], () if last < 0 else places[last][depth:]
            same = last >= 0 and not fresh and loop in counts and roots[last][: depth + 1] == roots[stack][: depth + 1]
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
        yield tuple(Trip(file, line, index) for (file, line, _), index in kept.items())


def _inner_turned(
    loops: tuple[tuple[str, int, int], ...], loop: tuple[str, int, int], before: tuple[tuple[str, int, int], ...]
) -> bool:
    """Return whether going back may be a turn of a loop further in that both records are in."""
    inner = loops[loops.index(loop) + 1 :]
    return bool(inner) and inner[0] in before
