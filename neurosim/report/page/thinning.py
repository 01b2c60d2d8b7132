"""Sources of bars of which a browser draws as many as its screen can tell apart: more of them, the nearer one zooms."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from bokeh.models import ColumnDataSource, CustomJS

PIXELS: Final = 1000


def thinned(columns: dict[str, Any], x_range: Any) -> ColumnDataSource:
    """Return a source for ``columns`` (``left``, ``right`` and others, by row and then by time) that follows a range.

    With a column ``row`` there must be a ``count``; bars of one row within one pixel are drawn as one, and counted.
    """
    shown = ColumnDataSource(_thin(columns, float(x_range.end)))
    if len(shown.data["left"]) < len(columns["left"]):
        code = Path(__file__).with_name("thin.js").read_text(encoding="utf-8").replace("PIXELS", str(PIXELS))
        callback = CustomJS(args={"full": ColumnDataSource(columns), "shown": shown, "range": x_range}, code=code)
        x_range.js_on_change("start", callback)
        x_range.js_on_change("end", callback)
    return shown


def _thin(columns: dict[str, Any], end: float) -> dict[str, Any]:
    """Do what ``thin.js`` does, for the whole range: the page opens with it."""
    left, right, pixel = columns["left"], columns["right"], end / PIXELS
    if "row" not in columns:
        wide = right - left >= pixel
        return {name: values[wide] for name, values in columns.items()}
    kept: list[int] = []
    row, begin, until, key = columns["row"].tolist(), left.tolist(), right.tolist(), None
    limit = -1.0
    for index in range(len(row)):
        if row[index] != key or until[index] >= limit:
            kept.append(index)
            key, limit = row[index], begin[index] + pixel
    firsts = np.array(kept, dtype=np.int64)
    data = {name: values[firsts] for name, values in columns.items()}
    if len(firsts):
        count = np.add.reduceat(columns["count"], firsts).astype(columns["count"].dtype)
        joined = count > data["count"]
        data["right"] = np.where(joined, np.maximum.reduceat(right, firsts), data["right"])
        data["count"] = count
        if "text" in data:
            data["text"] = np.where(joined, -1, data["text"]).astype(np.int32)
    return data
