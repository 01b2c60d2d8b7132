"""What fits into SBUF and PSUM, and what is said of what does not."""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import CapacityExceeded

F = np.float32


def run(kernel, *arrays, **options):
    return neurosim.simulate(kernel, **options)(*arrays).outputs


def filling(sizes, dtype=nl.float32):
    """Write SBUF tiles of the given free sizes, then read all of them."""

    def kernel():
        tiles = [nl.ndarray((128, size), dtype, nl.sbuf, name=f"tile_{size}") for size in sizes]
        for tile in tiles:
            nisa.memset(dst=tile, value=0.0)
        for tile in tiles:
            nisa.reciprocal(dst=tile[:, 0:1], data=tile[:, 1:2])

    return kernel


def test_live_tiles_must_fit():
    """D2: 198,024 bytes per partition fit into the 224 KiB of trn2, and not into 192 KiB."""
    kernel = filling([222, 24642, 24642])
    run(kernel)
    small = neurosim.load_chip("trn2").replace(sbuf__partition_bytes=192 * 1024)
    with pytest.raises(CapacityExceeded) as caught:
        neurosim.simulate(kernel, small)()
    text = str(caught.value)
    assert "198024" in text.replace(",", "")
    assert "196608" in text.replace(",", "")
    assert "trn2" in text
    assert text.index("tile_24642") < text.index("tile_222"), "largest first"
    assert f"tests/test_execution/test_capacity.py:{filling.__code__.co_firstlineno + 4}" in text


def test_space_is_free_after_the_last_access():
    """Fresh tiles in a loop take the space of dead ones."""

    def kernel():
        for _ in range(8):
            tile = nl.ndarray((128, 40000), nl.float32, nl.sbuf)
            nisa.memset(dst=tile, value=0.0)

    assert neurosim.profile(kernel)().summary()["sbuf"]["peak_partition_bytes"] == 160000


def test_tiles_that_are_kept_fill_the_memory():
    def kernel():
        kept = []
        for _ in range(2):
            kept.append(nl.ndarray((128, 40000), nl.float32, nl.sbuf))
            nisa.memset(dst=kept[-1], value=0.0)
        for tile in kept:
            nisa.reciprocal(dst=tile[:, 0:1], data=tile[:, 0:1])

    with pytest.raises(CapacityExceeded) as caught:
        run(kernel)
    assert "320000" in str(caught.value).replace(",", "")
    assert "229376" in str(caught.value).replace(",", "")


def test_a_tensor_larger_than_any_hbm():
    with pytest.raises(CapacityExceeded, match="4000000000000000 bytes are more than any HBM has"):
        run(lambda: nl.ndarray((10**6, 10**9), nl.float32, nl.shared_hbm))


def narrow_beside(wide, narrow, partitions=64):
    """Write one tile of 128 partitions and others of fewer, sizes in KiB per partition, then read all of them."""

    def kernel():
        shapes = [(128, wide * 256), *((partitions, size * 256) for size in narrow)]
        tiles = [nl.ndarray(shape, nl.float32, nl.sbuf) for shape in shapes]
        for tile in tiles:
            nisa.memset(dst=tile, value=0.0)
        for tile in tiles:
            nisa.reciprocal(dst=tile[:, 0:1], data=tile[:, 1:2])

    return kernel


@pytest.mark.parametrize(
    ("wide", "narrow", "partitions"),
    [(72, [72] * 4, 64), (64, [150, 10], 64), (100, [60] * 8, 32), (1, [110] * 3, 64), (24, [200] * 4, 32)],
)
def test_narrow_tiles_lie_side_by_side(wide, narrow, partitions):
    """nki-library's RoPE holds one tile of 128 and four of 64 partitions, of 72 KiB each, in trn2's 224 KiB."""
    kernel = narrow_beside(wide, narrow, partitions)
    result = neurosim.profile(kernel)()
    assert result.summary()["sbuf"]["peak_partition_bytes"] <= 224 * 1024
    assert len(result.program) == 2 * (1 + len(narrow))


@pytest.mark.parametrize(
    ("wide", "narrow", "partitions"),
    [
        (100, [150, 10], 64),  # half of the width is left beside the long one, and no more of its length
        (72, [72] * 6, 64),
        (1, [112] * 3, 64),
        (72, [72] * 4, 65),
        (64, [60] * 12, 32),
    ],
)
def test_what_does_not_fit_side_by_side(wide, narrow, partitions):
    with pytest.raises(CapacityExceeded, match="SBUF of trn2"):
        run(narrow_beside(wide, narrow, partitions))


def test_what_is_said_of_tiles_side_by_side():
    with pytest.raises(
        CapacityExceeded, match=r"294912 bytes per partition are live at .*:\d+ \(record 5\); .*\n.*below the other"
    ) as caught:
        run(narrow_beside(72, [72] * 6))
    assert f"one below the other: {6 * 72 * 1024}" in str(caught.value)


def test_tiles_in_psum_do_not_lie_side_by_side():
    def kernel():
        tiles = [nl.ndarray((32, 2048), nl.float32, nl.psum) for _ in range(3)]
        for tile in tiles:
            nisa.memset(dst=tile, value=0.0)
        for tile in tiles:
            nisa.reciprocal(dst=tile[:, 0:1], data=tile[:, 1:2])

    with pytest.raises(CapacityExceeded, match="PSUM"):
        run(kernel)


def test_one_tensor_larger_than_the_memory():
    for shape, buffer, bytes_ in (((1, 57345), nl.sbuf, 229376), ((1, 4097), nl.psum, 16384)):
        with pytest.raises(CapacityExceeded) as caught:
            run(lambda shape=shape, buffer=buffer: nl.ndarray(shape, nl.float32, buffer, name="huge"))
        text = str(caught.value)
        assert f"huge[1, {shape[1]}] float32 in {buffer.label}: {shape[1] * 4} bytes per partition" in text
        assert f"of trn2 has {bytes_}" in text


def banks(count):
    def kernel():
        tiles = [nl.ndarray((128, 512), nl.float32, nl.psum, name=f"bank_{index}") for index in range(count)]
        for tile in tiles:
            nisa.memset(dst=tile, value=0.0)
        copy = nl.ndarray((128, 512), nl.float32, nl.sbuf)
        for tile in tiles:
            nisa.tensor_copy(dst=copy, src=tile)

    return kernel


def test_psum_has_eight_banks():
    """D3: the ninth live bank is one too many, and the message says who holds the others."""
    run(banks(8))
    with pytest.raises(CapacityExceeded) as caught:
        run(banks(9))
    text = str(caught.value)
    assert "PSUM" in text
    assert "bank_0" in text
    assert "test_capacity.py:" in text


def test_kernels_without_psum_or_without_anything():
    """D5: only SBUF, only HBM, nothing at all."""
    assert run(lambda: None) is None
    assert run(lambda a: 7, np.ones((2, 2), F)) == 7

    def hbm_only(a):
        out = nl.ndarray(a.shape, a.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=a)
        return out

    np.testing.assert_array_equal(run(hbm_only, np.ones((2, 2), F)), np.ones((2, 2), F))


def test_capacity_is_decided_in_program_order():
    """A tile that is never accessed takes no space."""

    def kernel():
        for _ in range(4):
            nl.ndarray((128, 40000), nl.float32, nl.sbuf)

    assert neurosim.profile(kernel)().summary()["sbuf"]["peak_partition_bytes"] == 0


@pytest.mark.parametrize("in_turn", [True, False])
def test_a_tile_of_a_device_loop_takes_space_from_its_first_write_to_its_last_access_in_each_trip(in_turn):
    """Two that do not fit side by side fit one after the other, as in a loop of Python; none lives between trips."""
    columns = 30_000

    def kernel():
        out = nl.ndarray((128, 1), nl.float32, nl.shared_hbm)

        def body(i):
            tiles = [nl.ndarray((128, columns), nl.float32) for _ in range(2)]
            for tile in tiles:
                nisa.memset(dst=tile, value=3.0)
                if in_turn:
                    nisa.dma_copy(dst=out, src=tile[:, :1])
            for tile in [] if in_turn else tiles:
                nisa.dma_copy(dst=out, src=tile[:, :1])

        nl.fori_loop(0, 3, body)
        return out

    if in_turn:
        assert (run(kernel) == 3).all()
        return
    with pytest.raises(CapacityExceeded, match="the live tiles do not fit into SBUF") as caught:
        run(kernel)
    assert f"2 × {4 * columns} bytes per partition" in str(caught.value)
