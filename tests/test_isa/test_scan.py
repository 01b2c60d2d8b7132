"""``tensor_tensor_scan`` against the loop of its documentation, bit for bit."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from neurosim.errors import Uninitialized

SHAPE = (4, 12)
OPS = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "less": np.less,
    "not_equal": np.not_equal,
    "logical_xor": np.logical_xor,
}


def scanning(op0="multiply", op1="add", initial=0.0, dtype=None, **options):
    def body(data0, data1, *columns):
        made = nl.ndarray(data0.shape, dtype or nl.float32, nl.sbuf)
        first = columns[0] if columns else initial
        nisa.tensor_tensor_scan(made, data0, data1, first, getattr(nl, op0), getattr(nl, op1), **options)
        return made

    return body


def expected(op0, op1, data0, data1, initial, reverse0=False, reverse1=False):
    out = np.empty(data0.shape, np.float32)
    state = np.broadcast_to(np.asarray(initial, np.float32).reshape(-1), data0.shape[:1])
    with np.errstate(all="ignore"):
        for i in range(data0.shape[1]):
            left, right = (state, data0[:, i]) if reverse0 else (data0[:, i], state)
            state = OPS[op0](left, right).astype(np.float32)
            left, right = (data1[:, i], state) if reverse1 else (state, data1[:, i])
            state = out[:, i] = OPS[op1](left, right).astype(np.float32)
    return out


@pytest.mark.parametrize("reverse1", [False, True])
@pytest.mark.parametrize("reverse0", [False, True])
@pytest.mark.parametrize("op1", OPS)
@pytest.mark.parametrize("op0", ["add", "subtract", "multiply", "divide", "maximum", "less"])
def test_documented_loop(machine, rng, op0, op1, reverse0, reverse1):
    data0, data1 = (rng.standard_normal(SHAPE).astype(np.float32) for _ in range(2))
    got = machine.outputs(scanning(op0, op1, 0.5, reverse0=reverse0, reverse1=reverse1), data0, data1)
    machine.assert_same(got, expected(op0, op1, data0, data1, 0.5, reverse0, reverse1))


def test_long_rows(machine, rng):
    data0, data1 = (rng.standard_normal((128, 512)).astype(np.float32) for _ in range(2))
    got = machine.outputs(scanning(), data0, data1)
    machine.assert_same(got, expected("multiply", "add", data0, data1, 0.0))


@pytest.mark.parametrize("target", [np.float32, ml_dtypes.bfloat16, np.int8])
@pytest.mark.parametrize("source", [np.float32, ml_dtypes.bfloat16, np.int32, np.uint8])
def test_dtypes_and_a_state_that_is_not_rounded(machine, rng, source, target):
    """Sums of many small numbers are right in bfloat16, which adding to a rounded state would not be."""
    data1 = rng.integers(0, 9, (2, 300)).astype(source)
    data0 = np.ones((2, 300), source)
    got = machine.outputs(scanning(dtype=np.dtype(target)), data0, data1)
    machine.assert_same(got, machine.rounded(np.cumsum(machine.single(data1), axis=1, dtype=np.float32), target))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int32])
def test_a_column_begins(machine, rng, dtype):
    data0, data1 = (rng.standard_normal(SHAPE).astype(np.float32) for _ in range(2))
    first = rng.integers(-9, 9, (4, 1)).astype(dtype)
    got = machine.outputs(scanning(), data0, data1, first)
    machine.assert_same(got, expected("multiply", "add", data0, data1, machine.single(first)))


def test_two_scans_in_a_row_are_one(machine, rng):
    """The documented example: the last column of the first half begins the second."""
    data0, data1 = (rng.standard_normal((8, 16)).astype(np.float32) for _ in range(2))

    def body(data0, data1):
        made = nl.ndarray(data0.shape, nl.float32, nl.sbuf)
        nisa.tensor_tensor_scan(made[:, 0:8], data0[:, 0:8], data1[:, 0:8], 0, nl.multiply, nl.add)
        first = made[:, 7:8]
        nisa.tensor_tensor_scan(made[:, 8:16], data0[:, 8:16], data1[:, 8:16], first, nl.multiply, nl.add)
        return made

    machine.assert_same(machine.outputs(body, data0, data1), expected("multiply", "add", data0, data1, 0.0))


@pytest.mark.parametrize(("op0", "op1"), [("multiply", "add"), ("maximum", "minimum"), ("add", "less")])
def test_specials(machine, special, op0, op1):
    data0, data1 = (np.tile(special, (2, 1)).astype(np.float32) for _ in range(2))
    data1 = data1[:, ::-1].copy()
    machine.assert_same(machine.outputs(scanning(op0, op1), data0, data1), expected(op0, op1, data0, data1, 0.0))


def test_views(machine, rng):
    data0, data1 = (rng.standard_normal(SHAPE).astype(np.float32) for _ in range(2))

    def body(out, data0, data1, first):
        made = out(SHAPE, nl.bfloat16)
        nisa.tensor_tensor_scan(made, data0, data1, first, nl.multiply, nl.add)
        return made

    machine.same_from_views(body, data0, data1, np.ones((4, 1), np.float32))


@pytest.mark.parametrize("psum", [{0}, {1}, {2}])
def test_in_place_and_psum(machine, rng, psum):
    data0, data1 = (rng.standard_normal(SHAPE).astype(np.float32) for _ in range(2))

    def body(data0, data1, first):
        nisa.tensor_tensor_scan(data0, data0, data1, first, nl.multiply, nl.add)
        return data0

    got = machine.outputs(body, data0, data1, np.ones((4, 1), np.float32), psum=psum)
    machine.assert_same(got, expected("multiply", "add", data0, data1, 1.0))


@pytest.mark.parametrize("op0", ["multiply", "divide"])
@pytest.mark.parametrize(
    ("dst", "data0", "data1"), [(0, 0, 12), (0, 12, 0), (0, 0, 0), (1, 0, 12), (0, 12, 1), (2, 1, 0)]
)
def test_operands_may_overlap(machine, rng, op0, dst, data0, data1):
    """All is read before anything is written over it, the first state too, which lies in what is written."""
    before = rng.standard_normal((1, 24)).astype(np.float32)

    def body(tile):
        parts = (tile[:, place : place + 8] for place in (dst, data0, data1))
        nisa.tensor_tensor_scan(*parts, tile[:, dst + 3 : dst + 4], getattr(nl, op0), nl.add)
        return tile

    after = before.copy()
    given = before[:, data0 : data0 + 8], before[:, data1 : data1 + 8]
    after[:, dst : dst + 8] = expected(op0, "add", *given, before[:, dst + 3])
    machine.assert_same(machine.outputs(body, before), after)


@pytest.mark.parametrize(("start", "stop", "first_hole"), [(0, 6, 6), (3, 12, 0)])
def test_a_hole_reaches_every_later_state(machine, start, stop, first_hole):
    def body(data, width):
        part = nl.ndarray(SHAPE, nl.float32, nl.sbuf)
        nisa.memset(dst=part[:, start:stop], value=1.0)
        made = nl.ndarray(SHAPE, nl.float32, nl.sbuf)
        nisa.tensor_tensor_scan(made, data, part, 0.0, nl.multiply, nl.add)
        again = nl.ndarray((4, width), nl.float32, nl.sbuf)
        nisa.tensor_copy(dst=again, src=made[:, 0:width])
        return again

    data = np.ones(SHAPE, np.float32)
    if first_hole:
        machine.run(lambda data: body(data, first_hole), data)
    with pytest.raises(Uninitialized, match=rf"\[0:4, {first_hole}:{first_hole + 1}\] \(4 of"):
        machine.run(lambda data: body(data, first_hole + 1), data)


def test_a_hole_in_the_first_state_reaches_its_row(machine):
    def body(data, rows):
        first = nl.ndarray((4, 1), nl.float32, nl.sbuf)
        nisa.memset(dst=first[0:2], value=1.0)
        made = nl.ndarray(SHAPE, nl.float32, nl.sbuf)
        nisa.tensor_tensor_scan(made, data, data, first, nl.multiply, nl.add)
        again = nl.ndarray((rows, 12), nl.float32, nl.sbuf)
        nisa.tensor_copy(dst=again, src=made[0:rows])
        return again

    data = np.ones(SHAPE, np.float32)
    machine.run(lambda data: body(data, 2), data)
    with pytest.raises(Uninitialized, match=r"\[2:4, 0:12\]"):
        machine.run(lambda data: body(data, 4), data)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"op0": "bitwise_or"}, "op0=nl.bitwise_or is not an arithmetic operator of two sides"),
        ({"op1": "relu"}, "op1=nl.relu is not an arithmetic operator of two sides"),
        ({"initial": "0"}, "initial is '0' (str); it must be a tensor or a number"),
    ],
)
def test_refuses(machine, options, message):
    ones = np.ones(SHAPE, np.float32)
    assert f"tensor_tensor_scan: {message}" in machine.refused(scanning(**options), ones, ones)


def test_refuses_extents_and_two_tiles_in_psum(machine):
    ones = np.ones(SHAPE, np.float32)
    text = machine.refused(scanning(), ones, np.ones((4, 6), np.float32))
    assert "data0 has 12 elements per partition and data1 has 6" in text
    assert "initial has 4 partitions of 2 elements" in machine.refused(scanning(), ones, ones, ones[:, :2].copy())
    assert "data0 and data1 are both in PSUM" in machine.refused(scanning(), ones, ones, psum={0, 1})
    text = machine.refused(lambda a, b: nisa.tensor_tensor_scan(a[0:2], a, b, 0.0, nl.add, nl.add), ones, ones)
    assert "dst has 2 partitions and data0 has 4" in text


@pytest.mark.parametrize(("elements", "measured_ns"), [(64, 291), (256, 691), (1024, 2291), (2048, 4424)])
def test_measured_times(machine, elements, measured_ns):
    ones = np.ones((128, elements), np.float32)
    assert machine.time("tensor_tensor_scan", scanning(), ones, ones)[1] == pytest.approx(measured_ns, rel=0.01)


def test_a_column_costs_60_ns(machine):
    ones, first = np.ones((128, 256), np.float32), np.ones((128, 1), np.float32)
    times = [machine.time("tensor_tensor_scan", scanning(), ones, ones, *more)[1] for more in ((), (first,))]
    assert times[1] - times[0] == pytest.approx(60, abs=1)
