"""Who may import whom. The table is data; every Python file of the project is held against it.

A module that no row covers fails, so a new file states its place here before it is used.
Imports inside functions and under ``TYPE_CHECKING`` count like any other.
"""

from __future__ import annotations

import ast
import sys
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


# Names for groups that several rows share. What stands lower never imports what stands higher.
FORMATS = ("neurosim.dtypes", "neurosim.errors")
RECORD = (
    *FORMATS,
    "neurosim.engines",
    "neurosim.work",
    "neurosim.program",
    "neurosim.storages",
    "neurosim.naming",
    "neurosim.versions",
)
ANALYSIS = ("neurosim.regions", "neurosim.dependences", "neurosim.lifetimes", "neurosim.loops")
TENSORS = (
    "neurosim.view",
    "neurosim.arithmetic",
    "neurosim.access_pattern",
    "neurosim.rearranging",
    "neurosim.indexing",
    "neurosim.ranges",
    "neurosim.indirect",
    "neurosim.indirection",
    "neurosim.reshaping",
    "neurosim.memory",
    "neurosim.holes",
    "neurosim.rules",
    "neurosim.seen",
)
PLACES = ("neurosim.places", "neurosim.call_stacks")
SHARED = (
    "neurosim.streams",
    "neurosim.affine",
    "neurosim.accumulators",
    "neurosim.systolic",
    "neurosim.blocks",
    "neurosim.activations",
    "neurosim.operators",
    "neurosim.opcodes",
    "neurosim.modes",
)
"""What several instructions share."""
LAUNCH = ("neurosim.grids", "neurosim.cores")
"""How many programs there are, and how cores take turns."""
MACHINE = (
    *TENSORS,
    *SHARED,
    *LAUNCH,
    *PLACES,
    "neurosim.registers",
    "neurosim.kernel",
    "neurosim.lanes",
    "neurosim.fine",
    "neurosim.fine_lanes",
    "neurosim.rounding",
    "neurosim.calls",
    "neurosim.operands",
    "neurosim.instruction",
    "neurosim.meetings",
    "neurosim.handle",
    "neurosim.scalar_registers",
    "neurosim.device_loops",
    "neurosim.iterations",
)

ROWS = (
    # Facts: formats, errors, names of engines, what an instruction asks for, the record itself.
    Row("neurosim.dtypes", packages=("numpy", "ml_dtypes")),
    Row("neurosim.errors"),
    Row("neurosim.installation"),
    Row("neurosim.engines"),
    Row("neurosim.versions", own=("neurosim.errors",)),
    Row("neurosim.call_stacks", own=("neurosim.program", "neurosim.seen")),
    Row("neurosim.places", own=("neurosim.errors", "neurosim.kernel")),
    Row("neurosim.calls", own=("neurosim.dtypes", "neurosim.errors", "neurosim.kernel"), packages=("numpy",)),
    Row("neurosim.work", own=("neurosim.dtypes", "neurosim.engines")),
    # The record's methods call what makes text and files of it, when they are asked to.
    Row("neurosim.program", own=(*RECORD, "neurosim.listing", "neurosim.program_file"), packages=("numpy",)),
    Row("neurosim.chip", own=("neurosim.errors",)),
    # Arithmetic on arrays. It knows formats and nothing of tensors, engines or time.
    Row("neurosim.numerics", own=(*FORMATS, "neurosim.jit"), packages=("numpy",)),
    Row("neurosim.jit", own=("neurosim.installation",), packages=("numpy", "numba", "llvmlite")),
    # What can be said of a program before it has a time.
    Row("neurosim.regions", own=RECORD, packages=("numpy",)),
    Row("neurosim.dependences", own=(*RECORD, "neurosim.regions"), packages=("numpy",)),
    Row("neurosim.spills", own=(*RECORD, "neurosim.dependences"), packages=("numpy",)),
    Row(
        "neurosim.lifetimes",
        own=(*RECORD, "neurosim.regions", "neurosim.dependences", "neurosim.spills"),
        packages=("numpy",),
    ),
    Row(
        "neurosim.hazards",
        own=(*RECORD, "neurosim.regions", "neurosim.dependences", "neurosim.memory"),
        packages=("numpy",),
    ),
    Row("neurosim.loops", own=RECORD),
    Row(
        "neurosim.independence",
        own=(*RECORD, "neurosim.regions", "neurosim.dependences"),
        packages=("numpy",),
    ),
    Row("neurosim.storages", own=("neurosim.dtypes", "neurosim.engines"), packages=("numpy",)),
    Row("neurosim.naming", own=("neurosim.program", "neurosim.storages")),
    # Time: a pure function of a program and a chip. It never sees a value.
    Row("neurosim.timing", own=(*RECORD, *ANALYSIS, "neurosim.chip", "neurosim.jit"), packages=("numpy",)),
    # A timeline's methods call what draws it, when they are asked to.
    Row(
        "neurosim.timing.timeline",
        own=(
            "neurosim.chip",
            "neurosim.work",
            "neurosim.timing.events.names",
            "neurosim.timing.passes",
            "neurosim.report.notebook",
            "neurosim.report.plots",
        ),
        packages=("numpy",),
    ),
    # Compiled, and kept on disk under a hash of its own sources: so it takes no constant from elsewhere.
    Row("neurosim.timing.events", own=("neurosim.jit",), packages=("numpy",)),
    # Tensors and their memory.
    Row("neurosim.seen"),
    Row("neurosim.reshaping", own=FORMATS, packages=("numpy",)),
    Row("neurosim.arithmetic", own=("neurosim.errors",)),
    Row("neurosim.access_pattern", own=(*FORMATS, *TENSORS)),
    Row("neurosim.rearranging", own=(*FORMATS, *TENSORS)),
    Row("neurosim.indirect", own=(*RECORD, *TENSORS), packages=("numpy",)),
    # Its rules ask which generation a chip is of.
    Row("neurosim.indirection", own=(*RECORD, *TENSORS, "neurosim.chip"), packages=("numpy",)),
    Row(
        "neurosim.indexing",
        own=("neurosim.errors", "neurosim.engines", "neurosim.ranges", "neurosim.view", "neurosim.indirect"),
        packages=("numpy",),
    ),
    Row("neurosim.view", own=(*RECORD, *TENSORS), packages=("numpy",)),
    Row("neurosim.memory", own=(*RECORD, "neurosim.view", "neurosim.fine"), packages=("numpy",)),
    Row("neurosim.holes", own=(*FORMATS, "neurosim.memory", "neurosim.view"), packages=("numpy",)),
    Row("neurosim.rules", own=(*RECORD, "neurosim.view", "neurosim.chip"), packages=("numpy",)),
    # The running kernel, and what every instruction is.
    Row("neurosim.fine", own=(*RECORD, *TENSORS, "neurosim.numerics"), packages=("numpy",)),
    Row(
        "neurosim.fine_lanes",
        own=(*RECORD, *TENSORS, "neurosim.fine", "neurosim.kernel", "neurosim.lanes"),
        packages=("numpy",),
    ),
    Row(
        "neurosim.rounding",
        own=(*FORMATS, "neurosim.engines", "neurosim.kernel", "neurosim.lanes", "neurosim.numerics"),
        packages=("numpy",),
    ),
    Row("neurosim.registers", own=(*RECORD, "neurosim.numerics", "neurosim.chip"), packages=("numpy",)),
    Row("neurosim.grids", own=("neurosim.errors", "neurosim.chip")),
    Row("neurosim.cores", own=("neurosim.errors",)),
    Row(
        "neurosim.kernel",
        own=(
            *RECORD,
            *TENSORS,
            *LAUNCH,
            "neurosim.registers",
            "neurosim.chip",
            "neurosim.places",
            "neurosim.call_stacks",
        ),
        packages=("numpy",),
    ),
    Row(
        "neurosim.lanes",
        own=(*RECORD, *TENSORS, "neurosim.registers", "neurosim.kernel", "neurosim.numerics", "neurosim.chip"),
        packages=("numpy",),
    ),
    Row(
        "neurosim.instruction",
        own=(
            *RECORD,
            *TENSORS,
            "neurosim.registers",
            "neurosim.calls",
            "neurosim.kernel",
            "neurosim.lanes",
            "neurosim.handle",
            "neurosim.operands",
            "neurosim.chip",
        ),
        packages=("numpy",),
    ),
    Row(
        "neurosim.meetings",
        own=(
            "neurosim.calls",
            "neurosim.operands",
            *RECORD,
            *TENSORS,
            "neurosim.cores",
            "neurosim.kernel",
            "neurosim.lanes",
            "neurosim.handle",
            "neurosim.instruction",
        ),
    ),
    Row("neurosim.handle", own=(*RECORD, "neurosim.kernel")),
    Row("neurosim.operands", own=RECORD),
    # Scalar registers, and the loops that they steer.
    Row(
        "neurosim.scalar_registers",
        own=(*RECORD, *TENSORS, "neurosim.kernel", "neurosim.device_loops"),
        packages=("numpy",),
    ),
    Row("neurosim.device_loops", own=(*RECORD, *MACHINE, "neurosim.loops", "neurosim.chip")),
    Row("neurosim.streams", own=(*RECORD, *TENSORS), packages=("numpy",)),
    Row("neurosim.affine", own=(*RECORD, *TENSORS), packages=("numpy",)),
    Row("neurosim.blocks", own=(*RECORD, *TENSORS), packages=("numpy",)),
    Row(
        "neurosim.systolic",
        own=(*RECORD, *TENSORS, "neurosim.lanes", "neurosim.instruction", "neurosim.chip"),
        packages=("numpy",),
    ),
    Row("neurosim.ranges"),
    Row("neurosim.iterations", own=("neurosim.kernel", "neurosim.program")),
    Row("neurosim.operators", own=FORMATS),
    Row(
        "neurosim.activations",
        own=(*FORMATS, "neurosim.kernel", "neurosim.lanes", "neurosim.operators", "neurosim.numerics"),
        packages=("numpy",),
    ),
    Row("neurosim.modes", own=FORMATS),
    Row("neurosim.opcodes", own=(*FORMATS, *TENSORS, "neurosim.operators", "neurosim.numerics", "neurosim.chip")),
    Row("neurosim.accumulators", own=(*RECORD, *MACHINE, "neurosim.numerics"), packages=("numpy",)),
    Row("neurosim.modes"),
    Row(
        "neurosim.opcodes",
        own=(*RECORD, "neurosim.rules", "neurosim.operators", "neurosim.numerics", "neurosim.chip"),
    ),
    Row(
        "neurosim.accumulators",
        own=(
            *RECORD,
            *TENSORS,
            "neurosim.registers",
            "neurosim.lanes",
            "neurosim.modes",
            "neurosim.opcodes",
            "neurosim.operators",
            "neurosim.instruction",
            "neurosim.numerics",
        ),
        packages=("numpy",),
    ),
    # What people read.
    Row("neurosim.writing", own=("neurosim.errors",)),
    Row("neurosim.listing", own=RECORD, packages=("numpy",)),
    # A program as a file.
    Row("neurosim.encoding", own=RECORD, packages=("numpy",)),
    Row("neurosim.program_checks", own=(*RECORD, "neurosim.encoding"), packages=("numpy",)),
    Row(
        "neurosim.program_file",
        own=(*RECORD, "neurosim.encoding", "neurosim.program_checks", "neurosim.writing"),
        bare=("neurosim",),
        packages=("numpy",),
    ),
    Row(
        "neurosim.report",
        own=(
            *RECORD,
            "neurosim.chip",
            "neurosim.lifetimes",
            "neurosim.independence",
            "neurosim.loops",
            "neurosim.timing.causes",
            "neurosim.timing.passes",
            "neurosim.timing.timeline",
            "neurosim.timing.influence",
            "neurosim.listing",
            "neurosim.writing",
        ),
        bare=("neurosim",),
        packages=("numpy",),
    ),
    Row(
        "neurosim.report.trace",
        own=(
            *RECORD,
            "neurosim.chip",
            "neurosim.dependences",
            "neurosim.listing",
            "neurosim.report.occupancy",
            "neurosim.timing.passes",
            "neurosim.timing.timeline",
        ),
        packages=("numpy",),
    ),
    Row(
        "neurosim.report.operations",
        own=(
            *RECORD,
            "neurosim.listing",
            "neurosim.report.queues",
            "neurosim.timing.causes",
            "neurosim.timing.timeline",
            "neurosim.writing",
        ),
        bare=("neurosim",),
        packages=("numpy", "pyarrow"),
    ),
    # Compiled, and kept on disk under a hash of its own sources.
    Row("neurosim.report.trace.filling", own=("neurosim.jit",), packages=("numpy",)),
    Row("neurosim.report.text", own=("neurosim.report",), packages=("rich",)),
    Row("neurosim.report.screen", packages=("rich",)),
    Row("neurosim.report.precision_text", own=("neurosim.report",), packages=("rich",)),
    Row("neurosim.report.picture", own=("neurosim.errors", "neurosim.writing"), packages=("matplotlib",)),
    Row("neurosim.report.precision_plot", own=("neurosim.report",)),
    Row(
        "neurosim.report.occupancy",
        own=(*RECORD, "neurosim.dependences", "neurosim.timing.timeline"),
        packages=("numpy",),
    ),
    Row(
        "neurosim.report.page",
        own=(
            *RECORD,
            "neurosim.chip",
            "neurosim.listing",
            "neurosim.report",
            "neurosim.timing.causes",
            "neurosim.timing.timeline",
            "neurosim.writing",
        ),
        bare=("neurosim",),
        packages=("numpy", "bokeh", "jinja2"),
    ),
    # Arguments of a kernel, in and out.
    Row("neurosim.schedules", own=RECORD),
    Row("neurosim.objects"),
    Row("neurosim.arrays", own=FORMATS, packages=("numpy", "ml_dtypes")),
    Row("neurosim.specs", own=FORMATS),
    Row(
        "neurosim.testing",
        own=("neurosim.dtypes", "neurosim.arrays", "neurosim.numerics"),
        packages=("numpy", "ml_dtypes"),
    ),
    Row(
        "neurosim.arguments",
        own=(
            *RECORD,
            *TENSORS,
            "neurosim.kernel",
            "neurosim.instruction",
            "neurosim.arrays",
            "neurosim.objects",
            "neurosim.specs",
        ),
        packages=("numpy",),
    ),
    # Launches that are like earlier ones: what Python can see, and records that are executed again.
    Row(
        "neurosim.replay",
        own=(
            *RECORD,
            *MACHINE,
            *PLACES,
            "neurosim.arguments",
            "neurosim.arrays",
            "neurosim.chip",
            "neurosim.encoding",
            "neurosim.installation",
            "neurosim.objects",
            "neurosim.program_file",
            "neurosim.specs",
            "neurosim.timing",
            "neurosim.writing",
        ),
        packages=("numpy",),
    ),
    Row("neurosim.settings", own=("neurosim.errors", "neurosim.rounding", "neurosim.versions")),
    # Running a kernel from end to end. Device files lie in `isa`; their path is all that is asked of it.
    Row("neurosim.devices", own=("neurosim.errors", "neurosim.chip"), bare=("isa",)),
    Row(
        "neurosim.run",
        own=(
            *RECORD,
            *ANALYSIS,
            *MACHINE,
            "neurosim.hazards",
            "neurosim.chip",
            "neurosim.devices",
            "neurosim.arguments",
            "neurosim.questions",
            "neurosim.replay",
            "neurosim.schedules",
            "neurosim.settings",
            "neurosim.shadow",
            "neurosim.specs",
            "neurosim.timing",
            "neurosim.result",
        ),
        packages=("numpy",),
    ),
    Row(
        "neurosim.result",
        own=(*RECORD, "neurosim.chip", "neurosim.questions", "neurosim.replay", "neurosim.timing", "neurosim.report"),
        packages=("numpy",),
    ),
    Row(
        "neurosim.questions",
        own=(
            "neurosim.errors",
            "neurosim.program",
            "neurosim.chip",
            "neurosim.timing",
            "neurosim.advice",
            "neurosim.report.limits",
        ),
        packages=("numpy",),
    ),
    # What a kernel could do better: a rule a file, each of which looks at figures of a timed program.
    Row(
        "neurosim.advice",
        own=(
            *RECORD,
            "neurosim.chip",
            "neurosim.timing",
            "neurosim.report.places",
            "neurosim.report.units",
            "neurosim.report.words",
        ),
        packages=("numpy",),
    ),
    Row(
        "neurosim.report.limits",
        own=("neurosim.program", "neurosim.advice", "neurosim.report", "neurosim.timing"),
        packages=("numpy",),
    ),
    Row("neurosim.report.limits_text", own=("neurosim.report",), packages=("rich",)),
    # Errors of a run against a float64 shadow of it.
    Row(
        "neurosim.shadow",
        own=(
            *RECORD,
            *TENSORS,
            "neurosim.fine",
            "neurosim.kernel",
            "neurosim.lanes",
            "neurosim.numerics",
            "neurosim.testing",
        ),
        packages=("numpy",),
    ),
    Row(
        "neurosim.accuracy",
        own=(
            *RECORD,
            "neurosim.arrays",
            "neurosim.chip",
            "neurosim.objects",
            "neurosim.report",
            "neurosim.run",
            "neurosim.shadow",
            "neurosim.testing",
        ),
        packages=("numpy",),
    ),
    # The face that kernels import. It alone reaches the instructions.
    Row("neurosim.finder"),
    Row(
        "neurosim.nki",
        own=(
            *RECORD,
            *MACHINE,
            "neurosim.numerics",
            "neurosim.chip",
            "neurosim.devices",
            "neurosim.schedules",
            "neurosim.specs",
            "neurosim.objects",
            "neurosim.run",
            "neurosim.writing",
            "isa",
        ),
        packages=("numpy",),
    ),
    # The legacy dialect also names formats' limits, as NumPy does.
    Row(
        "neurosim.nki.legacy",
        own=(
            *RECORD,
            *MACHINE,
            "neurosim.numerics",
            "neurosim.chip",
            "neurosim.devices",
            "neurosim.grids",
            "neurosim.run",
            "neurosim.specs",
            "neurosim.nki",
        ),
        packages=("numpy", "ml_dtypes"),
    ),
    Row(
        "neurosim.sweeps",
        own=(
            *RECORD,
            "neurosim.chip",
            "neurosim.devices",
            "neurosim.finder",
            "neurosim.installation",
            "neurosim.loading",
            "neurosim.report.picture",
            "neurosim.report.screen",
            "neurosim.report.units",
            "neurosim.run",
            "neurosim.settings",
            "neurosim.specs",
            "neurosim.timing.options",
            "neurosim.writing",
        ),
        bare=("neurosim",),
        packages=("numpy", "rich", "joblib", "cloudpickle"),
    ),
    Row(
        "neurosim.sweep_command",
        own=(
            "neurosim.command_outputs",
            "neurosim.errors",
            "neurosim.loading",
            "neurosim.sweeps",
            "neurosim.writing",
        ),
        packages=("typer", "rich", "joblib", "distributed", "ray"),
    ),
    # Two runs side by side.
    Row(
        "neurosim.comparison",
        own=(
            "neurosim.errors",
            "neurosim.report.colors",
            "neurosim.report.costs",
            "neurosim.report.json_schema",
            "neurosim.report.schema",
            "neurosim.report.screen",
            "neurosim.report.units",
            "neurosim.report.words",
            "neurosim.result",
            "neurosim.run",
            "neurosim.timing.causes",
            "neurosim.writing",
        ),
        bare=("neurosim",),
        packages=("rich", "jinja2"),
    ),
    Row(
        "neurosim.diff_command",
        own=(
            "neurosim.command_outputs",
            "neurosim.comparison",
            "neurosim.devices",
            "neurosim.errors",
            "neurosim.loading",
            "neurosim.run",
            "neurosim.sweep_command",
            "neurosim.sweeps",
            "neurosim.writing",
        ),
        packages=("typer",),
    ),
    Row("neurosim", own=("neurosim",)),
    # What can be said of instructions by reading and trying them.
    Row("neurosim.manual", own=("neurosim",), packages=("numpy", "rich")),
    # Kernels as text: what the NKI compiler rejects in them.
    Row("neurosim.lint", own=("neurosim.errors",)),
    # Under pytest: it loads with every test run, so it loads nothing.
    Row("neurosim.pytest_plugin", own=("neurosim.finder",), packages=("pytest",)),
    # The command line.
    Row("neurosim.loading", own=(*FORMATS, "neurosim.calls", "neurosim.specs"), packages=("numpy",)),
    Row("neurosim.demo", own=("neurosim",), packages=("numpy", "ml_dtypes")),
    Row("neurosim.__main__", own=("neurosim.cli",)),
    Row("neurosim.cli", own=("neurosim",), packages=("typer", "rich")),
    Row(
        "neurosim.command_outputs",
        own=("neurosim.errors", "neurosim.report.picture", "neurosim.result", "neurosim.writing"),
        packages=("typer",),
    ),
    Row(
        "neurosim.question_options",
        own=("neurosim.errors", "neurosim.result", "neurosim.report"),
        packages=("typer",),
    ),
    # The contract: one file per datapath family, none of which knows another.
    Row(
        "isa",
        own=(*RECORD, *MACHINE, "neurosim.numerics", "neurosim.chip"),
        packages=("numpy",),
        siblings=False,
    ),
    # Kernels run on hardware as well: they know `nki` and arithmetic, and nothing of ours.
    Row("kernels", packages=("nki",), siblings=False),
    # The simulator beside others, each of which is reached by its own kernels.
    Row(
        "benchmarks.peers", own=("neurosim",), packages=("rich", "matplotlib", "speed", "peer_kernels"), siblings=False
    ),
    Row(
        "benchmarks.peer_kernels",
        own=("neurosim",),
        packages=("numpy", "ml_dtypes", "nki", "jax", "torch", "triton", "triton_viz", "scalesim", "peer_kernels"),
    ),
    # Scripts, which share what `speed.py` knows of the machine.
    Row(
        "benchmarks",
        own=("neurosim",),
        packages=("numpy", "scipy", "rich", "threadpoolctl", "playwright", "nki", "speed", "validation", "costs"),
        siblings=False,
    ),
    Row("benchmarks.profiles", own=("neurosim",), packages=("rich",), siblings=False),
    # Packages beside the script that uses them, and on its path under their own names.
    Row("benchmarks.costs", own=("neurosim",), packages=("numpy", "rich", "nki", "costs")),
    Row(
        "benchmarks.validation", own=("neurosim",), packages=("numpy", "rich", "matplotlib", "neuronxcc", "validation")
    ),
)

EXACT = {"neurosim"}
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
        return [f"{module} has no row in the table of {Path(__file__).name}"]
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
        ("neurosim/numerics/alu.py", "from neurosim.engines import Engine"),
        ("neurosim/kernel.py", "def f():\n    import isa"),
        ("neurosim/run.py", "from isa.matmul import nc_matmul"),
        ("neurosim/devices.py", "from isa.matmul import nc_matmul"),
        ("neurosim/operators.py", "import neurosim.numerics.alu"),
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
        ("neurosim/jit.py", "import numba"),
        ("neurosim/nki/isa.py", "from isa.matmul import nc_matmul"),
        ("isa/matmul.py", "from neurosim.numerics import matmul"),
        ("kernels/matmul.py", "import math\nimport nki\nimport nki.language as nl\nfrom nki import isa"),
    ],
)
def test_what_the_table_allows_passes(file: str, source: str) -> None:
    assert violations(ROOT / file, source) == []


def test_the_architecture_names_every_module() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    modules = [
        path for path in (ROOT / "neurosim").iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()
    ]
    names = [f"`{path.name}`" if path.is_file() else f"`{path.name}/`" for path in modules]
    assert [name for name in names if name not in text and name != "`__init__.py`"] == []


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
