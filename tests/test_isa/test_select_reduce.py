"""``select_reduce``: what is selected, its maximum, and the registers between calls."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from neurosim.errors import Uninitialized

SHAPE = (4, 12)
LOWEST = float(np.finfo(np.float32).min)
cmd = nisa.reduce_cmd


def selecting(on_false=-7.5, dtype=None, res=None, **options):
    """Return a body (predicate, on_true[, on_false]) that returns the selection, and its maximum with ``res``."""

    def body(predicate, on_true, *columns):
        made = nl.ndarray(on_true.shape, dtype or on_true.dtype, nl.sbuf)
        other = columns[0] if columns else on_false
        if res is None:
            nisa.select_reduce(made, predicate, on_true, other, **options)
            return made
        largest = nl.ndarray((on_true.shape[0], 1), res, nl.sbuf)
        nisa.select_reduce(made, predicate, on_true, other, largest, cmd.reset_reduce, **options)
        return made, largest

    return body


def operands(rng, predicate=np.uint8, dtype=np.float32):
    chosen = rng.integers(0, 2, SHAPE) * rng.integers(1, 100, SHAPE)
    return chosen.astype(predicate), rng.integers(-100, 100, SHAPE).astype(dtype)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("predicate", [np.uint8, np.int8, np.uint16, np.int16])
def test_selection_and_maximum(machine, rng, predicate, reverse):
    chosen, on_true = operands(rng, predicate)
    expected = np.where((chosen != 0) != reverse, on_true, np.float32(-7.5))
    got, largest = machine.outputs(selecting(res=nl.float32, reverse_pred=reverse), chosen, on_true)
    machine.assert_same(got, expected)
    machine.assert_same(largest, expected.max(axis=1, keepdims=True))
    machine.assert_same(machine.outputs(selecting(reverse_pred=reverse), chosen, on_true), expected)


@pytest.mark.parametrize("target", [np.float32, ml_dtypes.bfloat16, np.int8])
@pytest.mark.parametrize("source", [np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3, np.int8, np.uint16])
def test_dtypes_and_a_maximum_before_rounding(machine, rng, source, target):
    chosen, on_true = operands(rng, dtype=np.float32)
    on_true = np.abs(on_true).astype(source)
    expected = np.where(chosen != 0, machine.single(on_true), np.float32(100.3))
    got, largest = machine.outputs(selecting(100.3, np.dtype(target), nl.float32), chosen, on_true)
    machine.assert_same(got, machine.rounded(expected, target))
    machine.assert_same(largest, expected.max(axis=1, keepdims=True))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_a_column_of_false_values(machine, rng, dtype):
    chosen, on_true = operands(rng)
    on_false = rng.standard_normal((4, 1)).astype(dtype)
    got = machine.outputs(selecting(), chosen, on_true, on_false)
    machine.assert_same(got, np.where(chosen != 0, on_true, machine.single(on_false)))


def test_the_maximum_of_a_masked_row(machine, rng):
    chosen, on_true = operands(rng)
    chosen[1] = 0
    _, largest = machine.outputs(selecting(LOWEST, res=nl.float32), chosen, on_true)
    assert largest[1, 0] == np.float32(LOWEST)
    _, largest = machine.outputs(selecting(LOWEST, res=nl.bfloat16), chosen, on_true)
    assert largest[1, 0] == -np.inf


def test_specials(machine, special):
    """NaN wins, and +0 is above -0, as in every maximum."""
    chosen = np.ones((1, len(special)), np.uint8)
    got, largest = machine.outputs(selecting(res=nl.float32), chosen, special.reshape(1, -1))
    machine.assert_same(got, special.reshape(1, -1))
    assert np.isnan(largest).all()
    zeros = np.array([[-0.0, 0.0, -0.0]], np.float32)
    _, largest = machine.outputs(selecting(res=nl.float32), np.ones((1, 3), np.uint8), zeros)
    assert not np.signbit(largest[0, 0])


@pytest.mark.parametrize("psum", [{0}, {1}, {2}, {1, 2}])
def test_psum(machine, rng, psum):
    chosen, on_true = operands(rng)
    on_false = np.ones((4, 1), np.float32)
    got, largest = machine.outputs(selecting(res=nl.float32), chosen, on_true, on_false, psum=psum)
    expected = np.where(chosen != 0, on_true, np.float32(1))
    machine.assert_same(got, expected)
    machine.assert_same(largest, expected.max(axis=1, keepdims=True))


def test_views(machine, rng):
    chosen, on_true = operands(rng)

    def body(out, predicate, on_true, on_false):
        made, largest = out(SHAPE, nl.bfloat16), out((4, 1), nl.float32)
        nisa.select_reduce(made, predicate, on_true, on_false, largest, cmd.reset_reduce)
        return made, largest

    machine.same_from_views(body, chosen, on_true, np.ones((4, 1), np.float32))


def test_a_chain(machine, rng):
    chosen, on_true = operands(rng)

    def body(predicate, on_true):
        made = nl.ndarray(SHAPE, nl.float32, nl.sbuf)
        largest = nl.ndarray((4, 1), nl.float32, nl.sbuf)
        for index in range(3):
            part = slice(4 * index, 4 * index + 4)
            nisa.select_reduce(
                made[:, part],
                predicate[:, part],
                on_true[:, part],
                LOWEST,
                reduce_res=largest if index == 2 else None,
                reduce_cmd=cmd.reduce if index else cmd.reset_reduce,
            )
        return largest

    expected = np.where(chosen != 0, on_true, np.float32(LOWEST)).max(axis=1, keepdims=True)
    machine.assert_same(machine.outputs(body, chosen, on_true), expected)


def test_idle_leaves_the_registers_unknown(machine, rng):
    """Also after a reset, and for the other instructions that share them."""

    def body(predicate, on_true, other):
        made, largest = nl.ndarray(SHAPE, nl.float32, nl.sbuf), nl.ndarray((4, 1), nl.float32, nl.sbuf)
        nisa.select_reduce(made, predicate, on_true, 0.0, reduce_cmd=cmd.reset_reduce)
        nisa.select_reduce(made, predicate, on_true, 0.0)
        if other:
            nisa.tensor_scalar_reduce(made, on_true, nl.add, 1.0, nl.add, largest, reduce_cmd=cmd.reduce)
        else:
            nisa.select_reduce(made, predicate, on_true, 0.0, largest, cmd.reduce)

    chosen, on_true = operands(rng)
    for other in (False, True):
        text = machine.refused(lambda p, t, o=other: body(p, t, o), chosen, on_true, error=Uninitialized)
        assert "accumulator register 0 of the vector engine holds nothing known" in text
        assert "reset after reduce_cmd.idle" in text


def test_instructions_share_the_registers(machine, rng):
    """A maximum that tensor_scalar_reduce began goes on here."""
    chosen, on_true = operands(rng)

    def body(predicate, on_true):
        made, largest = nl.ndarray(SHAPE, nl.float32, nl.sbuf), nl.ndarray((4, 1), nl.float32, nl.sbuf)
        nisa.tensor_scalar_reduce(made, on_true, nl.add, 1.0, nl.maximum)
        nisa.select_reduce(made, predicate, on_true, LOWEST, largest, cmd.reduce)
        return largest

    machine.assert_same(machine.outputs(body, chosen, on_true), on_true.max(axis=1, keepdims=True) + np.float32(1))


def test_holes_travel_from_the_chosen_side(machine):
    def body(predicate, on_true_hole, columns):
        full, part = nl.ndarray(SHAPE, nl.float32, nl.sbuf), nl.ndarray((4, 1), nl.float32, nl.sbuf)
        nisa.memset(dst=full[:, 0:10] if on_true_hole else full, value=3.0)
        nisa.memset(dst=part[0:2] if not on_true_hole else part, value=2.0)
        made = nl.ndarray(SHAPE, nl.float32, nl.sbuf)
        nisa.select_reduce(made, predicate, full, part)
        again = nl.ndarray((4, columns), nl.float32, nl.sbuf)
        nisa.tensor_copy(dst=again, src=made[:, 0:columns])
        return again

    chosen = np.ones(SHAPE, np.uint8)
    np.testing.assert_array_equal(machine.outputs(lambda p: body(p, False, 12), chosen), np.full(SHAPE, 3))
    with pytest.raises(Uninitialized, match=r"\[0:4, 10:12\]"):
        machine.run(lambda p: body(p, True, 12), chosen)
    np.testing.assert_array_equal(machine.outputs(lambda p: body(p, True, 12), 0 * chosen), np.full(SHAPE, 2))
    with pytest.raises(Uninitialized, match=r"\[2:4, 0:12\]"):
        machine.run(lambda p: body(p, False, 12), 0 * chosen)


def test_holes_and_the_maximum(machine):
    def body(predicate, rows):
        full = nl.ndarray(SHAPE, nl.float32, nl.sbuf)
        nisa.memset(dst=full[0:2], value=3.0)
        nisa.memset(dst=full[:, 0:4], value=3.0)
        made, largest = nl.ndarray(SHAPE, nl.float32, nl.sbuf), nl.ndarray((4, 1), nl.float32, nl.sbuf)
        nisa.select_reduce(made, predicate, full, 0.0, largest, cmd.reset_reduce)
        again = nl.ndarray((rows, 1), nl.float32, nl.sbuf)
        nisa.tensor_copy(dst=again, src=largest[0:rows])
        return again

    chosen = np.ones(SHAPE, np.uint8)
    machine.run(lambda p: body(p, 2), chosen)
    with pytest.raises(Uninitialized, match=r"\[2:4, 0:1\]"):
        machine.run(lambda p: body(p, 4), chosen)


@pytest.mark.parametrize("chosen", [0, 1])
def test_a_later_reduce_knows_of_the_hole(machine, chosen):
    """If it was on the side that was chosen."""

    def body(predicate):
        full, made = (nl.ndarray(SHAPE, nl.float32, nl.sbuf) for _ in range(2))
        nisa.memset(dst=full[:, 0:11], value=3.0)
        largest = nl.ndarray((4, 1), nl.float32, nl.sbuf)
        nisa.select_reduce(made, predicate, full, 0.0, largest, cmd.reset_reduce)
        nisa.select_reduce(made[:, 0:4], predicate[:, 0:4], full[:, 0:4], 0.0, largest, cmd.reduce)
        return largest

    predicate = np.full(SHAPE, chosen, np.uint8)
    if chosen:
        text = machine.refused(body, predicate, error=Uninitialized)
        assert "accumulator register 0 of the vector engine holds nothing known" in text
    else:
        np.testing.assert_array_equal(machine.outputs(body, predicate), np.zeros((4, 1)))


def test_a_hole_in_the_predicate_raises_at_once(machine):
    def body(on_true):
        predicate = nl.ndarray(SHAPE, nl.uint8, nl.sbuf)
        nisa.memset(dst=predicate[:, 0:6], value=0)
        nisa.select_reduce(nl.ndarray(SHAPE, nl.float32, nl.sbuf), predicate, on_true, 0.0)

    assert "select_reduce: predicate" in machine.refused(body, np.ones(SHAPE, np.float32), error=Uninitialized)


@pytest.mark.parametrize(
    ("body", "predicate", "on_true", "message"),
    [
        (
            selecting(),
            (SHAPE, np.uint32),
            (SHAPE, np.float32),
            "predicate is uint32; it must be int8 or uint8 or int16",
        ),
        (selecting(), ((4, 6), np.uint8), (SHAPE, np.float32), "dst has 12 elements per partition and predicate has 6"),
        (selecting(), (SHAPE, np.uint8), (SHAPE, np.int32), "on_true is int32, which select_reduce does not take"),
        (selecting(), (SHAPE, np.uint8), (SHAPE, np.uint32), "on_true is uint32, which select_reduce does not take"),
        (selecting(res=nl.int32), (SHAPE, np.uint8), (SHAPE, np.float32), "reduce_res is int32; it must be float32 or"),
        (
            selecting(None),
            (SHAPE, np.uint8),
            (SHAPE, np.float32),
            "on_false is None (NoneType); it must be a tensor or",
        ),
        (
            selecting(reduce_op=nl.add),
            (SHAPE, np.uint8),
            (SHAPE, np.float32),
            "reduce_op=nl.add; it must be nl.maximum",
        ),
        (
            selecting(reduce_cmd=cmd.load_reduce),
            (SHAPE, np.uint8),
            (SHAPE, np.float32),
            "reduce_cmd=nisa.reduce_cmd.load_reduce",
        ),
    ],
)
def test_refuses(machine, body, predicate, on_true, message):
    arrays = np.ones(predicate[0], predicate[1]), np.ones(on_true[0], on_true[1])
    assert f"select_reduce: {message}" in machine.refused(body, *arrays)


def test_refuses_tiles(machine):
    chosen, ones = np.ones(SHAPE, np.uint8), np.ones(SHAPE, np.float32)
    assert "on_true and predicate are both in PSUM" in machine.refused(selecting(), chosen, ones, psum={0, 1})
    assert "on_false has 4 partitions of 12 elements" in machine.refused(selecting(), chosen, ones, ones)

    def idle(predicate, on_true):
        made, largest = nl.ndarray(SHAPE, nl.float32, nl.sbuf), nl.ndarray((4, 1), nl.float32, nl.sbuf)
        nisa.select_reduce(made, predicate, on_true, 0.0, largest)

    assert "reduce_res with reduce_cmd.idle, which does not reduce" in machine.refused(idle, chosen, ones)

    def wide(predicate, on_true):
        made = nl.ndarray(SHAPE, nl.float32, nl.sbuf)
        nisa.select_reduce(made, predicate, on_true, 0.0, made, cmd.reset_reduce)

    assert "reduce_res has 4 partitions of 12 elements" in machine.refused(wide, chosen, ones)

    def narrow(predicate, on_true):
        nisa.select_reduce(nl.ndarray((4, 6), nl.float32, nl.sbuf), predicate, on_true, 0.0)

    assert "dst has 6 elements per partition and on_true has 12" in machine.refused(narrow, chosen, ones)


def test_time(machine):
    """One element per cycle (assumed), and 58 cycles for a column."""
    chosen, ones = np.ones((128, 512), np.uint8), np.ones((128, 512), np.float32)
    assert machine.time("select_reduce", selecting(), chosen, ones)[0] == pytest.approx(572 / 0.96, rel=1e-3)
    column = np.ones((128, 1), np.float32)
    assert machine.time("select_reduce", selecting(), chosen, ones, column)[0] == pytest.approx(630 / 0.96, rel=1e-3)


def test_refuses_tfloat32(machine):
    def body(predicate):
        tile = nl.full(predicate.shape, 1.0, nl.tfloat32)
        nisa.select_reduce(nl.ndarray(predicate.shape, nl.float32), predicate, tile, 0.0)

    message = machine.refused(body, np.ones(SHAPE, np.uint8))
    assert "on_true is tfloat32, which select_reduce does not take" in message
