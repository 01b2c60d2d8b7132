"""Makes ``nki`` importable for every test, and offers the kernels of the checkout by path."""

from __future__ import annotations

import neurosim  # noqa: F401 (its import makes nki importable)
