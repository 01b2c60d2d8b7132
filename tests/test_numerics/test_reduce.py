"""Reductions: the order of additions, special values, and the scalar twin beside every kernel."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from neurosim.numerics import reduce, reference

FLOAT_OPS = ["add", "multiply", "maximum", "minimum", "logical_and", "logical_or", "logical_xor"]
BIT_OPS = ["bitwise_and", "bitwise_or", "bitwise_xor"]


def twin(op: str, x: NDArray[np.float32], groups: int) -> NDArray[np.uint32]:
    rows, columns = x.shape
    runs = x.reshape(rows * groups, columns // groups)
    bits = [reference.bits_of(reference.reduce_row(op, [float(v) for v in run])) for run in runs]
    return np.array(bits, np.uint32).reshape(rows, groups)


def values(shape: tuple[int, int], seed: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * 10.0 ** rng.uniform(-3, 3, shape)).astype(np.float32)


@pytest.mark.parametrize("op", FLOAT_OPS)
@pytest.mark.parametrize(("shape", "groups"), [((13, 40), 1), ((16, 48), 4), ((5, 7), 7), ((1, 333), 1), ((9, 16), 8)])
def test_is_the_twin(op: str, shape: tuple[int, int], groups: int) -> None:
    x = values(shape, 1)
    if op.startswith("logical"):
        x = (x > 0).astype(np.float32)
    got = reduce.reduce_free(op, x, groups)
    assert got.shape == (shape[0], groups)
    assert np.array_equal(got.view(np.uint32), twin(op, x, groups))


@pytest.mark.parametrize("op", FLOAT_OPS)
def test_special_values_are_the_twins(op: str) -> None:
    rng = np.random.default_rng(5)
    special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3e38, -3e38], np.float32)
    special[6:7] = np.array([0xFFC00001], np.uint32).view(np.float32)
    # few special values a row, so that not every row has a NaN
    x = np.where(rng.random((200, 6)) < 0.4, rng.choice(special, (200, 6)), np.float32(-0.0)).astype(np.float32)
    assert np.array_equal(reduce.reduce_free(op, x).view(np.uint32), twin(op, x, 1))


@pytest.mark.parametrize("op", ["add", "multiply"])
def test_order_is_ascending(op: str) -> None:
    x = np.float32(1) + values((128, 512), 3) * np.float32(1e-3)
    result = x[:, 0].copy()
    for column in range(1, 512):
        result = result + x[:, column] if op == "add" else result * x[:, column]
    got = reduce.reduce_free(op, x)[:, 0]
    assert np.array_equal(got.view(np.uint32), result.view(np.uint32))
    backwards = reduce.reduce_free(op, x[:, ::-1])[:, 0]
    assert not np.array_equal(got, backwards)


@pytest.mark.parametrize("op", ["maximum", "minimum"])
def test_nan_wins_wherever_it_stands(op: str) -> None:
    for place in range(5):
        x = np.zeros((1, 5), np.float32)
        x[0, place] = -np.float32(np.nan)
        assert reduce.reduce_free(op, x).view(np.uint32).tolist() == [[reference.CANONICAL_NAN]]


def test_zeros_are_ordered() -> None:
    x = np.array([[0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0]], np.float32)
    assert [math.copysign(1, v) for v in reduce.reduce_free("maximum", x)[:, 0]] == [1, 1, -1]
    assert [math.copysign(1, v) for v in reduce.reduce_free("minimum", x)[:, 0]] == [-1, -1, -1]


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32])
@pytest.mark.parametrize("op", BIT_OPS)
def test_bitwise(op: str, dtype: type) -> None:
    x = np.random.default_rng(4).integers(0, 100, (6, 12)).astype(dtype)
    want = {"bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor}[op]
    got = reduce.reduce_free(op, x, 3)
    assert got.dtype == x.dtype
    assert np.array_equal(got, want.reduce(x.reshape(6, 3, 4), axis=2))


def test_one_element_is_itself() -> None:
    x = values((3, 8), 9)
    assert np.array_equal(reduce.reduce_free("add", x, 8), x)


def test_layout_does_not_matter() -> None:
    x = values((6, 20), 6)
    assert np.array_equal(reduce.reduce_free("add", x[:, ::2]), reduce.reduce_free("add", x[:, ::2].copy()))


@pytest.mark.parametrize(("columns", "groups"), [(10, 3), (10, 0), (0, 1)])
def test_groups_that_do_not_divide(columns: int, groups: int) -> None:
    with pytest.raises(ValueError, match="do not make"):
        reduce.reduce_free("add", np.zeros((2, columns), np.float32), groups)


def test_known_operators() -> None:
    assert set(reduce.REDUCTIONS) == {*FLOAT_OPS, *BIT_OPS}
