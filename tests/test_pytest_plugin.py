"""The plugin in somebody else's test suite: ``nki`` is there, and nothing was loaded for it."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

SUITE = """
import sys

LOADED = {"numba", "isa", "numpy", "neurosim.kernel"} & set(sys.modules)

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

@nki.jit
def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nl.store(out, tile)
    return out

def test_values():
    np.testing.assert_array_equal(double(np.ones((4, 8), np.float32)), np.full((4, 8), 2.0))

def test_nothing_was_loaded_before():
    assert LOADED == set()
"""
REAL = """
import nki

def test_which():
    assert nki.__name__ == {name!r}
"""


@pytest.fixture
def suite(tmp_path):
    """Return a function that runs pytest on a new suite, as if the plugin had been found by its entry point."""

    def run(source, *options):
        (tmp_path / "test_kernels.py").write_text(source, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path / "packages"), str(ROOT)))}
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # where neurosim is installed, pytest finds it by itself
        command = [sys.executable, "-m", "pytest", "-p", "neurosim.pytest_plugin", "-p", "no:cacheprovider", *options]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)

    return run


def test_a_suite_runs_as_it_is(suite):
    done = suite(SUITE)
    assert done.returncode == 0, done.stdout
    assert "nki: neurosim\n" in done.stdout
    assert "2 passed" in done.stdout


def test_an_installed_nki_stays_unless_asked_otherwise(suite, tmp_path):
    package = tmp_path / "packages" / "nki"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    done = suite(REAL.format(name="nki"))
    assert done.returncode == 0, done.stdout
    assert "nki: the installed package\n" in done.stdout
    done = suite(REAL.format(name="neurosim.nki"), "--neurosim")
    assert done.returncode == 0, done.stdout
    assert "nki: neurosim\n" in done.stdout


def test_pytest_finds_it_by_its_entry_point():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"neurosim": "neurosim.pytest_plugin"}


def test_an_installed_neurosim_is_found_by_its_entry_point(tmp_path):
    points = importlib.metadata.entry_points(group="pytest11", name="neurosim")
    if not points:
        pytest.skip("neurosim runs from a checkout and is not installed")
    (tmp_path / "test_kernels.py").write_text(SUITE, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
