"""Who may import whom. The table is ``layers.toml``; every Python file of the project is held against it.

A module that no row covers fails, so a new file states its place here before it is used.
Imports inside functions and under ``TYPE_CHECKING`` count like any other.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Row:
    """What one module (or everything under it) may import.

    Attributes:
        module: the importing module; the longest match among all rows counts.
        own: project modules it may import, each with what lies under it. A module may always import what is
            at or under its own row, unless ``siblings`` is False.
        bare: project packages it may import without anything under them.
        packages: third-party packages it may import. The standard library is free for all.
        siblings: whether modules under the row may import each other.
    """

    module: str
    own: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    siblings: bool = True


def words(text: str) -> Iterator[str]:
    """Yield the modules that a text of the table names, groups unfolded."""
    for word in text.split():
        if word.startswith("@"):
            yield from words(TABLE["groups"][word[1:]])
        else:
            yield f"neurosim{word}" if word.startswith(".") else word


def row(module: str, own: str = "", bare: str = "", packages: str = "", siblings: bool = True) -> Row:
    return Row(module, tuple(words(own)), tuple(words(bare)), tuple(packages.split()), siblings)


TABLE = tomllib.loads(Path(__file__).with_name("layers.toml").read_text(encoding="utf-8"))
ROWS = tuple(row(module, **entries) for module, entries in TABLE.items() if module != "groups")

ROOMS = ("analysis", "datapath", "execution", "launch", "record", "shell", "views")
EXACT = {"neurosim", *(f"neurosim.{room}" for room in ROOMS)}
"""Rows that cover their own file alone: a new module under them needs a row."""

KERNEL_STANDARD_LIBRARY = {"math", "__future__"}


def within(module: str, parent: str) -> bool:
    return module == parent or module.startswith(parent + ".")


def row_of(module: str) -> Row | None:
    rows = [row for row in ROWS if (module == row.module if row.module in EXACT else within(module, row.module))]
    return max(rows, key=lambda row: len(row.module), default=None)


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path, source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of everything the file imports; ``from a import b`` names ``a.b``."""
    module = module_of(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(source, str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                anchor = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*anchor, base] if base else anchor)
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def is_allowed(row: Row, module: str, target: str) -> bool:
    top = target.partition(".")[0]
    if top in sys.stdlib_module_names:
        return row.module != "kernels" or top in KERNEL_STANDARD_LIBRARY
    if top in row.packages:
        return True
    if row.siblings and within(target, row.module):
        return True
    if target in row.bare or any(within(target, own) for own in row.own):
        return True
    # `from neurosim import dtypes` reads as neurosim.dtypes above; a module may always import itself by name.
    return within(target, module)


def violations(path: Path, source: str) -> list[str]:
    module = module_of(path)
    row = row_of(module)
    if row is None:
        return [f"{module} has no row in tests/layers.toml"]
    return [
        f"{path.relative_to(ROOT)}:{line}  {module} may not import {target}"
        for line, target in imports_of(path, source)
        if not is_allowed(row, module, target)
    ]


def files() -> list[Path]:
    folders = ("neurosim", "isa", "kernels", "benchmarks")
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_stay_within_the_table(path: Path) -> None:
    assert violations(path, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("neurosim/timing/laws.py", "from neurosim.numerics import alu"),
        ("neurosim/timing/laws.py", "from neurosim import memory"),
        ("neurosim/timing/laws.py", "import isa.matmul"),
        ("neurosim/timing/laws.py", "from ..view import Tile"),
        ("neurosim/timing/events/loop.py", "from neurosim.timing.timeline import Timeline"),
        ("neurosim/report/summary.py", "from neurosim.numerics.convert import widen"),
        ("neurosim/report/summary.py", "from neurosim.timing.schedule import schedule"),
        ("neurosim/numerics/alu.py", "import numba"),
        ("neurosim/jit.py", "import numba"),
        ("neurosim/numerics/alu.py", "from neurosim.engines import Engine"),
        ("neurosim/kernel.py", "def f():\n    import isa"),
        ("neurosim/run.py", "from isa.matmul import nc_matmul"),
        ("neurosim/devices.py", "from isa.matmul import nc_matmul"),
        ("neurosim/datapath/operators.py", "import neurosim.numerics.alu"),
        ("isa/matmul.py", "from isa.copy import tensor_copy"),
        ("isa/matmul.py", "from . import copy"),
        ("isa/matmul.py", "import numba"),
        ("isa/matmul.py", "from neurosim.timing import laws"),
        ("kernels/matmul.py", "import numpy as np"),
        ("kernels/matmul.py", "import neurosim"),
        ("kernels/matmul.py", "import os"),
        ("neurosim/unheard_of.py", "x = 1"),
    ],
)
def test_a_violation_is_found(file: str, source: str) -> None:
    assert len(violations(ROOT / file, source)) == 1


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("neurosim/timing/lower.py", "from neurosim.timing.laws import law\nfrom . import dma"),
        ("neurosim/compiling/compiler.py", "import numba"),
        ("neurosim/nki/isa.py", "from isa.matmul import nc_matmul"),
        ("isa/matmul.py", "from neurosim.numerics import matmul"),
        ("kernels/matmul.py", "import math\nimport nki\nimport nki.language as nl\nfrom nki import isa"),
    ],
)
def test_what_the_table_allows_passes(file: str, source: str) -> None:
    assert violations(ROOT / file, source) == []


def test_the_table_names_only_what_is_there() -> None:
    named = {name for row in ROWS for name in (row.module, *row.own, *row.bare)}
    paths = {name: ROOT.joinpath(*name.split(".")) for name in named}
    assert [name for name, path in paths.items() if not (path.is_dir() or path.with_suffix(".py").is_file())] == []


def test_the_architecture_names_every_module() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rooms = (*ROOMS, "compiling", "numerics", "timing", "report", "replay", "sweeps")
    folders = [ROOT / "neurosim", *(ROOT / "neurosim" / room for room in rooms)]
    modules = [
        path
        for folder in folders
        for path in folder.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    ]
    names = {path.name if path.is_file() else f"{path.name}/" for path in modules} - {"__init__.py"}
    assert [name for name in sorted(names) if f"`{name}`" not in text and f"/{name}`" not in text] == []


def test_no_function_is_longer_than_a_screen() -> None:
    functions = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in files()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    assert {name: size for name, size in functions.items() if size > 60} == {}


def test_every_file_of_the_core_stays_readable() -> None:
    """No file over 600 lines: a longer one holds more than one idea."""
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files()}
    assert {str(path.relative_to(ROOT)): size for path, size in sizes.items() if size > 600} == {}
