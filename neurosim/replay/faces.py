"""The names of ``nki`` and ``neuronxcc.nki``, by the objects that they stand for: what kernels may call unseen.

What these do depends on their arguments and on the running kernel; where it depends on values, they note it
(:mod:`neurosim.execution.seen`). The modules are looked up among those that are loaded: nothing here imports them.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

_ROOTS: Final = ("neurosim.nki", "neurosim.nki.legacy")
_LEGACY_LAUNCH: Final = "neurosim.nki.legacy.launch"
_PARTS: Final = ("", ".language", ".language.constants", ".isa", ".typing", ".compiler")
_MODULES: Final = tuple(f"{root}{part}" for root in _ROOTS for part in _PARTS)
_NOT_IN_KERNELS: Final = frozenset(["jit", "trace", "benchmark", "profile", "baremetal", "simulate", "simulate_kernel"])
_OURS: Final = ("neurosim", "isa")


def path_of(value: Any) -> str | None:
    """Return what ``nki`` calls an object, None where it is none of its own."""
    found = _faces(tuple(name for name in _MODULES if name in sys.modules)).get(id(value))
    return found[1] if found is not None and found[0] is value else None


def kernel_behind(function: types.FunctionType) -> Any | None:
    """Return the kernel that a function of the legacy dialect's launches runs; None for any other function."""
    launch = sys.modules.get(_LEGACY_LAUNCH)
    return None if launch is None else launch.kernel_behind(function)


def is_ours(value: Any) -> bool:
    """Return whether an object is defined in neurosim."""
    module = getattr(value, "__module__", None) or type(value).__module__
    return isinstance(module, str) and module.split(".")[0] in _OURS


@lru_cache(maxsize=8)
def _faces(loaded: tuple[str, ...]) -> dict[int, tuple[Any, str]]:
    """Return the objects by id, which stay alive here, with their paths."""
    found: dict[int, tuple[Any, str]] = {}
    for name in loaded:
        for attribute, value in _public(sys.modules[name]):
            is_constant = value is None or isinstance(value, (bool, int, float, str, tuple, types.ModuleType))
            if is_ours(value) and not is_constant and attribute not in _NOT_IN_KERNELS:
                found.setdefault(id(value), (value, f"{name}.{attribute}"))
    return found


def _public(module: types.ModuleType) -> Iterator[tuple[str, Any]]:
    for attribute in dir(module):
        if not attribute.startswith("_"):
            value = getattr(module, attribute, None)
            if value is not None:
                yield attribute, value
