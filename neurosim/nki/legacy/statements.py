"""What stands on the right of ``tile[...] = …``: an expression, whose result goes there, or a name, which is copied.

Legacy kernels were read as source text by their compiler, so that reading it here is no more than that. The source is
looked at once per statement.
"""

from __future__ import annotations

import ast
import linecache
import sys
from functools import lru_cache
from types import CodeType


def assigns_expression() -> bool:
    """Return whether the statement that called ``__setitem__`` assigns the result of a call or an operator."""
    frame = sys._getframe(2)
    return _assigns_expression(frame.f_code, frame.f_lasti)


@lru_cache(maxsize=4096)
def _assigns_expression(code: CodeType, lasti: int) -> bool:
    positions = list(code.co_positions())
    line, end_line, column, end_column = positions[lasti // 2]
    place = (line, end_line, column, end_column)
    found = _targets(code.co_filename).get(place)
    return found is True


@lru_cache(maxsize=256)
def _targets(file: str) -> dict[tuple[int | None, int | None, int | None, int | None], bool]:
    """Return, by the place of each subscript that is assigned to, whether a call or an operator makes the value."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return {}
    found: dict[tuple[int | None, int | None, int | None, int | None], bool] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            makes = isinstance(node.value, (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare)) and len(targets) == 1
            for target in targets:
                if isinstance(target, ast.Subscript):
                    place = (target.lineno, target.end_lineno, target.col_offset, target.end_col_offset)
                    found[place] = makes
    return found
