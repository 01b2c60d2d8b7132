"""A compiler's passes: tiles are renamed and loads left out where the record proves it legal, and nowhere else."""

from __future__ import annotations

import gc
import weakref

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import neurosim
from neurosim.engines import Engine
from neurosim.program import Access
from neurosim.report.text import report
from neurosim.timing import SCHEDULES, time
from neurosim.timing.passes import compiled
from neurosim.timing.passes.keeping import keep

ROWS = neurosim.spec((512, 512), "float32")


def run(kernel, *arguments, chip="trn2", **options):
    return neurosim.simulate(kernel, chip=chip, values=False, **options)(*(arguments or (ROWS,)))


def left_out(kernel, *arguments, **options):
    """Return how many records the compiler leaves out."""
    return len(run(kernel, *arguments, **options).timeline.left_out)


def tiles(result):
    """Return how many tiles there are, as recorded and as executed."""
    executed = result.timeline.compiled.program
    return tuple(
        sum(info.role == "tile" and info.memory.is_on_chip for info in each.storages)
        for each in (result.program, executed)
    )


def rows(index):
    return slice(index * 128, (index + 1) * 128)


def through(x, place, *, fresh, change=None):
    """Copy x row by row through tiles of a memory: one for all, or a fresh one for each."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    done = nl.ndarray((128, 512), dtype=x.dtype, buffer=place)
    for index in range(4):
        if fresh:
            tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
            done = nl.ndarray((128, 512), dtype=x.dtype, buffer=place)
        nisa.dma_copy(dst=tile, src=x[rows(index)])
        if change is not None:
            change(tile)
        nisa.activation(dst=done, data=tile, op=nl.exp)
        sbuf = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=sbuf, src=done)
        nisa.dma_copy(dst=out[rows(index)], src=sbuf)
    return out


def test_one_tile_for_all_trips_costs_no_more_than_one_for_each():
    one, many = (run(lambda x, fresh=fresh: through(x, nl.sbuf, fresh=fresh)) for fresh in (False, True))
    assert tiles(one) == (6, 12)
    assert tiles(many) == (14, 14)  # two of which nobody uses
    assert one.timeline.makespan_ps == many.timeline.makespan_ps
    without = [time(each.program, one.chip, schedule="reorder")[0].makespan_ps for each in (one, many)]
    assert without[1] == many.timeline.makespan_ps < 0.8 * without[0]


def test_a_tile_in_psum_stays_one():
    one = run(lambda x: through(x, nl.psum, fresh=False))
    assert tiles(one) == (6, 9)  # of the two tiles, the one in SBUF


def some_columns(tile):
    nisa.memset(dst=tile[:, :8], value=0.0)


def by_predicate(tile):
    chosen = nl.ndarray((128, 512), dtype=nl.uint8, buffer=nl.sbuf)
    nisa.memset(dst=chosen, value=1)
    nisa.tensor_copy_predicated(dst=tile, src=1.0, predicate=chosen)


def in_place(tile):
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)


@pytest.mark.parametrize("change", [some_columns, by_predicate, in_place])
def test_what_is_written_in_part_or_in_place_goes_on(change):
    result = run(lambda x: through(x, nl.sbuf, fresh=False, change=change))
    more = 4 * (change is by_predicate)
    assert tiles(result) == (6 + more, 12 + more)  # a new one at each load, and at no change


def test_half_a_tile_is_no_new_one():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        for index in range(4):
            for half in (slice(0, 256), slice(256, 512)):
                nisa.dma_copy(dst=tile[:, half], src=x[rows(index), half])
            nisa.dma_copy(dst=out[rows(index)], src=tile)
        return out

    assert tiles(run(kernel)) == (1, 1)


def test_a_tensor_with_an_address_stays_where_it_is():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf, address=(0, 0))
        for index in range(4):
            nisa.dma_copy(dst=tile, src=x[rows(index)])
            nisa.dma_copy(dst=out[rows(index)], src=tile)
        return out

    result = run(kernel)
    assert result.timeline.compiled.program is result.program


def load(x, columns=slice(None)):
    tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile[:, columns], src=x[rows(0), columns])
    return tile


def twice(x, between=None, fill=load):
    """Load the same rows twice and store their sum."""
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    first = fill(x)
    total = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=total, src=first)
    if between is not None:
        between(first, x)
    nisa.tensor_tensor(dst=total, data1=total, data2=fill(x), op=nl.add)
    nisa.dma_copy(dst=out, src=total)
    return out


def test_the_same_bytes_are_loaded_once():
    result = run(twice)
    timeline = result.timeline
    assert timeline.left_out.tolist() == [2]
    assert timeline.records.tolist() == [0, 1, 3, 4]
    assert timeline.start_ps[2] == timeline.complete_ps[2] == timeline.complete_ps[0]
    assert timeline.waited_for[2] == 0
    assert 2 not in timeline.ops["record"]
    assert timeline.hbm_read_bytes == 128 * 512 * 4
    for schedule in ("program", "reorder"):
        other = time(result.program, result.chip, schedule=schedule)[0]
        assert not len(other.left_out)
        assert other.hbm_read_bytes == 2 * timeline.hbm_read_bytes
    assert result.summary()["left_out"] == {"loads": 1, "read_bytes": 128 * 512 * 4}
    assert "1 load of 262 kB left out, on the chip already" in " ".join(report(result.summary()).split())


def in_parts(x):
    tile = load(x, slice(0, 256))
    nisa.dma_copy(dst=tile[:, 256:], src=x[rows(0), 256:])
    return tile


def test_a_tile_that_several_loads_fill():
    assert run(lambda x: twice(x, fill=in_parts)).timeline.left_out.tolist() == [3, 4]


def half_only(x):
    tile = load(x, slice(0, 256))
    nisa.memset(dst=tile[:, 256:], value=0.0)
    return tile


def test_a_tile_that_loads_fill_in_part_only():
    assert left_out(lambda x: twice(x, fill=half_only)) == 0


def overwritten(tile, x):
    nisa.memset(dst=tile[:, :4], value=0.0)


def stored_to(tile, x):
    nisa.dma_copy(dst=x[rows(0)], src=tile)


@pytest.mark.parametrize("between", [overwritten, stored_to])
def test_what_has_changed_is_loaded_again(between):
    def kernel(x):
        copy = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.hbm)
        nisa.dma_copy(dst=copy, src=x)
        return twice(copy, between)

    assert left_out(kernel) == 0


def test_a_copy_in_hbm_that_does_not_change_is_loaded_once():
    def kernel(x):
        copy = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.hbm)
        nisa.dma_copy(dst=copy, src=x)
        return twice(copy)

    assert left_out(kernel) == 1


def ordered(x):
    with nl.no_reorder():
        return load(x)


def test_what_a_kernel_keeps_in_order_is_not_left_out():
    assert left_out(lambda x: twice(x, fill=ordered)) == 0


def test_loads_with_edges_of_their_own_are_not_left_out(builder, trn2):
    source = builder.hbm(512)
    loads = [builder.dma(builder.tile(512), source) for _ in range(3)]
    builder.program.edges.append((loads[2], loads[0]))
    assert builder.time(trn2, "compiler").left_out.tolist() == []
    del builder.program.edges[:]
    assert builder.time(trn2, "compiler").left_out.tolist() == loads[1:]


def test_loops_on_the_device_stay_as_they_are():
    def kernel(x):
        out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)

        def body(index):
            total = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=total, data1=load(x), data2=load(x), op=nl.add)
            nisa.dma_copy(dst=out, src=total)

        nl.fori_loop(0, 3, body)
        return out

    assert left_out(kernel) == 0  # trips are one code


def test_each_core_loads_for_itself():
    result = neurosim.simulate(twice, chip="trn2", values=False)[2](ROWS)
    assert [timeline.left_out.tolist() for timeline in result.timelines.values()] == [[2], [7]]
    assert result.summary()["left_out"]["loads"] == 2


def test_a_tensor_that_does_not_fit_is_loaded_again():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for _ in range(2):
            for index in range(4):
                tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=tile, src=x[rows(index)])
                nisa.dma_copy(dst=out[rows(index)], src=tile)
        return out

    result = run(kernel)
    assert len(result.timeline.left_out) == 4
    for kib, expected in ((16, 4), (10, 0)):  # three quarters of it, for four tiles of 2 KiB
        chip = result.chip.replace(sbuf__partition_bytes=kib * 1024)
        assert len(time(result.program, chip)[0].left_out) == expected


def test_values_are_those_of_the_program():
    x = np.random.default_rng(0).standard_normal((512, 512), dtype=np.float32)
    results = [neurosim.simulate(twice, chip="trn2", schedule=schedule)(x).outputs for schedule in SCHEDULES]
    assert all(np.array_equal(outputs, 2 * x[:128]) for outputs in results)


def test_nothing_to_do_keeps_no_program_alive(builder, trn2):
    builder.dma(builder.tile(512), builder.hbm(512))
    made = builder.program
    assert compiled(made, trn2).program is made
    gone = weakref.ref(made)
    builder.program = None
    del made
    gc.collect()
    assert gone() is None


def contents(program):
    """Return what each record reads and writes, as terms: who made it from what. Operands are whole tiles."""
    held = {}
    result = []
    for record in program:
        operands = list(zip(record.signature.patterns, record.slots, strict=True))
        reads = tuple(held.get(slot[0], slot[0]) for pattern, slot in operands if pattern.access is not Access.WRITE)
        result.append((record.signature.instruction, reads))
        for place, (pattern, slot) in enumerate(operands):
            if pattern.access is not Access.READ:
                held[slot[0]] = hash((record.signature, place, reads))
    return result


LAWS = ("copy", "tensor_scalar", "reduce", "copy_predicated", "activation")
steps = st.lists(
    st.tuples(st.sampled_from(("load", "load", "store", *LAWS)), st.integers(0, 3), st.integers(0, 3), st.booleans()),
    min_size=2,
    max_size=30,
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(plan=steps, share=st.sampled_from((1.0, 0.05)))
def test_every_record_reads_what_it_read(new_builder, trn2, plan, share):
    builder = new_builder()
    places = [builder.tile(512) for _ in range(4)]
    outside = [builder.hbm(512) for _ in range(2)]
    for place in places:
        builder.dma(place, outside[0])
    for kind, first, second, fresh in plan:
        if fresh:
            places[first] = builder.tile(512)
            builder.dma(places[first], outside[second % 2])
        if kind == "load":
            builder.dma(places[first], outside[second % 2])
        elif kind == "store":
            builder.dma(outside[second % 2], places[first])
        elif kind == "copy_predicated":  # keeps what it does not choose
            builder.lanes(kind, places[first], places[second], places[first])
        else:
            engine = Engine.scalar if kind == "activation" else Engine.vector
            builder.lanes(kind, places[first], places[second], engine=engine)
    chip = trn2.replace(sbuf__partition_bytes=int(trn2.sbuf.partition_bytes * share))
    program, records, stand_ins = compiled(builder.program, chip)
    before, after = contents(builder.program), contents(program)
    assert after == [before[record] for record in records]
    assert [before[record] for record in stand_ins] == before
    assert (stand_ins <= np.arange(len(before))).all()
    assert np.array_equal(np.flatnonzero(stand_ins == np.arange(len(before))), records)


def kept_by_hand(tiles, classes, first, last, written, sizes, used, limit):
    """Keep tiles, one by one, over a plain list of bytes in use."""
    used, last, held, result = list(used), list(last), {}, []
    for tile, name in zip(tiles, classes, strict=True):
        other = held.get(name)
        between = [] if other is None else range(last[other] + 1, first[tile])
        fits = other is not None and max((used[at] for at in between), default=0) + sizes[tile] <= limit
        if other is None or written[other] >= first[tile] or not fits:
            held[name] = tile
            result.append(-1)
            continue
        for at in between:
            used[at] += sizes[tile]
        for at in range(first[tile] + 1, min(last[tile], last[other])):
            used[at] -= sizes[tile]
        last[other] = max(last[other], last[tile])
        result.append(other)
    return result


@settings(max_examples=200, deadline=None)
@given(
    lives=st.lists(
        st.tuples(st.integers(0, 20), st.integers(1, 12), st.integers(0, 2), st.integers(1, 9)), min_size=1, max_size=14
    ),
    limit=st.integers(4, 40),
)
def test_tiles_are_kept_as_by_hand(lives, limit):
    lives = sorted(lives)
    first = [start for start, *_ in lives]
    last = [start + length for start, length, *_ in lives]
    names, sizes = [name for _, _, name, _ in lives], [size for *_, size in lives]
    used = [0] * 64
    for start, end, size in zip(first, last, sizes, strict=True):
        for at in range(start, end + 1):
            used[at] += size
    tree = np.zeros(128, dtype=np.int64)
    tree[64:] = used
    columns = [np.array(column, dtype=np.int64) for column in (range(len(lives)), names, first, last)]
    added, held, found = np.zeros(64, np.int64), np.full(3, -1, np.int64), np.full(len(lives), -1, np.int64)
    keep(
        *columns, np.array([first, first], dtype=np.int64), np.array(sizes, dtype=np.int64), tree, added, 0, limit,
        held, found,
    )  # fmt: skip
    assert found.tolist() == kept_by_hand(range(len(lives)), names, first, last, first, sizes, used, limit)
