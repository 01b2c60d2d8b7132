"""Outcomes kept in a file as they come, so that a run of an hour that was interrupted goes on where it was."""

from __future__ import annotations

import hashlib
from pathlib import Path

from validation.rows import Row
from validation.running import Outcome

from neurosim.installation import own_digest
from neurosim.sweeps.journal import Journal

_HERE = Path(__file__).parent
_KERNELS = _HERE.parent.parent / "kernels"


class Kept:
    """Outcomes in a sweep's journal. Those of other rows, or of another simulator, are never given back."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._sources = hashlib.sha256(own_digest().encode())
        for source in sorted((*_HERE.glob("*.py"), *_KERNELS.glob("*.py"))):
            self._sources.update(source.read_bytes())

    def get(self, row: Row, kernel: str) -> Outcome | None:
        """Return what this simulator said about a row, or None if it was not asked."""
        entry = self._journal.entries.get(self._key(row, kernel))
        return None if entry is None else Outcome(**entry)

    def put(self, row: Row, outcome: Outcome) -> None:
        """Keep an outcome, on disk at once."""
        self._journal.add(self._key(row, outcome.kernel), outcome.as_json())

    def _key(self, row: Row, kernel: str) -> str:
        asked = self._sources.copy()
        asked.update(repr((row, kernel)).encode())
        return asked.hexdigest()
