"""The one kernel that runs on numba's threads: numba itself compiles it, keeps it on disk and calls it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import numba  # type: ignore[import-untyped,unused-ignore]
import numba.core.caching  # type: ignore[import-untyped,unused-ignore]
import numba.core.runtime  # type: ignore[import-untyped,unused-ignore]

from neurosim.compiling.compiler import FLAGS, prepared, switched_on
from neurosim.jit import Kernel

_numba: Final[Any] = numba
_config: Final[Any] = numba.config
_log = logging.getLogger(__name__)
_NOT_KEPT: Final = "compiled code is not kept on disk: %s"


def function(
    kernel: Kernel, arguments: tuple[Any, ...], folder: Path | None, announce: Callable[[], None]
) -> Callable[..., Any]:
    """Return numba's function for arguments such as these, found in the folder or compiled."""
    with switched_on():
        jitted: Any = _numba.njit(prepared(kernel.py_func), parallel=True, **FLAGS)
    try:
        kept = None if folder is None else _Kept(jitted.py_func, folder, announce)
    except RuntimeError as error:  # the folder can be written no longer
        _log.info(_NOT_KEPT, error)
        kept = None
    if kept is None:
        announce()
    else:
        jitted._cache = kept
    with switched_on():
        jitted.compile(tuple(jitted.typeof_pyval(argument) for argument in arguments))
    found: Callable[..., Any] = jitted
    return found


def numba_threads() -> tuple[int, str]:
    """Return how many threads numba's pool has, and what runs them ("none" for one); ValueError where nothing can."""
    count = int(_numba.get_num_threads())
    return count, str(_numba.threading_layer()) if count > 1 else "none"


@contextmanager
def _our_cache(folder: Path) -> Iterator[None]:
    """Point numba's global cache folder at ours while a function's files are named, so that users' caches stay put."""
    before = _config.CACHE_DIR
    _config.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        _config.CACHE_DIR = before


class _Place(_numba.core.caching.UserProvidedCacheLocator):  # type: ignore[misc,unused-ignore]
    """Where a function's machine code lies: in our folder itself, whose name says what the sources hold.

    numba would name a folder below it by the path of the sources, and stamp files with their age: then a second
    checkout, or one that was moved, would compile everything again.
    """

    def get_cache_path(self) -> str:
        """Return the folder that ``_our_cache`` points at while the function's files are named."""
        return str(Path(self._cache_path).parent)

    def ensure_cache_path(self) -> None:
        """Make the folder; one that can be read only will do, where numba asks for more."""
        Path(self.get_cache_path()).mkdir(parents=True, exist_ok=True)

    def get_source_stamp(self) -> str:
        """Return what a change of the sources would change, were it not in the folder's name."""
        return ""


class _Files(_numba.core.caching.CompileResultCacheImpl):  # type: ignore[misc,unused-ignore]
    _locator_classes = (_Place,)


class _Kept(_numba.core.caching.FunctionCache):  # type: ignore[misc,unused-ignore]
    """Machine code on disk, which runs without what a compiler needs.

    Before numba looks on disk it imports all that it may compile, and SciPy's BLAS: half a second. Where nothing is
    found, its compiler does so itself.
    """

    _impl_class = _Files

    def __init__(self, python: Any, folder: Path, missed: Callable[[], None]) -> None:
        with _our_cache(folder):
            super().__init__(python)
        self._missed = missed

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the function that was compiled for a signature, None where none is there."""
        _numba.core.runtime.rtsys.initialize(target_context)  # machine code calls it
        try:
            found = self._load_overload(sig, target_context)
        except Exception as error:  # a file was harmed: pickle may raise anything
            _log.info("compiled code on disk is not used: %s", error)
            found = None
            with suppress(OSError):
                self.flush()
        if found is None:
            self._missed()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the function that was compiled for a signature, where there is a place for it."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _log.info(_NOT_KEPT, error)
