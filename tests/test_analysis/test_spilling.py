"""Programs that do not fit into SBUF or PSUM, with the DMAs and copies that make them fit."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.analysis.dependences import Dependence, dependences
from neurosim.analysis.spilling import spill
from neurosim.analysis.spills import Traffic
from neurosim.engines import Memory
from neurosim.errors import CapacityExceeded
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
    traffic = spill(made, chip).sbuf
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
    assert spill(made, chip.replace(sbuf__partition_bytes=64 * 1024)) == (Traffic(0, 0), Traffic(0, 0))
    assert len(made) == len(program)


def test_rings_are_ready_on_the_first_generation():
    trn1 = neurosim.load_chip("trn1").replace(sbuf__partition_bytes=40 * 1024)
    x = neurosim.spec((4, 128, 4096), "float32")
    made = neurosim.simulate(twice, chip="trn1", values=False)(x).program
    assert spill(made, trn1) == (Traffic(5 * TILE, 5 * TILE), Traffic(0, 0))
    works = [made.signatures[made.signature_ids[record]].work[0] for record, _ in _spills(made)]
    assert {work.generation for work in works} == {"none"}
    assert np.sum([work.descriptors * work.descriptor_bytes for work in works]) == 10 * TILE


BANK = 128 * 512 * 4
"""Bytes of a sum that takes a bank of PSUM."""


@nki.jit
def sums(x, rounds=1):
    """Multiply into more tiles of PSUM than it has banks, all of them in each round, and read them at the end."""
    out = nl.ndarray((10, *x.shape), dtype=nl.float32, buffer=nl.shared_hbm)
    weights = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
    columns = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=weights, src=x[:, :128])
    nisa.dma_copy(dst=columns, src=x)
    products = [nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.psum) for _ in range(10)]
    for _ in range(rounds):
        for product in products:
            nisa.nc_matmul(dst=product, stationary=weights, moving=columns)
    for i, product in enumerate(products):
        row = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=row, src=product, engine=nisa.engine.vector)
        nisa.dma_copy(dst=out[i], src=row)
    return out


def _recorded_sums(chip, rounds=1):
    roomy = chip.replace(psum__banks=16)
    x = neurosim.spec((128, 512), "bfloat16")
    return roomy, neurosim.simulate(sums, chip=roomy, values=False)(x, rounds=rounds).program


def test_sums_without_room_are_copied_to_sbuf_and_read_there():
    """Ten sums on a chip with eight banks: two of them leave."""
    chip = neurosim.load_chip("trn2")
    roomy, program = _recorded_sums(chip)
    made = program.copy()
    assert spill(made, chip) == (Traffic(0, 0), Traffic(2 * BANK, 0))
    (first, _), (second, _) = spills = _spills(made)
    assert [leaves for _, leaves in spills] == [True, True]
    for record in (first, second):
        (reader,) = [at for at in range(len(made)) if (record, Dependence.RAW) in dependences(made).of(at)]
        signature = made.signatures[made.signature_ids[reader]]
        assert {pattern.memory for pattern in signature.patterns} == {Memory.sbuf}
        assert [stream.memory for stream in signature.work[0].inputs] == [Memory.sbuf]
    timelines = [time(each, at, schedule="program")[0] for each, at in ((made, chip), (program, roomy))]
    assert sum(timelines[0].engines[name].busy_ps for name in ("vector", "scalar")) > sum(
        timelines[1].engines[name].busy_ps for name in ("vector", "scalar")
    )


def test_a_sum_that_is_added_to_comes_back():
    """Each of ten sums is added to when all have begun: the two that left must come back, and others leave."""
    chip = neurosim.load_chip("trn2")
    _, program = _recorded_sums(chip, rounds=2)
    spills = spill(program, chip)
    assert spills.psum.read_bytes == 2 * BANK
    assert spills.psum.written_bytes == 4 * BANK
    found = dependences(program)
    for record in (record for record, leaves in _spills(program) if not leaves):
        users = [at for at in range(len(program)) if record in (producer for producer, _ in found.of(at))]
        assert program.signatures[program.signature_ids[users[0]]].instruction == "nc_matmul"


def test_sums_that_find_no_room_in_sbuf_go_on_to_hbm():
    chip = neurosim.load_chip("trn2").replace(sbuf__usable_ratio=1.0)
    _, program = _recorded_sums(chip)
    needed = 2 * 128 + 2 * 512 + 2048  # weights, columns, a row
    traffic = spill(program, chip.replace(sbuf__partition_bytes=needed + 2048))
    assert traffic is not None
    assert traffic.psum == Traffic(2 * BANK, 0)
    assert traffic.sbuf.read_bytes == BANK


@pytest.mark.parametrize("order", ["reorder", "compiler"])
def test_dmas_keep_their_engine_s_order_where_tiles_are_moved(recorded, order):
    program, chip = recorded
    made = program.copy()
    spill(made, chip)
    (timeline,) = time(made, chip, schedule=order).values()
    signatures = [made.signatures[number] for number in made.signature_ids]
    moves = [i for i, signature in enumerate(signatures) if isinstance(signature.work[0], Transfer)]
    for engine in {signatures[i].engine for i in moves}:
        starts = [int(timeline.start_ps[i]) for i in moves if signatures[i].engine == engine]
        assert len(starts) > 1
        assert starts == sorted(starts)
