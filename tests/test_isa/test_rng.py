"""Random numbers, and the state of the generators that they come from."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neurosim
from neurosim.errors import IllegalOperand, Uninitialized
from neurosim.numerics import random

vector, gpsimd = nisa.engine.vector, nisa.engine.gpsimd
CHIPS = ("trn1", "trn2", "trn3")
ENGINES = (("trn1", vector), ("trn2", vector), ("trn2", gpsimd), ("trn3", vector), ("trn3", gpsimd))
"""What can draw."""
STORED = (("trn2", gpsimd, 6), ("trn3", gpsimd, 6), ("trn3", vector, 24))
"""What can load and store its state, and the words of a lane."""
SEED = np.array([[42]], np.uint32)


def generator(chip, engine):
    """Return the documented generator, as the instructions should choose it."""
    if engine is gpsimd:
        return random.XORWOW
    return random.XORWOW_BY_FOUR if chip == "trn3" else random.LFSR


def drawn(shape, dtype=nl.uint32, engine=vector, buffer=nl.sbuf):
    tile = nl.ndarray(shape, dtype, buffer)
    nisa.rng(dst=tile, engine=engine)
    return tile


def seeded(shape, dtype=nl.uint32):
    def body(seed):
        nisa.set_rng_seed(src_seeds=seed)
        return drawn(shape, dtype)

    return body


def no_arguments(machine, body, **options):
    """Run a body that takes no tile."""
    return machine.outputs(lambda _: body(), SEED, **options)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("dtype", ["uint32", "int32", "uint16", "int16", "uint8", "int8"])
def test_rng_keeps_the_low_bits(machine, chip, dtype):
    """Against the generator itself, seeded by hand."""
    got = machine.outputs(seeded((16, 20), getattr(nl, dtype)), SEED, chip=chip)
    known = generator(chip, vector)
    expected = random.draw(known, random.seeded(known, 42, 128)[:16], 20)
    size = np.dtype(dtype).itemsize
    low = expected.view(np.uint8).reshape(16, 20, 4)[..., :size]
    assert got.dtype == dtype
    assert np.array_equal(np.ascontiguousarray(got).view(np.uint8).reshape(16, 20, size), low)


@pytest.mark.parametrize("chip", CHIPS)
def test_a_seed_fixes_the_sequence(machine, chip):
    def body(seed, other):
        nisa.set_rng_seed(src_seeds=seed)
        first, second = drawn((128, 8)), drawn((128, 8))
        nisa.set_rng_seed(src_seeds=seed)
        again = drawn((128, 16))
        nisa.set_rng_seed(src_seeds=other)
        return first, second, again, drawn((128, 8))

    first, second, again, other = machine.outputs(body, SEED, SEED + 1, chip=chip)
    assert np.array_equal(np.concatenate([first, second], axis=1), again)
    assert not np.array_equal(first, second)
    assert (first != other).mean() > 0.99
    assert len(np.unique(again)) > 0.99 * again.size  # no lane repeats another


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.float32])
def test_a_seed_is_32_bits(machine, dtype):
    seed = np.array([[0x80000001]], np.uint32)
    expected = machine.outputs(seeded((4, 8)), seed)
    assert np.array_equal(machine.outputs(seeded((4, 8)), seed.view(dtype), psum=(0,)), expected)


@pytest.mark.parametrize(("chip", "engine"), ENGINES)
def test_unseeded_engines_draw_as_after_the_seed_zero(machine, chip, engine):
    def body():
        return drawn((128, 16), engine=engine), drawn((128, 16), engine=engine)

    runs = [no_arguments(machine, body, chip=chip) for _ in range(2)]
    known = generator(chip, engine)
    states = random.seeded(known, 0, 128)
    for first, again in zip(*runs, strict=True):
        assert np.array_equal(first, again)
        assert np.array_equal(first, random.draw(known, states, 16))


def test_engines_have_states_of_their_own(machine):
    def body(seed):
        nisa.set_rng_seed(src_seeds=seed)
        one = drawn((64, 8), engine=vector)
        drawn((64, 8), engine=gpsimd)
        two = drawn((64, 8), engine=vector)
        nisa.set_rng_seed(src_seeds=seed)
        return one, two, drawn((64, 16), engine=vector)

    one, two, both = machine.outputs(body, SEED, chip="trn3")
    assert np.array_equal(np.concatenate([one, two], axis=1), both)


@pytest.mark.parametrize(("chip", "engine", "words"), STORED)
def test_a_state_goes_round(machine, rng, chip, engine, words):
    """What was set is what is read; drawing moves it; setting it again draws the same numbers."""
    state = rng.integers(0, 2**32, (128, words), dtype=np.uint32)

    def body(given):
        kept, moved = (nl.ndarray(given.shape, nl.uint32, nl.sbuf) for _ in range(2))
        nisa.rand_set_state(src_seeds=given, engine=engine)
        nisa.rand_get_state(dst=kept, engine=engine)
        one = drawn((128, 12), engine=engine)
        nisa.rand_get_state(dst=moved, engine=engine)
        nisa.rand_set_state(src_seeds=kept, engine=engine)
        return kept, moved, one, drawn((128, 12), engine=engine)

    kept, moved, one, two = machine.outputs(body, state, chip=chip)
    assert np.array_equal(kept, state)
    assert np.array_equal(one, two)
    expected = state.copy()
    assert np.array_equal(one, random.draw(generator(chip, engine), expected, 12))
    assert np.array_equal(moved, expected)


def test_lanes_without_a_row_keep_their_state(machine, rng):
    state = rng.integers(0, 2**32, (32, 6), dtype=np.uint32)

    def body(given):
        before, after = (nl.ndarray((128, 6), nl.uint32, nl.sbuf) for _ in range(2))
        nisa.rand_get_state(dst=before)
        nisa.rand_set_state(src_seeds=given)
        nisa.rand_get_state(dst=after)
        return before, after

    before, after = machine.outputs(body, state)
    assert np.array_equal(after[:32], state)
    assert np.array_equal(after[32:], before[32:])


def test_equal_lanes_draw_equal_numbers(machine):
    """Each partition seeds its own lane and no other, as the documentation says."""
    state = np.tile(np.arange(1, 7, dtype=np.uint32), (128, 1))
    state[5] += 1

    def body(given):
        nisa.rand_set_state(src_seeds=given)
        return drawn((128, 8), engine=gpsimd)

    numbers = machine.outputs(body, state)
    assert np.array_equal(numbers[0], numbers[127])
    assert not np.array_equal(numbers[5], numbers[0])


def test_a_state_fits_psum_on_trn3(machine):
    def body():
        state = nl.ndarray((128, 24), nl.uint32, nl.psum)
        nisa.rand_get_state(dst=state, engine=vector)
        return state

    assert np.array_equal(no_arguments(machine, body, chip="trn3"), random.seeded(random.XORWOW_BY_FOUR, 0, 128))


def ranged(low, high, dtype=nl.float32, shape=(128, 512)):
    def body(*columns):
        tile = nl.ndarray(shape, dtype, nl.sbuf)
        nisa.rand2(dst=tile, min=columns[0] if columns[1:] else low, max=columns[1] if columns[1:] else high)
        return tile

    return body


def test_rand2_by_hand(machine):
    """min + u · (max - min), each step in float32."""
    got = machine.outputs(ranged(-3.7, 11.3, shape=(16, 40)), SEED, chip="trn3")
    words = random.draw(random.XORWOW_BY_FOUR, random.seeded(random.XORWOW_BY_FOUR, 0, 128)[:16], 40)
    low, high = np.float32(-3.7), np.float32(11.3)
    expected = np.empty((16, 40), np.float32)
    for index, word in np.ndenumerate(words):
        fraction = np.float32((int(word) >> 8) / 2**24)
        expected[index] = low + fraction * (high - low)
    machine.assert_same(got, expected)


def test_rand2_is_uniform(machine):
    """Mean, variance and the largest gap of the distribution function (Kolmogorov-Smirnov), at five sigma."""
    got = machine.outputs(ranged(2.0, 5.0), SEED, chip="trn3").astype(np.float64).reshape(-1)
    assert got.min() >= 2.0
    assert got.max() < 5.0
    unit, count = (np.sort(got) - 2.0) / 3.0, got.size
    assert abs(unit.mean() - 0.5) < 5 / (12 * count) ** 0.5
    assert abs(unit.var() - 1 / 12) < 5 * (1 / 180 / count) ** 0.5
    places = np.arange(1, count + 1) / count
    assert np.abs(places - unit).max() < 2.0 / count**0.5


def test_rand2_takes_a_range_per_partition(machine):
    low = np.arange(128, dtype=np.float32).reshape(-1, 1)
    got = machine.outputs(ranged(None, None), low, low + 0.5, chip="trn3")
    assert (got >= low).all()
    assert (got <= low + 0.5).all()
    assert (np.ptp(got, axis=1) > 0.49).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e5m2", "int8", "uint16", "int32"])
def test_rand2_rounds(machine, dtype):
    wide = machine.outputs(ranged(-20.0, 90.0, shape=(8, 64)), SEED, chip="trn3")
    got = machine.outputs(ranged(-20.0, 90.0, getattr(nl, dtype), (8, 64)), SEED, chip="trn3")
    machine.assert_same(got, machine.rounded(wide, got.dtype))


@given(low=st.floats(-(2.0**100), 2.0**100, width=32), span=st.floats(2.0**-10, 2.0**100, width=32))
def test_rand2_stays_in_its_range(low, span):
    high = float(np.float32(low + max(span, abs(low) * 1e-6)))

    def body():
        tile = nl.ndarray((2, 16), nl.float32, nl.sbuf)
        nisa.rand2(dst=tile, min=low, max=high)
        out = nl.ndarray((2, 16), nl.float32, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    got = neurosim.simulate(body, "trn3")().outputs
    assert (got >= np.float32(low)).all()
    assert (got <= np.float32(high)).all()


@pytest.mark.parametrize(("chip", "engine"), ENGINES)
def test_views_give_the_same_numbers(machine, chip, engine):
    def body(out, _):
        tile = out((32, 10), nl.uint16)
        nisa.rng(dst=tile, engine=engine)
        return tile

    got = machine.same_from_views(body, SEED, chip=chip)
    known = generator(chip, engine)
    assert np.array_equal(got, random.draw(known, random.seeded(known, 0, 32), 10) & 0xFFFF)


@pytest.mark.parametrize(
    ("chip", "body", "message"),
    [
        ("trn2", lambda _: drawn((4, 8), nl.float32), "rng: dst is float32; it must be int8 or int16"),
        ("trn1", lambda _: drawn((4, 8), engine=gpsimd), "rng: engine=gpsimd needs NeuronCore-v3 (trn2)"),
        ("trn2", lambda _: drawn((4, 8), engine=gpsimd, buffer=nl.psum), "rng: GpSimd does not reach PSUM"),
        ("trn2", lambda _: drawn((4, 8), engine=nisa.engine.scalar), "rng: cannot run on"),
        ("trn2", ranged(0.0, 1.0), "rand2: needs NeuronCore-v4 (trn3)"),
        ("trn3", ranged(1.0, 1.0), "rand2: min 1 and max 1 are no range"),
        ("trn3", ranged(0.0, float("nan")), "rand2: min 0 and max nan are no range"),
        ("trn3", ranged(-3e38, 3e38), "are no range"),
        ("trn3", ranged(0.0, 1.0, nl.bool_), "rand2: dst is bool"),
        ("trn2", lambda seed: nisa.set_rng_seed(src_seeds=42), "set_rng_seed: src_seeds is 42 (int)"),
        ("trn1", lambda seed: nisa.rand_set_state(src_seeds=seed), "rand_set_state: needs NeuronCore-v3 (trn2)"),
        (
            "trn2",
            lambda seed: nisa.rand_set_state(src_seeds=seed),
            "src_seeds has 1 elements per partition; it must have 6",
        ),
        (
            "trn2",
            lambda seed: nisa.rand_set_state(src_seeds=seed, engine=vector),
            "rand_set_state: engine=vector needs NeuronCore-v4 (trn3)",
        ),
        (
            "trn3",
            lambda seed: nisa.rand_set_state(src_seeds=seed, engine=vector),
            "src_seeds has 1 elements per partition; it must have 24",
        ),
        (
            "trn2",
            lambda seed: nisa.rand_get_state(dst=nl.ndarray((128, 6), nl.int32)),
            "rand_get_state: dst is int32; it must be uint32",
        ),
        (
            "trn2",
            lambda seed: nisa.rand_get_state(dst=nl.ndarray((128, 6), nl.uint32, nl.psum)),
            "rand_get_state: GpSimd does not reach PSUM",
        ),
        (
            "trn2",
            lambda seed: nisa.rand_get_state(dst=nl.ndarray((128, 2, 3), nl.uint32)),
            "rand_get_state: dst has 3 axes; it may have 2",
        ),
    ],
)
def test_refuses(machine, chip, body, message):
    assert message in machine.refused(body, SEED, chip=chip)


def test_refuses_seeds_and_bounds(machine):
    wide, half = np.ones((2, 2), np.uint32), np.ones((1, 1), np.uint16)
    body = seeded((4, 8))
    assert "src_seeds has 2 partitions of 2 elements; it must be [1, 1]" in machine.refused(body, wide)
    assert "src_seeds is uint16; a seed has 32 bits" in machine.refused(body, half)
    low = np.zeros((128, 1), np.float32)
    high = np.ones((128, 1), np.float32)
    high[77] = -1
    message = machine.refused(ranged(None, None), low, high, chip="trn3")
    assert "rand2: min 0 and max -1 are no range in row 77" in message
    brief = low.astype(ml_dtypes.bfloat16)
    assert "min is bfloat16; it must be float32" in machine.refused(ranged(None, None), brief, high, chip="trn3")


@pytest.mark.parametrize("engine", [2, "vector", None, np.zeros(2), nisa.engine.tensor], ids=str)
def test_a_state_belongs_to_an_engine_that_has_one(machine, engine):
    for call in (
        lambda tile: nisa.rand_set_state(src_seeds=tile, engine=engine),
        lambda tile: nisa.rand_get_state(dst=tile, engine=engine),
    ):
        with pytest.raises(IllegalOperand, match=r"cannot run on|engine is a NumPy array"):
            machine.run(call, np.zeros((32, 6), np.uint32))


def test_seeds_must_be_written(machine):
    def body(_):
        nisa.rand_set_state(src_seeds=nl.ndarray((128, 6), nl.uint32))

    assert "rand_set_state" in machine.refused(body, SEED, error=Uninitialized)


def test_numbers_depend_on_the_seed_in_time(machine):
    """The generator's state is an operand: drawing waits for the seed, and the next seed for the drawing."""

    def body(seed):
        nisa.set_rng_seed(src_seeds=seed)
        return drawn((128, 64))

    result = machine.run(body, SEED)
    names = [result.program.record(index).signature.instruction for index in range(len(result.program))]
    seed, draw = names.index("set_rng_seed"), names.index("rng")
    roles = [pattern.role for pattern in result.program.record(draw).signature.patterns]
    assert roles == ["dst", "random"]
    assert result.timeline.start_ps[draw] >= result.timeline.start_ps[seed]


@pytest.mark.parametrize(
    ("chip", "engine", "issue_ns"),
    [
        ("trn2", vector, (60 + 512) / 0.96),
        ("trn3", vector, (60 + 512 / 4) / 1.2),
        ("trn2", gpsimd, (150 + 8.3 * 512) / 1.2),
    ],
)
def test_time(machine, chip, engine, issue_ns):
    busy, _ = machine.time("rng", lambda _: drawn((128, 512), engine=engine), SEED, chip=chip)
    assert busy == pytest.approx(issue_ns, rel=1e-3)


def test_time_of_one_lane_as_measured(machine):
    """nki-library's ``generate_random_fast``: 10 485 760 numbers of one lane of GpSimd take 73.1 ms on trn2."""
    busy, _ = machine.time("rng", lambda _: drawn((128, 32768), engine=gpsimd), SEED)
    assert busy / 32768 * 10_485_760 / 1e6 == pytest.approx(73.1, rel=0.02)
