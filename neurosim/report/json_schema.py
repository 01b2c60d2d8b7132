"""What a summary's JSON holds, as a JSON Schema: made from the types that :mod:`neurosim.report.schema` states."""

from __future__ import annotations

import inspect
import types
from typing import Any, Final, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from neurosim.errors import ConfigurationError
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
        # Where annotations are kept as text, `__required_keys__` does not see single fields that need not be there.
        fields = get_type_hints(hint, include_extras=True)
        optional = {name for name, field in fields.items() if get_origin(field) is NotRequired}
        plain = {name: get_args(field)[0] if name in optional else field for name, field in fields.items()}
        made["properties"] = {name: _of(field, definitions) for name, field in plain.items()}
        made["required"] = sorted(hint.__required_keys__ - optional)
    return {"$ref": f"#/$defs/{hint.__name__}"}


def check_summary(content: Any, where: str) -> None:
    """Refuse what is not a summary of this version.

    Args:
        content: what JSON held.
        where: the file, for messages.

    Raises:
        ConfigurationError: it is something else, of another version, or lacks something.
    """
    version = content.get("schema") if isinstance(content, dict) else None
    if version != SCHEMA:
        what = f"holds {version!r}" if isinstance(version, str) else "holds no summary"
        if isinstance(content, dict) and "traceEvents" in content:
            what = "is a trace"
        raise ConfigurationError(
            f"{where} {what}, where a summary of version {SCHEMA!r} is needed",
            advice="write it with this neurosim, by --json",
        )
    schema = json_schema()
    fault = _fault(content, schema, schema["$defs"], "")
    if fault:
        raise ConfigurationError(
            f"{where} is no whole summary of version {SCHEMA!r}: {fault}",
            advice="write it again with this neurosim, by --json",
        )


def _fault(value: Any, schema: dict[str, Any], definitions: dict[str, Any], path: str) -> str | None:
    """Return the first thing in which a value is not what a schema of :func:`json_schema` says."""
    if "$ref" in schema:
        return _fault(value, definitions[schema["$ref"].rpartition("/")[2]], definitions, path)
    if "anyOf" in schema:
        faults = [_fault(value, option, definitions, path) for option in schema["anyOf"]]
        return None if None in faults else faults[0]
    name = path.lstrip(".") or "it"
    if "enum" in schema and value not in schema["enum"]:
        return f"{name} is none of {schema['enum']}"
    if "type" in schema and not _is_a(value, schema["type"]):
        return f"{name} is no {schema['type']}"
    missing = [field for field in schema.get("required", ()) if field not in value]
    if missing:
        return f"{name} has no {missing[0]!r}"
    inner: list[tuple[Any, dict[str, Any], str]] = []
    if isinstance(value, list):
        inner = [(part, schema.get("items", {}), f"{path}[{number}]") for number, part in enumerate(value)]
    elif isinstance(value, dict):
        others = schema.get("additionalProperties", {})
        known = schema.get("properties", {})
        inner = [(part, known.get(field, others), f"{path}.{field}") for field, part in value.items()]
    return next((fault for part, of, at in inner if (fault := _fault(part, of, definitions, at))), None)


def _is_a(value: Any, kind: str) -> bool:
    """Whether JSON's kinds hold a value; a number that is whole is a number, too."""
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "number":
        return isinstance(value, (int, float))
    return isinstance(value, _PYTHON[kind])


_PYTHON: Final[dict[str, Any]] = {
    "string": str,
    "integer": int,
    "null": type(None),
    "array": list,
    "object": dict,
    "boolean": bool,
}
