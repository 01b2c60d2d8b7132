"""Recorded programs replay: on new inputs of the same shapes, kernels skip their Python if nothing depends on values.

A launch has a key: all that the kernel's Python can see (:mod:`neurosim.replay.tokens`), the chip's figures, the
options and the environment. A run that did nothing which depends on values (:mod:`neurosim.execution.seen`) leaves a
recording under its key, if the key is the same after it: a kernel that changes a list it holds has another. The next
launch with this key executes the record (:mod:`neurosim.replay.tape`). Where anything is in doubt the kernel's Python
runs; so it does when a replay raises, so that errors are those of a run.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from neurosim.chip import Chip
from neurosim.errors import ConfigurationError
from neurosim.replay.library import LIBRARY as LIBRARY
from neurosim.replay.library import Recording as Recording
from neurosim.replay.running import recorded as recorded
from neurosim.replay.running import replayed as replayed
from neurosim.replay.running import without_values as without_values
from neurosim.replay.shelf import SHELF as SHELF
from neurosim.replay.tape import Unreplayable as Unreplayable
from neurosim.replay.tokens import Tokens, Unsafe

ENVIRONMENT: Final = "NEUROSIM_REPLAY"
ON_DISK: Final = "NEUROSIM_RECORDINGS"


@dataclass(frozen=True)
class Launch:
    """A launch as far as replays are concerned.

    Attributes:
        key: what it depends on; empty where that is not known.
        reason: then, why not.
    """

    key: str = ""
    reason: str = ""


def is_on(asked: bool | None) -> bool:
    """Return whether recordings are kept and replayed: as asked, else as ``NEUROSIM_REPLAY`` says, else yes.

    Raises:
        ConfigurationError: the variable is neither 0 nor 1.
    """
    return _is_set(ENVIRONMENT, "set 0 to run kernels anew") if asked is None else asked


def _is_set(variable: str, advice: str) -> bool:
    setting = os.environ.get(variable, "")
    if setting not in ("", "0", "1"):
        raise ConfigurationError(f"{variable}={setting!r} is neither 0 nor 1", advice=advice)
    return setting != "0"


def find(key: str, chip: Chip) -> Recording | None:
    """Return the recording of a launch: of this process, or one that another left on disk."""
    found = LIBRARY.get(key)
    if found is None and _is_set(ON_DISK, "set 0 to keep no recordings on disk"):
        found = SHELF.get(key, chip)
        if found is not None:
            LIBRARY.put(key, found)
    return found


def keep(key: str, recording: Recording) -> bool:
    """Keep a recording, for other processes on disk; return False where it is too long."""
    if not LIBRARY.put(key, recording):
        return False
    if _is_set(ON_DISK, "set 0 to keep no recordings on disk"):
        SHELF.put(key, recording)
    return True


def launch(function: Callable[..., Any], arguments: Mapping[str, Any], chip: Chip, options: Any) -> Launch:
    """Return the key of a launch, or why it has none. ``options`` are plain values, numbers and text."""
    if is_watched():
        return Launch(reason="a debugger, a profiler or a coverage tool follows the kernel's Python")
    tokens = Tokens()
    try:
        seen = tokens.value(function, "the kernel")
        given = tuple((name, tokens.argument(value, name)) for name, value in arguments.items())
    except Unsafe as found:
        return Launch(reason=str(found))
    content = (seen, given, _figures(chip), options, _directory())
    return Launch(hashlib.sha256(repr(content).encode()).hexdigest())


def is_watched() -> bool:
    """Return whether somebody would miss the kernel's Python."""
    monitoring = getattr(sys, "monitoring", None)
    tools = () if monitoring is None else map(monitoring.get_tool, range(6))
    return sys.gettrace() is not None or sys.getprofile() is not None or any(tool is not None for tool in tools)


_digests: dict[int, tuple[Chip, str]] = {}


def _figures(chip: Chip) -> str:
    """Return a digest of a chip: all of its figures, and where they come from."""
    found = _digests.get(id(chip))
    if found is not None:
        return found[1]
    digest = hashlib.sha256(repr((chip, sorted(chip.figures.items()))).encode()).hexdigest()
    if len(_digests) >= 64:
        _digests.clear()
    _digests[id(chip)] = chip, digest
    return digest


def _directory() -> str:
    """Return the working directory, to which the record's paths are relative."""
    try:
        return os.getcwd()
    except OSError:
        return ""
