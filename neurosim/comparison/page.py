"""A comparison as a page of HTML that needs nothing else, and as what a notebook shows."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import neurosim
from neurosim.comparison.text import engines_title, figures, notes, place_text, shown_lines
from neurosim.comparison.why import headline, signed, why_engine, why_line
from neurosim.errors import ConfigurationError
from neurosim.report.colors import CAUSE_COLORS, CAUSES_IN_ORDER
from neurosim.report.units import time
from neurosim.report.words import words
from neurosim.writing import replacing

if TYPE_CHECKING:
    from neurosim.comparison.changes import Diff, LineChange, Side

NOTEBOOK_LINES: Final = 15
"""Lines that a notebook shows, those that moved most; a page shows all."""


def write_page(path: str | Path, diff: Diff) -> None:
    """Write a page. An interrupt leaves no file.

    Raises:
        ConfigurationError: jinja2 is not installed, or the file cannot be written.
    """
    try:
        body = _rendered(diff, None)
    except ImportError as error:
        raise ConfigurationError(f"a page needs {error.name}", advice="pip install 'neurosim-npu[report]'") from error
    title = html.escape(f"{diff.a.title} → {diff.b.title}")
    text = f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title></head>\n<body>\n'
    with replacing(path) as file:
        file.write(f"{text}{body}\n</body>\n</html>\n".encode())


def fragment(diff: Diff) -> str:
    """Return what a notebook shows: the page with fewer lines, or the text where jinja2 is not installed."""
    try:
        return _rendered(diff, NOTEBOOK_LINES)
    except ImportError:
        return f"<pre>{html.escape(diff.text())}</pre>"


def _rendered(diff: Diff, count: int | None) -> str:
    import jinja2

    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(
        Path(__file__).with_name("diff.html").read_text(encoding="utf-8")
    )
    moved = shown_lines(diff, None)
    longer = max(diff.a.summary["makespan_ps"], diff.b.summary["makespan_ps"], 1)
    text: str = template.render(
        a=diff.a.title,
        b=diff.b.title,
        headline=headline(diff),
        setup=diff.setup,
        figures=figures(diff),
        engines_title=engines_title(diff),
        colors=_colors(diff),
        words=words,
        engines=[_engine(diff, name, longer) for name in diff.engines],
        lines=[_line(row) for row in moved[:count]],
        hidden=len(moved) - len(moved[:count]),
        notes=notes(diff),
        version=neurosim.__version__,
    )
    return text


def _colors(diff: Diff) -> dict[str, str]:
    """Return a color for each cause that takes time in either run."""
    there = {cause for side in (diff.a, diff.b) for causes in side.engines.values() for cause in causes}
    return {cause: CAUSE_COLORS[cause] for cause in CAUSES_IN_ORDER if cause in there}


def _engine(diff: Diff, name: str, longer_ps: int) -> dict[str, Any]:
    sides = [
        {"name": letter, "parts": _parts(side, name, longer_ps)} for letter, side in (("A", diff.a), ("B", diff.b))
    ]
    return {"name": name, "sides": sides, "why": why_engine(diff.engines[name])}


def _parts(side: Side, engine: str, longer_ps: int) -> list[dict[str, Any]]:
    causes = side.engines.get(engine, {})
    return [
        {"cause": cause, "percent": f"{100 * causes[cause] / longer_ps:.3f}", "time": time(causes[cause])}
        for cause in CAUSES_IN_ORDER
        if causes.get(cause)
    ]


def _line(row: LineChange) -> dict[str, Any]:
    sources = dict.fromkeys(place.source for place in (row.a, row.b) if place and place.source)
    return {
        "a": place_text(row.a),
        "b": place_text(row.b),
        "instruction": row.instruction,
        "engine": row.engine,
        "ps": row.change_ps,
        "moved": signed(row.change_ps),
        "why": why_line(row),
        "sources": list(sources),
    }
