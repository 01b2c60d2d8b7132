"""Which parts of a file the compiler sees: its kernels, and what they use of the same file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

_JIT = ("nki.jit", "neuronxcc.nki.jit")

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass
class Names:
    """What the names of a file stand for, as far as imports say it: ``nl`` for ``nki.language``, and so on."""

    known: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, tree: ast.Module) -> Names:
        """Read all imports of a file."""
        names = cls()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    target = alias.name if alias.asname else alias.name.partition(".")[0]
                    names.known[alias.asname or target] = target
            elif isinstance(node, ast.ImportFrom) and not node.level:
                for alias in node.names:
                    names.known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return names

    def path(self, node: ast.AST | None) -> str:
        """Return the dotted path that an expression names, such as ``nki.language.hbm``; empty if it is none."""
        if isinstance(node, ast.Name):
            return self.known.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            base = self.path(node.value)
            return f"{base}.{node.attr}" if base else ""
        return ""

    def called(self, node: ast.AST) -> str:
        """Return the path of what a call calls; empty for anything else."""
        return self.path(node.func) if isinstance(node, ast.Call) else ""


@dataclass
class Scope:
    """The kernels of a file and what they reach.

    Attributes:
        names: what imported names stand for.
        definitions: functions and classes at the top of the file.
        kernels: those under ``nki.jit``, or given to it.
        reached: kernels, and what they use, in the order of the file.
        variables: names assigned at the top of the file, with their values.
    """

    names: Names
    definitions: dict[str, Definition]
    kernels: list[str]
    reached: list[Definition]
    variables: dict[str, ast.expr]


def scope_of(tree: ast.Module, only: str | None) -> Scope:
    """Return what the compiler sees of a file, from one kernel on or from all."""
    names = Names.of(tree)
    definitions: dict[str, Definition] = {
        node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    }
    kernels = [name for name, node in definitions.items() if any(jits(names, entry) for entry in node.decorator_list)]
    for node in ast.walk(tree):
        if names.called(node) in _JIT and isinstance(node, ast.Call):
            given = [entry.id for entry in node.args if isinstance(entry, ast.Name)]
            kernels += [name for name in given if name in definitions and name not in kernels]
    waiting = kernels if only is None else [only] if only in definitions else []
    seen: set[str] = set()
    while waiting:
        name, *waiting = waiting
        if name not in seen:
            seen.add(name)
            waiting += [name for name in used(definitions[name]) if name in definitions]
    reached = [node for name, node in definitions.items() if name in seen]
    return Scope(names, definitions, kernels, reached, dict(_variables(tree)))


def jits(names: Names, decorator: ast.expr) -> bool:
    """Return whether a decorator is ``nki.jit``, with or without options."""
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return names.path(target) in _JIT


def used(node: ast.AST) -> set[str]:
    """Return the names that a function or class mentions."""
    return {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}


def _variables(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if isinstance(node, ast.Assign):
            yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value
