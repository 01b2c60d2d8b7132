"""``tensor_scalar_reduce``: the operation, the reduction, and the registers between calls."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from neurosim.errors import Uninitialized

SHAPE = (4, 12)
REDUCE = {
    "add": (np.add, 0),
    "multiply": (np.multiply, 1),
    "maximum": (np.maximum, -np.inf),
    "minimum": (np.minimum, np.inf),
}
cmd = nisa.reduce_cmd


def reducing(op0="multiply", operand0=0.5, reduce_op="add", dtype=nl.float32, res=nl.float32, **options):
    def body(data, *columns):
        made = nl.ndarray(data.shape, dtype, nl.sbuf)
        total = nl.ndarray((data.shape[0], 1), res, nl.sbuf)
        operand = columns[0] if columns else operand0
        nisa.tensor_scalar_reduce(made, data, getattr(nl, op0), operand, getattr(nl, reduce_op), total, **options)
        return made, total

    return body


def folded(op, values, start=None):
    """Reduce one element after the other, beginning with the identity or with ``start``."""
    combine, identity = REDUCE[op]
    state = np.full(len(values), identity, np.float32) if start is None else np.asarray(start, np.float32).reshape(-1)
    with np.errstate(all="ignore"):
        for column in values.T:
            state = combine(state, column).astype(np.float32)
    return state.reshape(-1, 1)


@pytest.mark.parametrize("op", REDUCE)
@pytest.mark.parametrize(("op0", "do"), [("multiply", np.multiply), ("subtract", np.subtract), ("less", np.less)])
def test_operation_and_reduction(machine, rng, op0, do, op):
    data = rng.standard_normal(SHAPE).astype(np.float32)
    values = do(data, np.float32(0.5)).astype(np.float32)
    got, total = machine.outputs(reducing(op0, 0.5, op), data)
    machine.assert_same(got, values)
    machine.assert_same(total, folded(op, values))


@pytest.mark.parametrize("operand", [None, 0, 0.0])
def test_unary_operators(machine, rng, operand):
    """The row's largest magnitude, as quantization needs it."""
    data = rng.standard_normal(SHAPE).astype(np.float32)
    got, total = machine.outputs(reducing("abs", operand, "maximum"), data)
    machine.assert_same(got, np.abs(data))
    machine.assert_same(total, np.abs(data).max(axis=1, keepdims=True))


def test_a_column(machine, rng):
    data, column = rng.standard_normal(SHAPE).astype(np.float32), rng.standard_normal((4, 1)).astype(np.float32)
    got, total = machine.outputs(reducing("greater_equal"), data, column)
    machine.assert_same(got, (data >= column).astype(np.float32))
    np.testing.assert_array_equal(total, (data >= column).sum(axis=1, keepdims=True))


@pytest.mark.parametrize("target", [np.float32, ml_dtypes.bfloat16, np.int8])
@pytest.mark.parametrize("source", [np.float32, ml_dtypes.bfloat16, np.int32])
def test_the_sum_is_taken_before_rounding(machine, rng, source, target):
    data = rng.integers(-50, 50, (4, 40)).astype(source)
    values = machine.single(data) * np.float32(0.3)
    got, total = machine.outputs(reducing(operand0=0.3, dtype=np.dtype(target), res=np.dtype(target)), data)
    machine.assert_same(got, machine.rounded(values, target))
    machine.assert_same(total, machine.rounded(folded("add", values), target))


def test_specials(machine, special):
    for op in REDUCE:
        _, total = machine.outputs(reducing("multiply", 1.0, op), special.reshape(1, -1))
        assert np.isnan(total).all()
    zeros = np.array([[0.0, -0.0]], np.float32)
    signs = {op: np.signbit(machine.outputs(reducing("multiply", 1.0, op), zeros)[1][0, 0]) for op in REDUCE}
    assert signs == {"add": False, "multiply": True, "maximum": False, "minimum": True}


def test_axes_are_reduced_together_and_views(machine, rng):
    data = rng.standard_normal(SHAPE).astype(np.float32)

    def body(out, data):
        made, total = out(SHAPE, nl.bfloat16), out((4, 1), nl.float32)
        nisa.tensor_scalar_reduce(made, data, nl.multiply, 0.3, nl.add, total)
        return made, total

    _, total = machine.same_from_views(body, data)
    machine.assert_same(total, folded("add", data * np.float32(0.3)))


def test_reset_reduce_is_the_default(machine, rng):
    data = rng.standard_normal(SHAPE).astype(np.float32)

    def body(data):
        made = nl.ndarray(SHAPE, nl.float32, nl.sbuf)
        totals = nl.ndarray((4, 2), nl.float32, nl.sbuf)
        for index in range(2):
            column = totals[:, index : index + 1]
            nisa.tensor_scalar_reduce(made, data, nl.multiply, 1.0, nl.add, column)
        return totals

    machine.assert_same(machine.outputs(body, data), np.repeat(folded("add", data), 2, axis=1))


@pytest.mark.parametrize("op", REDUCE)
def test_a_chain_keeps_its_result_in_the_registers(machine, rng, op):
    """NKI 0.6: only the last call passes ``reduce_res``."""
    data = rng.standard_normal((4, 36)).astype(np.float32)

    def body(data):
        made = nl.ndarray((4, 12), nl.float32, nl.sbuf)
        total = nl.ndarray((4, 1), nl.float32, nl.sbuf)
        for index in range(3):
            nisa.tensor_scalar_reduce(
                made,
                data[:, 12 * index : 12 * index + 12],
                nl.multiply,
                1.0,
                getattr(nl, op),
                reduce_res=total if index == 2 else None,
                reduce_cmd=cmd.reduce if index else cmd.reset_reduce,
            )
        return total

    machine.assert_same(machine.outputs(body, data), folded(op, data))


@pytest.mark.parametrize("tile", [False, True])
def test_load_reduce(machine, rng, tile):
    data = rng.standard_normal(SHAPE).astype(np.float32)
    start = rng.standard_normal((4, 1)).astype(np.float32)

    def body(data, start):
        made, total = nl.ndarray(SHAPE, nl.float32, nl.sbuf), nl.ndarray((4, 1), nl.float32, nl.sbuf)
        nisa.tensor_scalar_reduce(
            made, data, nl.multiply, 1.0, nl.add, total, reduce_cmd=cmd.load_reduce, reduce_init=start if tile else 3.5
        )
        return total

    machine.assert_same(machine.outputs(body, data, start), folded("add", data, start if tile else np.full(4, 3.5)))


def test_negation_is_written_and_not_kept(machine, rng):
    data = rng.standard_normal(SHAPE).astype(np.float32)

    def body(data):
        made = nl.ndarray(SHAPE, nl.float32, nl.sbuf)
        totals = nl.ndarray((4, 2), nl.float32, nl.sbuf)
        nisa.tensor_scalar_reduce(made, data, nl.multiply, 1.0, nl.maximum, totals[:, 0:1], reduce_res_negate=True)
        nisa.tensor_scalar_reduce(made, data, nl.multiply, 0.0, nl.maximum, totals[:, 1:2], reduce_cmd=cmd.reduce)
        return totals

    largest = data.max(axis=1, keepdims=True)
    machine.assert_same(machine.outputs(body, data), np.hstack([-largest, np.maximum(largest, np.float32(0))]))


def test_the_result_may_lie_in_the_destination(machine, rng):
    """It is written last: NKI 0.6 says so of ``activation``."""
    data = rng.standard_normal(SHAPE).astype(np.float32)

    def body(data):
        nisa.tensor_scalar_reduce(data, data, nl.multiply, 2.0, nl.add, data[:, 3:4])
        return data

    doubled = data * np.float32(2)
    expected = doubled.copy()
    expected[:, 3:4] = folded("add", doubled)
    machine.assert_same(machine.outputs(body, data), expected)


def test_registers_must_be_set_first(machine):
    ones = np.ones(SHAPE, np.float32)
    text = machine.refused(reducing(reduce_cmd=cmd.reduce), ones, error=Uninitialized)
    assert "the accumulator registers of the vector engine were never set" in text


def test_more_lanes_than_were_reset(machine):
    def body(data):
        made, total = nl.ndarray(SHAPE, nl.float32, nl.sbuf), nl.ndarray((4, 1), nl.float32, nl.sbuf)
        nisa.tensor_scalar_reduce(made[0:2], data[0:2], nl.multiply, 1.0, nl.add)
        nisa.tensor_scalar_reduce(made, data, nl.multiply, 1.0, nl.add, total, reduce_cmd=cmd.reduce)

    text = machine.refused(body, np.ones(SHAPE, np.float32), error=Uninitialized)
    assert "accumulator register 2 of the vector engine holds nothing known" in text


@pytest.mark.parametrize("where", ["data", "reduce_init"])
def test_holes(machine, where):
    def body(data, rows, columns):
        part, init = nl.ndarray(SHAPE, nl.float32, nl.sbuf), nl.ndarray((4, 1), nl.float32, nl.sbuf)
        nisa.memset(dst=part[0:2] if where == "data" else part, value=1.0)
        nisa.memset(dst=init[0:2] if where == "reduce_init" else init, value=1.0)
        nisa.memset(dst=part[:, 0:6], value=1.0)
        made, total = nl.ndarray(SHAPE, nl.float32, nl.sbuf), nl.ndarray((4, 1), nl.float32, nl.sbuf)
        nisa.tensor_scalar_reduce(
            made, part, nl.multiply, 1.0, nl.add, total, reduce_cmd=cmd.load_reduce, reduce_init=init
        )
        out, sums = nl.ndarray((4, columns), nl.float32, nl.sbuf), nl.ndarray((rows, 1), nl.float32, nl.sbuf)
        nisa.tensor_copy(dst=out, src=made[:, 0:columns])
        nisa.tensor_copy(dst=sums, src=total[0:rows])
        return out, sums

    data = np.ones((1, 1), np.float32)
    whole = 6 if where == "data" else 12
    machine.run(lambda data: body(data, 2, whole), data)
    with pytest.raises(Uninitialized, match=r"\[2:4, 0:1\]|\[2:3, 0:1\]"):
        machine.run(lambda data: body(data, 4, whole), data)


def test_a_hole_that_stays_in_the_registers_is_found_there(machine):
    """Only the lanes that it reached are unknown."""

    def body(data, rows):
        part, made = (nl.ndarray(SHAPE, nl.float32, nl.sbuf) for _ in range(2))
        total = nl.ndarray((rows, 1), nl.float32, nl.sbuf)
        nisa.memset(dst=part[0:2], value=1.0)
        nisa.memset(dst=part[:, 0:6], value=1.0)
        nisa.tensor_scalar_reduce(made, part, nl.multiply, 1.0, nl.add)
        nisa.tensor_scalar_reduce(made[0:rows], data[0:rows], nl.multiply, 1.0, nl.add, total, reduce_cmd=cmd.reduce)
        return total

    ones = np.ones(SHAPE, np.float32)
    np.testing.assert_array_equal(machine.outputs(lambda data: body(data, 2), ones), [[24], [24]])
    text = machine.refused(lambda data: body(data, 4), ones, error=Uninitialized)
    assert "accumulator register 2 of the vector engine holds nothing known" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"op0": "bitwise_and", "operand0": 1}, "op0=nl.bitwise_and is not an arithmetic operator"),
        ({"op0": "abs_min"}, "nl.abs_min needs NeuronCore-v4 (trn3)"),
        ({"op0": "square", "operand0": None}, "nl.square needs NeuronCore-v4 (trn3)"),
        ({"op0": "abs", "operand0": 2.0}, "nl.abs takes one side, and operand0 is given"),
        ({"operand0": None}, "nl.multiply needs operand0"),
        (
            {"reduce_op": "subtract"},
            "reduce_op=nl.subtract; it must be nl.add or nl.multiply or nl.maximum or nl.minimum",
        ),
        ({"reduce_cmd": cmd.idle}, "reduce_cmd=nisa.reduce_cmd.idle"),
        ({"reduce_cmd": 3}, "reduce_cmd=3"),
        ({"reduce_cmd": cmd.load_reduce}, "reduce_init=None with reduce_cmd.load_reduce"),
        ({"reduce_init": 1.0}, "reduce_init=1.0 with reduce_cmd.reset_reduce"),
        ({"reverse0": True}, "reverse0=True is not supported by NKI yet"),
    ],
)
def test_refuses(machine, options, message):
    assert f"tensor_scalar_reduce: {message}" in machine.refused(reducing(**options), np.ones(SHAPE, np.float32))


def test_refuses_tiles(machine):
    ones = np.ones(SHAPE, np.float32)
    half = np.ones((4, 1), ml_dtypes.bfloat16)
    assert "operand0 is bfloat16; it must be float32" in machine.refused(reducing(), ones, half)
    assert "nl.abs takes one side" in machine.refused(reducing("abs"), ones, np.zeros((4, 1), np.float32))

    def body(data, column, which):
        made, total = nl.ndarray(SHAPE, nl.float32, nl.sbuf), nl.ndarray((4, 1), nl.float32, nl.sbuf)
        call = {
            "dst": lambda: nisa.tensor_scalar_reduce(made[:, 0:6], data, nl.add, 1.0, nl.add, total),
            "res": lambda: nisa.tensor_scalar_reduce(made, data, nl.add, 1.0, nl.add, made),
            "init": lambda: nisa.tensor_scalar_reduce(
                made, data, nl.add, 1.0, nl.add, total, reduce_cmd=cmd.load_reduce, reduce_init=column
            ),
            "negate": lambda: nisa.tensor_scalar_reduce(made, data, nl.add, 1.0, nl.add, reduce_res_negate=True),
        }
        call[which]()

    for which, message in {
        "dst": "dst has 6 elements per partition and data has 12",
        "res": "reduce_res has 4 partitions of 12 elements",
        "init": "reduce_init is bfloat16; it must be float32",
        "negate": "reduce_res_negate without reduce_res",
    }.items():
        assert message in machine.refused(lambda data, column, w=which: body(data, column, w), ones, half)


def test_time(machine):
    """One element per cycle, and 64 cycles to read the registers where the result is written."""
    ones = np.ones((128, 512), np.float32)

    def chained(data):
        made = nl.ndarray((128, 512), nl.float32, nl.sbuf)
        nisa.tensor_scalar_reduce(made, data, nl.multiply, 1.0, nl.add)
        return made

    name = "tensor_scalar_reduce"
    assert machine.time(name, reducing(), ones)[0] == pytest.approx((60 + 512 + 64) / 0.96, rel=1e-3)
    assert machine.time(name, chained, ones)[0] == pytest.approx((60 + 512) / 0.96, rel=1e-3)
