"""Writes the manual: ``python -m neurosim.manual``; with ``--check``, says which pages are out of date instead."""

from __future__ import annotations

import sys
from pathlib import Path

from neurosim.manual.pages import home, pages


def write(place: Path) -> list[str]:
    """Write all pages, remove those of instructions that are gone, and return the names that changed."""
    changed = stale(place)
    for name, text in pages().items():
        (place / name).write_text(text, encoding="utf-8")
    for name in changed:
        if name not in pages():
            (place / name).unlink()
    return changed


def stale(place: Path) -> list[str]:
    """Return the names of pages that are missing, out of date, or of no instruction any more."""
    made = pages()
    there = {path.name: path.read_text(encoding="utf-8") for path in place.glob("*.md")}
    return sorted(name for name in {*made, *there} if made.get(name) != there.get(name))


def main() -> None:
    """Write or check, and say what was found."""
    checking = "--check" in sys.argv[1:]
    names = stale(home()) if checking else write(home())
    print("\n".join(f"{'out of date' if checking else 'written'}: {name}" for name in names) or "all pages are current")
    raise SystemExit(bool(checking and names))


if __name__ == "__main__":
    main()
