"""Makes ``nki`` and ``neuronxcc.nki`` importable where the real packages are missing.

One finder stands first in ``sys.meta_path``. ``import nki`` gives ``neurosim.nki`` unless a real ``nki`` is installed
(``NEUROSIM_NKI=1`` or :func:`install` with ``force`` overrides that), and ``nki.x`` gives ``neurosim.nki.x`` only
while ``sys.modules["nki"]`` is ours: each module exists once, under both names. ``neuronxcc.nki``, the legacy dialect,
is ``neurosim.nki.legacy`` in the same way; ``neuronxcc`` itself is an empty package.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

_HOMES = {"nki": "neurosim.nki", "neuronxcc": "neurosim.nki.legacy_root"}
"""Names that kernels import, and the modules that stand for them."""


class _Alias:
    """Loads a name as the module of ours that it is: a Loader, without ``importlib.abc``, which imports a lot."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._spec: importlib.machinery.ModuleSpec | None = None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._home)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system put the alias's there


class NkiFinder:
    """Finds ``nki``, ``neuronxcc`` and their submodules in ``neurosim.nki``."""

    def __init__(self) -> None:
        self.force = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a spec for our modules, or None to leave the name to others."""
        root, _, rest = fullname.partition(".")
        if root not in _HOMES:
            return None
        home = _home(fullname)
        if rest:
            parent = sys.modules.get(root)
            if parent is None or parent.__name__ != _HOMES[root]:
                return None
            if home is None or importlib.util.find_spec(home) is None:
                return None
        elif not self.force and os.environ.get("NEUROSIM_NKI") != "1" and _real_exists(root):
            return None
        return None if home is None else importlib.machinery.ModuleSpec(fullname, _Alias(home), is_package=True)  # type: ignore[arg-type]


def _home(fullname: str) -> str | None:
    """Return the module that stands for a name, or None."""
    root, _, rest = fullname.partition(".")
    if root == "nki":
        return f"neurosim.{fullname}"
    if not rest:
        return _HOMES[root]
    head, _, tail = rest.partition(".")
    if head != "nki":
        return None
    return "neurosim.nki.legacy" + (f".{tail}" if tail else "")


def _real_exists(root: str) -> bool:
    """Return whether a loadable package of that name is installed; a bare folder does not count."""
    spec = importlib.machinery.PathFinder.find_spec(root)
    # a folder without code has no loader, and a script that happens to be called nki.py is no package
    return spec is not None and spec.loader is not None and spec.submodule_search_locations is not None


_FINDER = NkiFinder()


def provides_nki() -> bool:
    """Return whether ``import nki`` gives, or gave, neurosim's."""
    loaded = sys.modules.get("nki")
    if loaded is not None:
        return loaded.__name__ == "neurosim.nki"
    return _FINDER in sys.meta_path and _FINDER.find_spec("nki", None) is not None


def install(*, force: bool = False) -> None:
    """Put the finder in place; with ``force``, ours wins over installed packages from now on."""
    _FINDER.force = _FINDER.force or force
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    if not force:
        return
    for root, home in _HOMES.items():
        if root in sys.modules and sys.modules[root].__name__ != home:
            for name in [name for name in sys.modules if name == root or name.startswith(f"{root}.")]:
                del sys.modules[name]
