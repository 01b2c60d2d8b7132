"""On which figures a time rests, and how it moves with each."""

from __future__ import annotations

import pytest

from neurosim.chip import STANDINGS
from neurosim.engines import Engine
from neurosim.errors import ConfigurationError
from neurosim.timing import time
from neurosim.timing.influence import by_standing, figures_read, influences
from neurosim.timing.sensitivity import sensitivity, table


def shares(builder, chip):
    return {each.figure: each.share for each in influences(builder.program, builder.time(chip))}


def test_what_keeps_an_array_busy_is_its_clock(builder, trn2):
    for _ in range(4):
        builder.matmul(builder.psum(), builder.tile(128, "bfloat16"), builder.tile(512, "bfloat16"))
    found = shares(builder, trn2)
    assert set(found) == {"tensor.clock_ghz", "tensor.pass_overhead_cycles", "tensor.fast_load_cycles"}
    assert found["tensor.clock_ghz"] > 0.9


def test_fixed_and_passing_cycles_share_as_they_last(builder, trn2):
    """With 60 cycles of issue and 512 of 0.5 cycles, and the clock that all of them count in."""
    for _ in range(3):
        builder.lanes("copy", builder.tile(512), builder.tile(512))
    found = shares(builder, trn2)
    passing = 512 * 0.5 / (512 * 0.5 + 60)
    expected = {
        "vector.clock_ghz": 0.5,
        "vector.double_cycles_per_element": passing / 2,
        "vector.issue_cycles": (1 - passing) / 2,
    }
    assert found == pytest.approx(expected, rel=0.02)


def test_shares_add_up_and_the_dma_engines_are_one_engine(builder, trn2):
    tile, product = builder.tile(1024), builder.psum(512)
    builder.dma(tile, builder.hbm(1024))
    builder.matmul(product, builder.tile(128), builder.tile(512))
    builder.lanes("activation", builder.tile(512), product, engine=Engine.scalar, table="exp")
    timeline = builder.time(trn2)
    found = influences(builder.program, timeline)
    assert sum(each.share for each in found) == pytest.approx(1)
    assert [each.share for each in found] == sorted((each.share for each in found), reverse=True)
    standings = by_standing(found)
    assert tuple(standings) == STANDINGS
    assert sum(standings.values()) == pytest.approx(1)
    busy = timeline.busy_ps
    moving = sum(busy[f"dma{index}"] for index in range(16)) / 16
    whole = moving + sum(ps for name, ps in busy.items() if not name.startswith("dma"))
    of_dma = sum(each.share for each in found if each.figure.startswith(("dma.load", "dma.engine", "dma.desc")))
    assert of_dma == pytest.approx(moving / whole, rel=0.01)
    table_load = next(each for each in found if each.figure == "scalar.table_load_cycles")
    assert table_load.standing == "measured"


def test_a_figure_that_was_replaced_is_assumed(builder, trn2):
    builder.lanes("copy", builder.tile(512), builder.tile(512))
    changed = trn2.replace(vector__clock_ghz=1.0)
    assert by_standing(influences(builder.program, builder.time(changed)))["assumed"] == pytest.approx(0.5, rel=0.02)


def test_an_empty_program_rests_on_nothing(builder, trn2):
    assert influences(builder.program, builder.time(trn2)) == []
    assert sum(by_standing([]).values()) == 0


def makespan_ps(builder):
    return lambda chip: time(builder.program, chip)[0].makespan_ps


def test_a_time_moves_with_its_clock(builder, trn2):
    builder.lanes("reduce", builder.tile(512), builder.tile(2048), elements=2048)
    rows = {row.figure: row for row in sensitivity(makespan_ps(builder), trn2)}
    clock = rows["vector.clock_ghz"]
    assert (clock.value, clock.unit, clock.standing) == (0.96, "GHz", "documented")
    assert (clock.less, clock.more) == pytest.approx((1 / 0.9 - 1, 1 / 1.1 - 1), abs=1e-4)
    passing = 2048 / (2048 + 150)
    assert rows["vector.single_cycles_per_element"].more == pytest.approx(0.1 * passing, abs=1e-3)
    assert rows["vector.latency_cycles"].more == pytest.approx(0.1 * (1 - passing), abs=1e-3)
    assert not any(figure.startswith(("chip.", "tensor.rows")) for figure in rows)


def test_the_strongest_comes_first_and_each_change_is_that_of_the_chip(builder, trn2):
    for _ in range(8):
        builder.dma(builder.tile(1024), builder.hbm(1024))
    time_ps = makespan_ps(builder)
    rows = sensitivity(time_ps, trn2, 0.25)
    assert [row.most for row in rows] == sorted((row.most for row in rows), reverse=True)
    before = time_ps(trn2)
    strongest = next(row for row in rows if isinstance(row.value, float))
    assert strongest.most > 0
    for change, factor in ((strongest.less, 0.75), (strongest.more, 1.25)):
        after = time_ps(trn2.replace(**{strongest.figure: strongest.value * factor}))
        assert change == pytest.approx((after - before) / before)
    depth = next(row for row in rows if row.figure == "dma.queue_depth")
    assert depth.less == (time_ps(trn2.replace(dma__queue_depth=3)) - before) / before


def test_a_chip_on_which_the_program_does_not_fit(builder, trn2):
    tiles = [builder.tile(2048) for _ in range(28)]  # all of SBUF
    for tile in tiles:
        builder.lanes("memset", tile)
    for tile in tiles:
        builder.lanes("copy", tile, tile)
    small = trn2.replace(sbuf__partition_bytes=28 * 8192 + 4)
    rows = {row.figure: row for row in sensitivity(makespan_ps(builder), small)}
    assert rows["sbuf.partition_bytes"].less is None
    assert ("sbuf.partition_bytes", "does not fit") in [(line[0], line[4]) for line in table(list(rows.values()))]


def test_the_heading_says_by_how_much_figures_were_moved(builder, trn2):
    builder.lanes("reduce", builder.tile(512), builder.tile(2048), elements=2048)
    for step, percent in ((0.25, "25%"), (0.1, "10%"), (0.125, "12.5%")):
        assert table(sensitivity(makespan_ps(builder), trn2, step))[0][-2:] == (f"-{percent}", f"+{percent}")


@pytest.mark.parametrize("step", [0.0, 1.0, -0.1, 10, "0.1"])
def test_a_step_without_sense(builder, trn2, step):
    with pytest.raises(ConfigurationError, match=r"sensitivity: step = .*\n  0.1 moves each figure by 10 %"):
        sensitivity(makespan_ps(builder), trn2, step)


def test_reading_is_noted_where_it_happens(trn2):
    assert figures_read(trn2, lambda chip: chip.tensor.clock_ghz + chip.vector.latency_cycles) == [
        "tensor.clock_ghz",
        "vector.latency_cycles",
    ]
    assert figures_read(trn2, lambda chip: (chip.name, chip.vector.fast_formats, chip.tensor.rows)) == []
