"""What was published of trn2 and trn1 and is no time of one instruction alone: DMA by stage, streams, chains, queues.

One row each; the model lies in the printed range, widened by 5 %. Single instructions are in test_instruction_times.py.

Sources: TKF = allenkchau/trainium-kernel-fusion@d709ddf (instruction traces), VOY = Joejoedesu/voyager-compiler
(isolated probes), IMG = AWS profiler screenshots, DN = DeltaNet findings, KDA = Jerry2423/kda-for-trainium,
SDK = AWS documentation, PERF = its nki_perf_guide.rst with the number of a figure. "dur" runs from issue to completion,
"II" from start to start of independent instructions.
Rows that contradict one of these are in ``contradictions.toml``. Not modelled, so without a row: the time in which a
LoadStationary itself completes (150-197 ns, 67 ns for one column on trn1; only its hold on the array counts), the 3 ns
by which a packet's latency exceeds its interval, instructions that only synchronise (EVENT_SEMAPHORE, DRAIN), fetching
instructions. The device's start-up clock has more tests in ``test_schedules.py``.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from neurosim.engines import Engine, Memory
from neurosim.timing import Op
from neurosim.work import Control

TOLERANCE = 0.05
WIDTHS = (64, 128, 512, 2048)
VECTOR, SCALAR, GPSIMD = Engine.vector, Engine.scalar, Engine.gpsimd
SBUF, PSUM = Memory.sbuf, Memory.psum


@dataclass(frozen=True)
class Row:
    """One measurement: low and high bound in ns as functions of N, and what the model says about it."""

    name: str
    source: str
    low: Callable[[int], float]
    high: Callable[[int], float]
    model: Callable[..., float]
    at: tuple[int, ...] = WIDTHS
    chip: str = "trn2"


def line(low: float, high: float, slope: float, steeper: float | None = None):
    """Bounds of ``low…high + slope·N``, with a range of slopes where one was printed."""
    return (lambda n: low + slope * n), (lambda n: high + (slope if steeper is None else steeper) * n)


def lanes(law, dtypes="float32 float32", memories=(SBUF, SBUF), engine=VECTOR, interval=False, **options):
    """Model of a lane-wise instruction; the last of ``dtypes`` and ``memories`` is the output's."""

    def model(builder, chip, n):
        *inputs, output = [builder.tile(n, d, m) for d, m in zip(dtypes.split(), memories, strict=True)]
        for _ in range(2):
            dst = builder.tile(n, output.pattern.dtype, output.pattern.memory)
            builder.lanes(law, dst, *inputs, engine=engine, **options)
        timeline = builder.time(chip)
        steps = timeline.ops[(timeline.ops["kind"] == Op.INSTRUCTION)]["start_ps"]
        return (steps[1] - steps[0]) / 1000 if interval else (timeline.complete_ps[0] - steps[0]) / 1000

    return model


def table_load(builder, chip, n):
    builder.lanes("activation", builder.tile(n), builder.tile(n), engine=SCALAR, table="exp")
    (load,) = (timeline := builder.time(chip)).ops[timeline.ops["kind"] == Op.TABLE_LOAD]
    return load["busy_ps"] / 1000


def chain(builder, chip, n):
    """From start to start of two activations, the second of the first one's result."""
    tiles = [builder.tile(n) for _ in range(3)]
    for source, dst in itertools.pairwise(tiles):
        builder.lanes("activation", dst, source, engine=SCALAR, table="copy", pointers=2)
    return np.diff(builder.time(chip).start_ps)[0] / 1000


def transpose_interval(moved):
    def model(builder, chip, n):
        source = builder.tile(n, partitions=32)
        for index in range(2):
            dst = builder.tile(n, partitions=32, start_partition=32 * index * moved)
            builder.lanes("transpose", dst, source)
        return np.diff(builder.time(chip).start_ps)[0] / 1000

    return model


def matmuls(dtype="float32", transpose=False, what="interval", step_bytes=0):
    """Model of nc_matmul with K = M = 128: ``interval`` in a stream, ``stream`` and ``latency`` of one MATMUL."""

    def model(builder, chip, n):
        stationary, moving = builder.tile(128, dtype), builder.tile(n, dtype)
        for _ in range(4):
            builder.matmul(builder.psum(n), stationary, moving, transpose=transpose, step_bytes=step_bytes)
        timeline = builder.time(chip)
        streams = timeline.ops[timeline.ops["kind"] == Op.MATMUL]
        if what == "latency":
            return (timeline.complete_ps[3] - streams[-1]["start_ps"]) / 1000
        if what == "stream":
            return streams[-1]["busy_ps"] / 1000
        return np.diff(timeline.start_ps)[-1] / 1000

    return model


def cold(dtype="float32", what="latency", **options):
    """Model of the first nc_matmul, K = M = 128, at the start-up clock: ``latency`` of its last MATMUL, or ``all``."""

    def model(builder, chip, n):
        builder.matmul(builder.psum(n), builder.tile(128, dtype), builder.tile(n, dtype), **options)
        timeline = builder.time(chip, throttle=True)
        begin = timeline.ops[timeline.ops["kind"] == Op.MATMUL][-1]["start_ps"] if what == "latency" else 0
        return (timeline.complete_ps[0] - begin) / 1000

    return model


def stream(count, dtype="float32", rows=128, transpose=False):
    """Model of a stream from the start-up clock on: from start to start of its last two nc_matmuls."""

    def model(builder, chip, n):
        weights = builder.tile(128, dtype, partitions=rows)
        for _ in range(count):
            builder.matmul(builder.psum(n), weights, builder.tile(n, dtype, partitions=rows), transpose=transpose)
        return np.diff(builder.time(chip, throttle=True).start_ps)[-1] / 1000

    return model


def paused(active):
    """The shortest of many MATMULs, which at the start-up clock would be active for this part of the time."""

    def model(builder, chip, n):
        weights, done = builder.tile(128, "bfloat16"), builder.psum(n)
        cold_ns = 2 * 1000 * (n + chip.tensor.pass_overhead_cycles) / chip.tensor.clock_ghz / 1000
        rest = round((cold_ns / active - cold_ns) * chip.vector.clock_ghz - chip.vector.issue_cycles)
        pause = builder.tile(rest)
        for _ in range(60):  # Vector paces the array, which waits for each of its results
            paced = builder.tile(n, "bfloat16")
            builder.lanes("reduce", paced, pause, elements=rest + round(cold_ns * chip.vector.clock_ghz))
            builder.matmul(done, weights, paced)
        ops = builder.time(chip, throttle=True).ops
        mine = ops[ops["kind"] == Op.MATMUL]
        return (mine["end_ps"] - mine["start_ps"]).min() / 1000

    return model


def accumulator(what):
    """Model of reading Scalar's accumulators after an activation."""

    def model(builder, chip, n):
        for _ in range(2):
            builder.lanes(
                "activation", builder.tile(n), builder.tile(n), engine=SCALAR, table="exp", accumulator=builder.tile(1)
            )
        timeline = builder.time(chip)
        read = timeline.ops[timeline.ops["kind"] == Op.ACCUMULATOR_READ][0]
        return ((read["end_ps"] if what == "ii" else timeline.complete_ps[0]) - read["start_ps"]) / 1000

    return model


def register_move(builder, chip, n):
    builder.record("move", Engine.sync, (Control("move"),), (), (builder.tile(1),))
    return builder.time(chip).complete_ps[0] / 1000


def efficiency(builder, chip, n):
    """Bandwidth of loads of n float32 per partition, relative to 32 KiB."""
    times = {}
    for size in (n, 8192):
        made = type(builder)()
        for _ in range(40):
            made.dma(made.tile(size), made.hbm(size), generation="none")
        times[size] = made.time(chip).makespan_ps / size
    return times[8192] / times[n]


def semaphore(builder, chip, n):
    source, product = builder.tile(n), builder.psum(n)
    builder.matmul(product, builder.tile(128), source)
    builder.lanes("copy", builder.tile(n), product)
    timeline = builder.time(chip)
    return (timeline.start_ps[1] - timeline.complete_ps[0]) / 1000


@dataclass(frozen=True)
class Dma:
    """A DMA of [128, elements] float32, and one stage of it in ns."""

    stage: str
    engine: Engine = Engine.sync
    store: bool = False
    generation: str | None = None
    runs: int = 1
    partitions: int = 128
    count: int = 4

    def __call__(self, builder, chip, n):
        tile = builder.tile(n, partitions=self.partitions)
        hbm = builder.hbm(n, partitions=self.partitions)
        for _ in range(self.count):
            place = builder.hbm if self.store else builder.tile
            dst, src = place(n, partitions=self.partitions), tile if self.store else hbm
            builder.dma(dst, src, self.engine, self.generation, self.runs)
        timeline = builder.time(chip)
        mine = timeline.ops[timeline.ops["record"] == 0]
        trigger, moves = mine[mine["kind"] == Op.TRIGGER][0], mine[mine["kind"] == Op.TRANSFER]
        semaphore_ns = chip.dma.store_semaphore_ns if self.store else chip.dma.load_semaphore_ns
        first = moves["start_ps"].min() / 1000
        done = timeline.complete_ps[0] / 1000
        return {
            "trigger": (trigger["end_ps"] - trigger["start_ps"]) / 1000,
            "interval": np.diff(timeline.start_ps)[-1] / 1000,
            "first data": first - trigger["end_ps"] / 1000,
            "payload": done - semaphore_ns - first,
            "semaphore": semaphore_ns,
            "end to end": done + chip.sync.semaphore_ns,
            "engine": moves["busy_ps"].max() / 1000,
            "descriptor": moves["busy_ps"].max() / 1000 / (self.runs * self.partitions / len(moves)),
        }[self.stage]


def streaming(stores_per_load, elements):
    """Bytes per ns of many DMAs on static rings."""

    def model(builder, chip, n):
        moved = 0
        for _ in range(n):
            builder.dma(builder.tile(elements), builder.hbm(elements), generation="none")
            for _ in range(stores_per_load):
                builder.dma(builder.hbm(elements), builder.tile(elements), Engine.scalar, "none")
            moved += (1 + stores_per_load) * 128 * 4 * elements
        return moved / builder.time(chip).makespan_ps * 1000

    return model


STORE = {"store": True, "generation": "none"}


def flat(low: float, high: float):
    return (lambda n: low), (lambda n: high)


SB = (SBUF, SBUF, SBUF)
ROWS = (
    # Vector, A.4.1
    Row("predicated copy", "VOY", *line(155.5, 155.5, 1.109), lanes("copy_predicated", "float32 " * 3, SB)),
    Row("mask load", "VOY", *flat(13, 13), lanes("mask_load"), (32,)),
    Row("transpose 32x32, II", "VOY", *flat(93, 93), transpose_interval(False), (32,)),
    Row("transpose 32x32, other quadrant, II", "VOY", *flat(234, 234), transpose_interval(True), (32,)),
    # Scalar, A.4.2
    Row("accumulator read", "VOY", *flat(279, 279), accumulator("dur"), (128,)),
    Row("accumulator read, II", "VOY", *flat(185, 185), accumulator("ii"), (128,)),
    Row("activation table load", "TKF, IMG, VOY, DN", *flat(1283, 1283), table_load, (128,)),
    # Tensor, warm, A.4.3
    Row("MATMUL f32, N=512", "IMG, TKF", *flat(429.3, 429.3), matmuls(what="stream"), (512,)),
    Row("MATMUL f32, N=128", "TKF", *flat(111, 113), matmuls(what="stream"), (128,)),
    Row("MATMUL f32 latency, N=512", "TKF, DN, IMG", *flat(592, 600), matmuls(what="latency"), (512,)),
    Row("MATMUL f32 latency, N=128", "TKF", *flat(275, 275), matmuls(what="latency"), (128,)),
    Row(
        "MATMUL bf16 latency beyond II",
        "TKF, DN, IMG",
        *line(150, 170, 1 / 2.4),
        matmuls("bfloat16", what="latency"),
        (128, 256, 512),
    ),
    Row("transpose f32 128x128", "TKF", *flat(270, 275), matmuls(transpose=True, what="latency"), (128,)),
    Row("transpose f32 128x128, II", "TKF", *flat(107, 110), matmuls(transpose=True), (128,)),
    Row("transpose bf16 128x128", "TKF", *flat(218, 222), matmuls("bfloat16", True, "latency"), (128,)),
    Row("transpose bf16 128x128, II", "TKF", *flat(55, 60), matmuls("bfloat16", True), (128,)),
    # cold
    Row("cold MATMUL f32 latency, N=512", "TKF, DN", *flat(1001, 1001), cold(), (512,)),
    Row("cold MATMUL f32 latency, N=128", "TKF", *flat(417, 417), cold(), (128,)),
    Row("cold MATMUL bf16 latency, N=512", "TKF", *flat(634, 634), cold("bfloat16"), (512,)),
    Row("cold transpose f32 128x128", "TKF", *flat(417, 421), cold(transpose=True), (128,)),
    Row("cold transpose f32 128x128, II", "VOY, TKF", *flat(213, 213), stream(4, transpose=True), (128,)),
    Row("cold transpose bf16 128x128", "TKF", *flat(310, 310), cold("bfloat16", transpose=True), (128,)),
    Row("MATMUL bf16 at 82 % of the time", "TKF throttle tracks", *flat(213, 215), paused(0.82), (512,)),
    Row("MATMUL bf16 at 75.5 % of the time", "TKF throttle tracks", *flat(426, 430), paused(0.755), (512,)),
    Row("64 rows, f32, N=512, II", "VOY", *flat(1707, 1707), stream(40, rows=64), (512,)),
    # GpSimd, A.4.5, semaphores, A.4.6, and sequencers
    Row("register move", "VOY", *flat(68, 68), register_move, (1,)),
    Row("SWDGE trigger, busy", "TKF, VOY, IMG", *flat(8, 91), Dma("trigger", GPSIMD), (128,)),
    Row("semaphore", "TKF", *flat(20, 50), semaphore, (512,)),
    # DMA, A.5; N float32 elements per partition
    Row("descriptor 256 B", "TKF", *flat(14, 14), Dma("descriptor"), (64,)),
    Row("descriptor 512 B", "TKF", *flat(24, 24), Dma("descriptor"), (128,)),
    Row("store descriptor 2 KiB", "TKF", *flat(80, 80), Dma("descriptor", store=True), (512,)),
    Row("store descriptor 4 KiB", "TKF", *flat(155, 155), Dma("descriptor", store=True), (1024,)),
    Row("32 KiB load by one engine", "IMG", *flat(1416, 1416), Dma("engine", partitions=4), (2048,)),
    Row("32 KiB store by one engine", "IMG", *flat(1222, 1222), Dma("engine", partitions=4, store=True), (2048,)),
    Row("SWDGE load interval", "TKF, VOY", *flat(582, 599), Dma("interval", GPSIMD), (64, 128)),
    Row("SWDGE store interval", "VOY", *flat(609, 609), Dma("interval", GPSIMD, store=True), (64, 128)),
    Row("HWDGE interval", "TKF, IMG, SDK", *flat(523, 612), Dma("interval"), (64, 128)),
    Row("HWDGE interval, ring full", "TKF", *flat(1100, 1400), Dma("interval", count=12), (1024,)),
    Row("static ring trigger", "IMG", *flat(86, 86), Dma("trigger", generation="none"), (128,)),
    Row("static ring, 64 KiB", "KDA lora_v1", *flat(602, 602), Dma("interval", generation="none"), (128,)),
    Row("static ring, 256 KiB", "KDA matmul_v1", *flat(1034, 1110), Dma("interval", generation="none"), (512,)),
    Row("SWDGE load first data", "IMG, VOY", *flat(739, 751), Dma("first data", GPSIMD), (128,)),
    Row("SWDGE store first data", "IMG, VOY", *flat(565, 618), Dma("first data", GPSIMD, store=True), (128,)),
    Row("HWDGE first data", "IMG, VOY", *flat(899, 1006), Dma("first data"), (128,)),
    Row("load payload", "VOY", *line(293, 293, 1.305 * 512 / 368), Dma("payload"), (64, 128, 512, 2048)),
    Row("store payload", "VOY", *line(162, 162, 0.963 * 512 / 368), Dma("payload", store=True), (64, 128, 512, 2048)),
    Row("load semaphore", "VOY, IMG", *flat(298, 328), Dma("semaphore"), (128,)),
    Row("store semaphore", "VOY", *flat(355, 355), Dma("semaphore", store=True), (128,)),
    Row("HWDGE load 512 B, all", "TKF", *flat(2050, 2270), Dma("end to end"), (128,)),
    Row("SWDGE load 1 KiB, all", "TKF", *flat(1930, 2100), Dma("end to end", GPSIMD), (256,)),
    Row("SWDGE load 2 KiB, all", "TKF", *flat(2470, 2860), Dma("end to end", GPSIMD), (512,)),
    Row("SWDGE load 4 KiB, all", "TKF", *flat(3270, 3270), Dma("end to end", GPSIMD), (1024,)),
    Row("HWDGE store 4 KiB, all", "TKF", *flat(2970, 3000), Dma("end to end", SCALAR, store=True), (1024,)),
    Row("HWDGE store 2 x 2 KiB, all", "TKF", *flat(3080, 3150), Dma("end to end", SCALAR, store=True, runs=2), (1024,)),
    Row("HWDGE load 2 x 2 KiB, all", "TKF", *flat(3550, 3600), Dma("end to end", runs=2), (1024,)),
    Row("loads and stores, 7 KiB, GB/s", "KDA silu s4", *flat(394, 394), streaming(1, 1792), (100,)),
    Row("efficiency, 4 KiB", "SDK nki-dma-intro-1", *flat(0.965, 0.965), efficiency, (1024,)),
    Row("efficiency, 8 KiB", "SDK nki-dma-intro-1", *flat(0.984, 0.984), efficiency, (2048,)),
    Row("efficiency, 16 KiB", "SDK nki-dma-intro-1", *flat(0.993, 0.993), efficiency, (4096,)),
    Row("loads, GB/s", "IMG K2.v3: 22.0 B/ns; SDK: 23", *flat(16 * 22, 16 * 23), streaming(0, 1024), (200,)),
)


def trn1(name, source, bounds, model, at):
    return Row(f"trn1 {name}", source, *bounds, model, at, "trn1")


def dve(cycles):
    """What the documents say: so many cycles of the Vector engine for each element, where there are many."""
    return line(0, 0, cycles / 1.12)


def pe(cycles):
    return line(0, 0, cycles / 2.8)


LONG = (2048, 8192)
F32, HALF = "float32 " * 3, "bfloat16 " * 3
MIXED = (PSUM, SBUF, SBUF)

ROWS_TRN1 = (
    # measured, A.1. In figure 17 the destination lies in partitions 64-127 of SBUF
    trn1("identity, one element, dependent II", "PERF 16", flat(189, 189), chain, (1,)),
    trn1("MATMUL bf16", "PERF 18, 20-21", flat(188, 219), matmuls("bfloat16", what="latency"), (128,)),
    trn1("transpose bf16", "PERF 26", flat(195, 195), matmuls("bfloat16", transpose=True, what="latency"), (128,)),
    trn1("32 KiB store by one engine", "PERF 30", flat(1810, 1810), Dma("engine", **STORE, partitions=8), (1024,)),
    trn1("4 B descriptor", "PERF 29", flat(7, 7), Dma("descriptor", **STORE), (1,)),
    trn1("4 MiB store, all", "PERF 14", flat(16955, 16955), Dma("end to end", **STORE), (8192,)),
    trn1("256 KiB load, all", "AWS fused-mamba", flat(3046, 3046), Dma("end to end", generation="none"), (512,)),
    trn1("loads, GB/s", "SDK", flat(272, 272), streaming(0, 1024), (200,)),
    # documented: NKI 2.26, "Estimated instruction cost", and the architecture guide
    trn1("predicated copy", "SDK", dve(2), lanes("copy_predicated", F32, SB, interval=True), LONG),
    trn1("predicated copy PSUM", "SDK", dve(1), lanes("copy_predicated", F32, MIXED, interval=True), LONG),
    trn1("two of stride 16 B", "SDK", dve(4), lanes("tensor_tensor", HALF, SB, interval=True, step_bytes=16), LONG),
    trn1("transpose f32, II", "SDK", pe(2), matmuls(transpose=True), (128,)),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS + ROWS_TRN1, ids=lambda row: row.name)
def test_row(row, new_builder, chips):
    chip = chips[row.chip]
    for n in row.at:
        model = row.model(new_builder(chip.generation), chip, n)
        low, high = row.low(n), row.high(n)
        assert low * (1 - TOLERANCE) <= model <= high * (1 + TOLERANCE), f"N = {n}: {model:.1f} ns"


def test_partitions_do_not_change_a_time(new_builder, trn2):
    """DN: [128, 512] and [1, 512] both take about 685 ns."""
    times = []
    for partitions in (1, 128):
        builder = new_builder()
        builder.lanes(
            "reduce", builder.tile(1, partitions=partitions), builder.tile(512, partitions=partitions), elements=512
        )
        times.append(builder.time(trn2).makespan_ps)
    assert times[0] == times[1]


CONTRADICTIONS = tomllib.loads((Path(__file__).parent / "contradictions.toml").read_text(encoding="utf-8"))
KEYS = {"chip", "says", "source", "at", "ns", "other_says", "other_source", "other_ns", "because"}

MODELS = {
    "nc_matmul_f32_completion": (lambda b, c: _completion(b, c, 512)),
    "transpose_issue": (lambda b, c: matmuls(transpose=True)(b, c, 128)),
    "transpose_chain_f32": (lambda b, c: _chain(b, c, "float32")),
    "transpose_chain_bf16": (lambda b, c: _chain(b, c, "bfloat16")),
    "load_descriptor_2KiB": (lambda b, c: Dma("descriptor")(b, c, 512)),
    "load_descriptor_4KiB": (lambda b, c: Dma("descriptor")(b, c, 1024)),
    "transpose_cold": (lambda b, c: cold(transpose=True)(b, c, 128)),
    "transpose_cold_pair": (lambda b, c: cold(transpose=True)(b, c, 128)),
    "transpose_completion": (lambda b, c: _transpose_all(b, c, throttle=False)),
    "transpose_completion_cold": (lambda b, c: cold(what="all", transpose=True)(b, c, 128)),
    "matmul_64_rows": (lambda b, c: stream(40, rows=64)(b, c, 512)),
    "throttle_threshold": (lambda b, c: paused(0.755)(b, c, 512)),
    "efficiency_32B": (lambda b, c: Dma("interval")(b, c, 8)),
    "efficiency_64B": (lambda b, c: Dma("interval")(b, c, 16)),
    "efficiency_128B": (lambda b, c: Dma("interval")(b, c, 32)),
    "efficiency_256B": (lambda b, c: Dma("interval")(b, c, 64)),
    "efficiency_512B": (lambda b, c: Dma("interval")(b, c, 128)),
    "efficiency_1KiB": (lambda b, c: Dma("interval")(b, c, 256)),
    "efficiency_2KiB": (lambda b, c: Dma("interval", count=12)(b, c, 512)),
    "semaphore_write": (lambda b, c: Dma("descriptor")(b, c, 1)),
    "dma_start": (lambda b, c: c.sync.semaphore_ns + Dma("trigger")(b, c, 128) + Dma("first data")(b, c, 128)),
    "dve_two_inputs": (lambda b, c: lanes("tensor_tensor", "float32 " * 3, SB)(b, c, 2048)),
    "fast_weight_load": (lambda b, c: _weight_load(b, c)),
    "trn1_matmul_after_load": (lambda b, c: _weight_load(b, c)),
    "trn1_dependent_instruction": (lambda b, c: chain(b, c, 1)),
    "trn1_reciprocal": (lambda b, c: lanes("reciprocal", interval=True)(b, c, 512)),
    "inf2_read": (lambda b, c: 2**20 / streaming(0, 2048)(b, c, 200)),
    "inf2_write": (lambda b, c: Dma("engine", **STORE)(b, c, 2048)),
}


def _transpose_all(builder, chip, throttle):
    builder.matmul(builder.psum(128), builder.tile(128), builder.tile(128), transpose=True)
    return builder.time(chip, throttle=throttle).complete_ps[0] / 1000


def _completion(builder, chip, n):
    builder.matmul(builder.psum(n), builder.tile(128), builder.tile(n))
    timeline = builder.time(chip)
    return (timeline.complete_ps[0] - timeline.ops[timeline.ops["kind"] == Op.MATMUL][0]["start_ps"]) / 1000


def _chain(builder, chip, dtype):
    product = builder.tile(128, dtype, PSUM)
    builder.matmul(product, builder.tile(128, dtype), builder.tile(128, dtype), transpose=True)
    builder.lanes("copy", builder.tile(128, dtype), product, engine=SCALAR)
    return builder.time(chip).makespan_ps / 1000


def _weight_load(builder, chip):
    builder.matmul(builder.psum(1), builder.tile(128, "bfloat16"), builder.tile(1, "bfloat16"))
    return builder.time(chip).ops[0]["busy_ps"] / 1000


def test_each_contradiction_has_a_model():
    assert set(CONTRADICTIONS) == set(MODELS)


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradiction(name, new_builder, chips):
    """No number is within 5 % of both; the model keeps to one and is listed as missing the other."""
    row = {"chip": "trn2"} | CONTRADICTIONS[name]
    assert set(row) == KEYS
    chip = chips[row["chip"]]
    (low, high), (other_low, other_high) = row["ns"], row["other_ns"]
    up, down = 1 + TOLERANCE, 1 - TOLERANCE
    assert high * up < other_low * down or other_high * up < low * down
    model = MODELS[name](new_builder(chip.generation), chip)
    assert other_low * down <= model <= other_high * up, f"{model:.1f} ns"
    assert not low * down <= model <= high * up
