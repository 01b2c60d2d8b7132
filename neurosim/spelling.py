"""Names that were misspelt: which one was meant."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Iterable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, overload

from neurosim.errors import IllegalCall

_Given = ParamSpec("_Given")
_Returned = TypeVar("_Returned")
_Class = TypeVar("_Class", bound=type)


def meant(name: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the question whether one of ``names`` was meant, with all that are equally near; empty if none is."""
    close = difflib.get_close_matches(name, names := list(names), len(names) or 1, cutoff)
    near = [other for other in close if _nearness(other, name) == _nearness(close[0], name)]
    return f"did you mean {' or '.join(sorted(near, key=names.index))}?" if near else ""


def _nearness(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()


def unknown_keyword(call: str, name: str, names: Collection[str]) -> IllegalCall:
    """Return the error for a call with a parameter that is not one of ``names``."""
    takes = f"it takes {', '.join(names)}" if names else "it takes no parameter"
    hint = meant(name, names)
    return IllegalCall(f"{call} has no parameter {name!r}", numbers=(takes,) if hint else (), advice=hint or takes)


@overload
def spelt(target: _Class) -> _Class: ...
@overload
def spelt(target: Callable[_Given, _Returned]) -> Callable[_Given, _Returned]: ...
def spelt(target: Any) -> Any:
    """Make a function, or each public method of a class, say which parameter was meant by an unknown keyword."""
    if isinstance(target, type):
        for name, method in list(vars(target).items()):
            if inspect.isfunction(method) and not name.startswith("_"):
                setattr(target, name, spelt(method))
        return target
    parameters = inspect.signature(target).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return target
    names = [name for name in parameters if name != "self"]

    @wraps(target)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name in kwargs:
            if name not in names:
                raise unknown_keyword(target.__name__, name, names)
        return target(*args, **kwargs)

    return call
