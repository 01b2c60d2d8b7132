"""Random legacy kernels against their meaning in NumPy, bit for bit."""

import importlib.util
import linecache
import warnings
import zlib
from pathlib import Path

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from neurosim.errors import IllegalOperand


def neighbour(name):
    """Return the module in a file beside this one."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


legacy_programs, legacy_twin = neighbour("legacy_programs"), neighbour("legacy_twin")

RULES = ("covers partitions", "goes with float32 only")
"""What instructions refuse, which the maker of kernels knows nothing of."""


def compiled(source, language, isa):
    """Return the kernel that a source defines; its statements can be looked up, as those of a file."""
    name = f"<kernel {zlib.crc32(source.encode())}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    names = {"nl": language, "nisa": isa, "np": np}
    exec(compile(source, name, "exec"), names)
    return names["kernel"]


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 2**20))
def test_kernels_do_what_numpy_does(random, seed):
    source = legacy_programs.source_of(random)
    check(source, seed)


def check(source, seed):
    generator = np.random.default_rng(seed)
    arrays = [generator.integers(-5, 6, shape).astype(np.float32) for shape in (legacy_programs.X0, legacy_programs.X1)]
    tiles = [legacy_twin.Tile(array.copy()) for array in arrays]
    expected = compiled(source, legacy_twin.language, legacy_twin.isa)(*tiles).array
    if np.abs(expected).max() >= 2**22:
        return  # sums would round
    kernel = nki.jit(compiled(source, nl, nisa), mode="simulation")
    try:
        with warnings.catch_warnings(action="ignore"):
            found = kernel(*arrays)
    except IllegalOperand as error:
        if not any(rule in str(error) for rule in RULES):
            raise
        return
    np.testing.assert_array_equal(found, expected, err_msg=source)
