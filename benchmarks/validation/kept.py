"""Outcomes kept in a file as they come, so that a run of an hour that was interrupted goes on where it was."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path

from validation.rows import Row
from validation.running import Outcome

from neurosim.installation import own_digest

_HERE = Path(__file__).parent
_KERNELS = _HERE.parent.parent / "kernels"


class Kept:
    """Outcomes of a file, one line each. Those of other rows, or of another simulator, are never given back."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._outcomes: dict[str, Outcome] = {}
        self._sources = hashlib.sha256(own_digest().encode())
        for source in sorted((*_HERE.glob("*.py"), *_KERNELS.glob("*.py"))):
            self._sources.update(source.read_bytes())
        if file is None or not file.exists():
            return
        for line in file.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # of a process that was killed while it wrote
                held = json.loads(line)
                self._outcomes[held["key"]] = Outcome(**held["outcome"])

    def get(self, row: Row, kernel: str) -> Outcome | None:
        """Return what this simulator said about a row, or None if it was not asked."""
        return self._outcomes.get(self._key(row, kernel))

    def put(self, row: Row, outcome: Outcome) -> None:
        """Keep an outcome, on disk at once."""
        if self._file is not None:
            line = json.dumps({"key": self._key(row, outcome.kernel), "outcome": outcome.as_json()})
            with self._file.open("a", encoding="utf-8") as stream:
                stream.write(f"\n{line}")  # on a line of its own, whatever the last one is

    def _key(self, row: Row, kernel: str) -> str:
        asked = self._sources.copy()
        asked.update(repr((row, kernel)).encode())
        return asked.hexdigest()
