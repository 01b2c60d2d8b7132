"""Arguments that are no tensors, in kernels that use them as such.

The line that an error must point at ends in ``# here`` in the kernel's source.
"""

from __future__ import annotations

from pathlib import Path

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import IllegalOperand, NeurosimError
from neurosim.shell.loading import load_module

F = np.float32
here = load_module(Path(__file__).parents[1] / "marked_lines.py").here


def shape_of(a, b):
    return nl.load(a).shape and nl.ndarray(b.shape, nl.float32)  # here


def part_of(a, b):
    return nl.load(b[0:4, :])  # here


def first_of(a, b):
    return nl.load(b[0]) if b[0].shape else a  # here


class Bare:
    """Looks like no array at all."""

    def __repr__(self):
        return "bare object"


@pytest.mark.parametrize(
    ("kernel", "given", "use"),
    [
        *((shape_of, given, "its shape") for given in ([[1.0, 2.0]], 3, 2.5, None, "abc", (1, 2), {"a": 1}, Bare())),
        *((part_of, given, "a part of it") for given in ([[1.0, 2.0]], 3, None, "abc", (1, 2), {"a": 1}, F(3), Bare())),
    ],
)
def test_an_argument_that_is_no_array_where_one_belongs(kernel, given, use):
    with pytest.raises(IllegalOperand) as caught:
        neurosim.simulate(kernel)(np.ones((4, 8), F), given)
    error = caught.value
    assert error.what == f"{kernel.__name__}: argument b is no tensor, and the kernel asks for {use}"
    assert error.where[0].startswith(here(kernel))
    assert error.numbers == (f"b is {given!r} ({type(given).__name__})",)
    assert "np.asarray" in error.advice


def test_an_entry_of_a_list_that_is_no_array():
    with pytest.raises(IllegalOperand, match=r"argument b\[0\] is no tensor, and the kernel asks for its shape"):
        neurosim.simulate(first_of)(np.ones((4, 8), F), [[1.0]])


def test_other_mistakes_of_python_stay_as_they_are():
    def own_list(a, sizes):
        return nl.load(a) if sizes[0, 1] else len(0)  # the kernel's own mistake

    def no_such_thing(a, sizes):
        return sizes.elements

    def other_object(a, sizes):
        return nothing_of(a).shape

    def nothing_of(a):
        return None

    array = np.ones((4, 8), F)
    for kernel, given, kind in (
        (own_list, {(0, 1): 0}, TypeError),
        (no_such_thing, [1, 2], AttributeError),
        (other_object, None, AttributeError),
    ):
        with pytest.raises(kind) as caught:
            neurosim.simulate(kernel)(array, given)
        assert not isinstance(caught.value, NeurosimError)


def test_a_buffer_is_refused_as_an_operand():
    def kernel(a, b):
        out = nl.ndarray(a.shape, a.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=b)
        return out

    array = np.ones((4, 8), F)
    with pytest.raises(IllegalOperand, match=r"src is <memory at .*it must be a tensor"):
        neurosim.simulate(kernel)(array, memoryview(array))
