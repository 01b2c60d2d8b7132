"""Programs that do not fit into SBUF, with the DMAs that make them fit."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.dependences import Dependence, dependences
from neurosim.errors import CapacityExceeded
from neurosim.spilling import spill
from neurosim.spills import Traffic
from neurosim.timing import time
from neurosim.work import Transfer

TILE = 128 * 4096 * 4
"""Bytes of a tile that takes 16 KiB of each partition."""


@nki.jit
def twice(x):
    """Load tiles, and use each of them twice, the second time long after the first."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = [nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.sbuf) for _ in range(x.shape[0])]
    for turn in range(2):
        for i, tile in enumerate(tiles):
            if turn == 0:
                nisa.dma_copy(dst=tile, src=x[i])
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0, name=f"add{turn}.{i}")
    for i, tile in enumerate(tiles):
        nisa.dma_copy(dst=out[i], src=tile)
    return out


@pytest.fixture(scope="module")
def recorded():
    """Four tiles of 16 KiB on a chip that holds them, and a chip that holds two and a half."""
    chip = neurosim.load_chip("trn2")
    program = neurosim.simulate(twice, chip=chip, values=False)(neurosim.spec((4, 128, 4096), "float32")).program
    return program, chip.replace(sbuf__partition_bytes=40 * 1024, sbuf__usable_ratio=1.0)


def _spills(program):
    """Return records of spills as (record, whether the tile leaves)."""
    parameters = [dict(signature.parameters) for signature in program.signatures]
    return [(i, parameters[s]["spill"]) for i, s in enumerate(program.signature_ids) if "spill" in parameters[s]]


def test_what_is_added_makes_it_fit_and_is_what_the_estimate_says(recorded):
    program, chip = recorded
    with pytest.raises(CapacityExceeded, match="spilling whole tiles"):
        time(program, chip)
    made = program.copy()
    traffic = spill(made, chip)
    # a b, c in b's place, d in c's; then b in a's, c in b's; at the end a in d's, b, and d again: all changed meanwhile
    assert traffic == Traffic(5 * TILE, 5 * TILE)
    spills = _spills(made)
    assert len(made) == len(program) + len(spills)
    leaving = [made.signatures[made.signature_ids[record]].work[0] for record, leaves in spills if leaves]
    assert sum(work.written_bytes for work in leaving) == traffic.written_bytes
    assert all(isinstance(work, Transfer) and work.generation == "hwdge" for work in leaving)
    timeline, fitting = time(made, chip)[0], time(program, neurosim.load_chip("trn2"))[0]
    assert timeline.hbm_written_bytes == fitting.hbm_written_bytes + traffic.written_bytes
    assert timeline.makespan_ps > fitting.makespan_ps


def test_what_comes_back_is_what_left(recorded):
    program, chip = recorded
    made = program.copy()
    spill(made, chip)
    found, spills = dependences(made), dict(_spills(made))
    for record, leaves in spills.items():
        reads = [producer for producer, kind in found.of(record) if kind is Dependence.RAW]
        if leaves:
            assert reads
            assert not any(producer in spills for producer in reads)  # what was computed in between
        else:
            assert [spills[producer] for producer in reads] == [True]


def test_what_points_to_records_moves_along(recorded):
    program, chip = recorded
    made = program.copy()
    made.edges.append((len(program) - 1, 0))
    spill(made, chip)
    assert made.edges == [(len(made) - 1, 0)]
    assert {name: made.where(record) for record, name in made.names.items()} == {
        name: program.where(record) for record, name in program.names.items()
    }
    operations = [program.signatures[program.signature_ids[record]] for record in program.names]
    assert [made.signatures[made.signature_ids[record]] for record in made.names] == operations


def test_what_cannot_fit_stays_as_it_is(recorded):
    program, chip = recorded
    made = program.copy()
    assert spill(made, chip.replace(sbuf__partition_bytes=8 * 1024)) is None
    assert len(made) == len(program)
    assert spill(made, chip.replace(sbuf__partition_bytes=64 * 1024)) == Traffic(0, 0)
    assert len(made) == len(program)


def test_rings_are_ready_on_the_first_generation():
    trn1 = neurosim.load_chip("trn1").replace(sbuf__partition_bytes=40 * 1024)
    x = neurosim.spec((4, 128, 4096), "float32")
    made = neurosim.simulate(twice, chip="trn1", values=False)(x).program
    assert spill(made, trn1) == Traffic(5 * TILE, 5 * TILE)
    works = [made.signatures[made.signature_ids[record]].work[0] for record, _ in _spills(made)]
    assert {work.generation for work in works} == {"none"}
    assert np.sum([work.descriptors * work.descriptor_bytes for work in works]) == 10 * TILE
