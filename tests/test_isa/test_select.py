"""``affine_select`` against the loops of its documentation."""

from __future__ import annotations

import re

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from neurosim.engines import Engine

COMPARE = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}


def selector(dtype=None, **options):
    def body(tile):
        made = nl.ndarray(tile.shape, dtype or tile.dtype, nl.sbuf)
        nisa.affine_select(dst=made, on_true_tile=tile, **options)
        return made

    return body


@pytest.mark.parametrize("name", COMPARE)
@pytest.mark.parametrize(
    ("pattern", "offset", "multiplier"),
    [([[-1, 12]], 0, 1), ([[4, 3], [1, 4]], -6, 0), ([[-1, 12]], 5, -2)],
)
def test_documented_loops(machine, rng, name, pattern, offset, multiplier):
    array = rng.standard_normal((8, 12)).astype(np.float32)
    options = {"pattern": pattern, "offset": offset, "channel_multiplier": multiplier, "on_false_value": -9.5}
    got = machine.outputs(selector(cmp_op=getattr(nl, name), **options), array)
    free = np.array([0])
    for step, count in pattern:
        free = (free[:, None] + step * np.arange(count)).ravel()
    affine = offset + multiplier * np.arange(8)[:, None] + free
    machine.assert_same(got, np.where(COMPARE[name](affine, 0), array, np.float32(-9.5)))


def test_default_comparison_is_equal(machine):
    array = np.ones((4, 4), np.float32)
    got = machine.outputs(selector(pattern=[[-1, 4]], channel_multiplier=1, on_false_value=0.0), array)
    np.testing.assert_array_equal(got, np.eye(4, dtype=np.float32))


def test_causal_mask(machine, rng):
    """Row i keeps columns up to i."""
    scores = rng.standard_normal((128, 512)).astype(np.float32)
    options = {"pattern": [[-1, 512]], "channel_multiplier": 1, "offset": 200, "cmp_op": nl.greater_equal}
    got = machine.outputs(selector(on_false_value=-1e30, **options), scores)
    keep = np.arange(512) <= np.arange(128)[:, None] + 200
    np.testing.assert_array_equal(got, np.where(keep, scores, np.float32(-1e30)))


@pytest.mark.parametrize("source", [np.float32, ml_dtypes.bfloat16, np.int32, np.uint8])
@pytest.mark.parametrize("target", [nl.float32, nl.bfloat16, nl.float8_e4m3, nl.int32, nl.int8])
def test_dtypes(machine, rng, source, target):
    """Equal dtypes copy bits; others go through float32, as the float32 on_false_value does."""
    array = rng.integers(0, 200, (4, 8)).astype(source)
    got = machine.outputs(selector(target, pattern=[[-1, 8]], channel_multiplier=1, on_false_value=2.5), array)
    chosen = array if target.numpy == array.dtype else machine.rounded(array.astype(np.float32), target.numpy)
    false = machine.rounded(np.full(array.shape, 2.5, np.float32), target.numpy)
    machine.assert_same(got, np.where(np.eye(4, 8, dtype=bool), chosen, false))


def test_bits_of_the_tile_survive(machine):
    raw = np.array([[0x7F800001, 0xFFC12345, 0x80000000, 2**24 + 1]], np.uint32)
    options = {"pattern": [[0, 4]], "channel_multiplier": 0, "on_false_value": 0.0}
    got = machine.outputs(selector(**options), raw.view(np.float32))
    np.testing.assert_array_equal(got.view(np.uint32), raw)
    np.testing.assert_array_equal(machine.outputs(selector(**options), raw), raw)


def test_specials_as_false_value(machine):
    array = np.ones((2, 2), np.float32)
    for value in (np.inf, -np.inf, np.nan, -0.0):
        got = machine.outputs(selector(pattern=[[-1, 2]], channel_multiplier=1, on_false_value=value), array)
        machine.assert_same(got, np.where(np.eye(2, dtype=bool), array, np.float32(value)))


def test_in_place(machine):
    array = np.arange(16, dtype=np.float32).reshape(4, 4)

    def body(tile):
        nisa.affine_select(
            dst=tile, pattern=[[-1, 4]], channel_multiplier=1, on_true_tile=tile, on_false_value=0.0, cmp_op=nl.less
        )
        return tile

    np.testing.assert_array_equal(machine.outputs(body, array), np.triu(array, 1))


def test_runs_on_gpsimd(machine):
    body = selector(pattern=[[-1, 4]], channel_multiplier=1, on_false_value=0.0)
    program = machine.run(body, np.ones((4, 4), np.float32)).program
    assert program.record(1).signature.engine is Engine.gpsimd


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pattern": [[1, 3]]}, "pattern makes 3 elements and dst has 4 per partition"),
        ({"cmp_op": nl.add}, "cmp_op nl.add is no comparison"),
        ({"cmp_op": "equal"}, "cmp_op 'equal' is no comparison"),
        ({"on_false_value": "0"}, "on_false_value '0' is not a number"),
        ({"channel_multiplier": 1.5}, "channel_multiplier 1.5 is not an int32"),
    ],
)
def test_refuses(machine, options, message):
    options = {"pattern": [[-1, 4]], "channel_multiplier": 1, "on_false_value": 0.0} | options
    assert re.search(f"affine_select: {message}", machine.refused(selector(**options), np.ones((4, 4), np.float32)))


def test_refuses_psum_and_other_extents(machine):
    array = np.ones((4, 4), np.float32)
    body = selector(pattern=[[-1, 4]], channel_multiplier=1, on_false_value=0.0)
    assert "on_true_tile is in PSUM; it must be in SBUF" in machine.refused(body, array, psum={0})

    def wrong(tile):
        made = nl.ndarray((4, 8), tile.dtype, nl.sbuf)
        nisa.affine_select(dst=made, pattern=[[-1, 8]], channel_multiplier=1, on_true_tile=tile, on_false_value=0.0)

    assert "dst has 8 elements per partition and on_true_tile has 4" in machine.refused(wrong, array)
