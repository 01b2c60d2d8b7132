"""Schedules worked out by hand from the figures of trn2, to the picosecond."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from neurosim.engines import Engine
from neurosim.errors import CapacityExceeded, ConfigurationError, SimulatorBug
from neurosim.timing import Op, Stall, time
from neurosim.work import Lanewise

# float32 copy of 512 elements in SBUF on Vector: (60 + 512 · 0.5) and (150 + 512 · 0.5) cycles at 0.96 GHz
COPY_II, COPY_DONE = 329_167, 422_917
SEMAPHORE = 30_000


def check_identity(timeline):
    names = ["tensor", "vector", "scalar", "gpsimd", "sync", *(f"dma{i}" for i in range(16))]
    assert list(timeline.engines) == list(timeline.units) == names
    for name, account in timeline.engines.items():
        assert account.busy_ps >= 0
        assert account.idle_ps >= 0
        assert all(ps >= 0 for ps in account.stall_ps.values())
        total = account.busy_ps + sum(account.stall_ps.values()) + account.idle_ps
        assert total == timeline.makespan_ps
        assert timeline.busy_ps[name] == account.busy_ps
        assert timeline.stall_ps[name] == account.stall_ps
        assert timeline.idle_ps[name] == account.idle_ps
    ops = timeline.ops
    assert ((ops["stall_ps"] == 0) | (ops["reason"] != Stall.NONE)).all()


def test_independent_copies_follow_at_the_issue_interval(builder, trn2):
    src = builder.tile()
    for _ in range(2):
        builder.lanes("copy", builder.tile(), src)
    timeline = builder.time(trn2)
    assert timeline.start_ps.tolist() == [0, COPY_II]
    assert timeline.complete_ps.tolist() == [COPY_DONE, COPY_II + COPY_DONE]
    assert timeline.makespan_ps == COPY_II + COPY_DONE
    vector = timeline.engines["vector"]
    assert vector.busy_ps == 2 * COPY_II
    assert sum(vector.stall_ps.values()) == 0
    assert vector.idle_ps == COPY_DONE - COPY_II
    assert timeline.idle_ps["dma15"] == timeline.makespan_ps
    check_identity(timeline)


def test_a_dependent_copy_waits_for_the_result_of_its_own_engine(builder, trn2):
    src, middle, dst = builder.tile(), builder.tile(), builder.tile()
    builder.lanes("copy", middle, src)
    builder.lanes("copy", dst, middle)
    timeline = builder.time(trn2)
    assert timeline.start_ps.tolist() == [0, COPY_DONE]
    assert timeline.stall_ps["vector"]["data_engine"] == COPY_DONE - COPY_II
    assert timeline.waited_for.tolist() == [-1, 0]
    assert timeline.reason.tolist() == [Stall.NONE, Stall.DATA_ENGINE]
    check_identity(timeline)


def test_overwriting_waits_on_another_engine_only(builder, trn2):
    src, tile = builder.tile(), builder.tile()
    builder.lanes("copy", builder.tile(), tile)
    builder.lanes("copy", tile, src)  # WAR on Vector itself: no wait beyond the issue interval
    builder.lanes("copy", tile, src, engine=Engine.scalar)  # WAW from Scalar: waits for Vector's completion
    timeline = builder.time(trn2)
    assert timeline.start_ps.tolist() == [0, COPY_II, COPY_II + COPY_DONE + SEMAPHORE]
    assert timeline.stall_ps["scalar"]["overwrite"] == COPY_II + COPY_DONE + SEMAPHORE
    check_identity(timeline)


def test_load_compute_store(builder, trn2):
    source, target = builder.hbm(), builder.hbm()
    loaded, result = builder.tile(), builder.tile()
    builder.dma(loaded, source)
    builder.lanes("copy", result, loaded)
    builder.dma(target, result, Engine.gpsimd)
    timeline = builder.time(trn2)
    # trigger 90 ns, first data 1000 ns, payload 293 ns + 1.305 · 262144 B / (368 GB/s), semaphore 315 ns
    done = 90_000 + 1_000_000 + (293_000 + 929_614) + 315_000
    # 8 descriptors of 2 KiB per engine: 8 · 2048 B / (23 GB/s), above 8 · (4.5 ns + 2048 B / (27.2 GB/s)) = 638.4 ns
    moved = 712_348
    copied = done + SEMAPHORE + COPY_DONE
    stored = copied + SEMAPHORE + 90_000 + 590_000 + (162_000 + 685_991) + 355_000
    assert timeline.start_ps.tolist() == [0, done + SEMAPHORE, copied + SEMAPHORE]
    assert timeline.complete_ps.tolist() == [done, copied, stored]
    assert timeline.makespan_ps == stored
    assert timeline.busy_ps["sync"] == 90_000
    assert timeline.stall_ps["vector"]["data_dma"] == done + SEMAPHORE
    assert timeline.stall_ps["gpsimd"]["data_engine"] == copied + SEMAPHORE
    dma = timeline.engines["dma7"]
    assert dma.busy_ps == moved + 638_353
    assert dma.stall_ps["descriptors"] == copied + SEMAPHORE + 90_000 + 590_000 - moved
    assert timeline.hbm_read_bytes == timeline.hbm_written_bytes == 128 * 2048
    check_identity(timeline)


def test_matmuls_hide_their_weight_loads(builder, trn2):
    weights, moving = builder.tile(128, "bfloat16"), builder.tile(512, "bfloat16")
    product = builder.psum()
    builder.matmul(product, weights, moving)
    builder.matmul(product, weights, moving, accumulate=True)
    builder.lanes("copy", builder.tile(), product)
    timeline = builder.time(trn2)
    load, stream = 13_333, 214_583  # 32 and 512 + 3 cycles at 2.4 GHz
    done = load + 2 * stream + 165_000  # 396 cycles
    assert timeline.start_ps.tolist() == [0, load, done + SEMAPHORE]
    assert timeline.complete_ps[1] == done
    assert timeline.busy_ps["tensor"] == load + 2 * stream
    assert sum(timeline.stall_ps["tensor"].values()) == 0
    tensor = timeline.ops[timeline.ops["unit"] == 0]
    assert tensor["kind"].tolist() == [Op.LOAD_STATIONARY, Op.MATMUL, Op.LOAD_STATIONARY, Op.MATMUL]
    assert tensor["busy_ps"].tolist() == [load, stream, 0, stream]
    assert timeline.flops == {"bfloat16": 2 * 2 * 128 * 128 * 512}
    assert timeline.mfu == pytest.approx(2 * 512 / 2.4e-3 / timeline.makespan_ps)
    check_identity(timeline)


def test_short_moving_exposes_weight_loads(builder, trn2):
    weights, moving = builder.tile(128), builder.tile(32)
    for _ in range(2):
        builder.matmul(builder.psum(32), weights, moving)
    timeline = builder.time(trn2)
    # float32: two pairs; a load takes 128 cycles, a MATMUL two passes of 64 (the minimum) + 3 cycles
    load, stream = 53_333, 55_833
    assert timeline.busy_ps["tensor"] == load + 4 * stream
    moving = builder.tile(1)
    for _ in range(2):
        builder.matmul(builder.psum(1), builder.tile(16), moving)
    timeline = builder.time(trn2)
    short = 15_833  # two passes of 16 + 3 cycles, shorter than the next load
    assert timeline.busy_ps["tensor"] == load + 4 * stream + 3 * load + short
    check_identity(timeline)


def test_space_is_handed_on_in_program_order(builder, trn2):
    """Two of three tiles fit into SBUF: the third load waits until the first tile's reader is done."""
    chip = trn2.replace(sbuf__partition_bytes=2 * 2048 + 64)
    tiles = [builder.tile() for _ in range(3)]
    small = [builder.tile(4) for _ in range(3)]
    for tile in tiles[:2]:
        builder.dma(tile, builder.hbm())
    for dst, tile in zip(small, tiles, strict=True):
        if tile is tiles[2]:
            builder.dma(tile, builder.hbm())
        builder.lanes("reduce", dst, tile, elements=512)
    timeline = builder.time(chip)
    third = 4  # loads 0 and 1, reductions 2 and 3, load 4, reduction 5
    assert timeline.start_ps[third] == timeline.complete_ps[2]
    assert timeline.reason[third] == Stall.BUFFER
    assert timeline.waited_for[third] == 2
    assert timeline.stall_ps["sync"]["buffer"] > 0
    assert builder.time(trn2).start_ps[third] < timeline.start_ps[third]
    check_identity(timeline)


@pytest.mark.parametrize("first", [0, 64])
def test_no_part_of_a_tile_is_written_before_the_tile_has_its_space(builder, trn2, first):
    """One of two tiles fits, and halves are loaded one by one: both of the second wait for the first's reader."""
    chip = trn2.replace(sbuf__partition_bytes=2048 + 64)
    whole, small = [builder.tile() for _ in range(2)], [builder.tile(4) for _ in range(2)]
    for dst, tile in zip(small, whole, strict=True):
        for start in (first, 64 - first):
            part = replace(tile.pattern, shape=(64, 512), start_partition=start)
            builder.dma(type(tile)(tile.storage, part), builder.hbm(partitions=64))
        builder.lanes("reduce", dst, tile, elements=512)
    timeline = builder.time(chip)
    halves, reader = [3, 4], 2  # loads 0 and 1, reduction 2, loads 3 and 4, reduction 5
    assert timeline.reason[halves[0]] == Stall.BUFFER
    assert min(timeline.start_ps[half] for half in halves) == timeline.complete_ps[reader]
    assert max(builder.time(trn2).start_ps[half] for half in halves) < timeline.complete_ps[reader]
    check_identity(timeline)


def test_a_chip_with_too_little_space_says_so(builder, trn2):
    tiles = [builder.tile() for _ in range(3)]
    for tile in tiles:
        builder.dma(tile, builder.hbm())
    builder.lanes("tensor_tensor", tiles[2], tiles[0], tiles[1])
    with pytest.raises(CapacityExceeded, match="live tiles do not fit into SBUF of trn2"):
        builder.time(trn2.replace(sbuf__partition_bytes=4096))


def test_a_queue_takes_one_dma_per_interval_and_four_at_a_time(builder, trn2):
    for _ in range(6):
        builder.dma(builder.tile(16), builder.hbm(16))
    timeline = builder.time(trn2)
    # 64 B per partition are done long before the fourth DMA follows: the interval alone decides
    assert np.diff(timeline.start_ps).tolist() == [600_000] * 5
    assert timeline.stall_ps["sync"]["queue"] == 5 * (600_000 - 90_000)
    shallow = builder.time(trn2.replace(dma__queue_depth=1))
    assert shallow.start_ps[1] == shallow.complete_ps[0]
    assert shallow.reason[1] == Stall.QUEUE
    check_identity(timeline)


def test_an_early_load_overtakes_a_store_that_waits(builder, trn2):
    """DMA engines serve in order of arrival, not of the program."""
    slow, result = builder.tile(8192), builder.tile(8192)
    builder.lanes("reciprocal", result, slow)
    builder.dma(builder.hbm(8192), result, Engine.gpsimd)
    load = builder.dma(builder.tile(), builder.hbm())
    timeline = builder.time(trn2)
    assert timeline.complete_ps[load] < timeline.start_ps[1]
    assert timeline.queued_behind.tolist() == [-1, -1, -1]
    check_identity(timeline)


def test_activation_tables_load_when_the_set_changes(builder, trn2):
    src = builder.tile(128)
    for table in ("square", "rsqrt", "copy", "exp", "rsqrt"):
        builder.lanes("activation", builder.tile(128), src, engine=Engine.scalar, table=table)
    timeline = builder.time(trn2)
    loads = timeline.ops[timeline.ops["kind"] == Op.TABLE_LOAD]
    assert loads["record"].tolist() == [0, 3, 4]
    assert (loads["busy_ps"] == 1_283_333).all()
    check_identity(timeline)


def test_a_table_load_does_not_wait_for_data(builder, trn2):
    tile = builder.tile(128)
    builder.dma(tile, builder.hbm(128))
    builder.lanes("activation", builder.tile(128), tile, engine=Engine.scalar, table="exp")
    timeline = builder.time(trn2)
    load = timeline.ops[timeline.ops["kind"] == Op.TABLE_LOAD][0]
    assert load["start_ps"] == 0
    assert timeline.start_ps[1] == timeline.complete_ps[0] + SEMAPHORE
    assert timeline.stall_ps["scalar"]["data_dma"] == timeline.start_ps[1] - 1_283_333
    check_identity(timeline)


def test_explicit_edges(builder, trn2):
    src = builder.tile()
    builder.lanes("copy", builder.tile(), src)
    builder.lanes("copy", builder.tile(), src, engine=Engine.scalar)
    builder.program.edges.append((1, 0))
    timeline = builder.time(trn2)
    assert timeline.start_ps[1] == COPY_DONE + SEMAPHORE
    assert timeline.stall_ps["scalar"]["edge"] == COPY_DONE + SEMAPHORE


def test_dma_engines_serve_eight_partitions_each(builder, trn2):
    builder.dma(builder.tile(2048, "float32", partitions=4), builder.hbm(2048, partitions=4))
    builder.dma(builder.tile(64, partitions=16, start_partition=64), builder.hbm(64, partitions=16))
    builder.dma(builder.hbm(64, partitions=5), builder.hbm(64, partitions=5))
    builder.dma(builder.hbm(64, partitions=5), builder.hbm(64, partitions=5))
    timeline = builder.time(trn2)

    def engines(record):
        return [timeline.units[op["unit"]] for op in timeline.ops[timeline.ops["record"] == record]][1:]

    assert engines(0) == ["dma0"]
    assert engines(1) == ["dma8", "dma9"]
    assert engines(2) == [f"dma{i}" for i in range(5)]
    assert engines(3) == [f"dma{i}" for i in range(5, 10)]  # without partitions, they take turns
    check_identity(timeline)


def test_hbm_is_shared(builder, trn2):
    for _ in range(4):
        builder.dma(builder.tile(4096), builder.hbm(4096), generation="none")
    slow = builder.time(trn2.replace(hbm__bandwidth_gb_per_s=92.0))
    size_bytes = 4 * 128 * 4096 * 4
    assert slow.engines["dma3"].stall_ps["bandwidth"] == pytest.approx(0.75 * size_bytes / 92 * 1000, rel=1e-3)
    assert 0.9 < slow.mbu <= 1
    assert sum(builder.time(trn2).stall_ps["dma3"].values()) == 1_090_000  # waiting for the first descriptors
    check_identity(slow)


def test_cores_have_their_own_engines(builder, trn2):
    src = builder.tile()
    builder.lanes("copy", builder.tile(), src)
    builder.lanes("copy", builder.tile(), src, core=1)
    timelines = time(builder.program, trn2)
    assert sorted(timelines) == [0, 1]
    for core, timeline in timelines.items():
        assert timeline.records.tolist() == [core]
        assert timeline.makespan_ps == COPY_DONE
        check_identity(timeline)


def test_launch_is_its_own_item(builder, trn2):
    builder.lanes("copy", builder.tile(), builder.tile())
    timeline = builder.time(trn2)
    assert timeline.launch_ps == 10_000_000
    assert timeline.total_ps == timeline.launch_ps + COPY_DONE
    for asked, launch_ps in ((True, 10_000_000), ("benchmark", 10_000_000), ("profile", 17_500_000), (False, 0)):
        timeline = time(builder.program, trn2, launch_overhead=asked)[0]
        assert (timeline.launch_ps, timeline.makespan_ps) == (launch_ps, COPY_DONE)


@pytest.mark.parametrize("asked", ["none", 10.0, None, 1])
def test_a_launch_that_nobody_knows(builder, trn2, asked):
    with pytest.raises(ConfigurationError, match=r"launch_overhead=.*\n  known: True or 'benchmark' \(10000 ns\)"):
        time(builder.program, trn2, launch_overhead=asked)


def test_what_is_no_program_no_chip_and_no_schedule(builder, trn2):
    for program, chip in ((builder.program, "trn2"), (None, trn2)):
        with pytest.raises(ConfigurationError, match=r"program is a \w+ and chip a \w+\n  pass a result's .program"):
            time(program, chip)
    with pytest.raises(ConfigurationError, match=r"schedule=\[\] is unknown"):
        time(builder.program, trn2, schedule=[])


def test_an_empty_program(builder, trn2):
    timeline = builder.time(trn2)
    assert timeline.makespan_ps == 0
    assert timeline.mfu == timeline.mbu == 0
    check_identity(timeline)


def test_a_foreign_generation(new_builder, trn2):
    with pytest.raises(ConfigurationError) as caught:
        new_builder(generation=2).time(trn2)
    message = str(caught.value)
    assert "trn2 is another generation" in message
    assert "generation 2, not 3" in message
    assert "run the kernel on trn2" in message


def test_there_is_no_default_cost(builder, trn2):
    builder.lanes("levitate", builder.tile(), builder.tile())
    with pytest.raises(SimulatorBug) as caught:
        builder.time(trn2)
    assert "the vector engine has no law 'levitate'" in str(caught.value)
    assert "tensor_scalar" in str(caught.value)


@pytest.mark.parametrize("engine", [Engine.vector, Engine.tensor, Engine.dma, Engine.unknown])
def test_work_on_the_wrong_engine(builder, trn2, engine):
    tile = builder.tile()
    builder.record("odd", engine, (Lanewise("activation", 4, (), tile.stream()),), (), (tile,))
    with pytest.raises(SimulatorBug, match=r"activation|no instruction stream"):
        builder.time(trn2)


def test_work_that_is_missing(builder, trn2):
    builder.record("nothing", Engine.vector, (), (), (builder.tile(),))
    with pytest.raises(SimulatorBug, match="nothing has work that the vector engine cannot do"):
        builder.time(trn2)


def test_strides_halve_the_rate(builder, trn2):
    """The rule of 16 bytes, for an instruction that keeps memory busy, and for one that does not."""
    assert trn2.sbuf.strided_slowdown == pytest.approx(2, rel=0.1)
    slower = trn2.sbuf.strided_slowdown - 1
    psum = builder.psum()
    costs = {}
    for law, step_bytes in [("copy", None), ("copy", 8), ("copy", 16), ("reciprocal", None), ("reciprocal", 16)]:
        record = builder.lanes(law, builder.tile(), psum, step_bytes=step_bytes)
        costs[law, step_bytes] = record
    timeline = builder.time(trn2)
    latency = {key: timeline.complete_ps[record] - timeline.start_ps[record] for key, record in costs.items()}
    assert latency["copy", 8] == latency["copy", None]
    assert latency["copy", 16] - latency["copy", None] == pytest.approx(slower * 512 / 0.96e-3, abs=1)
    assert latency["reciprocal", 16] == latency["reciprocal", None]


def test_planes_keep_their_space(builder, trn2):
    """A tensor with an address reserves its plane's bytes; automatic tiles share the rest."""
    plane = builder.tile()
    info = builder.program.storages[plane.storage]
    builder.program.storages[plane.storage] = replace(info, role="plane")
    tiles = [builder.tile() for _ in range(2)]
    for tile in (plane, *tiles):
        builder.dma(tile, builder.hbm())
    chip = trn2.replace(sbuf__partition_bytes=2 * 2048)
    timeline = builder.time(chip)
    assert timeline.start_ps[2] == timeline.complete_ps[1]
    assert timeline.reason[2] == Stall.BUFFER


def test_an_engine_completes_in_order(builder, trn2):
    """A short instruction behind a long one is not done before it."""
    builder.lanes("transpose", builder.tile(32), builder.tile(32))
    builder.lanes("mask_load", builder.tile(32), builder.tile(32))
    timeline = builder.time(trn2)
    assert timeline.complete_ps[1] == timeline.complete_ps[0]


def test_a_queue_keeps_order_up_to_the_dma_engines(builder, trn2):
    """Software descriptors reach a store sooner than a load: not past the load before it."""
    chip = trn2.replace(dma__swdge_load_first_data_ns=5000)
    builder.dma(builder.tile(16), builder.hbm(16), Engine.gpsimd)
    builder.dma(builder.hbm(16), builder.tile(16), Engine.gpsimd)
    timeline = builder.time(chip)
    moves = timeline.ops[timeline.ops["kind"] == Op.TRANSFER]
    begins = [moves["start_ps"][moves["record"] == record].min() for record in (0, 1)]
    assert begins[0] < begins[1]


def test_a_variant_that_is_too_small(builder, trn2):
    builder.matmul(builder.psum(), builder.tile(128), builder.tile())
    with pytest.raises(ConfigurationError, match="nc_matmul does not fit on trn2") as caught:
        builder.time(trn2.replace(tensor__columns=64))
    assert "tensor.columns = 64" in str(caught.value)
    with pytest.raises(ConfigurationError, match="nc_matmul does not fit on trn2") as caught:
        builder.time(trn2.replace(chip__partitions=64))
    assert "chip.partitions = 64" in str(caught.value)


WINDOW = 3_413_000
STREAM = 214_583  # of 512 bfloat16 columns, at the full clock


def throttled_stream(builder, trn2, rows, count, pause=None):
    """Multiply again and again; return the timeline and how long each MATMUL took."""
    weights, product = builder.tile(128, "bfloat16"), builder.psum()
    moving = builder.tile(512, "bfloat16", partitions=rows)
    for index in range(count):
        if pause is not None and index == pause:
            for _ in range(40):
                builder.lanes("copy", moving, builder.tile())
        builder.matmul(product, weights, moving)
    timeline = builder.time(trn2, throttle=True)
    ops = timeline.ops[timeline.ops["kind"] == Op.MATMUL]
    check_identity(timeline)
    return timeline, (ops["end_ps"] - ops["start_ps"]).tolist()


def test_a_cold_tensor_engine_takes_twice_as_long(builder, trn2):
    timeline, times = throttled_stream(builder, trn2, 128, 40)
    assert times[0] == times[5] == 2 * STREAM
    assert times[9] == times[39] == STREAM  # the first window is over
    assert times.index(STREAM) * 2 * STREAM < WINDOW + 4 * STREAM
    held = timeline.stall_ps["tensor"]["throttle"]
    assert timeline.busy_ps["tensor"] + held == timeline.ops[timeline.ops["unit"] == 0]["end_ps"].max()
    assert WINDOW / 2 - 2 * STREAM < held < WINDOW / 2 + STREAM
    # 26.7 ns of loading weights, at half the clock, 165 ns to the result and 25 ns more
    assert timeline.complete_ps[0] == 26_666 + 2 * STREAM + 165_000 + 25_000


def test_few_rows_never_end_the_throttle(builder, trn2):
    """Nor do half of them, however long: measured as 1707 ns for a float32 matmul that takes 853 at the full clock."""
    for rows in (1, 64):
        assert set(throttled_stream(builder, trn2, rows, 40)[1]) == {2 * STREAM}


@pytest.mark.parametrize(("rows", "warm"), [(64, False), (99, False), (101, True), (128, True)])
def test_the_threshold_of_the_throttle_counts_rows(builder, trn2, rows, warm):
    assert (throttled_stream(builder, trn2, rows, 60)[1][-1] == STREAM) == warm


def test_a_pause_brings_the_throttle_back(builder, trn2):
    times = throttled_stream(builder, trn2, 128, 60, pause=30)[1]
    assert times[29] == STREAM
    assert times[30] == 2 * STREAM
    assert times[59] == STREAM


def test_trn1_has_no_throttle(new_builder, chips):
    builder = new_builder(generation=2)
    weights, product, moving = builder.tile(128, "bfloat16"), builder.psum(), builder.tile(512, "bfloat16")
    builder.matmul(product, weights, moving)
    one, other = (builder.time(chips["trn1"], throttle=throttle) for throttle in (False, True))
    assert one.makespan_ps == other.makespan_ps
