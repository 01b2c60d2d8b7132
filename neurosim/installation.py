"""What is installed here, and where it may keep files."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from pathlib import Path
from typing import Final

PACKAGES: Final = (Path(__file__).resolve().parent, Path(__file__).resolve().parent.parent / "isa")
"""Folders of neurosim's own source."""


def cache_root() -> Path:
    """Return the folder that holds our cache folders; RuntimeError where no home is known."""
    if own := os.environ.get("NEUROSIM_CACHE_DIR"):
        return Path(own)
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "neurosim"
    return Path.home() / ".cache" / "neurosim"


@lru_cache
def own_digest() -> str:
    """Return a digest of neurosim's own sources and device files."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for file in sorted((*package.rglob("*.py"), *package.rglob("*.toml"))):
            digest.update(str(file.relative_to(package.parent)).encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()
