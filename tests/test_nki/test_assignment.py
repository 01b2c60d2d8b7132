"""``t[key] = tile`` copies, as the migration guide of NKI 0.3 writes it."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import IllegalOperand, Unsupported

X = np.random.default_rng(3).standard_normal((2, 128, 16)).astype(np.float32)


@nki.jit
def swapped(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    both = nl.ndarray((128, 2, 16), x.dtype)
    for index in range(2):
        both[0:128, index, 0:16] = nl.load(x[index])
    out[1] = both[:, 0, :]
    out[0] = nl.multiply(both[:, 1, :], 2.0)
    return out


def test_a_tile_is_copied_into_a_view_on_the_chip_and_in_hbm():
    result = neurosim.simulate(swapped)(X)
    np.testing.assert_array_equal(result.outputs, [2 * X[1], X[0]])
    mnemonics = [result.program.record(record).signature.instruction for record in range(len(result.program))]
    assert mnemonics == ["dma_copy", "tensor_copy"] * 2 + ["dma_copy", "tensor_scalar", "dma_copy"]


def test_an_assignment_is_replayed():
    neurosim.simulate(swapped)(X)
    again = neurosim.simulate(swapped)(3 * X)
    assert again.replayed
    np.testing.assert_array_equal(again.outputs, [6 * X[1], 3 * X[0]])


def assigned(shape, value):
    def kernel(x):
        tile = nl.ndarray(shape, nl.float32)
        tile[:, 0:8] = value(x)

    neurosim.simulate(kernel)(X)


def test_what_is_assigned_has_the_shape_of_the_view():
    with pytest.raises(IllegalOperand, match=r"an assignment has two shapes(.|\n)*\[128, 8\](.|\n)*\[128, 16\]"):
        assigned((128, 16), lambda x: nl.load(x[0]))


@pytest.mark.parametrize("value", [1.0, None, "tile", np.ones((128, 8), np.float32)])
def test_only_tensors_are_assigned(value):
    with pytest.raises(Unsupported, match="tensors are written by instructions"):
        assigned((128, 16), lambda x: value)


def test_the_copy_keeps_the_rules_of_its_instruction():
    def kernel(x):
        product = nl.ndarray((128, 16), nl.float32, buffer=nl.psum)
        nisa.memset(product, value=0.0)
        x[0] = product

    with pytest.raises(IllegalOperand, match="dma_copy: src"):
        neurosim.simulate(kernel)(X.copy())
