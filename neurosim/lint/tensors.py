"""What a kernel reads of its tensors that only a simulator's tensors have: their elements, bytes, places."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from neurosim.lint.findings import Restriction
from neurosim.lint.scope import Definition, Names
from neurosim.view import NkiTensor
from neurosim.views.methods import DOCUMENTED, VIEWS

_MAKERS: Final = frozenset(
    f"nki.language.{name}" for name in ("ndarray", "full", "zeros", "ones", "empty_like", "zeros_like", "load")
)
_ALL: Final = frozenset(dir(NkiTensor))
_OURS: Final = _ALL - set(DOCUMENTED) - set(dir(object))


def tensors(definition: Definition, names: Names) -> Iterator[tuple[ast.AST, str, Restriction]]:
    """Yield attributes of tensors that are neurosim's and not NKI's, where the text shows that it is a tensor."""
    if isinstance(definition, ast.ClassDef):
        return
    known = _parameters(definition)
    given: dict[str, list[ast.expr]] = {}
    for node in ast.walk(definition):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    given.setdefault(target.id, []).append(node.value)
    for name, values in given.items():  # in the order of the text, in which views follow what they view
        if all(_is_tensor(value, known, names) for value in values):
            known.add(name)
        else:
            known.discard(name)
    for node in ast.walk(definition):
        if isinstance(node, ast.Attribute) and node.attr in _OURS and _is_tensor(node.value, known, names):
            yield node, ast.unparse(node), Restriction.tensor_attribute


def _parameters(definition: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the parameters that are tensors by how they are used: their shape is read, and nothing that none has."""
    read: dict[str, set[str]] = {entry.arg: set() for entry in definition.args.posonlyargs + definition.args.args}
    for node in ast.walk(definition):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in read:
            read[node.value.id].add(node.attr)
    return {name for name, attributes in read.items() if "shape" in attributes and attributes <= _ALL}


def _is_tensor(value: ast.expr, known: set[str], names: Names) -> bool:
    """Return whether an expression is a tensor: one of ``known``, a new one, or a view of either."""
    if isinstance(value, ast.Name):
        return value.id in known
    if isinstance(value, ast.Subscript):
        return _is_tensor(value.value, known, names)
    if not isinstance(value, ast.Call):
        return False
    if isinstance(value.func, ast.Attribute) and value.func.attr in VIEWS:
        return _is_tensor(value.func.value, known, names)
    return names.called(value) in _MAKERS
