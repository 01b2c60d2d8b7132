"""``tensor_copy_predicated``: which elements move, what their bits are, and what stays unwritten."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import Uninitialized

SHAPE = (4, 12)


def onto(dst, **options):
    """Return a body that copies its first tile onto its second by its third."""

    def body(src, before, predicate):
        nisa.tensor_copy_predicated(dst=before, src=src, predicate=predicate, **options)
        return before

    return body if dst is None else lambda before, predicate: body(dst, before, predicate)


@pytest.mark.parametrize("predicate", [np.uint8, np.uint16, np.uint32])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8, np.uint32, ml_dtypes.float8_e4m3])
def test_dtypes(machine, rng, dtype, predicate):
    src, before = (rng.integers(0, 100, SHAPE).astype(dtype) for _ in range(2))
    chosen = rng.integers(0, 2, SHAPE).astype(predicate) * np.iinfo(predicate).max
    machine.assert_same(machine.outputs(onto(None), src, before, chosen), np.where(chosen != 0, src, before))
    got = machine.outputs(onto(None, reverse_pred=True), src, before, chosen)
    machine.assert_same(got, np.where(chosen == 0, src, before))


def test_any_bit_counts_as_true(machine):
    chosen = (1 << np.arange(32, dtype=np.uint32)).reshape(1, 32)
    src, before = np.ones((1, 32), np.float32), np.zeros((1, 32), np.float32)
    assert machine.outputs(onto(None), src, before, chosen).all()


def test_bits_move_as_they_are(machine):
    raw = np.array([[0x7F800001, 0xFFC12345, 0x80000000, 2**24 + 1]], np.uint32)
    chosen = np.array([[1, 1, 1, 0]], np.uint8)
    got = machine.outputs(onto(None), raw.view(np.float32), np.zeros((1, 4), np.float32), chosen)
    np.testing.assert_array_equal(got.view(np.uint32), np.where(chosen, raw, 0))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8])
@pytest.mark.parametrize("value", [-9984.0, 2.5, 3, 1e-3, np.inf, -0.0])
def test_numbers(machine, rng, dtype, value):
    before = rng.integers(0, 100, SHAPE).astype(dtype)
    chosen = rng.integers(0, 2, SHAPE).astype(np.uint8)
    filled = machine.rounded(np.full(SHAPE, value, np.float32), dtype)
    machine.assert_same(machine.outputs(onto(value), before, chosen), np.where(chosen != 0, filled, before))


@pytest.mark.parametrize("psum", [{0}, {1}, {2}, {0, 1}, {1, 2}])
def test_psum(machine, rng, psum):
    src, before = (rng.standard_normal(SHAPE).astype(np.float32) for _ in range(2))
    chosen = rng.integers(0, 2, SHAPE).astype(np.uint8)
    got = machine.outputs(onto(None), src, before, chosen, psum=psum)
    machine.assert_same(got, np.where(chosen != 0, src, before))


def test_views(machine, rng):
    src, before = (rng.standard_normal(SHAPE).astype(np.float32) for _ in range(2))
    chosen = rng.integers(0, 2, SHAPE).astype(np.uint16)

    def body(out, src, before, predicate):
        made = out(SHAPE, nl.float32)
        nisa.tensor_copy(dst=made, src=before)
        nisa.tensor_copy_predicated(dst=made, src=src, predicate=predicate)
        return made

    got = machine.same_from_views(body, src, before, chosen)
    machine.assert_same(got, np.where(chosen != 0, src, before))


def test_ranks_may_differ(machine, rng):
    """NKI 0.6: a 2-D source with a 3-D destination of as many elements."""
    src = rng.standard_normal(SHAPE).astype(np.float32)

    def body(src, predicate):
        made = nl.ndarray((4, 3, 4), nl.float32, nl.sbuf)
        nisa.memset(dst=made, value=0.0)
        nisa.tensor_copy_predicated(dst=made, src=src, predicate=predicate)
        return made

    got = machine.outputs(body, src, np.ones(SHAPE, np.uint8))
    machine.assert_same(got.reshape(SHAPE), src)


def test_source_and_destination_may_be_one_tile(machine):
    tile = np.arange(8, dtype=np.uint8).reshape(1, 8)

    def body(tile):
        nisa.tensor_copy_predicated(dst=tile, src=tile, predicate=tile)
        return tile

    np.testing.assert_array_equal(machine.outputs(body, tile), tile)


# -- what was written ---------------------------------------------------------------------------------------------


def fresh(chosen, complement=False):
    """Return a body that copies ones by a predicate into a new tile, and perhaps twos by its complement."""

    def body(predicate):
        made = nl.ndarray(chosen.shape, nl.float32, nl.sbuf)
        nisa.tensor_copy_predicated(dst=made, src=1.0, predicate=predicate)
        if complement:
            nisa.tensor_copy_predicated(dst=made, src=2.0, predicate=predicate, reverse_pred=True)
        return made

    return body


def test_only_chosen_elements_are_written(machine):
    chosen = np.array([[1, 0, 1, 1]], np.uint8)
    with pytest.raises(Uninitialized, match=r"\[0:1, 1:2\] \(1 of 4 elements\)"):
        machine.run(fresh(chosen), chosen)


@pytest.mark.parametrize("places", [(0, 0, 0), (0, 1, 0), (0, 1, 1)])
def test_copies_alike_write_as_the_first_does(machine, places):
    """Into the same tile and into others, some of them written already: each says what it has written."""
    chosen = np.array([[1, 0, 1, 1]], np.uint8)

    def body(predicate, reads):
        tiles = [nl.ndarray((1, 4), nl.float32, nl.sbuf) for _ in range(2)]
        nisa.memset(dst=tiles[1], value=7.0)
        for place in places:
            nisa.tensor_copy_predicated(dst=tiles[place], src=1.0, predicate=predicate)
        return tiles[reads]

    expected = [[1, 7, 1, 1]] if 1 in places else [[7] * 4]
    np.testing.assert_array_equal(machine.outputs(lambda predicate: body(predicate, 1), chosen), expected)
    with pytest.raises(Uninitialized, match=r"\[0:1, 1:2\] \(1 of 4 elements\)"):
        machine.run(lambda predicate: body(predicate, 0), chosen)


def test_a_copy_and_its_complement_write_everything(machine):
    chosen = np.array([[1, 0, 1, 1]], np.uint8)
    np.testing.assert_array_equal(machine.outputs(fresh(chosen, True), chosen), [[1, 2, 1, 1]])


def test_elements_that_stay_keep_what_they_had(machine):
    """A written tile stays written where the predicate is false."""
    chosen = np.array([[0, 0, 1, 0]], np.uint8)
    before = np.full((1, 4), 7, np.float32)
    np.testing.assert_array_equal(machine.outputs(onto(1.0), before, chosen), [[7, 7, 1, 7]])


def test_nothing_chosen_leaves_a_new_tile_unwritten(machine):
    def body(predicate):
        made = nl.ndarray((2, 4), nl.float32, nl.sbuf)
        nisa.tensor_copy_predicated(dst=made, src=1.0, predicate=predicate)
        again = nl.ndarray((2, 4), nl.float32, nl.sbuf)
        nisa.tensor_copy(dst=again, src=made)
        return again

    text = machine.refused(body, np.zeros((2, 4), np.uint8), error=Uninitialized)
    assert "tensor_copy: src" in text


def test_holes_of_the_source_travel_where_they_are_chosen(machine):
    def body(chosen, part):
        def kernel(predicate):
            src = nl.ndarray((2, 4), nl.float32, nl.sbuf)
            nisa.memset(dst=src[:, 0:2], value=5.0)
            made = nl.ndarray((2, 4), nl.float32, nl.sbuf)
            nisa.memset(dst=made, value=0.0)
            nisa.tensor_copy_predicated(dst=made, src=src, predicate=predicate)
            again = nl.ndarray((2, part), nl.float32, nl.sbuf)
            nisa.tensor_copy(dst=again, src=made[:, 0:part])
            return again

        return kernel

    left = np.tile(np.array([1, 1, 0, 0], np.uint8), (2, 1))
    np.testing.assert_array_equal(machine.outputs(body(left, 4), left), [[5, 5, 0, 0]] * 2)
    all_of_it = np.ones((2, 4), np.uint8)
    np.testing.assert_array_equal(machine.outputs(body(all_of_it, 2), all_of_it), [[5, 5]] * 2)
    machine.refused(body(all_of_it, 4), all_of_it, error=Uninitialized)


def test_a_hole_in_the_predicate_raises_at_once(machine):
    """Also where the source has one."""

    def body(ones, hole_in_source):
        predicate, src = (nl.ndarray((1, 4), dtype, nl.sbuf) for dtype in (nl.uint8, nl.float32))
        nisa.memset(dst=predicate[:, 0:2], value=1)
        nisa.memset(dst=src[:, 0:3] if hole_in_source else src, value=1.0)
        nisa.tensor_copy_predicated(dst=ones, src=src, predicate=predicate)
        return ones

    for hole in (False, True):
        text = machine.refused(lambda ones, h=hole: body(ones, h), np.ones((1, 4), np.float32), error=Uninitialized)
        assert "tensor_copy_predicated: predicate" in text
        assert "[0:1, 2:4] (2 of 4 elements)" in text


# -- rules --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("src", "before", "predicate", "message"),
    [
        ((4, 12), (4, 12), (4, 6), "dst has 12 elements per partition and predicate has 6"),
        ((4, 6), (4, 12), (4, 12), "dst has 12 elements per partition and src has 6"),
        ((2, 12), (4, 12), (4, 12), "dst has 4 partitions and src has 2"),
    ],
)
def test_refuses_extents(machine, src, before, predicate, message):
    arrays = np.ones(src, np.float32), np.ones(before, np.float32), np.ones(predicate, np.uint8)
    assert f"tensor_copy_predicated: {message}" in machine.refused(onto(None), *arrays)


@pytest.mark.parametrize("dtype", [np.int8, np.float32, np.int32])
def test_refuses_predicates_that_are_not_unsigned(machine, dtype):
    arrays = np.ones(SHAPE, np.float32), np.ones(SHAPE, np.float32), np.ones(SHAPE, dtype)
    message = f"predicate is {np.dtype(dtype)}; it must be uint8 or uint16 or uint32"
    assert message in machine.refused(onto(None), *arrays)


def test_refuses_other_dtypes_and_two_tiles_in_psum(machine):
    ones, chosen = np.ones(SHAPE, np.float32), np.ones(SHAPE, np.uint8)
    text = machine.refused(onto(None), ones.astype(ml_dtypes.bfloat16), ones, chosen)
    assert "dst is float32 and src is bfloat16; they must have the same dtype" in text
    assert "src and predicate are both in PSUM" in machine.refused(onto(None), ones, ones, chosen, psum={0, 2})
    assert "src is None (NoneType); it must be a tensor or a number" in machine.refused(
        lambda before, predicate: nisa.tensor_copy_predicated(dst=before, src=None, predicate=predicate), ones, chosen
    )


def test_time(machine):
    """1.065 cycles of 0.96 GHz an element and 150 to completion; 60 from start to start."""
    arrays = np.ones((128, 512), np.float32), np.ones((128, 512), np.uint8)
    busy, complete = machine.time("tensor_copy_predicated", onto(1.0), *arrays)
    assert busy == pytest.approx((60 + 1.065 * 512) / 0.96, rel=1e-3)
    assert complete == pytest.approx((150 + 1.065 * 512) / 0.96, rel=1e-3)


def test_without_values_everything_counts_as_written():
    """``values=False`` records and times; predicates are taken as true."""

    def kernel(src, predicate):
        tile, chosen = nl.ndarray(SHAPE, nl.float32, nl.sbuf), nl.ndarray(SHAPE, nl.uint8, nl.sbuf)
        nisa.dma_copy(dst=tile, src=src)
        nisa.dma_copy(dst=chosen, src=predicate)
        made = nl.ndarray(SHAPE, nl.float32, nl.sbuf)
        nisa.tensor_copy_predicated(dst=made, src=tile, predicate=chosen)
        out = nl.ndarray(SHAPE, nl.float32, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=made)
        return out

    specs = neurosim.spec(SHAPE, nl.float32), neurosim.spec(SHAPE, nl.uint8)
    result = neurosim.profile(kernel, values=False)(*specs)
    again = neurosim.profile(kernel)(np.ones(SHAPE, np.float32), np.ones(SHAPE, np.uint8))
    assert result.timeline.makespan_ps == again.timeline.makespan_ps
