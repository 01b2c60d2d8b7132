"""``sendrecv`` and ``core_barrier`` between two cores: what moves, what waits, and what is refused."""

from __future__ import annotations

from pathlib import Path

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neurosim
from neurosim.errors import (
    IllegalOperand,
    Uninitialized,
    UnknownBehavior,
)
from neurosim.shell.loading import load_module

F = np.float32
two_cores = load_module(Path(__file__).parents[1] / "two_cores.py")
no_thread_stays = two_cores.no_thread_stays
HALVES, exchange, on_two, tile = two_cores.HALVES, two_cores.exchange, two_cores.on_two, two_cores.tile


def test_holes_travel_to_the_other_core():
    def body(x):
        own, got = tile(), tile()
        nisa.memset(own[:, 0:5] if nl.program_id(0) else own, value=1.0)
        exchange(own, got)
        out = nl.ndarray((2, 8, 6), nl.float32, nl.shared_hbm)
        nl.store(out[nl.program_id(0)], got)
        return out

    with pytest.raises(Uninitialized, match=r"elements|unwritten|\[") as caught:
        on_two(body, HALVES)
    assert "first read: src of sendrecv" in str(caught.value)


@pytest.mark.parametrize(("ranks", "core"), [((0, 0), 0), ((1, 0), 0), ((0, 1), 0), ((1, 1), 1)])
def test_ranks_of_the_core_itself_are_not_in_the_manual(ranks, core):
    def body(x):
        pair = ranks if nl.program_id(0) == core else (1 - nl.program_id(0),) * 2
        nisa.sendrecv(src=nl.load(x[0]), dst=tile(), send_to_rank=pair[0], recv_from_rank=pair[1], pipe_id=0)

    with pytest.raises(UnknownBehavior, match=f"sendrecv on core {core}"):
        on_two(body, HALVES)


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("tiles", {"columns": 5}),
        ("tiles", {"dtype": nl.int32}),
        ("dma_engine", {"dma_engine": nisa.dma_engine.gpsimd_dma}),
    ],
)
def test_cores_that_meet_with_different_calls(what, changes):
    def body(x):
        given = {"columns": 6, "dtype": nl.float32, "dma_engine": nisa.dma_engine.dma}
        if nl.program_id(0):
            given |= changes
        columns, dtype = given.pop("columns"), given.pop("dtype")
        own = tile((8, columns), dtype)
        nisa.memset(own, value=1 if dtype is nl.int32 else 1.0)
        exchange(own, tile((8, columns), dtype), **given)

    with pytest.raises(IllegalOperand, match=f"sendrecv: the cores meet with different {what}") as caught:
        on_two(body, HALVES)
    assert [line[:7] for line in caught.value.numbers[:2]] == ["core 0:", "core 1:"]


def test_barriers_speak_of_the_same_tensor():
    def body(x):
        both = [nl.ndarray((2,), nl.float32, nl.shared_hbm), nl.ndarray((2,), nl.float32, nl.shared_hbm)]
        nisa.core_barrier(both[nl.program_id(0)], (0, 1))

    with pytest.raises(IllegalOperand, match="different data"):
        on_two(body, HALVES)


def test_a_barrier_speaks_of_what_both_cores_see():
    def body(x):
        nisa.core_barrier(nl.ndarray((2,), nl.float32, nl.private_hbm), (0, 1))

    with pytest.raises(IllegalOperand, match="in private HBM, which the other core does not see"):
        on_two(body, HALVES)


def test_arguments_are_in_memory_that_all_cores_of_the_launch_see():
    assert on_two(lambda x: x.buffer is nl.shared_hbm, HALVES).outputs is True
    assert neurosim.simulate(lambda x: x.buffer is nl.hbm)(HALVES).outputs is True


@pytest.mark.parametrize("cores", [(0,), 0, [0]])
def test_a_barrier_of_one_core_meets_nobody(cores):
    def body(x):
        if nl.program_id(0) == 0:
            nisa.core_barrier(x, cores)

    assert on_two(body, HALVES).program.meetings == []
    assert len(neurosim.simulate(body)(HALVES).program) == 1


def test_a_barrier_that_the_core_has_no_part_in():
    with pytest.raises(IllegalOperand, match=r"on core 1, which is not one of them"):
        on_two(lambda x: nisa.core_barrier(x, (0,)) and None, HALVES)


@pytest.mark.parametrize("body", [lambda x: nisa.core_barrier(x, (0, 1)), lambda x: exchange(nl.load(x[0]), tile())])
@pytest.mark.parametrize("grid", [None, 1])
def test_meetings_need_two_cores(body, grid):
    kernel = nki.jit(body)
    with pytest.raises(IllegalOperand, match="the kernel runs on one core") as caught:
        (kernel if grid is None else kernel[grid])(HALVES)
    assert "kernel[2]" in caught.value.advice


DTYPES = [nl.float32, nl.bfloat16, nl.float16, nl.float8_e5m2, nl.int8, nl.uint16, nl.int32]


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 128),
    columns=st.integers(1, 40),
    dtype=st.sampled_from(DTYPES),
    through=st.sampled_from(list(nisa.dma_engine)),
    step=st.integers(1, 3),
    seed=st.integers(0, 100),
)
def test_sendrecv_exchanges_bits(rows, columns, dtype, through, step, seed):
    """Whatever the dtype, NaNs included, and from views with gaps; against indexing in NumPy."""
    width = dtype.size_bytes
    noise = np.random.default_rng(seed).integers(0, 256, (2, rows, columns * width), dtype=np.uint8)
    data = noise.view(dtype.numpy)

    def body(x):
        own = nl.program_id(0)
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        src, dst = (tile((rows, step * columns), dtype)[:, 0 : step * columns : step] for _ in range(2))
        nisa.dma_copy(dst=src, src=x[own])
        exchange(src, dst, dma_engine=through)
        nisa.memset(src, value=0.0 if dtype.is_float else 0)
        nl.store(out[own], dst)
        return out

    got = on_two(body, data).outputs
    np.testing.assert_array_equal(got.view(np.uint8), noise[::-1])


@pytest.mark.parametrize("through", [nisa.dma_engine.dma, nisa.dma_engine.gpsimd_dma])
@pytest.mark.parametrize("dtype", [nl.float8_e5m2_x4, nl.float8_e4m3fn_x4, nl.float4_e2m1fn_x4])
def test_packed_tiles_are_exchanged(dtype, through):
    """Any data type that NKI has, with the packed ones of trn3: their bits, whatever they pack."""

    def body(x):
        core = nl.program_id(0)
        src, dst = nl.ndarray((32, 16), dtype), nl.ndarray((32, 16), dtype)
        nisa.dma_copy(dst=src, src=x[core].view(dtype))
        exchange(src, dst, dma_engine=through)
        out = nl.ndarray((2, 32, 16), x.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out[core].view(dtype), src=dst)
        return out

    whole = np.dtype(f"uint{8 * dtype.size_bytes}")
    x = np.random.default_rng(0).integers(0, 1 << 8 * whole.itemsize, (2, 32, 16), whole)
    out = neurosim.simulate(nki.jit(body)[2], "trn3")(x).outputs
    np.testing.assert_array_equal(out, x[::-1])
