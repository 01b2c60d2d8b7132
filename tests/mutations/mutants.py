"""Ten kinds of real bugs, seeded into every kernel of ``kernels/`` wherever they can be: one change makes one mutant.

A site is a place in the syntax tree that the kernel reaches in its launch here. Each kind says how its bugs have to be
caught: by which errors, or by values that differ from the right ones by more than a careless test lets through.
"""

from __future__ import annotations

import ast
import linecache
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

import neurosim
from neurosim.errors import KernelError
from neurosim.shell.loading import packaged_kernel

import nki.isa as nisa  # isort: skip (importing neurosim makes it importable)
import nki.language as nl  # isort: skip

VALUES, SURVIVED, PYTHON = "values", "survived", "the kernel's own Python"
TOLERANCE = 1e-3  # of the largest element
MAX_TURNS = 20_000

Change = Callable[[Any], None]
"""Makes a bug: changes a node of a copy of the tree in place."""


@dataclass(frozen=True)
class Kind:
    """A kind of bug: what it is, where it can be, and what may catch it."""

    name: str
    bugs: Callable[[ast.AST], Iterator[tuple[str, Change]]]
    caught_by: tuple[str, ...]


@dataclass(frozen=True)
class Mutant:
    """One bug in one kernel.

    ``definition``, ``node`` and ``turn`` say in which statement of the file, which of its nodes, and which
    of that node's bugs it is.
    """

    target: str
    kind: str
    line: int
    what: str
    definition: int
    node: int
    turn: int

    @property
    def is_equivalent(self) -> bool:
        """Whether the bug is none: listed in ``EQUIVALENT``."""
        return (self.target.partition(":")[0], self.what) in EQUIVALENT

    def __str__(self) -> str:
        return f"{self.target}:{self.line} {self.kind}: {self.what}"


# --- what the kernels are launched with: small, and with a tail in every axis, so that a bug in any line shows


def _normal(*shape: int, positive: bool = False) -> Any:
    values = np.random.default_rng(shape).standard_normal(shape).astype(np.float32)
    return np.abs(values) + np.float32(0.1) if positive else values


LADDER = (_normal(300, 280), _normal(300, 1100))
LAUNCHES: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "adamw.py:adamw": (
        (_normal(130, 70), _normal(70, 130).T, _normal(130, 71)[:, :70], _normal(1, 130, 70, positive=True)[0], 3),
        {"lr": 0.5, "eps": 0.1, "weight_decay": 0.3},
    ),
    "attention.py:attention": (
        (60 * _normal(700, 40), _normal(700, 41)[:, 1:], _normal(700, 42)[:, 2:]),
        {"causal": True},
    ),
    "average_pool2d.py:average_pool2d": ((_normal(130, 7, 11), 3), {}),
    "batched_matmul.py:batched_matmul": ((_normal(3, 300, 70), _normal(3, 70, 700)), {}),
    "conv2d.py:conv2d": ((_normal(2, 140, 9, 12), _normal(150, 140, 2, 3), _normal(150)), {"pool": 2}),
    "linear_gelu.py:linear_gelu": ((_normal(300, 280), _normal(300, 1100), _normal(1, 1100)), {}),
    "vector_add.py:vector_add": ((_normal(50_000), _normal(50_001)[1:]), {"columns": 128}),
    "copy_columns.py:copy_columns": ((_normal(130, 70), 33), {}),
    "matmul_double_row.py:matmul_double_row": (
        (_normal(300, 280).astype(ml_dtypes.float8_e4m3), _normal(300, 2100).astype(ml_dtypes.float8_e4m3)),
        {},
    ),
    "conv1d.py:conv1d": ((_normal(40, 130, 70), _normal(140, 130, 3), _normal(140)), {"stride": 2, "padding": 1}),
    "layernorm.py:layernorm": ((_normal(300, 2100).astype(ml_dtypes.bfloat16), _normal(2100), _normal(2101)[1:]), {}),
    "matmul.py:matmul": ((_normal(300, 700), _normal(300, 2100)), {}),
    "matmul_ladder.py:matmul_tiled": (LADDER, {}),
    "matmul_ladder.py:matmul_hoisted": (LADDER, {}),
    "matmul_ladder.py:matmul_blocked_free": (LADDER, {}),
    "matmul_ladder.py:matmul_blocked": (LADDER, {}),
    "rmsnorm.py:rmsnorm": ((_normal(300, 70), _normal(70)), {}),
    "rope.py:rope": ((_normal(300, 3, 16), _normal(300, 8), _normal(300, 9)[:, 1:]), {}),
    "selective_scan.py:selective_scan": (
        (
            _normal(1, 130, 2100),
            _normal(1, 130, 2101, positive=True)[:, :, 1:],
            -_normal(130, 3, positive=True),
            _normal(1, 3, 2100),
            _normal(1, 3, 2101)[:, :, 1:],
        ),
        {},
    ),
    "sharded_rmsnorm.py:sharded_rmsnorm[2]": ((_normal(300, 71), _normal(71)), {}),
    "silu.py:silu": ((_normal(300, 70),), {}),
    "softmax.py:softmax": ((_normal(300, 2100).astype(ml_dtypes.bfloat16),), {}),
    "swiglu.py:swiglu": ((_normal(140, 150), _normal(150, 600), _normal(150, 601)[:, 1:], _normal(600, 530)), {}),
    "transpose2d.py:transpose2d": ((_normal(700, 300),), {}),
    "transpose2d.py:transpose_free": ((_normal(130, 7, 11),), {}),
}


# --- the kinds


def _instruction(node: ast.AST) -> str | None:
    """Return the instruction that a statement or call issues."""
    call = node.value if isinstance(node, ast.Expr) else node
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "nisa":
        return call.func.attr
    return None


def _keywords(call: ast.Call) -> dict[str | None, ast.keyword]:
    return {keyword.arg: keyword for keyword in call.keywords}


def _is_store(node: ast.AST) -> bool:
    """Whether a statement writes HBM: the kernels call what lies there out, target, or something of these."""
    if not isinstance(node, ast.Expr) or _instruction(node) != "dma_copy":
        return False
    dst = ast.unparse(_keywords(node.value)["dst"].value)  # type: ignore[arg-type]
    return dst.startswith(("out", "target", "new_", "result_"))


def _nothing(statement: Any) -> None:
    statement.value = ast.Constant(None)


def missing_store(node: ast.AST) -> Iterator[tuple[str, Change]]:
    if _is_store(node):
        yield "a store is gone", _nothing


def read_before_write(node: ast.AST) -> Iterator[tuple[str, Change]]:
    instruction = _instruction(node)
    if isinstance(node, ast.Expr) and instruction and instruction != "sendrecv" and not _is_store(node):
        yield f"{instruction} is gone", _nothing


def wrong_accumulate(node: ast.AST) -> Iterator[tuple[str, Change]]:
    if isinstance(node, ast.keyword) and node.arg == "accumulate" and not isinstance(node.value, ast.Constant):
        for text in ("True", "False", f"not {ast.unparse(node.value)}"):
            yield f"accumulate={text}", lambda keyword, text=text: setattr(keyword, "value", _expression(text))


def off_by_one(node: ast.AST) -> Iterator[tuple[str, Change]]:
    if not isinstance(node, ast.Slice):
        return
    for name, by in (("lower", "+ 1"), ("upper", "+ 1"), ("upper", "- 1")):
        bound = getattr(node, name)
        if bound is not None:
            text = f"{ast.unparse(bound)} {by}"
            what = f"{name} bound {text}"
            yield what, lambda piece, name=name, text=text: setattr(piece, name, _expression(text))


COMMUTE = {"nl.add", "nl.multiply", "nl.maximum", "nl.minimum"}
PAIRS = (
    ("stationary", "moving"),
    ("data1", "data2"),
    ("dst", "src"),
    ("dst", "data"),
    ("operand0", "operand1"),
    ("op0", "op1"),
)


def swapped_operands(node: ast.AST) -> Iterator[tuple[str, Change]]:
    if _instruction(node) is None or not isinstance(node, ast.Call):
        return
    given = _keywords(node)
    for first, second in PAIRS:
        if first not in given or second not in given:
            continue
        commutes = first == "data1" and ast.unparse(given["op"].value) in COMMUTE
        if not commutes and ast.unparse(given[first].value) != ast.unparse(given[second].value):
            yield f"{first} and {second} swapped", lambda call, pair=(first, second): _swap(call, *pair)


def _swap(call: ast.Call, first: str, second: str) -> None:
    given = _keywords(call)
    given[first].arg, given[second].arg = second, first


def missing_wait(node: ast.AST) -> Iterator[tuple[str, Change]]:
    if isinstance(node, ast.Expr) and _instruction(node) == "sendrecv":
        yield "sendrecv is gone", _nothing
        alone = f"_alone(nisa.sendrecv, {ast.unparse(node.value)[len('nisa.sendrecv(') :]}"
        yield "only core 0 calls sendrecv", lambda statement: setattr(statement, "value", _expression(alone))
        unsent = f"_unsent({ast.unparse(node.value)[len('nisa.sendrecv(') :]}"
        yield "through HBM without a barrier", lambda statement: setattr(statement, "value", _expression(unsent))
    if isinstance(node, ast.Assign) and "core * share" in ast.unparse(node.value):
        yield "both cores take the first half", lambda statement: setattr(statement, "value", _expression("0, share"))


def over_capacity(node: ast.AST) -> Iterator[tuple[str, Change]]:
    yield from _allocated(node, ("nl.sbuf", "nl.psum"), "a tile that does not fit", "_padded")


def wrong_start_partition(node: ast.AST) -> Iterator[tuple[str, Change]]:
    yield from _allocated(node, ("nl.sbuf", "nl.psum"), "a tile from partition 1 on", "_shifted")


def _allocated(node: ast.AST, buffers: tuple[str, ...], what: str, name: str) -> Iterator[tuple[str, Change]]:
    is_allocation = isinstance(node, ast.Call) and ast.unparse(node.func) == "nl.ndarray"
    if is_allocation and ast.unparse(_keywords(node)["buffer"].value) in buffers:
        yield what, lambda call: setattr(call, "func", _expression(name))


def dropped_tail(node: ast.AST) -> Iterator[tuple[str, Change]]:
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "min" and _is_rest(node.args[1]):
        text = ast.unparse(node.args[0])
        yield f"{ast.unparse(node)} is {text}", lambda call: _become(call, f"max({text}, {text})")
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "range" and len(node.args) == 3:
        step, stop = ast.unparse(node.args[2]), ast.unparse(node.args[1])
        yield "a loop over whole steps only", lambda call: call.args.__setitem__(1, _expression(f"{stop} - {step} + 1"))
    if (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.operand, ast.BinOp)
        and isinstance(node.operand.op, ast.FloorDiv)
    ):
        yield (
            f"{ast.unparse(node)} rounded down",
            lambda unary: setattr(unary, "operand", _expression(f"-({ast.unparse(unary)[3:-1]})")),
        )


def _is_rest(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)


def stale_psum(node: ast.AST) -> Iterator[tuple[str, Change]]:
    if isinstance(node, ast.FunctionDef):
        text = ast.unparse(node)
        if "nisa.nc_matmul" in text and "buffer=nl.psum" in text:
            yield "one PSUM tile for all sums, and none starts anew", _keep_psum


def _keep_psum(function: ast.FunctionDef) -> None:
    for node in ast.walk(function):
        if _instruction(node) == "nc_matmul" and isinstance(node, ast.Call):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "accumulate"]
        for _, change in _allocated(node, ("nl.psum",), "", "_kept"):
            change(node)


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _become(call: ast.Call, text: str) -> None:
    other = _expression(text)
    call.func, call.args = other.func, other.args  # type: ignore[attr-defined]


VIEW = ("IllegalOperand", "IllegalCall", "OutOfBounds")
HOLES = ("Uninitialized", "UnwrittenOutput")
KINDS = (
    Kind("missing store", missing_store, ("UnwrittenOutput",)),
    Kind("wrong accumulate", wrong_accumulate, ("Uninitialized", VALUES)),
    Kind("off-by-one slice", off_by_one, (*VIEW, *HOLES, "DataRace", PYTHON, VALUES)),
    Kind("swapped operands", swapped_operands, (*VIEW, *HOLES, VALUES)),
    Kind("missing wait across cores", missing_wait, ("DataRace", "Deadlock", *HOLES)),
    Kind("read before write", read_before_write, (*HOLES, VALUES)),
    Kind("tile over capacity", over_capacity, ("CapacityExceeded",)),
    Kind("wrong start partition", wrong_start_partition, ("IllegalOperand",)),
    Kind("dropped tail", dropped_tail, (*VIEW, *HOLES, "CapacityExceeded", PYTHON, VALUES)),
    Kind("stale PSUM", stale_psum, (VALUES,)),
)


#: (file, what was done): bugs that change nothing in these launches, and why
GUESS = "it only decides how large blocks are, and these are far from too large"
EQUIVALENT = {
    ("attention.py", "-(-S_kv // nl.tile_size.pmax) rounded down"): GUESS,
    ("conv1d.py", "-(-channels_in // nl.tile_size.pmax) rounded down"): GUESS,
    ("conv1d.py", "-(-channels_in // pmax) rounded down"): GUESS,
    ("conv2d.py", "-(-channels_in // pmax) rounded down"): GUESS,
    ("linear_gelu.py", "-(-K // nl.tile_size.pmax) rounded down"): GUESS,
    ("matmul_ladder.py", "-(-b.shape[0] // nl.tile_size.pmax) rounded down"): GUESS,
    ("swiglu.py", "-(-width // pmax) rounded down"): GUESS,
    ("swiglu.py", "-(-max(width, hidden) // pmax) rounded down"): GUESS,
    ("conv1d.py", "upper bound first + 1"): "a load overwrites the one zero too many",
}


# --- what mutants call in place of nl.ndarray


def _padded(shape: Any, dtype: Any, buffer: Any) -> Any:
    *rest, last = shape
    region = (*(slice(None) for _ in rest), slice(0, last))
    return nl.ndarray((*rest, last + 2**18), dtype=dtype, buffer=buffer)[region]


def _shifted(shape: Any, dtype: Any, buffer: Any) -> Any:
    return nl.ndarray((shape[0] + 1, *shape[1:]), dtype=dtype, buffer=buffer)[1 : shape[0] + 1]


def _alone(send: Callable[..., Any], *, dst: Any, **given: Any) -> None:
    """Core 0 meets core 1, which does not come."""
    if nl.program_id(0) == 0:
        send(dst=dst, **given)
    else:
        nisa.memset(dst=dst, value=0)


def _unsent(*, src: Any, dst: Any, **_: Any) -> None:
    """Core 1 reads from HBM what core 0 wrote there, and nothing makes it wait."""
    box = nl.ndarray(src.shape, dtype=src.dtype, buffer=nl.shared_hbm, name=f"box_{src.shape}")
    if nl.program_id(0) == 0:
        nisa.dma_copy(dst=box, src=src)
        nisa.memset(dst=dst, value=0)
    else:
        nisa.dma_copy(dst=dst, src=box)


def _keeper() -> Callable[..., Any]:
    kept: dict[Any, Any] = {}

    def keep(shape: Any, dtype: Any, buffer: Any) -> Any:
        key = tuple(shape), str(dtype)
        if key not in kept:
            kept[key] = nl.ndarray(shape, dtype=dtype, buffer=buffer)
        return kept[key]

    return keep


# --- seeding and running


@cache
def mutants(target: str) -> tuple[Mutant, ...]:
    """Return every bug that can be seeded into a kernel, in lines that its launch reaches."""
    file = target.partition(":")[0]
    reached = _reached(target)
    found = []
    for place, definition in enumerate(_tree(file).body):
        for index, (line, node) in enumerate(_nodes(definition)):
            if line in reached:
                for kind in KINDS:
                    for turn, (what, _) in enumerate(kind.bugs(node)):
                        found.append(Mutant(target, kind.name, line, what, place, index, turn))
    return tuple(found)


def fate(mutant: Mutant) -> tuple[str, str]:
    """Run a mutant; return what caught it and the message."""
    definition = _tree(mutant.target.partition(":")[0]).body[mutant.definition]
    node = next(node for index, (_, node) in enumerate(_nodes(definition)) if index == mutant.node)
    kind = next(kind for kind in KINDS if kind.name == mutant.kind)
    change = next(change for turn, (_, change) in enumerate(kind.bugs(node)) if turn == mutant.turn)
    change(node)
    try:
        got = launch(mutant.target, definition)
    except KernelError as error:
        lost = "" if any(_path(mutant.target) in place for place in error.where) else "does not say where: "
        return lost + type(error).__name__, str(error)
    except (TypeError, ValueError, IndexError, AssertionError, ZeroDivisionError, _Endless) as error:
        return PYTHON, repr(error)
    return (VALUES, "") if differ(got, right(mutant.target)) else (SURVIVED, "")


@cache
def right(target: str) -> tuple[Any, ...]:
    """Return what the kernel as it is computes."""
    return launch(target)


def differ(got: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    if [array.shape for array in got] != [array.shape for array in right]:
        return True
    pairs = [(one.astype(np.float64), other.astype(np.float64)) for one, other in zip(got, right, strict=True)]
    # not (a <= b): NaN differs
    return any(not np.abs(one - other).max() <= TOLERANCE * np.abs(other).max() for one, other in pairs)


def launch(target: str, mutated: ast.stmt | None = None) -> tuple[Any, ...]:
    """Run a kernel, with a statement of its file in place of the one that stands there."""
    file, _, name = target.partition(":")
    name, bracket, cores = name.partition("[")
    namespace: dict[str, Any] = {
        "__name__": "mutated",
        "_padded": _padded,
        "_shifted": _shifted,
        "_kept": _keeper(),
        "_alone": _alone,
        "_unsent": _unsent,
        "_turn": _budget(),
    }
    exec(_code(file), namespace)
    if mutated is not None:
        exec(_compiled(file, [mutated]), namespace)
    arrays, options = LAUNCHES[target]
    simulated = neurosim.simulate(namespace[name])
    outputs = (simulated[int(cores[:-1])] if bracket else simulated)(*arrays, **options).outputs
    return outputs if isinstance(outputs, tuple) else (outputs,)


@cache
def _code(file: str) -> Any:
    return _compiled(file, _tree(file).body)


def _compiled(file: str, statements: list[ast.stmt]) -> Any:
    """Compile statements of a file; each turn of their loops counts."""
    module = ast.Module(statements, [])
    for loop in ast.walk(module):
        if isinstance(loop, (ast.For, ast.While)):
            loop.body.insert(0, ast.copy_location(ast.Expr(_expression("_turn()")), loop.body[0]))
    return compile(ast.fix_missing_locations(module), _path(file), "exec")


def _tree(file: str) -> ast.Module:
    """Return a kernel's source, parsed: a tree of its own to change, which is faster made than copied."""
    return ast.parse(_source(file))


@cache
def _source(file: str) -> str:
    source = packaged_kernel(file).read_text()
    linecache.cache[_path(file)] = (len(source), None, source.splitlines(True), _path(file))
    return source


def _path(target: str) -> str:
    return f"<mutated {target.partition(':')[0]}>"


@cache
def _reached(target: str) -> frozenset[int]:
    """Return the lines in which a statement begins that the launch reaches."""
    lines: set[int] = set()
    with _watched(target, lines.add):
        launch(target)
    return frozenset(lines)


@contextmanager
def _watched(target: str, see: Callable[[int], None]) -> Iterator[None]:
    """Call ``see`` with each line of the kernel's file that runs meanwhile, on any core."""
    path = _path(target)

    def trace(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != path:
            return None
        see(frame.f_lineno)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    threading.settrace(trace)  # each of two cores is a thread
    try:
        yield
    finally:
        sys.settrace(before)
        threading.settrace(before)  # type: ignore[arg-type]


class _Endless(Exception):
    """A mutant whose loops turn far more often than those of any kernel here."""


def _budget() -> Callable[[], None]:
    left = iter(range(MAX_TURNS))

    def turn() -> None:
        if next(left, None) is None:
            raise _Endless

    return turn


def _nodes(statement: ast.stmt) -> Iterator[tuple[int, ast.AST]]:
    """Yield (line of the statement, node) of all nodes of a function or class, in order."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        yield from _within(statement, statement.body[-1].lineno)


def _within(statement: ast.stmt, line: int) -> Iterator[tuple[int, ast.AST]]:
    yield line, statement
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.FunctionDef):
            yield from _within(child, child.body[-1].lineno)
        elif isinstance(child, ast.stmt):
            yield from _within(child, child.lineno)
        elif not isinstance(child, ast.arguments):
            for node in ast.walk(child):
                yield line, node
