"""Loops that run on the device: ``nl.fori_loop``, ``nl.while_loop`` and the older ``nl.dynamic_range``."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from neurosim.lint.findings import Restriction
from neurosim.lint.scope import Names

Found = tuple[ast.AST, str, Restriction]

_CALLS = ("nki.language.fori_loop", "nki.language.while_loop")
_RANGE = "nki.language.dynamic_range"
_WRITES = ("nki.isa.register_move", "nki.isa.register_load")


def device_loops(definition: ast.AST, names: Names) -> Iterator[Found]:
    """Yield what is wrong with loops on the device within a function."""
    functions = {node.name: node for node in ast.walk(definition) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(definition):
        if isinstance(node, ast.With) and any(_is_no_reorder(item, names) for item in node.items):
            yield from (
                (inner, f"{_name(inner, names)} in nl.no_reorder()", Restriction.loop_in_no_reorder)
                for statement in node.body
                for inner in ast.walk(statement)
                if _name(inner, names)
            )
        elif isinstance(node, ast.For) and names.called(node.iter) == _RANGE:
            assert isinstance(node.iter, ast.Call)
            yield from _step(node.iter)
            if isinstance(node.target, ast.Name):
                yield from _variable(node.body, node.target.id, names)
        elif isinstance(node, ast.Call) and names.called(node) == _CALLS[0]:
            yield from _fori(node, functions, names)


def _is_no_reorder(item: ast.withitem, names: Names) -> bool:
    return names.called(item.context_expr) == "nki.language.no_reorder"


def _name(node: ast.AST, names: Names) -> str:
    """Return how a loop on the device is written where ``node`` is one."""
    if isinstance(node, ast.For) and names.called(node.iter) == _RANGE:
        return "nl.dynamic_range"
    called = names.called(node)
    return f"nl.{called.rpartition('.')[2]}" if called in _CALLS else ""


def _step(call: ast.Call) -> Iterator[Found]:
    step = call.args[2] if len(call.args) > 2 else next((k.value for k in call.keywords if k.arg == "step"), None)
    if isinstance(step, ast.UnaryOp) and isinstance(step.op, ast.USub):
        yield step, f"the step {ast.unparse(step)}", Restriction.loop_step
    elif isinstance(step, ast.Constant) and not (isinstance(step.value, int) and step.value > 0):
        yield step, f"the step {step.value!r}", Restriction.loop_step


def _fori(call: ast.Call, functions: dict[str, ast.FunctionDef], names: Names) -> Iterator[Found]:
    given = [
        entry for entry in (*call.args, *(keyword.value for keyword in call.keywords)) if isinstance(entry, ast.Name)
    ]
    bodies = [functions[entry.id] for entry in given if entry.id in functions]
    for body in bodies:
        for node in ast.walk(body):
            if isinstance(node, ast.Return) and node.value is not None:
                yield node, f"{body.name} returns {ast.unparse(node.value)}", Restriction.loop_result
        if body.args.args:
            yield from _variable(body.body, body.args.args[0].arg, names)


def _variable(body: Sequence[ast.stmt], name: str, names: Names) -> Iterator[Found]:
    """Yield uses of a loop's variable as if it were an int."""

    def is_it(node: ast.AST | None) -> bool:
        return isinstance(node, ast.Name) and node.id == name

    for node in (inner for statement in body for inner in ast.walk(statement)):
        used = (
            (isinstance(node, ast.BinOp) and (is_it(node.left) or is_it(node.right)))
            or (isinstance(node, ast.UnaryOp) and is_it(node.operand))
            or (isinstance(node, ast.Compare) and any(map(is_it, (node.left, *node.comparators))))
            or (isinstance(node, (ast.If, ast.While, ast.IfExp)) and is_it(node.test))
        )
        written = is_it(node) and isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        written = written or (
            isinstance(node, ast.Call) and names.called(node) in _WRITES and any(map(is_it, node.args[:1]))
        )
        if used:
            text = ast.unparse(node.test if isinstance(node, (ast.If, ast.While)) else node)
            yield node, f"{text} computes with the loop's variable", Restriction.loop_variable
        elif written:
            yield node, f"{name} is written", Restriction.loop_variable
