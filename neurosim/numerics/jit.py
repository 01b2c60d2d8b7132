"""The one file that imports numba: decorators, compiler flags, cache folder, threads.

Flags, each with its reason:

* no fastmath of any kind, so that a product rounds, then the sum rounds, and NaN stays visible;
* ``error_model="numpy"``: x / 0 is Inf as on the machine, and loops carry no exception paths, so they vectorise;
* ``nogil``: two simulations in two threads run at the same time;
* bounds checks are left to ``NUMBA_BOUNDSCHECK``.

Every compiled function is called with one signature only. numba numbers the files of a function's signatures
without a lock; two processes that compile two signatures of one function at once may swap their machine code.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import platform
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import llvmlite.binding  # type: ignore[import-untyped]
import numba  # type: ignore[import-untyped]
import numba.extending  # type: ignore[import-untyped]
import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger(__name__)

#: Whether loops run as plain Python (``NUMBA_DISABLE_JIT=1``); the bits are the same.
INTERPRETED: Final = bool(numba.config.DISABLE_JIT)

#: ``range`` whose iterations may run on several threads inside a function under :func:`parallel`.
prange = numba.prange

_FLAGS: Final[dict[str, Any]] = {"nogil": True, "error_model": "numpy"}


def _cache_key() -> str:
    """Hash everything that the machine code depends on: our sources, the compiler, the CPU."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    cpu = numba.config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    versions = (numba.__version__, np.__version__, platform.python_version(), platform.machine(), cpu)
    digest.update("\n".join(versions).encode())
    return digest.hexdigest()[:20]


def _cache_root() -> Path:
    """Return the folder that holds our cache folders; RuntimeError where no home is known."""
    if own := os.environ.get("NEUROSIM_CACHE_DIR"):
        return Path(own)
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "neurosim"
    return Path.home() / ".cache" / "neurosim"


@functools.cache
def cache_dir() -> Path | None:
    """Return the folder of this version's machine code, created and writable, or None: compile afresh each time."""
    try:
        folder = _cache_root() / f"numba-{_cache_key()}"
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (OSError, RuntimeError) as error:
        _log.info("compiled code is not kept on disk: %s", error)
        return None
    return folder


@contextmanager
def _our_cache(folder: Path) -> Iterator[None]:
    """Point numba's global cache folder at ours while a function is decorated, so that users' caches stay put."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


def _jit(function: F, **flags: Any) -> F:
    folder = cache_dir()
    if folder is None:
        jitted: F = numba.njit(function, **_FLAGS, **flags)
        return jitted
    with _our_cache(folder):
        cached: F = numba.njit(function, cache=True, **_FLAGS, **flags)
        return cached


def _interpreted(function: F) -> F:
    """Run a kernel as plain Python: NumPy scalars wrap and overflow as the machine does, but would warn."""

    @functools.wraps(function)
    def run(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*args)

    return run  # type: ignore[return-value]


def compiled(function: F) -> F:
    """Compile a serial kernel at its first call. The machine code is kept on disk."""
    return _interpreted(function) if INTERPRETED else _jit(function)


def named(name: str) -> Callable[[F], F]:
    """Compile a kernel that a factory makes in several variants.

    ``name`` must be the variant's own: the file on disk is called by it, and one file holds one variant.
    """

    def decorate(function: F) -> F:
        function.__qualname__ = name
        return compiled(function)

    return decorate


def parallel(function: F) -> F:
    """Compile the parallel kernel. Call it only while :func:`exclusive` grants threads."""
    return _interpreted(function) if INTERPRETED else _jit(function, parallel=True)


def inlined(function: F) -> F:
    """Mark a scalar function that kernels call; it becomes part of them, and stays plain Python outside them."""
    marked: F = numba.extending.register_jitable(function)
    return marked


class _Pool:
    """Who may use numba's thread pool: one caller at a time, and no forked child.

    GNU OpenMP ends a forked child that enters its pool, and numba's own workqueue layer aborts the process when
    two threads enter, so both run serially. The bits never depend on it.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.limit: int | None = None
        self.serial = INTERPRETED
        self.size: int | None = None

    def after_fork(self) -> None:
        self.serial = True

    def threads(self) -> int:
        if self.serial:
            return 1
        if self.size is None:
            self.size = self._start()
        return self.size if self.limit is None else min(self.limit, self.size)

    def _start(self) -> int:
        try:
            size = int(numba.get_num_threads())
            layer = numba.threading_layer() if size > 1 else "none"
        except ValueError as error:
            _log.info("matmul runs on one thread: %s", error)
            return 1
        return 1 if layer == "workqueue" else size


_pool = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.after_fork)


def threads() -> int:
    """Return how many threads the parallel kernel would use now (1 means that it runs serially)."""
    return _pool.threads()


def limit_threads(count: int | None) -> None:
    """Use at most ``count`` threads from now on; None lifts the limit. Results do not depend on it."""
    if count is not None and count < 1:
        raise ValueError(f"limit_threads: count is {count}, at least 1 is needed")
    _pool.limit = count


@contextmanager
def exclusive() -> Iterator[int]:
    """Yield the number of threads the caller may use until the block ends: 1 while another thread has the pool."""
    count = _pool.threads()
    if count == 1 or not _pool.lock.acquire(blocking=False):
        yield 1
        return
    try:
        yield count
    finally:
        _pool.lock.release()
