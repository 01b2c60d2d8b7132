"""``iota`` against the loops of its documentation."""

from __future__ import annotations

import re

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neurosim
from neurosim.engines import Engine
from neurosim.errors import Uninitialized


def documented(partitions, pattern, offset=0, channel_multiplier=0):
    """Return what the pseudo code of ``iota`` makes, modulo 2**32: [partitions, elements]."""
    (sw, nw), (sz, nz), (sy, ny), (sx, nx) = [(0, 1)] * (4 - len(pattern)) + [tuple(pair) for pair in pattern]
    values = np.array(
        [
            [
                int(offset) + channel * channel_multiplier + w * sw + z * sz + y * sy + x * sx
                for w in range(nw)
                for z in range(nz)
                for y in range(ny)
                for x in range(nx)
            ]
            for channel in range(partitions)
        ]
    )
    return (values & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def generator(shape, dtype=nl.int32, **options):
    def body():
        tile = nl.ndarray(shape, dtype, nl.sbuf)
        nisa.iota(dst=tile, **options)
        return tile

    return body


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((128, 16), {"pattern": [[1, 16]]}),
        ((128, 16), {"pattern": [[1, 16]], "channel_multiplier": 16}),
        ((4, 24), {"pattern": [[6, 4], [2, 3], [1, 2]], "offset": -7}),
        ((4, 2, 3, 2, 2), {"pattern": [[100, 2], [10, 3], [-5, 2], [1, 2]], "offset": 3, "channel_multiplier": -1000}),
        ((4, 6), {"pattern": ([2, 3], [1, 2])}),
        ((4, 6), {"pattern": [(0, 6)], "offset": np.int32(5)}),
        ((1, 4), {"pattern": [[2**30, 4]], "offset": 5}),
        ((3, 2), {"pattern": [[1, 2]], "offset": 2**31 - 1}),
    ],
)
def test_documented_loops(machine, shape, options):
    got = machine.outputs(generator(shape, **options))
    np.testing.assert_array_equal(got.reshape(shape[0], -1), documented(shape[0], **options))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 128),
    st.lists(st.tuples(st.integers(-1000, 1000), st.integers(1, 4)), min_size=1, max_size=4),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**31), 2**31 - 1),
)
def test_any_pattern(partitions, pattern, offset, multiplier):
    from neurosim import simulate

    count = int(np.prod([extent for _, extent in pattern]))

    def kernel():
        tile = nl.ndarray((partitions, count), nl.int32, nl.sbuf)
        nisa.iota(dst=tile, pattern=pattern, offset=offset, channel_multiplier=multiplier)
        out = nl.ndarray((partitions, count), nl.int32, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    np.testing.assert_array_equal(simulate(kernel)().outputs, documented(partitions, pattern, offset, multiplier))


@pytest.mark.parametrize("dtype", [nl.float32, nl.bfloat16, nl.float16, nl.float8_e4m3, nl.float8_e5m2, nl.bool_])
def test_casts_to_the_dtype_of_dst(machine, dtype):
    options = {"pattern": [[1, 300]], "offset": -150}
    got = machine.outputs(generator((2, 300), dtype, **options))
    expected = documented(2, **options).astype(np.float32)
    machine.assert_same(got, machine.rounded(expected, dtype.numpy))


@pytest.mark.parametrize("dtype", [nl.int8, nl.uint8, nl.int16, nl.uint16, nl.uint32])
def test_integers_that_fit_are_exact(machine, dtype):
    top = int(dtype.max_value)
    got = machine.outputs(generator((2, 3), dtype, pattern=[[1, 3]], offset=min(top, 2**31 - 1) - 2))
    np.testing.assert_array_equal(got, np.array([[min(top, 2**31 - 1) - 2 + x for x in range(3)]] * 2, dtype.numpy))


def test_runs_on_gpsimd(machine):
    program = machine.run(generator((2, 3), pattern=[[1, 3]])).program
    assert program.record(0).signature.engine is Engine.gpsimd


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pattern": [[1, 5]]}, "pattern makes 5 elements and dst has 6 per partition"),
        ({"pattern": [[1, 2], [1, 2]]}, "pattern makes 4 elements and dst has 6"),
        ({"pattern": [[1, 6], [1, 1], [1, 1], [1, 1], [1, 1]]}, r"not a list of one to four \[step, count\] pairs"),
        ({"pattern": []}, "not a list of one to four"),
        ({"pattern": [1, 6]}, "not a list of one to four"),
        ({"pattern": [[1, 6, 1]]}, "not a list of one to four"),
        ({"pattern": [[1.0, 6]]}, "pairs of int32"),
        ({"pattern": np.array([[1, 6]])}, r"pattern is a NumPy array \[1, 2\]"),
        ({"pattern": [[1, -6]]}, "pattern makes -6 elements"),
        ({"pattern": [[1, 6]], "offset": 2**31}, "offset 2147483648 is not an int32"),
        ({"pattern": [[1, 6]], "offset": 0.5}, "offset 0.5 is not an int32"),
        ({"pattern": [[1, 6]], "channel_multiplier": -(2**31) - 1}, "channel_multiplier -2147483649 is not an int32"),
    ],
)
def test_refuses(machine, options, message):
    assert re.search(f"iota: .*{message}", machine.refused(generator((4, 6), **options)))


def test_refuses_psum(machine):
    def body():
        tile = nl.ndarray((4, 6), nl.int32, nl.psum)
        nisa.iota(dst=tile, pattern=[[1, 6]])

    assert "iota: dst is in PSUM; it must be in SBUF" in machine.refused(body)


@pytest.mark.parametrize("offset", [-5, 0, 3, 2**31 - 1])
def test_an_offset_in_a_register(machine, offset):
    def body(place, source):
        register = nisa.register_alloc(0)
        nisa.register_load(register, place)
        made, chosen = nl.ndarray((4, 6), nl.int32), nl.ndarray((4, 6), nl.int32)
        nisa.iota(dst=made, pattern=[[2, 6]], offset=register, channel_multiplier=7)
        nisa.affine_select(
            dst=chosen,
            pattern=[[2, 6]],
            channel_multiplier=7,
            on_true_tile=source,
            on_false_value=0.0,
            cmp_op=nl.greater_equal,
            offset=register,
        )
        return made, chosen

    source = np.arange(24, dtype=np.int32).reshape(4, 6) + 1
    made, chosen = machine.outputs(body, np.array([[offset]], np.int32), source)
    expected = documented(4, [[2, 6]], offset, 7)
    machine.assert_same(made, expected)
    machine.assert_same(chosen, np.where(expected >= 0, source, 0).astype(np.int32))


@pytest.mark.parametrize("columns", [1, 3])
def test_an_offset_that_a_run_without_values_does_not_know(columns):
    def kernel(place):
        register = nisa.register_alloc(0)
        nisa.register_load(register, nl.load(place))
        source, chosen = nl.ndarray((4, 3), nl.int32), nl.ndarray((4, 3), nl.int32)
        nisa.iota(dst=source[:, 0:columns], pattern=[[1, columns]], offset=register)
        nisa.affine_select(chosen, [[1, 3]], 0, source, 0.0, nl.greater, register)
        out = nl.ndarray((4, 3), nl.int32, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=chosen)
        return out

    run = neurosim.simulate(kernel, values=False)
    if columns == 3:
        assert run(np.zeros((1, 1), np.int32)).outputs.shape == (4, 3)
    else:
        with pytest.raises(Uninitialized):
            run(np.zeros((1, 1), np.int32))


def test_an_offset_in_sbuf_is_refused(machine):
    text = machine.refused(
        lambda place: generator((4, 3), pattern=[[1, 3]], offset=place)(), np.zeros((1, 1), np.int32)
    )
    assert "iota: offset is in SBUF; it must be a register" in text
