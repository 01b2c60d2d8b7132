"""Two cores in time: meetings join their timelines, HBM's bandwidth is shared, all else is each core's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neurosim.engines import Engine, Memory
from neurosim.errors import SimulatorBug
from neurosim.timing import Stall, time
from neurosim.timing.events.movement import take
from neurosim.timing.events.tables import SPAN, TOTALS, table
from neurosim.work import Handshake, Transfer


def barrier(builder, tile, engine=Engine.gpsimd, size_bytes=0):
    """Both cores meet."""
    work = (Handshake(size_bytes),)
    first = [builder.record("core_barrier", engine, work, (), (tile,), core=core) for core in (0, 1)]
    builder.program.meetings.append((first[0], 2))
    return first


def ps(ns):
    return round(ns * 1000)


def test_both_go_on_when_the_last_is_there(builder, trn2):
    shared = builder.hbm()
    own = [builder.tile() for _ in range(2)]
    builder.lanes("iota", own[0], engine=Engine.gpsimd)
    for _ in range(3):
        last = builder.lanes("iota", own[1], engine=Engine.gpsimd, core=1)
    meeting = barrier(builder, shared)
    after = [builder.lanes("iota", own[core], engine=Engine.gpsimd, core=core) for core in (0, 1)]
    cores = time(builder.program, trn2, schedule="program")
    both = cores[0]
    assert both.start_ps[meeting[0]] == both.start_ps[meeting[1]]
    assert both.start_ps[meeting[1]] >= both.start_ps[last]
    held = ps(trn2.sync.core_barrier_ns)
    for record in after:
        assert both.start_ps[record] == both.start_ps[meeting[0]] + held
    assert both.reason[meeting[0]] == Stall.MEETING
    assert both.waited_for[meeting[0]] == meeting[1]
    assert both.reason[meeting[1]] != Stall.MEETING
    assert cores[0].stall_ps["gpsimd"]["meeting"] > 0 == cores[1].stall_ps["gpsimd"]["meeting"]


def test_other_engines_go_on(builder, trn2):
    """Core 0 waits on GpSimd; its Vector engine does not."""
    tile, other = builder.tile(), builder.tile()
    builder.lanes("memset", other)
    for _ in range(50):
        slow = builder.tile()
        builder.lanes("iota", slow, engine=Engine.gpsimd, core=1)
    meeting = barrier(builder, builder.hbm())
    late = builder.lanes("copy", tile, other)
    timeline = time(builder.program, trn2, schedule="program")[0]
    assert timeline.complete_ps[late] < timeline.start_ps[meeting[0]]


def test_what_comes_before_is_done_and_what_comes_after_is_not(builder, trn2):
    """Each core stores its part of shared memory, they meet, and each loads all of it."""
    shared, tiles = builder.hbm(), [builder.tile() for _ in range(2)]
    for core in (0, 1):
        builder.lanes("memset", tiles[core], core=core)
    halves = [replace(shared.pattern, shape=(64, 512)) for _ in range(2)]
    stores = []
    for core in (0, 1):
        view = type(shared)(shared.storage, halves[core])
        work = Transfer(64, 2048, 1 << 17, 1 << 17, Memory.sbuf, Memory.hbm, "swdge")
        stores.append(builder.record("dma_copy", Engine.gpsimd, (work,), (tiles[core],), (view,), core=core))
        builder.program.slots[-3] = core * 64 * 2048
    meeting = barrier(builder, shared)
    loads = [builder.dma(builder.tile(), shared, core=core) for core in (0, 1)]
    timeline = time(builder.program, trn2, schedule="program")[0]
    done = max(timeline.complete_ps[store] for store in stores)
    assert timeline.start_ps[meeting[0]] == timeline.start_ps[meeting[1]] == done + ps(trn2.sync.semaphore_ns)
    for load in loads:
        assert timeline.start_ps[load] >= timeline.complete_ps[meeting[0]]


def swap(builder, work, tiles, engine=Engine.gpsimd):
    first = [builder.record("sendrecv", engine, work, (tiles[core],), (tiles[2 + core],), core=core) for core in (0, 1)]
    builder.program.meetings.append((first[0], 2))
    return first


def test_the_measured_sendrecv(builder, trn2):
    """4 KiB between two cores of trn2: 354 ns."""
    tiles = [builder.tile(8) for _ in range(4)]
    first = swap(builder, (Handshake(4096),), tiles)
    timeline = time(builder.program, trn2, schedule="program")[1]
    assert (timeline.complete_ps[first[1]] - timeline.start_ps[first[1]]) / 1000 == pytest.approx(354, rel=0.01)


def test_a_transfer_is_there_when_both_are(builder, trn2):
    """Core 1's DMA engines are busy, so that what it sends comes late: core 0 waits for it, not for its own."""
    tiles = [builder.tile(64) for _ in range(4)]
    for _ in range(4):
        builder.dma(builder.tile(4096), builder.hbm(4096), core=1)
    work = (Transfer(128, 256, 1 << 15, 1 << 15, Memory.sbuf, Memory.sbuf, "swdge"),)
    first = swap(builder, work, tiles)
    alone = [builder.lanes("copy", builder.tile(64), tiles[2 + core], core=core) for core in (0, 1)]
    cores = time(builder.program, trn2, schedule="program")
    timeline = cores[0]
    assert timeline.complete_ps[first[0]] == timeline.complete_ps[first[1]]
    assert min(timeline.start_ps[record] for record in alone) >= timeline.complete_ps[first[0]]
    own = cores[0].ops[(cores[0].ops["record"] == first[0]) & (cores[0].ops["unit"] >= 5)]
    assert own["end_ps"].max() + ps(trn2.dma.store_semaphore_ns) < timeline.complete_ps[first[0]]
    trigger = cores[0].ops[(cores[0].ops["record"] == first[0]) & (cores[0].ops["unit"] < 5)]
    held = ps(trn2.dma.trigger_ns) + ps(trn2.sync.core_barrier_ns)
    assert (trigger["end_ps"] - trigger["start_ps"]).tolist() == [held]


def test_two_meet_and_no_more(builder, trn2):
    builder.lanes("memset", builder.tile())
    builder.program.meetings.append((0, 1))
    with pytest.raises(SimulatorBug, match="1 cores meet"):
        time(builder.program, trn2, schedule="program")


# -- HBM --------------------------------------------------------------------------------------------------------------


def stream(builder, cores, count=200, elements=4096):
    for _ in range(count):
        for core in cores:
            builder.dma(builder.tile(elements, "bfloat16"), builder.hbm(elements, "bfloat16"), core=core)


def test_two_cores_that_stream_share_the_bandwidth(new_builder, trn2):
    """Each alone could have more than half of it."""
    loaded = {}
    for cores in ((0,), (0, 1)):
        builder = new_builder()
        stream(builder, cores)
        timelines = time(builder.program, trn2.replace(**{"hbm.bandwidth_gb_per_s": 500.0}))
        makespan_ps = max(timeline.makespan_ps for timeline in timelines.values())
        moved = sum(timeline.hbm_read_bytes for timeline in timelines.values())
        loaded[cores] = moved * 1000 / makespan_ps
        for timeline in timelines.values():
            for account in timeline.engines.values():
                assert account.busy_ps + sum(account.stall_ps.values()) + account.idle_ps == timeline.makespan_ps
    assert 300 < loaded[0,] < 380  # its DMA engines are the limit
    assert 450 < loaded[0, 1] <= 500
    assert loaded[0, 1] > 1.2 * loaded[0,]


def test_a_core_alone_is_timed_as_ever(new_builder, trn2):
    """The other core does nothing with HBM; nothing about core 0 changes."""
    alone, beside = new_builder(), new_builder()
    for builder in (alone, beside):
        for _ in range(30):
            stream(builder, (0,), count=1, elements=512)
            if builder is beside:
                builder.lanes("memset", builder.tile(8), core=1)
    one, two = time(alone.program, trn2)[0], time(beside.program, trn2)[0]
    assert one.makespan_ps == two.makespan_ps
    np.testing.assert_array_equal(one.ops["start_ps"], two.ops["start_ps"])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 20), st.integers(1, 12)), max_size=25))
def test_shared_hbm_against_slots(requests):
    """Time in slots of one: each request takes the first free ones from its beginning on."""
    spans, totals, taken = table(SPAN, 60), table(TOTALS, 1), set()
    for arrival, late, duration in sorted(requests):
        begin, left = arrival + late, duration
        at = begin
        while left:
            if at not in taken:
                taken.add(at)
                left -= 1
            at += 1
        assert take(spans, totals, arrival, begin, duration) == at
    busy = [slot for span in spans[: totals[0].spans] for slot in range(span.start_ps, span.end_ps)]
    assert len(busy) == len(set(busy))
    assert set(busy) <= taken
