"""Replays of launches on two cores: each core's own memory and registers, meetings, and races that values decide."""

from __future__ import annotations

from pathlib import Path
from random import Random

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
import neurosim.run
from neurosim.errors import DataRace
from neurosim.replay import Launch
from neurosim.shell.loading import load_module

load_module(Path(__file__).parents[1] / "fuzz" / "runs.py")  # puts its folder on the path
from pairs import CORES, OneOfTwo, Pair, meetings  # noqa: E402

A, B = (np.random.default_rng(seed).standard_normal((2, 32, 32), np.float32) for seed in (0, 1))
SINK = np.zeros((2, 1 << 16), np.float32)


def loaded(source):
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def swapped(x):
    """Each core sends its half twice, and stores what came back doubled by the other."""
    core = nl.program_id(0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    mine, other = loaded(x[core]), nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.sbuf)
    for pipe in range(2):
        nisa.sendrecv(src=mine, dst=other, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=pipe)
        nisa.tensor_scalar(dst=mine, data=other, op0=nl.multiply, operand0=2.0 + core)
    nisa.dma_copy(dst=out[core], src=mine)
    return out


def in_place(x):
    """A core sends the tile that it receives into."""
    core = nl.program_id(0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = loaded(x[core])
    nisa.sendrecv(src=tile, dst=tile, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0)
    nisa.dma_copy(dst=out[core], src=tile)
    return out


def behind_a_barrier(x):
    """What one core stores, the other reads."""
    core = nl.program_id(0)
    between, out = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(2))
    nisa.dma_copy(dst=between[core], src=loaded(x[core]))
    nisa.core_barrier(data=between, cores=(0, 1))
    nisa.dma_copy(dst=out[core], src=loaded(between[1 - core]))
    return out


def at_addresses(x):
    """Each core has a plane of its own, with other tensors at the same numbers of allocation and addresses."""
    core = nl.program_id(0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = loaded(x[core])
    for trip in range(3):
        where = 512 * (trip % 2) if core else 0
        total = nl.ndarray((32, 32), dtype=nl.float32, buffer=nl.psum, address=(0, where))
        for _ in range(trip + 1 + core):
            nisa.nc_matmul(dst=total, stationary=tile, moving=tile)
        tile = nl.ndarray((32, 32), dtype=nl.float32, buffer=nl.sbuf, address=(0, 256 * (trip + core)))
        nisa.tensor_scalar(dst=tile, data=total, op0=nl.multiply, operand0=0.125)
        nisa.sendrecv(src=tile, dst=tile, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=trip)
    nisa.dma_copy(dst=out[core], src=tile)
    return out


def with_registers(x):
    """Both cores add to the accumulators of their Scalar engine, in turns."""
    core = nl.program_id(0)
    out = nl.ndarray((2, 32, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    total, tile = nl.ndarray((32, 1), dtype=nl.float32, buffer=nl.sbuf), loaded(x[core])
    for command in (nisa.reduce_cmd.reset_reduce, nisa.reduce_cmd.reduce):
        nisa.activation(dst=tile, op=nl.copy, data=tile, reduce_op=nl.add, reduce_res=total, reduce_cmd=command)
        nisa.core_barrier(data=out, cores=(0, 1))
    nisa.dma_copy(dst=out[core], src=total)
    return out


def same(one, other):
    """Whether two results are the same in bits, record and report."""
    return (
        one.outputs.tobytes() == other.outputs.tobytes()
        and one.program.listing() == other.program.listing()
        and one.summary() == other.summary()
    )


@pytest.mark.parametrize(
    "options", [{}, {"precise": False}, {"rounding": "stochastic", "rounding_seed": 3}], ids=["", "float32", "random"]
)
@pytest.mark.parametrize("kernel", [swapped, in_place, behind_a_barrier, at_addresses, with_registers])
def test_a_replay_is_a_run(kernel, options):
    a, b = (array.astype("bfloat16") if options else array for array in (A, B))
    recorded = neurosim.simulate(kernel, **options)[2](b)
    assert recorded.unreplayable == ""
    replayed = neurosim.simulate(kernel, **options)[2](a)
    fresh = neurosim.simulate(kernel, replay=False, **options)[2](a)
    assert (replayed.replayed, fresh.replayed) == (True, False)
    assert same(replayed, fresh)
    assert recorded.outputs.tobytes() != fresh.outputs.tobytes()


def both_store(x):
    """Both cores store a row of their own to one place: no race where the rows are equal."""
    out = nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=loaded(x[nl.program_id(0)]))
    return out


def test_a_race_that_values_decide_is_found():
    run, reason = neurosim.simulate(both_store)[2], "whether its cores race depends on what they write"
    equal = np.stack([A[0], A[0]])
    assert [run(equal).unreplayable for _ in range(2)] == [reason] * 2
    with pytest.raises(DataRace):
        run(A)


def test_a_tile_sent_with_holes_runs():
    def kernel(x):
        core = nl.program_id(0)
        out = nl.ndarray((2, 16, 32), dtype=x.dtype, buffer=nl.shared_hbm)
        mine, other = (nl.ndarray((32, 32), dtype=x.dtype, buffer=nl.sbuf) for _ in range(2))
        nisa.dma_copy(dst=mine[:16], src=x[core, :16])
        nisa.sendrecv(src=mine, dst=other, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0)
        nisa.dma_copy(dst=out[core], src=other[:16])
        return out

    results = [neurosim.simulate(kernel)[2](A) for _ in range(2)]
    assert np.array_equal(results[1].outputs, A[::-1, :16])
    assert [result.unreplayable for result in results] == ["sendrecv reads memory that was written in part"] * 2


class Stored(OneOfTwo):
    """A core's random steps; what it has written in the end goes into its row of an array."""

    def run(self):
        for meeting in self.pair.meetings[self.core]:
            self.steps_of_epoch()
            self.meet(meeting)
            self.epoch += 1
        self.steps_of_epoch()

    def loop(self):
        """No loop on the device: a kernel that has one runs each time."""

    def store_all(self, row):
        begin = 0
        for tensor in [*self.tensors, *self.apart.tensors]:
            end = begin + int(np.prod(tensor.shape))
            if not tensor.twin.written.all() or end > SINK.shape[1]:
                continue
            tile = tensor.tile
            if tensor.memory == "psum":
                tile = nl.ndarray(tensor.shape, dtype=tile.dtype, buffer=nl.sbuf)
                nisa.tensor_copy(dst=tile, src=tensor.tile)
            nisa.dma_copy(dst=row[begin:end].reshape(tensor.shape), src=tile)
            begin = end


def program(seed, data, chip):
    """Return a kernel of random steps on two cores, which meet wherever they have to."""
    pair = Pair(dict.fromkeys(CORES, meetings(Random(seed))), careful=True)

    def kernel(source, sink):
        core = nl.program_id(0)
        one = Stored((seed, seed), source, chip, core, pair)
        one.run()
        one.store_all(sink[core])
        return sink

    return neurosim.simulate(kernel, chip)[2], neurosim.simulate(kernel, chip, replay=False)[2]


def replayed_like_a_run(seed, monkeypatch):
    """Record a program on some values, replay it on others; return whether it was allowed to."""
    monkeypatch.setattr(neurosim.run, "launch_of", lambda *_: Launch(key=f"random pair {seed}"))
    chip = ("trn2", "trn3")[seed % 2]
    first, second = (np.random.default_rng(number).standard_normal(1 << 18, np.float32) * 4 for number in (0, 1))
    recorded = program(seed, first, chip)[0](first, SINK.copy())
    result = program(seed, second, chip)[0](second, SINK.copy())
    assert result.replayed == (recorded.unreplayable == "")
    fresh = program(seed, second, chip)[1](second, SINK.copy())
    assert not fresh.replayed
    assert same(result, fresh)
    return result.replayed


def test_some(monkeypatch):
    assert sum(replayed_like_a_run(seed, monkeypatch) for seed in range(4)) > 1


@pytest.mark.long
def test_many(monkeypatch):
    assert sum(replayed_like_a_run(seed, monkeypatch) for seed in range(4, 1500)) > 500
