"""Frozen dataclasses as JSON and back: by their type hints, with every value checked on the way in.

A dataclass is the list of its fields, a tuple or set a list, an Enum its name, a DType its name; where several
dataclasses are possible, the class's name comes first. :func:`shapes` says which fields those lists have.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import numpy as np

from neurosim import dtypes
from neurosim.dtypes import DType
from neurosim.engines import Engine, Memory

MOST: Final = 1 << 62
"""No integer of a program is as large, so that sums of two fit into int64."""

_Function = Callable[[Any], Any]


class Malformed(ValueError):
    """A value that has not the form its type asks for."""


@dataclass(frozen=True, slots=True)
class Word:
    """A parameter of a class that only the instruction knows (``reduce_cmd.reset``), as text."""

    text: str

    def __repr__(self) -> str:
        return self.text


@cache
def encoder(kind: Any) -> _Function:
    """Return the function that turns a value of a type into what ``json.dumps`` takes."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Hashable:
        return _encode_free
    if kind in (int, bool, NoneType):
        return lambda value: value
    if kind is str or kind is DType:
        return str
    if origin is tuple or origin is frozenset:
        return _list_encoder(origin, arguments)
    if origin in (Union, UnionType):
        return _union_encoder(arguments)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return lambda value: value.name
    if dataclasses.is_dataclass(kind):
        fields = [(name, encoder(hint)) for name, hint in _fields(kind)]
        return lambda value: [encode(getattr(value, name)) for name, encode in fields]
    raise TypeError(f"no encoding for {kind}")


@cache
def decoder(kind: Any) -> _Function:
    """Return the function that turns what ``json.loads`` gave back into a value of a type.

    The function raises :class:`Malformed` for anything that :func:`encoder` would not have made.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Hashable:
        return _decode_free
    if kind is int:
        return _decode_int
    if kind in (str, bool, NoneType):
        return lambda value: value if type(value) is kind else _fail(value, kind)
    if kind is DType:
        return _decode_dtype
    if origin is tuple or origin is frozenset:
        return _list_decoder(origin, arguments)
    if origin in (Union, UnionType):
        return _union_decoder(arguments)
    if isinstance(kind, type) and issubclass(kind, Enum):
        members = dict(kind.__members__)
        return lambda value: members[value] if type(value) is str and value in members else _fail(value, kind)
    if dataclasses.is_dataclass(kind):
        return _dataclass_decoder(kind)
    raise TypeError(f"no encoding for {kind}")


def shapes(*kinds: Any) -> dict[str, list[str]]:
    """Return the fields of every dataclass within some types, by class name: what a file must agree on."""
    found: dict[str, list[str]] = {}
    for kind in kinds:
        if dataclasses.is_dataclass(kind):
            fields = list(_fields(kind))
            found[kind.__name__] = [name for name, _ in fields]  # type: ignore[union-attr]
            found |= shapes(*(hint for _, hint in fields))
        found |= shapes(*get_args(kind))
    return dict(sorted(found.items()))


def _fields(kind: Any) -> Iterator[tuple[str, Any]]:
    hints = get_type_hints(kind)
    return ((field.name, hints[field.name]) for field in dataclasses.fields(kind))


def _fail(value: Any, kind: Any) -> Any:
    text = repr(value)
    raise Malformed(f"{text if len(text) < 60 else text[:57] + '...'} is no {getattr(kind, '__name__', kind)}")


def _list_encoder(origin: Any, arguments: tuple[Any, ...]) -> _Function:
    if origin is frozenset:
        encode = encoder(arguments[0])
        return lambda value: sorted(map(encode, value))
    if arguments[1:] == (...,):
        encode = encoder(arguments[0])
        return lambda value: list(map(encode, value))
    encoders = [encoder(argument) for argument in arguments]
    return lambda value: [encode(entry) for encode, entry in zip(encoders, value, strict=True)]


def _list_decoder(origin: Any, arguments: tuple[Any, ...]) -> _Function:
    if origin is frozenset or arguments[1:] == (...,):
        decode = decoder(arguments[0])
        return lambda value: origin(map(decode, value)) if type(value) is list else _fail(value, origin)
    decoders = [decoder(argument) for argument in arguments]

    def decode_each(value: Any) -> Any:
        if type(value) is not list or len(value) != len(decoders):
            return _fail(value, f"list of {len(decoders)}")
        return tuple(decode(entry) for decode, entry in zip(decoders, value, strict=True))

    return decode_each


def _union_encoder(kinds: tuple[Any, ...]) -> _Function:
    optional = NoneType in kinds
    kinds = tuple(kind for kind in kinds if kind is not NoneType)
    if len(kinds) == 1:
        encode = encoder(kinds[0])
        return lambda value: None if value is None and optional else encode(value)
    encoders = {kind: encoder(kind) for kind in kinds}
    return lambda value: [type(value).__name__, encoders[type(value)](value)]


def _union_decoder(kinds: tuple[Any, ...]) -> _Function:
    optional = NoneType in kinds
    kinds = tuple(kind for kind in kinds if kind is not NoneType)
    if len(kinds) == 1:
        decode = decoder(kinds[0])
        return lambda value: None if value is None and optional else decode(value)
    decoders = {kind.__name__: decoder(kind) for kind in kinds}

    def decode_tagged(value: Any) -> Any:
        if type(value) is not list or len(value) != 2 or type(value[0]) is not str or value[0] not in decoders:
            return _fail(value, " or ".join(decoders))
        return decoders[value[0]](value[1])

    return decode_tagged


def _dataclass_decoder(kind: Any) -> _Function:
    decoders = [(name, decoder(hint)) for name, hint in _fields(kind)]

    def decode_fields(value: Any) -> Any:
        if type(value) is not list or len(value) != len(decoders):
            return _fail(value, kind)
        try:
            return kind(*(decode(entry) for (_, decode), entry in zip(decoders, value, strict=True)))
        except Malformed as error:
            raise Malformed(f"{kind.__name__}: {error}") from None

    return decode_fields


def _decode_int(value: Any) -> Any:
    return value if type(value) is int and -MOST < value < MOST else _fail(value, int)


def _decode_dtype(value: Any) -> Any:
    found = dtypes.of(value) if type(value) is str else None
    return found if found is not None else _fail(value, DType)


_FREE: Final[dict[str, Any]] = {"dtype": DType, "engine": Engine, "memory": Memory}


def _encode_free(value: Any) -> Any:
    """Encode a parameter. What only its instruction could read again becomes a :class:`Word`."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, DType):
        return {"dtype": str(value)}
    if value is None or type(value) in (bool, int, str):
        return value if type(value) is not int or abs(value) < MOST else {"word": repr(value)}
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if type(value) is tuple:
        return [_encode_free(entry) for entry in value]
    for name, kind in _FREE.items():
        if isinstance(value, kind):
            return {name: value.name}
    return {"word": value.name if isinstance(value, Enum) else repr(value)}


def _decode_free(value: Any) -> Any:
    if value is None or type(value) in (bool, str, float):
        return value
    if type(value) is int:
        return _decode_int(value)
    if type(value) is list:
        return tuple(map(_decode_free, value))
    if type(value) is dict and len(value) == 1:
        ((name, text),) = value.items()
        if name in _FREE:
            return decoder(_FREE[name])(text)
        if name == "float" and text in ("inf", "-inf", "nan"):
            return float(text)
        if name == "word" and type(text) is str:
            return Word(text)
    return _fail(value, "parameter")
