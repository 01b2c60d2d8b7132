"""``neuronxcc.nki.language.constants``."""

from __future__ import annotations

from typing import Any

from neurosim.nki.legacy.promotion import chosen

sbuf_min_align = 1
psum_min_align = 4


def sizeinbytes(dtype: Any) -> int:
    """Return the bytes of an element."""
    return chosen(dtype, "sizeinbytes").size_bytes
