"""Every instruction, found by looking into the ``isa`` package: there is no list to keep."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import isa

Emitted = Callable[..., Any]


@cache
def instructions() -> dict[str, Emitted]:
    """Return what ``emit`` made of each instruction class, by NKI's name, in alphabetical order.

    Modules of ``isa`` are imported when this is first called; a folder that was added to ``isa.__path__`` by then
    counts as well.
    """
    found: dict[str, Emitted] = {}
    for module in pkgutil.iter_modules(isa.__path__):
        for value in vars(import_module(f"{isa.__name__}.{module.name}")).values():
            if hasattr(value, "instruction"):
                found[value.instruction.mnemonic] = value
    return dict(sorted(found.items()))
