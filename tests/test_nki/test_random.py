"""``nl.rand``, ``nl.random_seed`` and ``nl.dropout``."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import IllegalOperand

CHIPS = ("trn1", "trn2", "trn3")


def stored(tile):
    if tile.buffer is nl.psum:
        copy = nl.ndarray(tile.shape, tile.dtype)
        nisa.tensor_copy(dst=copy, src=tile)
        tile = copy
    out = nl.ndarray(tile.shape, tile.dtype, nl.shared_hbm)
    nl.store(out, tile)
    return out


def run(kernel, *arrays, chip="trn2"):
    return neurosim.simulate(kernel, chip)(*arrays).outputs


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("buffer", [nl.sbuf, nl.psum])
def test_rand_is_uniform(chip, buffer):
    got = run(lambda: stored(nl.rand((128, 512), nl.float32, buffer)), chip=chip)
    assert got.dtype == np.float32
    assert got.min() >= 0
    assert got.max() < 1
    assert abs(got.mean(dtype=np.float64) - 0.5) < 5 / (12 * got.size) ** 0.5
    places = np.arange(1, got.size + 1) / got.size
    assert np.abs(places - np.sort(got.reshape(-1).astype(np.float64))).max() < 2 / got.size**0.5


@pytest.mark.parametrize("chip", CHIPS)
def test_the_manuals_example(chip):
    """A seed again, and the same numbers again."""

    def kernel():
        seed = nl.full((1, 1), 42, dtype=nl.int32, buffer=nl.sbuf)
        nl.random_seed(seed)
        a = nl.rand((128, 512), dtype=nl.float32)
        b = nl.rand((128, 512), dtype=nl.float32)
        nl.random_seed(seed)
        return stored(a), stored(b), stored(nl.rand((128, 512), dtype=nl.float32))

    a, b, again = run(kernel, chip=chip)
    assert np.array_equal(a, again)
    assert (a != b).mean() > 0.999
    assert np.array_equal(run(kernel, chip=chip)[1], b)


@pytest.mark.parametrize("chip", CHIPS)
def test_rand_rounds_to_its_dtype(chip):
    wide = run(lambda: stored(nl.rand((64, 128), nl.float32)), chip=chip)
    brief = run(lambda: stored(nl.rand((64, 128), nl.bfloat16)), chip=chip)
    assert np.array_equal(brief, wide.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("shape", [(3, 130, 40), (200, 3000), (50,)])
@pytest.mark.parametrize("chip", ["trn2", "trn3"])
def test_rand_in_hbm(chip, shape):
    got = run(lambda: nl.rand(shape, nl.float32, nl.shared_hbm, name="noise"), chip=chip)
    assert got.shape == shape
    assert abs(got.mean() - 0.5) < 5 / (12 * got.size) ** 0.5
    assert len(np.unique(got)) > 0.95 * got.size


def test_the_name_of_a_tensor():
    result = neurosim.simulate(lambda: stored(nl.rand((4, 4), nl.float32, name="noise")))()
    assert "noise" in [storage.name for storage in result.program.storages]


def test_dropout():
    def kernel(data, rates):
        x = nl.load(data)
        return (
            stored(nl.dropout(x, 0.25)),
            stored(nl.dropout(x, nl.load(rates))),
            stored(nl.dropout(x, 0.25, dtype=nl.bfloat16)),
        )

    data = np.full((128, 512), 1.001, np.float32)
    rates = np.linspace(0, 1, 128, dtype=np.float32).reshape(-1, 1)
    plain, varied, brief = run(kernel, data, rates)
    assert abs((plain == 0).mean() - 0.25) < 5 * 0.44 / plain.size**0.5
    assert set(np.unique(plain)) == {np.float32(0), np.float32(1.001)}
    assert np.abs((varied == 0).mean(axis=1) - rates[:, 0]).max() < 5 * 0.5 / 512**0.5
    assert brief.dtype == ml_dtypes.bfloat16
    assert set(np.unique(brief.astype(np.float32))) == {np.float32(0), np.float32(1)}


def test_dropout_follows_the_seed():
    def kernel(data):
        x, seed = nl.load(data), nl.full((1, 1), 5, nl.uint32)
        nl.random_seed(seed)
        one = nl.dropout(x, 0.5)
        two = nl.dropout(x, 0.5)
        nl.random_seed(seed)
        return stored(one), stored(two), stored(nl.dropout(x, 0.5))

    one, two, again = run(kernel, np.ones((32, 64), np.float32))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, two)


def test_a_seed_is_a_tensor():
    with pytest.raises(IllegalOperand, match="src_seeds is 42"):
        run(lambda: nl.random_seed(42))
    with pytest.raises(IllegalOperand, match=r"it must be \[1, 1\]"):
        run(lambda: nl.random_seed(nl.zeros((2, 1), nl.int32)))
