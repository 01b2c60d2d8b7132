"""What kernels call: two functions for each instruction, written from its declaration as by ``dataclasses``.

A call of an instruction binds its operands, knows the signature by them, looks at their memory, executes, and leaves a
row in the record. In loops over operands that costs several times what it costs as code for this instruction alone.
``print(source(cls))`` shows what is written.

The first makes the instance. The second, ``_issue``, takes calls like an earlier one, with nothing special about their
memory: what is read was all written, what is written shares no bytes. All others it leaves to
:meth:`neurosim.instruction.Instruction.issue_closely`. Names that begin with an underscore are its own: NKI has none.
"""

from __future__ import annotations

import dataclasses
import linecache
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import FunctionType
from typing import Any, Final

from neurosim.engines import Memory
from neurosim.errors import IllegalCall, NeurosimError
from neurosim.execution.calls import bad_call, bug, label_of, placed
from neurosim.execution.handle import NkiInstruction
from neurosim.execution.interning import typed
from neurosim.execution.operands import Operand
from neurosim.kernel import current, running
from neurosim.memory import WRITTEN
from neurosim.program import MOST_ROWS
from neurosim.view import NkiTensor

MISSING: Final = type("MISSING", (), {})()
"""Stands for an operand that a call does not give, and must."""
_EXACT: Final = (int, float, bool, str)
"""Types of parameters that are known by themselves, unless they are a float 0: 0.0 and -0.0 are equal."""


_CLASSES: Final[dict[str, Any]] = {}
"""Instruction classes by their names in ``nki.isa``."""


def refused(error: Exception) -> IllegalCall | None:
    """Return the error for a call that Python refused before it came here, with an operand given twice; else None."""
    found = re.match(r"nisa\.(\w+)\(\) got multiple values", str(error))
    cls = _CLASSES.get(found[1]) if found else None
    return None if cls is None else bad_call(cls, cls.mnemonic, error, {})


class Functions:
    """What is written for an instruction, when it is called for the first time: most kernels call a few.

    Attributes:
        call: what kernels call.
    """

    def __init__(self, cls: Any) -> None:
        self._cls = cls
        self._names = self._globals()
        self.call = FunctionType(_first.__code__, self._names, cls.mnemonic)
        self.call.__qualname__ = f"nisa.{cls.mnemonic}"  # by which Python calls it

    @property
    def issue(self) -> Callable[..., NkiInstruction]:
        """What issues an instance, given the kernel, the frame that calls, and the operands in order."""
        if "_issue" not in self._names:
            self.write()
        found: Callable[..., NkiInstruction] = self._names["_issue"]
        return found

    def write(self) -> None:
        """Write both functions; ``call`` stays the same object, which kernels hold."""
        cls = self._cls
        text, file = source(cls), f"{__file__}: {cls.mnemonic}"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)  # for tracebacks and debuggers
        exec(compile(text, file, "exec"), self._names)
        made = self._names[cls.mnemonic]
        self.call.__defaults__ = made.__defaults__  # first: another thread may call in between
        self.call.__code__ = made.__code__

    def _globals(self) -> dict[str, Any]:
        cls = self._cls
        return {
            "Handle": NkiInstruction,
            "MISSING": MISSING,
            "NeurosimError": NeurosimError,
            "Tensor": NkiTensor,
            "_bug": bug,
            "_cls": cls,
            "_current": current,
            "_exact": _EXACT,
            "_frame": sys._getframe,
            "_functions": self,
            "_label_of": label_of,
            "_new": object.__new__,
            "_placed": placed,
            "_psum": Memory.psum,
            "_running": running,
            "_typed": typed,
            "__name__": cls.__module__,  # where whoever asks finds it
        } | {f"_default_{field.name}": field.default for field in dataclasses.fields(cls)}


def _first(*given: Any, **named: Any) -> Any:
    """Stand for what kernels call until it is written; its names are those of :meth:`Functions._globals`."""
    _functions.write()  # type: ignore[name-defined]  # noqa: F821
    return _functions.call(*given, **named)  # type: ignore[name-defined]  # noqa: F821


@cache
def functions(cls: Any) -> Functions:
    """Return what is written for an instruction class."""
    _CLASSES[cls.mnemonic] = cls
    return Functions(cls)


def source(cls: Any) -> str:
    """Return the text of both functions."""
    return "\n".join([*_call(cls), "", "", *_issue(cls), ""])


def _call(cls: Any) -> Iterator[str]:
    fields, mnemonic = dataclasses.fields(cls), cls.mnemonic
    names = ", ".join(field.name for field in fields)
    required = [field.name for field in fields if field.default is dataclasses.MISSING]
    parameters = [
        f"{field.name}={'MISSING' if field.name in required else f'_default_{field.name}'}" for field in fields
    ]
    yield f"def {mnemonic}({', '.join(parameters)}, *_rest, **_more):"
    yield f"    _kernel = _running() or _current('nisa.{mnemonic}')"
    yield "    if _rest or _more:"
    yield f"        return _cls.called_otherwise(_kernel, _frame(1), ({names}, *_rest), _more)"
    yield "    self = _new(_cls)"
    for field in fields:
        yield f"    self.{field.name} = {field.name}"
    if hasattr(cls, "__post_init__"):
        yield "    self.__post_init__()"
    yield "    try:"
    yield f"        _handle = _issue(self, _kernel, _frame(1), {', '.join(name for name, _ in cls.declared())})"
    yield "    except NeurosimError as _error:"
    yield f"        raise _placed('{mnemonic}', _kernel, _error) from _error.__cause__"
    yield "    except Exception as _error:"
    yield f"        raise _bug('{mnemonic}', _kernel, _error) from _error"
    yield "    if _kernel.bodies:"
    yield f"        _cls.repeats(_kernel, _handle, ({names}))"
    yield "    return _handle"


def _issue(cls: Any) -> Iterator[str]:
    operands = cls.declared()
    yield f"def _issue(self, _kernel, _caller, {', '.join(name for name, _ in operands)}):"
    if any(operand is not None and operand.several for _, operand in operands):
        yield "    return self.issue_closely(_kernel, _caller, None)"
        return
    yield "    _marks, _is_plain = _kernel.marks, not _kernel.dry"
    yield "    try:"
    for name, operand in operands:
        if operand is not None:
            yield from _look(name, operand)
    types = {field.name: str(field.type) for field in dataclasses.fields(cls)}
    parts = [_part(name, operand, types[name]) for name, operand in operands]
    yield f"        _key = (_cls, {', '.join(parts)})"
    yield "        _found = _kernel.straight.get(_key)"
    yield "    except (AttributeError, TypeError, ValueError):  # no tensor, a list, an array: rules say what is wrong"
    yield "        _found = _key = None"
    unset = " or _found.registers is None" if cls.uses_registers() else ""
    yield f"    if _found is None or not _is_plain{unset}:"
    yield "        return self.issue_closely(_kernel, _caller, _key)"
    yield from _execution(cls)
    yield from _record(cls)


def _may_be_none(operand: Operand) -> bool:
    """Return whether something else than a tensor may be given."""
    return operand.number or operand.optional


def _look(name: str, operand: Operand) -> Iterator[str]:
    """Look at an operand's memory."""
    indent = " " * 8
    if _may_be_none(operand):
        yield f"{indent}if isinstance({name}, Tensor):"
        indent += " " * 4
        yield f"{indent}_{name}_key = {_pattern(name)}"
    asks = f"_{name}_storage.borrowed" if operand.is_written else f"_{name}_storage.state < {WRITTEN}"
    yield f"{indent}_home = {name}.allocation"
    yield f"{indent}_{name}_storage = _home.storage"
    yield f"{indent}if _home.marks is not _marks or {asks}:"
    yield f"{indent}    _is_plain = False"
    if _may_be_none(operand):
        yield f"{indent}_{name}_slots = (_{name}_storage.id, {name}.offset_bytes)"
        yield "        else:"
        yield f"{indent}_{name}_key = {_plainly(name) if operand.number else name}"
        yield f"{indent}_{name}_slots = ()"


def _pattern(name: str) -> str:
    """Return what a tensor is known by."""
    return f"{name}.family, {name}.shape, {name}.spot"


def _plainly(name: str) -> str:
    """Return what a number or None is known by."""
    is_exact = f"type({name}) in _exact and ({name} or type({name}) is not float)"
    return f"{name} if {name} is _default_{name} or {is_exact} or {name} is None else _typed({name})"


def _part(name: str, operand: Operand | None, annotation: str) -> str:
    """Return what an operand or a parameter is known by; True, 1 and 1.0 are equal, and not the same parameter."""
    if operand is not None:
        return f"_{name}_key, type({name})" if _may_be_none(operand) else _pattern(name)
    if annotation == "float" or "Any" in annotation or "list" in annotation:
        return f"{_plainly(name)}, type({name})"
    if annotation.startswith("Operator"):  # Python hashes its name once
        return f"None if {name} is None else {name}.name, type({name})"
    return f"{name}, type({name})"


def _execution(cls: Any) -> Iterator[str]:
    yield "    _label = self.name"
    yield "    if _label is not None:"
    yield "        _label_of(self)"
    if cls.may_refuse():
        yield "    self.admit(_found.lanes)"
    if not cls.is_control:
        yield "    if _kernel.values:"
    yield f"    {'' if cls.is_control else '    '}self.execute(_found.lanes)"
    indent = "    "
    if cls.may_write_in_part():
        yield f"    if {_is_uncovered(cls)}(_written := self.written()):"
        yield "        self.mark_parts(_kernel, _written)"
        yield "    else:"
        indent += "    "
    for name, operand in cls.declared():
        if operand is not None and operand.is_written:
            is_given = f"_{name}_slots and " if _may_be_none(operand) else ""
            yield f"{indent}if {is_given}_{name}_storage.state != {cls.state_written}:"
            yield f"{indent}    _{name}_storage.mark({name}, {cls.state_written})"


def _is_uncovered(cls: Any) -> str:
    """Return what asks whether a result has bytes that nobody wrote: if none has, what is written tells nothing new.

    In PSUM it does, since a matmul asks who wrote.
    """
    if any(_may_be_none(operand) for _, operand in cls.declared() if operand is not None and operand.is_written):
        return ""
    storages = [f"_{name}_storage" for name, operand in cls.declared() if operand is not None and operand.is_written]
    asks = [f"{storage}.state != {WRITTEN} or {storage}.memory is _psum" for storage in storages]
    return f"({' or '.join(asks)}) and "


def _record(cls: Any) -> Iterator[str]:
    tensors = [(name, operand) for name, operand in cls.declared() if operand is not None]
    slots = [
        f"*_{name}_slots" if _may_be_none(operand) else f"_{name}_storage.id, {name}.offset_bytes"
        for name, operand in tensors
    ]
    slots += ["*_found.registers"] if cls.uses_registers() else []
    row = ["_found.number", "_stack", "_kernel.core", "_kernel.block", "_kernel.trip", *slots]
    yield "    _stacks = _kernel.stacks"
    yield "    if _stacks.frame is not _caller or (_stack := _stacks.here.get(_caller.f_lasti)) is None:"
    yield "        _stack = _kernel.stack(_caller)"
    yield "    _program = _kernel.program"
    yield "    _rows = _program.rows"
    yield "    _number = _program.first + len(_rows)"
    yield f"    _rows.append(({', '.join(row)}))"
    yield f"    if _label is not None or _kernel.block >= 0 or len(_rows) >= {MOST_ROWS}:"
    yield "        _kernel.recorded(_number, _label)"
    yield "    _handle = _new(Handle)"
    yield "    _handle._program = _program"
    yield "    _handle.index = _number"
    yield "    _handle.name = _label"
    yield "    return _handle"
