"""Edges that a kernel asks for: ``depends_on``, ``with_schedule`` and ``no_reorder``."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import IllegalOperand, Unsupported

DATA = np.ones((128, 512), np.float32)


@nki.jit
def two_engines(x):
    out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    left = nl.ndarray(x.shape, dtype=x.dtype)
    right = nl.ndarray(x.shape, dtype=x.dtype)
    nisa.reciprocal(dst=left, data=tile, name="on vector")
    nisa.activation(dst=right, op=nl.exp, data=tile, name="on scalar")
    nl.store(out[0], left)
    nl.store(out[1], right)
    return out


def places(result):
    return {name: index for index, name in result.program.names.items()}


def starts_after(result, consumer, producer):
    at = places(result)
    return result.timeline.start_ps[at[consumer]] >= result.timeline.complete_ps[at[producer]]


def test_without_edges_the_engines_overlap():
    assert not starts_after(neurosim.simulate(two_engines)(DATA), "on scalar", "on vector")


@pytest.mark.parametrize("producer", ["on vector", ["on vector"]])
def test_with_schedule_orders_named_instructions(producer):
    scheduled = two_engines.with_schedule([("on scalar", producer)])
    result = neurosim.simulate(scheduled)(DATA)
    assert starts_after(result, "on scalar", "on vector")
    assert not two_engines.schedule


@pytest.mark.parametrize(
    ("edges", "error", "words"),
    [
        ([("on scaler", "on vector")], IllegalOperand, "did you mean on scalar?"),
        ([("on vector", "on scalar")], Unsupported, "issues later"),
    ],
)
def test_a_schedule_that_makes_no_sense(edges, error, words):
    with pytest.raises(error, match=words):
        neurosim.simulate(two_engines.with_schedule(edges))(DATA)


def test_an_ambiguous_name_is_refused():
    def twice(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for _ in range(2):
            nisa.reciprocal(dst=tile, data=tile, name="same")
        nisa.dma_copy(dst=out, src=tile, name="last")
        return out

    with pytest.raises(IllegalOperand, match="2 instructions have the name 'same'"):
        neurosim.simulate(nki.jit(twice).with_schedule([("last", "same")]))(DATA)


def test_no_reorder_keeps_the_order_within_the_block():
    def ordered(x):
        out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        left = nl.ndarray(x.shape, dtype=x.dtype)
        right = nl.ndarray(x.shape, dtype=x.dtype)
        with nl.no_reorder():
            nisa.reciprocal(dst=left, data=tile, name="on vector")
            nisa.activation(dst=right, op=nl.exp, data=tile, name="on scalar")
        nl.store(out[0], left)
        nl.store(out[1], right)
        return out

    result = neurosim.simulate(ordered)(DATA)
    assert starts_after(result, "on scalar", "on vector")
    blocks = [record.block for record in result.program]
    assert blocks == [-1, 0, 0, -1, -1]


def test_depends_on_takes_earlier_instructions_of_the_same_kernel():
    def backwards(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        first = nisa.reciprocal(dst=tile, data=tile)
        second = nisa.dma_copy(dst=out, src=tile)
        first.depends_on(second)
        return out

    with pytest.raises(IllegalOperand, match="not an earlier instruction"):
        neurosim.simulate(backwards)(DATA)
