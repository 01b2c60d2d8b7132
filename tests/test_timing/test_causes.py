"""Causes: every wait is cut into parts of one cause each, and for every engine all parts make the makespan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurosim
from neurosim.engines import Engine
from neurosim.shell.loading import load_kernel, load_module, packaged_kernel
from neurosim.timing import SCHEDULES, Timeline, time
from neurosim.timing.causes import BUSY, CAUSES, Causes, causes
from neurosim.timing.causes.phases import bounds
from neurosim.timing.timeline import ENGINES, REASONS, Op, Stall

LAUNCHES = load_module(Path(__file__).parents[1] / "mutations" / "mutants.py").LAUNCHES
NS = 1000


def parts_of(found: Causes, engine: str) -> list[tuple[str, int, int]]:
    """Return (cause, duration, record waited for) of an engine's waits, in order of time."""
    unit = found.timeline.units.index(engine)
    parts = found.parts[found.timeline.ops["unit"][found.parts["op"]] == unit]
    parts = parts[~np.isin(parts["cause"], BUSY)]
    parts = parts[np.argsort(parts["start_ps"], kind="stable")]
    return [(CAUSES[part["cause"]], int(part["duration_ps"]), int(part["waited_for"])) for part in parts]


def check(timeline: Timeline, found: Causes) -> None:
    """Hold causes against the accounts, which are computed in another way."""
    by_engine = found.by_engine()
    for name, account in timeline.engines.items():
        spent = by_engine[name]
        assert sum(spent.values()) == timeline.makespan_ps, name
        assert min(spent.values()) >= 0
        assert sum(spent.get(CAUSES[cause], 0) for cause in BUSY) == account.busy_ps
        assert spent.get("idle", 0) == account.idle_ps
        for reason, ps in account.stall_ps.items():  # those that are no split keep their name
            if reason in CAUSES:
                assert spent.get(reason, 0) >= ps
    durations = np.zeros(len(timeline.ops), dtype=np.int64)
    waits = found.parts[(found.parts["start_ps"] >= 0)]
    np.add.at(durations, waits["op"], waits["duration_ps"])
    assert (durations == timeline.ops["stall_ps"]).all()
    start = timeline.ops["start_ps"][waits["op"]]
    assert (waits["start_ps"] + waits["duration_ps"] <= start).all()
    assert (waits["start_ps"] >= start - timeline.ops["stall_ps"][waits["op"]]).all()
    assert ((found.main >= 0) == (timeline.ops["stall_ps"] > 0)).all()


@pytest.mark.parametrize("target", LAUNCHES)
def test_the_causes_of_every_kernel_add_up_to_its_makespan_on_each_engine(target: str) -> None:
    file, _, name = target.partition(":")
    name, _, cores = name.partition("[")
    arrays, options = LAUNCHES[target]
    simulated = neurosim.simulate(load_kernel(f"{packaged_kernel(file)}:{name}"), values=False)
    result = (simulated[int(cores[:-1])] if cores else simulated)(*arrays, **options)
    for schedule in SCHEDULES:
        for timeline in time(result.program, result.chip, schedule=schedule).values():
            check(timeline, causes(result.program, timeline))


def test_every_reason_to_stall_has_a_cause() -> None:
    split = {Stall.NONE, Stall.DATA_DMA, Stall.BUFFER, Stall.DESCRIPTORS, Stall.BANDWIDTH}
    assert {name for reason, name in zip(Stall, REASONS, strict=True) if reason not in split} <= set(CAUSES)
    assert len(set(CAUSES)) == len(CAUSES)


def test_a_wait_for_one_load_is_the_parts_of_its_life(builder: Any, trn2: Any) -> None:
    tile, out = builder.tile(), builder.tile()
    load = builder.dma(tile, builder.hbm())
    builder.lanes("copy", out, tile)
    timeline = builder.time(trn2)
    found = causes(builder.program, timeline)
    check(timeline, found)
    (move,) = timeline.ops[(timeline.ops["kind"] == Op.TRANSFER) & (timeline.ops["unit"] == len(ENGINES))]
    dma = trn2.dma
    moving = round(16384 / dma.load_gb_per_s * NS)  # 8 partitions of 2 KiB through one engine
    assert move["end_ps"] - move["start_ps"] == moving
    first = (dma.trigger_ns + dma.hwdge_first_data_ns) * NS
    last = timeline.start_ps[1] - move["end_ps"]
    assert parts_of(found, "vector") == [
        ("dma_latency", first, load),
        ("dma_bandwidth", moving, load),
        ("dma_latency", last, load),
    ]
    assert found.main_waited_for[timeline.ops["unit"] == ENGINES.index("vector")].tolist() == [load]


def test_small_descriptors_bound_a_load(builder: Any, trn2: Any) -> None:
    tile, out = builder.tile(), builder.tile()
    builder.dma(tile, builder.hbm(), runs=128)  # of 16 bytes
    builder.lanes("copy", out, tile)
    found = causes(builder.program, builder.time(trn2))
    kinds = [cause for cause, _, _ in parts_of(found, "vector")]
    assert kinds == ["dma_latency", "dma_descriptors", "dma_latency"]
    overhead = found.by_engine()["dma0"]
    assert overhead["overhead"] > overhead["work"]


def test_descriptors_bound_a_transfer_where_they_cost_half_of_it(builder: Any, trn2: Any) -> None:
    # 4.5 ns + 90 bytes / (27.2 GB/s) is twice 90 bytes / (23 GB/s)
    for runs in (22, 23):
        builder.dma(builder.tile(elements=506), builder.hbm(elements=506), runs=runs)  # of 92 and 88 bytes
    assert [CAUSES[number] for number in bounds(builder.program, trn2)] == ["dma_bandwidth", "dma_descriptors"]


def test_a_load_that_waited_for_its_queue_was_bound_by_its_issue(builder: Any, trn2: Any) -> None:
    tiles = [builder.tile(elements=8) for _ in range(4)]
    loads = [builder.dma(tile, builder.hbm(elements=8)) for tile in tiles]
    builder.lanes("copy", builder.tile(elements=8), tiles[-1])
    timeline = builder.time(trn2)
    found = causes(builder.program, timeline)
    check(timeline, found)
    first, *others = parts_of(found, "vector")
    assert first == ("dma_issue", int(timeline.start_ps[loads[-1]]), loads[-2])
    assert {cause for cause, _, _ in others} <= {"dma_latency", "dma_descriptors", "dma_bandwidth"}


def test_a_load_behind_others_waits_as_these_move(builder: Any, trn2: Any) -> None:
    big, small = builder.tile(elements=8192), builder.tile(elements=2)
    ahead = builder.dma(big, builder.hbm(elements=8192), engine=Engine.sync)
    builder.dma(small, builder.hbm(elements=2), engine=Engine.scalar)
    builder.lanes("copy", builder.tile(elements=2), small)
    timeline = builder.time(trn2)
    found = causes(builder.program, timeline)
    check(timeline, found)
    longest = max(parts_of(found, "vector"), key=lambda part: part[1])
    assert longest[0] == "dma_bandwidth"
    assert longest[2] == ahead


def test_a_load_of_what_was_just_stored_waits_as_the_store_does(builder: Any, trn2: Any) -> None:
    hbm, back = builder.hbm(), builder.tile()
    value = builder.tile()
    builder.lanes("memset", value)
    store = builder.dma(hbm, value)
    load = builder.dma(back, hbm)
    builder.lanes("copy", builder.tile(), back)
    timeline = builder.time(trn2)
    found = causes(builder.program, timeline)
    check(timeline, found)
    behind = [record for _, _, record in parts_of(found, "vector")]
    assert behind == sorted(behind)
    assert {store, load} <= set(behind)


def test_space_is_told_apart_by_memory(builder: Any, trn2: Any) -> None:
    narrow = trn2.replace(sbuf__partition_bytes=3 * 2048)
    source = builder.hbm()
    for _ in range(4):
        tile = builder.tile()
        builder.dma(tile, source)
        builder.lanes("copy", builder.tile(), tile)
    timeline = builder.time(narrow)
    found = causes(builder.program, timeline)
    check(timeline, found)
    assert found.by_engine()["sync"]["sbuf_space"] > 0


def test_a_bank_of_psum_is_told_apart_from_space_in_sbuf(builder: Any, trn2: Any) -> None:
    weights, moving = builder.tile(elements=128, dtype="bfloat16"), builder.tile(dtype="bfloat16")
    for tile in (weights, moving):
        builder.lanes("memset", tile)
    for _ in range(3):
        accumulator = builder.psum()
        builder.matmul(accumulator, weights, moving)
        builder.lanes("copy", builder.tile(), accumulator)
    timeline = builder.time(trn2.replace(psum__banks=1))
    found = causes(builder.program, timeline)
    check(timeline, found)
    assert found.by_engine()["tensor"]["psum_space"] > 0
    assert "sbuf_space" not in found.by_engine()["tensor"]


def test_busy_time_is_elements_and_what_comes_beside_them(builder: Any, trn2: Any) -> None:
    tile = builder.tile(elements=1000)
    builder.lanes("memset", tile)
    builder.lanes("copy", builder.tile(elements=1000), tile)
    spent = causes(builder.program, builder.time(trn2)).by_engine()["vector"]
    vector = trn2.vector
    cycle = 1000 / vector.clock_ghz
    rates = vector.memset_cycles_per_element + vector.double_cycles_per_element
    assert spent["work"] == pytest.approx(1000 * rates * cycle, abs=2)
    copy, fill = vector.issue_cycles, min(vector.issue_cycles, vector.memset_latency_cycles)
    assert spent["overhead"] == pytest.approx((copy + fill) * cycle, abs=2 * 4 * cycle)


def test_tables_and_weights_are_causes_of_their_own(builder: Any, trn2: Any) -> None:
    tile = builder.tile()
    builder.lanes("memset", tile)
    builder.lanes("activation", builder.tile(), tile, engine=Engine.scalar, table="exp")
    half = builder.tile(elements=128, dtype="bfloat16")
    builder.lanes("memset", half)
    builder.matmul(builder.psum(elements=128), half, half)
    spent = causes(builder.program, builder.time(trn2)).by_engine()
    assert spent["scalar"]["table_load"] == round(trn2.scalar.table_load_cycles / trn2.scalar.clock_ghz * NS)
    assert spent["tensor"]["weights"] == round(trn2.tensor.fast_load_cycles / trn2.tensor.clock_ghz * NS)
    beside = trn2.tensor.pass_overhead_cycles / trn2.tensor.clock_ghz * NS
    assert spent["tensor"]["overhead"] == pytest.approx(beside, abs=1)


def test_an_engine_without_instructions_is_idle(builder: Any, trn2: Any) -> None:
    builder.lanes("memset", builder.tile())
    timeline = builder.time(trn2)
    assert causes(builder.program, timeline).by_engine()["gpsimd"] == {"idle": timeline.makespan_ps}


def test_a_program_without_records_has_no_causes(builder: Any, trn2: Any) -> None:
    timeline = builder.time(trn2)
    found = causes(builder.program, timeline)
    assert len(found.parts) == 0
    assert set(found.by_engine()) == set(timeline.units)
