"""Calls in a kernel that NKI's functions and views do not take: Python's own error says neither line nor parameters."""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import re
from itertools import islice
from types import FrameType, ModuleType, TracebackType
from typing import Any, Final

from neurosim.errors import IllegalCall
from neurosim.record.call_stacks import is_own
from neurosim.spelling import unknown_keyword
from neurosim.view import NkiTensor

_REFUSED: Final = re.compile(r"\(\) (?:got|takes|missing) ")
"""What Python says of a call whose arguments do not fit."""
_KEYWORD: Final = re.compile(r"unexpected keyword argument '(\w+)'")
_VIEW: Final = re.compile(r"NkiTensor\.([a-z_]+)\(\)")
"""How it calls a view's method, whatever it is called on."""
_OWN: Final = ("neurosim", "isa")


def miscalled(error: BaseException) -> IllegalCall | None:
    """Return the error of a call in the kernel's source whose arguments do not fit; None where it is another mistake.

    Args:
        error: what Python raised in the kernel.
    """
    trace = error.__traceback__
    if not isinstance(error, TypeError) or trace is None or not _REFUSED.search(str(error)):
        return None
    while trace.tb_next is not None:
        trace = trace.tb_next
    call = None if is_own(trace.tb_frame.f_code) else _call(trace)
    if call is None:
        return None
    name, function = ast.unparse(call.func), _value(call.func, trace.tb_frame)
    view = _VIEW.match(str(error))
    if function is None and view:
        name, function = view[0].removesuffix("()"), getattr(NkiTensor, view[1])
    if not callable(function) or _package(function) not in _OWN:
        return None
    parameters = [name for name in inspect.signature(function).parameters if name != "self"]
    keyword = _KEYWORD.search(str(error))
    if keyword:
        return unknown_keyword(name, keyword[1], parameters)
    return IllegalCall(f"{name}: {str(error).split('() ', 1)[-1]}", advice=f"it takes {', '.join(parameters)}")


def _call(trace: TracebackType) -> ast.Call | None:
    """Return the call that failed, as the source has it; None where there is no source."""
    code = trace.tb_frame.f_code
    first, last, start, end = next(islice(code.co_positions(), trace.tb_lasti // 2, None))
    if first is None or last is None:
        return None
    lines = [linecache.getline(code.co_filename, line).encode() for line in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    try:
        found = ast.parse(b"".join(lines), mode="eval").body
    except SyntaxError:
        return None
    return found if isinstance(found, ast.Call) else None


def _value(node: ast.expr, frame: FrameType) -> Any:
    """Return what a name stands for, or what a module or a value of ours has by it; None of any other expression."""
    if isinstance(node, ast.Name):
        places = (frame.f_locals, frame.f_globals, vars(builtins))
        return next((place[node.id] for place in places if node.id in place), None)
    if not isinstance(node, ast.Attribute):
        return None
    base = _value(node.value, frame)
    known = isinstance(base, ModuleType) or _package(type(base)) in _OWN
    return getattr(base, node.attr, None) if known else None


def _package(value: Any) -> str:
    return str(getattr(value, "__module__", "")).partition(".")[0]
