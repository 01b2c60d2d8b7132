"""Dropout: the rate, what is kept, and the numbers that decide."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neurosim
from neurosim.errors import Uninitialized
from neurosim.numerics import random

SEED = np.array([[11]], np.uint32)


def dropped(prob=0.25):
    def body(data, *columns):
        out = nl.ndarray(data.shape, data.dtype, nl.sbuf)
        nisa.dropout(dst=out, data=data, prob=columns[0] if columns else prob)
        return out

    return body


@pytest.mark.parametrize("chip", ["trn1", "trn2", "trn3"])
def test_by_hand(machine, rng, chip):
    """u < prob, element by element, from the numbers of the engine's generator after the seed."""
    data = rng.standard_normal((32, 24)).astype(np.float32)

    def body(tile, seed):
        nisa.set_rng_seed(src_seeds=seed)
        return dropped(0.3)(tile)

    got = machine.outputs(body, data, SEED, chip=chip)
    known = random.XORWOW_BY_FOUR if chip == "trn3" else random.LFSR
    words = random.draw(known, random.seeded(known, 11, 128)[:32], 24)
    expected = data.copy()
    for index, word in np.ndenumerate(words):
        if (int(word) >> 8) / 2**24 < np.float32(0.3):
            expected[index] = 0
    machine.assert_same(got, expected)


@pytest.mark.parametrize("chip", ["trn2", "trn3"])
@pytest.mark.parametrize("prob", [0.01, 0.1, 0.5, 0.9])
def test_rate(machine, chip, prob):
    """Within five sigma in all, and in no partition and no column far from it."""
    got = machine.outputs(dropped(prob), np.ones((128, 1024), np.float32), chip=chip)
    assert set(np.unique(got)) <= {0.0, 1.0}  # kept elements are not scaled
    zeros = got == 0
    sigma = (prob * (1 - prob)) ** 0.5
    assert abs(zeros.mean() - prob) < 5 * sigma / zeros.size**0.5
    assert np.abs(zeros.mean(axis=1) - prob).max() < 5 * sigma / 1024**0.5
    assert np.abs(zeros.mean(axis=0) - prob).max() < 6 * sigma / 128**0.5


def test_ends(machine, rng):
    data = rng.standard_normal((128, 64)).astype(np.float32)
    assert np.array_equal(machine.outputs(dropped(0.0), data), data)
    assert not machine.outputs(dropped(1.0), data).any()
    assert not machine.outputs(dropped(1), data).any()


def test_a_probability_per_partition(machine):
    prob = np.linspace(0, 1, 128, dtype=np.float32).reshape(-1, 1)
    got = machine.outputs(dropped(), np.ones((128, 2048), np.float32), prob)
    assert np.abs((got == 0).mean(axis=1) - prob[:, 0]).max() < 5 * 0.5 / 2048**0.5
    assert (got[0] == 1).all()
    assert (got[127] == 0).all()
    beyond = machine.outputs(dropped(), np.ones((4, 64), np.float32), np.array([[-1], [7], [0], [1]], np.float32))
    assert beyond.mean(axis=1).tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.int16, ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e5m2])
def test_bits_are_kept(machine, rng, dtype):
    bits = rng.integers(0, 256, (16, 32 * np.dtype(dtype).itemsize), dtype=np.uint8)
    data = bits.view(dtype)
    got = machine.outputs(dropped(0.5), data)
    raw, kept = data.view(f"u{data.itemsize}"), got.view(f"u{data.itemsize}")
    assert ((kept == raw) | (kept == 0)).all()
    assert 0.3 < (kept == 0).mean() < 0.7


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e5m2])
def test_formats_of_a_probability(machine, dtype):
    prob = np.full((8, 1), 0.5, dtype)
    got = machine.outputs(dropped(), np.ones((8, 512), ml_dtypes.bfloat16), prob)
    assert np.array_equal(got, machine.outputs(dropped(0.5), np.ones((8, 512), ml_dtypes.bfloat16)))


@given(prob=st.floats(0, 1), seed=st.integers(0, 2**32 - 1))
def test_is_the_twin(prob, seed):
    def kernel(given, data):
        tile = nl.load(data)
        nisa.set_rng_seed(src_seeds=nl.load(given))
        nisa.dropout(dst=tile, data=tile, prob=prob)
        out = nl.ndarray(tile.shape, tile.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    data = np.arange(1, 41, dtype=np.int32).reshape(4, 10)
    got = neurosim.simulate(kernel)(np.array([[seed]], np.uint32), data).outputs
    words = random.draw(random.LFSR, random.seeded(random.LFSR, seed, 128)[:4], 10)
    expected = [
        [0 if (int(word) >> 8) / 2**24 < np.float32(prob) else int(value) for word, value in zip(*rows, strict=True)]
        for rows in zip(words, data, strict=True)
    ]
    assert got.tolist() == expected


def test_views(machine, rng):
    def body(out, data, prob):
        tile = out(data.shape, data.dtype)
        nisa.dropout(dst=tile, data=data, prob=prob.reshape((32, 1)) if prob.ndim > 2 else prob)
        return tile

    got = machine.same_from_views(
        body, rng.standard_normal((32, 16)).astype(np.float32), np.full((32, 1), 0.5, np.float32)
    )
    assert 0.3 < (got == 0).mean() < 0.7


def test_holes_are_dropped_too():
    """A zero that takes a hole's place is written; a hole that is kept stays one."""

    def kernel(prob):
        tile, out = nl.ndarray((8, 16), nl.float32, nl.sbuf), nl.ndarray((8, 16), nl.float32, nl.shared_hbm)
        nisa.memset(dst=tile[:, 0:8], value=1.0)
        nisa.dropout(dst=tile, data=tile, prob=nl.load(prob))
        nisa.dma_copy(dst=out, src=tile)
        return out

    assert not neurosim.simulate(kernel)(np.ones((8, 1), np.float32)).outputs.any()
    with pytest.raises(Uninitialized):
        neurosim.simulate(kernel)(np.zeros((8, 1), np.float32))


@pytest.mark.parametrize(
    ("arrays", "prob", "message"),
    [
        ([np.float32], -0.1, "dropout: prob=-0.1 is no probability"),
        ([np.float32], 1.5, "dropout: prob=1.5 is no probability"),
        ([np.float32], float("nan"), "dropout: prob=nan is no probability"),
        ([np.int32, ml_dtypes.bfloat16], None, "dropout: prob is bfloat16; it must be float32"),
        ([np.float32, np.int32], None, "dropout: prob is int32; it must be"),
    ],
)
def test_refuses(machine, arrays, prob, message):
    tiles = [np.ones(shape, dtype) for shape, dtype in zip([(4, 8), (4, 1)], arrays, strict=False)]
    assert message in machine.refused(dropped(prob), *tiles)


def test_refuses_other_extents_and_dtypes(machine):
    def body(data, shape, dtype):
        nisa.dropout(dst=nl.ndarray(shape, dtype), data=data, prob=0.5)

    ones = np.ones((4, 8), np.float32)
    assert "dst has 9 elements" in machine.refused(lambda data: body(data, (4, 9), nl.float32), ones)
    assert "they must have the same dtype" in machine.refused(lambda data: body(data, (4, 8), nl.bfloat16), ones)


def test_time(machine):
    """max(64, N) cycles are documented; the engine's issue covers the first of them."""
    busy, _ = machine.time("dropout", dropped(0.5), np.ones((128, 512), np.float32))
    assert busy == pytest.approx((60 + 512) / 0.96, rel=1e-3)
