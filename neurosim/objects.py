"""Objects that carry tensors: ``nl.NKIObject`` and dataclasses, field by field.

Source: AWS Neuron SDK, ``nki/api/nki/language/__init__.py``, ``NKIObject``.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any


class _WithAttributes(type):
    """Lets a class that has an ``__init__`` of its own, a dataclass too, be called with its plain attributes."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        parameters = inspect.signature(cls.__init__).parameters  # type: ignore[misc]
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            return super().__call__(*args, **kwargs)
        plain = {name: kwargs.pop(name) for name in list(kwargs) if name not in parameters and hasattr(cls, name)}
        made = super().__call__(*args, **kwargs)
        for name, value in plain.items():
            object.__setattr__(made, name, value)  # a frozen dataclass, too
        return made


class NKIObject(metaclass=_WithAttributes):
    """Base of kernels' own configuration classes; keyword arguments become attributes."""

    def __init__(self, **kwargs: Any) -> None:
        for name, value in kwargs.items():
            setattr(self, name, value)


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
