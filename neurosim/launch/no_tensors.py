"""Errors of Python where a kernel takes an argument for a tensor that is none: a list, None, a number."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, Final

from neurosim.errors import IllegalOperand
from neurosim.view import NkiTensor

Mistake = AttributeError | TypeError | IndexError

_SUBSCRIPTS: Final = re.compile(
    r"indices must be integers|not subscriptable|unhashable type: 'slice'|invalid index to scalar"
)
"""What Python says of brackets behind a list, a tuple or a text; behind a number or None; behind a dict; behind one of
NumPy's scalars."""

_SHARED: Final = (type(None), bool, int, float, str)
"""Kinds of objects of which one may stand in many places, so that it does not say where it comes from."""

_LONGEST: Final = 60
"""In characters, of a value that is shown."""


def no_tensor(error: Mistake, arguments: Mapping[str, Any], kernel: str) -> IllegalOperand | None:
    """Return the error of a kernel that uses an argument as a tensor that is none; None where it is another mistake.

    Args:
        error: what Python raised in the kernel.
        arguments: what it was called with, by parameter.
        kernel: its name.
    """
    found = next(_found(error, arguments), None)
    if found is None:
        return None
    name, value, use = found
    text = repr(value)
    return IllegalOperand(
        f"{kernel}: argument {name} is no tensor, and the kernel asks for {use}",
        numbers=(f"{name} is {text[:_LONGEST]}{'…' if len(text) > _LONGEST else ''} ({type(value).__name__})",),
        advice="pass an array of NumPy, PyTorch or JAX, such as np.asarray(…, dtype=np.float32)",
    )


def _found(error: Mistake, arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Yield name, value and use of arguments that an error may be about, what is known for sure first."""
    if isinstance(error, AttributeError):
        asked = error.name or ""
        if not hasattr(NkiTensor, asked):
            return
        use, sign = f"its {asked}", rf"\s*\.\s*{re.escape(asked)}\b"
        if not isinstance(error.obj, _SHARED):
            yield from ((path, error.obj, use) for path, value in _paths(arguments) if value is error.obj)
    elif _SUBSCRIPTS.search(str(error)):
        use, sign = "a part of it", r"\s*\["
    else:
        return
    frame, line = _innermost(error)
    for name, value in arguments.items():
        is_here = name in frame.f_locals and frame.f_locals[name] is value and not isinstance(value, NkiTensor)
        if is_here and re.search(rf"\b{re.escape(name)}{sign}", line) and _raises(value, error):
            yield name, value, use


def _raises(value: Any, error: Mistake) -> bool:
    """Whether a value would raise the error that was raised, as far as that can be told from its type."""
    if isinstance(error, AttributeError):
        return value is error.obj
    return not isinstance(value, dict) or "unhashable" in str(error)


def _innermost(error: BaseException) -> tuple[FrameType, str]:
    """Return the frame that an error was raised in, and its line."""
    trace = error.__traceback__
    assert trace is not None  # it was raised
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame, linecache.getline(trace.tb_frame.f_code.co_filename, trace.tb_lineno)


def _paths(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield arguments, and entries of those that are lists, tuples and dicts."""
    for name, value in arguments.items():
        yield name, value
        if isinstance(value, (list, tuple)):
            yield from ((f"{name}[{index}]", entry) for index, entry in enumerate(value))
        elif isinstance(value, dict):
            yield from ((f"{name}[{key!r}]", entry) for key, entry in value.items())
