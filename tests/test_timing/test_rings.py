"""Static rings: one for each tensor in HBM, each moves one DMA after the other."""

from __future__ import annotations

import numpy as np
import pytest

from neurosim.timing.lower import cost_of

ELEMENTS = 128
DMAS = 12


def load(builder, tensors, generation="none"):
    for count in range(DMAS):
        builder.dma(builder.tile(ELEMENTS), tensors[count % len(tensors)], generation=generation)
    return builder


def starts_ps(builder, chip):
    return np.sort(builder.time(chip).start_ps)


@pytest.mark.parametrize("name", ["trn1", "trn2", "trn3"])
def test_a_ring_takes_the_next_dma_when_it_moved_the_last(new_builder, chips, name):
    chip = chips[name]
    builder = new_builder(chip.generation)
    load(builder, [builder.hbm(ELEMENTS)])
    moved_ps = max(ps for _, ps in cost_of(builder.program.signatures[0], chip).shares)
    assert set(np.diff(starts_ps(builder, chip)).tolist()) == {moved_ps + round(chip.dma.static_gap_ns * 1000)}


def test_another_tensor_has_another_ring(new_builder, trn2):
    one, two = new_builder(), new_builder()
    load(one, [one.hbm(ELEMENTS)])
    load(two, [two.hbm(ELEMENTS), two.hbm(ELEMENTS)])
    alone = np.diff(starts_ps(one, trn2))[0]
    both = starts_ps(two, trn2)
    assert both[1] - both[0] == round(trn2.dma.trigger_ns * 1000)
    assert both[-1] - both[1] == (DMAS // 2 - 1) * alone


@pytest.mark.parametrize(("generation", "figure"), [("hwdge", "hwdge_interval_ns"), ("swdge", "swdge_interval_ns")])
def test_other_queues_go_by_the_engine_that_triggers(new_builder, trn2, generation, figure):
    builder = new_builder()
    load(builder, [builder.hbm(ELEMENTS), builder.hbm(ELEMENTS)], generation)
    assert np.diff(starts_ps(builder, trn2))[0] == round(getattr(trn2.dma, figure) * 1000)
