"""Engines that take turns: Vector with GpSimd at SBUF, and with Scalar at PSUM, as each generation has it.

Sources: AWS Neuron SDK, trainium_inferentia2_arch.rst:596-602 and 764-771, trainium2_arch.rst:266-273.
"""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
import pytest

import neurosim
from neurosim.engines import Engine, Memory
from neurosim.errors import ConfigurationError
from neurosim.timing import SCHEDULES, Stall

SBUF, PSUM = Memory.sbuf, Memory.psum
VECTOR, SCALAR, GPSIMD = Engine.vector, Engine.scalar, Engine.gpsimd
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)

SBUF_VECTOR = ("reduce", VECTOR, SBUF, SBUF)
FAST_VECTOR = ("copy", VECTOR, SBUF, SBUF)
SBUF_GPSIMD = ("affine_select", GPSIMD, SBUF, SBUF)
PSUM_VECTOR = ("reduce", VECTOR, PSUM, SBUF)
PSUM_SCALAR = ("copy", SCALAR, PSUM, SBUF)


def timed(builder: Any, chip: Any, schedule: str, *instructions: Any) -> Any:
    """Time instructions that need nothing of each other: (law, engine, memory of the data, memory of the result)."""
    for law, engine, source, target in instructions:
        builder.lanes(law, builder.tile(512, memory=target), builder.tile(512, memory=source), engine=engine)
    return builder.time(chip, schedule)


def left_ps(timeline: Any, record: int, engine: Engine, cycles: float = 512) -> int:
    """When the elements of a record have passed, and its port is free again."""
    clock_ghz = getattr(timeline.chip, engine.name).clock_ghz
    return int(timeline.start_ps[record]) + round(cycles / clock_ghz * 1000)


@every_schedule
@pytest.mark.parametrize(
    ("first", "second"),
    [(SBUF_VECTOR, SBUF_GPSIMD), (SBUF_GPSIMD, SBUF_VECTOR), (PSUM_VECTOR, PSUM_SCALAR), (PSUM_SCALAR, PSUM_VECTOR)],
)
def test_trn1_keeps_two_engines_apart(new_builder, chips, schedule, first, second):
    """The second begins when the first one's elements have passed, whichever tiles they use."""
    timeline = timed(new_builder(2), chips["trn1"], schedule, first, second)
    later = 0 if schedule != "program" and first in (SBUF_GPSIMD, PSUM_SCALAR) else 1  # Vector is asked first
    passed_ps = left_ps(timeline, 1 - later, (first, second)[1 - later][1])
    assert timeline.start_ps[later] == passed_ps
    assert timeline.start_ps[1 - later] == 0
    assert timeline.reason[later] == Stall.PORT
    assert timeline.waited_for[later] == 1 - later
    engine = (first, second)[later][1].name
    assert timeline.stall_ps[engine]["port"] == passed_ps


@every_schedule
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (PSUM_VECTOR, SBUF_GPSIMD),  # a result in SBUF is reason enough
        (("reduce", VECTOR, PSUM, PSUM), SBUF_GPSIMD),
        (SBUF_VECTOR, PSUM_SCALAR),
    ],
)
def test_trn1_asks_where_operands_are(new_builder, chips, schedule, first, second):
    timeline = timed(new_builder(2), chips["trn1"], schedule, first, second)
    reaches_both = first[3] is SBUF and second[1] is GPSIMD
    assert (timeline.start_ps[1] > 0) == reaches_both


@every_schedule
def test_the_tensor_engine_takes_no_turns(new_builder, chips, schedule):
    for generation, name in ((2, "trn1"), (3, "trn2")):
        builder = new_builder(generation)
        product, other = builder.psum(), builder.psum()
        builder.matmul(product, builder.tile(128), builder.tile())
        builder.lanes("reduce", builder.tile(), other)
        timeline = builder.time(chips[name], schedule)
        assert timeline.start_ps.tolist() == [0, 0]


@every_schedule
@pytest.mark.parametrize(("first", "second"), [(FAST_VECTOR, SBUF_GPSIMD), (SBUF_GPSIMD, FAST_VECTOR)])
@pytest.mark.parametrize("name", ["trn2", "trn3"])
def test_a_performance_mode_needs_the_bus_of_gpsimd(new_builder, chips, schedule, name, first, second):
    chip = chips[name]
    timeline = timed(new_builder(chip.generation), chip, schedule, first, second)
    later = 0 if schedule != "program" and first is SBUF_GPSIMD else 1
    engine, cycles = (GPSIMD, 512) if (first, second)[1 - later] is SBUF_GPSIMD else (VECTOR, 256)
    assert timeline.start_ps[later] == left_ps(timeline, 1 - later, engine, cycles)
    assert timeline.reason[later] == Stall.PORT


def test_gpsimd_has_the_bus_while_its_operands_stream(builder, trn2):
    """Its cores work on them in memories of their own."""
    builder.lanes("topk", builder.tile(8), builder.tile(512), engine=GPSIMD, elements=512, results=8)
    builder.lanes("copy", builder.tile(), builder.tile())
    timeline = builder.time(trn2)
    assert timeline.start_ps[1] == left_ps(timeline, 0, GPSIMD)
    assert timeline.complete_ps[0] > 4 * timeline.start_ps[1]


@every_schedule
@pytest.mark.parametrize("slow", [SBUF_VECTOR, ("copy", VECTOR, PSUM, SBUF), ("reciprocal", VECTOR, SBUF, SBUF)])
def test_one_element_in_a_cycle_needs_no_bus(new_builder, chips, schedule, slow):
    timeline = timed(new_builder(3), chips["trn2"], schedule, SBUF_GPSIMD, slow)
    assert timeline.start_ps.tolist() == [0, 0]


@every_schedule
def test_trn2_has_psum_for_both_but_for_a_bank(builder, trn2, schedule):
    one, other = builder.psum(), builder.psum()
    builder.lanes("reduce", builder.tile(), one)
    builder.lanes("copy", builder.tile(), other, engine=SCALAR)
    builder.lanes("copy", builder.tile(), one, engine=SCALAR)
    timeline = builder.time(trn2, schedule)
    assert timeline.start_ps[:2].tolist() == [0, 0]
    free_ps = timeline.ops[timeline.ops["record"] == 1]["end_ps"][0]
    assert timeline.start_ps[2] == max(left_ps(timeline, 0, VECTOR), free_ps)
    builder.lanes("reduce", builder.tile(), one)
    again = builder.time(trn2, schedule)
    assert again.start_ps[3] == left_ps(again, 2, SCALAR)
    assert (again.reason[3], again.waited_for[3]) == (Stall.PORT, 2)


ALL = slice(None)


def parts(first: Any, second: Any, *, address: tuple[int, int] | None = None) -> Any:
    """A kernel in which Vector and Scalar read parts of PSUM: of one tile, or of a plane at these addresses."""

    def kernel(x: Any) -> Any:
        if address is None:
            tile = nl.ndarray((128, 4, 512), dtype=nl.float32, buffer=nl.psum)
            tiles = [tile[first], tile[second]]
            nisa.memset(dst=tile, value=0)
        else:
            tiles = [nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.psum, address=(0, at)) for at in address]
            for tile in tiles:
                nisa.memset(dst=tile, value=0)
        for tile, engine in zip(tiles, (nisa.engine.vector, nisa.engine.scalar), strict=True):
            copied = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=copied, src=tile, engine=engine)
        return x

    return kernel


@every_schedule
@pytest.mark.parametrize(
    ("first", "second", "waits"),
    [
        ((ALL, 0), (ALL, 1), False),
        ((ALL, 0, slice(0, 256)), (ALL, 0, slice(256, 512)), True),  # disjoint halves of one bank
        ((ALL, slice(0, 2)), (ALL, slice(1, 3)), True),
        ((ALL, slice(0, 4, 2)), (ALL, slice(1, 4, 2)), False),
        ((ALL, ALL, slice(0, 256)), (ALL, ALL, slice(256, 512)), True),
        ((ALL, 0), (ALL, slice(2, 4)), False),
    ],
)
def test_banks_are_those_of_the_bytes(schedule, first, second, waits):
    program = neurosim.profile(parts(first, second), "trn2", values=False, schedule=schedule)
    timeline = program(neurosim.spec((1, 1), "float32")).timeline
    assert (Stall.PORT in timeline.reason) == waits


@every_schedule
@pytest.mark.parametrize(("address", "waits"), [((0, 1024), True), ((0, 2048), False), ((1024, 2048), False)])
def test_tiles_with_addresses_share_banks(schedule, address, waits):
    kernel = parts(ALL, ALL, address=address)
    timeline = neurosim.profile(kernel, "trn2", values=False, schedule=schedule)(
        neurosim.spec((1, 1), "float32")
    ).timeline
    assert (Stall.PORT in timeline.reason) == waits


def contended(builder: Any, count: int = 6) -> None:
    """Many accesses to one bank by both engines, those of Vector first in the program."""
    bank = builder.psum()
    for law, engine in (("reduce", VECTOR), ("copy", SCALAR)):
        for _ in range(count):
            builder.lanes(law, builder.tile(), bank, engine=engine)


def test_turns_alternate_where_both_have_work(builder, trn2):
    contended(builder)
    timeline = builder.time(trn2, "compiler")
    order = sorted(range(12), key=timeline.start_ps.__getitem__)
    assert [record // 6 for record in order] == [0, 1] * 6


def test_turns_in_program_order(builder, trn2):
    contended(builder)
    timeline = builder.time(trn2, "program")
    assert sorted(range(12), key=timeline.start_ps.__getitem__) == list(range(12))


def test_an_access_that_waits_for_data_holds_up_others_in_program_order_only(builder, trn2):
    bank, loaded = builder.psum(), builder.tile()
    builder.dma(loaded, builder.hbm())
    builder.lanes("tensor_tensor", builder.tile(), bank, loaded)
    builder.lanes("copy", builder.tile(), bank, engine=SCALAR)
    assert builder.time(trn2, "compiler").start_ps[2] == 0
    in_order = builder.time(trn2, "program")
    assert in_order.start_ps[2] == left_ps(in_order, 1, VECTOR)


@every_schedule
@pytest.mark.parametrize(
    ("name", "change", "instructions"),
    [
        ("trn1", {"sbuf__vector_gpsimd_turns": "never"}, (SBUF_VECTOR, SBUF_GPSIMD)),
        ("trn1", {"sbuf__vector_gpsimd_turns": "performance_modes"}, (SBUF_VECTOR, SBUF_GPSIMD)),
        ("trn1", {"psum__vector_scalar_turns": "bank"}, (PSUM_VECTOR, PSUM_SCALAR)),
        ("trn2", {"sbuf__vector_gpsimd_turns": "never"}, (FAST_VECTOR, SBUF_GPSIMD)),
        ("trn3", {"psum__vector_scalar_turns": "never"}, (PSUM_VECTOR, PSUM_SCALAR)),
    ],
)
def test_other_rules_for_a_chip(new_builder, chips, schedule, name, change, instructions):
    chip = chips[name]
    assert timed(new_builder(chip.generation), chip.replace(**change), schedule, *instructions).start_ps[1] == 0


@pytest.mark.parametrize(
    ("field", "value"), [("sbuf.vector_gpsimd_turns", "bank"), ("psum.vector_scalar_turns", "sometimes")]
)
def test_an_unknown_rule(trn2, field, value):
    with pytest.raises(ConfigurationError, match=rf"{field} = '{value}' is no rule\n  known: always, .*, never"):
        trn2.replace(**{field: value})


def test_cores_have_ports_of_their_own(new_builder, chips):
    builder = new_builder(2)
    for core, (law, engine) in enumerate((("reduce", VECTOR), ("affine_select", GPSIMD))):
        builder.lanes(law, builder.tile(), builder.tile(), engine=engine, core=core)
    for timeline in neurosim.timing.time(builder.program, chips["trn1"]).values():
        assert timeline.start_ps.tolist() == [0, 0]
