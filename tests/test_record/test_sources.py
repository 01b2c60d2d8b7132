"""Files that are edited and loaded again while a process lives, as notebooks do; and files that look alike."""

from __future__ import annotations

import numpy as np
import pytest

import neurosim
from neurosim.shell.loading import load_kernel

X = np.ones((128, 4), np.float32)

WHILE = """
import nki.isa as nisa
import nki.language as nl
{blank}
def kernel(x):
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    tile = nl.load(x)
    left, none = nisa.register_alloc(3), nl.ndarray((1, 1), nl.int32, nl.sbuf)
    nisa.memset(none, value=0)
    while left:
        nisa.tensor_scalar(tile, tile, nl.add, 1.0)
        nisa.register_load(left, none)
    nl.store(out, tile)
    return out
"""

LEGACY = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
{blank}
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, total = nl.load(x), nl.zeros(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    total[...] = nl.add(total, tile)
    nl.store(out, total)
    return out
"""

MASKED = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def kernel(x):
    rows, columns = nl.mgrid[0:128, 0:4]
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x[rows, columns], mask=(rows < 128 and columns < 4))
    nl.store(out, nl.multiply(tile, {factor}))
    return out
"""


def loaded(file, text):
    """Write a file and load it, whether or not there was one before."""
    file.write_text(text, encoding="utf-8")
    names = {}
    exec(compile(text, str(file), "exec"), names)
    return names


@pytest.mark.parametrize("text", [WHILE, LEGACY], ids=["new dialect", "old dialect"])
def test_a_kernel_that_moved_within_its_file_is_read_where_it_is(tmp_path, text):
    listings = []
    for blank in ("", "\n" * 5):
        result = neurosim.simulate(loaded(tmp_path / "kernels.py", text.format(blank=blank))["kernel"])(X)
        np.testing.assert_array_equal(result.outputs, X + (text is WHILE))
        listings.append([record.signature for record in result.program])
    assert listings[0] == listings[1]


def test_what_was_loaded_before_an_edit_keeps_its_source(tmp_path):
    file = tmp_path / "kernels.py"
    kernel = loaded(file, WHILE.format(blank=""))["kernel"]
    for blank in ("", "\n" * 5):
        file.write_text(WHILE.format(blank=blank), encoding="utf-8")
        np.testing.assert_array_equal(neurosim.simulate(kernel)(X).outputs, X + 1)


def test_a_kernel_whose_masks_are_rewritten_is_the_one_that_was_loaded(tmp_path):
    """The old dialect's ``mask=a and b`` is compiled anew, from the source."""
    for factor in (2.0, 3.75):
        kernel = loaded(tmp_path / "kernels.py", MASKED.format(factor=factor))["kernel"]
        np.testing.assert_array_equal(neurosim.simulate(kernel)(X).outputs, factor * X)


def test_equal_code_of_two_files_has_two_places(tmp_path):
    helper = "import nki.isa as nisa\ndef twice(tile):\n    nisa.activation(tile, op=nl.copy, data=tile, scale=2.0)\n"
    helpers = []
    for name in ("one", "other"):
        helpers.append(loaded(tmp_path / f"{name}.py", f"import nki.language as nl\n{helper}")["twice"])
    names = loaded(
        tmp_path / "kernels.py",
        "import nki.language as nl\n"
        "def kernel(x, helpers):\n"
        "    out, tile = nl.ndarray(x.shape, x.dtype, nl.shared_hbm), nl.load(x)\n"
        "    for helper in helpers:\n"
        "        helper(tile)\n"
        "    nl.store(out, tile)\n"
        "    return out\n",
    )
    program = neurosim.simulate(names["kernel"])(X, helpers).program
    assert [program.where(record)[0].path.rpartition("/")[2] for record in (1, 2)] == ["one.py", "other.py"]


def test_a_file_is_imported_again_where_it_was_edited(tmp_path):
    file, text = tmp_path / "kernels.py", "def kernel():\n    return {}\n"
    file.write_text(text.format(1), encoding="utf-8")
    first, same = load_kernel(f"{file}:kernel"), load_kernel(f"{file}:kernel")
    file.write_text(text.format(22), encoding="utf-8")
    edited = load_kernel(f"{file}:kernel")
    assert first is same
    assert (first(), edited()) == (1, 22)
