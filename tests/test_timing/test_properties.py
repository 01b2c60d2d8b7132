"""What holds for every program: accounts add up, nothing overlaps, nothing comes too early, slower is never faster."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from neurosim import tiers
from neurosim.analysis.dependences import Dependence, dependences
from neurosim.analysis.lifetimes import check_capacity, lifetimes
from neurosim.engines import Engine, Memory
from neurosim.errors import CapacityExceeded, ConfigurationError
from neurosim.program import Program
from neurosim.timing import SCHEDULES, Op, Stall, launch_overhead_ps, time
from neurosim.timing.dma import TransferCost
from neurosim.timing.laws import MatmulCost, lanewise_cost
from neurosim.timing.lower import ComputeCost, cost_of
from neurosim.work import Control, Handshake, Lanewise, Transfer

FIXTURES = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
LAWS = ("copy", "tensor_scalar", "reduce", "reciprocal", "activation", "affine_select", "transpose")
ENGINES = {"activation": Engine.scalar, "affine_select": Engine.gpsimd}
TRAINIUM = ("trn1", "trn2", "trn3")
QUEUES = ((Engine.sync, "hwdge"), (Engine.scalar, "hwdge"), (Engine.gpsimd, "swdge"), (Engine.sync, "none"))

step = st.tuples(
    st.sampled_from(("load", "load", "store", "matmul", "accumulate", *LAWS)),
    st.integers(0, 5),
    st.integers(0, 5),
    st.sampled_from((32, 512, 2048)),
    st.booleans(),
    st.integers(0, 3),
)
steps = st.lists(step, min_size=1, max_size=24)


def build(builder, plan, queues=QUEUES):
    """Make a program over six tiles; a fresh destination is a new tile in the old one's place."""
    tiles = [builder.tile(512) for _ in range(6)]
    banks = [builder.psum(512) for _ in range(3)]
    outside = [builder.hbm(512) for _ in range(2)]
    for kind, first, second, elements, fresh, choice in plan:
        if fresh:
            tiles[first] = builder.tile(512, partitions=(128, 32, 128, 7)[choice])
        engine, generation = queues[choice % len(queues)]
        if kind == "load":
            builder.dma(tiles[first], outside[0], engine, generation, runs=1 + choice)
        elif kind == "store":
            builder.dma(outside[second % 2], tiles[first], engine, generation, runs=1 + choice)
        elif kind in ("matmul", "accumulate"):
            if fresh:
                banks[first % 3] = builder.psum(512)
            builder.matmul(
                banks[first % 3],
                builder.tile(64),
                tiles[second],
                accumulate=kind == "accumulate",
                transpose=choice == 3,
            )
        else:
            source = banks[second % 3] if choice == 2 else tiles[second]
            table = ("exp", "silu", "copy", "sqrt")[choice] if kind == "activation" else None
            sums = builder.tile(1) if table == "exp" else None
            builder.lanes(
                kind,
                tiles[first],
                source,
                engine=ENGINES.get(kind, Engine.vector),
                table=table,
                elements=elements,
                accumulator=sums,
            )
    return builder.program


def check_accounts(timeline):
    for account in timeline.engines.values():
        terms = (account.busy_ps, *account.stall_ps.values(), account.idle_ps)
        assert all(isinstance(term, int) and term >= 0 for term in terms)
        assert sum(terms) == timeline.makespan_ps
    assert 0 <= timeline.mfu <= 1
    assert 0 <= timeline.mbu <= 1


def check_order(program, timeline):
    """Units take their work in order and do one thing at a time, but for a LoadStationary behind a MATMUL."""
    ops = timeline.ops
    for unit in range(len(timeline.units)):
        mine = ops[(ops["unit"] == unit) & (ops["kind"] != Op.LOAD_STATIONARY)]
        assert (mine["start_ps"][1:] >= mine["end_ps"][:-1]).all()
        if unit < 5 and timeline.schedule == "program":
            assert (np.diff(mine["record"]) >= 0).all()
    assert (ops["busy_ps"] >= 0).all()
    assert (ops["end_ps"] <= timeline.makespan_ps).all()
    assert (timeline.complete_ps >= timeline.start_ps).all()


def executed(timeline):
    """Return the program that was executed, and when its records started and completed."""
    program, records = timeline.compiled.program, timeline.compiled.records
    return program, timeline.start_ps[records], timeline.complete_ps[records]


def check_dependences(timeline, chip):
    program, start_ps, complete_ps = executed(timeline)
    found = dependences(program)
    semaphore_ps = round(chip.sync.semaphore_ns * 1000)
    own_semaphore_ps = round(chip.sync.own_semaphore_ns * 1000)
    work = [program.signatures[i] for i in program.signature_ids]
    for record in range(len(program)):
        for producer, kind in found.of(record):
            is_dma = isinstance(work[producer].work[0], Transfer)
            is_local = work[producer].engine == work[record].engine and not is_dma
            ready = complete_ps[producer] + (own_semaphore_ps if is_local else semaphore_ps)
            if is_local and kind in (Dependence.WAR, Dependence.WAW):
                ready = start_ps[producer]
            assert start_ps[record] >= ready


def check_space(timeline, chip):
    """At no time do the tiles in SBUF or PSUM take more than there is."""
    program, start_ps, complete_ps = executed(timeline)
    life = lifetimes(program)
    tiles = life.tiles.tolist()
    first_write = dict(zip(tiles, life.starts.tolist(), strict=True))
    size_bytes = dict(zip(tiles, life.sizes_bytes.tolist(), strict=True))
    begins: dict[int, int] = {}
    ends = defaultdict(int)
    for record in program:
        for storage, _ in record.slots:
            if record.index >= first_write.get(storage, len(program)):
                begins[storage] = min(begins.get(storage, int(start_ps[record.index])), int(start_ps[record.index]))
            ends[storage] = max(ends[storage], int(complete_ps[record.index]))
    limits = {Memory.sbuf: chip.sbuf.partition_bytes, Memory.psum: chip.psum.banks * chip.psum.bank_bytes}
    for memory, limit in limits.items():
        events = []
        for storage in first_write:
            if program.storages[storage].memory is memory:
                size = size_bytes[storage]
                events += [(begins[storage], 1, size), (ends[storage], 0, -size)]
        in_use = itertools.accumulate(size for _, _, size in sorted(events))
        assert max(in_use, default=0) <= limit


def check_turns(program, timeline, chip):
    """Vector meets neither GpSimd at SBUF nor Scalar at PSUM: intervals of (begin, end, engine) stay apart."""
    held = defaultdict(list)
    for record in program:
        signature = program.signatures[program.signature_ids[record.index]]
        cost = cost_of(signature, chip)
        if not isinstance(cost, ComputeCost) or not isinstance(signature.work[0], Lanewise):
            continue
        begin, mine = int(timeline.start_ps[record.index]), lanewise_cost(signature.work[0], signature.engine, chip)
        left = begin + mine.passing_ps
        if signature.engine is Engine.gpsimd:  # while its operands stream, and never longer than it is busy
            left = begin + min(mine.issue_ps, round(512 / chip.gpsimd.clock_ghz * 1000))
        memories = {pattern.memory for pattern in signature.patterns}
        engine = signature.engine
        if chip.generation == 2:
            if Memory.sbuf in memories and engine in (Engine.vector, Engine.gpsimd):
                held[Memory.sbuf].append((begin, left, engine))
            if Memory.psum in memories and engine in (Engine.vector, Engine.scalar):
                held[Memory.psum].append((begin, left, engine))
            continue
        for (storage, _), pattern in zip(record.slots, signature.patterns, strict=True):
            if pattern.memory is Memory.psum and engine is not Engine.gpsimd:  # each is a bank
                held[storage].append((begin, left, engine))
        if engine is Engine.gpsimd:
            held["bus"].append((begin, left, engine))
        if engine is Engine.vector and signature.instruction in ("copy", "tensor_scalar") and len(memories) == 1:
            held["bus"].append((begin, left, engine))
    for turns in held.values():
        for one, other in itertools.combinations(turns, 2):
            assert one[2] is other[2] or one[1] <= other[0] or other[1] <= one[0]


@settings(FIXTURES, max_examples=40)
@given(plan=steps, name=st.sampled_from(TRAINIUM), schedule=st.sampled_from(SCHEDULES))
def test_engines_take_turns(new_builder, chips, plan, name, schedule):
    chip = chips[name]
    program = build(new_builder(chip.generation), plan)
    try:
        (timeline,) = time(program, chip, schedule=schedule).values()
    except CapacityExceeded:
        assume(False)
    check_accounts(timeline)
    check_order(program, timeline)
    check_turns(program, timeline, chip)


@FIXTURES
@given(plan=steps, spare=st.integers(0, 3))
def test_every_schedule_is_sound(new_builder, trn2, plan, spare):
    program = build(new_builder(), plan)
    sbuf_bytes, psum_bytes = trn2.sbuf.partition_bytes, trn2.psum.banks * trn2.psum.bank_bytes
    try:
        usage = check_capacity(program, "trn2", sbuf_bytes, psum_bytes)
    except CapacityExceeded:
        assume(False)
    tight = trn2.replace(
        sbuf__partition_bytes=max(usage.sbuf.bytes, 1) + spare * 2048, psum__banks=max(-(-usage.psum.bytes // 2048), 1)
    )
    for chip, schedule in itertools.product((trn2, tight), SCHEDULES):
        (timeline,) = time(program, chip, schedule=schedule).values()
        check_accounts(timeline)
        check_order(program, timeline)
        check_dependences(timeline, chip)
        check_space(timeline, chip)
        again = time(program, chip, schedule=schedule)[0]
        assert (again.ops == timeline.ops).all()
        for record in range(len(program)):
            by = timeline.waited_for[record]
            assert by < 0 or timeline.start_ps[by] <= timeline.start_ps[record]
            assert by >= 0 or timeline.start_ps[record] == 0 or timeline.reason[record] == Stall.NONE


@settings(FIXTURES, max_examples=30)
@given(plan=steps, name=st.sampled_from(TRAINIUM), schedule=st.sampled_from(SCHEDULES), throttle=st.booleans())
def test_plain_python_says_the_same(new_builder, chips, plan, name, schedule, throttle):
    """Loops over records, as plain Python and compiled."""
    chip = chips[name]
    program, found = build(new_builder(chip.generation), plan), []
    for pays in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tiers, "_pays", lambda *_, pays=pays: pays)
            try:
                (timeline,) = time(program, chip, schedule=schedule, throttle=throttle).values()
            except CapacityExceeded:
                assume(False)
        columns = (timeline.start_ps, timeline.complete_ps, timeline.data_ps, timeline.reason, timeline.waited_for)
        found.append((timeline.ops.tolist(), timeline.queued_behind.tolist(), *map(np.ndarray.tolist, columns)))
    assert found[0] == found[1]


SLOWER_WHEN_LESS = ("GHz", "GB/s")
SLOWER_WHEN_MORE = ("cycles", "ns", "cycles/element", "ratio")


def timed_fields(chip):
    for section in dataclasses.fields(chip):
        part = getattr(chip, section.name)
        if dataclasses.is_dataclass(part) and section.name != "launch":
            for entry in dataclasses.fields(part):
                path = f"{section.name}.{entry.name}"
                if chip.figure(path).unit in (*SLOWER_WHEN_LESS, *SLOWER_WHEN_MORE):
                    yield path


def slowed(chip, path, factor):
    figure = chip.figure(path)
    value = figure.value / factor if figure.unit in SLOWER_WHEN_LESS else figure.value * factor
    return chip.replace(**{path: value})


@FIXTURES
@given(data=st.data(), plan=steps, queue=st.sampled_from(QUEUES), factor=st.sampled_from((1.1, 2.0, 5.0)))
def test_a_slower_chip_is_never_faster(new_builder, chips, data, plan, queue, factor):
    """With one DMA queue, so that transfers arrive in program order: no record completes earlier.

    With several, a slower chip may change who arrives first, and some transfers gain by that, as on hardware.
    """
    fast = chips[data.draw(st.sampled_from(TRAINIUM))]
    path = data.draw(st.sampled_from(sorted(timed_fields(fast))))
    program = build(new_builder(fast.generation), plan, [queue])
    try:
        before, after = (
            time(program, chip, schedule="program", throttle=False)[0] for chip in (fast, slowed(fast, path, factor))
        )
    except CapacityExceeded:
        assume(False)
    assert (after.complete_ps >= before.complete_ps).all()
    assert after.makespan_ps >= before.makespan_ps


MEMORY = ("dma.engine_gb_per_s", "dma.load_gb_per_s", "hbm.bandwidth_gb_per_s")
factors = st.sampled_from((1.1, 2.0, 5.0))


def with_slower_memory(chip, factor):
    for path in MEMORY:
        chip = slowed(chip, path, factor)
    return chip


@FIXTURES
@given(plan=steps, queue=st.sampled_from(QUEUES), factor=factors)
def test_slower_memory_is_never_faster(new_builder, trn2, plan, queue, factor):
    """All of memory's figures together, and one queue, as above."""
    program = build(new_builder(), plan, [queue])
    try:
        before, after = (
            time(program, chip, schedule="program", throttle=False)[0]
            for chip in (trn2, with_slower_memory(trn2, factor))
        )
    except CapacityExceeded:
        assume(False)
    assert (after.complete_ps >= before.complete_ps).all()
    assert after.makespan_ps >= before.makespan_ps


transfers = st.lists(st.tuples(st.booleans(), st.sampled_from((16, 512, 1024)), st.integers(0, 3)), min_size=1)


@FIXTURES
@given(plan=transfers, factor=factors)
def test_several_queues_with_slower_memory_are_never_done_earlier(new_builder, trn2, plan, factor):
    """Whoever comes first: of transfers that wait for no one else, the last is done no earlier."""
    builder = new_builder()
    for is_load, elements, choice in plan:
        pair = builder.tile(elements), builder.hbm(elements)
        builder.dma(*(pair if is_load else pair[::-1]), *QUEUES[choice], runs=1 + choice)
    before, after = (builder.time(chip).makespan_ps for chip in (trn2, with_slower_memory(trn2, factor)))
    assert after >= before


@pytest.mark.parametrize("queues", [1, 3])
@pytest.mark.parametrize("kind", ["loads", "stores", "both"])
def test_half_the_bandwidth_is_twice_the_time(new_builder, trn2, kind, queues):
    builder = new_builder()
    for index in range(24):
        engine, generation = QUEUES[index % queues]
        if kind != "stores":
            builder.dma(builder.tile(1024), builder.hbm(1024), engine, generation, runs=2)
        if kind != "loads":
            builder.dma(builder.hbm(1024), builder.tile(1024), engine, generation)
    ratio = builder.time(with_slower_memory(trn2, 2)).makespan_ps / builder.time(trn2).makespan_ps
    assert 1.9 < ratio <= 2


LIVE_ELSEWHERE = {
    # generation is checked before anything is timed; the rest is read by launches, the rules of instructions and views
    "chip.name",
    "chip.generation",
    "chip.cores",
    "dma.descriptor_max_bytes",
}


def everything(builder):
    """A program in which each figure decides something."""
    for generation, engine in (("hwdge", Engine.sync), ("swdge", Engine.gpsimd), ("none", Engine.scalar)):
        for elements, runs in ((16, 1), (16, 4), (1024, 1), (1024, 2)):
            for _ in range(6):
                builder.dma(builder.tile(elements), builder.hbm(elements), engine, generation, runs)
                builder.dma(builder.hbm(elements), builder.tile(elements), engine, generation, runs)
    for elements in (1, 1024):  # loads of one tensor, which go through one static ring; none brings the same
        tensor = builder.hbm(elements)
        for rows in range(122, 128):
            part = type(tensor)(tensor.storage, builder.hbm(elements, partitions=rows).pattern)
            builder.dma(builder.tile(elements, partitions=rows), part, Engine.scalar, "none")
    for dtype in ("float32", "bfloat16"):
        for n in (1, 512):
            for transpose in (False, True):
                weights, moving = builder.tile(128, dtype), builder.tile(n, dtype)
                product = builder.psum(n)
                builder.matmul(product, weights, moving, transpose=transpose, step_bytes=16)
                builder.lanes("copy", builder.tile(n), product)
    builder.matmul(builder.psum(128), builder.tile(128), builder.tile(128), transpose=True, hint=True)
    for transpose_bytes in (2, 4):
        for source in (builder.hbm(1024), builder.tile(1024)):
            builder.dma(builder.tile(1024), source, transpose_bytes=transpose_bytes)
    weights, product = builder.tile(128, "bfloat16"), builder.psum()
    for rows in (128, 58):  # of the array: above the throttle's thresholds, and between them
        moving = builder.tile(512, "bfloat16", partitions=rows)
        for _ in range(40):
            builder.matmul(product, weights, moving)
    build_all_lanes(builder)
    return builder.program


def build_all_lanes(builder):
    sources = [builder.tile(600, dtype, memory) for dtype in ("float32", "bfloat16") for memory in ON_CHIP]
    for source in sources:
        for memory, dtype in itertools.product(ON_CHIP, ("float32", "bfloat16")):
            for law in ("copy", "tensor_scalar", "reduce", "reciprocal", "memset", "scan", "transpose"):
                builder.lanes(law, builder.tile(600, dtype, memory), source, pointers=1)
            for law in ("copy_predicated", "stream_shuffle", "mask_load", "tensor_tensor", "select_reduce"):
                builder.lanes(law, builder.tile(600, dtype, memory), source)
            for law in ("tensor_tensor", "reduce", "memset"):
                builder.lanes(law, builder.tile(600, dtype, memory), source, quick=True)
            builder.lanes("copy", builder.tile(600, dtype, memory), source, engine=Engine.scalar)
            for table in ("exp", "silu"):  # a stride hides how fast they pass
                builder.lanes("activation", builder.tile(600, dtype, memory), source, engine=Engine.scalar, table=table)
            for table in ("exp", "silu", "copy", "square", "rsqrt", "relu"):
                builder.lanes(
                    "activation", builder.tile(600, dtype, memory), source, engine=Engine.scalar, table=table,
                    pointers=2, step_bytes=80, accumulator=builder.tile(1),
                )  # fmt: skip
            for law in ("random", "exponential", "quantize_mx"):
                builder.lanes(law, builder.tile(600, dtype, memory), source)
            for law in ("affine_select", "memset", "local_gather", "random", "partition_reduce"):
                builder.lanes(law, builder.tile(600, dtype, memory), source, engine=Engine.gpsimd, run_elements=2)
            builder.lanes("topk", builder.tile(600, dtype, memory), source, engine=Engine.gpsimd, results=8)
    builder.lanes("copy", builder.tile(600), sources[0], engine=Engine.scalar, step_bytes=400)
    builder.lanes("copy", builder.tile(600), sources[0], step_bytes=16)
    builder.lanes("bn_aggr", builder.tile(600), sources[0])
    for size_bytes in (0, 2048):
        builder.record("core_barrier", Engine.gpsimd, (Handshake(size_bytes),), (), (builder.tile(1),))
    controls = [Control("move"), Control("turn", meets=True)]
    controls += [Control(law, memory) for law in ("load", "store") for memory in (Memory.sbuf, Memory.shared_hbm)]
    for control in controls:
        builder.record("control", Engine.sync, (control,), (), (builder.tile(1),))
    first = builder.tile(600)
    builder.lanes("copy", first, sources[0])
    builder.lanes("copy", builder.tile(600), first)
    builder.lanes("tensor_scalar", builder.tile(600), sources[0], accumulator=builder.tile(1))


ON_CHIP = (Memory.sbuf, Memory.psum)
SMALLER = ("chip.partitions", "sbuf.partition_bytes", "psum.banks", "psum.bank_bytes", "tensor.rows", "tensor.columns")
OTHER_NAMES = {
    "sbuf.usable_ratio": 0.5,
    "vector.fast_formats": ["float32"],
    "scalar.table_sets": [["exp", "silu"]],
    "scalar.resident_functions": ["copy", "exp"],
    "sbuf.vector_gpsimd_turns": "never",
    "psum.vector_scalar_turns": "never",
}


def fingerprint(program, chip):
    timeline = time(program, chip)[0]
    ops = timeline.ops
    return (
        timeline.units,
        ops.tobytes(),
        timeline.complete_ps.tobytes(),
        timeline.mfu,
        timeline.mbu,
        [launch_overhead_ps(view, chip) for view in ("benchmark", "profile")],
    )


@pytest.mark.parametrize("name", ["trn1", "trn2", "trn3"])
def test_every_figure_decides_something(new_builder, chips, name):
    chip = chips[name]
    program = everything(new_builder(chip.generation))
    before = fingerprint(program, chip)
    throttled = chip.replace(tensor__throttle_window_ns=3413.0)  # as on the chips that have a throttle
    before_throttled = fingerprint(program, throttled)
    dead = []
    for path, figure in chip.figures.items():
        if path in LIVE_ELSEWHERE:
            continue
        value = OTHER_NAMES.get(path, figure.value)
        if path not in OTHER_NAMES:
            value = value // 2 if path in SMALLER else value * 2 or 999  # what costs nothing here is made to cost
        try:
            base = throttled if path.startswith("tensor.thrott") else chip
            changed = fingerprint(program, base.replace(**{path: value}))
            if changed == (before if base is chip else before_throttled):
                dead.append(path)
        except (CapacityExceeded, ConfigurationError):
            pass  # it decides whether the program fits
    assert not dead, "figures that decide nothing: " + ", ".join(dead)


# -- bounds, and what never makes a program longer ---------------------------------------------------------------------


def least_ps(cost):
    """How long a record takes from its start to its result when it is alone, not throttled, its table loaded."""
    if isinstance(cost, TransferCost):
        moved = max([ps for _, ps in cost.shares] + [cost.payload_ps, cost.hbm_ps])
        return cost.trigger_ps + cost.first_data_ps + moved + cost.semaphore_ps
    if isinstance(cost, MatmulCost):
        return cost.load_ps + cost.latency_ps
    begin = done = 0
    for _, issue_ps, latency_ps in cost.steps:
        done = max(done, begin + latency_ps)
        begin += issue_ps
    return done


def critical_path_ps(program, chip):
    """The longest chain of results that wait for each other."""
    costs = [least_ps(cost_of(signature, chip)) for signature in program.signatures]
    found, ends = dependences(program), []
    for record in range(len(program)):
        waits = [ends[producer] for producer, kind in found.of(record) if kind.name == "RAW"]
        ends.append(max(waits, default=0) + costs[program.signature_ids[record]])
    return max(ends)


@FIXTURES
@given(plan=steps, schedule=st.sampled_from(SCHEDULES), throttle=st.booleans())
def test_no_schedule_beats_what_it_is_made_of(new_builder, trn2, plan, schedule, throttle):
    program = build(new_builder(), plan)
    (timeline,) = time(program, trn2, schedule=schedule, throttle=throttle).values()
    check_accounts(timeline)
    assert timeline.makespan_ps >= critical_path_ps(program, trn2)
    assert timeline.makespan_ps >= max(account.busy_ps for account in timeline.engines.values())
    moved_bytes = timeline.hbm_read_bytes + timeline.hbm_written_bytes
    assert timeline.makespan_ps >= 1000 * moved_bytes / trn2.hbm.bandwidth_gb_per_s
    assert (timeline.stall_ps["tensor"]["throttle"] == 0) or throttle


def without(program, dropped):
    """The same program without one of its records."""
    rest = Program(program.chip_name, program.generation)
    rest.signatures, rest.stacks, rest.storages = program.signatures, program.stacks, program.storages
    for record in program:
        if record.index != dropped:
            slots = [value for slot in record.slots for value in slot]
            rest.append(program.signature_ids[record.index], slots, record.stack)
    return rest


@FIXTURES
@given(data=st.data(), plan=steps, queue=st.sampled_from(QUEUES))
def test_fewer_instructions_are_never_slower(new_builder, chips, data, plan, queue):
    """In program order, with one queue, without the throttle, and with room for all tiles."""
    chip = chips[data.draw(st.sampled_from(TRAINIUM))]
    program = build(new_builder(chip.generation), plan, [queue])
    dropped = data.draw(st.integers(0, len(program) - 1))
    before, after = (
        time(each, chip, schedule="program", throttle=False)[0] for each in (program, without(program, dropped))
    )
    assert after.makespan_ps <= before.makespan_ps


@settings(FIXTURES, max_examples=30)
@given(plan=steps, queue=st.sampled_from(QUEUES), factor=st.sampled_from((1.1, 2.0)))
def test_more_bandwidth_is_never_slower(new_builder, trn2, plan, queue, factor):
    """In program order, with one queue, without the throttle."""
    program = build(new_builder(), plan, [queue])
    fast = trn2
    for path in ("dma.engine_gb_per_s", "dma.load_gb_per_s", "hbm.bandwidth_gb_per_s"):
        fast = slowed(fast, path, 1 / factor)
    before, after = (time(program, chip, schedule="program", throttle=False)[0] for chip in (trn2, fast))
    assert after.makespan_ps <= before.makespan_ps


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_bounds_are_met(builder, trn2, schedule):
    """One chain of results: the critical path is the time."""
    tile = builder.tile()
    builder.dma(tile, builder.hbm())
    for _ in range(5):
        fresh = builder.tile()
        builder.lanes("copy", fresh, tile)
        tile = fresh
    makespan_ps = builder.time(trn2, schedule).makespan_ps
    semaphore_ps = round(1000 * trn2.sync.semaphore_ns)
    assert makespan_ps == critical_path_ps(builder.program, trn2) + semaphore_ps
