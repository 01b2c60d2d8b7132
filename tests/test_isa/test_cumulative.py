"""``tensor_scalar_cumulative``: the running value of a row, and the registers that carry it on."""

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

F = np.float32
cmd = nisa.reduce_cmd
OPS = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "divide": np.divide,
    "greater": lambda a, b: np.greater(a, b).astype(F),
}
STARTS = {"add": 0, "subtract": 0, "multiply": 1, "maximum": -np.inf, "minimum": np.inf}


def cumulative(op0="add", op1="add", imm0=0.0, dtype=None, imm1=None, **options):
    """A body; numbers of tiles stand for the operands that are given as columns."""

    def body(src, *columns):
        made = nl.ndarray(src.shape, dtype or src.dtype, nl.sbuf)
        first = columns[0] if columns else imm0
        second = columns[1] if columns[1:] else imm1
        nisa.tensor_scalar_cumulative(made, src, getattr(nl, op0), getattr(nl, op1), first, second, **options)
        return made

    return body


def states(op0, op1, src, imm0, start):
    """Return every state of the documented loop, in float32 step by step."""
    state = np.broadcast_to(np.asarray(start, F).reshape(-1, 1), (len(src), 1))[:, 0].astype(F)
    imm0 = np.broadcast_to(np.asarray(imm0, F).reshape(-1, 1), (len(src), 1))[:, 0]
    out = np.empty(src.shape, F)
    with np.errstate(all="ignore"):
        for column in range(src.shape[1]):
            state = OPS[op1](OPS[op0](src[:, column].astype(F), imm0).astype(F), state).astype(F)
            out[:, column] = state
    return out


@pytest.mark.parametrize("op0", ["add", "subtract", "multiply", "maximum", "divide", "greater"])
@pytest.mark.parametrize("op1", list(STARTS))
def test_is_the_documented_loop(machine, rng, op0, op1):
    src = rng.standard_normal((16, 40)).astype(F)
    got = machine.outputs(cumulative(op0, op1, 0.75), src)
    machine.assert_same(got, states(op0, op1, src, 0.75, STARTS[op1]))


def test_by_hand(machine):
    src = np.array([[1, 2, 3, 4]], F)
    assert machine.outputs(cumulative("add", "add"), src).tolist() == [[1, 3, 6, 10]]
    assert machine.outputs(cumulative("add", "multiply"), src).tolist() == [[1, 2, 6, 24]]
    assert machine.outputs(cumulative("add", "subtract"), src).tolist() == [[1, 1, 2, 2]]  # 1-0, 2-1, 3-1, 4-2
    assert machine.outputs(cumulative("multiply", "maximum", -1.0), src).tolist() == [[-1, -1, -1, -1]]
    assert machine.outputs(cumulative("multiply", "minimum", -1.0), src).tolist() == [[-1, -2, -3, -4]]


@pytest.mark.parametrize("op1", list(STARTS))
def test_loads_a_start(machine, rng, op1):
    src = rng.standard_normal((16, 12)).astype(F)
    imm0, imm1 = rng.standard_normal((2, 16, 1)).astype(F)
    got = machine.outputs(cumulative("multiply", op1, reduce_cmd=cmd.load_reduce), src, imm0, imm1)
    machine.assert_same(got, states("multiply", op1, src, imm0, imm1))
    number = machine.outputs(cumulative("multiply", op1, 1.0, imm1=2.5, reduce_cmd=cmd.load_reduce), src)
    machine.assert_same(number, states("multiply", op1, src, 1.0, 2.5))


@pytest.mark.parametrize("op1", list(STARTS))
@pytest.mark.parametrize("imm1", [None, 7.0])
def test_goes_on(machine, rng, op1, imm1):
    """``reduce`` takes what the registers hold and leaves ``imm1`` alone; two halves are the whole."""
    src = rng.standard_normal((16, 12)).astype(F)

    def body(tile):
        made = nl.ndarray(tile.shape, nl.float32, nl.sbuf)
        op = getattr(nl, op1)
        nisa.tensor_scalar_cumulative(made[:, 0:5], tile[:, 0:5], nl.add, op, 0.5)
        nisa.tensor_scalar_cumulative(made[:, 5:12], tile[:, 5:12], nl.add, op, 0.5, imm1, cmd.reduce)
        return made

    machine.assert_same(machine.outputs(body, src), states("add", op1, src, 0.5, STARTS[op1]))


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float16", "float8_e4m3", "float8_e5m2", "int8", "uint8", "int16", "uint16"]
)
def test_the_state_is_not_rounded(machine, rng, dtype):
    src = (rng.integers(0, 3, (8, 20)) + 0.25).astype(F)
    got = machine.outputs(cumulative("multiply", "add", 0.3, getattr(nl, dtype)), src)
    machine.assert_same(got, machine.rounded(states("multiply", "add", src, 0.3, 0), got.dtype))
    narrow = machine.outputs(cumulative("multiply", "add", 0.3, nl.float32), machine.rounded(src, got.dtype))
    machine.assert_same(narrow, states("multiply", "add", machine.rounded(src, got.dtype), 0.3, 0))


def test_special_values(machine, special):
    src = np.stack([special, special[::-1]])
    for op1 in ("add", "multiply", "subtract"):
        machine.assert_same(machine.outputs(cumulative("add", op1), src), states("add", op1, src, 0, STARTS[op1]))
    tops = machine.outputs(cumulative("add", "maximum"), src)
    machine.assert_same(tops, np.maximum.accumulate(src + F(0), axis=1))


@given(
    op0=st.sampled_from(sorted(OPS)),
    op1=st.sampled_from(sorted(STARTS)),
    data=st.lists(st.floats(width=32), min_size=1, max_size=8),
    imm0=st.floats(width=32, allow_nan=False, allow_infinity=False),
    start=st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False),
)
def test_is_the_twin(op0, op1, data, imm0, start):
    def kernel(given):
        tile = nl.load(given)
        command = cmd.reset_reduce if start is None else cmd.load_reduce
        nisa.tensor_scalar_cumulative(tile, tile, getattr(nl, op0), getattr(nl, op1), imm0, start, command)
        out = nl.ndarray(tile.shape, tile.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    src = np.array([data], F)
    got = neurosim.simulate(kernel)(src).outputs
    expected = states(op0, op1, src, imm0, STARTS[op1] if start is None else start)
    assert np.array_equal(got, expected, equal_nan=True)


def test_views(machine, rng):
    def body(out, src, imm):
        made = out(src.shape, nl.float32)
        nisa.tensor_scalar_cumulative(made, src, nl.multiply, nl.add, imm.reshape((16, 1)) if imm.ndim > 2 else imm)
        return made

    src, imm = rng.standard_normal((16, 24)).astype(F), rng.standard_normal((16, 1)).astype(F)
    machine.assert_same(machine.same_from_views(body, src, imm), states("multiply", "add", src, imm, 0))


def test_from_and_to_psum(machine, rng):
    src = rng.standard_normal((16, 24)).astype(F)
    got = machine.outputs(cumulative("add", "add", 1.0), src, psum=(0,))
    machine.assert_same(got, states("add", "add", src, 1.0, 0))


def test_shares_the_registers_of_vector(machine, rng):
    """It goes on with what ``tensor_scalar_reduce`` left, and the other way round."""
    src = rng.standard_normal((16, 24)).astype(F)

    def body(tile):
        made, total = nl.ndarray(tile.shape, nl.float32, nl.sbuf), nl.ndarray((16, 1), nl.float32, nl.sbuf)
        nisa.tensor_scalar_reduce(made, tile, nl.multiply, 1.0, nl.add)
        nisa.tensor_scalar_cumulative(made, tile, nl.multiply, nl.add, 1.0, reduce_cmd=cmd.reduce)
        scratch = nl.ndarray(tile.shape, nl.float32, nl.sbuf)
        nisa.tensor_scalar_reduce(scratch, tile, nl.multiply, 1.0, nl.add, total, reduce_cmd=cmd.reduce)
        return made, total

    made, total = machine.outputs(body, src)
    expected = states("multiply", "add", np.tile(src, 3), 1.0, 0)
    machine.assert_same(made, expected[:, 24:48])
    machine.assert_same(total, expected[:, -1:])


def test_registers_that_hold_nothing(machine):
    ones = np.ones((4, 8), F)
    body = cumulative(reduce_cmd=cmd.reduce)
    assert "registers of the vector engine were never set" in machine.refused(body, ones, error=Uninitialized)

    def idle_before(src):
        made = nl.ndarray(src.shape, nl.float32, nl.sbuf)
        predicate = nl.full(src.shape, 1, nl.uint8)
        nisa.select_reduce(made, predicate, src, 0.0)
        return body(src)

    assert "holds nothing known" in machine.refused(idle_before, ones, error=Uninitialized)

    def fewer_before(src):
        cumulative()(src[0:2])
        return body(src)

    assert "register 2 of the vector engine holds nothing known" in machine.refused(
        fewer_before, ones, error=Uninitialized
    )


def test_holes_reach_what_comes_after():
    def kernel(given, last):
        tile, out = nl.ndarray((4, 8), nl.float32, nl.sbuf), nl.ndarray((4, last), nl.float32, nl.shared_hbm)
        nisa.dma_copy(dst=tile[:, 0:5], src=given[:, 0:5])
        made = nl.ndarray((4, 8), nl.float32, nl.sbuf)
        nisa.tensor_scalar_cumulative(made, tile, nl.add, nl.add, 0.0)
        nisa.dma_copy(dst=out, src=made[:, 0:last])
        return out

    ones = np.ones((4, 8), F)
    assert neurosim.simulate(kernel)(ones, 5).outputs[0].tolist() == [1, 2, 3, 4, 5]
    with pytest.raises(Uninitialized):
        neurosim.simulate(kernel)(ones, 6)

    def chained(given):
        tile, made = nl.ndarray((4, 8), nl.float32, nl.sbuf), nl.ndarray((4, 8), nl.float32, nl.sbuf)
        nisa.dma_copy(dst=tile[:, 0:5], src=given[:, 0:5])
        nisa.tensor_scalar_cumulative(made, tile, nl.add, nl.add, 0.0)
        nisa.tensor_scalar_cumulative(made, nl.load(given), nl.add, nl.add, 0.0, reduce_cmd=cmd.reduce)

    with pytest.raises(Uninitialized, match="holds nothing known"):
        neurosim.simulate(chained)(ones)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"op0": "bitwise_and"}, "op0=nl.bitwise_and is not an arithmetic operator of two sides"),
        ({"op0": "abs_max"}, "nl.abs_max needs NeuronCore-v4 (trn3)"),
        ({"op1": "divide"}, "op1=nl.divide; it must be nl.add or nl.multiply or"),
        ({"dtype": nl.int32}, "dst is int32; it must be float32 or bfloat16"),
        ({"reduce_cmd": cmd.idle}, "reduce_cmd=nisa.reduce_cmd.idle"),
        ({"reduce_cmd": cmd.reset}, "reduce_cmd=nisa.reduce_cmd.reset"),
        ({"reduce_cmd": cmd.load_reduce}, "reduce_cmd.load_reduce without imm1"),
        ({"imm0": "one"}, "imm0 is 'one' (str)"),
    ],
)
def test_refuses(machine, options, message):
    assert f"tensor_scalar_cumulative: {message}" in machine.refused(cumulative(**options), np.ones((4, 8), F))


def test_refuses_tiles(machine):
    ones, half = np.ones((4, 8), F), np.ones((4, 1), ml_dtypes.bfloat16)
    assert "src is uint32" in machine.refused(cumulative(dtype=nl.float32), ones.astype(np.uint32))
    assert "imm0 is bfloat16; it must be float32" in machine.refused(cumulative(), ones, half)
    single = np.ones((4, 1), F)
    body = cumulative(reduce_cmd=cmd.load_reduce)
    assert "imm1 is bfloat16; it must be float32" in machine.refused(body, ones, single, half)
    assert "imm1 has 4 partitions of 8 elements" in machine.refused(body, ones, single, ones)


def test_time(machine):
    """Two cycles per element, as a scan, and 58 for a column; the start is fetched only where it is loaded."""
    ones, column = np.ones((128, 512), F), np.ones((128, 1), F)
    name = "tensor_scalar_cumulative"
    assert machine.time(name, cumulative(), ones)[0] == pytest.approx((60 + 1024) / 0.96, rel=1e-3)
    assert machine.time(name, cumulative(), ones, column)[0] == pytest.approx((60 + 1024 + 58) / 0.96, rel=1e-3)
    assert machine.time(name, cumulative(), ones, column, column)[0] == pytest.approx((60 + 1082) / 0.96, rel=1e-3)
    both = cumulative(reduce_cmd=cmd.load_reduce)
    assert machine.time(name, both, ones, column, column)[0] == pytest.approx((60 + 1024 + 116) / 0.96, rel=1e-3)


CALLS = {
    "tensor_scalar_cumulative": lambda dst, src: nisa.tensor_scalar_cumulative(dst, src, nl.add, nl.add, 0.5),
    "exponential": lambda dst, src: nisa.exponential(dst, src, reduce_cmd=cmd.reset_reduce),
    "activate2": lambda dst, src: nisa.activate2(
        dst, nl.exp, src, 0.5, 1.0, nl.multiply, nl.add, reduce_op=nl.add, reduce_cmd=cmd.reset_reduce
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_offsets_choose_elements(machine, rng, name):
    """On NeuronCore-v4 a gathered input is a copy of it, and a scattered result lies where the offsets say."""
    src = rng.standard_normal((32, 40)).astype(F)
    offsets = rng.permuted(np.tile(np.arange(40, dtype=np.uint16), (32, 1)), axis=1)[:, :1]
    offsets[0:16, 0] = rng.permutation(40)[:16]
    offsets[16:32, 0] = rng.permutation(40)[:16]

    def body(tile, index):
        copy, plain, gathered = (nl.ndarray((32, 16), nl.float32, nl.sbuf) for _ in range(3))
        nisa.tensor_copy(dst=copy, src=tile.indirect(index, 16))
        CALLS[name](plain, copy)
        CALLS[name](gathered, tile.indirect(index, 16))
        scattered = nl.full((32, 40), -1, nl.float32)
        CALLS[name](scattered.indirect(index, 16), copy)
        return plain, gathered, scattered

    plain, gathered, scattered = machine.outputs(body, src, offsets, chip="trn3")
    machine.assert_same(gathered, plain)
    expected = np.full((32, 40), -1, F)
    for row in range(32):
        group = row // 16 * 16
        expected[row, offsets[group : group + 16, 0]] = plain[row]
    machine.assert_same(scattered, expected)
    assert "NeuronCore-v4 (trn3)" in machine.refused(body, src, offsets, chip="trn2")
