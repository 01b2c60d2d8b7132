"""``nc_stream_shuffle``: which partition goes where, what stays, and where tiles may begin."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from neurosim.errors import Uninitialized

ROTATE = [(i - 1) % 32 for i in range(32)]
IDENTITY = list(range(32))
KEEP = 255


def shuffled(mask, partitions=None):
    """Return a body that shuffles its tile into a new one, zero before."""

    def body(src):
        made = nl.ndarray((partitions or src.shape[0], *src.shape[1:]), src.dtype, nl.sbuf)
        nisa.memset(dst=made, value=0)
        nisa.nc_stream_shuffle(dst=made, src=src, shuffle_mask=mask)
        return made

    return body


def expected(src, before, mask):
    out = before.copy()
    for partition in range(len(out)):
        quadrant, place = divmod(partition, 32)
        if mask[place] != KEEP:
            out[partition] = src[32 * quadrant + mask[place]]
    return out


@pytest.mark.parametrize("partitions", [32, 64, 96, 128])
@pytest.mark.parametrize("kind", ["rotate", "identity", "random", "broadcast", "some stay", "all stay"])
def test_every_quadrant_is_shuffled_alike(machine, rng, partitions, kind):
    mask = {
        "rotate": ROTATE,
        "identity": IDENTITY,
        "random": rng.integers(0, 32, 32).tolist(),
        "broadcast": [7] * 32,
        "some stay": [KEEP if i % 3 else i for i in range(32)],
        "all stay": [KEEP] * 32,
    }[kind]
    src = rng.standard_normal((partitions, 6)).astype(np.float32)
    got = machine.outputs(shuffled(mask), src)
    machine.assert_same(got, expected(src, np.zeros_like(src), mask))


@pytest.mark.parametrize("psum", [set(), {0}])
def test_in_place(machine, rng, psum):
    src = rng.standard_normal((64, 6)).astype(np.float32)

    def body(tile):
        nisa.nc_stream_shuffle(dst=tile, src=tile, shuffle_mask=tuple(ROTATE))
        return tile

    machine.assert_same(machine.outputs(body, src, psum=psum), expected(src, src, ROTATE))


@pytest.mark.parametrize("count", [1, 5, 32])
def test_one_partition_for_all(machine, rng, count):
    """The usual broadcast: one partition of src, up to 32 of dst, quadrant by quadrant."""
    row = rng.standard_normal((1, 6)).astype(np.float32)

    def body(row):
        made = nl.ndarray((96 + count, 6), nl.float32, nl.sbuf)
        for begin in range(0, 96 + count, 32):
            end = min(begin + 32, 96 + count)
            nisa.nc_stream_shuffle(src=row[0:1, :], dst=made[begin:end], shuffle_mask=[0] * 32)
        return made

    machine.assert_same(machine.outputs(body, row), np.repeat(row, 96 + count, axis=0))


def test_quadrants_of_two_tiles_may_differ(machine, rng):
    src = rng.standard_normal((128, 4)).astype(np.float32)

    def body(src):
        made = nl.ndarray((128, 4), nl.float32, nl.sbuf)
        nisa.memset(dst=made, value=0.0)
        nisa.nc_stream_shuffle(dst=made[32:64], src=src[96:128], shuffle_mask=ROTATE)
        return made

    got = machine.outputs(body, src)
    machine.assert_same(got[32:64], src[96:128][ROTATE])
    assert not got[:32].any()
    assert not got[64:].any()


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3, np.int8, np.uint32])
def test_bits_move_as_they_are(machine, dtype):
    raw = np.arange(32 * 8, dtype=np.uint8).reshape(32, 8) * np.uint8(37)
    src = raw.view(np.dtype(dtype)) if np.dtype(dtype).itemsize == 1 else raw.view(np.dtype(dtype)).reshape(32, -1)
    got = machine.outputs(shuffled(ROTATE), src)
    np.testing.assert_array_equal(got.view(np.uint8), raw[ROTATE])


def test_views(machine, rng):
    src = rng.standard_normal((64, 6)).astype(np.float32)
    mask = [KEEP if i % 2 else 31 - i for i in range(32)]

    def body(out, src):
        made = out((64, 6), nl.float32)
        nisa.tensor_copy(dst=made, src=src)
        nisa.nc_stream_shuffle(dst=made, src=src, shuffle_mask=mask)
        return made

    machine.assert_same(machine.same_from_views(body, src), expected(src, src, mask))


def test_kept_partitions_stay_unwritten(machine):
    mask = [KEEP if i >= 4 else i for i in range(32)]

    def body(src, rows):
        made, again = nl.ndarray((32, 2), nl.float32, nl.sbuf), nl.ndarray((rows, 2), nl.float32, nl.sbuf)
        nisa.nc_stream_shuffle(dst=made, src=src, shuffle_mask=mask)
        nisa.tensor_copy(dst=again, src=made[0:rows])
        return again

    src = np.ones((32, 2), np.float32)
    np.testing.assert_array_equal(machine.outputs(lambda src: body(src, 4), src), src[:4])
    with pytest.raises(Uninitialized, match=r"\[4:5, 0:2\]"):
        machine.run(lambda src: body(src, 5), src)


def test_holes_move_along(machine):
    def body(_, rows):
        part, made = (nl.ndarray((32, 2), nl.float32, nl.sbuf) for _ in range(2))
        nisa.memset(dst=part[0:31], value=1.0)
        nisa.nc_stream_shuffle(dst=made, src=part, shuffle_mask=ROTATE)
        again = nl.ndarray((rows.stop - rows.start, 2), nl.float32, nl.sbuf)
        nisa.dma_copy(dst=again, src=made[rows])
        return again

    nothing = np.ones((1, 1), np.float32)
    machine.run(lambda t: body(t, slice(1, 32)), nothing)
    machine.refused(lambda t: body(t, slice(0, 1)), nothing, error=Uninitialized)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ([0] * 31, "is not a list of 32 ints"),
        (None, "shuffle_mask None is not a list of 32 ints"),
        ([0.0] * 32, "is not a list of 32 ints"),
        ([32, *[0] * 31], "shuffle_mask has 32; entries are 0 to 31, or 255 to keep dst"),
        ([-1, *[0] * 31], "shuffle_mask has -1; entries are 0 to 31, or 255 to keep dst"),
    ],
)
def test_refuses_masks(machine, mask, message):
    text = machine.refused(shuffled(mask), np.ones((32, 4), np.float32))
    assert text.startswith("nc_stream_shuffle: shuffle_mask")
    assert message in text


def test_refuses_partitions_that_src_does_not_have(machine):
    text = machine.refused(shuffled(IDENTITY, 32), np.ones((4, 4), np.float32))
    assert "partition 4 of dst comes from partition 4 of src, which has 4" in text
    text = machine.refused(shuffled([0] * 32, 64), np.ones((32, 4), np.float32))
    assert "partition 32 of dst comes from partition 32 of src, which has 32" in text


def test_refuses_other_dtypes_extents_and_places(machine):
    def call(dst, src):
        def body(tile):
            nisa.nc_stream_shuffle(dst=dst(tile), src=src(tile), shuffle_mask=[0] * 32)

        return body

    ones = np.ones((128, 4), np.float32)
    text = machine.refused(call(lambda tile: nl.ndarray((32, 4), nl.bfloat16), lambda tile: tile[0:32]), ones)
    assert "dst is bfloat16 and src is float32; they must have the same dtype" in text
    assert "dst has 4 elements per partition and src has 2" in machine.refused(
        call(lambda tile: tile, lambda tile: tile[:, 0:2]), ones
    )
    text = machine.refused(call(lambda tile: tile[0:64], lambda tile: tile[32:64]), ones)
    assert "partition 32 of dst comes from partition 32 of src" in text

    def keep(tile):
        mask = [0] + [KEEP] * 31
        nisa.nc_stream_shuffle(dst=tile[32:64], src=tile[0:64], shuffle_mask=mask)

    text = machine.refused(keep, ones)
    assert "dst begins at partition 32; 64 partitions take part" in text
    assert "then both tiles begin at partition 0/64" in text


def test_time(machine):
    """142.6 ns + 1.0457 ns an element, after 13 ns for the mask (measured)."""
    busy, complete = machine.time("nc_stream_shuffle", shuffled(ROTATE), np.ones((32, 512), np.float32))
    assert complete == pytest.approx(13 + 142.6 + 1.0457 * 512, rel=0.01)
    assert busy == pytest.approx((12.5 + 60 + 512) / 0.96, rel=1e-3)
