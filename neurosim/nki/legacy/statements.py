"""What stands beside the ``=`` of a statement: an expression, whose result goes to a tile, or a name, which is copied.

Legacy kernels were read as source text by their compiler, so that reading it here is no more than that. The source is
looked at once per statement.
"""

from __future__ import annotations

import ast
import itertools
import sys
from functools import lru_cache
from types import CodeType
from typing import Any

from neurosim.record.sources import notice, tree_of

Place = tuple[int | None, int | None, int | None, int | None]
"""First line, last line, first column, last column plus one."""


def assigns_expression() -> bool:
    """Return whether the statement that called ``__setitem__`` assigns the result of a call or an operator."""
    frame = sys._getframe(2)
    return _assigns_expression(frame.f_code, frame.f_lasti)


def held_by_name() -> Any:
    """Return what a name holds until now that the result of the calling function is assigned to, or None."""
    frame = sys._getframe(2)
    name = _name(frame.f_code, frame.f_lasti)
    return None if name is None else frame.f_locals.get(name)


@lru_cache(maxsize=4096)
def _place(code: CodeType, lasti: int) -> Place:
    return next(itertools.islice(code.co_positions(), lasti // 2, None))


@lru_cache(maxsize=4096)
def _assigns_expression(code: CodeType, lasti: int) -> bool:
    return _targets(_source(code)).get(_place(code, lasti)) is True


@lru_cache(maxsize=4096)
def _name(code: CodeType, lasti: int) -> str | None:
    return _names(_source(code)).get(_place(code, lasti))


def _source(code: CodeType) -> ast.Module:
    notice(code)
    return tree_of(code.co_filename)


@lru_cache(maxsize=256)
def _names(tree: ast.Module) -> dict[Place, str]:
    """Return, by the place of each call whose result is assigned to one name, the name."""
    return {
        (call.lineno, call.end_lineno, call.col_offset, call.end_col_offset): node.targets[0].id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
        if isinstance(call := node.value, ast.Call)
    }


@lru_cache(maxsize=256)
def _targets(tree: ast.Module) -> dict[Place, bool]:
    """Return, by the place of each subscript that is assigned to, whether a call or an operator makes the value."""
    found: dict[Place, bool] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            makes = isinstance(node.value, (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare)) and len(targets) == 1
            for target in targets:
                if isinstance(target, ast.Subscript):
                    place = (target.lineno, target.end_lineno, target.col_offset, target.end_col_offset)
                    found[place] = makes
    return found
