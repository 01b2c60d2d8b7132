"""The generators: known answers, a twin in Python integers, uniformity, and seeds that leave no two lanes alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neurosim.numerics import random
from neurosim.numerics.random import LFSR, XORWOW, XORWOW_BY_FOUR, Generator

ALL = (LFSR, XORWOW, XORWOW_BY_FOUR)
MASK = 0xFFFFFFFF
WORD = st.integers(0, MASK)
MARSAGLIA = (123456789, 362436069, 521288629, 88675123, 5783321, 6615241)
"""The seeds of the paper's listings: x, y, z, w, v, d."""


def xorwow(state: list[int]) -> int:
    """Draw one number; moves the state on."""
    t = state[0] ^ (state[0] >> 2)
    v = state[4] ^ (state[4] << 4) ^ t ^ (t << 1)
    state[:] = [*state[1:5], v & MASK, (state[5] + 362437) & MASK]
    return (state[5] + state[4]) & MASK


def xor128(state: list[int]) -> int:
    """Draw one number; moves the state on."""
    t = (state[0] ^ (state[0] << 11)) & MASK
    w = state[3] ^ (state[3] >> 19) ^ t ^ (t >> 8)
    state[:] = [*state[1:], w & MASK]
    return state[3]


def twin(generator: Generator, lane: list[int], count: int) -> tuple[list[int], list[int]]:
    """Return what a lane draws, and its state afterwards."""
    step = xor128 if generator is LFSR else xorwow
    states = [lane[at : at + generator.words] for at in range(0, len(lane), generator.words)]
    steps = -(-count // generator.streams)
    drawn = [step(state) for _ in range(steps) for state in states]
    return drawn[:count], [word for state in states for word in state]


def states_of(generator: Generator, lanes: int, seed: int) -> random.Words:
    rng = np.random.default_rng(seed)
    return rng.integers(0, MASK, (lanes, generator.lane_words), dtype=np.uint32, endpoint=True)


def test_known_answers() -> None:
    """The first numbers of xor128 from the paper's own seeds, as they are printed in many places."""
    drawn = random.draw(LFSR, np.array([MARSAGLIA[:4]], np.uint32), 4)
    assert drawn.tolist() == [[3701687786, 458299110, 2500872618, 3633119408]]
    drawn = random.draw(XORWOW, np.array([MARSAGLIA], np.uint32), 1)
    t = MARSAGLIA[0] ^ (MARSAGLIA[0] >> 2)
    v = (MARSAGLIA[4] ^ (MARSAGLIA[4] << 4) ^ t ^ (t << 1)) & MASK
    assert drawn.tolist() == [[(v + MARSAGLIA[5] + 362437) & MASK]]


@given(generator=st.sampled_from(ALL), data=st.data(), count=st.integers(1, 9))
def test_is_the_twin(generator: Generator, data: st.DataObject, count: int) -> None:
    size = generator.lane_words
    lanes = data.draw(st.lists(st.lists(WORD, min_size=size, max_size=size), min_size=1, max_size=3))
    states = np.array(lanes, np.uint32)
    drawn = random.draw(generator, states, count)
    for row, lane in enumerate(lanes):
        numbers, after = twin(generator, lane, count)
        assert drawn[row].tolist() == numbers
        assert states[row].tolist() == after


@pytest.mark.parametrize("generator", ALL, ids=lambda entry: f"{entry.name}_{entry.streams}")
def test_pieces_of_whole_steps_are_one_draw(generator: Generator) -> None:
    whole, pieces = states_of(generator, 5, 1), states_of(generator, 5, 1)
    at_once = random.draw(generator, whole, 24)
    parts = [random.draw(generator, pieces, count) for count in (8, 4, 12)]
    assert np.array_equal(at_once, np.concatenate(parts, axis=1))
    assert np.array_equal(whole, pieces)


def test_the_rest_of_a_step_is_lost() -> None:
    one, four = states_of(XORWOW_BY_FOUR, 3, 2), states_of(XORWOW_BY_FOUR, 3, 2)
    assert np.array_equal(random.draw(XORWOW_BY_FOUR, one, 1), random.draw(XORWOW_BY_FOUR, four, 4)[:, :1])
    assert np.array_equal(one, four)


def test_a_state_of_zeros_counts() -> None:
    states = np.zeros((1, 6), np.uint32)
    assert random.draw(XORWOW, states, 3).tolist() == [[362437, 2 * 362437, 3 * 362437]]
    assert random.draw(LFSR, np.zeros((1, 4), np.uint32), 2).tolist() == [[0, 0]]


@pytest.mark.parametrize("generator", ALL, ids=lambda entry: f"{entry.name}_{entry.streams}")
@pytest.mark.parametrize("seed", [0, 1, 42, MASK])
def test_uniform(generator: Generator, seed: int) -> None:
    """Counts in 256 bins of the upper and of the lower byte, of 128 lanes together: chi-square within 5 sigma."""
    drawn = random.draw(generator, random.seeded(generator, seed, 128), 1024)
    for byte in (drawn >> np.uint32(24), drawn & np.uint32(255)):
        counts = np.bincount(byte.reshape(-1), minlength=256)
        expected = drawn.size / 256
        square = float(((counts - expected) ** 2 / expected).sum())
        assert abs(square - 255) < 5 * (2 * 255) ** 0.5
    bits = np.unpackbits(drawn.view(np.uint8)).mean()
    assert abs(bits - 0.5) < 5 * 0.5 / (32 * drawn.size) ** 0.5


@pytest.mark.parametrize("generator", ALL, ids=lambda entry: f"{entry.name}_{entry.streams}")
def test_lanes_and_steps_do_not_follow_each_other(generator: Generator) -> None:
    """Neighbouring lanes, neighbouring elements and neighbouring seeds correlate no more than chance lets them."""
    drawn = random.unit(random.draw(generator, random.seeded(generator, 7, 128), 2048)).astype(np.float64) - 0.5
    other = random.unit(random.draw(generator, random.seeded(generator, 8, 128), 2048)).astype(np.float64) - 0.5
    limit = 5 / (12 * drawn.size**0.5)
    for one, two in ((drawn[:-1], drawn[1:]), (drawn[:, :-1], drawn[:, 1:]), (drawn, other)):
        assert abs((one * two).mean()) < limit


@given(seed=WORD)
def test_all_words_of_a_seed_differ(seed: int) -> None:
    for generator in ALL:
        states = random.seeded(generator, seed, 128)
        assert states.shape == (128, generator.lane_words)
        assert len(np.unique(states)) == states.size
    assert not np.array_equal(random.seeded(LFSR, seed, 8), random.seeded(LFSR, seed ^ 1, 8))


def test_unit_interval() -> None:
    words = np.array([0, 255, 256, 1 << 31, MASK], np.uint32)
    assert random.unit(words).tolist() == [0.0, 0.0, 2.0**-24, 0.5, 1 - 2.0**-24]
    assert random.unit(words).dtype == np.float32
