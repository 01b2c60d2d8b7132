"""What is installed here, and where it may keep files."""

from __future__ import annotations

import hashlib
import os
import time
from functools import lru_cache
from pathlib import Path
from typing import Final

PACKAGES: Final = (Path(__file__).resolve().parent, Path(__file__).resolve().parent.parent / "isa")
"""Folders of neurosim's own source."""
_ENDINGS: Final = (".py", ".toml")
_LOADED_S: Final = time.time()


def cache_root() -> Path:
    """Return the folder that holds our cache folders; RuntimeError where no home is known."""
    if own := os.environ.get("NEUROSIM_CACHE_DIR"):
        return Path(own)
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "neurosim"
    return Path.home() / ".cache" / "neurosim"


def _sources() -> list[str]:
    """Return paths as text: those of :mod:`pathlib` take four times as long to be found and sorted."""
    folders = [found for package in PACKAGES for found in os.walk(package)]
    return sorted(
        os.path.join(folder, file) for folder, _, files in folders for file in files if file.endswith(_ENDINGS)
    )


def is_edited() -> bool:
    """Return whether a file of neurosim's source was written since it was loaded: what runs may be another one."""
    return any(os.stat(file).st_mtime > _LOADED_S for file in _sources())


@lru_cache
def own_digest() -> str:
    """Return a digest of neurosim's own sources and device files."""
    digest = hashlib.sha256()
    for file in _sources():
        digest.update(file.removeprefix(str(PACKAGES[0].parent)).encode())
        with open(file, "rb") as source:
            digest.update(source.read())
    return digest.hexdigest()
