"""Regions against sets of byte addresses."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neurosim import dtypes
from neurosim.analysis.regions import (
    COVERED,
    COVERS,
    MEETS,
    Region,
    box_of,
    candidates,
    region_of,
    relation,
)
from neurosim.engines import Memory
from neurosim.program import Access, Pattern

DTYPES = (dtypes.float8_e5m2, dtypes.bfloat16, dtypes.float32)


def pattern(shape, steps, dtype=dtypes.bfloat16, partition_axis=-1, start=0):
    memory = Memory.sbuf if partition_axis >= 0 else Memory.hbm
    return Pattern("x", Access.READ, memory, dtype, shape, steps, partition_axis, start, 4096)


def brute(one, offset):
    """The set of (partition, byte) that a pattern touches."""
    found = set()
    for index in product(*(range(extent) for extent in one.shape)):
        partition, byte = one.start_partition, offset
        for axis, (i, step) in enumerate(zip(index, one.steps, strict=True)):
            if axis == one.partition_axis:
                partition += i * step
            else:
                byte += i * step * one.dtype.size_bytes
        found.update((partition, byte + k) for k in range(one.dtype.size_bytes))
    return found


@st.composite
def patterns(draw, on_chip):
    rank = draw(st.integers(1, 4))
    shape = tuple(draw(st.integers(1, 5)) for _ in range(rank))
    axis = draw(st.integers(0, rank - 1)) if on_chip else -1
    step = st.one_of(st.integers(0, 24), st.sampled_from((-3, -1, 2, 3, 4, 6, 8, 9, 12, 18)))
    steps = tuple(draw(st.integers(0, 3) if i == axis else step) for i in range(rank))
    start = draw(st.integers(0, 4)) if on_chip else 0
    return pattern(shape, steps, draw(st.sampled_from(DTYPES)), axis, start)


def place(one, offset):
    region, low = region_of(one)
    return region, offset + low


@settings(max_examples=600, deadline=None)
@given(st.data(), st.booleans(), st.integers(0, 120), st.integers(0, 120))
def test_relation_is_the_relation_of_byte_sets(data, on_chip, at, at_other):
    one, other = data.draw(patterns(on_chip)), data.draw(patterns(on_chip))
    first, second = brute(one, at), brute(other, at_other)
    (region, low), (region_other, low_other) = place(one, at), place(other, at_other)
    flags = relation(region, region_other, low_other - low)
    assert bool(flags & MEETS) == bool(first & second)
    if flags & COVERS:
        assert first >= second
    if flags & COVERED:
        assert first <= second


@settings(max_examples=300, deadline=None)
@given(patterns(True), st.integers(0, 50), st.integers(0, 40))
def test_boxes_hold_their_regions(one, offset, pitch):
    region, low = place(one, offset + 400)
    box = box_of(region, low, pitch)
    for partition, byte in brute(one, offset + 400):
        row, column = divmod(byte, pitch) if pitch else (0, byte)
        assert box.partition <= partition < box.partition_end
        assert box.row <= row < box.row_end
        assert box.column <= column < box.column_end


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(patterns(True), st.integers(400, 600)), min_size=2, max_size=12))
def test_candidates_hold_every_meeting_pair_once(placed):
    places = [place(one, offset) for one, offset in placed]
    found = [tuple(sorted(pair)) for pair in candidates(places)]
    assert len(found) == len(set(found))
    sets = [brute(one, offset) for one, offset in placed]
    meeting = {(i, j) for i, j in combinations(range(len(sets)), 2) if sets[i] & sets[j]}
    assert meeting <= set(found)


def test_a_contiguous_tile_is_one_run():
    region, low = region_of(pattern((128, 4, 8), (1, 8, 1), partition_axis=0))
    assert (region, low) == (Region((1 << 128) - 1, (), 64), 0)


def test_a_broadcast_axis_takes_no_bytes():
    assert region_of(pattern((3, 5), (0, 1))) == (Region(1, (), 10), 0)
    assert region_of(pattern((128, 5), (0, 1), partition_axis=0, start=3)) == (Region(1 << 3, (), 10), 0)


def test_a_backward_step_begins_before_the_slot():
    assert region_of(pattern((4,), (-1,))) == (Region(1, (), 8), -6)


def test_nothing_has_no_region():
    assert region_of(pattern((4, 0), (1, 1))) is None


BLOCK = ((128, 512), (2048, 1))  # of a row-major [*, 2048] tensor
HEAD = ((64, 64), (512, 1))  # of a [sequence, 8, 64] tensor


@pytest.mark.parametrize(
    ("one", "other", "distance", "expected"),
    [
        pytest.param(BLOCK, BLOCK, 1024, 0, id="neighbouring column blocks"),
        pytest.param(BLOCK, BLOCK, 1022, MEETS, id="one column shared"),
        pytest.param(((64,), (2,)), ((64,), (2,)), 2, 0, id="interleaved"),
        pytest.param(((64,), (2,)), ((64,), (3,)), 6, MEETS, id="coprime steps"),
        pytest.param(((2, 2), (9, 3)), ((1,), (1,)), 12, 0, id="a gap between progressions of one step"),
        pytest.param(((2, 2), (6, 3)), ((1,), (1,)), 12, MEETS | COVERS, id="no such gap"),
        pytest.param(((64,), (6,)), ((64,), (10,)), 2, 0, id="steps that never agree"),
        pytest.param(((2048, 2048), (2048, 1)), BLOCK, 4096, MEETS | COVERS, id="whole, block"),
        pytest.param(((8, 128, 64), (64, 512, 1)), HEAD, 1152, MEETS | COVERS, id="heads, head"),
        pytest.param(HEAD, ((128, 512), (512, 1)), -1024, MEETS | COVERED, id="head, heads"),
        pytest.param(HEAD, HEAD, 128, 0, id="head, next head"),
        pytest.param(((100000,), (9973,)), ((100000,), (9967,)), 2 * 9967 * 7, MEETS, id="large and coprime"),
    ],
)
def test_known_cases(one, other, distance, expected):
    (region, low), (region_other, low_other) = region_of(pattern(*one)), region_of(pattern(*other))
    assert relation(region, region_other, distance + low_other - low) == expected


def test_adjacent_bytes_of_fp8_do_not_meet():
    one, other = (region_of(pattern((16,), (2,), dtypes.float8_e5m2))[0] for _ in range(2))
    assert relation(one, other, 1) == 0
    assert relation(one, other, 2) == MEETS


def test_tiles_of_a_grid_are_not_compared_with_all_others():
    region, _ = region_of(pattern((100, 300), (9600, 1)))
    places = [(region, (100 * row * 9600 + 300 * column) * 2) for row in range(32) for column in range(32)]
    assert list(candidates(places)) == []


def test_heads_are_told_apart_without_exact_tests():
    region, _ = region_of(pattern((128, 64), (16 * 64, 1)))
    places = [(region, (row * 128 * 16 + head) * 128) for row in range(8) for head in range(16)]
    assert list(candidates(places)) == []


def test_many_sizes_stay_few_groups():
    regions = [region_of(pattern((2**i, 2**j), (4096, 1)))[0] for i in range(8) for j in range(8)]
    places = [(region, 0) for region in regions]
    assert len(list(candidates(places))) == 64 * 63 // 2
