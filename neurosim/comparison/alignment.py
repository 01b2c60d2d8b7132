"""Which kernel line of one run is which of another: by what stands there, not by its number."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import PurePath
from typing import Final, NamedTuple

from neurosim.report.schema import LineSummary

ALIKE: Final = 0.6
"""From this likeness on a statement is taken for another one that was edited, wherever it stands."""
NEARLY: Final = 0.5
"""From this likeness on, where it stands between the same neighbours: of two names, one is the same."""
_MODULES: Final = frozenset({"nki", "nisa", "nl"})
"""What kernels call NKI's modules, whose names say little of what a statement works on."""


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
    elsewhere; then likewise the same instruction with operands of the same names. What is left is paired by how many of
    the names are the same, between the same neighbours first; and at last by instruction, where as many of it are left
    between the same neighbours in both.
    """
    partner: dict[int, int] = {}
    names = [_names(place.source) for place in a], [_names(place.source) for place in b]
    statements = [[(place.instruction, " ".join(place.source.split())) for place in side] for side in (a, b)]
    operands = [
        [(place.instruction, named or object()) for place, named in zip(side, of, strict=True)]
        for side, of in zip((a, b), names, strict=True)
    ]
    for one, other in (statements, operands):
        for gap in _gaps(partner, len(a), len(b)):
            _in_order(one, other, *gap, partner)
        _anywhere(one, other, partner)
    taken = set(partner.values())
    likeness = {
        (row, column): _likeness(names[0][row], names[1][column])
        for row in range(len(a))
        for column in range(len(b))
        if row not in partner and column not in taken and a[row].instruction == b[column].instruction
    }
    for gap in _gaps(partner, len(a), len(b)):
        _most_alike(*gap, likeness, partner)
    _alike(likeness, partner)
    for gap in _gaps(partner, len(a), len(b)):
        _by_instruction(a, b, *gap, partner)
    return _pairs(a, b, partner)


def _names(source: str) -> tuple[str, ...]:
    """Return what a statement names as operands, in its order: tensors without brackets and methods behind them."""
    try:
        tree = ast.parse(source.strip())
    except SyntaxError:  # a part of a statement
        return tuple(re.findall(r"[A-Za-z_]\w*(?!\w*\s*[=(.])", source))
    return tuple(_roots(tree))


def _roots(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Subscript(value=inner):
            yield from _roots(inner)
        case ast.Call(func=ast.Attribute(value=inner)):
            yield from _roots(inner)
            for given in (*node.args, *node.keywords):
                yield from _roots(given)
        case ast.Call():
            for given in (*node.args, *node.keywords):
                yield from _roots(given)
        case ast.Attribute():
            chain = ast.unparse(node)
            if chain.partition(".")[0] not in _MODULES:
                yield chain
        case ast.Name():
            if node.id not in _MODULES:
                yield node.id
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _roots(child)


def _likeness(one: Sequence[str], other: Sequence[str]) -> float:
    """Return the part of names that two statements share; a name that goes on from another is the same (at, ats)."""
    left, shared = list(other), 0
    for name in one:
        found = next((each for each in left if _is_same(name, each)), None)
        if found is not None:
            left.remove(found)
            shared += 1
    return 2 * shared / max(len(one) + len(other), 1)


def _is_same(one: str, other: str) -> bool:
    shorter, longer = sorted((one, other), key=len)
    return longer.startswith(shorter) and len(longer) <= 2 * len(shorter)


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


def _most_alike(
    rows: Sequence[int], columns: Sequence[int], likeness: Mapping[tuple[int, int], float], partner: dict[int, int]
) -> None:
    """Add the pairs in order whose likeness adds up to most."""
    best: dict[tuple[int, int], tuple[float, tuple[tuple[int, int], ...]]] = {}
    for i in range(len(rows) + 1):
        for j in range(len(columns) + 1):
            options = [best[place] for place in ((i - 1, j), (i, j - 1)) if place in best]
            alike = likeness.get((rows[i - 1], columns[j - 1]), 0.0) if i and j else 0.0
            if alike >= NEARLY:
                total, pairs = best[i - 1, j - 1]
                options.append((total + alike, (*pairs, (rows[i - 1], columns[j - 1]))))
            best[i, j] = max(options, key=lambda option: option[0], default=(0.0, ()))
    partner.update(best[len(rows), len(columns)][1])


def _alike(likeness: Mapping[tuple[int, int], float], partner: dict[int, int]) -> None:
    """Add pairs that are much alike, the most alike first."""
    taken = set(partner.values())
    for (row, column), alike in sorted(likeness.items(), key=lambda item: (-item[1], item[0])):
        if alike >= ALIKE and row not in partner and column not in taken:
            partner[row] = column
            taken.add(column)


def _by_instruction(
    a: Sequence[Place], b: Sequence[Place], rows: Sequence[int], columns: Sequence[int], partner: dict[int, int]
) -> None:
    """Add pairs of one instruction in order, where both have as many of it."""
    for instruction in dict.fromkeys(a[row].instruction for row in rows):
        left = [row for row in rows if a[row].instruction == instruction]
        right = [column for column in columns if b[column].instruction == instruction]
        if len(left) == len(right):
            partner.update(zip(left, right, strict=True))


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
