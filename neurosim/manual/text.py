"""The manual on a terminal: the table of instructions, and one page."""

from __future__ import annotations

from typing import Final

from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from neurosim.manual.calls import declaration
from neurosim.manual.pages import families, not_built, page, rows
from neurosim.report.screen import printed

WIDTH: Final = 120
"""Columns, whatever the terminal."""


def overview(*, color: bool = False, whole: bool = False) -> str:
    """Return the table of instructions: engines, the chips that have it, and what it does; and what is not built.

    ``whole`` leaves lines as long as they are; otherwise what it does is cut to ``WIDTH``.
    """
    header = ("instruction", "engines", *families(), "what it does")
    body = [(*cells, text.replace("``", "").replace("\\<", "<")) for *cells, text, _ in rows()]
    widths = [max(map(len, column)) for column in zip(header, *body, strict=True)][:-1]
    room = WIDTH - sum(widths) - 2 * len(widths)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in header:
        table.add_column(title, no_wrap=True)
    for *cells, text in body:
        table.add_row(*cells, text if whole or len(text) <= room else f"{text[: room - 1]}…")
    missing = f"\nFunctions of nki.isa documented for NKI 0.6 and not built yet: {', '.join(not_built()) or 'none'}."
    width = max(WIDTH, sum(widths) + 2 * len(widths) + max(len(text) for *_, text in body)) if whole else WIDTH
    return printed([table, Text(missing)], color=color, width=width)


def page_text(mnemonic: str, *, color: bool = False) -> str:
    """Return the page of one instruction: laid out with ``color``, else as Markdown.

    Raises:
        ConfigurationError: no such instruction.
    """
    text = page(declaration(mnemonic).mnemonic)
    return printed([Markdown(text)], color=color, width=WIDTH) if color else text
