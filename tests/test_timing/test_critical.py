"""The critical path: its steps follow each other from the begin to the end, and each waited for the one before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurosim
from neurosim.shell.loading import load_kernel, load_module, packaged_kernel
from neurosim.timing import SCHEDULES, Timeline, TimingOptions, time
from neurosim.timing.causes import CAUSES
from neurosim.timing.critical import critical_path
from neurosim.timing.what_if import what_if

LAUNCHES = load_module(Path(__file__).parents[1] / "mutations" / "mutants.py").LAUNCHES
ORDER = TimingOptions(schedule="program", throttle=False)


def check(program: Any, timelines: dict[int, Timeline]) -> Any:
    path = critical_path(program, timelines)
    steps = path.steps
    assert path.makespan_ps == max(timeline.makespan_ps for timeline in timelines.values())
    assert steps["start_ps"][0] == 0
    assert steps["end_ps"][-1] == path.makespan_ps
    assert (steps["start_ps"][1:] == steps["end_ps"][:-1]).all()
    assert (steps["end_ps"] > steps["start_ps"]).all()
    durations = np.bincount(path.parts["record"], weights=path.parts["duration_ps"], minlength=len(program))
    expected = np.bincount(steps["record"], weights=steps["end_ps"] - steps["start_ps"], minlength=len(program))
    assert (durations == expected).all()
    return path


@pytest.mark.parametrize("target", LAUNCHES)
def test_the_steps_of_every_kernel_add_up_to_its_makespan(target: str) -> None:
    file, _, name = target.partition(":")
    name, _, cores = name.partition("[")
    arrays, options = LAUNCHES[target]
    simulated = neurosim.simulate(load_kernel(f"{packaged_kernel(file)}:{name}"), values=False)
    result = (simulated[int(cores[:-1])] if cores else simulated)(*arrays, **options)
    for schedule in SCHEDULES:
        check(result.program, time(result.program, result.chip, schedule=schedule))


def test_a_chain_is_its_own_path(builder: Any, trn2: Any) -> None:
    tiles = [builder.tile() for _ in range(3)]
    load = builder.dma(tiles[0], builder.hbm())
    first = builder.lanes("copy", tiles[1], tiles[0])
    second = builder.lanes("copy", tiles[2], tiles[1])
    store = builder.dma(builder.hbm(), tiles[2])
    timeline = builder.time(trn2)
    path = check(builder.program, {0: timeline})
    assert path.steps["record"].tolist() == [load, first, second, store]
    assert path.steps["start_ps"].tolist() == timeline.start_ps.tolist()


def test_work_beside_the_path_is_not_on_it_and_gains_nothing(builder: Any, trn2: Any) -> None:
    trn2 = trn2.replace(sbuf__vector_gpsimd_turns="never")  # or GpSimd keeps Vector waiting
    long, short = builder.tile(elements=4096), builder.tile(elements=64)
    for tile in (long, short):
        builder.lanes("memset", tile)
    beside = builder.lanes("iota", builder.tile(elements=64), short, engine=neurosim.engines.Engine.gpsimd)
    builder.lanes("copy", builder.tile(elements=4096), long)
    timeline = builder.time(trn2)
    path = check(builder.program, {0: timeline})
    assert beside not in path.steps["record"]
    assert what_if(builder.program, trn2, ORDER, {"without": [beside]}, timeline.makespan_ps).gain_ps == 0
    for record in set(path.steps["record"].tolist()):
        assert what_if(builder.program, trn2, ORDER, {"without": [record]}, timeline.makespan_ps).gain_ps > 0


def test_a_transfer_behind_another_one_is_on_the_path_from_when_it_moved(builder: Any, trn2: Any) -> None:
    big, small = builder.tile(elements=8192), builder.tile(elements=64)
    ahead = builder.dma(big, builder.hbm(elements=8192))
    behind = builder.dma(small, builder.hbm(elements=64))
    builder.lanes("copy", builder.tile(elements=16384), small)
    path = check(builder.program, {0: builder.time(trn2)})
    assert path.steps["record"].tolist()[:2] == [ahead, behind]
    of_ahead = path.parts[path.parts["record"] == ahead]
    longest = of_ahead[of_ahead["duration_ps"].argmax()]
    assert CAUSES[longest["cause"]] == "dma_bandwidth"


def test_a_program_without_records_has_no_path(builder: Any, trn2: Any) -> None:
    path = critical_path(builder.program, {0: builder.time(trn2)})
    assert len(path.steps) == len(path.parts) == path.makespan_ps == 0


def test_two_cores_have_one_path(builder: Any, trn2: Any) -> None:
    for core, elements in ((0, 64), (1, 512)):
        tile = builder.tile(elements=elements)
        builder.dma(tile, builder.hbm(elements=elements), core=core)
        builder.lanes("copy", builder.tile(elements=elements), tile, core=core)
    path = check(builder.program, time(builder.program, trn2, **ORDER._asdict()))
    assert {builder.program.cores[record] for record in path.steps["record"].tolist()} == {1}
