"""Where products are exact, product and sum are one instruction; everywhere else they must not be."""

from __future__ import annotations

from typing import Any

import llvmlite.binding
import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from neurosim import dtypes, jit
from neurosim.compiling import blocks, compiler
from neurosim.dtypes import DType
from neurosim.numerics import convert, matmul, products, reference

F32 = NDArray[np.float32]

FEATURES = llvmlite.binding.get_host_cpu_features()
HAS_FMA = bool(FEATURES.get("fma")) and not jit.INTERPRETED
FORMATS = [
    dtypes.float32,
    dtypes.tfloat32,
    dtypes.bfloat16,
    dtypes.float16,
    dtypes.float8_e4m3,
    dtypes.float8_e4m3fn,
    dtypes.float8_e5m2,
]


def seen(values: Any) -> Any:
    """Return what the values are seen to hold."""
    row = np.atleast_2d(np.asarray(values, np.float32))
    packed = np.empty(row.shape[1] + 4 * blocks.SUM_ROWS * products._GAP, np.float32)
    found = products._pack(matmul._operand(row, dtypes.float32)[:4], 1, row.shape[1], int(blocks.SUM_ROWS), packed)
    return tuple(map(np.uint32, found))


def are_exact(left: Any, right: Any, halved: bool = False) -> bool:
    with np.errstate(over="ignore"):  # of 0 the number that follows 2**32 - 1
        return bool(products.products_are_exact(seen(left), seen(right), halved))


def same_bits(a: F32, b: F32) -> bool:
    return np.array_equal(a.view(np.uint32), b.view(np.uint32))


def check(stationary: Any, stationary_dtype: DType, moving: Any, moving_dtype: DType, passes: int) -> None:
    """Compare with the reference, which never fuses, on a destination that is overwritten and on one that is not."""
    wide = [convert.widen(stationary, stationary_dtype), convert.widen(moving, moving_dtype)]
    got = np.empty((stationary.shape[1], moving.shape[1]), np.float32)
    want = np.empty_like(got)
    for overwrite in (True, False):
        matmul.matmul_into(got, stationary, stationary_dtype, moving, moving_dtype, passes, overwrite)
        reference.matmul_into(want, *wide, passes, overwrite)
        assert same_bits(got, want)


#: Sums of two products that have other bits if the second product is not rounded; why it is not exact.
TRAPS = {
    "25 bits": ([[-1.0], [1 + 2.0**-12]], [[1 + 2.0**-11], [1 + 2.0**-12]]),
    "below the least denormal": ([[2.0**-75], [1.5 * 2.0**-75]], [[2.0**-74], [2.0**-74]]),
    "denormal factors": ([[2.0**-127], [1.5 * 2.0**-127]], [[2.0**-22], [2.0**-22]]),
    "above the largest": ([[-(2.0**63)], [2.0**64]], [[2.0**64], [2.0**64]]),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_what_a_fused_result_would_change_is_multiplied_plainly(trap: str) -> None:
    left, right = (np.array(side, np.float32) for side in TRAPS[trap])
    assert not are_exact(left.T, right.T)
    check(left, dtypes.float32, right, dtypes.float32, 1)
    if trap != "25 bits":
        check(left, dtypes.float32, right, dtypes.float32, 4)
        short = [convert.narrow(side, dtypes.bfloat16) for side in (left, right)]
        check(short[0], dtypes.bfloat16, short[1], dtypes.bfloat16, 1)


@pytest.mark.skipif(not HAS_FMA, reason="this processor has no such instruction")
@pytest.mark.parametrize("trap", TRAPS)
def test_the_traps_are_traps(trap: str) -> None:
    left, right = (np.array(side, np.float32) for side in TRAPS[trap])
    packed = [np.zeros((2, block), np.float32) for block in (blocks.SUM_ROWS, blocks.SUM_COLUMNS)]
    packed[0][:, :1], packed[1][:, :1] = left, right
    weights, panel = (part.reshape(-1) for part in packed)
    sums = [np.empty(products._SUMS, np.float32) for _ in range(2)]
    for exact in (False, True):
        kernel = compiler.intrinsic(blocks.products_kernel(exact))

        def run(weights: Any, panel: Any, sums: Any, kernel: Any = kernel) -> None:
            kernel(weights, 0, panel, 0, 2, sums, 0, 1, 1, True)

        numba.njit(run)(weights, panel, sums[exact])
    assert sums[0][0] == reference.matmul_pass(left, right)[0, 0] != sums[1][0]


@pytest.mark.parametrize(
    ("left", "right", "halved"),
    [
        (1 + 2.0**-11, 1 + 2.0**-11, False),  # 24 bits
        (1 + 2.0**-22, 1.0, False),
        (1 + 2.0**-23, 1 + 2.0**-23, True),
        (1.5 * 2.0**-75, 1.0 * 2.0**-73, False),  # 1.5 * 2**-148 ends in 2**-149
        (2.0**-149, 1.0, True),
        (2.0**-126 + 2.0**-149, 1.0, True),
        (2.0**127 * 1.5, 0.9375, False),  # below 2**128 by the bounds of both
        (2.0**64 * (1 - 2.0**-8), 2.0**64 * (1 - 2.0**-8), False),
        (0.0, 2.0**-149, False),
        ([0.0, 0.5, -0.0], [2.0**127, 0.0], False),
    ],
)
def test_at_the_limits_products_are_exact(left: Any, right: Any, halved: bool) -> None:
    assert are_exact(left, right, halved)
    assert are_exact(right, left, halved)
    assert are_exact(-np.asarray(left), right, halved)


@pytest.mark.parametrize(
    ("left", "right", "halved"),
    [
        (1 + 2.0**-12, 1 + 2.0**-11, False),
        (1 + 2.0**-12, 1 + 2.0**-12, False),
        ([1 + 2.0**-12, 1.0], [1.0, 1 + 2.0**-12], False),  # of different elements
        (1.5 * 2.0**-75, 1.0 * 2.0**-74, False),
        (1 + 2.0**-23, 2.0**-127, True),
        (2.0**-149, 0.5, False),
        ([1.0, 2.0**-149], [1.0, 0.5], True),
        (2.0**64, 2.0**64, False),
        (2.0**127, 2.0, True),
        (np.inf, 1.0, False),
        (np.nan, 0.0, True),
        ([1.0, -np.inf], [0.0], False),
    ],
)
def test_beyond_the_limits_products_are_not(left: Any, right: Any, halved: bool) -> None:
    assert not are_exact(left, right, halved)
    assert not are_exact(right, left, halved)


def test_exact_means_exact() -> None:
    """No product of tiles that are said to be exact needs rounding: 24 bits at most in float64, of any exponent."""
    rng = np.random.default_rng(5)
    exact = 0
    for _ in range(2000):
        factors = []
        for _ in range(2):
            kept = int(rng.integers(1, 25))  # significant bits
            codes = rng.integers(0, 1 << 23, 6) >> (24 - kept) << (24 - kept)
            fields = np.clip(rng.integers(0, 255) + rng.integers(-3, 4, 6), 0, 254)
            factors.append((codes | fields << 23).astype(np.uint32).view(np.float32))
        products = factors[0].astype(np.float64)[:, None] * factors[1].astype(np.float64)[None, :]
        with np.errstate(over="ignore"):
            rounded = products.astype(np.float32)
        if are_exact(*factors):
            exact += 1
            assert np.array_equal(rounded, products)
            assert np.isfinite(rounded).all()
    assert exact > 200


@pytest.mark.parametrize("moving_dtype", FORMATS)
@pytest.mark.parametrize("stationary_dtype", FORMATS)
def test_all_bits_of_all_formats(stationary_dtype: DType, moving_dtype: DType) -> None:
    """Denormals, huge numbers, Inf, NaN and zeros of both signs, and tiles without some of these."""
    rng = np.random.default_rng(11)
    for most in (1.0, 0.9, 0.5):
        sides = []
        for dtype, columns in ((stationary_dtype, 9), (moving_dtype, 52)):
            codes = rng.integers(0, 1 << 8 * dtype.size_bytes, (5, columns), np.uint64).astype(dtype.bits)
            values = convert.widen(codes.view(dtype.numpy), dtype)
            values[~(np.abs(values) <= most * dtype.max_value) & (most < 1)] = 1.0
            values[rng.random(values.shape) < 0.1] = -0.0
            sides.append(convert.narrow(values, dtype))
        wide = dtypes.float32 in (stationary_dtype, moving_dtype)
        for passes in (1, 4) if wide else (1,):
            check(sides[0], stationary_dtype, sides[1], moving_dtype, passes)


@pytest.mark.parametrize("overwrite", [True, False])
def test_passes_that_add_nothing_are_left_out_without_a_trace(overwrite: bool) -> None:
    """The lower halves of 16 bits are 0: what the left-out passes would do to -0 and Inf is done by the others."""
    left = np.array([[1 + 2.0**-20, np.inf, -0.0, 0.0]], np.float32)
    right = np.array([[1.0, np.inf, np.nan, 0.0, -0.0, -2.0]], np.float32)
    got = np.full((4, 6), -0.0, np.float32)
    want = got.copy()
    matmul.matmul_into(got, left, dtypes.float32, convert.narrow(right, dtypes.bfloat16), dtypes.bfloat16, 4, overwrite)
    reference.matmul_into(want, left, right, 4, overwrite)
    assert same_bits(got, want)


@pytest.mark.skipif(not HAS_FMA, reason="this processor has no such instruction")
def test_both_kernels_fill_vector_registers() -> None:
    register = "zmm" if FEATURES.get("avx512f") else "ymm"
    for exact in (False, True):
        kernel = compiler.intrinsic(blocks.products_kernel(exact))

        def run(left: Any, right: Any, sums: Any, kernel: Any = kernel) -> None:
            kernel(left, 0, right, 0, 128, sums, 0, blocks.SUM_COLUMNS, blocks.SUM_ROWS, True)

        compiled = numba.njit(run)  # what was found on disk does not show its code
        arrays = [np.ones(128 * 64, np.float32) for _ in range(2)]
        sums = np.empty(products._SUMS, np.float32)
        compiled(*arrays, sums)
        assert (sums[: blocks.SUM_ROWS * blocks.SUM_COLUMNS] == 128).all()
        lines = [line for line in compiled.inspect_asm(compiled.signatures[0]).splitlines() if register in line]
        counts = [sum(name in line for line in lines) for name in ("vfmadd", "vmulps")]
        whole = blocks.SUM_ROWS * blocks.SUM_COLUMNS // blocks.LANES
        assert counts[exact] == 0
        assert counts[not exact] >= whole


@pytest.mark.skipif(not HAS_FMA, reason="this processor has other names for it")
def test_halves_are_made_in_vector_registers() -> None:
    """Without stores under a mask, which some processors do number by number: they took an eighth of four passes."""
    made = compiler.dispatcher(products._halve)
    form = numba.types.Array(numba.float32, 1, "C"), numba.int64, numba.boolean
    made.compile(form)
    lines = made.inspect_asm(form).splitlines()
    assert any("vsubps" in line and ("ymm" in line or "zmm" in line) for line in lines)
    assert not any("maskmov" in line for line in lines)
