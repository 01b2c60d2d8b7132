"""Numbers of NumPy as Python's: sweeps and notebooks count with those, and what is asked for is the same."""

from __future__ import annotations

from numbers import Number
from typing import Any


def plain(value: Any) -> Any:
    """Return a scalar of NumPy as ``int``, ``float`` or ``complex``; everything else, ``np.bool_`` too, as it is."""
    return value.item() if isinstance(value, Number) and hasattr(value, "item") else value
