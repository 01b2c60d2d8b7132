"""Parts of a trace: filled forms, counters over time, and arrows from what made a value to what reads it."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.analysis.dependences import Dependence, dependences
from neurosim.engines import Memory
from neurosim.errors import ConfigurationError
from neurosim.report.occupancy import lives
from neurosim.report.trace.counters import Counter, counters
from neurosim.report.trace.filling import HEX, PLAIN, THOUSANDTHS, Forms, hole
from neurosim.shell.loading import load_kernel, packaged_kernel
from neurosim.timing.timeline import Op


@pytest.fixture(scope="module")
def result() -> neurosim.Result:
    kernel = load_kernel(f"{packaged_kernel('attention.py')}:attention")
    spec = neurosim.spec((512, 64), "bfloat16")
    return neurosim.simulate(kernel, chip="trn2", values=False)(spec, spec, spec, causal=True)


def events(result: neurosim.Result, folder: Path, **options: Any) -> list[dict[str, Any]]:
    result.perfetto(folder / "trace.json", **options)
    return json.loads((folder / "trace.json").read_text(encoding="utf-8"))["traceEvents"]  # type: ignore[no-any-return]


# Forms


def test_forms_are_filled_as_python_would() -> None:
    chance = random.Random(1)
    edges = [0, 1, 9, 10, 99, 100, 999, 1000, 1001, 9_999, 10**6, 2**53, 2**62]
    rows = [(a, chance.choice(edges), chance.randrange(10 ** chance.randrange(1, 18))) for a in edges * 20]
    texts = [f"λ {hole(0)}, {hole(2, HEX)};", f"{hole(1, THOUSANDTHS)}|{hole(0, PLAIN)}", "nothing\n"]
    form = [chance.randrange(3) for _ in rows]
    by_hand = [
        (f"λ {a}, {c:#x};", f"{b // 1000}.{b % 1000:03}|{a}", "nothing\n")[number]
        for number, (a, b, c) in zip(form, rows, strict=True)
    ]
    filled = Forms(texts).fill(np.array(form), [np.array(column) for column in zip(*rows, strict=True)])
    assert bytes(filled).decode() == "".join(by_hand)


# Counters


def total(counter: Counter) -> float:
    return float((np.diff(counter.times_ps) * counter.values[:-1]).sum())


def by_name(found: list[Counter]) -> dict[str, Counter]:
    return {counter.name.split(" [")[0]: counter for counter in found}


def test_counters_add_up_to_what_the_timeline_says(result: neurosim.Result) -> None:
    timeline = result.timeline
    found = by_name(counters(result.program, timeline))
    assert total(found["HBM read"]) / 1000 == pytest.approx(timeline.hbm_read_bytes, rel=1e-9)
    assert total(found["HBM written"]) / 1000 == pytest.approx(timeline.hbm_written_bytes, rel=1e-9)
    assert total(found["MFU"]) / 100 == pytest.approx(timeline.mfu * timeline.makespan_ps, rel=1e-9)
    assert 0 < found["MFU"].values.max() <= 100 + 1e-6
    for memory in (Memory.sbuf, Memory.psum):
        moments, used = lives(timeline, memory).steps()
        assert found[memory.label].times_ps.tolist() == moments.tolist()
        assert found[memory.label].values.tolist() == used.tolist()


def test_a_windows_traffic_is_that_of_the_ops_within_it(result: neurosim.Result) -> None:
    """Of a part of the time; each op's share by hand, op by op."""
    timeline, program = result.timeline, result.program
    first, last = timeline.makespan_ps // 4, timeline.makespan_ps // 2
    found = by_name(counters(program, timeline, first, last))["HBM read"]
    ops = timeline.ops[timeline.ops["kind"] == Op.TRANSFER]
    whole: dict[int, int] = defaultdict(int)
    for op in ops:
        whole[int(op["record"])] += int(op["end_ps"] - op["start_ps"])
    expected = np.zeros(len(found.times_ps) - 1)
    for op in ops:
        record = program.record(int(op["record"]))
        (work,) = record.signature.work
        size_bytes = work.read_bytes if work.source.is_hbm else 0
        begin, end = np.maximum(found.times_ps[:-1], op["start_ps"]), np.minimum(found.times_ps[1:], op["end_ps"])
        expected += size_bytes * np.maximum(end - begin, 0) / whole[record.index]
    width = np.diff(found.times_ps)
    assert expected.sum() > 0
    assert found.times_ps[0] == first
    assert last <= found.times_ps[-1] < last + width[0]
    np.testing.assert_allclose(found.values[:-1], expected * 1000 / width, rtol=1e-9, atol=1e-6)


def test_space_in_a_part_of_the_time_begins_with_what_was_there(result: neurosim.Result) -> None:
    timeline = result.timeline
    moments, used = lives(timeline, Memory.sbuf).steps()
    middle = len(moments) // 2
    between = int(moments[middle] + moments[middle + 1]) // 2
    part = by_name(counters(result.program, timeline, between, int(moments[middle + 3])))["SBUF"]
    assert part.times_ps.tolist() == [between, *moments[middle + 1 : middle + 3]]
    assert part.values.tolist() == used[middle : middle + 3].tolist()


def test_a_kernel_without_ops_has_counters_of_zeros() -> None:
    def kernel(x: Any) -> Any:
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x)
        return out

    small = neurosim.simulate(kernel)(np.ones((1, 8), np.float32))
    found = by_name(counters(small.program, small.timeline))
    assert not found["MFU"].values.any()
    assert len(found["SBUF"].times_ps) == 0
    assert total(found["HBM read"]) / 1000 == pytest.approx(32)


def test_a_trace_has_the_counters_of_its_tracks(result: neurosim.Result, tmp_path: Path) -> None:
    found = by_name(counters(result.program, result.timeline))
    drawn: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for event in events(result, tmp_path):
        if event["ph"] == "C":
            drawn[event["name"].split(" [")[0]].append((round(event["ts"] * 1000), event["args"]["value"]))
    assert set(drawn) == set(found)
    for name, points in drawn.items():
        times = [time for time, _ in points]
        assert times == sorted(times)
        for time_ps, value in zip(found[name].times_ps.tolist(), found[name].values.tolist(), strict=True):
            at = [shown for time, shown in points if time <= time_ps // 1000]
            if time_ps // 1000 + 1 not in times:  # else several changes share a nanosecond
                assert value in [pytest.approx(shown, abs=5.1e-4) for shown in at[-3:]]
    for engines, names in (
        (["tensor"], {"MFU"}),
        (["dma3"], set()),
        (["dma"], {"HBM read", "HBM written"}),
        (["sbuf", "psum"], {"SBUF", "PSUM"}),
    ):
        shown = {
            event["name"].split(" [")[0] for event in events(result, tmp_path, engines=engines) if event["ph"] == "C"
        }
        assert shown == names


# Arrows


def raw(result: neurosim.Result) -> set[tuple[int, int]]:
    found = dependences(result.program)
    pairs = [(record, found.of(record)) for record in range(len(result.program))]
    return {(producer, consumer) for consumer, of in pairs for producer, kind in of if kind == Dependence.RAW}


def arrows(drawn: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Return (producer, consumer) of the arrows, from the slices that their ends begin with."""
    starts = {
        (event["tid"], round(event["ts"] * 1000)): event["args"]["record"] for event in drawn if event["ph"] == "X"
    }
    ends: dict[int, dict[str, int]] = defaultdict(dict)
    for event in drawn:
        if event["ph"] in "sf":
            ends[event["id"]][event["ph"]] = starts[event["tid"], round(event["ts"] * 1000)]
    return [(both["s"], both["f"]) for both in ends.values()]


def test_an_arrow_leads_from_each_value_to_each_reader(result: neurosim.Result, tmp_path: Path) -> None:
    found = arrows(events(result, tmp_path))
    assert len(found) == len(set(found)) > 100
    assert set(found) == raw(result)


def test_arrows_lead_between_what_is_shown(result: neurosim.Result, tmp_path: Path) -> None:
    part = events(result, tmp_path, engines=["vector", "scalar"])
    shown = {event["args"]["record"] for event in part if event["ph"] == "X"}
    found = set(arrows(part))
    assert found == {(a, b) for a, b in raw(result) if a in shown and b in shown}
    assert found
    assert not arrows(events(result, tmp_path, engines=["gpsimd"]))


@pytest.mark.parametrize("part", [{"engines": 1}, {"lines": "a.py"}, {"first_ps": None}, {"last_ps": "9"}])
def test_parts_that_are_none_are_refused(result: neurosim.Result, tmp_path: Path, part: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"trace: .* is (no list|not made of ints)"):
        result.perfetto(tmp_path / "part.json", **part)
    assert not list(tmp_path.iterdir())


def test_perfetto_reads_counters_and_arrows(
    result: neurosim.Result, processor: Callable[[Path], Any], tmp_path: Path
) -> None:
    result.perfetto(tmp_path / "trace.json.gz")
    with processor(tmp_path / "trace.json.gz") as opened:
        rows = opened.query(
            "select extract_arg(a.arg_set_id, 'args.record') as producer, "
            "extract_arg(b.arg_set_id, 'args.record') as consumer from flow "
            "join slice a on flow.slice_out = a.id join slice b on flow.slice_in = b.id"
        )
        assert {(row.producer, row.consumer) for row in rows} == raw(result)
        rows = opened.query(
            "select t.name as name, max(value) as most, p.name as process from counter c "
            "join process_counter_track t on c.track_id = t.id join process p using (upid) group by t.name"
        )
        most = {row.name.split(" [")[0]: row.most for row in rows}
        found = by_name(counters(result.program, result.timeline))
        assert most == {name: pytest.approx(counter.values.max(), abs=5.1e-4) for name, counter in found.items()}


def test_two_cores_have_counters_and_arrows_of_their_own(tmp_path: Path) -> None:
    kernel = load_kernel(f"{packaged_kernel('sharded_rmsnorm.py')}:sharded_rmsnorm")
    both = neurosim.simulate(kernel)[2](np.ones((256, 64), np.float32), np.ones(64, np.float32))
    drawn = events(both, tmp_path)
    assert {event["pid"] for event in drawn if event["ph"] == "C"} == {1000, 2000}
    assert set(arrows(drawn)) == raw(both)
    assert {event["pid"] for event in drawn if event["ph"] == "s"} == {1000, 2000}
    for event in drawn:
        if event["ph"] in "sf":
            assert event["tid"] // 1000 * 1000 == event["pid"]
