"""Activation functions: the error bound of each, special values, and the order of scale, bias and function."""

from __future__ import annotations

import math

import llvmlite.binding
import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from neurosim import jit
from neurosim.compiling import compiler
from neurosim.numerics import act, reference

NAMES = list(act.ACTIVATIONS)

# around these, a result or the slope of a result is 0, Inf, or changes its form
TURNS = [0.5, 1.0, -1.0, math.pi, -math.pi, math.pi / 2, 2.4142137, 0.41421357, 88.722839, -87.336548, -103.97208]
TURNS += [-1.2784645, -0.7517916, -0.7511793, -1.1922, 0.34657359, 40.0, 20.0, 10.0, 3.9192059, -14.2, -5.0]


def samples() -> NDArray[np.float32]:
    """Random bit patterns, random values, every float next to a turn, and the edges; no NaN."""
    rng = np.random.default_rng(1)
    patterns = rng.integers(0, 1 << 32, 6000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    spread = [rng.uniform(-low, low, 5000).astype(np.float32) for low in (1.0, 4.0, 20.0, 110.0)]
    around = [(np.float32(x).view(np.uint32) + np.arange(-60, 60)).astype(np.uint32).view("f4") for x in TURNS]
    edges = np.array([0.0, -0.0, np.inf, -np.inf, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38, -3.4e38], np.float32)
    every = np.concatenate([patterns, *spread, *around, edges])
    return every[~np.isnan(every)]


SAMPLES = samples()


def error_in_ulp(got: NDArray[np.float32], want: NDArray[np.float64]) -> float:
    """The largest error in units in the last place; infinite where NaN, Inf or the sign of a zero is wrong."""
    with np.errstate(over="ignore"):
        near = want.astype(np.float32)
    if not np.array_equal(np.isnan(got), np.isnan(near)):
        return math.inf
    rest = ~np.isnan(near)
    got, near, want = got[rest], near[rest], want[rest]
    if not np.array_equal(got[np.isinf(near)], near[np.isinf(near)]):
        return math.inf
    zero = (got == 0) & (near == 0)
    if not np.array_equal(np.signbit(got[zero]), np.signbit(near[zero])):
        return math.inf
    finite = np.isfinite(near)
    with np.errstate(over="ignore"):
        unit = np.spacing(np.abs(near[finite])).astype(np.float64)
    return float(np.max(np.abs(got[finite].astype(np.float64) - want[finite]) / unit))


@pytest.mark.parametrize("name", NAMES)
def test_error_bound(name: str) -> None:
    function = reference.ACTIVATION[name]
    want = np.array([function(float(x)) for x in SAMPLES])
    assert error_in_ulp(act.activate(name, SAMPLES), want) <= act.ULP_BOUND[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_error_bound_on_many(name: str) -> None:
    function = reference.ACTIVATION[name]
    rng = np.random.default_rng(2)
    for scale in (0.5, 3.0, 12.0, 100.0, 1e4):
        values = rng.uniform(-scale, scale, 100_000).astype(np.float32)
        want = np.array([function(float(x)) for x in values])
        assert error_in_ulp(act.activate(name, values), want) <= act.ULP_BOUND[name]


@pytest.mark.parametrize("name", NAMES)
def test_nan_has_one_pattern(name: str) -> None:
    nans = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert act.activate(name, nans).view(np.uint32).tolist() == [reference.CANONICAL_NAN] * 4


@pytest.mark.parametrize(
    ("name", "x", "want"),
    [
        ("log", 0.0, -math.inf),
        ("log", -1.0, math.nan),
        ("rsqrt", 0.0, math.inf),
        ("rsqrt", -1.0, math.nan),
        ("sqrt", -0.0, -0.0),
        ("reciprocal", -0.0, -math.inf),
        ("exp", 89.0, math.inf),
        ("exp", -math.inf, 0.0),
        ("exp", -100.0, 3.783506e-44),
        ("gelu", -math.inf, -0.0),
        ("silu", -math.inf, -0.0),
        ("mish", math.inf, math.inf),
        ("sigmoid", -math.inf, 0.0),
        ("softplus", 1000.0, 1000.0),
        ("tanh", math.inf, 1.0),
        ("sign", -0.0, -0.0),
        ("sign", -3.0, -1.0),
        ("relu", -0.0, 0.0),
        ("arctan", math.inf, 1.5707964),
        ("copy", -0.0, -0.0),
    ],
)
def test_special_values(name: str, x: float, want: float) -> None:
    got = act.activate(name, np.array([x], np.float32))
    assert int(got.view(np.uint32)[0]) == reference.bits_of(want)


def test_sin_continues_as_the_documented_cubic() -> None:
    got = act.activate("sin", np.array([9.0, -9.0], np.float32))
    assert got[0] == pytest.approx(27.65, abs=0.005)
    assert got[1] == -got[0]


def test_product_rounds_then_sum_rounds() -> None:
    x = np.array([[1.0 + 2.0**-12]], np.float32)
    # (1 + 2**-12)**2 rounds to 1 + 2**-11; fused, the sum below would be 2**-24
    assert act.activate("copy", x, float(x[0, 0]), -(1.0 + 2.0**-11)).tolist() == [[0.0]]


@pytest.mark.parametrize("name", NAMES)
def test_scale_and_bias_apply_to_every_function(name: str) -> None:
    x = np.linspace(-3, 3, 24, dtype=np.float32).reshape(4, 6)
    scale = np.array([[0.5], [2.0], [1.0], [-1.0]], np.float32)
    bias = np.array([1.0, 0.0, -0.25, 0.5], np.float32)
    want = act.activate(name, x * scale + bias[:, None])
    assert np.array_equal(act.activate(name, x, scale, bias).view("u4"), want.view("u4"))
    assert np.array_equal(act.activate(name, x, 2.0, 1.0).view("u4"), act.activate(name, x * 2 + 1).view("u4"))
    assert np.array_equal(act.activate(name, x, scale).view("u4"), act.activate(name, x * scale).view("u4"))


def test_no_bias_adds_nothing() -> None:
    x = np.array([-0.0], np.float32)
    assert np.signbit(act.activate("copy", x))[0]
    assert not np.signbit(act.activate("copy", x, 1.0, 0.0))[0]


def test_any_layout_and_out() -> None:
    x = np.linspace(-3, 3, 48, dtype=np.float32).reshape(4, 12)
    want = act.activate("exp", x[:, ::2].copy())
    assert np.array_equal(act.activate("exp", x[:, ::2]), want)
    out = x[:, ::2].copy()
    assert act.activate("exp", out, out=out) is out
    assert np.array_equal(out, want)
    assert act.activate("exp", np.empty((0, 4), np.float32), np.empty((0, 1), np.float32)).shape == (0, 4)


@pytest.mark.skipif(
    jit.INTERPRETED or not llvmlite.binding.get_host_cpu_features().get("avx512f"),
    reason="nothing is compiled for AVX-512",
)
def test_an_exponential_fills_vector_registers() -> None:
    compiled = numba.njit(compiler.prepared(act.ACTIVATIONS["exp"].kernel.py_func))  # shows its code
    x, one, out = np.zeros((2, 64), np.float32), np.ones(2, np.float32), np.empty((2, 64), np.float32)
    compiled(x, one, one, out)
    np.testing.assert_allclose(out, math.e, rtol=2e-7)
    assert any("vmulps" in line and "zmm" in line for line in compiled.inspect_asm(compiled.signatures[0]).splitlines())


def test_table() -> None:
    assert set(act.ACTIVATIONS) == set(reference.ACTIVATION)
    assert all(name == row.name for name, row in act.ACTIVATIONS.items())
    limited = {name for name, row in act.ACTIVATIONS.items() if row.valid_range is not None}
    assert limited == {"log", "sin", "arctan", "sqrt", "rsqrt", "reciprocal"}
