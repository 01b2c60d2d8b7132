"""What a kernel's source calls a tensor: the variable that its allocation is assigned to.

Read when a message or a report asks, from the place that the record keeps; a file is looked at once. A helper that
returns what it allocates is looked through: the name is its caller's. Where no variable says it (an argument of another
call, a source that is not there) there is no name, and the made-up one stands.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from neurosim.program import Frame
from neurosim.record.sources import tree_of
from neurosim.record.storages import default_name as default_name

_RETURNED = ""
"""In place of a name: what is made here is the function's result."""


LOOP_VARIABLE: Final = "loop_variable"
LOOP_CONDITION: Final = "loop_condition"
"""Registers of a loop on the device, where the source gives them no other name."""
_MADE_UP = re.compile(rf"(sbuf|psum|hbm|register)_\d+|{LOOP_VARIABLE}|{LOOP_CONDITION}")


class _Place(NamedTuple):
    line: int
    column: int


def label(name: str, stack: Sequence[Frame]) -> str:
    """Return what messages call a tensor: the name that it was given, or its variable in place of a made-up one."""
    return (_MADE_UP.fullmatch(name) and variable(stack)) or name


def variable(stack: Sequence[Frame]) -> str | None:
    """Return what the source calls that which a call stack's innermost frame allocates; None where it does not say.

    Args:
        stack: innermost frame first.
    """
    for frame in stack:
        name = _names(tree_of(frame.path)).get(_Place(frame.line, frame.column))
        if name != _RETURNED:
            return name
    return None


@lru_cache(maxsize=256)
def _names(tree: ast.Module) -> dict[_Place, str]:
    """Return, by the place of each call that makes a variable's value, the variable."""
    found: dict[_Place, str] = {}
    for node in ast.walk(tree):
        for target, value in _bindings(node):
            name = _RETURNED if target is None else ast.unparse(target)
            for call in _makers(value):
                found[_Place(call.lineno, call.col_offset)] = name
    return found


def _bindings(node: ast.AST) -> Iterator[tuple[ast.expr | None, ast.expr]]:
    """Yield what a node binds to what; a target of None stands for the caller's variable."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _paired(target, node.value)
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, ast.For):
        yield from _paired(node.target, node.iter)  # a loop on the device allocates its variable
    elif isinstance(node, ast.Return) and node.value is not None:
        yield None, node.value
    elif isinstance(node, ast.Lambda):
        yield None, node.body
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
        for value in node.args:
            yield node.func.value, value


def _paired(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield targets with their values: ``a, b = f(), g()`` is two. What one call gives to several has no one name."""
    if not isinstance(target, (ast.Tuple, ast.List)):
        yield target, value
    elif isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
        for one, other in zip(target.elts, value.elts, strict=True):
            yield from _paired(one, other)


def _makers(value: ast.expr) -> Iterator[ast.Call]:
    """Yield the calls that an expression's value comes from, not those that compute their arguments."""
    match value:
        case ast.Call(func=ast.Attribute(value=inner)):
            yield value
            yield from _makers(inner)  # nl.ndarray(…).reshape(…)
        case ast.Call():
            yield value
        case ast.Subscript(value=inner) | ast.Starred(value=inner) | ast.NamedExpr(value=inner):
            yield from _makers(inner)
        case ast.IfExp(body=one, orelse=other):
            yield from _makers(one)
            yield from _makers(other)
        case ast.List(elts=entries) | ast.Tuple(elts=entries):
            for entry in entries:
                yield from _makers(entry)
        case ast.Dict(values=entries):
            for entry in entries:
                yield from _makers(entry)
        case ast.ListComp(elt=entry) | ast.GeneratorExp(elt=entry) | ast.DictComp(value=entry):
            yield from _makers(entry)
