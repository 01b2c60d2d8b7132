"""The tensor engine: bit for bit the plain loop, whatever the shape, the blocking and the number of threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from neurosim import dtypes, jit, pool
from neurosim.compiling.mailbox import AWAY, READY, ROW
from neurosim.dtypes import DType
from neurosim.numerics import convert, matmul, products, reference

F32 = NDArray[np.float32]


@pytest.fixture(params=[1, 2])
def thread_limit(request: pytest.FixtureRequest) -> Iterator[int]:
    pool.limit_threads(request.param)
    yield request.param
    pool.limit_threads(None)


def operands(depth: int, rows: int, columns: int, seed: int = 0) -> tuple[F32, F32]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((depth, rows), np.float32), rng.standard_normal((depth, columns), np.float32)


def same_bits(a: Any, b: Any) -> bool:
    return np.array_equal(np.ascontiguousarray(a).view(np.uint32), np.ascontiguousarray(b).view(np.uint32))


def triple_loop(stationary: F32, moving: F32) -> F32:
    out = np.empty((stationary.shape[1], moving.shape[1]), np.float32)
    for m in range(out.shape[0]):
        for n in range(out.shape[1]):
            total = np.float32(0)
            for k in range(stationary.shape[0]):
                total = total + stationary[k, m] * moving[k, n]
            out[m, n] = total
    return out


def test_the_twin_is_the_triple_loop() -> None:
    stationary, moving = operands(9, 5, 7)
    assert same_bits(reference.matmul_pass(stationary, moving), triple_loop(stationary, moving))


@pytest.mark.parametrize("depth", [1, 3, 4, 37, 128, 256])
@pytest.mark.parametrize("rows", [1, 3, 4, 6, 128])
@pytest.mark.parametrize("columns", [1, 15, 16, 100, 512, 513, 1040])
def test_one_pass_is_the_twin(depth: int, rows: int, columns: int) -> None:
    stationary, moving = operands(depth, rows, columns)
    assert same_bits(matmul.matmul(stationary, moving, 1), reference.matmul_pass(stationary, moving))


@pytest.mark.usefixtures("thread_limit")
@pytest.mark.parametrize(("rows", "columns"), [(128, 512), (126, 500), (4, 4096), (7, 3000), (64, 700)])
def test_threads_do_not_change_bits(rows: int, columns: int) -> None:
    stationary, moving = operands(128, rows, columns)
    want = reference.matmul_pass(stationary, moving)
    pool._pool._learn(pool._LEARN_NS, pool._LEARN_NS, 1)  # or the first runs would be serial
    for _ in range(3):
        assert same_bits(matmul.matmul(stationary, moving, 1), want)


@pytest.mark.skipif(jit.INTERPRETED, reason="one thread computes, which holds Python's lock")
@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize(("rows", "columns"), [(128, 512), (13, 50), (1, 1000), (2, 3)])
def test_every_split_of_the_work_gives_the_same(count: int, rows: int, columns: int) -> None:
    stationary, moving = operands(20, rows, columns)
    out = np.empty((rows, columns), np.float32)
    found = matmul._rows(out, False)
    assert found is not None
    sides = [matmul._operand(side, dtypes.float32) for side in (stationary, moving)]
    words = np.zeros(count * ROW, np.int64)
    for halved in (False, True):
        words[ROW::ROW] = READY  # and each does its part when its turn comes, below
        with ThreadPoolExecutor(1) as caller:
            shared = caller.submit(matmul._multiply, words, found, *sides, halved, halved, True)
            while (words[ROW::ROW] == READY).any():
                time.sleep(0.001)
            for thread in range(1, count):
                matmul._serve(words, thread)
            assert shared.result() == count
        assert (words[ROW::ROW] == AWAY).all()
        want = np.empty_like(out)
        reference.matmul_into(want, stationary, moving, 4 if halved else 1, True)
        assert same_bits(out, want)


@pytest.mark.usefixtures("thread_limit")
@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize("passes", [1, 4])
def test_accumulation_is_the_twin(passes: int, overwrite: bool) -> None:
    stationary, moving = operands(128, 32, 96)
    psum = np.random.default_rng(8).standard_normal((32, 96), np.float32)
    want = psum.copy()
    for _ in range(3):
        matmul.accumulate_into(psum, stationary, moving, passes, overwrite)
        reference.matmul_into(want, stationary, moving, passes, overwrite)
        assert same_bits(psum, want)


def test_many_tiles_accumulate_in_program_order() -> None:
    stationary, moving = operands(4096, 16, 64)
    psum = np.empty((16, 64), np.float32)
    want = np.zeros((16, 64), np.float32)
    for tile in range(32):
        part = slice(128 * tile, 128 * tile + 128)
        matmul.accumulate_into(psum, stationary[part], moving[part], 1, tile == 0)
        want = want + reference.matmul_pass(stationary[part], moving[part])
    assert same_bits(psum, want)


def test_four_passes_keep_what_one_bfloat16_pass_loses() -> None:
    stationary = np.full((128, 4), 1 + 2.0**-20, np.float32)
    moving = np.eye(128, 8, dtype=np.float32)
    assert (matmul.matmul(stationary, moving, 4) == np.float32(1 + 2.0**-20)).all()
    half = convert.narrow(stationary, dtypes.bfloat16)
    psum = np.empty((4, 8), np.float32)
    matmul.matmul_into(psum, half, dtypes.bfloat16, moving, dtypes.float32, 1, True)
    assert (psum == 1).all()


def test_split_is_exact() -> None:
    rng = np.random.default_rng(2)
    values = rng.integers(0, 1 << 32, 20_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    values = np.concatenate([values, np.array([0.0, -0.0, np.inf, -np.inf, 1e-45, 3.4e38], np.float32)])
    parts = np.concatenate([values, np.empty_like(values), np.empty_like(values)])
    assert products._halve(parts, values.size, False) == 2 * values.size
    high, low, finite_high = np.split(parts, 3)
    finite = np.isfinite(values)
    assert np.array_equal(high[finite] + low[finite], values[finite])
    assert same_bits(high[~finite], values[~finite])
    assert same_bits(finite_high[finite], high[finite])
    assert not finite_high[~finite].any()
    assert not low[~finite].any()
    assert not (high[finite].view(np.uint32) & 0xFFF).any()
    for got, want in zip((high, finite_high, low), reference.split(values), strict=True):
        assert np.array_equal(got, want, equal_nan=True)


def test_infinity_and_nan() -> None:
    stationary = np.array([[np.inf, 1.0, np.nan, 0.0], [1.0, np.inf, 1.0, 1.0]], np.float32)
    moving = np.array([[2.0, 0.0, 1.5], [3.0, -np.inf, 1.1]], np.float32)
    for passes in (1, 4):
        got = matmul.matmul(stationary, moving, passes)
        want = np.empty((4, 3), np.float32)
        reference.matmul_into(want, stationary, moving, passes, True)
        assert same_bits(got, want)
        assert got[0, 0] == np.inf
        assert np.isnan(got[0, 1])
        assert got.view(np.uint32)[2, 0] == reference.CANONICAL_NAN


def test_products_of_zero_start_from_plus_zero() -> None:
    stationary = np.full((3, 2), -0.0, np.float32)
    moving = np.ones((3, 5), np.float32)
    assert not np.signbit(matmul.matmul(stationary, moving, 1)).any()
    psum = np.full((2, 5), -0.0, np.float32)
    matmul.accumulate_into(psum, stationary, moving, 1, False)
    assert not np.signbit(psum).any()


def test_denormals_are_kept() -> None:
    got = matmul.matmul(np.full((1, 1), 1e-30, np.float32), np.full((1, 1), 1e-12, np.float32), 1)
    assert got[0, 0] == np.float32(1e-30) * np.float32(1e-12) != 0


FORMATS = [dtypes.float32, dtypes.bfloat16, dtypes.float16, dtypes.float8_e4m3, dtypes.float8_e5m2]


@pytest.mark.parametrize("stationary_dtype", FORMATS)
@pytest.mark.parametrize("moving_dtype", FORMATS)
def test_storage_formats_widen_exactly(stationary_dtype: DType, moving_dtype: DType) -> None:
    stationary, moving = operands(36, 20, 70)
    left, right = convert.narrow(stationary, stationary_dtype), convert.narrow(moving, moving_dtype)
    psum = np.empty((20, 70), np.float32)
    matmul.matmul_into(psum, left, stationary_dtype, right, moving_dtype, 1, True)
    want = reference.matmul_pass(convert.widen(left, stationary_dtype), convert.widen(right, moving_dtype))
    assert same_bits(psum, want)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.float8_e4m3])
def test_any_layout_gives_the_same(dtype: DType) -> None:
    stationary, moving = operands(40, 24, 72)
    left, right = convert.narrow(stationary, dtype), convert.narrow(moving, dtype)
    want = reference.matmul_pass(convert.widen(left, dtype), convert.widen(right, dtype))
    wide_left, wide_right = np.repeat(left, 2, axis=1), np.repeat(right, 3, axis=1)
    frozen = right.copy()
    frozen.flags.writeable = False
    for first, second in [
        (wide_left[:, ::2], wide_right[:, ::3]),
        (np.asfortranarray(left), frozen),
        (left[::-1][::-1], right),
    ]:
        psum = np.empty((24, 72), np.float32)
        matmul.matmul_into(psum, first, dtype, second, dtype, 1, True)
        assert same_bits(psum, want)


@pytest.mark.parametrize("passes", [1, 4])
def test_destination_may_be_a_part_of_more(passes: int) -> None:
    stationary, moving = operands(16, 8, 24)
    want = np.empty((8, 24), np.float32)
    reference.matmul_into(want, stationary, moving, passes, True)
    bank = np.full((8, 100), 7.0, np.float32)
    matmul.accumulate_into(bank[:, 30:54], stationary, moving, passes, True)
    assert same_bits(bank[:, 30:54], want)
    assert (bank[:, :30] == 7).all()
    assert (bank[:, 54:] == 7).all()
    for view in (
        np.zeros((8, 48), np.float32)[:, ::2],
        np.zeros((24, 8), np.float32).T,
        np.zeros((16, 24), "f4")[::-2],
    ):
        matmul.accumulate_into(view, stationary, moving, passes, True)
        assert same_bits(view, want)


def test_other_pass_counts_are_refused() -> None:
    stationary, moving = operands(4, 4, 4)
    with pytest.raises(ValueError, match="3 passes"):
        matmul.matmul(stationary, moving, 3)


@pytest.mark.parametrize(
    ("stationary", "moving", "psum"),
    [((4, 5), (3, 6), (5, 6)), ((4, 5), (4, 6), (5, 7)), ((4, 5), (4, 6), (6, 5))],
)
def test_shapes_that_do_not_fit_are_refused(stationary: Any, moving: Any, psum: Any) -> None:
    with pytest.raises(ValueError, match="are needed"):
        matmul.accumulate_into(*(np.zeros(shape, np.float32) for shape in (psum, stationary, moving)), 1, True)


def test_two_callers_at_once() -> None:
    stationary, moving = operands(128, 128, 512)
    want = reference.matmul_pass(stationary, moving)
    wrong: list[int] = []

    def work(index: int) -> None:
        for _ in range(10):
            if not same_bits(matmul.matmul(stationary, moving, 1), want):
                wrong.append(index)

    callers = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []
