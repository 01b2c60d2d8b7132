"""Rules that hold for every access to a tile: where it begins, how many axes it has, what it may reach twice."""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import IllegalOperand


@pytest.mark.parametrize(
    ("start", "count", "legal"),
    [
        (0, 128, True),
        (0, 1, True),
        (32, 32, True),
        (96, 32, True),
        (64, 64, True),
        (32, 1, True),
        (1, 1, False),
        (16, 16, False),
        (32, 33, False),
        (32, 64, False),
        (64, 65, False),
        (96, 33, False),
        (1, 127, False),
    ],
)
def test_start_partitions(start, count, legal):
    """trainium_inferentia2_arch.rst: 128 partitions begin at 0, 64 at 0 or 64, 32 at a multiple of 32."""

    def kernel():
        tile = nl.ndarray((128, 8), nl.float32, nl.sbuf, name="t")
        nisa.memset(dst=tile, value=0.0)
        if start + count <= 128:
            nisa.memset(dst=tile[start : start + count], value=1.0)
        else:
            tile[start : start + count]

    if start + count > 128:
        with pytest.raises(IndexError):
            neurosim.simulate(kernel)()
    elif legal:
        neurosim.simulate(kernel)()
    else:
        with pytest.raises(IllegalOperand) as caught:
            neurosim.simulate(kernel)()
        text = str(caught.value)
        assert f"memset: dst covers partitions {start} to {start + count - 1}" in text
        assert f"an access to {count} partitions begins at 0" in text


def test_dma_begins_at_any_partition():
    def kernel(a):
        tile = nl.ndarray((128, 4), nl.float32, nl.sbuf)
        nisa.memset(dst=tile, value=0.0)
        nisa.dma_copy(dst=tile[5:9], src=a)
        out = nl.ndarray((7, 4), nl.float32, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile[3:10])
        return out

    array = np.ones((4, 4), np.float32)
    expected = np.zeros((7, 4), np.float32)
    expected[2:6] = 1
    np.testing.assert_array_equal(neurosim.simulate(kernel)(array).outputs, expected)


@pytest.mark.parametrize("depth", [4, 5])
def test_depth_of_access_patterns(depth):
    def kernel():
        tile = nl.ndarray((4,) + (4,) * depth, nl.int8, nl.sbuf)
        view = tile[(slice(None),) + (slice(0, 2),) * depth]
        nisa.memset(dst=view, value=1)

    if depth == 4:
        (record,) = neurosim.simulate(kernel)().program
        assert record.signature.patterns[0].shape == (4, 2, 2, 2, 2)
    else:
        with pytest.raises(IllegalOperand, match="needs an access pattern with 5 free axes; the hardware has 4"):
            neurosim.simulate(kernel)()


def test_depth_counts_axes_that_cannot_be_merged():
    def kernel():
        tile = nl.ndarray((4, 2, 2, 2, 2, 2, 2), nl.int8, nl.sbuf)
        nisa.memset(dst=tile, value=1)
        nisa.memset(dst=tile[:, :, :, :, :, :, 0], value=1)

    dense, strided = neurosim.simulate(kernel)().program
    assert len(dense.signature.patterns[0].shape) == 7
    assert len(strided.signature.patterns[0].shape) == 6


def test_interleaved_windows_are_no_double_write():
    def kernel(pattern, offset):
        tile = nl.ndarray((4, 4), nl.float32)
        nisa.memset(dst=tile.ap(pattern, offset=offset), value=7.0)
        out = nl.ndarray((4, 4), nl.float32, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    for pattern, offset in (([[4, 4], [1, 2], [2, 2]], 0), ([[4, 4], [-1, 4]], 3)):
        assert (neurosim.simulate(kernel)(pattern, offset).outputs == 7).all()
