"""What a kernel stores to HBM and neither returns nor reads is said, with its name and line; nothing else is."""

from __future__ import annotations

import warnings

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.analysis.unreturned import UnreturnedOutputWarning
from tests.marked_lines import here

X = np.ones((128, 64), np.float32)


def stored(memory=nl.shared_hbm):
    out = nl.ndarray((128, 64), nl.float32, memory)  # here
    tile = nl.ndarray((128, 64), nl.float32, nl.sbuf)
    nisa.memset(dst=tile, value=1.0)
    nisa.dma_copy(dst=out, src=tile)
    return out


def forgets(x, memory):
    stored(memory)


def returns_another(x, memory):
    stored(memory)
    return stored(nl.shared_hbm)


def adds_up(x, memory):
    sums = stored(memory)
    nisa.dma_compute(dst=sums, srcs=[sums, x], reduce_op=nl.add)


@pytest.mark.parametrize("values", [True, False])
@pytest.mark.parametrize("memory", [nl.shared_hbm, nl.private_hbm])
@pytest.mark.parametrize("kernel", [forgets, returns_another, adds_up])
def test_a_tensor_that_is_stored_and_lost_is_named(kernel, memory, values):
    for _ in range(2):  # a launch like the first one says the same
        with pytest.warns(UnreturnedOutputWarning, match="neither returned nor read") as caught:
            result = neurosim.profile(kernel, values=values)(X, memory)
        assert len(caught) == 1
        assert (caught[0].filename, caught[0].lineno) == (__file__, kernel.__code__.co_firstlineno)
        assert not result.unreplayable
        for text in (str(caught[0].message), result.summary()["notes"]["Lost"], " ".join(result.report().split())):
            assert f"[128, 64] float32, allocated at {here(stored)}, is stored to" in text


def returned_in(container):
    def kernel(x):
        return container(stored())

    return kernel


def within(x):
    """An output that is returned, scratch that is read again, an argument that is written, what is not stored to."""
    scratch, out = stored(nl.private_hbm), stored()
    nl.ndarray((128, 64), nl.float32, nl.shared_hbm)
    nisa.dma_copy(dst=x, src=scratch)
    return out[:, :32]


@pytest.mark.parametrize(
    "kernel", [within, *map(returned_in, (lambda out: (1, out), lambda out: {"out": out}, lambda out: [[out]]))]
)
def test_what_is_returned_or_read_is_not(kernel):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "Lost" not in neurosim.profile(kernel)(X.copy()).summary()["notes"]


def test_one_core_reads_what_another_stored():
    def halves(x):
        shared = nl.ndarray((128, 64), nl.float32, nl.shared_hbm, name="shared")
        tile = nl.ndarray((128, 64), nl.float32, nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        if nl.program_id(0) == 0:
            nisa.dma_copy(dst=shared, src=tile)
        nisa.core_barrier(shared, (0, 1))
        if nl.program_id(0) == reader:
            nisa.dma_copy(dst=tile, src=shared)

    reader = 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        neurosim.simulate(halves)[2](X)
    reader = 2
    with pytest.warns(UnreturnedOutputWarning, match="shared") as caught:
        neurosim.simulate(halves)[2](X)
    assert len(caught) == 1


def test_of_many_three_are_named():
    def kernel(x):
        for _ in range(5):
            stored()

    with pytest.warns(UnreturnedOutputWarning, match="; and 2 more; return it"):
        neurosim.simulate(kernel)(X)


def test_launches_in_a_loop_warn_once():
    run = neurosim.simulate(forgets)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            run(X, nl.shared_hbm)
    assert len(caught) == 1
