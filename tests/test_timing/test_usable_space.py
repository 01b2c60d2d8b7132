"""Loads run ahead as far as the space that compilers hand out, which on trn2 is less than all of SBUF."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import pytest

import neurosim
from neurosim.timing import time

KIB = 1024


@nki.jit
def streamed(x):
    """Load, change and store tiles one after the other."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(x.shape[0]):
        tile = nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[i])
        nisa.activation(dst=tile, data=tile, op=nl.silu)
        nisa.dma_copy(dst=out[i], src=tile)
    return out


def loads(chip, kib):
    """Return when the loads of two tiles of so many KiB per partition begin, and when the first tile was stored."""
    x = neurosim.spec((2, 128, kib * KIB // 4), "float32")
    result = neurosim.simulate(streamed, chip=chip, values=False)(x)
    timeline = time(result.program, result.chip)[0]
    return timeline.start_ps[[0, 3]].tolist(), int(timeline.complete_ps[2])


@pytest.mark.parametrize(("kib", "waits"), [(103, False), (112, True)])  # of 208 and of 224 KiB, two fit
def test_two_tiles_beside_each_other_need_the_usable_space(kib, waits):
    (_, second), stored = loads("trn2", kib)
    assert (second >= stored) == waits


def test_all_of_it_can_be_handed_out():
    chip = neurosim.load_chip("trn2").replace(sbuf__usable_ratio=1.0)
    (_, second), stored = loads(chip, 112)
    assert second < stored


def test_what_needs_more_than_is_usable_has_all_there_is():
    (_, second), stored = loads("trn2", 220)
    assert second >= stored


def test_the_usable_part_goes_with_the_size():
    trn2 = neurosim.load_chip("trn2")
    assert trn2.sbuf.usable_bytes == 212984
    assert trn2.replace(sbuf__partition_bytes=2 * 229376).sbuf.usable_bytes == pytest.approx(2 * 212984, rel=1e-4)
    assert neurosim.load_chip("trn1").sbuf.usable_bytes == 192 * KIB
