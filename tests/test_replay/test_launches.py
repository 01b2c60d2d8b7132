"""How one launch differs from another, and that what is done to one is not seen in the next."""

from __future__ import annotations

import threading
from pathlib import Path

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import ConfigurationError, IllegalOperand
from neurosim.record.listing import listing
from neurosim.replay import LIBRARY
from neurosim.shell.loading import load_module

load_module(Path(__file__).parent / "launching.py")  # puts this folder on the path
from launching import ONES, X, assert_replays, doubled, runs, scaled  # noqa: E402


def test_other_arguments_are_other_launches():
    assert_replays(doubled)
    for other in (X.astype(np.float16), X[:4].copy(), X.reshape(16, 8)):
        assert [result.replayed for result in runs(doubled, other)] == [False, True]


def test_one_array_twice_is_another_launch():
    def kernel(x, y):
        tile, other = nl.load(x), nl.load(y)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=other, op=nl.add)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    run = neurosim.simulate(kernel)
    assert [run(X, X).replayed, run(X, ONES).replayed, run(X, X).replayed] == [False, False, True]
    assert np.array_equal(run(X, ONES).outputs, X + 1)


def in_place(x):
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=x, src=tile)
    return x


def test_inputs_written_in_place():
    for step in range(3):
        x = X.copy()
        result = neurosim.simulate(in_place)(x)
        assert result.replayed == (step > 0)
        assert np.array_equal(x, X + 1)
        assert np.array_equal(result.outputs, X + 1)
    frozen = X.copy()
    frozen.flags.writeable = False
    assert np.array_equal(neurosim.simulate(in_place)(frozen).outputs, X + 1)
    assert np.array_equal(frozen, X)


def test_arguments_that_share_memory_are_refused_each_time():
    def kernel(x, y):
        in_place(x)
        return scaled(y, 2.0)

    run = neurosim.simulate(kernel)
    run(X.copy(), X.copy())
    assert run(X.copy(), X.copy()).replayed
    both = np.zeros((9, 16), np.float32)
    with pytest.raises(IllegalOperand, match="share memory"):
        run(both[:8], both[1:])


def test_outputs_are_ones_own():
    first, second, third = runs(doubled, times=3)
    second.outputs[...] = 0
    assert np.array_equal(first.outputs, third.outputs)


def test_chip_options_and_environment(monkeypatch):
    def replayed(**options):
        return neurosim.simulate(doubled, **options)(X).replayed

    assert [replayed(), replayed()] == [False, True]
    chip = neurosim.load_chip("trn2").replace(**{"vector.clock_ghz": 1.0})
    for options in ({"chip": "trn1"}, {"chip": chip}, {"nki_version": "0.4"}, {"precise": False}):
        assert [replayed(**options), replayed(**options)] == [False, True]
    monkeypatch.setenv("NEURON_RT_STOCHASTIC_ROUNDING_EN", "1")
    assert [replayed(), replayed()] == [False, True]
    monkeypatch.setenv("NEURON_RT_STOCHASTIC_ROUNDING_SEED", "5")
    assert [replayed(), replayed()] == [False, True]
    monkeypatch.setenv("NEUROSIM_NKI_VERSION", "0.5")
    assert [replayed(), replayed()] == [False, True]


def test_it_can_be_turned_off(monkeypatch):
    assert [result.replayed for result in runs(doubled, replay=False)] == [False, False]
    assert len(LIBRARY) == 0
    monkeypatch.setenv("NEUROSIM_REPLAY", "0")
    results = runs(doubled)
    assert [(result.replayed, result.unreplayable) for result in results] == [(False, "replays are off")] * 2
    assert [result.replayed for result in runs(doubled, replay=True)] == [False, True]
    monkeypatch.setenv("NEUROSIM_REPLAY", "maybe")
    with pytest.raises(ConfigurationError, match="NEUROSIM_REPLAY='maybe' is neither 0 nor 1"):
        runs(doubled)
    with pytest.raises(IllegalOperand, match="replay=1 is not a bool"):
        neurosim.simulate(doubled, replay=1)


def test_errors_are_those_of_a_run():
    def kernel(x):
        tile = nl.load(x)
        packed = nl.ndarray((32, 16), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
        scales = nl.ndarray((32, 16), dtype=nl.uint8, buffer=nl.sbuf)
        nisa.quantize_mx(dst=packed, src=tile, dst_scale=scales)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    x = np.ones((32, 64), "bfloat16")
    run = neurosim.simulate(kernel, "trn3")
    run(x)
    x[3, 3] = np.inf
    texts = []
    for simulated in (run, neurosim.simulate(kernel, "trn3", replay=False)):
        with pytest.raises(neurosim.errors.UnknownBehavior) as raised:
            simulated(x)
        texts.append(str(raised.value))
    assert texts[0] == texts[1]
    assert "test_launches.py" in texts[0]
    assert run(np.ones((32, 64), "bfloat16")) is not None


def test_threads_replay_side_by_side():
    assert_replays(doubled)
    found = []

    def work(factor):
        for _ in range(20):
            result = neurosim.simulate(doubled)(X * factor)
            found.append(np.array_equal(result.outputs, 2 * X * factor))

    threads = [threading.Thread(target=work, args=(factor,)) for factor in (1, 3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 60


def test_a_handle_that_outlives_its_run():
    kept = []

    def kernel(x):
        tile = nl.load(x)
        kept[:] = [nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)]
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    assert all(not result.replayed for result in runs(kernel))  # it changes what it holds


@pytest.mark.parametrize("launch", [neurosim.simulate, neurosim.profile])
def test_what_is_done_to_a_result_stays_there(launch):
    def kernel(x):
        tile = nl.load(x)
        first = doubled(x)
        nisa.dma_copy(dst=tile, src=x)  # a compiler makes another program of a tile that is overwritten as a whole
        nisa.dma_copy(dst=first, src=tile)
        return first

    fresh = launch(kernel, replay=False)(X)
    assert fresh.timeline.compiled.program is not fresh.program
    for _ in range(3):  # a run, a replay that may be the first to be timed, and one whose time is known
        result = launch(kernel)(X)
        assert (result.program.edges, result.program.notes) == ([], {})
        assert listing(result.program) == listing(fresh.program)
        assert result.program.storages == fresh.program.storages
        spoil_program(result.program)
        assert result.timelines.keys() == {0}
        if result.replayed:
            assert_same_time(result.timeline, fresh.timeline)
        spoil_timeline(result.timeline)
        result.timelines.clear()
    assert result.replayed


def spoil_program(program):
    program.edges.append((1, 0))
    program.storages.append(program.storages[0])
    program.notes["note"] = "mine"
    program.signature_ids[1:2] = program.signature_ids[0:1]
    program.slots[1] += 64


def spoil_timeline(timeline):
    for value in vars(timeline).values():
        if isinstance(value, np.ndarray):
            value.view(np.uint8)[...] = 1
        elif isinstance(value, dict):
            value.clear()
    spoil_program(timeline.compiled.program)
    timeline.compiled.records[...] = 0
    timeline.compiled.stand_ins[...] = 0


def assert_same_time(timeline, other):
    for name, value in vars(other).items():
        if isinstance(value, np.ndarray):
            assert np.array_equal(getattr(timeline, name), value), name
        elif name != "compiled":
            assert getattr(timeline, name) == value, name
    assert timeline.compiled.program.edges == []
    assert listing(timeline.compiled.program) == listing(other.compiled.program)
    assert np.array_equal(timeline.compiled.records, other.compiled.records)
    assert np.array_equal(timeline.compiled.stand_ins, other.compiled.stand_ins)


@pytest.mark.parametrize("kind", [float, np.float32, ml_dtypes.bfloat16])
def test_zeros_keep_their_sign(kind):
    """They are equal as numbers: a call with one is no call with the other, also where a parameter is a list."""
    zeros = kind(0.0), kind(-0.0)

    def kernel(x):
        out = nl.ndarray((4, 2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        calls = (
            lambda tile, zero: nisa.memset(tile, value=float(zero)),
            lambda tile, zero: nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=zero),
            lambda tile, zero: nisa.affine_select(
                dst=tile, pattern=[[0, 16]], channel_multiplier=0, offset=-1, on_true_tile=tile, on_false_value=zero
            ),
            lambda tile, zero: nisa.activation(dst=tile, op=nl.copy, data=tile, scale=zero),
        )
        for number, call in enumerate(calls):
            for sign, zero in enumerate(zeros):
                tile = nl.load(x)
                call(tile, zero)
                nisa.dma_copy(dst=out[number, sign], src=tile)
        return out

    for result in runs(kernel, ONES, times=2):
        np.testing.assert_array_equal(np.signbit(result.outputs), [[np.zeros(ONES.shape), np.ones(ONES.shape)]] * 4)
    assert result.replayed
