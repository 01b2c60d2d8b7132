"""Makes ``nki`` importable where the real package is missing.

One finder stands first in ``sys.meta_path``. ``import nki`` gives ``neurosim.nki`` unless a real ``nki`` is installed
(``NEUROSIM_NKI=1`` or :func:`install` with ``force`` overrides that), and ``nki.x`` gives ``neurosim.nki.x`` only
while ``sys.modules["nki"]`` is ours: each module exists once, under both names.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

_PREFIX = "neurosim."


class _Alias(importlib.abc.Loader):
    """Loads ``nki…`` as the module ``neurosim.nki…`` that it is."""

    def __init__(self) -> None:
        self._spec: importlib.machinery.ModuleSpec | None = None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(_PREFIX + spec.name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system put the alias's there


class NkiFinder(importlib.abc.MetaPathFinder):
    """Finds ``nki`` and its submodules in ``neurosim.nki``."""

    def __init__(self) -> None:
        self.force = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a spec for our ``nki``, or None to leave the name to others."""
        root, _, rest = fullname.partition(".")
        if root != "nki":
            return None
        if rest:
            parent = sys.modules.get("nki")
            if parent is None or parent.__name__ != "neurosim.nki":
                return None
            if importlib.util.find_spec(_PREFIX + fullname) is None:
                return None
        elif not self.force and os.environ.get("NEUROSIM_NKI") != "1" and _real_nki_exists():
            return None
        return importlib.machinery.ModuleSpec(fullname, _Alias(), is_package=True)


def _real_nki_exists() -> bool:
    """Return whether a loadable ``nki`` is installed; a bare folder of that name does not count."""
    spec = importlib.machinery.PathFinder.find_spec("nki")
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
    """Put the finder in place; with ``force``, ours wins over an installed ``nki`` from now on."""
    _FINDER.force = _FINDER.force or force
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    if force and "nki" in sys.modules and sys.modules["nki"].__name__ != "neurosim.nki":
        for name in [name for name in sys.modules if name == "nki" or name.startswith("nki.")]:
            del sys.modules[name]
