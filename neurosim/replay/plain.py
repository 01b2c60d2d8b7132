"""What a recording holds beside its program, as JSON and back: returned values and parameters, exactly as they were.

Reading makes tensors' places, numbers, text, and members of neurosim's own enumerations, which are looked up among the
modules that are loaded; it runs nothing.
"""

from __future__ import annotations

import enum
import sys
from typing import Any

import numpy as np

from neurosim import dtypes
from neurosim.datapath.operators import Operator
from neurosim.dtypes import DType
from neurosim.record.encoding import Malformed
from neurosim.replay.faces import is_ours
from neurosim.replay.template import Place

_AS_THEY_ARE = (bool, str, type(None))


class NotPlain(Exception):
    """A value that has no form in a file."""


def encoded(value: Any) -> Any:
    """Return a value as ``json.dumps`` takes it.

    Raises:
        NotPlain: it cannot be given back exactly.
    """
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind in (int, float):
        return {kind.__name__: repr(value)}
    if kind in (list, tuple):
        return {kind.__name__: [encoded(entry) for entry in value]}
    if kind is dict:
        return {"dict": [[encoded(key), encoded(entry)] for key, entry in value.items()]}
    if kind is frozenset:
        return {"frozenset": [encoded(entry) for entry in sorted(value, key=repr)]}
    if kind is Place:
        return {"place": [value.storage, value.offset_bytes, str(value.dtype), list(value.shape), list(value.steps)]}
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return {"numpy": [value.dtype.str, value.tobytes().hex()]}
    if isinstance(value, DType):
        return {"dtype": str(value)}
    if isinstance(value, Operator):
        return {"operator": value.name}
    if isinstance(value, enum.Enum) and is_ours(kind):
        return {"member": [kind.__module__, kind.__qualname__, value.name]}
    raise NotPlain(f"a {kind.__name__} has no form in a file")


def decoded(content: Any) -> Any:
    """Return the value that :func:`encoded` made something of.

    Raises:
        Malformed: it did not.
    """
    if type(content) in _AS_THEY_ARE:
        return content
    if type(content) is not dict or len(content) != 1:
        raise Malformed(f"{str(content)[:60]} is no value")
    ((kind, inner),) = content.items()
    try:
        return _READERS[kind](inner)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Malformed(f"{str(content)[:60]} is no value: {error}") from None


def _place(inner: Any) -> Place:
    storage, offset_bytes, dtype, shape, steps = inner
    return Place(int(storage), int(offset_bytes), _dtype(dtype), tuple(map(int, shape)), tuple(map(int, steps)))


def _dtype(name: Any) -> DType:
    found = dtypes.of(name) if type(name) is str else None
    if found is None:
        raise Malformed(f"{name!r} is no dtype")
    return found


def _member(inner: Any) -> Any:
    module, name, member = inner
    cls: Any = sys.modules.get(module) if module.split(".")[0] in ("neurosim", "isa") else None
    for part in name.split("."):
        cls = vars(cls)[part]
    if not (isinstance(cls, type) and issubclass(cls, enum.Enum)):
        raise Malformed(f"{module}.{name} is no enumeration")
    return cls[member]


def _operator(name: Any) -> Any:
    known: Any = getattr(sys.modules.get("neurosim.nki.language"), name, None)
    return known if isinstance(known, Operator) else Operator(str(name))


def _numpy(inner: Any) -> Any:
    dtype, text = inner
    return np.frombuffer(bytes.fromhex(text), np.dtype(dtype))[0]


_READERS: dict[str, Any] = {
    "int": int,
    "float": float,
    "list": lambda inner: [decoded(entry) for entry in inner],
    "tuple": lambda inner: tuple(decoded(entry) for entry in inner),
    "frozenset": lambda inner: frozenset(decoded(entry) for entry in inner),
    "dict": lambda inner: {decoded(key): decoded(entry) for key, entry in inner},
    "place": _place,
    "numpy": _numpy,
    "dtype": _dtype,
    "operator": _operator,
    "member": _member,
}
