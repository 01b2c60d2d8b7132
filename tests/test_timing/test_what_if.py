"""What-ifs: what is predicted is what comes out when the kernel runs again, and names and values are checked."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurosim
from neurosim.devices import available, load_chip
from neurosim.engines import Engine
from neurosim.errors import ConfigurationError
from neurosim.result import Result
from neurosim.shell.loading import load_kernel, load_module, packaged_kernel
from neurosim.shell.question_options import ENGINES, FACTORS, OF_ENGINES
from neurosim.timing import TimingOptions, time
from neurosim.timing.what_if import WhatIf, what_if, words
from neurosim.timing.what_if.ready import what_ifs

LAUNCHES = load_module(Path(__file__).parents[1] / "mutations" / "mutants.py").LAUNCHES
ORDER = TimingOptions(schedule="program", throttle=False)


def launched(target: str, chip: Any = "trn2", **options: Any) -> Result:
    """Run a kernel's launch on a chip."""
    file, _, name = target.partition(":")
    name, _, cores = name.partition("[")
    arrays, given = LAUNCHES[target]
    kernel = load_kernel(f"{packaged_kernel(file)}:{name}")
    simulated = neurosim.simulate(kernel, chip, values=False, **options)
    return (simulated[int(cores[:-1])] if cores else simulated)(*arrays, **given)


@pytest.mark.parametrize("target", LAUNCHES)
def test_a_kernel_that_runs_with_the_top_what_if_takes_what_was_predicted(target: str) -> None:
    result = launched(target)
    found = result.what_ifs()
    gains = [each.gain_ps for each in found]
    assert gains == sorted(gains, reverse=True)
    assert min(gains) > 0
    top = next(each for each in found if not {"matmul", "overwrites", "without"} & each.changes.keys())
    again = launched(target, top.chip, schedule=top.timing.schedule, throttle=top.timing.throttle)
    assert again.timeline.makespan_ps == top.after_ps
    assert result.timeline.makespan_ps - again.timeline.makespan_ps == top.gain_ps
    assert result.what_if(**top.changes).after_ps == top.after_ps


def test_bfloat16_operands_gain_what_a_kernel_with_them_takes() -> None:
    kernel = load_kernel(f"{packaged_kernel('matmul.py')}:matmul")
    result = neurosim.simulate(kernel, "trn2")(*(np.ones((512, 512), np.float32) for _ in range(2)))
    found = result.what_if(matmul="bfloat16")
    tensor = result.timeline.busy_ps["tensor"]
    assert 0 < found.gain_ps < tensor
    assert found.speedup == found.before_ps / found.after_ps
    # the array streams once and not four times: that is what is left of its work
    again = time(result.program, result.chip)[0]
    assert again.makespan_ps == found.before_ps


def asked(builder: Any, chip: Any, **changes: Any) -> WhatIf:
    before = time(builder.program, chip, **ORDER._asdict())[0].makespan_ps
    return what_if(builder.program, chip, ORDER, changes, before)


def chain(builder: Any) -> Any:
    """A load, two copies and a store, each of which waits for the one before."""
    tiles = [builder.tile() for _ in range(3)]
    builder.dma(tiles[0], builder.hbm())
    builder.lanes("copy", tiles[1], tiles[0])
    builder.lanes("copy", tiles[2], tiles[1])
    builder.dma(builder.hbm(), tiles[2])
    return builder


def test_an_instruction_that_takes_no_time_passes_on_what_it_waited_for(
    builder: Any, new_builder: Any, trn2: Any
) -> None:
    without = asked(chain(builder), trn2, without=[2])
    shorter = new_builder()
    tiles = [shorter.tile() for _ in range(2)]
    shorter.dma(tiles[0], shorter.hbm())
    shorter.lanes("copy", tiles[1], tiles[0])
    shorter.dma(shorter.hbm(), tiles[1])
    assert without.after_ps == shorter.time(trn2).makespan_ps
    assert without.gain_ps > 0


@pytest.mark.parametrize("schedule", ["program", "compiler"])
def test_an_instruction_that_nobody_waits_for_gains_its_place_on_the_engine(
    builder: Any, new_builder: Any, trn2: Any, schedule: str
) -> None:
    def filled(one: Any, with_it: bool) -> Any:
        tile = one.tile()
        one.lanes("memset", tile)
        if with_it:
            one.lanes("copy", one.tile(), one.tile(elements=2048), elements=2048)
        one.lanes("copy", one.tile(), tile)
        one.dma(one.hbm(), tile)
        return one

    whole, shorter = filled(builder, True), filled(new_builder(), False)
    timing = TimingOptions(schedule=schedule, throttle=False)
    before = whole.time(trn2, schedule).makespan_ps
    assert (
        what_if(whole.program, trn2, timing, {"without": [1]}, before).after_ps
        == shorter.time(trn2, schedule).makespan_ps
    )


def test_without_all_of_it_there_is_no_time(builder: Any, trn2: Any) -> None:
    assert asked(chain(builder), trn2, without=range(4)).after_ps == 0


def test_every_tile_may_have_buffers_of_its_own(builder: Any, new_builder: Any, trn2: Any) -> None:
    def loaded(one: Any, tiles: int) -> Any:
        buffers = [one.tile() for _ in range(tiles)]
        for index in range(6):
            tile = buffers[index % tiles]
            one.dma(tile, one.hbm())
            one.lanes("copy", one.tile(), tile)
        return one

    single, many = loaded(builder, 1), loaded(new_builder(), 6)
    free = asked(single, trn2, overwrites=False)
    assert free.after_ps == many.time(trn2).makespan_ps
    assert free.gain_ps > 0


def test_a_word_moves_its_figures_by_a_factor_and_a_path_gives_a_value(builder: Any, trn2: Any) -> None:
    chain(builder)
    twice = asked(builder, trn2, dma_bandwidth=2)
    assert twice.chip.dma.load_gb_per_s == 2 * trn2.dma.load_gb_per_s
    assert twice.chip.dma.engine_gb_per_s == 2 * trn2.dma.engine_gb_per_s
    assert (
        asked(builder, trn2, vector_rate=2).chip.vector.pair_cycles_per_element
        == trn2.vector.pair_cycles_per_element / 2
    )
    alone = asked(builder, trn2, dma__queue_depth=16)
    assert alone.chip.dma.queue_depth == 16
    assert asked(builder, trn2, **{"dma.queue_depth": 16}).chip == alone.chip
    assert asked(builder, trn2, sbuf_space=math.inf).chip.sbuf.partition_bytes > 2**30
    assert asked(builder, trn2, dma_latency=0).gain_ps >= 2 * trn2.dma.hwdge_first_data_ns * 1000


def test_every_figure_that_moves_a_time_can_be_asked_for(chips: Any) -> None:
    for chip in chips.values():
        found = words(chip)
        assert all(word.meaning and word.paths for word in found.values())
        assert all(path in chip.figures for word in found.values() for path in word.paths)
        for path in (
            "dma.trigger_ns",
            "dma.hwdge_interval_ns",
            "scalar.activation_latency_cycles",
            "tensor.load_cycles",
        ):
            assert any(path in word.paths for word in found.values())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "nothing is changed"),
        ({"dma_bandwith": 2}, "did you mean dma_bandwidth"),
        ({"queue": 2}, "queue_depth"),
        ({"dma__queue_dept": 2}, "dma.queue_depth"),
        ({"dma_bandwidth": -1}, "is no factor"),
        ({"dma_bandwidth": "2"}, "is no factor"),
        ({"dma_bandwidth": math.nan}, "is no factor"),
        ({"dma_bandwidth": 0}, "is no factor\n  give a number above 0"),
        ({"dma_bandwidth": -1.0}, "is no factor\n  give a number above 0"),
        ({"vector_rate": 0}, "is no factor\n  give a number above 0"),
        ({"queue_depth": 0}, "is no factor\n  give a number above 0"),
        ({"dma_latency": -1}, "is no factor\n  give a number of 0 or more"),
        ({"dma_bandwidth": 2, "dma__load_gb_per_s": 5.0}, "which another change moves"),
        ({"throttle": 1}, "is not a bool"),
        ({"schedule": "fast"}, "is unknown"),
        ({"overwrites": 0}, "is not a bool"),
        ({"matmul": "bfloat16"}, "multiplies no 4-byte floats"),
        ({"without": "nowhere.py:3"}, "no instruction comes from"),
        ({"without": [99]}, "names no instruction"),
        ({"without": [True]}, "names no instruction"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(
    builder: Any, trn2: Any, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        asked(chain(builder), trn2, **changes)


def test_only_formats_of_one_pass_take_the_place_of_float32(builder: Any, trn2: Any) -> None:
    builder.matmul(builder.psum(elements=128), builder.tile(elements=128), builder.tile(elements=128))
    with pytest.raises(ConfigurationError, match="'bfloat16' or 'float16'"):
        asked(builder, trn2, matmul="int8")
    assert asked(builder, trn2, matmul="float16").gain_ps > 0


def test_meetings_stay_where_they_are() -> None:
    result = launched("sharded_rmsnorm.py:sharded_rmsnorm[2]")
    first, _ = result.program.meetings[0]
    with pytest.raises(ConfigurationError, match="nothing there can be left out"):
        result.what_if(without=[first])


def test_the_ready_made_list_asks_only_what_can_matter(builder: Any, trn2: Any) -> None:
    tile = builder.tile()
    builder.lanes("memset", tile)
    builder.lanes("copy", builder.tile(), tile, engine=Engine.vector)
    before = builder.time(trn2).makespan_ps
    texts = [each.text for each in what_ifs(builder.program, trn2, ORDER, before)]
    assert "Vector twice as fast" in texts
    assert not any("DMA" in text or "Scalar" in text or "tensor" in text for text in texts)


def test_the_ready_made_list_says_where_program_order_is_shorter() -> None:
    """As softmax on trn2: an engine that takes what may start first lets something longer wait."""
    result = launched("softmax.py:softmax")
    (found,) = (each for each in result.what_ifs() if each.changes.get("schedule") == "program")
    assert found.after_ps == launched("softmax.py:softmax", schedule="program").timeline.makespan_ps
    in_order = launched("matmul.py:matmul", schedule="program")
    assert "engines in the compiler's order" in [each.text for each in in_order.what_ifs()]
    assert not any("schedule" in each.changes for each in launched("matmul.py:matmul").what_ifs())


def test_words_are_in_the_help_and_in_the_docs() -> None:
    known = {word for name in available() for word in words(load_chip(name))}
    told = {*FACTORS, *(each.replace("ENGINE", engine) for each in OF_ENGINES for engine in ENGINES)}
    assert known == told - {"tensor_rate"}
    page = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")
    assert [word for word in sorted(known) if f"`{word}`" not in page] == []
