"""Reads a file and finds what the NKI compiler rejects in its kernels."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from neurosim.errors import ConfigurationError
from neurosim.lint.containers import dictionary_keys
from neurosim.lint.device_loops import device_loops
from neurosim.lint.findings import Finding, Restriction
from neurosim.lint.scope import Definition, Scope, jits, scope_of, used
from neurosim.lint.tensors import tensors
from neurosim.spelling import spelt

Found = tuple[ast.AST, str, Restriction]
"""A place, what stands there, and what it breaks."""

_INT_LIMITS = (-(2**31), 2**32 - 1)  # signed or unsigned
_FLOAT_LIMIT = 3.4028234663852886e38
_CONTROL_FLOW: dict[type[ast.AST], str] = {
    ast.Try: "try",
    ast.TryStar: "try",
    ast.Yield: "yield",
    ast.YieldFrom: "yield",
    ast.Await: "await",
    ast.AsyncFor: "async for",
    ast.AsyncWith: "async with",
    ast.AsyncFunctionDef: "async def",
    ast.Match: "match",
}
_UNLISTED: dict[type[ast.AST], str] = {
    ast.ListComp: "a list comprehension",
    ast.DictComp: "a dictionary comprehension",
    ast.GeneratorExp: "a generator expression",
    ast.Lambda: "lambda",
    ast.Starred: "unpacking with *",
    ast.NamedExpr: "an assignment within an expression",
    ast.Raise: "raise",
    ast.Delete: "del",
}
_LIBRARIES = ("numpy", "ml_dtypes", "scipy", "torch", "jax")
_BUILTINS = frozenset(
    {"enumerate", "zip", "map", "filter", "sorted", "reversed", "iter", "next", "eval", "exec", "open"}
)
_CONSTANTS = ("nki.language.shared_constant",)
"""Take arrays that Python made."""
_CHANGES = frozenset(
    {"append", "extend", "insert", "remove", "pop", "clear", "update", "setdefault", "reverse", "sort"}
)


@spelt
def check(path: Path, kernel: str | None = None, *, strict: bool = False) -> list[Finding]:
    """Return what the NKI compiler rejects in the kernels of a file, in the order of the file.

    Args:
        path: a Python file; it is read, not run.
        kernel: check only this function and what it uses; by default all kernels.
        strict: also report what the documentation neither lists nor forbids.

    Raises:
        ConfigurationError: no such file, no Python, or no such kernel in it.
    """
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}", advice="check the path") from error
    except (SyntaxError, ValueError) as error:
        raise ConfigurationError(
            f"{path} is not Python", numbers=(str(error),), advice="give a Python file; correct that line if it is one"
        ) from error
    scope = scope_of(tree, kernel)
    if not scope.reached:
        known = ", ".join(scope.kernels) or "none"
        raise ConfigurationError(
            f"{path} has no kernel" + (f" {kernel}" if kernel else ""),
            numbers=(f"functions under nki.jit: {known}",),
            advice="name any function of the file as FILE:FUNCTION, or put @nki.jit on the kernel",
        )
    findings = set()
    for definition in scope.reached:
        for node, what, restriction in (*_within(definition, scope, strict), *_of_definition(definition, scope)):
            place = (getattr(node, "lineno", definition.lineno), getattr(node, "col_offset", 0) + 1)
            findings.add(Finding(path, *place, definition.name, what, restriction))
    findings |= {
        Finding(path, node.lineno, node.col_offset + 1, "the file", what, Restriction.list_argument)
        for node, what in _list_arguments(tree, scope)
    }
    return sorted(findings, key=lambda finding: (finding.line, finding.column, finding.what))


def _within(definition: Definition, scope: Scope, strict: bool) -> Iterator[Found]:
    """Yield what is wrong at single nodes of a function or class."""
    made = [node for node in ast.walk(definition) if scope.names.called(node) in _CONSTANTS]
    constants = {id(inner) for node in made for inner in ast.walk(node)}
    for node in ast.walk(definition):
        yield from _node(node, scope)
        if type(node) in _CONTROL_FLOW:
            yield node, _CONTROL_FLOW[type(node)], Restriction.control_flow
        if strict and id(node) not in constants:
            yield from _unlisted(node, scope)
        if isinstance(node, ast.Call):
            yield from _call(node, scope)
        if isinstance(node, ast.ClassDef):
            yield from _class(node, scope)
    yield from dictionary_keys(definition)
    yield from device_loops(definition, scope.names)
    yield from tensors(definition, scope.names)
    yield from _legacy(definition, scope)


def _unlisted(node: ast.AST, scope: Scope) -> Iterator[Found]:
    """Yield what the documentation neither lists nor forbids."""
    if type(node) in _UNLISTED:
        yield node, _UNLISTED[type(node)], Restriction.unlisted
    called = scope.names.called(node)
    if (called in _BUILTINS and called not in scope.definitions) or called.partition(".")[0] in _LIBRARIES:
        yield node, f"{called}()", Restriction.unlisted


def _node(node: ast.AST, scope: Scope) -> Iterator[Found]:
    if isinstance(node, ast.Compare):
        for op in node.ops:
            if isinstance(op, (ast.Is, ast.IsNot)):
                yield node, "is not" if isinstance(op, ast.IsNot) else "is", Restriction.identity
    elif isinstance(node, ast.Constant):
        yield from _constant(node)
    elif isinstance(node, (ast.Set, ast.SetComp)):
        yield node, "a set", Restriction.value
    elif isinstance(node, ast.Global):
        yield node, f"global {', '.join(node.names)}", Restriction.outer_state
    elif isinstance(node, ast.With):
        for item in node.items:
            if scope.names.called(item.context_expr) != "nki.language.no_reorder":
                yield node, f"with {ast.unparse(item.context_expr)}", Restriction.control_flow
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, (ast.Store, ast.Del)):
        yield from _changed(node, node.value, scope)


def _constant(node: ast.Constant) -> Iterator[Found]:
    value = node.value
    if isinstance(value, (bytes, complex)):
        yield node, repr(value), Restriction.value
    elif isinstance(value, int) and not _INT_LIMITS[0] <= value <= _INT_LIMITS[1]:
        yield node, f"{value}, which 32 bits do not hold", Restriction.value
    elif isinstance(value, float) and _FLOAT_LIMIT < abs(value) < float("inf"):
        yield node, f"{value}, which float32 does not hold", Restriction.value


def _legacy(definition: Definition, scope: Scope) -> Iterator[Found]:
    """Yield the first use of each name that comes from the old namespace."""
    names = [node for node in ast.walk(definition) if isinstance(node, ast.Name)]
    for name in dict.fromkeys(node.id for node in names if scope.names.path(node).startswith("neuronxcc")):
        first = min((node for node in names if node.id == name), key=lambda node: (node.lineno, node.col_offset))
        yield first, f"{name} is {scope.names.path(first)}", Restriction.legacy


def _call(node: ast.Call, scope: Scope) -> Iterator[Found]:
    called = scope.names.called(node)
    if called in ("set", "frozenset"):
        yield node, f"{called}()", Restriction.value
    inner = scope.definitions.get(called)
    if inner is not None and any(jits(scope.names, entry) for entry in inner.decorator_list):
        yield node, f"{called}() is under nki.jit", Restriction.inner_jit
    if isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
        yield from _changed(node, node.func.value, scope)


def _changed(node: ast.AST, target: ast.expr, scope: Scope) -> Iterator[Found]:
    """Yield a change of a list or dictionary that stands at the top of the file."""
    containers = (ast.List, ast.Dict, ast.ListComp, ast.DictComp)
    if isinstance(target, ast.Name) and isinstance(scope.variables.get(target.id), containers):
        yield node, f"{target.id} belongs to the file and changes", Restriction.outer_state


def _class(node: ast.ClassDef, scope: Scope) -> Iterator[Found]:
    bases = [scope.names.path(base) for base in node.bases]
    allowed = len(bases) == 1 and (bases[0].rpartition(".")[2] == "NKIObject" or bases[0] == "enum.Enum")
    if not allowed:
        inherits = " and ".join(bases) or "nothing"
        yield node, f"class {node.name} inherits from {inherits}", Restriction.class_base


def _of_definition(definition: Definition, scope: Scope) -> Iterator[Found]:
    """Yield what is wrong with a kernel as such: its decorator, its parameters, what it returns."""
    if isinstance(definition, ast.ClassDef) or definition.name not in scope.kernels:
        return
    for decorator in definition.decorator_list:
        if isinstance(decorator, ast.Call) and jits(scope.names, decorator):
            for keyword in decorator.keywords:
                if keyword.arg in ("platform_target", "mode"):
                    yield decorator, f"nki.jit({keyword.arg}=…)", Restriction.jit_option
    parameters = definition.args
    if parameters.kwonlyargs:
        yield parameters.kwonlyargs[0], f"{parameters.kwonlyargs[0].arg} after *", Restriction.keyword_only
    for default in (*parameters.defaults, *(entry for entry in parameters.kw_defaults if entry)):
        if isinstance(default, ast.List):
            yield default, f"the default {ast.unparse(default)}", Restriction.list_argument
    for parameter in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs):
        kind = parameter.annotation
        kind = kind.value if isinstance(kind, ast.Subscript) else kind
        if scope.names.path(kind) in ("list", "typing.List"):
            yield parameter, f"{parameter.arg} is a list", Restriction.list_argument
    if not any(definition.name in used(other) for other in scope.reached if other is not definition):
        yield from _outputs(definition, scope)


def _outputs(kernel: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> Iterator[Found]:
    """Yield tensors that the kernel allocates elsewhere than in shared HBM, and returns."""
    allocated = {}
    for node in ast.walk(kernel):
        if isinstance(node, ast.Assign) and scope.names.called(node.value) == "nki.language.ndarray":
            assert isinstance(node.value, ast.Call)
            memory = next((entry.value for entry in node.value.keywords if entry.arg == "buffer"), None)
            if scope.names.path(memory) in ("nki.language.hbm", "nki.language.private_hbm"):
                allocated.update({target.id: node for target in node.targets if isinstance(target, ast.Name)})
    for node in ast.walk(kernel):
        if isinstance(node, ast.Return) and node.value is not None:
            entries = node.value.elts if isinstance(node.value, (ast.Tuple, ast.List)) else [node.value]
            for entry in entries:
                if isinstance(entry, ast.Name) and entry.id in allocated:
                    yield allocated[entry.id], f"{entry.id} is returned", Restriction.output_memory


def _list_arguments(tree: ast.Module, scope: Scope) -> Iterator[tuple[ast.expr, str]]:
    """Yield lists that the file passes to kernels."""
    reached = {definition.name for definition in scope.reached}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in scope.kernels:
            name = node.func.id
            given = (*node.args, *(keyword.value for keyword in node.keywords))
            yield from (
                (entry, f"a list for {name}") for entry in given if isinstance(entry, ast.List) and name in reached
            )
