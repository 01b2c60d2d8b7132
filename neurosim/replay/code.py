"""What compiled Python refers to outside of itself, and a digest of what it says.

A code object is read instruction by instruction: names that it takes from its module, cells that it takes from the
function around it, and attributes. What could reach beyond these (an import, an assignment to a global, a frame, a
tensor's bytes) is a reason not to replay.
"""

from __future__ import annotations

import dis
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final

_REFUSED_OPERATIONS: Final = {
    "IMPORT_NAME": "imports a module while it runs",
    "IMPORT_FROM": "imports a module while it runs",
    "IMPORT_STAR": "imports a module while it runs",
    "STORE_GLOBAL": "assigns to a global",
    "DELETE_GLOBAL": "deletes a global",
    "LOAD_BUILD_CLASS": "defines a class",
    "LOAD_NAME": "looks names up by their text",
    "LOAD_LOCALS": "looks names up by their text",
    "MATCH_CLASS": "matches an object's attributes",
    "GET_AWAITABLE": "waits for something",
    "GET_AITER": "waits for something",
}
_ATTRIBUTES: Final = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "STORE_ATTR", "DELETE_ATTR")
_INSIDE: Final = frozenset(
    [
        *("allocation", "array", "lanes", "over", "root"),  # of a tensor: its bytes
        *("format", "format_map"),  # of a text: any attribute of anything
        *("f_back", "f_builtins", "f_globals", "f_locals", "gi_frame", "cr_frame", "ag_frame", "tb_frame"),
    ]
)
_OPEN_DUNDERS: Final = frozenset(["__class__", "__enter__", "__exit__", "__init__", "__name__", "__setattr__"])
_MOST_KEPT: Final = 2048


@dataclass(frozen=True)
class References:
    """What a code object refers to.

    Attributes:
        code: the code object.
        names: each global with the attributes that are asked of it one after the other, as ``("nl", "tile_size")``.
        digest: of all that the code says, its file and its lines.
        obstacle: why it cannot be replayed, whatever its names stand for; empty if nothing speaks against it.
    """

    code: CodeType
    names: tuple[tuple[str, ...], ...]
    digest: str
    obstacle: str


_known: OrderedDict[int, References] = OrderedDict()
_lock = threading.Lock()


def references(code: CodeType) -> References:
    """Return what a code object refers to, and the code objects within it."""
    with _lock:
        found = _known.get(id(code))  # kept alive here, so that no other has its id
        if found is not None:
            _known.move_to_end(id(code))
            return found
    names: dict[tuple[str, ...], None] = {}
    obstacle = ""
    for inner in _all(code):
        obstacle = obstacle or _read(inner, names)
    found = References(code, tuple(names), _digest(code), obstacle)
    with _lock:
        _known[id(code)] = found
        if len(_known) > _MOST_KEPT:
            _known.popitem(last=False)
    return found


def refused_attribute(name: str) -> str:
    """Return why an attribute's name alone is a reason not to replay, or nothing."""
    if name in _INSIDE or (name.startswith("__") and name.endswith("__") and name not in _OPEN_DUNDERS):
        return f"asks for .{name}"
    return ""


def _all(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _all(constant)


def _read(code: CodeType, names: dict[tuple[str, ...], None]) -> str:
    """Add the names of one code object; return the first obstacle in it."""
    chain: list[str] = []
    for step in dis.get_instructions(code):
        if step.opname == "EXTENDED_ARG":
            continue
        if chain and step.opname in ("LOAD_ATTR", "LOAD_METHOD") and not step.is_jump_target:
            chain.append(step.argval)
            continue
        if chain:
            names[tuple(chain)] = None
            chain = []
        if step.opname in ("LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"):
            chain = [step.argval]
        elif step.opname in _REFUSED_OPERATIONS:
            return f"{code.co_qualname} {_REFUSED_OPERATIONS[step.opname]}"
        elif step.opname in _ATTRIBUTES and (refused := refused_attribute(step.argval)):
            return f"{code.co_qualname} {refused}"
    return ""


def _digest(code: CodeType) -> str:
    return hashlib.sha256(repr(_content(code)).encode()).hexdigest()


def _content(code: CodeType) -> tuple[Any, ...]:
    """Return all that tells two code objects apart, the place in the file too: the record keeps it."""
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_firstlineno)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    constants = tuple(_content(each) if isinstance(each, CodeType) else _constant(each) for each in code.co_consts)
    tables = (code.co_code, code.co_linetable, code.co_exceptiontable)
    return code.co_filename, code.co_qualname, counts, names, constants, tables


def _constant(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_constant(entry) for entry in value)
    if isinstance(value, frozenset):
        return "frozenset", sorted(repr(_constant(entry)) for entry in value)
    return type(value).__name__, repr(value)
