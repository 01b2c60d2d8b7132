"""``exponential`` on Vector of NeuronCore-v4: exp(src - max), and its running sum in the registers."""

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
from neurosim.numerics import act

F = np.float32
cmd = nisa.reduce_cmd
TRN3 = {"chip": "trn3"}


def exponential(max_value=0.0, dtype=None, res=None, **options):
    """A body; a tile beside ``src`` is its maximum, and with ``res`` the sum is returned, too."""

    def body(src, *columns):
        made = nl.ndarray(src.shape, dtype or src.dtype, nl.sbuf)
        total = None if res is None else nl.ndarray((src.shape[0], 1), res, nl.sbuf)
        nisa.exponential(made, src, columns[0] if columns else max_value, reduce_res=total, **options)
        return made if res is None else (made, total)

    return body


def exact(src, maximum=0.0):
    with np.errstate(all="ignore"):
        return np.exp((src.astype(F) - np.asarray(maximum, F)).astype(np.float64))


def summed(values, start=0.0):
    """Add up rows one by one in float32, beginning with ``start``."""
    total = np.broadcast_to(np.asarray(start, F).reshape(-1, 1), (len(values), 1))[:, 0].astype(F)
    for column in values.T:
        total = (total + column).astype(F)
    return total.reshape(-1, 1)


@pytest.mark.parametrize("maximum", [0.0, 1.75, -3.0])
def test_values(machine, rng, maximum):
    """Within a unit in the last place of the exact exponential of the rounded difference."""
    src = (rng.standard_normal((16, 64)) * 8).astype(F)
    got = machine.outputs(exponential(maximum), src, **TRN3)
    expected = exact(src, maximum)
    assert np.abs(got - expected).max() <= np.abs(np.spacing(expected.astype(F))).max()
    assert np.allclose(got, expected, rtol=2.0**-22)


@pytest.mark.parametrize("command", [cmd.idle, cmd.load_reduce])
@pytest.mark.parametrize(("dst", "src"), [(0, 0), (1, 0), (0, 1)])
def test_operands_may_overlap(machine, rng, dst, src, command):
    """All is read before anything is written over it: also columns that lie in what is written."""
    before = rng.standard_normal((1, 12)).astype(F)

    def exponentials(tile, dst, src, column):
        total = None if command is cmd.idle else nl.ndarray((1, 1), F, nl.sbuf)
        first = {} if command is cmd.idle else {"reduce_init": column}
        nisa.exponential(dst, src, column, reduce_cmd=command, reduce_res=total, **first)
        return tile if total is None else (tile, total)

    def over(tile):
        return exponentials(tile, tile[:, dst : dst + 8], tile[:, src : src + 8], tile[:, dst + 3 : dst + 4])

    def apart(tile, operand, column):
        return exponentials(tile, tile[:, dst : dst + 8], operand, column)

    got = machine.outputs(over, before, **TRN3)
    other = machine.outputs(apart, before, before[:, src : src + 8], before[:, dst + 3 : dst + 4], **TRN3)
    for one, two in zip(
        (got,) if command is cmd.idle else got, (other,) if command is cmd.idle else other, strict=True
    ):
        machine.assert_same(one, two)


def test_registers_that_were_never_set_are_refused_each_time(machine, rng):
    """A call that was refused leaves nothing that a like call could go by."""
    src = rng.standard_normal((4, 8)).astype(F)

    def body(src):
        made, total = nl.ndarray(src.shape, F, nl.sbuf), nl.ndarray((4, 1), F, nl.sbuf)
        going_on = {"reduce_cmd": cmd.reduce, "reduce_res": total}
        for _ in range(3):
            with pytest.raises(Uninitialized, match="never set"):
                nisa.exponential(made, src, 0.0, **going_on)
        nisa.exponential(made, src, 0.0, reduce_cmd=cmd.reset_reduce)
        for _ in range(2):
            nisa.exponential(made, src, 0.0, **going_on)
        return made, total

    values, total = machine.outputs(body, src, **TRN3)
    machine.assert_same(total, summed(np.concatenate([values] * 3, axis=1)))


def test_is_the_scalar_engines_function(machine, rng):
    src, column = (rng.standard_normal(shape).astype(F) * 5 for shape in ((16, 64), (16, 1)))

    def body(tile, top):
        one, two = (nl.ndarray(tile.shape, nl.float32, nl.sbuf) for _ in range(2))
        negated = nl.ndarray(top.shape, nl.float32, nl.sbuf)
        nisa.tensor_scalar(dst=negated, data=top, op0=nl.multiply, operand0=-1.0)
        nisa.exponential(dst=one, src=tile, max_value=top)
        nisa.activation(dst=two, op=nl.exp, data=tile, bias=negated)
        return one, two

    machine.assert_same(*machine.outputs(body, src, column, **TRN3))


def test_special_values(machine, special):
    got = machine.outputs(exponential(), special[None], **TRN3)[0]
    for value, result in zip(special, got, strict=True):
        if np.isnan(value):
            assert np.isnan(result)
        elif abs(value) < 200:
            assert result == pytest.approx(np.exp(float(value)), rel=1e-6)
        else:
            assert result == (np.inf if value > 0 else 0)


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float16", "float8_e4m3", "float8_e5m2", "int8", "int16", "int32", "uint8", "uint16"]
)
def test_formats(machine, rng, dtype):
    src = (rng.standard_normal((8, 24)) * 2).astype(F)
    wide = machine.outputs(exponential(), src, **TRN3)
    got = machine.outputs(exponential(dtype=getattr(nl, dtype)), src, **TRN3)
    machine.assert_same(got, machine.rounded(wide, got.dtype))
    narrow = machine.rounded(src, got.dtype)
    from_narrow = machine.outputs(exponential(dtype=nl.float32), narrow, **TRN3)
    machine.assert_same(from_narrow, machine.outputs(exponential(), narrow.astype(F), **TRN3))


@pytest.mark.parametrize("res", [nl.float32, nl.bfloat16])
def test_sum(machine, rng, res):
    """Of float32 values, one by one, also where dst is narrower."""
    src = rng.standard_normal((16, 40)).astype(F)
    wide = machine.outputs(exponential(0.5), src, **TRN3)
    _, total = machine.outputs(exponential(0.5, nl.bfloat16, res, reduce_cmd=cmd.reset_reduce), src, **TRN3)
    machine.assert_same(total, machine.rounded(summed(wide), total.dtype))


@pytest.mark.parametrize("start", ["number", "column"])
def test_loads_a_start(machine, rng, start):
    src = rng.standard_normal((16, 40)).astype(F)
    column = rng.standard_normal((16, 1)).astype(F)

    def body(tile, init):
        made, total = nl.ndarray(tile.shape, nl.float32, nl.sbuf), nl.ndarray((16, 1), nl.float32, nl.sbuf)
        given = init if start == "column" else 2.5
        nisa.exponential(made, tile, 0.0, total, cmd.load_reduce, given)
        return made, total

    made, total = machine.outputs(body, src, column, **TRN3)
    machine.assert_same(total, summed(made, column if start == "column" else 2.5))


def test_a_chain(machine, rng):
    """The sum stays in the registers, and other instructions of Vector go on with it."""
    src = rng.standard_normal((16, 30)).astype(F)

    def body(tile):
        made, total = nl.ndarray(tile.shape, nl.float32, nl.sbuf), nl.ndarray((16, 1), nl.float32, nl.sbuf)
        nisa.exponential(made[:, 0:10], tile[:, 0:10], reduce_cmd=cmd.reset_reduce)
        nisa.exponential(made[:, 10:20], tile[:, 10:20], reduce_cmd=cmd.reduce)
        nisa.tensor_scalar_reduce(
            made[:, 20:30], tile[:, 20:30], nl.multiply, 2.0, nl.add, total, reduce_cmd=cmd.reduce
        )
        return made, total

    made, total = machine.outputs(body, src, **TRN3)
    machine.assert_same(total, summed(made))


def test_softmax(machine, rng):
    """The documentation's use of it."""
    src = (rng.standard_normal((128, 256)) * 4).astype(F)

    def body(tile):
        top, total, made = (nl.ndarray(shape, nl.float32, nl.sbuf) for shape in ((128, 1), (128, 1), tile.shape))
        nisa.tensor_reduce(dst=top, op=nl.maximum, data=tile, axis=1)
        nisa.exponential(made, tile, top, total, cmd.reset_reduce)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=made, data=made, op0=nl.multiply, operand0=total)
        return made

    got = machine.outputs(body, src, **TRN3)
    expected = np.exp(src.astype(np.float64) - src.max(axis=1, keepdims=True))
    assert np.allclose(got, expected / expected.sum(axis=1, keepdims=True), rtol=1e-5)


@given(
    data=st.lists(st.floats(-(2.0**60), 80, width=32), min_size=1, max_size=6),
    maximum=st.floats(-1, 2.0**60, width=32),
    start=st.none() | st.floats(-(2.0**20), 2.0**20, width=32),
)
def test_is_the_twin(data, maximum, start):
    def kernel(given):
        tile, total = nl.load(given), nl.ndarray((1, 1), nl.float32)
        options = (
            {"reduce_cmd": cmd.reset_reduce} if start is None else {"reduce_cmd": cmd.load_reduce, "reduce_init": start}
        )
        nisa.exponential(tile, tile, maximum, total, **options)
        outs = []
        for made in (tile, total):
            outs.append(nl.ndarray(made.shape, made.dtype, nl.shared_hbm))
            nisa.dma_copy(dst=outs[-1], src=made)
        return tuple(outs)

    src = np.array([data], F)
    made, total = neurosim.simulate(kernel, "trn3")(src).outputs
    running = F(0 if start is None else start)
    for value, result in zip(data, made[0], strict=True):
        expected = act.activate("exp", np.array([[F(value) - F(maximum)]], F))[0, 0]
        assert result == expected
        running = F(running + expected)
    assert total[0, 0] == running


def test_views(machine, rng):
    def body(out, src, column):
        made, total = out(src.shape, nl.bfloat16), out((16, 1), nl.float32)
        top = column.reshape((16, 1)) if column.ndim > 2 else column
        nisa.exponential(made, src, top, total, cmd.reset_reduce)
        return made, total

    machine.same_from_views(
        body, rng.standard_normal((16, 24)).astype(F), rng.standard_normal((16, 1)).astype(F), **TRN3
    )


def test_idle_leaves_nothing_known(machine):
    def body(src):
        made, total = nl.ndarray(src.shape, nl.float32, nl.sbuf), nl.ndarray((4, 1), nl.float32, nl.sbuf)
        nisa.exponential(made, src, reduce_cmd=cmd.reset_reduce)
        nisa.exponential(made, src)
        nisa.exponential(made, src, 0.0, total, cmd.reduce)

    assert "holds nothing known" in machine.refused(body, np.ones((4, 8), F), error=Uninitialized, **TRN3)


def test_holes():
    def kernel(given, rows):
        tile, made = nl.ndarray((4, 8), nl.float32, nl.sbuf), nl.ndarray((4, 8), nl.float32, nl.sbuf)
        total, out = nl.ndarray((4, 1), nl.float32, nl.sbuf), nl.ndarray((rows, 1), nl.float32, nl.shared_hbm)
        nisa.memset(dst=tile, value=0.0)
        nisa.memset(dst=tile[0:2], value=1.0)
        partial = nl.ndarray((4, 8), nl.float32, nl.sbuf)
        nisa.dma_copy(dst=partial[0:2], src=given[0:2])
        nisa.exponential(made, partial, 0.0, total, cmd.reset_reduce)
        nisa.dma_copy(dst=out, src=total[0:rows])
        return out

    zeros = np.zeros((4, 8), F)
    assert neurosim.simulate(kernel, "trn3")(zeros, 2).outputs.tolist() == [[8], [8]]
    with pytest.raises(Uninitialized):
        neurosim.simulate(kernel, "trn3")(zeros, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": nl.uint32}, "dst is uint32; it must be float8_e4m3"),
        ({"dtype": nl.bool_}, "dst is bool"),
        ({"res": nl.float32}, "reduce_res with reduce_cmd.idle, which does not reduce"),
        ({"reduce_cmd": cmd.reset}, "reduce_cmd=nisa.reduce_cmd.reset"),
        ({"reduce_cmd": cmd.reset_reduce, "res": nl.int32}, "reduce_res is int32"),
        ({"reduce_cmd": cmd.reset_reduce, "reduce_init": 1.0}, "reduce_init without reduce_cmd.load_reduce"),
    ],
)
def test_refuses(machine, options, message):
    assert f"exponential: {message}" in machine.refused(exponential(**options), np.ones((4, 8), F), **TRN3)


def test_refuses_older_chips_and_tiles(machine):
    ones, half = np.ones((4, 8), F), np.ones((4, 1), ml_dtypes.bfloat16)
    for chip in ("trn1", "trn2"):
        assert "needs NeuronCore-v4 (trn3)" in machine.refused(exponential(), ones, chip=chip)
    assert "max_value is bfloat16; it must be float32" in machine.refused(exponential(), ones, half, **TRN3)
    five = np.ones((4, 2, 2, 2, 2), F)
    assert "dst has 5 axes; it may have 4" in machine.refused(exponential(), five, **TRN3)


def test_time(machine):
    """Four elements per cycle, as documented; 64 cycles where the registers are read."""
    ones, column = np.ones((128, 512), F), np.ones((128, 1), F)
    time = lambda body, *arrays: machine.time("exponential", body, *arrays, **TRN3)[0]  # noqa: E731
    assert time(exponential(), ones) == pytest.approx((60 + 128) / 1.2, rel=1e-3)
    assert time(exponential(), ones, column) == pytest.approx((60 + 128 + 58) / 1.2, rel=1e-3)
    summing = exponential(res=nl.float32, reduce_cmd=cmd.reset_reduce)
    assert time(summing, ones) == pytest.approx((60 + 128 + 64) / 1.2, rel=1e-3)
