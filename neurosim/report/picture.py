"""Pictures by matplotlib: which files they may be, and how they are written."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path
from typing import Any, Final

from neurosim.errors import ConfigurationError
from neurosim.writing import file_path, replacing

_DPI: Final = 120
_DATES: Final = {"png": None, "svg": "Date", "pdf": "CreationDate"}
"""By ending, what holds the day on which a picture was made."""


def new_figure(width_in: float, height_in: float) -> Any:
    """Return a ``matplotlib.figure.Figure`` without a window.

    Raises:
        ConfigurationError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigurationError(
            "plots need matplotlib, which is not installed", advice="pip install 'neurosim-npu[report]'"
        ) from None
    return _shown(Figure)(figsize=(width_in, height_in), layout="constrained")


@cache
def _shown(figure: Any) -> Any:
    """Return a class of matplotlib's figures that a notebook shows although no window or pyplot knows them."""

    class Shown(figure):  # type: ignore[misc]
        """A figure that is its own picture."""

        def _repr_png_(self) -> bytes:
            drawn = io.BytesIO()
            self.savefig(drawn, format="png", dpi=_DPI, metadata=None)
            return drawn.getvalue()

    return Shown


def ending_of(path: str | Path) -> str:
    """Return the kind of picture that a file's name asks for.

    Raises:
        ConfigurationError: none that is written here.
    """
    ending = file_path(path).suffix.lstrip(".").lower()
    if ending not in _DATES:
        raise ConfigurationError(
            f"{path}: a plot is a .png, .svg or .pdf file", advice="let its name end in one of these"
        )
    return ending


def write_figure(figure: Any, path: str | Path) -> None:
    """Write a figure, without the date.

    Args:
        figure: what :func:`new_figure` returned.
        path: a file that ends in .png, .svg or .pdf.

    Raises:
        ConfigurationError: another ending, or the file cannot be written.
    """
    ending = ending_of(path)
    drawn, date = io.BytesIO(), _DATES[ending]
    figure.savefig(drawn, format=ending, dpi=_DPI, metadata={date: None} if date else None)
    with replacing(path) as file:
        file.write(drawn.getvalue())
