"""Printing into a string: the same text whatever the terminal, with colors or without."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Final

from rich.console import Console, RenderableType

WIDTH: Final = 100
"""Columns of a report, whatever the terminal."""


def printed(parts: Iterable[RenderableType], *, color: bool, width: int = WIDTH) -> str:
    """Return what rich prints, without blanks at the ends of lines. ``color`` adds terminal escapes alone."""
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        legacy_windows=False,
        highlight=False,
        emoji=False,
        markup=False,
        _environ={},
    )
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in capture.get().rstrip().splitlines()) + "\n"


def shortened(text: str, width: int) -> str:
    """Return a text of at most ``width`` characters."""
    return text if len(text) <= width else text[: width - 1] + "…"
