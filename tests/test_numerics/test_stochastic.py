"""Stochastic rounding: the generator's known answers, a twin in exact fractions, and no bias, by enumeration."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from neurosim import dtypes
from neurosim.dtypes import DType
from neurosim.numerics import convert, reference, stochastic

FORMATS = [dtype for dtype in dtypes.FORMATS if stochastic.is_rounded(dtype)]
UNUSED_BITS = {dtypes.tfloat32: 13}
WORDS = 1 << 32


def samples(count: int) -> NDArray[np.float32]:
    """Random patterns, values of every size that a short format has, and the edges of float32."""
    rng = np.random.default_rng(8)
    patterns = rng.integers(0, WORDS, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
    sizes = np.ldexp(rng.uniform(1, 2, count), rng.integers(-30, 20, count)).astype(np.float32)
    edges = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, 1.1754942e-38, 3.4028235e38, 65519.0, 240.0, 464.0]
    return np.concatenate([patterns, sizes, -sizes, np.array(edges, np.float32)])


def codes(values: NDArray[np.float32], dtype: DType, random: NDArray[np.uint32]) -> NDArray[np.int64]:
    narrowed = stochastic.narrow(values, dtype, random).view(dtype.bits)
    return narrowed.astype(np.int64) >> UNUSED_BITS.get(dtype, 0)


@pytest.mark.parametrize(
    ("key", "counter", "answer"),
    [
        ((0, 0), (0, 0, 0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((WORDS - 1,) * 2, (WORDS - 1,) * 4, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0xA4093822, 0x299F31D0),
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_known_answers_of_the_generator(key: tuple[int, ...], counter: tuple[int, ...], answer: str) -> None:
    """Those that the authors of Philox publish with their library, Random123, for philox4x32-10."""
    out = np.empty(4, np.uint32)
    stochastic._philox(np.array(key, np.uint32), np.array(counter, np.uint32), out)
    assert " ".join(f"{word:08x}" for word in out) == answer


def test_numbers_depend_on_seed_stream_and_place_alone() -> None:
    long = stochastic.philox(7, (1, 2, 3), 1001)
    assert np.array_equal(stochastic.philox(7, (1, 2, 3), 10), long[:10])
    others = [stochastic.philox(seed, counter, 1001) for seed, counter in ((7, (1, 2, 4)), (7 << 32, (1, 2, 3)))]
    assert all(np.count_nonzero(other == long) < 5 for other in others)
    assert stochastic.philox(0, (0, 0, 0), 0).shape == (0,)


@pytest.mark.parametrize("dtype", FORMATS)
def test_rounding_is_the_twin(dtype: DType) -> None:
    values = samples(400)
    random = np.random.default_rng(9).integers(0, WORDS, values.size, dtype=np.uint64).astype(np.uint32)
    random[::5], random[1::5] = 0, WORDS - 1
    signs = (values.view(np.uint32) >> 31).tolist()
    zipped = zip(values.tolist(), signs, random.tolist(), strict=True)
    want = [reference.stochastic_one(value, dtype, sign, word) for value, sign, word in zipped]
    assert codes(values, dtype, random).tolist() == want


@pytest.mark.parametrize("dtype", FORMATS)
def test_the_share_of_random_words_that_round_up_is_the_distance(dtype: DType) -> None:
    """By enumeration of all 2**32 words at once: more of them never round down what fewer round up.

    So the first word that rounds up says how many do: as many as the value lies above the code below it, in parts of
    2**-32 of the distance between the two.
    """
    values = np.abs(samples(300))
    largest = np.float32(dtype.max_value)
    values = values[(values < largest) & (values != 0)]
    below = codes(values, dtype, np.zeros(values.size, np.uint32))
    low, high = (_values(code, dtype) for code in (below, below + 1))
    shares = [
        math.floor((Fraction(value) - down) / (up - down) * WORDS)
        for value, down, up in zip(values.tolist(), low, high, strict=True)
    ]
    first_up = np.array([WORDS - max(share, 1) for share in shares], np.uint32)
    moves = np.array([share > 0 for share in shares])
    assert np.array_equal(codes(values, dtype, first_up), below + moves)
    assert np.array_equal(codes(values, dtype, first_up - np.uint32(1)), below)
    assert np.array_equal(codes(values, dtype, np.full(values.size, WORDS - 1, np.uint32)), below + moves)


def _values(code: NDArray[np.int64], dtype: DType) -> list[Fraction]:
    """Return the exact values of codes; one beyond the last is what it would be."""
    field, mantissa = code >> dtype.mantissa_bits, code & ((1 << dtype.mantissa_bits) - 1)
    pairs = zip(field.tolist(), mantissa.tolist(), strict=True)
    one = 1 << dtype.mantissa_bits
    return [
        (part + (one if exponent else 0)) * Fraction(2) ** (max(exponent, 1) - dtype.bias - dtype.mantissa_bits)
        for exponent, part in pairs
    ]


@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.float16])
def test_the_mean_over_all_words_that_count_is_the_value(dtype: DType) -> None:
    """All 2**16 words that differ in what bfloat16 looks at; float16 looks at 13 bits for these values."""
    words = np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)
    for value in np.array([1.0000001, 1.3, -7.77, 1234.5678, 0.00390624], np.float32):
        rounded = stochastic.narrow(np.full(words.size, value, np.float32), dtype, words)
        assert math.fsum(convert.widen(rounded, dtype).tolist()) / words.size == float(value)


@pytest.mark.parametrize("dtype", FORMATS)
def test_seeded_roundings_have_no_bias(dtype: DType) -> None:
    """The mean error of many values lies within five standard deviations of zero."""
    values = np.random.default_rng(10).uniform(1, 2, 1 << 16).astype(np.float32)
    rounded = convert.widen(stochastic.narrow(values, dtype, stochastic.philox(1, (0, 0, 0), values.size)), dtype)
    error = rounded.astype(np.float64) - values
    ulp = 2.0**-dtype.mantissa_bits
    assert abs(error.mean()) < 5 * ulp * math.sqrt(1 / 6 / values.size)
    assert np.abs(error).max() < ulp
    assert error.std() > 0.3 * ulp


@pytest.mark.parametrize("dtype", FORMATS)
def test_values_of_the_format_stay(dtype: DType) -> None:
    every = np.arange(1 << min(16, 8 * dtype.size_bytes)).astype(dtype.bits) << UNUSED_BITS.get(dtype, 0)
    values = convert.widen(every.astype(dtype.bits).view(dtype.numpy), dtype)
    want = convert.narrow(values, dtype).view(dtype.bits)
    for word in (0, WORDS - 1):
        random = np.full(values.size, word, np.uint32)
        assert np.array_equal(stochastic.narrow(values, dtype, random).view(dtype.bits), want)
