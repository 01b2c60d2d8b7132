"""The tests themselves: each compares something, so that none passes merely because nothing was raised."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent
COMPARING = ("raises", "warns", "fail")
"""Calls of pytest that fail by themselves."""


def _compares(node: ast.AST) -> bool:
    """Return whether a function asserts, expects an error, or calls a function that is there to compare."""
    for part in ast.walk(node):
        if isinstance(part, ast.Assert):
            return True
        if isinstance(part, ast.Call):
            name = _name(part.func)
            if name in COMPARING or name.startswith("assert_"):
                return True
    return False


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _functions(tree: ast.AST) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def _mentioned(node: ast.FunctionDef) -> set[str]:
    """Return names that a function refers to: what it calls, hands on, or takes as a fixture."""
    return {_name(part) for part in ast.walk(node)} | {argument.arg for argument in node.args.args}


def without_comparison(source: str, shared: str = "") -> Iterator[str]:
    """Yield the tests of a file that compare nothing, by themselves or through helpers of the file or of ``shared``."""
    tests = _functions(ast.parse(source))
    known = _functions(ast.parse(shared)) | tests
    good = {name for name, node in known.items() if _compares(node)}
    while more := {name for name, node in known.items() if name not in good and _mentioned(node) & good}:
        good |= more
    for name, node in tests.items():
        if name.startswith("test_") and name not in good:
            yield f"{node.lineno} {name}"


def test_every_test_compares_something() -> None:
    found = []
    for path in sorted(TESTS.rglob("test_*.py")):
        helpers = [path.parent / "conftest.py", TESTS / "conftest.py", *path.parent.glob("[!t]*.py")]
        shared = "\n".join(helper.read_text(encoding="utf-8") for helper in helpers if helper.is_file())
        shared = shared.replace("from __future__ import annotations", "")
        places = without_comparison(path.read_text(encoding="utf-8"), shared)
        found += [f"{path.relative_to(TESTS)}:{place}" for place in places]
    assert found == []


def test_what_compares_nothing_is_found() -> None:
    source = """
def helper(x): assert x
def run(x): return x
def test_asserts(): assert 1
def test_expects():
    with pytest.raises(ValueError): run(1)
def test_through_a_helper(): helper(1)
def test_hands_a_helper_on(): apply(helper, 1)
def test_through_numpy(): np.testing.assert_array_equal(1, 1)
def test_runs_only(): run(1)
def test_of_a_fixture(checked): checked(1)
"""
    assert list(without_comparison(source, "def checked(): assert 1")) == ["10 test_runs_only"]
