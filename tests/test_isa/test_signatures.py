"""Names, parameters, their order and their defaults are those that NKI documents: ``tests/data/nki_api_0_6.toml``.

What the face itself says is not built (``_NOT_BUILT``) is left out here, and must then be absent indeed; ``DIFFERS``
names what is there and not yet as documented, each with what is lacking. Both can only shrink: a name that holds and
stands in one of them fails.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import tomllib
from pathlib import Path

import pytest

from neurosim.datapath.operators import Operator

API = tomllib.loads((Path(__file__).parents[1] / "data" / "nki_api_0_6.toml").read_text(encoding="utf-8"))
PATHS = {"nki": "nki", "isa": "nki.isa", "language": "nki.language", "collectives": "nki.collectives"}
MODULES = {short: importlib.import_module(path) for short, path in PATHS.items()}
DOCUMENTED = {(short, name) for kind in ("functions", "names") for short in API[kind] for name in API[kind][short]}


NOT_BUILT = {
    (short, name)
    for short, module in MODULES.items()
    for name in getattr(module, "_NOT_BUILT", getattr(module, "_NAMES", ()))
}
DIFFERS: set[tuple[str, str]] = set()
VALUES = {("range_select", "on_false_value"): -3.4028234663852886e38}
"""Defaults that the signature leaves open and the text gives."""


def value(module, function, entry):
    """Return (name, kind, default) of an entry of the table, such as ``op1=None`` or ``*producers``."""
    name, equals, text = entry.partition("=")
    if name.startswith("*"):
        kind = inspect.Parameter.VAR_KEYWORD if name.startswith("**") else inspect.Parameter.VAR_POSITIONAL
        return name.lstrip("*"), kind, inspect.Parameter.empty
    default = inspect.Parameter.empty
    if (function, name) in VALUES:
        default = VALUES[function, name]
    elif equals:
        try:
            default = ast.literal_eval(text)
        except ValueError:  # engine.unknown, uint8
            default = module
            for part in text.split("."):
                default = getattr(default if hasattr(default, part) else MODULES["language"], part)
    return name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default


def check(module, name, function, entries):
    """Compare one callable with its entry in the table."""
    wanted = [value(module, name, entry) for entry in entries]
    found = [parameter for parameter in inspect.signature(function).parameters.values() if parameter.name != "self"]
    assert [parameter.name for parameter in found] == [part for part, _, _ in wanted]
    for parameter, (part, kind, default) in zip(found, wanted, strict=True):
        assert parameter.kind is kind, part
        given = list(parameter.default) if isinstance(parameter.default, tuple) and isinstance(default, list) else ...
        assert parameter.default == default or parameter.default is default or given == default, part
        # False is no 0; the face's operators are functions too, and a default may be a tuple for a list
        assert isinstance(default, (Operator, list, tuple)) or type(parameter.default) is type(default), part


def lookup(short, name):
    """Return a documented name of a module, or None where the face says that it is not built."""
    if (short, name) not in NOT_BUILT:
        return getattr(MODULES[short], name)
    with pytest.raises(AttributeError, match="not built"):
        getattr(MODULES[short], name)  # if this does not raise, take the name out of _NOT_BUILT
    return None


@pytest.mark.parametrize(
    ("short", "name"), [(short, name) for short, functions in API["functions"].items() for name in functions]
)
def test_functions(short, name):
    entries = API["functions"][short][name]
    function = lookup(short, name)
    if function is None:
        return
    if (short, name) not in DIFFERS:
        check(MODULES[short], name, function, entries)
        return
    with pytest.raises(AssertionError):
        check(MODULES[short], name, function, entries)  # if this holds, take the name out of DIFFERS


def test_lists_name_what_is_documented():
    assert NOT_BUILT <= DOCUMENTED
    assert DIFFERS <= DOCUMENTED


@pytest.mark.parametrize("name", API["functions"]["isa"])
def test_every_instruction_says_what_it_does(name):
    function = lookup("isa", name)
    if function is not None:
        assert function.__name__ == name
        assert len(function.__doc__) > 40


@pytest.mark.parametrize(("short", "name"), [(short, name) for short, names in API["names"].items() for name in names])
def test_names(short, name):
    found = lookup(short, name)
    if name.endswith("_engine"):
        assert found is getattr(MODULES["isa"].engine, name.removesuffix("_engine"))


@pytest.mark.parametrize(("short", "name"), [(short, name) for short, enums in API["enums"].items() for name in enums])
def test_enums(short, name):
    members = {member.name: member.value for member in getattr(MODULES[short], name)}
    wanted = API["enums"][short][name]
    if name == "MemoryRegion":  # ours also holds what is no memory
        members = {member: members[member] for member in wanted}
    assert members == wanted


@pytest.mark.parametrize(
    ("short", "owner", "name"),
    [
        (short, owner, name)
        for short, owners in API["methods"].items()
        for owner, methods in owners.items()
        for name in methods
    ],
)
def test_methods(short, owner, name):
    method = getattr(getattr(MODULES[short], owner), name)
    check(MODULES[short], name, method, API["methods"][short][owner][name])


@pytest.mark.parametrize(
    ("owner", "name"), [(owner, name) for owner, names in API["attributes"]["language"].items() for name in names]
)
def test_attributes(owner, name):
    found = hasattr(MODULES["language"].tile_size if owner == "tile_size" else MODULES["language"].NkiTensor, name)
    assert found
