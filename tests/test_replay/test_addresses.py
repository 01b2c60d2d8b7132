"""Tensors with an address in PSUM: what one wrote is unwritten to another, in a replay as in the run."""

from __future__ import annotations

from pathlib import Path

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.replay import LIBRARY, Unreplayable, shelf
from neurosim.replay.tape import Tape
from neurosim.shell.loading import load_module

load_module(Path(__file__).parent / "launching.py")  # puts this folder on the path
from launching import assert_replays  # noqa: E402

A, B = (np.random.default_rng(seed).standard_normal((64, 64), np.float32) for seed in (0, 1))
TRIPS = 4


def in_turns(a, b):
    """Products that take turns at one address: each trip's first overwrites, though a matmul wrote there before."""
    out = nl.ndarray((TRIPS, 64, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(a), nl.load(b)
    for trip in range(TRIPS):
        product = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum, address=(0, 256 * (trip % 2)))
        for _ in range(trip + 1):
            nisa.nc_matmul(dst=product, stationary=left, moving=right)
        nisa.dma_copy(dst=out[trip], src=nl.copy(product))
    return out


def kept(a, b):
    """One address, allocated once: each trip's product is added to those before."""
    out = nl.ndarray((TRIPS, 64, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(a), nl.load(b)
    product = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum, address=(0, 256))
    for trip in range(TRIPS):
        nisa.nc_matmul(dst=product, stationary=left, moving=right)
        nisa.dma_copy(dst=out[trip], src=nl.copy(product))
    return out


def across(a, b):
    """A narrow tensor within a wide one, of another dtype; half of the wide one is written again, then added to."""
    out = nl.ndarray((3, 64, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(a), nl.load(b)
    wide = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum, address=(0, 0))
    narrow = nl.ndarray((64, 64), dtype=nl.bfloat16, buffer=nl.psum, address=(0, 128))
    nisa.nc_matmul(dst=wide, stationary=left, moving=right)
    nisa.dma_copy(dst=out[0], src=nl.copy(wide))
    nisa.tensor_copy(dst=narrow, src=left)
    nisa.dma_copy(dst=out[1], src=nl.copy(narrow, dtype=nl.float32))
    nisa.nc_matmul(dst=wide[:, 32:64], stationary=left, moving=right[:, 0:32])
    nisa.nc_matmul(dst=wide, stationary=left, moving=right)
    nisa.dma_copy(dst=out[2], src=nl.copy(wide))
    return out


@pytest.mark.parametrize("kernel", [in_turns, kept, across])
def test_a_replay_gives_the_bits_of_a_run(kernel):
    assert_replays(kernel, A, B)
    for pair in ((B, A), (A, A[::-1].copy())):
        again = neurosim.simulate(kernel)(*pair)
        fresh = neurosim.simulate(kernel, replay=False)(*pair)
        assert again.replayed
        assert np.array_equal(again.outputs.view(np.uint32), fresh.outputs.view(np.uint32))


@pytest.mark.parametrize("kernel", [in_turns, kept])
def test_sums_are_those_of_the_mathematics(kernel):
    for result in (neurosim.simulate(kernel)(A, B) for _ in range(2)):
        for trip in range(TRIPS):
            assert np.allclose(result.outputs[trip], (trip + 1) * (A.T @ B), atol=1e-3)


def test_a_file_says_which_is_which():
    found = neurosim.simulate(in_turns)(A, B)
    (recording,) = LIBRARY._kept.values()
    again = shelf._read(shelf._written(recording), recording.chip)
    assert list(again.writers) == list(recording.writers)
    (key,) = LIBRARY._kept
    LIBRARY.put(key, again)
    replayed = neurosim.simulate(in_turns)(A, B)
    assert replayed.replayed
    assert np.array_equal(replayed.outputs, found.outputs)


def test_what_wrote_where_has_to_fit_the_record():
    neurosim.simulate(in_turns)(A, B)
    (recording,) = LIBRARY._kept.values()
    assert len(recording.writers) == sum(range(1, TRIPS + 1))
    for writers in (recording.writers[:-1], [*recording.writers, 1]):
        with pytest.raises(Unreplayable, match="tensors with an address were written"):
            Tape(recording.program, recording.chip, recording.classes, recording.constants, writers)
