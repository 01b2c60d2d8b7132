"""Keys of dictionaries, as far as the text of a kernel says what they are."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from neurosim.lint.findings import Restriction

_LOOKUPS = frozenset({"get", "pop", "setdefault"})
_COUNTS = frozenset({"range", "affine_range", "sequential_range", "static_range"})


def dictionary_keys(definition: ast.AST) -> Iterator[tuple[ast.AST, str, Restriction]]:
    """Yield keys that are no strings: numbers, tuples, results of arithmetic, counters of loops."""
    dictionaries = {text for node in ast.walk(definition) for text in _dictionaries(node)}
    counters = {name for node in ast.walk(definition) for name in _counters(node)}
    for node in ast.walk(definition):
        keys: list[ast.expr] = []
        if isinstance(node, ast.Dict):
            keys = [key for key in node.keys if key is not None]
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) in dictionaries:
            keys = [node.slice]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LOOKUPS:
            keys = node.args[:1] if ast.unparse(node.func.value) in dictionaries else []
        for key in keys:
            if _is_no_string(key, counters):
                yield key, f"the key {ast.unparse(key)}", Restriction.dict_key


def _dictionaries(node: ast.AST) -> Iterator[str]:
    """Yield the text of names and attributes that are assigned a dictionary."""
    if isinstance(node, ast.Assign):
        pairs = [(target, node.value) for target in node.targets]
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        pairs = [(node.target, node.value)]
    else:
        return
    for target, value in pairs:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            parts = list(zip(target.elts, value.elts, strict=True))
        else:
            parts = [(target, value)]
        yield from (ast.unparse(part) for part, made in parts if _is_dictionary(made))


def _is_dictionary(value: ast.expr) -> bool:
    called = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict"
    return called or isinstance(value, (ast.Dict, ast.DictComp))


def _counters(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.iter, ast.Call):
        called = ast.unparse(node.iter.func).rpartition(".")[2]
        if called in _COUNTS and isinstance(node.target, ast.Name):
            yield node.target.id
        elif called == "enumerate" and isinstance(node.target, ast.Tuple) and isinstance(node.target.elts[0], ast.Name):
            yield node.target.elts[0].id


def _is_no_string(key: ast.expr, counters: set[str]) -> bool:
    if isinstance(key, ast.Constant):
        return not isinstance(key.value, str)
    if isinstance(key, ast.Name):
        return key.id in counters
    if isinstance(key, ast.BinOp):
        return any(_is_no_string(side, counters) for side in (key.left, key.right)) and not isinstance(key.op, ast.Mod)
    return isinstance(key, ast.Tuple)
