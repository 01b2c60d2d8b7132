"""Every bug that can be seeded into the kernels is caught, by the kind of error that says what it is, and where."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from neurosim.shell.loading import load_module, packaged_kernel

m = load_module(Path(__file__).with_name("mutants.py"))
KERNELS = packaged_kernel("matmul.py").parent


@pytest.mark.parametrize("target", m.LAUNCHES)
def test_seeded_bugs_are_caught(target):
    seeded = m.mutants(target)
    assert seeded, f"no line of {target} can be mutated"
    caught_by = {kind.name: kind.caught_by for kind in m.KINDS}
    missed = []
    for mutant in seeded:
        outcome, message = m.fate(mutant)
        if mutant.is_equivalent:
            assert outcome == m.SURVIVED, f"{mutant} is caught by {outcome}: take it off the list"
        elif outcome not in caught_by[mutant.kind]:
            missed.append(f"{mutant}: {outcome} {message}")
    assert not missed, "\n".join(missed)


def test_every_kernel_is_launched():
    kernels = {
        f"{path.name}:{node.name}"
        for path in KERNELS.glob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and "nki.jit" in map(ast.unparse, node.decorator_list)
    }
    assert kernels == {target.partition("[")[0] for target in m.LAUNCHES}, "give each a launch in mutants.py"


def test_every_kind_is_seeded():
    seeded = {
        mutant.kind
        for target in ("matmul.py:matmul", "sharded_rmsnorm.py:sharded_rmsnorm[2]")
        for mutant in m.mutants(target)
    }
    assert seeded == {kind.name for kind in m.KINDS}
    assert len(m.KINDS) == 10


def test_bugs_that_are_none_are_still_there():
    listed = {(target.partition(":")[0], mutant.what) for target in m.LAUNCHES for mutant in m.mutants(target)}
    assert set(m.EQUIVALENT) <= listed


def test_the_right_kernel_survives():
    """Else a mutant might be caught for what the kernel does anyway."""
    for target in m.LAUNCHES:
        assert not m.differ(m.launch(target), m.right(target))
