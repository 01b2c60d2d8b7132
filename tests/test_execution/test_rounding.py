"""Runs that round stochastically: ``rounding="stochastic"``, and ``NEURON_RT_STOCHASTIC_ROUNDING_EN``."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import ConfigurationError, IllegalOperand
from neurosim.testing import ulp_of

ENABLE, SEED = "NEURON_RT_STOCHASTIC_ROUNDING_EN", "NEURON_RT_STOCHASTIC_ROUNDING_SEED"
SHORT = (nl.bfloat16, nl.float16, nl.tfloat32, nl.float8_e4m3, nl.float8_e5m2)


@pytest.fixture(autouse=True)
def _plain(monkeypatch):
    for name in (ENABLE, SEED, "NKI_PRECISE_FP"):
        monkeypatch.delenv(name, raising=False)


def counted(x, times=2048, dtype=nl.float16):
    """Add 0.5 to x again and again."""
    tile = nl.ndarray(x.shape, dtype, nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    for _ in range(times):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=0.5)
    out = nl.ndarray(x.shape, dtype, nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def copied(dtype):
    """Return a kernel that takes float32 to ``dtype`` on an engine."""

    def kernel(x):
        tile = nl.ndarray(x.shape, x.dtype, nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        short = nl.ndarray(x.shape, dtype, nl.sbuf)
        nisa.tensor_copy(dst=short, src=tile)
        out = nl.ndarray(x.shape, dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=short)
        return out

    return kernel


def run(kernel, *arrays, rounding="stochastic", rounding_seed=None, chip=None):
    simulated = neurosim.simulate(kernel, chip, rounding=rounding, rounding_seed=rounding_seed)
    return np.asarray(simulated(*arrays).outputs)


def test_small_steps_add_up_as_the_documentation_says():
    """1024 + 2048 · 0.5 in float16 stays 1024 to nearest even, and is about 2048 stochastically."""
    x = np.full((2, 16), 1024.0, np.float16)
    assert (run(counted, x, rounding="nearest") == 1024).all()
    ends = run(counted, x).astype(np.float64)
    assert abs(ends.mean() - 2048) < 5 * 0.5 * np.sqrt(2048 / ends.size)
    assert ends.std() > 0


@pytest.mark.parametrize("dtype", SHORT)
def test_every_short_format_has_two_neighbours_to_choose_from(dtype):
    x = np.full((4, 64), 1.0 + 2.0**-4 + 2.0**-12, np.float32)
    below, above = np.unique(run(copied(dtype), x).astype(np.float32))
    assert below < x[0, 0] < above
    assert above - below == ulp_of(below, dtype)


def test_one_seed_gives_one_result_and_another_another():
    x = np.random.default_rng(1).standard_normal((8, 32)).astype(np.float32)
    results = [run(copied(nl.bfloat16), x, rounding_seed=seed).view(np.uint16) for seed in (5, 5, 6, None, 0)]
    assert np.array_equal(results[0], results[1])
    assert not np.array_equal(results[0], results[2])
    assert np.array_equal(results[3], results[4])


def test_every_write_and_every_core_has_numbers_of_its_own():
    def kernel(x):
        tile = nl.ndarray(x.shape, x.dtype, nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        out = nl.ndarray((2, 2, *x.shape), nl.bfloat16, nl.shared_hbm)
        for index in range(2):
            short = nl.ndarray(x.shape, nl.bfloat16, nl.sbuf)
            nisa.tensor_copy(dst=short, src=tile)
            nisa.dma_copy(dst=out[nl.program_id(0), index], src=short)
        return out

    x = np.full((8, 32), 1.001, np.float32)
    simulated = neurosim.simulate(kernel, rounding="stochastic")[2]
    found = np.asarray(simulated(x).outputs).astype(np.float32).reshape(4, -1)
    assert len({row.tobytes() for row in found}) == 4
    assert np.array_equal(np.asarray(simulated(x).outputs).astype(np.float32).reshape(4, -1), found)


def test_a_write_that_needs_no_choice_takes_its_numbers_too():
    """What comes later does not depend on how a copy was carried out."""

    def kernel(x, scaled):
        tile, ones = (nl.ndarray(shape, nl.float32, nl.sbuf) for shape in (x.shape, (x.shape[0], 1)))
        nisa.dma_copy(dst=tile, src=x)
        nisa.memset(dst=ones, value=1.0)
        short, same, last = (nl.ndarray(x.shape, nl.bfloat16, nl.sbuf) for _ in range(3))
        nisa.memset(dst=short, value=1.5)
        nisa.activation(dst=same, op=nl.copy, data=short, scale=ones if scaled else 1.0)
        nisa.tensor_copy(dst=last, src=tile)
        out = nl.ndarray(x.shape, nl.bfloat16, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=last)
        return out

    x = np.full((8, 32), 1.001, np.float32)
    found = [
        np.asarray(neurosim.simulate(kernel, rounding="stochastic")(x, scaled).outputs) for scaled in (False, True)
    ]
    assert found[0].tobytes() == found[1].tobytes()


def test_what_needs_no_choice_is_as_it_is_to_nearest():
    """Integers, float32, exact values, DMA casts, Inf and NaN."""

    def kernel(x):
        tile = nl.ndarray(x.shape, x.dtype, nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        outs = []
        for dtype in (nl.int8, nl.float32):
            other = nl.ndarray(x.shape, dtype, nl.sbuf)
            nisa.tensor_copy(dst=other, src=tile)
            outs.append(nl.ndarray(x.shape, dtype, nl.shared_hbm))
            nisa.dma_copy(dst=outs[-1], src=other)
        outs.append(nl.ndarray(x.shape, nl.bfloat16, nl.shared_hbm))
        nisa.dma_copy(dst=outs[-1], src=x)
        return tuple(outs)

    x = np.concatenate([np.random.default_rng(2).uniform(-99, 99, 61), [np.inf, -np.inf, np.nan]])
    x = x.astype(np.float32).reshape(2, 32)
    found = [neurosim.simulate(kernel, rounding=rounding)(x).outputs for rounding in ("nearest", "stochastic")]
    assert all(one.tobytes() == other.tobytes() for one, other in zip(*found, strict=True))
    exact = np.array([[1.0, -2.5, 0.0, -0.0, np.inf, -np.inf, np.nan, 1.5]], np.float32)
    outputs = [run(copied(nl.bfloat16), exact, rounding=rounding) for rounding in ("nearest", "stochastic")]
    assert outputs[0].tobytes() == outputs[1].tobytes()


def test_sums_in_bfloat16_psum_round_so_and_casts_of_a_select_too():
    """The Trainium3 guide names both modes for PSUM; a predicated copy converts what it chooses."""

    def summed(x):
        tile = nl.ndarray(x.shape, x.dtype, nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        psum = nl.ndarray((x.shape[1], x.shape[1]), nl.bfloat16, nl.psum)
        nisa.nc_matmul(dst=psum, stationary=tile, moving=tile)
        out = nl.ndarray(psum.shape, nl.bfloat16, nl.shared_hbm)
        short = nl.ndarray(psum.shape, nl.bfloat16, nl.sbuf)
        nisa.tensor_copy(dst=short, src=psum)
        nisa.dma_copy(dst=out, src=short)
        return out

    def selected(x):
        tile = nl.ndarray(x.shape, x.dtype, nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        short = nl.ndarray(x.shape, nl.bfloat16, nl.sbuf)
        nisa.affine_select(short, [[1, x.shape[1]]], 0, tile, 0.0, nl.greater_equal, 0)
        out = nl.ndarray(x.shape, nl.bfloat16, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=short)
        return out

    x = np.random.default_rng(3).standard_normal((16, 24)).astype(np.float32)
    half = x.astype(nl.bfloat16)
    for kernel, array, chip in ((summed, half, "trn3"), (selected, x, "trn2")):
        nearest = run(kernel, array, rounding="nearest", chip=chip).astype(np.float32)
        found = run(kernel, array, chip=chip).astype(np.float32)
        assert not np.array_equal(found, nearest)
        np.testing.assert_allclose(found, nearest, rtol=2**-6)


def test_tiles_of_bfloat16_round_so_too():
    def kernel(x):
        tile = nl.ndarray(x.shape, x.dtype, nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.multiply)
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    x = np.random.default_rng(4).standard_normal((16, 24)).astype(nl.bfloat16)
    assert run(kernel, x).tobytes() != run(kernel, x, rounding="nearest").tobytes()


def test_the_environment_says_it_as_on_hardware(monkeypatch):
    x = np.full((4, 64), 1.001, np.float32)
    nearest = run(copied(nl.bfloat16), x, rounding=None).tobytes()
    assert nearest == run(copied(nl.bfloat16), x, rounding="nearest").tobytes()
    monkeypatch.setenv(ENABLE, "1")
    assert run(copied(nl.bfloat16), x, rounding=None).tobytes() == run(copied(nl.bfloat16), x).tobytes() != nearest
    assert run(copied(nl.bfloat16), x, rounding="nearest").tobytes() == nearest
    monkeypatch.setenv(SEED, "12")
    expected = run(copied(nl.bfloat16), x, rounding_seed=12).tobytes()
    assert run(copied(nl.bfloat16), x, rounding=None).tobytes() == expected
    assert np.asarray(nki.jit(copied(nl.bfloat16))(x)).tobytes() == expected
    for value in ("0", "false", ""):
        monkeypatch.setenv(ENABLE, value)
        assert run(copied(nl.bfloat16), x, rounding=None).tobytes() == nearest


def test_a_report_says_so():
    x = np.full((4, 64), 1.001, np.float32)
    result = neurosim.profile(copied(nl.bfloat16), rounding="stochastic", rounding_seed=9)(x)
    assert result.program.notes["Rounding"] == "stochastic, seed 9"
    assert "stochastic, seed 9" in result.report()
    result = neurosim.profile(copied(nl.bfloat16), rounding="stochastic", values=False)(x)
    assert "Rounding" not in result.program.notes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounding": "up"}, "rounding='up'"),
        ({"rounding": "stochastic", "rounding_seed": -1}, "rounding_seed=-1"),
        ({"rounding": "stochastic", "rounding_seed": 1 << 64}, "rounding_seed=1844"),
        ({"rounding": "stochastic", "rounding_seed": True}, "rounding_seed=True"),
        ({"rounding_seed": 3}, "rounds to nearest even"),
        ({"rounding": "nearest", "rounding_seed": 3}, "rounds to nearest even"),
        ({"rounding": "stochastic", "precise": False}, "nothing would be rounded"),
    ],
)
def test_what_no_run_could_round_by(options, message):
    with pytest.raises(IllegalOperand, match=message):
        neurosim.simulate(copied(nl.bfloat16), **options)(np.ones((2, 2), np.float32))


@pytest.mark.parametrize(("name", "value"), [(ENABLE, "yes"), (SEED, "x"), (SEED, "-1"), (SEED, str(1 << 64))])
def test_an_environment_that_says_nothing_known(monkeypatch, name, value):
    monkeypatch.setenv(ENABLE, "1")
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=f"{name}='{value}'"):
        neurosim.simulate(copied(nl.bfloat16))(np.ones((2, 2), np.float32))
