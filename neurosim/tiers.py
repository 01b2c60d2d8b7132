"""Loops over a program's records, as plain Python where so few are to be done that compiled code would take longer.

To compile the loop over events takes as long as to run it as plain Python for half a million records; to load it from
disk, as long as for a thousand. So each process begins in plain Python, and goes on with compiled code when it has
done so many records that this pays, or would with the next program. What counts is records, not time on a clock: a
process does the same each time.

The Python is that of the compiled function. It works on the same memory, on rows as wide as they are: an array with
named columns is a list of C structures, another one a view of memory, and of two dimensions a list of them (so that
elements are ``array[row][column]``). Integers are Python's own.
"""

from __future__ import annotations

import ctypes
import functools
from collections import Counter
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, TypeVar

import numpy as np

from neurosim import jit

R = TypeVar("R")

#: Records that a process does in plain Python before a function is loaded, and before it is compiled. One takes the
#: loop over events some 40 us, the other loops a few; it is loaded in 25 ms, and compiled in 15 s (measured).
LOADED_AFTER: Final = 600
COMPILED_AFTER: Final = 20_000

_done: Counter[Callable[..., Any]] = Counter()


def run(records: int, function: Callable[..., R], *arguments: Any) -> R:
    """Call a function under :func:`neurosim.jit.compiled`, compiled or not; what it does is the same.

    Args:
        records: of the program that it goes through: a measure of what it has to do.
        function: it may read and write arrays of integers, and compute on integers that 64 bits hold.
        arguments: arrays, contiguous along their rows, integers, and named tuples of them.
    """
    if _pays(records, function):
        return function(*arguments)
    found: R = twin(function)(*map(_opened, arguments))
    return found


def _pays(records: int, function: Any) -> bool:
    """Return whether compiled code is worth its while, and count the records if not."""
    if jit.INTERPRETED:
        return False
    if function.is_loaded:
        return True
    limit = LOADED_AFTER if function.is_on_disk() else COMPILED_AFTER
    if _done[function] + records > limit:
        return True
    _done[function] += records
    return False


@functools.cache
def twin(function: Callable[..., R]) -> Callable[..., R]:
    """Return a compiled function as plain Python, which calls plain Python alone: for arguments that are opened."""
    python = jit.python_of(function)
    names: dict[str, Any] = {}
    made = FunctionType(python.__code__, names, python.__name__, python.__defaults__)
    for name in python.__code__.co_names:
        value = python.__globals__.get(name)
        if value is np.int64:
            names[name] = int
        elif isinstance(jit.python_of(value), FunctionType):
            names[name] = twin(value)
        elif name in python.__globals__:
            names[name] = value
    return made


def _opened(value: Any) -> Any:
    """Return an argument as plain Python works on it fastest, in the same memory."""
    if isinstance(value, tuple):
        return value._make(map(_opened, value))  # type: ignore[attr-defined]
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray):
        return value
    memory: Any = value
    if value.dtype.names is None:
        return memoryview(memory) if value.ndim == 1 else [memoryview(row) for row in memory]
    return list((_row(value.dtype) * len(value)).from_buffer(memory)) if len(value) else []


@functools.cache
def _row(form: np.dtype[Any]) -> type[ctypes.Structure]:
    """Return a row of a table as a structure of C."""
    columns = [(name, np.ctypeslib.as_ctypes_type(form[name])) for name in form.names or ()]
    return type("Row", (ctypes.Structure,), {"_pack_": 1, "_fields_": columns})
