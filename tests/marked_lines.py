"""Where an error has to point: the line of a kernel that ends in ``# here``."""

from __future__ import annotations

import inspect
import os


def here(function):
    """Return ``file:line`` of the line of ``function`` that ends in ``# here``, as messages write it."""
    lines, first = inspect.getsourcelines(function)
    (offset,) = [index for index, line in enumerate(lines) if line.rstrip().endswith("# here")]
    return f"{os.path.relpath(inspect.getfile(function))}:{first + offset}"
