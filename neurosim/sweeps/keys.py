"""What a point's result depends on, as a key: equal keys, equal results, in whatever process and on whatever day.

The key covers the kernel's source with all that it takes from files beside it, its arguments, the chip's figures, the
options, and neurosim's own source.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import inspect
import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import joblib
import numpy as np

import neurosim
from neurosim.chip import Chip
from neurosim.errors import ConfigurationError
from neurosim.installation import PACKAGES, own_digest
from neurosim.sweeps.running import Call, packed

_LIBRARIES = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_INSTALLED = {"site-packages", "dist-packages"}
"""What folders are called into which libraries are installed: a user's own ones, those of the system below a venv's."""


def key(kernel_digest: str, arguments: Any, chip: Chip, options: Any) -> str:
    """Return the key of one point.

    Raises:
        ConfigurationError: an argument that cannot be read as data.
    """
    try:
        given = joblib.hash(_plain(arguments), hash_name="sha1")
    except Exception as error:
        raise ConfigurationError(
            f"the arguments of a sweep cannot be told apart: {type(error).__name__}: {error}",
            advice="give arrays, specs, numbers, strings and containers of these",
        ) from error
    figures = [(path, repr(figure.value)) for path, figure in sorted(chip.figures.items())]
    content = [neurosim.__version__, own_digest(), kernel_digest, given, chip.name, figures, options]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def kernel_digest(kernel: Any) -> str:
    """Return a digest of all that a kernel's source says, and of what its closure and its options hold.

    A kernel without a file (of a notebook) is what another process would be sent: its code with all that it refers to.
    """
    function = inspect.unwrap(getattr(kernel, "function", kernel))
    digest = hashlib.sha256(getattr(function, "__qualname__", repr(function)).encode())
    sources = {text for file in _files(function) if (text := _text(file)) is not None}
    for text in sorted(sources):
        digest.update(text)
    if not sources:
        digest.update(packed(Call(kernel)))
    closure = inspect.getclosurevars(function).nonlocals if isinstance(function, FunctionType) else {}
    held = {name: value for name, value in closure.items() if not callable(value)}
    options = {name: repr(getattr(kernel, name, None)) for name in ("grid", "schedule", "platform_target")}
    digest.update(joblib.hash([_plain(held), options, getattr(function, "__defaults__", None)], "sha1").encode())
    return digest.hexdigest()


def _files(function: Any) -> set[str]:
    """Return the files of a function and of all that they import from files of the same people."""
    module = inspect.getmodule(function)
    waiting = [(getattr(getattr(function, "__code__", None), "co_filename", ""), getattr(module, "__package__", None))]
    found: set[str] = set()
    while waiting:
        file, package = waiting.pop()
        if file and file not in found and _is_theirs(file):
            found.add(file)
            waiting += _imported(file, package)
    return found


def _imported(file: str, package: str | None) -> Iterator[tuple[str, str | None]]:
    """Yield file and package of the modules that a file imports, also within functions."""
    try:
        tree = ast.parse(_text(file) or b"")
    except (SyntaxError, ValueError):
        return
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            joint = "." if node.module else ""
            names |= {origin, *(f"{origin}{joint}{alias.name}" for alias in node.names)}
    for name in sorted(names):
        with contextlib.suppress(Exception):  # looking for a.b imports a, which may raise anything
            spec = importlib.util.find_spec(name, package)
            if spec is not None and spec.origin is not None:
                yield spec.origin, spec.parent


def _is_theirs(file: str) -> bool:
    path = Path(file).resolve()
    installed = not _INSTALLED.isdisjoint(path.parts)
    return not installed and not any(path.is_relative_to(folder) for folder in (*PACKAGES, *_LIBRARIES))


def _text(file: str) -> bytes | None:
    try:
        return Path(file).read_bytes()
    except OSError:
        return None


def _plain(value: Any) -> Any:
    """Return arguments with arrays of narrow formats as their bytes, which every library hashes alike."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(_plain, value)]
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), value.shape, np.ascontiguousarray(value).reshape(-1).view(np.uint8))
    return value
