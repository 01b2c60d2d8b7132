"""Replays of random legal programs, on other values, give the bits of runs."""

from __future__ import annotations

from pathlib import Path
from random import Random

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
import neurosim.run
from neurosim.replay import Launch
from neurosim.shell.loading import load_module

load_module(Path(__file__).parents[1] / "fuzz" / "runs.py")  # puts its folder on the path
from programs import Programs  # noqa: E402

FIRST = (np.random.default_rng(0).standard_normal(1 << 18) * 4).astype(np.float32)
SECOND = (np.random.default_rng(1).standard_normal(1 << 18) * 4).astype(np.float32)
STEPS = 14


def program(seed, data, chip):
    """Return a kernel that issues random steps and returns all that it has written as a whole."""

    def kernel(source):
        programs = Programs(Random(seed), source, data, chip)
        for _ in range(programs.random.randrange(STEPS) + 1):
            programs.step().issue()
        outputs = []
        for tensor in programs.tensors:
            if not tensor.twin.written.all():
                continue
            tile = tensor.tile
            if tensor.memory == "psum":
                tile = nl.ndarray(tensor.shape, dtype=tile.dtype, buffer=nl.sbuf)
                nisa.tensor_copy(dst=tile, src=tensor.tile)
            out = nl.ndarray(tensor.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
            nisa.dma_copy(dst=out, src=tile)
            outputs.append(out)
        return outputs

    return kernel


def replayed_like_a_run(seed, monkeypatch):
    """Record a program on some values, replay it on others; return whether it was allowed to."""
    # a generator of random numbers is nothing that a token describes: here the seed says all of it
    monkeypatch.setattr(neurosim.run, "launch_of", lambda *_: Launch(key=f"random program {seed}"))
    chip = ("trn2", "trn1", "trn3", "inf2")[seed % 4]
    recorded = neurosim.simulate(program(seed, FIRST, chip), chip)(FIRST)
    result = neurosim.simulate(program(seed, SECOND, chip), chip)(SECOND)
    assert result.replayed == (recorded.unreplayable == "")
    fresh = neurosim.simulate(program(seed, SECOND, chip), chip, replay=False)(SECOND)
    assert not fresh.replayed
    assert [array.tobytes() for array in result.outputs] == [array.tobytes() for array in fresh.outputs]
    assert result.program.listing() == fresh.program.listing()
    return result.replayed


def test_some(monkeypatch):
    found = [replayed_like_a_run(seed, monkeypatch) for seed in range(60)]
    assert sum(found) > 30


@pytest.mark.long
def test_many(monkeypatch):
    found = [replayed_like_a_run(seed, monkeypatch) for seed in range(60, 3000)]
    assert sum(found) > 1500
