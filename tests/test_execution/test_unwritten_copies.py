"""Bytes that nobody wrote and that a DMA copied: an output that is named may have them, as zeros."""

from __future__ import annotations

import re

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import Uninitialized

SCALES = np.random.default_rng(0).integers(1, 256, (4, 16)).astype(np.uint8)


def scale_tile(scales):
    """Return a tile [32, 16] of which 4 rows are written, as ``quantize_mx`` leaves scales."""
    tile = nl.ndarray((32, 16), nl.uint8, nl.sbuf, name="scale_tile")
    nisa.dma_copy(dst=tile[0:4], src=scales)
    return tile


def copied_out(scales):
    """Copy all of the tile, through another tensor in HBM and as words."""
    held = nl.ndarray((32, 16), nl.uint8, nl.private_hbm)
    nisa.dma_copy(dst=held, src=scale_tile(scales))
    out = nl.ndarray((32, 4), nl.uint32, nl.shared_hbm)
    nisa.dma_copy(dst=out, src=held.view(nl.uint32))
    return out


def asked(kernel, *arrays, **options):
    return neurosim.simulate(kernel, partial_outputs=["output"], **options)(*arrays).outputs


def test_a_named_output_may_have_copies_of_unwritten_bytes():
    expected = np.zeros((32, 16), np.uint8)
    expected[:4] = SCALES
    np.testing.assert_array_equal(asked(copied_out, SCALES).view(np.uint8), expected)
    again = asked(copied_out, SCALES)  # nothing of the first run shows
    np.testing.assert_array_equal(again.view(np.uint8), expected)


def test_other_outputs_may_not_and_the_error_says_where_the_bytes_came_from():
    with pytest.raises(Uninitialized) as caught:
        neurosim.simulate(copied_out)(SCALES)
    text = str(caught.value)
    assert (
        "bytes that nobody wrote are read by dma_copy, and reach copied_out: output out [32, 4] uint32 in HBM" in text
    )
    assert "unwritten here: [4:32, 0:4] (112 of 128 elements)" in text
    assert re.search(r"first read: src of dma_copy at .*, \[4:32, 0:16\] \(448 of 512 elements\) of scale_tile", text)
    assert text.endswith("what is meant to stay unwritten is named, partial_outputs=['output']")


def test_what_was_computed_from_unwritten_bytes_is_no_output():
    def kernel(scales):
        tile = scale_tile(scales)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1)
        out = nl.ndarray((32, 16), nl.uint8, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    with pytest.raises(Uninitialized) as caught:
        asked(kernel, SCALES)
    assert "first read: data of tensor_scalar at" in str(caught.value)
    assert "partial_outputs" not in str(caught.value)


def test_a_copy_is_as_unwritten_as_what_it_is_of_byte_by_byte():
    """Of two words three bytes and one are written; the rest is 0, also over what stood there before."""

    def kernel(some):
        tile = nl.ndarray((1, 8), nl.uint8, nl.sbuf)
        nisa.dma_copy(dst=tile[:, 0:3], src=some[:, 0:3])
        nisa.dma_copy(dst=tile[:, 5:6], src=some[:, 5:6])
        out = nl.ndarray((1, 2), nl.uint32, nl.shared_hbm)
        nisa.dma_copy(dst=out.view(nl.uint8), src=some)
        nisa.dma_copy(dst=out, src=tile.view(nl.uint32))
        return out

    some = np.arange(1, 9, dtype=np.uint8).reshape(1, 8)
    np.testing.assert_array_equal(asked(kernel, some).view(np.uint8), [[1, 2, 3, 0, 0, 6, 0, 0]])
    np.testing.assert_array_equal(asked(kernel, some, precise=False).view(np.uint8), [[1, 2, 3, 0, 0, 6, 0, 0]])


def test_floats_that_are_kept_wider_are_zero_there_too():
    def kernel(some):
        tile = nl.ndarray((2, 4), nl.bfloat16, nl.sbuf)
        nisa.dma_copy(dst=tile[:, 0:2], src=some[:, 0:2])
        out = nl.ndarray((2, 4), nl.bfloat16, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=some)
        nisa.dma_copy(dst=out, src=tile)
        return out

    some = np.ones((2, 4), ml_dtypes.bfloat16)
    for precise in (True, False):
        got = asked(kernel, some, precise=precise)
        np.testing.assert_array_equal(got.astype(np.float32), [[1, 1, 0, 0]] * 2)


def test_rows_that_an_index_chooses_are_as_unwritten_as_where_they_were():
    """A gather of rows of which two of four were written, and a scatter of them."""

    def kernel(some, order):
        index = nl.ndarray((4, 1), nl.int32, nl.sbuf)
        nisa.dma_copy(dst=index, src=order)
        held = nl.ndarray((4, 8), nl.float32, nl.private_hbm)
        nisa.dma_copy(dst=held[0:2], src=some[0:2])
        tile = nl.ndarray((4, 8), nl.float32, nl.sbuf)
        nisa.dma_copy(dst=tile, src=held.vector_select(0, index))
        out = nl.ndarray((4, 8), nl.float32, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=some)
        nisa.dma_copy(dst=out.vector_select(0, index), src=tile)
        return out

    some = np.arange(1, 33, dtype=np.float32).reshape(4, 8)
    order = np.array([[2], [1], [3], [0]], np.int32)
    expected = some.copy()
    expected[2:] = 0
    np.testing.assert_array_equal(asked(kernel, some, order), expected)


KINDS = {1: nl.uint8, 2: nl.uint16, 4: nl.uint32}


def random_moves(rng, known):
    """Return copies (from, to, bytes of an element, bytes of source and target) between two rows of 32 bytes.

    ``known``, which bytes of each row are written, is moved with them. A copy of nothing written is an error.
    """
    moves = []
    while len(moves) < 8:
        source, target = (int(place) for place in rng.integers(0, 2, 2))
        size, count = int(rng.choice([1, 2, 4])), int(rng.integers(1, 8))
        here, there = (
            slice(start * size, (start + count) * size) for start in rng.integers(0, 32 // size - count + 1, 2)
        )
        overlaps = source == target and here.start < there.stop and there.start < here.stop
        if known[source, here].any() and not overlaps:
            known[target, there] = known[source, here]
            moves.append((source, target, size, here, there))
    return moves


@pytest.mark.parametrize("seed", range(4))
def test_random_copies_of_bytes_half_words_and_words_against_numpy(seed):
    rng = np.random.default_rng(seed)
    values = rng.integers(1, 256, (1, 32)).astype(np.uint8)
    known = np.zeros((2, 32), bool)
    known[0, ::3] = True
    moves = random_moves(rng, known)

    def kernel(given):
        rows = [nl.ndarray((1, 32), nl.uint8, nl.sbuf) for _ in range(2)]
        for place in range(0, 32, 3):
            nisa.dma_copy(dst=rows[0][:, place : place + 1], src=given[:, place : place + 1])
        for source, target, size, here, there in moves:
            one, other = rows[source].view(KINDS[size]), rows[target].view(KINDS[size])
            nisa.dma_copy(
                dst=other[:, there.start // size : there.stop // size],
                src=one[:, here.start // size : here.stop // size],
            )
        out = nl.ndarray((2, 32), nl.uint8, nl.shared_hbm)
        for place in range(2):
            nisa.dma_copy(dst=out[place : place + 1], src=rows[place])
        return out

    model = np.zeros((2, 32), np.uint8)
    model[0, ::3] = values[0, ::3]
    for source, target, _, here, there in moves:
        model[target, there] = model[source, here]
    assert known.any(axis=1).all()
    assert not known.all()
    np.testing.assert_array_equal(asked(kernel, values), np.where(known, model, 0))


def updated(cache, scales):
    """Copy a tile of which a part is written into an argument."""
    nisa.dma_copy(dst=cache, src=scale_tile(scales))


def test_arguments_that_are_written_in_place_are_held_to_the_same():
    with pytest.raises(Uninitialized) as caught:
        neurosim.simulate(updated)(np.ones((32, 16), np.uint8), SCALES)
    text = str(caught.value)
    assert "and reach updated: argument cache [32, 16] uint8 in HBM, which it writes in place" in text
    assert "unwritten here: [4:32, 0:16] (448 of 512 elements)" in text
    with pytest.raises(Uninitialized, match="argument cache"):
        neurosim.simulate(updated, values=False)(np.ones((32, 16), np.uint8), SCALES)


def test_arguments_may_be_named_too():
    for _ in range(2):
        cache = np.ones((32, 16), np.uint8)
        result = neurosim.simulate(updated, partial_outputs=["cache"])(cache, SCALES)
        np.testing.assert_array_equal(cache[:4], SCALES)
        assert not cache[4:].any()
        assert (result.replayed, result.unreplayable) == (False, "cache holds copies of what nobody wrote")

    def computed(cache, scales):
        tile = scale_tile(scales)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1)
        nisa.dma_copy(dst=cache, src=tile)

    with pytest.raises(Uninitialized, match="argument cache"):
        neurosim.simulate(computed, partial_outputs=["cache"])(np.ones((32, 16), np.uint8), SCALES)
