"""Declares loops that become machine code, and finds that code: on disk, or from a compiler, at the first call.

A process that finds all it needs imports no compiler: numba takes longer to import than a small kernel to run. What
imports it, the flags, and what makes files is :mod:`neurosim.compiling`.

Every compiled function is called with one signature only, the one of its first call, and checks that: a call with
another dtype or number of axes is a TypeError. So is an array that is not C-contiguous, aligned, writeable and in the
machine's byte order.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import platform
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar

import llvmlite.binding  # type: ignore[import-untyped,unused-ignore]
import numpy as np

from neurosim.compiling.machine_code import MachineCode
from neurosim.errors import ConfigurationError
from neurosim.installation import cache_root

F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger(__name__)
_lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    # a fork waits until no thread compiles: the child would find numba's lock held by a thread that it does not have
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)

#: Whether loops run as plain Python (``NUMBA_DISABLE_JIT=1``); the bits are the same.
INTERPRETED: Final = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")

#: numba's settings that leave its code as it is, without the prefix that they have in the environment.
_HARMLESS: Final = {"DISABLE_JIT", "NUM_THREADS", "THREADING_LAYER", "THREADING_LAYER_PRIORITY", "CACHE_DIR"}


class Intrinsic:
    """A function that LLVM's own code stands for in compiled loops; elsewhere it is plain Python.

    Attributes:
        name: module and function, in :mod:`neurosim.compiling`, of what writes the code.
        form: arguments of that.
        python: does the same.
    """

    def __init__(self, name: str, python: Callable[..., Any], *form: Any) -> None:
        self.name, self.python, self.form = name, python, form

    def __call__(self, *arguments: Any) -> Any:
        """Do the same in plain Python."""
        return self.python(*arguments)


#: Called in a kernel, has LLVM vectorise it for all of AVX-512's registers. By itself it takes half of them, since some
#: processors slow down; tiles are long enough for an exponential to take half of the time.
whole_registers: Final = Intrinsic("vectors.whole_registers", lambda: None)


def _sources(package: Path) -> list[Path]:
    own = Path(__file__)
    return [own, *(folder / name for folder in (own.parent / "compiling", package) for name in _modules(folder))]


def _modules(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.endswith(".py")) if folder.is_dir() else []


@functools.cache
def _versions() -> bytes:
    """Return what says which compiler is installed, without importing it."""
    found = [find_spec(name) for name in ("numba", "llvmlite")]
    files = [Path(spec.origin).with_name("_version.py") for spec in found if spec is not None and spec.origin]
    versions = np.__version__, platform.python_version(), sys.implementation.cache_tag, platform.machine()
    return b"\n".join((*(file.read_bytes() for file in files), repr(versions).encode()))


def _cache_key(package: Path) -> str:
    """Hash everything that the machine code of a package depends on: its sources and ours, the compiler, the CPU.

    What comes from elsewhere must be an argument or in a closure: no change of another module is noticed.
    """
    digest = hashlib.sha256(_versions())
    for path in _sources(package):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    digest.update(llvmlite.binding.get_host_cpu_name().encode())
    digest.update(llvmlite.binding.get_host_cpu_features().flatten().encode())
    for name, value in sorted(os.environ.items()):
        if name.startswith("NUMBA_") and name.removeprefix("NUMBA_") not in _HARMLESS:
            digest.update(f"{name}={value}\n".encode())
    settings = Path(".numba_config.yaml")  # numba reads it from the working directory
    if settings.is_file():
        digest.update(settings.read_bytes())
    return digest.hexdigest()[:20]


@functools.cache
def cache_dir(package: Path) -> Path | None:
    """Return the folder for a package's machine code, which may be read only, or None: compile afresh each time."""
    folder = None
    try:
        folder = cache_root() / f"code-{_cache_key(package)}"
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (OSError, RuntimeError) as error:
        _log.info("compiled code is not kept on disk: %s", error)
        _announcements[package] = "each time, as no folder for the result can be written: set NEUROSIM_CACHE_DIR"
        return folder if folder is not None and folder.is_dir() else None
    if next(folder.iterdir(), None) is None:
        _announcements[package] = "kept on disk"
    return folder


#: What takes long to compile, and how long: by the last name of a package.
_WAITS: Final = {
    "numerics": ("arithmetic", "up to 10 seconds now, and a few for each new mix of instruction and dtype later"),
    "events": ("the timing of long programs", "10 to 20 seconds"),
}
_announcements: Final[dict[Path, str]] = {}  # by package, as long as nothing was said


def _announce(package: Path) -> None:
    """Say on stderr, before the first function of a package is compiled, what takes so long. Once in a process."""
    ending = _announcements.pop(package, "")
    if ending and package.name in _WAITS:
        what, wait = _WAITS[package.name]
        sys.stderr.write(f"neurosim: compiling {what} for this processor, {wait}; {ending}\n")
        sys.stderr.flush()


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Let Ctrl-C wait until a function is compiled. The second one does not wait.

    numba that is interrupted loses what it was about to register, and compiles nothing more in this process.
    """
    usual, waiting = signal.getsignal(signal.SIGINT), []

    def note(_: int, frame: FrameType | None) -> None:
        waiting.append(frame)
        signal.signal(signal.SIGINT, usual)

    if not callable(usual) or threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        signal.signal(signal.SIGINT, note)
    except ValueError:  # another interpreter than the main one, to which Ctrl-C does not come
        yield
        return
    try:
        yield
    finally:
        if not waiting:
            signal.signal(signal.SIGINT, usual)
    if waiting:
        usual(signal.SIGINT, waiting[0])


class Kernel(functools.partial[Any]):
    """A compiled function, which finds its machine code when it is first called.

    It is called at C's speed: a partial object without arguments, whose function is exchanged.

    Attributes:
        py_func: the Python that it was made from.
        is_loaded: whether its machine code is in this process.
        was_found: whether that was on disk.
    """

    py_func: Callable[..., Any]
    is_loaded: bool
    was_found: bool

    def __new__(cls, function: Callable[..., Any]) -> Kernel:
        """Declare it."""
        self = super().__new__(cls, function)
        self.py_func = function
        self.__module__ = function.__module__
        self.is_loaded = self.was_found = False
        self._be(self._first)
        return self

    def _be(self, function: Callable[..., Any]) -> None:
        self.__setstate__((function, (), {}, self.__dict__))  # type: ignore[attr-defined]

    def __reduce__(self) -> str:
        """Let pickle find it by its name; a copy is the function itself."""
        return self.py_func.__qualname__

    @property
    def package(self) -> Path:
        """The folder of the file that the function stands in."""
        return Path(self.py_func.__code__.co_filename).parent

    @property
    def name(self) -> str:
        """What its files are called by: its own, and no other's of the package."""
        return f"{self.py_func.__module__.rpartition('.')[2]}.{self.py_func.__qualname__}".replace("<locals>", "")

    def is_on_disk(self) -> bool:
        """Return whether some process kept machine code of it."""
        folder = cache_dir(self.package)
        try:
            return folder is not None and any(name.startswith(f"{self.name}-") for name in os.listdir(folder))
        except OSError:  # somebody cleared the cache
            return False

    def _first(self, *arguments: Any) -> Any:
        if not all(map(_is_plain, arguments)):
            raise TypeError(
                f"compiled {self.py_func.__qualname__}: an array is not C-contiguous, aligned and writeable"
            )
        with _undisturbed():
            with _lock:
                if not self.is_loaded:
                    self._be(self._found(arguments))
                    self.is_loaded = True
            return self(*arguments)

    def _found(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        folder = cache_dir(self.package)
        form = hashlib.sha256("".join(map(_form, arguments)).encode()).hexdigest()[:12]
        path = None if folder is None else folder / f"{self.name}-{form}"
        code = None if path is None else MachineCode.read(path)
        self.was_found = code is not None
        if code is None:
            try:
                from neurosim.compiling import compiler
            except Exception as error:  # a setting that numba refuses, or an installation that is not whole
                raise _no_compiler(error) from error

            _announce(self.package)
            code = compiler.machine_code(self, arguments)
            if path is not None and compiler.is_as_told():
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)  # somebody may have cleared the cache
                    code.write(path)
                except (OSError, ConfigurationError) as error:
                    _log.info("compiled code is not kept on disk: %s", error)
        return code.load(self.py_func.__qualname__)


def _no_compiler(error: Exception) -> ConfigurationError:
    """Return the error for a numba that cannot be imported."""
    settings = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("NUMBA_"))
    reason = f"{type(error).__name__}: {error}"
    return ConfigurationError(
        f"numba, which makes machine code of neurosim's arithmetic, cannot be imported: {reason}",
        numbers=settings,
        advice="unset what is set of numba's in the environment" if settings else "install it again, and llvmlite",
    )


def _is_plain(value: Any) -> bool:
    """Return whether an argument, or all in it, lies in memory as all compiled functions take it."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return not isinstance(value, np.ndarray) or (value.flags.carray and value.dtype.isnative)


def _form(value: Any) -> str:
    """Return what machine code depends on of an argument: enough to tell files apart."""
    if isinstance(value, np.ndarray):
        dtype = value.dtype
        return f"{value.ndim}{dtype.descr if dtype.names else dtype.str};"
    if isinstance(value, tuple):
        return f"{type(value).__name__}({''.join(map(_form, value))});"
    if isinstance(value, (float, np.generic)):
        return f"{np.asarray(value).dtype.str};"
    return f"{type(value).__name__};"


def _interpreted(function: F) -> F:
    """Run a kernel as plain Python: NumPy scalars wrap and overflow as the machine does, but would warn."""

    @functools.wraps(function)
    def run(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*args)

    return run  # type: ignore[return-value]


def compiled(function: F) -> F:
    """Compile a kernel at its first call. The machine code is kept on disk."""
    return _interpreted(function) if INTERPRETED else Kernel(function)  # type: ignore[return-value]


def python_of(function: Any) -> Any:
    """Return the Python that a compiled function was made from; all else as it is."""
    return getattr(function, "py_func", getattr(function, "__wrapped__", function))


def named(name: str) -> Callable[[F], F]:
    """Compile a kernel that a factory makes in several variants.

    ``name`` must be the variant's own: the file on disk is called by it, and one file holds one variant.
    """

    def decorate(function: F) -> F:
        function.__qualname__ = name
        return compiled(function)

    return decorate


#: Scalar functions that kernels call.
INLINED: Final[set[Callable[..., Any]]] = set()


def inlined(function: F) -> F:
    """Mark a scalar function that kernels call; it becomes part of them, and stays plain Python outside them."""
    INLINED.add(function)
    return function
