"""``reciprocal``: 1 / x in float32."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from neurosim.engines import Engine


def inverter(dtype=None, buffer=nl.sbuf, shape=None):
    def body(tile):
        made = nl.ndarray(shape or tile.shape, dtype or tile.dtype, buffer)
        nisa.reciprocal(dst=made, data=tile)
        return made

    return body


@pytest.mark.parametrize("psum", [(), {0}])
def test_is_correctly_rounded(machine, rng, special, psum):
    data = (rng.standard_normal((16, 200)) * np.exp2(rng.integers(-120, 120, (16, 200)))).astype(np.float32)
    data[0, : special.size] = special
    with np.errstate(all="ignore"):
        expected = np.float32(1) / data
    machine.assert_same(machine.outputs(inverter(), data, psum=psum), expected)


@pytest.mark.parametrize("source", [ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3, np.int32, np.uint8])
@pytest.mark.parametrize("target", [nl.float32, nl.bfloat16, nl.float8_e5m2])
def test_widens_and_rounds_once(machine, rng, source, target):
    data = rng.integers(1, 100, (8, 32)).astype(np.float32).astype(source)
    expected = np.float32(1) / machine.single(data)
    machine.assert_same(machine.outputs(inverter(target), data), machine.rounded(expected, target.numpy))


def test_in_place_and_into_psum(machine, rng):
    data = rng.uniform(1, 2, (4, 8)).astype(np.float32)

    def body(tile):
        nisa.reciprocal(dst=tile[:, ::2], data=tile[:, ::2])
        return tile

    expected = data.copy()
    expected[:, ::2] = np.float32(1) / data[:, ::2]
    machine.assert_same(machine.outputs(body, data), expected)
    machine.assert_same(machine.outputs(inverter(buffer=nl.psum), data), np.float32(1) / data)


def test_runs_on_vector(machine):
    program = machine.run(inverter(), np.ones((4, 8), np.float32)).program
    assert program.record(1).signature.engines == {Engine.vector}


def test_refuses_other_extents(machine):
    data = np.ones((4, 8), np.float32)
    assert "dst has 6 elements per partition and data has 8" in machine.refused(inverter(shape=(4, 6)), data)
    assert "dst has 8 partitions and data has 4" in machine.refused(inverter(shape=(8, 8)), data)
