"""Slack: an instruction may start so much later and the kernel ends when it ended; those on the path have none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurosim
from neurosim.engines import Engine
from neurosim.errors import ConfigurationError
from neurosim.shell.loading import load_kernel, load_module, packaged_kernel
from neurosim.timing import TimingOptions, time
from neurosim.timing.critical import critical_path
from neurosim.timing.slack import slack_ps
from neurosim.timing.what_if import what_if

LAUNCHES = load_module(Path(__file__).parents[1] / "mutations" / "mutants.py").LAUNCHES
ORDER = TimingOptions(schedule="program", throttle=False)
SAMPLES = 12


def delayed_ps(program: Any, chip: Any, record: int, start_ps: int, before_ps: int) -> int:
    """Return by how much the program ends later where a record starts no earlier than at some time."""
    return -what_if(program, chip, ORDER, {"earliest": {record: start_ps}}, before_ps).gain_ps


@pytest.mark.parametrize("target", LAUNCHES)
def test_an_instruction_of_any_kernel_may_be_as_late_as_its_slack_says(target: str) -> None:
    file, _, name = target.partition(":")
    name, _, cores = name.partition("[")
    arrays, options = LAUNCHES[target]
    simulated = neurosim.simulate(load_kernel(f"{packaged_kernel(file)}:{name}"), values=False)
    result = (simulated[int(cores[:-1])] if cores else simulated)(*arrays, **options)
    program, chip = result.program, result.chip
    timelines = time(program, chip, **ORDER._asdict())
    last = max(timelines.values(), key=lambda timeline: timeline.makespan_ps)
    slack = slack_ps(program, chip, ORDER)
    assert (slack >= 0).all()
    assert not slack[critical_path(program, timelines).steps["record"]].any()
    loose = np.flatnonzero(slack)
    for record in loose[:: max(len(loose) // SAMPLES, 1)].tolist():
        start_ps = int(last.start_ps[record] + slack[record])
        assert delayed_ps(program, chip, record, start_ps, last.makespan_ps) == 0, record


def test_slack_is_the_gap_to_who_waits(builder: Any, trn2: Any) -> None:
    trn2 = trn2.replace(sbuf__vector_gpsimd_turns="never")  # or GpSimd keeps Vector waiting
    long, short = builder.tile(elements=4096), builder.tile(elements=64)
    for tile in (long, short):
        builder.lanes("memset", tile)
    beside = builder.lanes("iota", builder.tile(elements=64), short, engine=Engine.gpsimd)
    builder.lanes("copy", builder.tile(elements=4096), long)
    timeline = builder.time(trn2)
    slack = slack_ps(builder.program, trn2, ORDER)
    ends = timeline.makespan_ps - timeline.complete_ps[beside]
    assert slack[beside] == ends > 0
    assert slack[[0, 3]].tolist() == [0, 0]
    start = int(timeline.start_ps[beside] + slack[beside])
    assert delayed_ps(builder.program, trn2, beside, start, timeline.makespan_ps) == 0
    assert delayed_ps(builder.program, trn2, beside, start + 1000, timeline.makespan_ps) == 1000
    assert delayed_ps(builder.program, trn2, 0, 1000, timeline.makespan_ps) == 1000


@pytest.mark.parametrize("schedule", ["program", "reorder"])
def test_the_next_one_at_a_port_bounds_it(builder: Any, trn2: Any, schedule: str) -> None:
    """One of Vector and GpSimd waits until the other has left the bus, so that neither has time."""
    long, short = builder.tile(elements=4096), builder.tile(elements=64)
    for tile in (long, short):
        builder.lanes("memset", tile)
    builder.lanes("iota", builder.tile(elements=64), short, engine=Engine.gpsimd)
    builder.lanes("copy", builder.tile(elements=4096), long)
    timeline = builder.time(trn2, schedule=schedule)
    assert timeline.stall_ps["vector"]["port"] + timeline.stall_ps["gpsimd"]["port"] > 0
    path = critical_path(builder.program, {0: timeline}).steps["record"]
    assert {2, 3} <= set(path.tolist())
    assert not slack_ps(builder.program, trn2, ORDER._replace(schedule=schedule))[path].any()


def test_the_others_of_a_queue_and_of_an_engine_bound_it(builder: Any, trn2: Any) -> None:
    tiles = [builder.tile() for _ in range(6)]
    for tile in tiles:
        builder.dma(tile, builder.hbm())
    builder.lanes("copy", builder.tile(), tiles[-1])
    slack = slack_ps(builder.program, trn2, ORDER)
    interval = round(trn2.dma.hwdge_interval_ns * 1000)
    timeline = builder.time(trn2)
    gaps = timeline.start_ps[1:6] - timeline.start_ps[:5] - interval
    assert (slack[:5] <= gaps + slack[1:6]).all()


def test_a_program_without_records_has_none(builder: Any, trn2: Any) -> None:
    assert len(slack_ps(builder.program, trn2, ORDER)) == 0


@pytest.mark.parametrize("earliest", [5, {99: 0}, {0: -1}, {0: 0.5}, {"a.py:1": 3}])
def test_times_of_instructions_are_checked(builder: Any, trn2: Any, earliest: Any) -> None:
    builder.lanes("memset", builder.tile())
    with pytest.raises(ConfigurationError, match="earliest"):
        what_if(builder.program, trn2, ORDER, {"earliest": earliest}, 0)
