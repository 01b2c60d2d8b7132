"""What instructions refuse: every rule found by reading, and for each a call that breaks it, found by trying."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, Final

from neurosim import dtypes
from neurosim.chip import Chip
from neurosim.datapath.operators import Operator
from neurosim.devices import folder
from neurosim.engines import Memory
from neurosim.errors import NeurosimError
from neurosim.manual.calls import Call, Tile, declaration, examples, operands
from neurosim.manual.trials import Bench, attempt, chips
from neurosim.nki import language

_RULES: Final = "Iterator[Broken | None]"
"""What a function that yields rules is annotated with."""
_WORDS: Final = (None, True, False, -1, 0, 1, 3, 2**40, 0.5, 1e39, "text", (), ((7, 3),))
_OPERATORS: Final = ("subtract", "maximum", "less", "bitwise_or", "invert", "abs_max", "power", "rsqrt", "exp", "silu")


@dataclass(frozen=True)
class Rule:
    """One ``yield`` of a function that yields rules.

    Attributes:
        file: path below the project.
        function: its name, with the class's.
        first, last: lines.
        text: the source, on one line.
    """

    file: str
    function: str
    first: int
    last: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.first}  {self.function}: yield {self.text}"


@dataclass(frozen=True)
class Refusal:
    """A call that an instruction refuses.

    Attributes:
        rule: what it breaks, None where ``place`` or the operands' declaration refused.
        call: the call.
        changes: how it differs from a legal one.
        chip: where.
        error: what it raised.
    """

    rule: Rule | None
    call: Call
    changes: Mapping[str, Any]
    chip: Chip
    error: NeurosimError


@cache
def rules() -> tuple[Rule, ...]:
    """Return every rule of the instructions, and of the functions that they share."""
    root = folder().parent.parent
    files = [*sorted((root / "isa").glob("*.py")), *sorted((root / "neurosim").rglob("*.py"))]
    return tuple(rule for file in files for rule in _rules_of(file, root))


def _rules_of(file: Path, root: Path) -> Iterator[Rule]:
    source = file.read_text(encoding="utf-8")
    if _RULES not in source:
        return
    tree = ast.parse(source)
    owners = {id(child): node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for child in node.body}
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or node.returns is None or ast.unparse(node.returns) != _RULES:
            continue
        name = f"{owners[id(node)]}.{node.name}" if id(node) in owners else node.name
        for entry in ast.walk(node):
            if isinstance(entry, ast.Yield) and entry.value is not None:
                text = " ".join(ast.unparse(entry.value).split())
                last = entry.end_lineno or entry.lineno
                yield Rule(file.relative_to(root).as_posix(), name, entry.lineno, last, text)


@cache
def rule_at(place: tuple[CodeType, int] | None) -> Rule | None:
    """Return the rule at a place that a trial names."""
    if place is None:
        return None
    code, line = place
    for rule in rules():
        if code.co_filename.endswith(rule.file) and rule.first <= line <= rule.last:
            return rule
    return None


def variations(call: Call) -> Iterator[dict[str, Any]]:
    """Yield changes of a legal call, one operand at a time, that something may refuse."""
    for name, operand in operands(call.mnemonic).items():
        value = call.operands.get(name)
        if isinstance(value, Tile):
            yield from ({name: other} for other in _tiles(value))
            yield {name: None}
            yield {name: 2.0}
            continue
        if isinstance(value, list) and value and isinstance(value[0], Tile):
            yield from ({name: [other, *value[1:]]} for other in _tiles(value[0]))
            yield from ({name: other} for other in (None, 2.0, [], [None], value[0], value * 16))
            continue
        if operand is not None:
            yield from ({name: Tile(shape, dtype)} for shape in _columns(call) for dtype in dtypes.ALL)
        yield from ({name: other} for other in candidates(value, name, call.mnemonic))
    tiles = {name: value for name, value in call.operands.items() if isinstance(value, Tile)}
    yield {name: replace(tile, memory=Memory.psum) for name, tile in tiles.items()}
    yield {name: replace(tile, memory=Memory.psum) for name, tile in tiles.items() if name != next(iter(tiles))}


def _columns(call: Call) -> Iterator[tuple[int, ...]]:
    rows = next(value.shape[0] for value in call.operands.values() if isinstance(value, Tile))
    yield from ((rows, 1), (rows, 2), (rows // 2 or 2, 1))


def _tiles(tile: Tile) -> Iterator[Tile]:
    rows, *free = tile.shape
    last = free[-1] if free else 1
    extents = {rows // 2, 2 * rows, rows + 1} if rows < 64 else {rows // 2}
    shapes = [(extent, *free) for extent in sorted(extents) if extent > 0]
    shapes += [(rows, *free[:-1], extent) for extent in (1, last // 2, last + 1, 2 * last, 2048) if extent > 0]
    shapes += [(rows, 1, *free), (rows, 1, 1, *free), (rows, *free, 1, 1)]
    if last % 2 == 0:
        shapes.append((rows, *free[:-1], 2, last // 2))
    yield from (replace(tile, shape=shape) for shape in shapes if shape != tile.shape)
    yield from (replace(tile, dtype=dtype) for dtype in dtypes.ALL if dtype != tile.dtype)
    yield from (replace(tile, memory=memory) for memory in (Memory.sbuf, Memory.psum, Memory.hbm))
    if tile.memory.is_on_chip:
        yield replace(tile, start=16)
        yield replace(tile, shape=(rows, 2, 2, 2, 2, 2), gaps=True)


def candidates(value: Any, name: str, mnemonic: str) -> Iterator[Any]:
    """Yield other values for a parameter: those of its kind, then ones of other kinds."""
    default = default_of(mnemonic, name)
    kind = type(default if value is None else value)
    if issubclass(kind, Enum):
        yield from kind
    if issubclass(kind, Operator) or name.rstrip("01").endswith("op"):
        yield from (getattr(language, operator) for operator in _OPERATORS)
    if isinstance(value, (list, tuple)) and value:
        yield from _nested(value)
    yield from _WORDS


def default_of(mnemonic: str, name: str) -> Any:
    """Return a parameter's default, None where it has none."""
    for entry in dataclasses.fields(declaration(mnemonic)):  # type: ignore[arg-type]
        if entry.name == name and entry.default is not dataclasses.MISSING:
            return entry.default
    return None


def _nested(value: Any) -> Iterator[Any]:
    """Yield a list with another first number, and one with an entry more."""
    first, *rest = value
    yield [next(_nested(first)), *rest] if isinstance(first, (list, tuple)) else [first + 1, *rest]
    yield [*value, first]


@cache
def refusals(mnemonic: str, chip: Chip) -> Mapping[Rule, Refusal]:
    """Return the first call that breaks each rule of an instruction: those written down, then changes of legal ones."""
    first: dict[Rule, Refusal] = {}
    for refusal in _refusals(mnemonic, chip):
        if refusal.rule is not None:
            first.setdefault(refusal.rule, refusal)
    return first


def _refusals(mnemonic: str, chip: Chip) -> Iterator[Refusal]:
    known, bench = examples(mnemonic), Bench(chip)
    for call in known.refused:
        yield from _refused(call, _differing(call, known.calls), chip, bench)
    for call in known.calls:
        yield from _refused(call, {}, chip, bench)
        for changes in variations(call):
            yield from _refused(call.but(**changes), changes, chip, bench)


@cache
def taken(mnemonic: str, name: str) -> tuple[Operator, ...]:
    """Return the operators that a parameter may be on the newest chip, by name: some legal call takes each."""
    newest = max(chips().values(), key=lambda chip: chip.generation)
    every = {value for value in (getattr(language, each) for each in dir(language)) if isinstance(value, Operator)}
    calls = [call for call in examples(mnemonic).calls if isinstance(call.operands.get(name), Operator)]
    return tuple(
        operator
        for operator in sorted(every, key=repr)
        if any(attempt(call.but(**{name: operator}), newest).error is None for call in calls)
    )


def _differing(call: Call, legal: tuple[Call, ...]) -> dict[str, Any]:
    base = next(entry for entry in legal if entry.label == call.label)
    return {name: value for name, value in call.operands.items() if base.operands.get(name) != value}


def _refused(call: Call, changes: Mapping[str, Any], chip: Chip, bench: Bench) -> Iterator[Refusal]:
    outcome = bench.refusal(call)
    if outcome is not None and outcome.error is not None:
        yield Refusal(rule_at(outcome.broken), call, changes, chip, outcome.error)
