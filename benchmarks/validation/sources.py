"""Where the kernel of a row comes from: ours, or a public one out of a folder of clones."""

from __future__ import annotations

import ast
import hashlib
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from validation.rows import Call, Row

from neurosim.shell.loading import load_kernel, load_module, packaged_kernel

PREAMBLES = {
    "nki": "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n",
    "neuronxcc.nki": (
        "import math\nimport numpy as np\nfrom neuronxcc import nki\nimport neuronxcc.nki.isa as nisa\n"
        "import neuronxcc.nki.language as nl\nimport neuronxcc.nki.typing as nt\n"
        "from neuronxcc.nki.language import par_dim\n"
    ),
}
"""What stands before code that was taken out of its file."""

STRING = "code="
"""How code begins in the trace of a search."""


class Absent(Exception):
    """A row's kernel is not there; the text says what is missing."""


def own_kernel(call: Call) -> Callable[..., Any]:
    """Return one of the kernels in ``kernels/``."""
    return load_kernel(f"{packaged_kernel(call.file)}:{call.function}")


def public_kernels(row: Row, folder: Path, scratch: Path) -> Callable[[Call], Callable[..., Any]]:
    """Return a function from a call to its kernel, loaded from the clone of the row's repository.

    Args:
        row: whose kernel.
        folder: holds one clone per repository and commit, named as ``git clone`` names it, or ``NAME@COMMIT`` with the
            commit's first eight digits.
        scratch: where code that is taken out of a page goes, to be imported from there.

    Raises:
        Absent: no clone, or its file is another than the row's.
    """
    if row.not_runnable:
        raise Absent(row.not_runnable)
    name = row.repository.partition("/")[2]
    clone = folder / f"{name}@{row.commit[:8]}"
    clone = clone if clone.is_dir() else folder / name
    path = clone / row.path
    if not path.is_file():
        raise Absent(f"no {path.relative_to(folder)}; clone {row.repository} at {row.commit[:8]}")
    data = path.read_bytes()
    if hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest() != row.blob:
        raise Absent(f"{path.relative_to(folder)} is another than that of {row.commit[:8]}")
    sys.path.append(str(clone))
    if row.extract or row.patches:
        path = scratch / f"{row.id.replace('.', '_').replace('-', '_')}.py"
        path.write_text(taken_out(data.decode(), row), encoding="utf-8")
    module = load_module(path)

    def kernel(call: Call) -> Callable[..., Any]:
        function = getattr(module, call.function)
        if row.dialect == "neuronxcc.nki" and not hasattr(function, "function"):
            from neuronxcc import nki

            function = nki.jit(function)
        return function[row.grid] if row.grid else function

    return kernel


def taken_out(text: str, row: Row) -> str:
    """Return the code of a row from the text of its file, with the row's patches."""
    extract = row.extract
    lines = text.splitlines()
    if "function" in extract:
        first = next(i for i, line in enumerate(lines) if line.startswith(f"def {extract['function']}("))
        last = next((i for i in range(first + 1, len(lines)) if lines[i] and not lines[i][0].isspace()), len(lines))
        decorators = [line for line in lines[max(first - 1, 0) : first] if line.startswith("@")]
        lines = decorators + lines[first:last]
    elif extract:
        lines = lines[extract["first_line"] - 1 : extract["last_line"]]
    text = textwrap.dedent("\n".join(lines)) + "\n"
    if text.startswith(STRING):  # a trace of a search holds code as strings
        text = ast.literal_eval(text.removeprefix(STRING).rstrip().removesuffix(","))
    for before, after in row.patches:
        if before not in text:
            raise ValueError(f"{row.id}: the text to patch is not there: {before!r}")
        text = text.replace(before, after)
    return PREAMBLES[row.dialect] + text if extract else text
