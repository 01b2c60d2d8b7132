"""Objects that carry tensors: ``nl.NKIObject`` and dataclasses, field by field.

Source: AWS Neuron SDK, ``nki/api/nki/language/__init__.py``, ``NKIObject``, and the language guide.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any


class _WithAttributes(type):
    """Makes instances as the compiler does, whose classes all have an initializer with a default for each field.

    A field of a dataclass that is not given is None (``__init__(self, x=None, y=False)`` in the language guide), and
    its plain attributes may be given, too. A class with an ``__init__`` of its own takes what that one takes, and its
    plain attributes.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        parameters = inspect.signature(cls.__init__).parameters  # type: ignore[misc]
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            return super().__call__(*args, **kwargs)
        plain = {name: kwargs.pop(name) for name in list(kwargs) if name not in parameters and hasattr(cls, name)}
        made = super().__call__(*args, **_left_out(cls, parameters, len(args), kwargs), **kwargs)
        for name, value in plain.items():
            object.__setattr__(made, name, value)  # a frozen dataclass, too
        return made


def _left_out(
    cls: type, parameters: Mapping[str, inspect.Parameter], positional: int, given: Mapping[str, Any]
) -> dict[str, None]:
    """Return None for each field without a default that a call of a dataclass's own initializer leaves out."""
    fields = {field.name for field in dataclasses.fields(cls) if field.init} if dataclasses.is_dataclass(cls) else set()
    names = list(parameters)[1:]  # after self
    if fields != set(names):  # no dataclass, or with an initializer that somebody wrote
        return {}
    rest = [name for name in names[positional:] if name not in given]
    return {name: None for name in rest if parameters[name].default is inspect.Parameter.empty}


class NKIObject(metaclass=_WithAttributes):
    """Base of kernels' own configuration classes.

    The compiler treats a class like a dataclass whether or not it is declared as one: annotated fields are taken by
    position or by name and are None where they are left out without a default, then ``__post_init__`` runs. Other
    keyword arguments become attributes.

    Source: AWS Neuron SDK, ``nki/get-started/nki-language-guide.rst``, "Class Support".
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        names = [name for base in reversed(type(self).__mro__) for name in inspect.get_annotations(base)]
        if len(args) > len(names):
            raise TypeError(f"{type(self).__name__} has {len(names)} fields, and {len(args)} values are given for them")
        fields = dict(zip(names, args, strict=False))
        if twice := sorted(fields.keys() & kwargs.keys()):
            raise TypeError(f"{type(self).__name__}: {', '.join(twice)} given by position and by name")
        empty = {name: None for name in names if not hasattr(self, name)}
        for name, value in (empty | fields | kwargs).items():
            setattr(self, name, value)
        if type(self).__init__ is NKIObject.__init__ and hasattr(self, "__post_init__"):
            self.__post_init__()


def fields_of(value: Any) -> dict[str, Any] | None:
    """Return the fields of an object that may carry tensors, or None where a value is no such object."""
    if isinstance(value, type) or not (isinstance(value, NKIObject) or dataclasses.is_dataclass(value)):
        return None
    fields = dict(vars(value)) if hasattr(value, "__dict__") else {}
    if dataclasses.is_dataclass(value):
        slots = {
            field.name: getattr(value, field.name) for field in dataclasses.fields(value) if hasattr(value, field.name)
        }
        fields = slots | fields
    return fields


def with_fields(value: Any, fields: Mapping[str, Any]) -> Any:
    """Return an object with other values in its fields: itself where nothing differs, else a copy."""
    before = fields_of(value) or {}
    if all(fields[name] is before[name] for name in before):
        return value
    made = copy.copy(value)
    for name, entry in fields.items():
        object.__setattr__(made, name, entry)
    return made
