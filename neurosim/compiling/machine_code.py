"""Machine code of one function: kept in a file, loaded and made callable without numba, whose import takes longer."""

from __future__ import annotations

import builtins
import ctypes
import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import llvmlite.binding  # type: ignore[import-untyped,unused-ignore]
import numpy as np

from neurosim.writing import replacing

#: Names under which machine code finds Python's objects.
NDARRAY: Final = "neurosim_ndarray"
RECARRAY: Final = "neurosim_recarray"
#: Elements of arrays from which on a call lets other threads of Python run: below, it takes less than to ask for the
#: lock again.
SHARED_FROM: Final = 1024
_MAGIC: Final = b"neurosim machine code 1\n"
_FASTCALL: Final = 0x0080  # Python's METH_FASTCALL: arguments as a C array and their count

_llvm: Final[Any] = llvmlite.binding


class MachineCode(NamedTuple):
    """An object file of the processor that we run on.

    Attributes:
        entry: its function that Python may call, see :mod:`neurosim.compiling.wrapper`.
        content: the object file.
    """

    entry: str
    content: bytes

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Return what a file holds, None where there is no file, not all of one, or one that had another name."""
        try:
            head, _, content = path.read_bytes().removeprefix(_MAGIC).partition(b"\n")
            form = json.loads(head)
            found = cls(form["entry"], content)
            return found if form["digest"] == found._digest(path) else None
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def write(self, path: Path) -> None:
        """Write the file; processes that do so at once write the same."""
        head = json.dumps({"entry": self.entry, "digest": self._digest(path)}).encode()
        with replacing(path) as file:
            file.write(_MAGIC + head + b"\n" + self.content)

    def _digest(self, path: Path) -> str:
        """Return a digest of all that a file says, its name included: which function it is stands nowhere else."""
        return hashlib.sha256(b"\n".join((path.name.encode(), self.entry.encode(), self.content))).hexdigest()

    def load(self, name: str) -> Callable[..., Any]:
        """Return the function, which holds the code as long as it lives.

        Each has an LLVM engine of its own: pieces of two functions may have one name, where two processes made them.
        """
        machine = _target().create_target_machine(opt=0, reloc=_relocation(), codemodel="jitdefault", jit=True)
        engine = _llvm.create_mcjit_compiler(_llvm.parse_assembly(""), machine)
        engine.add_object_file(_llvm.ObjectFileRef.from_data(self.content))
        engine.finalize_object()
        method = _Method(name.encode(), engine.get_function_address(self.entry), _FASTCALL, None)
        made: Callable[..., Any] = _new_function(ctypes.addressof(method), (engine, method), None)
        return made


class _Method(ctypes.Structure):
    """Python's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_new_function: Final[Any] = ctypes.pythonapi.PyCFunction_NewEx
_new_function.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
_new_function.restype = ctypes.py_object


def name_objects() -> None:
    """Tell LLVM where Python's objects are that machine code names: classes of exceptions and arrays, and None."""
    for name, value in vars(builtins).items():
        if isinstance(value, type) and issubclass(value, BaseException):
            _llvm.add_symbol(f"PyExc_{name}", id(value))
    _llvm.add_symbol("_Py_NoneStruct", id(None))
    _llvm.add_symbol(NDARRAY, id(np.ndarray))
    _llvm.add_symbol(RECARRAY, id(np.recarray))


def _relocation() -> str:
    """Return how code finds its data, as numba has it."""
    return "static" if _llvm.get_process_triple().startswith("x86") else "default"


@functools.cache
def _target() -> Any:
    _llvm.initialize_native_target()
    _llvm.initialize_native_asmprinter()
    name_objects()
    return _llvm.Target.from_triple(_llvm.get_process_triple())
