"""Replays of every kernel in ``kernels/`` give what runs give: values, record, time, report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import neurosim
from neurosim.record.listing import listing
from neurosim.shell.loading import load_kernel, load_module, packaged_kernel

mutants = load_module(Path(__file__).parents[1] / "mutations" / "mutants.py")


def load(target):
    file, _, name = target.partition(":")
    kernel = load_kernel(f"{packaged_kernel(file)}:{name.partition('[')[0]}")
    return kernel[2] if name.endswith("[2]") else kernel


def other_values(value):
    """Return an array of the same kind with other elements: the same ones in another order, none out of range."""
    if not isinstance(value, np.ndarray):
        return value
    return value[tuple(slice(None, None, -1) for _ in value.shape)].copy()


def bits(outputs):
    if isinstance(outputs, (list, tuple)):
        return [bits(entry) for entry in outputs]
    return outputs.dtype, outputs.shape, outputs.tobytes()


@pytest.mark.parametrize("target", mutants.LAUNCHES)
def test_a_replay_is_a_run(target):
    kernel = load(target)
    arrays, options = mutants.LAUNCHES[target]
    recorded = neurosim.simulate(kernel)(*map(other_values, arrays), **options)
    assert (recorded.replayed, recorded.unreplayable) == (False, "")
    replayed = neurosim.simulate(kernel)(*arrays, **options)
    fresh = neurosim.simulate(kernel, replay=False)(*arrays, **options)
    assert (replayed.replayed, fresh.replayed) == (True, False)
    assert bits(replayed.outputs) == bits(fresh.outputs)
    assert bits(replayed.outputs) != bits(recorded.outputs)
    assert listing(replayed.program) == listing(fresh.program)
    assert replayed.timeline.ops.tobytes() == fresh.timeline.ops.tobytes()
    assert replayed.summary() == fresh.summary()


@pytest.mark.parametrize("target", ["attention.py:attention", "rope.py:rope", "adamw.py:adamw"])
def test_without_values_nothing_is_executed(target):
    kernel = load(target)
    arrays, options = mutants.LAUNCHES[target]
    results = [neurosim.simulate(kernel, values=False)(*arrays, **options) for _ in range(2)]
    assert [result.replayed for result in results] == [False, True]
    assert results[0].outputs == results[1].outputs
    assert listing(results[1].program) == listing(results[0].program)


@pytest.mark.parametrize("options", [{"precise": False}, {"rounding": "stochastic", "rounding_seed": 7}])
def test_other_ways_to_keep_values(options):
    kernel = load("rmsnorm.py:rmsnorm")
    x, weight = (array.astype("bfloat16") for array in mutants.LAUNCHES["rmsnorm.py:rmsnorm"][0])
    run = neurosim.simulate(kernel, **options)
    run(other_values(x), weight)
    replayed, fresh = run(x, weight), neurosim.simulate(kernel, replay=False, **options)(x, weight)
    assert (replayed.replayed, fresh.replayed) == (True, False)
    assert bits(replayed.outputs) == bits(fresh.outputs)
    assert replayed.outputs.tobytes() != neurosim.simulate(kernel)(x, weight).outputs.tobytes()
