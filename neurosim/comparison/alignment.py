"""Which kernel line of one run is which of another: by what stands there, not by its number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import PurePath
from typing import Final, NamedTuple

from neurosim.report.schema import LineSummary

ALIKE: Final = 0.6
"""From this likeness on (:class:`difflib.SequenceMatcher`) a statement is taken for another one that was edited."""


class Place(NamedTuple):
    """An instruction on a kernel line, with what it cost on each engine that took part.

    Attributes:
        file: name of the file, without its folders.
        line: number of the line.
        instruction: the instruction.
        source: the statement.
        engines: costs by engine; all DMA engines are ``dma``.
    """

    file: str
    line: int
    instruction: str
    source: str
    engines: dict[str, LineSummary]


def places(lines: Sequence[LineSummary]) -> list[Place]:
    """Return the places of a run in the order of its source."""
    found: dict[tuple[str, int, str], Place] = {}
    for cost in lines:
        file = PurePath(cost["file"].replace("\\", "/")).name
        key = (file, cost["line"], cost["instruction"])
        place = found.setdefault(key, Place(*key, cost["source"], {}))
        place.engines[cost["engine"]] = cost
    return [found[key] for key in sorted(found)]


def aligned(a: Sequence[Place], b: Sequence[Place]) -> list[tuple[Place | None, Place | None]]:
    """Return pairs of places, in the order of B's source; None stands for a line that the other run has not.

    A line's partner has the same statement and stands in the same order; where lines moved, the same statement
    elsewhere; else the same instruction between the same neighbours, or with a statement that is much alike.
    """
    partner: dict[int, int] = {}
    whole = range(len(a)), range(len(b))
    statements = [(place.instruction, " ".join(place.source.split())) for place in a]
    others = [(place.instruction, " ".join(place.source.split())) for place in b]
    _in_order(statements, others, *whole, partner)
    _anywhere(statements, others, partner)
    for gap in _gaps(partner, len(a), len(b)):
        _in_order([place.instruction for place in a], [place.instruction for place in b], *gap, partner)
    _alike(a, b, partner)
    return _pairs(a, b, partner)


def _in_order(
    a: Sequence[Hashable], b: Sequence[Hashable], rows: Sequence[int], columns: Sequence[int], partner: dict[int, int]
) -> None:
    """Add pairs of equal things that stand in the same order."""
    matcher = SequenceMatcher(None, [a[row] for row in rows], [b[column] for column in columns], autojunk=False)
    for block in matcher.get_matching_blocks():
        for step in range(block.size):
            partner[rows[block.a + step]] = columns[block.b + step]


def _anywhere(a: Sequence[Hashable], b: Sequence[Hashable], partner: dict[int, int]) -> None:
    """Add pairs of equal things among those that have no partner, first with first."""
    taken = set(partner.values())
    free: defaultdict[Hashable, list[int]] = defaultdict(list)
    for column in range(len(b)):
        if column not in taken:
            free[b[column]].append(column)
    for row in range(len(a)):
        if row not in partner and free[a[row]]:
            partner[row] = free[a[row]].pop(0)


def _alike(a: Sequence[Place], b: Sequence[Place], partner: dict[int, int]) -> None:
    """Add pairs of one instruction with statements that are much alike, the most alike first."""
    taken = set(partner.values())
    left = [column for column in range(len(b)) if column not in taken]
    likeness = [
        (-SequenceMatcher(None, a[row].source, b[column].source, autojunk=False).ratio(), row, column)
        for row in range(len(a))
        for column in left
        if row not in partner and a[row].instruction == b[column].instruction
    ]
    for unlike, row, column in sorted(likeness):
        if -unlike >= ALIKE and row not in partner and column not in taken:
            partner[row] = column
            taken.add(column)


def _gaps(partner: dict[int, int], rows: int, columns: int) -> list[tuple[list[int], list[int]]]:
    """Return what is left of both between neighbours that pair in order."""
    taken = set(partner.values())
    borders, reached = [(-1, -1)], -1
    for row in sorted(partner):
        if partner[row] > reached:
            reached = partner[row]
            borders.append((row, reached))
    borders.append((rows, columns))
    found = []
    for (row, column), (next_row, next_column) in pairwise(borders):
        left = [index for index in range(row + 1, next_row) if index not in partner]
        right = [index for index in range(column + 1, next_column) if index not in taken]
        if left and right:
            found.append((left, right))
    return found


def _pairs(a: Sequence[Place], b: Sequence[Place], partner: dict[int, int]) -> list[tuple[Place | None, Place | None]]:
    """Return B's lines with their partners, A's lone ones each after the partner of the line before it."""
    of = {column: row for row, column in partner.items()}
    after: defaultdict[int, list[Place]] = defaultdict(list)
    place = -1
    for row in range(len(a)):
        if row in partner:
            place = partner[row]
        else:
            after[place].append(a[row])
    found: list[tuple[Place | None, Place | None]] = [(lone, None) for lone in after[-1]]
    for column in range(len(b)):
        found.append((a[of[column]] if column in of else None, b[column]))
        found += [(lone, None) for lone in after[column]]
    return found
