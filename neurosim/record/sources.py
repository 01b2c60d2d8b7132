"""The source that kernels were loaded from, parsed.

A file may be edited and loaded again while a process lives, as in a notebook. Code that nobody has seen yet tells that
it was: only then is its file looked at again, so that what was loaded before an edit keeps its source.
"""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache
from types import CodeType
from weakref import WeakSet

_seen: dict[str, WeakSet[CodeType]] = {}
"""By file, the code that was met."""
_texts: dict[str, tuple[list[str], str]] = {}
"""By file, its lines and these together."""


def notice(code: CodeType) -> None:
    """Take note of code that runs: what is asked of its file from now on is of a source that may hold it."""
    known = _seen.setdefault(code.co_filename, WeakSet())
    if code not in known:
        known.add(code)
        linecache.checkcache(code.co_filename)


def tree_of(file: str) -> ast.Module:
    """Return the source of a file, parsed; the same tree for the same text, an empty one where it is no Python."""
    lines = linecache.getlines(file)
    known = _texts.get(file)
    if known is None or known[0] is not lines:  # linecache keeps a list until it looks at the file again
        known = _texts[file] = lines, "".join(lines)
    return _parsed(known[1])


@lru_cache(maxsize=256)
def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return ast.Module([], [])
