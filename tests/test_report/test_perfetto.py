"""The trace: slices that a viewer draws as they are, sums that are those of the timeline, and files that are whole."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import stat
import subprocess
import sys
import tracemalloc
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import ConfigurationError
from neurosim.program import Program, Storages
from neurosim.report import perfetto
from neurosim.report.perfetto import LOADS, write_trace
from neurosim.shell.loading import load_kernel, packaged_kernel
from neurosim.timing import time
from neurosim.timing.timeline import Op

ENGINES = ("tensor", LOADS, "vector", "scalar", "gpsimd", "sync")
TRACKS = (*ENGINES, *(f"dma{index}" for index in range(16)))


def attention() -> neurosim.Result:
    kernel = load_kernel(f"{packaged_kernel('attention.py')}:attention")
    spec = neurosim.spec((512, 64), "bfloat16")
    return neurosim.simulate(kernel, chip="trn2", values=False)(spec, spec, spec, causal=True)


@pytest.fixture(scope="module")
def result() -> neurosim.Result:
    return attention()


@pytest.fixture(scope="module")
def trace(result: neurosim.Result, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return traced(result, tmp_path_factory.mktemp("trace"))


def traced(result: neurosim.Result, folder: Path, **options: Any) -> dict[str, Any]:
    result.perfetto(folder / "trace.json", **options)
    return json.loads((folder / "trace.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def slices(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def track_names(trace: dict[str, Any]) -> dict[int, str]:
    """Return the name of each thread, in the order of its sort index."""
    events = trace["traceEvents"]
    named = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    places = {event["tid"]: event["args"]["sort_index"] for event in events if event["name"] == "thread_sort_index"}
    return {thread: named[thread] for thread in sorted(named, key=places.__getitem__)}


def nanoseconds(us: float, rounding: str) -> int:
    """Return a time as viewers read it: the nearest nanosecond (Perfetto since 2025), or the one before."""
    return round(us * 1000) if rounding == "nearest" else int(us) * 1000 + int((us - int(us)) * 1000 + 1e-6)


# Drawing


@pytest.mark.parametrize("rounding", ["nearest", "down"])
def test_slices_of_a_track_follow_each_other(trace: dict[str, Any], rounding: str) -> None:
    reached: dict[tuple[int, int], int] = defaultdict(int)
    for event in slices(trace):
        track = (event["pid"], event["tid"])
        start = nanoseconds(event["ts"], rounding)
        assert start >= reached[track], event
        reached[track] = start + nanoseconds(event["dur"], rounding)
    assert len(reached) > 10


def test_cut_times_stay_within_a_nanosecond_of_the_exact_ones(trace: dict[str, Any]) -> None:
    for event in slices(trace):
        exact = event["args"]
        assert round(event["ts"] * 1000) == exact["start_ps"] // 1000
        assert abs(event["dur"] * 1000 - (exact["end_ps"] - exact["start_ps"]) / 1000) < 1
        assert event["ts"] >= 0
        assert event["dur"] >= 0


def test_the_exact_times_are_those_of_the_timeline(trace: dict[str, Any], result: neurosim.Result) -> None:
    found = sorted(
        (event["args"]["record"], event["cat"], event["args"]["start_ps"], event["args"]["end_ps"])
        for event in slices(trace)
    )
    ops = result.timeline.ops
    columns = (ops[name].tolist() for name in ("record", "kind", "start_ps", "end_ps"))
    assert found == sorted(
        (record, Op(kind).name.lower(), start, end) for record, kind, start, end in zip(*columns, strict=True)
    )


def test_a_load_behind_a_matmul_has_its_own_track(trace: dict[str, Any], result: neurosim.Result) -> None:
    names = track_names(trace)
    assert {names[event["tid"]] for event in slices(trace) if event["cat"] == "load_stationary"} == {LOADS}
    assert {names[event["tid"]] for event in slices(trace) if event["cat"] == "matmul"} == {"tensor"}
    ops = result.timeline.ops[result.timeline.ops["unit"] == 0]
    assert (ops["start_ps"][1:] < ops["end_ps"][:-1]).any(), "no load runs behind a matmul: the test tests nothing"


def test_time_begins_at_0_with_a_mark_on_every_track(trace: dict[str, Any]) -> None:
    marks = [event for event in trace["traceEvents"] if event["ph"] == "i"]
    assert [track_names(trace)[event["tid"]] for event in marks] == list(TRACKS)
    assert {event["ts"] for event in marks} == {0}
    assert min(event["ts"] for event in slices(trace)) == 0


def test_numbers_that_viewers_keep_to_themselves_are_not_used(trace: dict[str, Any]) -> None:
    for event in slices(trace):
        assert event["pid"] != 0
        assert event["tid"] not in (0, event["pid"])


# Content


def test_all_tracks_are_there_in_their_order_also_when_unused(trace: dict[str, Any], tmp_path: Path) -> None:
    assert list(track_names(trace).values()) == list(TRACKS)

    def kernel(x: Any) -> Any:
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x)
        return out

    small = neurosim.simulate(kernel)(np.ones((1, 8), np.float32))
    assert list(track_names(traced(small, tmp_path)).values()) == list(TRACKS)


def test_busy_times_add_up_to_those_of_the_timeline(trace: dict[str, Any], result: neurosim.Result) -> None:
    names, busy, lines = track_names(trace), dict.fromkeys(result.timeline.units, 0), defaultdict(int)
    for event in slices(trace):
        engine = names[event["tid"]].split()[0]
        busy[engine] += event["args"]["busy_ps"]
        lines[engine, event["args"]["where"]] += event["args"]["busy_ps"]
    assert busy == result.timeline.busy_ps
    assert {engine: account["busy_ps"] for engine, account in result.summary()["engines"].items()} == busy
    for engine in busy:
        assert sum(ps for (name, _), ps in lines.items() if name == engine) == busy[engine]


def test_waits_add_up_to_the_stalls_of_the_timeline(trace: dict[str, Any], result: neurosim.Result) -> None:
    names, stalls = track_names(trace), {unit: defaultdict(int) for unit in result.timeline.units}
    for event in slices(trace):
        engine, args = names[event["tid"]].split()[0], event["args"]
        stalls[engine][args.get("wait", "edge")] += args.get("wait_ps", 0)
        for reason in ("bandwidth", "throttle"):
            stalls[engine][reason] += args.get(f"{reason}_wait_ps", 0)
    for engine, expected in result.timeline.stall_ps.items():
        assert {reason: ps for reason, ps in stalls[engine].items() if ps} == {
            r: ps for r, ps in expected.items() if ps
        }


def test_a_slice_says_where_it_comes_from_and_what_it_works_on(trace: dict[str, Any], result: neurosim.Result) -> None:
    for event in slices(trace):
        args = event["args"]
        record = result.program.record(args["record"])
        frame = result.program.where(args["record"])[0]
        assert args["where"] == f"{frame.file}:{frame.line}"
        assert event["name"].split(":")[0] == args["instruction"] == record.signature.instruction
        assert list(args["operands"]) == [pattern.role for pattern in record.signature.patterns]
    matmul = next(event for event in slices(trace) if event["args"]["instruction"] == "nc_matmul")
    assert matmul["args"]["operands"]["stationary"] == "bfloat16[64, 128] SBUF"
    assert "accumulate=" in matmul["args"]["parameters"]
    assert "attention.py:" in matmul["args"]["called_from"]


def test_a_wait_for_a_record_names_it(trace: dict[str, Any], result: neurosim.Result) -> None:
    causes = [event["args"] for event in slices(trace) if "wait_for_record" in event["args"]]
    assert causes
    for args in causes:
        assert args["wait_for_record"] == result.timeline.waited_for[args["record"]]


def test_queues_hold_every_dma_from_trigger_to_completion(trace: dict[str, Any], result: neurosim.Result) -> None:
    events = [event for event in trace["traceEvents"] if event["cat" if event["ph"] != "M" else "ph"] == "queue"]
    first_names, open_slices, found = {}, {}, []
    for event in events:
        lane = event["id2"]["local"]
        first_names.setdefault(lane, event["name"])
        if event["ph"] == "b":
            assert lane not in open_slices, "slices of a lane overlap"
            open_slices[lane] = event
        elif event["ph"] == "e":
            begin = open_slices.pop(lane)
            assert begin["ts"] <= event["ts"]
            assert (begin["name"], begin["cat"]) == (event["name"], event["cat"])
            found.append((begin["args"]["record"], begin["args"]["start_ps"], begin["args"]["end_ps"]))
    assert not open_slices
    assert set(first_names.values()) == {"queue sync hwdge", "queue gpsimd swdge"}
    timeline = result.timeline
    records = [record.index for record in result.program if record.signature.instruction == "dma_copy"]
    assert sorted(found) == [(record, timeline.start_ps[record], timeline.complete_ps[record]) for record in records]


def test_metadata_says_what_was_simulated(result: neurosim.Result, tmp_path: Path) -> None:
    metadata = traced(result, tmp_path, engines=["tensor"])["metadata"]
    assert metadata["schema"] == "neurosim.trace/1"
    assert metadata["neurosim"] == neurosim.__version__
    assert (metadata["kernel"], metadata["chip"], metadata["generation"]) == ("attention", "trn2", 3)
    assert metadata["nki_version"] == "0.6"
    assert metadata["options"] == {"first_ps": 0, "last_ps": None, "engines": ["tensor"], "lines": []}
    assert metadata["makespan_ps"] == {"core 0": result.timeline.makespan_ps}
    chip = result.chip.replace(hbm__bandwidth_gb_per_s=100)
    write_trace(tmp_path / "slow.json", result.program, time(result.program, chip), chip)
    slow = json.loads((tmp_path / "slow.json").read_text(encoding="utf-8"))
    assert slow["metadata"]["chip_changes"] == {"hbm.bandwidth_gb_per_s": 100.0}


def test_a_name_given_in_the_kernel_is_the_slices_name(tmp_path: Path) -> None:
    def kernel(x: Any) -> Any:
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x, name='all of "x" – λ')
        return out

    events = traced(neurosim.simulate(kernel)(np.ones((1, 8), np.float32)), tmp_path)["traceEvents"]
    assert {event["name"] for event in events if event["ph"] in "Xbe"} == {'all of "x" – λ'}


def test_each_core_is_a_process(result: neurosim.Result, tmp_path: Path) -> None:
    program = two_cores(result.program)
    timelines = time(program, result.chip)
    write_trace(tmp_path / "two.json", program, timelines, result.chip)
    trace = json.loads((tmp_path / "two.json").read_text(encoding="utf-8"))
    processes = {event["pid"]: event["args"] for event in trace["traceEvents"] if event["name"] == "process_name"}
    assert [args["name"][:7] for args in processes.values()] == ["core 0:", "core 1:"]
    for core, process in enumerate(processes):
        busy = sum(event["args"]["busy_ps"] for event in slices(trace) if event["pid"] == process)
        assert busy == sum(timelines[core].busy_ps.values())


def two_cores(program: Program) -> Program:
    """Return a program that does the same on two cores, each with tensors of its own."""
    double = Program(program.chip_name, program.generation)
    double.signatures, double.stacks, double.storages = (
        program.signatures,
        program.stacks,
        Storages([*program.storages] * 2),
    )
    for core in (0, 1):
        for record in program:
            slots = [
                part for storage, offset in record.slots for part in (storage + core * len(program.storages), offset)
            ]
            double.append(program.signature_ids[record.index], slots, record.stack, core)
    return double


# Options


def test_a_time_range_keeps_what_overlaps_it(trace: dict[str, Any], result: neurosim.Result, tmp_path: Path) -> None:
    first, last = result.timeline.makespan_ps // 3, result.timeline.makespan_ps // 2
    part = traced(result, tmp_path, first_ps=first, last_ps=last)
    wanted = [event for event in slices(trace) if event["args"]["end_ps"] > first and event["args"]["start_ps"] < last]
    assert slices(part) == wanted
    assert 0 < len(wanted) < len(slices(trace))
    assert list(track_names(part).values()) == list(TRACKS)


def test_engines_choose_tracks(result: neurosim.Result, tmp_path: Path) -> None:
    assert list(track_names(traced(result, tmp_path, engines=["tensor", "dma3"])).values()) == ["tensor", LOADS, "dma3"]
    movers = traced(result, tmp_path, engines=["dma"])
    assert list(track_names(movers).values()) == [name for name in TRACKS if name.startswith("dma")]
    assert {event["ph"] for event in movers["traceEvents"]} >= {"b", "e"}
    assert "b" not in {event["ph"] for event in traced(result, tmp_path, engines=["vector"])["traceEvents"]}


def test_lines_choose_what_they_caused(trace: dict[str, Any], result: neurosim.Result, tmp_path: Path) -> None:
    outer = {stack[-1].line for stack in result.program.stacks if len(stack) > 1}
    line = f"attention.py:{min(outer)}"
    part = slices(traced(result, tmp_path, lines=[line]))
    assert part
    for event in part:
        assert line in event["args"]["where"] + result_places(result, event["args"]["record"])
    assert slices(traced(result, tmp_path, lines=["attention.py"])) == slices(trace)


def result_places(result: neurosim.Result, record: int) -> str:
    return " ".join(f"{frame.file}:{frame.line}" for frame in result.program.where(record))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engines": ["pool"]}, "no engine 'pool'"),
        ({"lines": ["attention.py:1"]}, "no instruction comes from attention.py:1"),
        ({"lines": ["tention.py"]}, "no instruction comes from tention.py"),
        ({"first_ps": 5, "last_ps": 5}, "no time from 5 to 5 ps"),
        ({"first_ps": -1}, "no time from -1"),
        ({"first_ps": 1 << 62}, "no time from 4611686018427387904 to None"),
        ({"last_ps": 10**26}, "no time from 0 to 1"),
    ],
)
def test_options_that_leave_nothing(
    result: neurosim.Result, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        result.perfetto(tmp_path / "trace.json", **options)
    assert list(tmp_path.iterdir()) == []


# Files


def test_a_compressed_trace_holds_the_same(result: neurosim.Result, tmp_path: Path) -> None:
    result.perfetto(tmp_path / "a.json")
    for name in ("a.json.gz", "b.json.gz"):
        result.perfetto(tmp_path / name)
    assert gzip.decompress((tmp_path / "a.json.gz").read_bytes()) == (tmp_path / "a.json").read_bytes()
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_equal_bytes_under_every_hash_seed(result: neurosim.Result, tmp_path: Path) -> None:
    result.program.save(tmp_path / "program")
    script = "import neurosim.run, sys; neurosim.run.reopen(sys.argv[1]).perfetto(sys.argv[2])"
    contents = []
    for seed in ("0", "1"):
        command = [sys.executable, "-c", script, str(tmp_path / "program"), str(tmp_path / seed)]
        subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, check=True, timeout=600)
        contents.append((tmp_path / seed).read_bytes())
    result.perfetto(tmp_path / "here")
    assert contents == [(tmp_path / "here").read_bytes()] * 2


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_an_interrupt_leaves_no_file_and_an_old_one_as_it_was(
    result: neurosim.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def interrupted(*_: Any) -> Any:
        yield b",\n{}"
        raise KeyboardInterrupt

    monkeypatch.setattr(perfetto._Core, "_queues", interrupted)
    with pytest.raises(KeyboardInterrupt):
        result.perfetto(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / name).write_text("old", encoding="utf-8")
    with pytest.raises(KeyboardInterrupt):
        result.perfetto(tmp_path / name)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text(encoding="utf-8") == "old"


def test_a_place_that_cannot_be_written(result: neurosim.Result, tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere" / "trace.json", tmp_path):
        with pytest.raises(ConfigurationError, match="cannot write"):
            result.perfetto(path)


@pytest.mark.skipif(os.name != "posix", reason="devices and links of POSIX")
def test_a_device_stays_a_device_and_a_link_a_link(result: neurosim.Result, tmp_path: Path) -> None:
    result.perfetto(os.devnull)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    (tmp_path / "link").symlink_to(tmp_path / "file")
    result.perfetto(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert json.loads((tmp_path / "file").read_text(encoding="utf-8"))["metadata"]["chip"] == "trn2"


def test_memory_does_not_grow_with_the_trace(result: neurosim.Result, tmp_path: Path) -> None:
    """The ops of one run, over and over; what is held at once must not depend on how often."""
    peaks = []
    for copies in (25, 75):
        ops = np.tile(result.timeline.ops, copies)
        timelines = {0: dataclasses.replace(result.timeline, ops=ops)}
        tracemalloc.start()
        write_trace(tmp_path / "trace.json", result.program, timelines, result.chip)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert len(ops) > 25_000
    assert peaks[1] < 1.1 * peaks[0]


# The viewer itself


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_perfetto_reads_it_without_error_and_adds_up_the_same(
    result: neurosim.Result, processor: Callable[[Path], Any], tmp_path: Path, name: str
) -> None:
    result.perfetto(tmp_path / name)
    with processor(tmp_path / name) as opened:
        broken = opened.query(
            "select name, value from stats where value > 0 and (severity = 'error' or name like '%overlapping%')"
        )
        assert [(row.name, row.value) for row in broken] == []
        rows = opened.query(
            "select thread.name as track, sum(extract_arg(slice.arg_set_id, 'args.busy_ps')) as busy_ps from slice "
            "join thread_track on slice.track_id = thread_track.id join thread using (utid) "
            "where slice.category != 'track' group by thread.name"
        )
        busy = dict.fromkeys(result.timeline.units, 0)
        for row in rows:
            busy[row.track.split()[0]] += row.busy_ps
        assert busy == {engine: account["busy_ps"] for engine, account in result.summary()["engines"].items()}
