"""``mask=a and b``: Python keeps one of the two; the old compiler, which read the source, joined them.

So a kernel that writes it is compiled anew from its source, with ``&`` there. Lines and columns stay what they are.

Source: AWS Neuron SDK, ``nki/test/test_nki_isa_nc_match_replace8.py``, a kernel with such a mask.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from neurosim.record.sources import notice, tree_of


def joined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel with ``and`` of masks as ``&``; the function itself where it has none."""
    if not isinstance(function, FunctionType):
        return function
    node = _definition(function.__code__)
    if node is None or not any(map(_joins, ast.walk(node))):
        return function
    made = _Joining().visit(copy.deepcopy(node))
    made.decorator_list = []
    names = function.__code__.co_freevars
    outer = ast.parse(f"def outer({', '.join(names)}): pass")
    outer.body[0].body = [made]  # type: ignore[attr-defined]
    code = _inner(_inner(compile(outer, function.__code__.co_filename, "exec"), "outer"), function.__name__)
    cells = dict(zip(names, function.__closure__ or (), strict=True))
    fresh = FunctionType(
        code.replace(co_qualname=function.__code__.co_qualname),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        tuple(cells[name] for name in code.co_freevars),
    )
    fresh.__kwdefaults__, fresh.__dict__ = function.__kwdefaults__, {**function.__dict__}
    fresh.__doc__, fresh.__module__, fresh.__qualname__ = function.__doc__, function.__module__, function.__qualname__
    fresh.__annotations__ = function.__annotations__
    return fresh


def _definition(code: CodeType) -> ast.FunctionDef | None:
    notice(code)
    for node in ast.walk(tree_of(code.co_filename)):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
            if first == code.co_firstlineno:
                return node
    return None


def _joins(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.keyword)
        and node.arg == "mask"
        and any(isinstance(part, ast.BoolOp) and isinstance(part.op, ast.And) for part in ast.walk(node.value))
    )


def _inner(code: CodeType, name: str) -> CodeType:
    return next(found for found in code.co_consts if isinstance(found, CodeType) and found.co_name == name)


class _Joining(ast.NodeTransformer):
    """Puts ``&`` for ``and`` within ``mask=``."""

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        """Change the value of ``mask=``, and what calls within other values have."""
        if node.arg == "mask":
            node.value = _Ampersands().visit(node.value)
            return node
        self.generic_visit(node)
        return node


class _Ampersands(ast.NodeTransformer):
    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.op, ast.And):
            return node
        total = node.values[0]
        for value in node.values[1:]:
            total = ast.copy_location(ast.BinOp(total, ast.BitAnd(), value), node)
        return total
