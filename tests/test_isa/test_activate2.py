"""``activate2`` on Scalar of NeuronCore-v4: two operations, a function, a reduction."""

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
PAIRS = [
    ("multiply", "add"),
    ("multiply", "subtract"),
    ("multiply", "bypass"),
    ("add", "bypass"),
    ("subtract", "bypass"),
    ("bypass", "bypass"),
]
OPS = {"multiply": np.multiply, "add": np.add, "subtract": np.subtract}


def larger(running, value):
    return running if abs(running) > abs(value) else value


def smaller(running, value):
    return running if abs(running) < abs(value) else value


REDUCTIONS = {
    "add": (lambda running, value: F(running + value), 0),
    "maximum": (max, -np.inf),
    "minimum": (min, np.inf),
    "abs_max": (larger, 0),
    "abs_min": (smaller, np.inf),
}


def activated(op="copy", imm0=2.0, imm1=0.5, op0="multiply", op1="add", dtype=None, res=None, **options):
    """A body; tiles beside ``data`` are ``imm0``, ``imm1`` and ``relu_param``, in this order."""

    def body(data, *columns):
        made = nl.ndarray(data.shape, dtype or data.dtype, nl.sbuf)
        total = None if res is None else nl.ndarray((data.shape[0], 1), res, nl.sbuf)
        given = dict(zip(("imm0", "imm1", "relu_param"), columns, strict=False))
        operands = {"imm0": imm0, "imm1": imm1, **options, **given}
        if "reduce_op" in operands:
            operands["reduce_op"] = getattr(nl, operands["reduce_op"])
        ops = {"op": getattr(nl, op), "op0": getattr(nl, op0), "op1": getattr(nl, op1)}
        nisa.activate2(dst=made, data=data, reduce_res=total, **ops, **operands)
        return made if res is None else (made, total)

    return body


def staged(data, op0, op1, imm0, imm1, reverse0=False, reverse1=False):
    """Return the argument of the function, each step rounded to float32."""
    value = data.astype(F)
    for op, imm, reverse in ((op0, imm0, reverse0), (op1, imm1, reverse1)):
        if op != "bypass":
            sides = (F(imm), value) if reverse else (value, F(imm))
            value = OPS[op](*sides).astype(F)
    return value


def folded(op, values, start=None):
    """Reduce rows one element after the other, beginning with the identity or ``start``."""
    step, identity = REDUCTIONS[op]
    rows = []
    for row, values_of_row in enumerate(values):
        running = F(identity if start is None else start[row, 0])
        for value in values_of_row:
            running = step(running, value)
        rows.append([running])
    return np.array(rows, F)


@pytest.mark.parametrize(("op0", "op1"), PAIRS)
@pytest.mark.parametrize("reverse", [(False, False), (True, False), (False, True), (True, True)])
def test_the_six_pairs(machine, rng, op0, op1, reverse):
    if (reverse[0] and op0 == "bypass") or (reverse[1] and op1 == "bypass"):
        return
    data = rng.standard_normal((16, 24)).astype(F)
    options = {"op0": op0, "op1": op1, "reverse0": reverse[0], "reverse1": reverse[1]}
    got = machine.outputs(activated(imm0=1.7, imm1=-0.3, **options), data, **TRN3)
    machine.assert_same(got, staged(data, imm0=1.7, imm1=-0.3, **options))


@pytest.mark.parametrize("op", ["exp", "gelu", "silu", "sigmoid", "relu", "square", "tanh"])
def test_functions_are_those_of_activation(machine, rng, op):
    data = rng.standard_normal((16, 24)).astype(F)

    def body(tile):
        made = nl.ndarray(tile.shape, nl.float32, nl.sbuf)
        nisa.activation(dst=made, op=getattr(nl, op), data=tile, scale=2.0, bias=0.5)
        return activated(op)(tile), made

    machine.assert_same(*machine.outputs(body, data, **TRN3))


def test_columns(machine, rng):
    data, imm0, imm1 = (rng.standard_normal(shape).astype(F) for shape in ((16, 24), (16, 1), (16, 1)))
    for op1 in ("add", "subtract"):
        got = machine.outputs(activated("tanh", op1=op1, reverse1=True), data, imm0, imm1, **TRN3)
        value = (data * imm0).astype(F)
        value = (imm1 + value if op1 == "add" else imm1 - value).astype(F)
        machine.assert_same(got, act.activate("tanh", value))


def test_columns_of_other_formats(machine, rng):
    data, imm = rng.standard_normal((16, 24)).astype(F), rng.standard_normal((16, 1)).astype(ml_dtypes.bfloat16)
    got = machine.outputs(activated(), data, imm, imm, **TRN3)
    machine.assert_same(got, ((data * imm.astype(F)).astype(F) + imm.astype(F)).astype(F))


@pytest.mark.parametrize("slope", ["number", "column"])
def test_prelu(machine, rng, slope):
    data = rng.standard_normal((16, 24)).astype(F)
    one, zero, column = np.ones((16, 1), F), np.zeros((16, 1), F), rng.standard_normal((16, 1)).astype(F)
    if slope == "column":
        got = machine.outputs(activated("prelu"), data, one, zero, column, **TRN3)
        machine.assert_same(got, np.where(data > 0, data, data * column).astype(F))
    else:
        got = machine.outputs(activated("prelu", 1.0, 0.0, relu_param=0.25), data, **TRN3)
        machine.assert_same(got, np.where(data > 0, data, data * F(0.25)))
        plain = machine.outputs(activated("prelu", 1.0, 0.0), data, **TRN3)
        assert np.array_equal(plain, np.maximum(data, 0))


@pytest.mark.parametrize("op", list(REDUCTIONS))
@pytest.mark.parametrize("res", [nl.float32, nl.bfloat16])
def test_reduces(machine, rng, op, res):
    """The float32 results, one by one, also where dst is narrower; a tie of magnitudes goes to the later one."""
    data = np.round(rng.standard_normal((16, 24)) * 4).astype(F) / 4
    options = {"reduce_op": op, "reduce_cmd": cmd.reset_reduce, "res": res}
    made, total = machine.outputs(activated(imm0=1.1, imm1=0.0, dtype=nl.bfloat16, **options), data, **TRN3)
    wide = staged(data, "multiply", "add", 1.1, 0.0)
    machine.assert_same(made, machine.rounded(wide, made.dtype))
    machine.assert_same(total, machine.rounded(folded(op, wide), total.dtype))


@pytest.mark.parametrize("op", list(REDUCTIONS))
def test_a_chain(machine, rng, op):
    """A reduction goes on over calls, and ``idle`` with ``reduce_res`` only reads."""
    data = rng.standard_normal((16, 24)).astype(F)

    def body(tile):
        activated(reduce_op=op, reduce_cmd=cmd.reset_reduce)(tile[:, 0:9])
        _, middle = activated(reduce_op=op, reduce_cmd=cmd.reduce, res=nl.float32)(tile[:, 9:24])
        other, read = activated(res=nl.float32)(tile)
        return middle, read, other

    middle, read, other = machine.outputs(body, data, **TRN3)
    expected = folded(op, staged(data, "multiply", "add", 2.0, 0.5))
    machine.assert_same(middle, expected)
    machine.assert_same(read, expected)
    machine.assert_same(other, staged(data, "multiply", "add", 2.0, 0.5))


@pytest.mark.parametrize("op", list(REDUCTIONS))
def test_reset_reduces_nothing(machine, op):
    body = activated(reduce_op=op, reduce_cmd=cmd.reset, res=nl.float32)
    _, total = machine.outputs(body, np.ones((4, 8), F), **TRN3)
    assert total.tolist() == [[REDUCTIONS[op][1]]] * 4


def test_shares_the_registers_of_activation(machine, rng):
    data = rng.standard_normal((16, 24)).astype(F)

    def body(tile):
        made, total = nl.ndarray(tile.shape, nl.float32, nl.sbuf), nl.ndarray((16, 1), nl.float32, nl.sbuf)
        nisa.activation(
            dst=made, op=nl.copy, data=tile, reduce_op=nl.add, reduce_cmd=cmd.reset_reduce, reduce_res=total
        )
        _, both = activated(reduce_op="add", reduce_cmd=cmd.reduce, res=nl.float32)(tile)
        return total, both

    total, both = machine.outputs(body, data, **TRN3)
    machine.assert_same(both, folded("add", staged(data, "multiply", "add", 2.0, 0.5), total))


@given(
    pair=st.sampled_from(PAIRS),
    op=st.sampled_from(["relu", "square", "abs", "exp"]),
    reduce_op=st.sampled_from(list(REDUCTIONS)),
    data=st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=6),
    imm0=st.floats(-4, 4, width=32),
    imm1=st.floats(-4, 4, width=32),
    sides=st.tuples(st.booleans(), st.booleans()),
)
def test_is_the_twin(pair, op, reduce_op, data, imm0, imm1, sides):
    reverse0, reverse1 = (side and name != "bypass" for side, name in zip(sides, pair, strict=True))
    options = {"op0": pair[0], "op1": pair[1], "reverse0": reverse0, "reverse1": reverse1}
    reducing = {"reduce_op": reduce_op, "reduce_cmd": cmd.reset_reduce, "res": nl.float32}

    def kernel(given):
        outs = []
        for made in activated(op, imm0, imm1, **options, **reducing)(nl.load(given)):
            outs.append(nl.ndarray(made.shape, made.dtype, nl.shared_hbm))
            nisa.dma_copy(dst=outs[-1], src=made)
        return tuple(outs)

    src = np.array([data], F)
    made, total = neurosim.simulate(kernel, "trn3")(src).outputs
    expected = act.activate(op, staged(src, imm0=imm0, imm1=imm1, **options))
    assert made.tolist() == expected.tolist()
    assert total.tolist() == folded(reduce_op, expected).tolist()


def test_views(machine, rng):
    def body(out, data, imm):
        made, total = out(data.shape, nl.bfloat16), out((16, 1), nl.float32)
        column = imm.reshape((16, 1)) if imm.ndim > 2 else imm
        options = {"reduce_op": nl.add, "reduce_res": total, "reduce_cmd": cmd.reset_reduce}
        nisa.activate2(made, nl.exp, data, column, 0.5, nl.multiply, nl.subtract, **options)
        return made, total

    machine.same_from_views(
        body, rng.standard_normal((16, 24)).astype(F), rng.standard_normal((16, 1)).astype(F), **TRN3
    )


def test_warns_outside_of_the_valid_range(machine):
    with pytest.warns(nisa.OutOfRangeWarning, match=r"activate2\(op=nl.sin\): 4 inputs outside") as caught:
        machine.outputs(activated("sin", 10.0, 0.0), np.ones((1, 4), F), **TRN3)
    assert caught[0].filename == __file__


def test_registers_that_hold_nothing(machine):
    ones = np.ones((4, 8), F)
    reads = activated(res=nl.float32)
    assert "registers of the scalar engine were never set" in machine.refused(reads, ones, error=Uninitialized, **TRN3)

    def fewer(data):
        activated(reduce_op="add", reduce_cmd=cmd.reset_reduce)(data[0:2])
        return reads(data)

    assert "register 2 of the scalar engine holds nothing" in machine.refused(fewer, ones, error=Uninitialized, **TRN3)


def test_holes():
    def kernel(given, width):
        tile, out = nl.ndarray((4, 8), nl.float32, nl.sbuf), nl.ndarray((4, width), nl.float32, nl.shared_hbm)
        nisa.dma_copy(dst=tile[:, 0:4], src=given)
        made, total = activated(reduce_op="add", reduce_cmd=cmd.reset_reduce, res=nl.float32)(tile)
        nisa.dma_copy(dst=out, src=made[:, 0:4] if width == 4 else total)
        return out

    ones = np.ones((4, 4), F)
    assert neurosim.simulate(kernel, "trn3")(ones, 4).outputs.tolist() == [[2.5] * 4] * 4
    with pytest.raises(Uninitialized):
        neurosim.simulate(kernel, "trn3")(ones, 1)

    def chained(given):
        tile = nl.ndarray((4, 8), nl.float32, nl.sbuf)
        nisa.dma_copy(dst=tile[:, 0:4], src=given)
        activated(reduce_op="add", reduce_cmd=cmd.reset_reduce)(tile)
        activated(res=nl.float32)(nl.load(given))

    with pytest.raises(Uninitialized, match="holds nothing known"):
        neurosim.simulate(chained, "trn3")(ones)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"op": "add"}, "op=nl.add is not an activation function"),
        ({"op0": "add", "op1": "add"}, "op0=nl.add and op1=nl.add are no pair of activate2"),
        ({"op0": "bypass", "op1": "add"}, "op0=nl.bypass and op1=nl.add are no pair"),
        ({"imm0": None}, "op0 needs imm0"),
        ({"op1": "bypass", "reverse1": True}, "reverse1=True with op1=nl.bypass"),
        ({"op0": "bypass", "op1": "bypass", "reverse0": True}, "reverse0=True with op0=nl.bypass"),
        ({"relu_param": 0.5}, "relu_param with nl.copy, which takes none"),
        ({"reduce_op": "add"}, "reduce_op=nl.add with reduce_cmd.idle"),
        ({"reduce_op": "multiply", "reduce_cmd": cmd.reduce}, "reduce_op=nl.multiply; it must be nl.add or nl.maximum"),
        ({"reduce_cmd": cmd.reset_reduce}, "reduce_op=None; it must be"),
        ({"reduce_op": "add", "reduce_cmd": cmd.load_reduce}, "reduce_cmd=nisa.reduce_cmd.load_reduce"),
    ],
)
def test_refuses(machine, options, message):
    assert f"activate2: {message}" in machine.refused(activated(**options), np.ones((4, 8), F), **TRN3)


def test_refuses_older_chips_and_tiles(machine):
    ones = np.ones((4, 8), F)
    for chip in ("trn1", "trn2"):
        assert "activate2: needs NeuronCore-v4 (trn3)" in machine.refused(activated(), ones, chip=chip)
    one, half = np.ones((4, 1), F), np.ones((4, 1), ml_dtypes.bfloat16)
    assert "imm0 is float32 and imm1 is bfloat16" in machine.refused(activated(), ones, one, half, **TRN3)
    assert "imm0 has 4 partitions of 8 elements" in machine.refused(activated(), ones, ones, **TRN3)


def test_time(machine):
    """An activation's; the accumulator's read where there is one."""
    ones = np.ones((128, 512), F)
    plain, _ = machine.time("activate2", activated("exp"), ones, **TRN3)

    def body(data):
        made = nl.ndarray(data.shape, nl.float32, nl.sbuf)
        nisa.activation(dst=made, op=nl.exp, data=data, scale=2.0)
        return made

    assert plain == machine.time("activation", body, ones, **TRN3)[0]
    reading = activated("exp", reduce_op="add", reduce_cmd=cmd.reset_reduce, res=nl.float32)
    assert machine.time("activate2", reading, ones, **TRN3)[0] == pytest.approx(plain + 222 / 1.2, rel=1e-3)
