"""Arithmetic in float64 against the scalar twins, and its special cases."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from neurosim.jit import compiled, python_of
from neurosim.numerics import act, alu, matmul, reduce, reference, scan, search, statistics, wide

RNG = np.random.default_rng(11)
FINITE = np.array([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.3, 7.0, -7.25, 1e-3, 123.5])
SPECIAL = np.array([*FINITE, np.inf, -np.inf, np.nan])


def grid(values):
    left, right = np.meshgrid(values, values)
    return left.reshape(1, -1), right.reshape(1, -1)


@pytest.mark.parametrize("op", sorted(reference.BINARY))
def test_operators_of_two_sides(op):
    left, right = grid(SPECIAL)
    with np.errstate(all="ignore"):
        found = alu.binary(op, left, right)
    expected = [reference.BINARY[op](float(a), float(b)) for a, b in zip(left[0], right[0], strict=True)]
    assert found.dtype == np.float64
    rtol = 1e-6 if op == "mod" else 1e-13  # the twin rounds a difference to float32
    # what no float32 can hold is known to be large, or small, and no more
    pair = (np.clip(values, -1e300, 1e300) for values in (found[0], expected))
    np.testing.assert_allclose(*pair, rtol=rtol, atol=1e-300)


def test_what_float64_comes_to_first_is_made_for_float32(monkeypatch):
    """As in a process that begins with float64 beside a run."""
    exp = act.ACTIVATIONS["exp"]
    monkeypatch.setitem(alu._BINARY, "add", compiled(python_of(alu._BINARY["add"])))
    monkeypatch.setitem(act.ACTIVATIONS, "exp", dataclasses.replace(exp, kernel=compiled(python_of(exp.kernel))))
    for dtype in (np.float64, np.float32):
        left, right = (values.astype(dtype) for values in grid(FINITE))
        assert alu.binary("add", left, right).dtype == dtype
        assert act.activate("exp", left).dtype == dtype


@pytest.mark.parametrize("op", sorted(reference.UNARY))
def test_operators_of_one_side(op):
    with np.errstate(all="ignore"):
        found = alu.unary(op, SPECIAL.reshape(1, -1))
    np.testing.assert_array_equal(found[0], [reference.UNARY[op](float(x)) for x in SPECIAL])


def test_numbers_beside_float64_are_not_rounded():
    assert alu.binary("multiply", np.ones((1, 1)), 0.1)[0, 0] == 0.1
    assert act.activate("copy", np.ones((1, 1)), 0.1, 1e-9)[0, 0] == 0.1 + 1e-9


@pytest.mark.parametrize("name", sorted(act.ACTIVATIONS))
def test_functions(name):
    x = np.concatenate([np.linspace(-9, 9, 301), [0.0, -0.0, 1e-7, 30.0, -30.0, np.inf, -np.inf]])
    found = act.activate(name, x.reshape(1, -1))
    expected = [reference.ACTIVATION[name](float(value)) for value in x]
    assert found.dtype == np.float64
    np.testing.assert_allclose(found[0], expected, rtol=2e-11, atol=1e-50)
    assert math.isnan(act.activate(name, np.full((1, 1), np.nan))[0, 0])


def test_a_function_takes_columns():
    x, scale, bias = RNG.standard_normal((3, 5)), RNG.standard_normal((3, 1)), RNG.standard_normal((3, 1))
    np.testing.assert_array_equal(act.activate("square", x, scale, bias), (x * scale + bias) ** 2)


@pytest.mark.parametrize("op", ["add", "multiply", "maximum", "minimum", "logical_and", "logical_or", "logical_xor"])
def test_reductions(op):
    x = RNG.integers(-3, 4, (4, 12)).astype(np.float64)
    found = reduce.reduce_free(op, x, 3)
    expected = [[_reduced(op, run) for run in row.reshape(3, 4)] for row in x]
    np.testing.assert_array_equal(found, expected)


def _reduced(op, run):
    if op == "logical_xor":
        return float(np.count_nonzero(run) % 2)
    return {
        "add": sum,
        "multiply": math.prod,
        "maximum": max,
        "minimum": min,
        "logical_and": lambda row: float(all(row)),
        "logical_or": lambda row: float(any(row)),
    }[op](run)


def test_a_sum_keeps_what_float32_would_lose():
    x = np.array([[1.0, 2.0**-40, 2.0**-40]])
    assert reduce.reduce_free("add", x)[0, 0] == 1 + 2.0**-39
    assert reduce.reduce_free("add", x.astype(np.float32))[0, 0] == 1


def test_scans():
    a, b = RNG.standard_normal((2, 6)), RNG.standard_normal((2, 6))
    first = np.array([0.5, -1.5])
    states = scan.scan("multiply", "add", a, b, first)
    sums = scan.cumulate("add", a, first)
    state, total = first.copy(), first.copy()
    for column in range(6):
        state, total = state * a[:, column] + b[:, column], total + a[:, column]
        np.testing.assert_array_equal(states[:, column], state)
        np.testing.assert_array_equal(sums[:, column], total)


def test_statistics():
    x = RNG.standard_normal((3, 9))
    found = statistics.even_odd(x)
    for half in range(2):
        part = x[:, half::2]
        mean = part.mean(axis=1)
        expected = [np.full(3, part.shape[1]), mean, ((part - mean[:, None]) ** 2).sum(axis=1)]
        np.testing.assert_allclose(found[:, 3 * half : 3 * half + 3].T, expected, rtol=1e-13)
    np.testing.assert_allclose(
        statistics.aggregate(np.hstack([found, np.zeros((3, 3))])), np.stack([x.mean(axis=1), x.var(axis=1)], axis=1)
    )
    np.testing.assert_array_equal(statistics.even_odd(x[:, :1])[:, 3:], 0.0)


def test_searches_find_what_float32_ones_find():
    x = RNG.integers(0, 6, (4, 20)).astype(np.float64)
    x[0, 3] = np.nan
    single = x.astype(np.float32)
    np.testing.assert_array_equal(search.largest(x), search.largest(single))
    np.testing.assert_array_equal(search.highest(x, 9), search.highest(single, 9))
    for descending in (False, True):
        vals = search.largest(single)
        np.testing.assert_array_equal(
            search.find(x, vals.astype(np.float64), descending), search.find(single, vals, descending)
        )


@pytest.mark.parametrize("overwrite", [True, False])
def test_products(overwrite):
    left, right = RNG.standard_normal((7, 3)), RNG.standard_normal((7, 5))
    psum = np.ones((3, 5))
    matmul.accumulate_into(psum, left, right, 4, overwrite)
    np.testing.assert_allclose(psum, left.T @ right + (not overwrite), rtol=1e-14)


def test_only_arrays_of_float64_ask_for_it():
    assert wide.is_wide(np.ones(1))
    assert not wide.is_wide(np.ones(1, np.float32), 1.0, None, np.float64(1.0))
