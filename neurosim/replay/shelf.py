"""Recordings on disk, so that another process replays them; a cache that may be thrown away at any time.

A file is a line that names the format, a line with the SHA-256 of what follows, and a zip archive: ``program``, which
is a file of :mod:`neurosim.record.program_file`; ``entry.json`` with what that does not hold; and ``constant-N``, bytes
that are there before the kernel begins. Its name is the launch's key; in it stand the digest of neurosim's own sources,
Python's and NumPy's version and the text of the kernel's files, and what differs from here is not read, but written
again.

Files are written beside their place and renamed, so that processes may share a folder. Reading one runs nothing in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import linecache
import logging
import os
import platform
import sys
import zipfile
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from neurosim.chip import Chip
from neurosim.errors import ConfigurationError
from neurosim.installation import cache_root, is_edited, own_digest
from neurosim.program import Frame, Program
from neurosim.record import program_file
from neurosim.record.encoding import Malformed
from neurosim.replay.library import MOST_RECORDS, Recording
from neurosim.replay.plain import NotPlain, decoded, encoded
from neurosim.replay.template import places
from neurosim.writing import replacing

FORMAT: Final = b"neurosim.recording 3"
LEAST_RECORDS: Final = 256
"""Of a recording on disk: a shorter kernel runs as fast as its file is read."""
MOST_BYTES: Final = 256 << 20
"""Of all files together; those that were used longest ago go first."""

_log = logging.getLogger(__name__)


class Shelf:
    """A folder of recordings."""

    def __init__(self, folder: Callable[[], Path], most_bytes: int = MOST_BYTES) -> None:
        self._folder, self._most_bytes = folder, most_bytes

    def get(self, key: str, chip: Chip) -> Recording | None:
        """Return a recording for a chip; None where there is none that holds here."""
        try:
            path = self._path(key)
            content = path.read_bytes()
        except (OSError, RuntimeError):
            return None
        try:
            recording = _read(content, chip)
        except Exception as error:  # whatever zip, JSON and NumPy raise for bytes that nobody meant
            _log.info("the recording %s is not used: %s: %s", path, type(error).__name__, error)
            return None
        with contextlib.suppress(OSError):  # a folder that is read only
            os.utime(path)  # used now
        return recording

    def put(self, key: str, recording: Recording) -> None:
        """Write a recording, if it has a form in a file and the folder can be written."""
        if not LEAST_RECORDS <= len(recording.program) <= MOST_RECORDS:
            return
        try:
            content = _written(recording)
            path = self._path(key)
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                file.write(content)
            self._make_room()
        except (NotPlain, OSError, RuntimeError, ConfigurationError) as error:
            _log.info("a recording is not kept on disk: %s", error)

    def _path(self, key: str) -> Path:
        return self._folder() / f"{key}.recording"

    def _make_room(self) -> None:
        """Remove the files that were used longest ago, down to four fifths of what is allowed."""
        found = []
        for path in self._folder().glob("*.recording"):
            try:
                state = path.stat()
            except OSError:
                continue  # another process removed it
            found.append((state.st_mtime_ns, state.st_size, path))
        size = sum(entry[1] for entry in found)
        if size <= self._most_bytes:
            return
        for _, bytes_, path in sorted(found):
            if size <= self._most_bytes * 4 // 5:
                break
            path.unlink(missing_ok=True)
            size -= bytes_


SHELF: Final = Shelf(lambda: cache_root() / "recordings")


def _here() -> dict[str, str]:
    """Return what has to be equal where a recording is read.

    Raises:
        NotPlain: nobody can tell: neurosim's source was edited while it runs.
    """
    if is_edited():
        raise NotPlain("neurosim's source is not what was loaded")
    return {"neurosim": own_digest(), "python": f"{sys.version} {platform.machine()}", "numpy": np.__version__}


def _written(recording: Recording) -> bytes:
    program = recording.program
    entry = {
        "here": _here(),
        "sources": _sources(program),
        "parameters": [encoded(list(signature.parameters)) for signature in program.signatures],
        "returned": encoded(recording.returned),
        "constants": sorted(recording.constants),
        "writers": list(recording.writers),
        "blank": sorted(recording.blank),
    }
    if any(_class_of(signature.instruction) is not cls for signature, cls in _forms(recording)):
        raise NotPlain("an instruction that nki.isa does not have")
    inner = io.BytesIO()
    program_file.write(program, inner)
    members = {"entry.json": json.dumps(entry, separators=(",", ":")).encode(), "program": inner.getvalue()}
    members |= {f"constant-{number}": constant.tobytes() for number, constant in recording.constants.items()}
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name, content in members.items():
            file.writestr(program_file.zip_info(name), content, compresslevel=1)
    body = archive.getvalue()
    return b"\n".join((FORMAT, hashlib.sha256(body).hexdigest().encode(), body))


def _forms(recording: Recording) -> Any:
    return zip(recording.program.signatures, recording.classes, strict=True)


def _read(content: bytes, chip: Chip) -> Recording:
    """Return a recording; Malformed and others where it is none that holds here."""
    format_, digest, body = content.split(b"\n", 2)
    if format_ != FORMAT or hashlib.sha256(body).hexdigest().encode() != digest:
        raise Malformed("another format, or damaged")
    with zipfile.ZipFile(io.BytesIO(body)) as file:
        entry = json.loads(file.read("entry.json"))
        if entry["here"] != _here():
            raise Malformed("of another neurosim, Python or NumPy")
        paths = {program_file.name_of(_text(path)): path for path in entry["sources"]}
        program = program_file.read(io.BytesIO(file.read("program")), "a recording")
        constants = {number: np.frombuffer(file.read(f"constant-{number}"), np.uint8) for number in entry["constants"]}
    program.stacks = [tuple(_placed(frame, paths) for frame in stack) for stack in program.stacks]
    program.signatures = [
        replace(signature, parameters=tuple(decoded(parameters)))
        for signature, parameters in zip(program.signatures, entry["parameters"], strict=True)
    ]
    classes = [_class_of(signature.instruction) for signature in program.signatures]
    if None in classes:
        raise Malformed("an instruction that nki.isa does not have")
    returned = decoded(entry["returned"])
    if any(not 0 <= place.storage < len(program.storages) for place in places(returned)):
        raise Malformed("an output that the program does not have")
    return Recording(
        program, chip, classes, returned, constants, array("I", entry["writers"]), frozenset(entry["blank"])
    )


def _class_of(mnemonic: str) -> Any:
    """Return the class of an instruction by its name in ``nki.isa``, None where that is not loaded or has none."""
    call = getattr(sys.modules.get("neurosim.nki.isa"), mnemonic, None)
    return getattr(call, "instruction", None)


def _sources(program: Program) -> list[str]:
    """Return the files that the record's call stacks are in; each has a text."""
    paths = sorted({frame.path for stack in program.stacks for frame in stack})
    for path in paths:
        _text(path)
    return paths


def _text(path: str) -> str:
    text = "".join(linecache.getlines(path))
    if not text:
        raise NotPlain(f"{path} has no source")
    return text


def _placed(frame: Frame, paths: dict[str, str]) -> Frame:
    """Return a frame with the path of its file, whose text is the same as it was."""
    path = paths.get(frame.path)
    if path is None:
        raise Malformed(f"{frame.file} has changed")
    return replace(frame, path=path)
