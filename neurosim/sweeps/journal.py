"""Where the results of a sweep are kept: a file to which each point adds a line as soon as it is done.

The first line says what the file is. A line is written whole and forced to disk before the next point counts as done,
so that a sweep which is killed has lost nothing but the points that were running; half a line, left by a machine that
lost its power, is passed over.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

from neurosim.errors import ConfigurationError
from neurosim.writing import file_path

FORMAT: Final = "neurosim.sweep/1"
_HEADER: Final = json.dumps({"format": FORMAT})


class Journal:
    """The results of a sweep in a file, or in memory alone.

    Attributes:
        path: the file, None for memory alone.
        entries: by key, what is known of the point.
    """

    def __init__(self, path: str | Path | None) -> None:
        """Read what is there.

        Raises:
            ConfigurationError: the file cannot be read, holds something else, or is being written by another sweep.
        """
        self.path = None if path is None else file_path(path)
        self.entries: dict[str, dict[str, Any]] = {}
        self._file: IO[bytes] | None = None
        if self.path is None:
            return
        try:
            self._file = open(self.path, "a+b")  # noqa: SIM115 (closed by close)
        except OSError as error:
            raise ConfigurationError(
                f"{self.path}: {error.strerror}: results of a sweep cannot be kept there",
                advice="name a file in a folder that exists and can be written",
            ) from error
        try:
            self._lock()
            self._read()
        except BaseException:
            self.close()
            raise

    def add(self, key: str, entry: dict[str, Any]) -> None:
        """Keep what came out of a point; it is on disk when this returns.

        Raises:
            ConfigurationError: the disk is full, or the file went away.
        """
        self.entries[key] = entry
        if self._file is not None:
            self._write(json.dumps({"key": key, **entry}))

    def close(self) -> None:
        """Let the file go."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _lock(self) -> None:
        """Refuse a file that another sweep writes; where the system has no such locks, nothing happens."""
        assert self._file is not None
        with contextlib.suppress(ImportError):
            import fcntl

            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigurationError(
                    f"another sweep is writing to {self.path}", advice="wait for it, or name another file"
                ) from None

    def _read(self) -> None:
        assert self._file is not None
        self._file.seek(0)
        content = self._file.read()
        lines = content.split(b"\n")
        if not content:
            self._write(_HEADER)
            return
        if lines[0].decode(errors="replace") != _HEADER:
            raise ConfigurationError(
                f"{self.path} does not hold the results of a sweep, or another version's",
                numbers=(f"its first line is not {_HEADER}",),
                advice="name another file, or move this one away",
            )
        if lines[-1]:  # half a line: the next one begins anew
            self._file.write(b"\n")
        for line in lines[1:]:
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict) and isinstance(entry.get("key"), str):
                    self.entries[entry.pop("key")] = entry

    def _write(self, line: str) -> None:
        assert self._file is not None
        try:
            self._file.write(line.encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise ConfigurationError(
                f"cannot write {self.path}: {error.strerror}", advice="give a place that can be written and has space"
            ) from error
