"""``range_select`` against the NumPy of its documentation."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from neurosim.devices import load_chip
from neurosim.errors import Uninitialized

SHAPE = (4, 12)
LOWEST = np.finfo(np.float32).min
COMPARE = {
    "equal": np.equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}
cmd = nisa.reduce_cmd


def ranging(op0="greater_equal", op1="less", dtype=None, res=nl.float32, **options):
    def body(tile, bound0, bound1):
        made = nl.ndarray(tile.shape, dtype or tile.dtype, nl.sbuf)
        largest = nl.ndarray((tile.shape[0], 1), res, nl.sbuf)
        nisa.range_select(made, tile, getattr(nl, op0), getattr(nl, op1), bound0, bound1, reduce_res=largest, **options)
        return made, largest

    return body


def bounds(*values):
    return [np.resize(np.array(value, np.float32), (SHAPE[0], 1)) for value in values]


def expected(tile, op0, op1, bound0, bound1, start=0):
    positions = np.broadcast_to((start + np.arange(tile.shape[1])).astype(np.float32), tile.shape)
    return np.where(COMPARE[op0](positions, bound0) & COMPARE[op1](positions, bound1), tile, LOWEST)


@pytest.mark.parametrize("op1", COMPARE)
@pytest.mark.parametrize("op0", COMPARE)
def test_documented_selection(machine, rng, op0, op1):
    tile = rng.standard_normal(SHAPE).astype(np.float32)
    low, high = bounds([0, 3, 5.5, -2], [9, 3, 7, np.nan])
    for start in (0, 4, -3):
        wanted = expected(tile, op0, op1, low, high, start)
        got, largest = machine.outputs(ranging(op0, op1, range_start=start), tile, low, high)
        machine.assert_same(got, wanted)
        machine.assert_same(largest, wanted.max(axis=1, keepdims=True))


@pytest.mark.parametrize(
    "dtype", [np.float32, ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2]
)
def test_the_fill_is_minus_infinity_in_shorter_floats(machine, rng, dtype):
    """As the manual's note on numerical stability says; float32 keeps FP32_MIN."""
    tile = rng.standard_normal(SHAPE).astype(dtype)
    low, high = bounds(2, [6, 6, 0, 6])
    got, largest = machine.outputs(ranging(res=np.dtype(dtype)), tile, low, high)
    wanted = expected(machine.single(tile), "greater_equal", "less", low, high)
    with np.errstate(all="ignore"):
        machine.assert_same(got, wanted.astype(dtype))
        machine.assert_same(largest, wanted.max(axis=1, keepdims=True).astype(dtype))
    assert np.isneginf(machine.single(got)[0, 0]) == (dtype != np.float32)
    assert machine.single(machine.outputs(ranging(), tile, low, high)[1])[2, 0] == LOWEST


def test_other_values_keep_their_rounding(machine):
    """A large value saturates in float8, and only FP32_MIN becomes -Inf."""
    tile = np.array([[1e9, -1e9, 3.3, 1.0]], np.float32)
    low, high = np.zeros((1, 1), np.float32), np.full((1, 1), 3, np.float32)
    got, _ = machine.outputs(ranging(dtype=nl.float8_e4m3), tile, low, high)
    np.testing.assert_array_equal(machine.single(got), [[240, -240, 3.25, -np.inf]])


def test_the_maximum_is_taken_before_rounding(machine, rng):
    tile = rng.standard_normal(SHAPE).astype(np.float32)
    low, high = bounds(0, 12)
    _, largest = machine.outputs(ranging(dtype=nl.bfloat16), tile, low, high)
    machine.assert_same(largest, tile.max(axis=1, keepdims=True))


def test_specials_pass_and_nan_wins(machine, special):
    tile = special.reshape(1, -1)
    low, high = np.zeros((1, 1), np.float32), np.full((1, 1), 99, np.float32)
    got, largest = machine.outputs(ranging(), tile, low, high)
    machine.assert_same(got, tile)
    assert np.isnan(largest).all()
    nans = np.full((1, 1), np.nan, np.float32)
    assert (machine.outputs(ranging(), tile, nans, high)[0] == LOWEST).all()


@pytest.mark.parametrize("value", [float(LOWEST), LOWEST, -3.4028235e38, -3.4028234663852886e38])
def test_the_one_false_value(machine, rng, value):
    tile = rng.standard_normal(SHAPE).astype(np.float32)
    got, _ = machine.outputs(ranging(on_false_value=value), tile, *bounds(0, 0))
    assert (got == LOWEST).all()


@pytest.mark.parametrize("psum", [{0}, {1, 2}, {0, 1, 2}])
def test_psum_and_free_axes(machine, rng, psum):
    tile = rng.standard_normal((4, 3, 4)).astype(np.float32)
    low, high = bounds(2, [5, 7, 9, 11])
    got, _ = machine.outputs(ranging(), tile, low, high, psum=psum)
    wanted = expected(tile.reshape(SHAPE), "greater_equal", "less", low, high)
    machine.assert_same(got.reshape(SHAPE), wanted)


def test_views(machine, rng):
    tile = rng.standard_normal(SHAPE).astype(np.float32)

    def body(out, tile, low, high):
        made, largest = out(SHAPE, nl.bfloat16), out((4, 1), nl.float32)
        nisa.range_select(made, tile, nl.greater, nl.less_equal, low, high, cmd.reset_reduce, largest)
        return made, largest

    machine.same_from_views(body, tile, *bounds(2, [5, 7, 9, 11]))


def test_a_chain_over_a_long_row(machine, rng):
    """The documented chain: reset at first, read at last."""
    tile = rng.standard_normal(SHAPE).astype(np.float32)
    low, high = bounds([0, 1, 8, 3], [12, 2, 10, 3])

    def body(tile, low, high):
        made, largest = nl.ndarray(SHAPE, nl.float32, nl.sbuf), nl.ndarray((4, 1), nl.float32, nl.sbuf)
        for index in range(3):
            part = slice(4 * index, 4 * index + 4)
            nisa.range_select(
                made[:, part],
                tile[:, part],
                nl.greater_equal,
                nl.less,
                low,
                high,
                reduce_cmd=cmd.reduce if index else cmd.reset_reduce,
                reduce_res=largest if index == 2 else None,
                range_start=4 * index,
            )
        return made, largest

    got, largest = machine.outputs(body, tile, low, high)
    wanted = expected(tile, "greater_equal", "less", low, high)
    machine.assert_same(got, wanted)
    machine.assert_same(largest, wanted.max(axis=1, keepdims=True))


def test_the_default_resets_and_idle_does_not_reduce(machine, rng):
    tile = rng.standard_normal(SHAPE).astype(np.float32)

    def body(tile, low, high, command):
        made, largest = nl.ndarray(SHAPE, nl.float32, nl.sbuf), nl.ndarray((4, 1), nl.float32, nl.sbuf)
        nisa.memset(dst=made, value=0.0)
        nisa.tensor_scalar_reduce(made, tile, nl.add, 1e6, nl.maximum)
        options = {} if command is None else {"reduce_cmd": command}
        nisa.range_select(made, tile, nl.less, nl.less, low, high, **options)
        nisa.range_select(made, tile, nl.less, nl.less, low, high, cmd.reduce, largest)
        return largest

    arrays = (tile, *bounds(99, 99))
    got = machine.outputs(lambda *tiles: body(*tiles, None), *arrays)
    machine.assert_same(got, tile.max(axis=1, keepdims=True))
    text = machine.refused(lambda *tiles: body(*tiles, cmd.idle), *arrays, error=Uninitialized)
    assert "holds nothing known" in text


def test_holes_travel_inside_the_range(machine):
    def body(low, high, columns, reduces):
        part, made = nl.ndarray(SHAPE, nl.float32, nl.sbuf), nl.ndarray(SHAPE, nl.float32, nl.sbuf)
        nisa.memset(dst=part[:, 0:8], value=1.0)
        largest = nl.ndarray((4, 1), nl.float32, nl.sbuf)
        nisa.range_select(
            made,
            part,
            nl.greater_equal,
            nl.less,
            low,
            high,
            cmd.reset_reduce if reduces else cmd.idle,
            largest if reduces else None,
        )
        again = nl.ndarray((4, columns), nl.float32, nl.sbuf)
        nisa.tensor_copy(dst=again, src=largest if reduces else made[:, 0:columns])
        return again

    inside, beyond = bounds(0, 8), bounds(0, 9)
    machine.run(lambda *b: body(*b, 12, False), *inside)
    machine.run(lambda *b: body(*b, 1, True), *inside)
    with pytest.raises(Uninitialized, match=r"\[0:4, 8:9\]"):
        machine.run(lambda *b: body(*b, 12, False), *beyond)
    with pytest.raises(Uninitialized, match=r"\[0:4, 0:1\]"):
        machine.run(lambda *b: body(*b, 1, True), *beyond)

    def kept(low, high):
        """The default resets and reduces, which does no harm where nobody asks for the maximum."""
        part, made = nl.ndarray(SHAPE, nl.float32, nl.sbuf), nl.ndarray(SHAPE, nl.float32, nl.sbuf)
        nisa.memset(dst=part[:, 0:8], value=1.0)
        nisa.range_select(made, part, nl.greater_equal, nl.less, low, high)
        nisa.range_select(made, part, nl.greater_equal, nl.less, low, low, cmd.reduce, low)

    assert "holds nothing known" in machine.refused(kept, *beyond, error=Uninitialized)


def test_a_hole_in_a_bound_raises_at_once(machine):
    def body(tile, low):
        high = nl.ndarray((4, 1), nl.float32, nl.sbuf)
        nisa.memset(dst=high[0:2], value=1.0)
        nisa.range_select(nl.ndarray(SHAPE, nl.float32, nl.sbuf), tile, nl.less, nl.less, low, high)

    text = machine.refused(body, np.ones(SHAPE, np.float32), np.ones((4, 1), np.float32), error=Uninitialized)
    assert "range_select: bound1" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"op0": "not_equal"}, "comp_op0=nl.not_equal; it must be nl.equal or nl.less or"),
        ({"op1": "add"}, "comp_op1=nl.add; it must be nl.equal or nl.less or"),
        ({"on_false_value": 0.0}, "on_false_value=0.0; the hardware has FP32_MIN only"),
        ({"on_false_value": float("-inf")}, "on_false_value=-inf; the hardware has FP32_MIN only"),
        ({"on_false_value": None}, "on_false_value=None; the hardware has FP32_MIN only"),
        ({"range_start": 1.0}, "range_start 1.0 is not an int"),
        ({"range_start": 2**24}, "positions 16777216 to 16777227 leave the ±2^24"),
        ({"range_start": -(2**24) - 1}, "positions -16777217 to -16777206 leave the ±2^24"),
        ({"reduce_op": nl.minimum}, "reduce_op=nl.minimum; it must be nl.maximum"),
        ({"reduce_cmd": cmd.load_reduce}, "reduce_cmd=nisa.reduce_cmd.load_reduce"),
        ({"reduce_cmd": cmd.reset}, "reduce_cmd=nisa.reduce_cmd.reset"),
        ({"reduce_cmd": cmd.idle}, "reduce_res with reduce_cmd.idle, which does not reduce"),
    ],
)
def test_refuses(machine, options, message):
    text = machine.refused(ranging(**options), np.ones(SHAPE, np.float32), *bounds(0, 1))
    assert f"range_select: {message}" in text


def test_refuses_tiles(machine):
    ones, (low, high) = np.ones(SHAPE, np.float32), bounds(0, 1)
    text = machine.refused(ranging(), ones.astype(np.int32), low, high)
    assert "on_true_tile is int32; it must be float32 or bfloat16 or" in text
    text = machine.refused(ranging(), ones, low.astype(ml_dtypes.bfloat16), high)
    assert "bound0 is bfloat16; it must be float32" in text
    assert "bound1 has 4 partitions of 12 elements" in machine.refused(ranging(), ones, low, ones)

    def numbers(tile):
        nisa.range_select(nl.ndarray(SHAPE, nl.float32, nl.sbuf), tile, nl.less, nl.less, 0.0, 1.0)

    assert "bound0 is 0.0 (float); it must be a tensor" in machine.refused(numbers, ones)

    def narrow(tile, low, high):
        nisa.range_select(nl.ndarray((4, 6), nl.float32, nl.sbuf), tile, nl.less, nl.less, low, high)

    assert "dst has 6 elements per partition and on_true_tile has 12" in machine.refused(narrow, ones, low, high)


def test_needs_trn2(machine):
    """Of the generations, NeuronCore-v2 lacks it."""
    older = load_chip("trn2").replace(chip__generation=2)
    text = machine.refused(ranging(), np.ones(SHAPE, np.float32), *bounds(0, 1), chip=older)
    assert "range_select: needs NeuronCore-v3 (trn2)" in text


def test_time(machine):
    """One element per cycle, and a fetch of 58 cycles for each bound."""
    column = np.ones((128, 1), np.float32)
    busy, _ = machine.time("range_select", ranging(), np.ones((128, 512), np.float32), column, column)
    assert busy == pytest.approx((60 + 512 + 2 * 58) / 0.96, rel=1e-3)
