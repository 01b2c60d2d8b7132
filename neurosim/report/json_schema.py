"""What a summary's JSON holds, as a JSON Schema: made from the types that :mod:`neurosim.report.schema` states."""

from __future__ import annotations

import inspect
import types
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from neurosim.report.schema import SCHEMA, Summary

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_SIMPLE: Final[dict[Any, str]] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def json_schema() -> dict[str, Any]:
    """Return the schema of what ``--json`` writes and ``Result.summary`` returns, as JSON Schema 2020-12.

    A summary says by its field ``schema`` which version it has; later fields may join a version, so that readers
    should pass over what they do not know, and the schema allows it.
    """
    definitions: dict[str, Any] = {}
    whole = _of(Summary, definitions)
    definitions["Summary"]["properties"]["schema"] = {"const": SCHEMA}
    return {"$schema": _DIALECT, "title": SCHEMA, **whole, "$defs": dict(sorted(definitions.items()))}


def _of(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type; each ``TypedDict`` once, among the definitions."""
    if hint in _SIMPLE:
        return {"type": _SIMPLE[hint]}
    if is_typeddict(hint):
        return _of_fields(hint, definitions)
    origin, parts = get_origin(hint), get_args(hint)
    if origin is list:
        return {"type": "array", "items": _of(parts[0], definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(parts[1], definitions)}
    if origin is Literal:
        return {"enum": list(parts)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_of(part, definitions) for part in parts]}
    return {}  # Any


def _of_fields(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if hint.__name__ not in definitions:
        made = definitions[hint.__name__] = {"type": "object", "description": inspect.cleandoc(hint.__doc__ or "")}
        fields = get_type_hints(hint)
        made["properties"] = {name: _of(field, definitions) for name, field in fields.items()}
        made["required"] = sorted(hint.__required_keys__)
    return {"$ref": f"#/$defs/{hint.__name__}"}
