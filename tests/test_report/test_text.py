"""The report's layout: one screen, fixed width, nothing cut."""

from __future__ import annotations

import copy
import itertools
import re
from typing import Any

import pytest

from neurosim.report import units
from neurosim.report.text import WIDTH, report

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync", *(f"dma{index}" for index in range(16)))


def engine(busy: int, stalls: dict[str, int], makespan: int) -> dict[str, Any]:
    idle = makespan - busy - sum(stalls.values())
    return {"busy_ps": busy, "stall_ps": stalls, "waits_for_ps": {}, "causes_ps": {}, "idle_ps": idle}


@pytest.fixture
def summary() -> dict[str, Any]:
    makespan = 300_000_000
    engines = {name: engine(1_000_000 * index, {"data_dma": 5_000_000}, makespan) for index, name in enumerate(ENGINES)}
    engines["tensor"] = engine(210_000_000, {"data_dma": 40_000_000, "buffer": 10_000_000}, makespan)
    return {
        "schema": "neurosim.summary/1",
        "neurosim": "0.1.0",
        "kernel": "matmul",
        "chip": "trn2",
        "schedule": "compiler",
        "core": 0,
        "cores": [{"core": 0}],
        "notes": {},
        "critical_path": [],
        "tensors": [
            {"name": "a_t", "role": "input", "shape": [2048, 2048], "dtype": "bfloat16"},
            {"name": "b", "role": "input", "shape": [2048, 2048], "dtype": "bfloat16"},
            {"name": "out", "role": "output", "shape": [2048, 2048], "dtype": "bfloat16"},
        ],
        "instructions": 2240,
        "left_out": {"loads": 0, "read_bytes": 0},
        "launch_ps": 13_500_000,
        "makespan_ps": makespan,
        "total_ps": makespan + 13_500_000,
        "engines": engines,
        "hbm": {
            "read_bytes": 33_554_432,
            "written_bytes": 8_388_608,
            "read_gb_per_s": 111.8,
            "written_gb_per_s": 27.96,
            "peak_gb_per_s": 368.0,
        },
        "flops": 2 * 2048**3,
        "flops_by_dtype": {"bfloat16": 2 * 2048**3},
        "mfu": 0.728,
        "mbu": 0.38,
        "roofline": {
            "intensity_flop_per_byte": 409.6,
            "bandwidth_gb_per_s": 368.0,
            "ridge_flop_per_byte": 213.6,
            "attainable_tflop_per_s": 78.6,
            "achieved_tflop_per_s": 57.3,
            "peak_tflop_per_s": 78.6,
            "least_ps": 218_450_000,
            "bound": "compute",
        },
        "sbuf": {"peak_partition_bytes": 100 * 2**10, "capacity_partition_bytes": 224 * 2**10, "filled": 0.4},
        "psum": {"peak_partition_bytes": 4096, "capacity_partition_bytes": 16384, "filled": 0.25},
        "lines": [
            {
                "file": f"a/long/way/to/kernels/matmul_{index}.py",
                "line": 40 + index,
                "function": "matmul",
                "source": "nisa.nc_matmul(dst=acc[...], stationary=a_tile, moving=b_tile, accumulate=k > 0)" * 2,
                "instruction": "nc_matmul",
                "engine": "tensor",
                "count": 2048,
                "busy_ps": 210_000_000,
                "share": 0.7,
                "stall_ps": 50_000_000,
                "stall_reason": "data_dma" if index else None,
                "waits": [],
                "waits_for": {"file": f"a/long/way/to/kernels/matmul_{index}.py", "line": 64} if index else None,
            }
            for index in range(9)
        ],
        "provenance": {
            "standings": {"documented": 0.856, "measured": 0.12, "fitted": 0.024, "assumed": 0.0},
            "figures": [
                {"figure": "tensor.clock_ghz", "standing": "documented", "share": 0.6},
                {"figure": "dma.load_gb_per_s", "standing": "documented", "share": 0.256},
                {"figure": "vector.single_cycles_per_element", "standing": "measured", "share": 0.12},
                {"figure": "vector.issue_cycles", "standing": "fitted", "share": 0.024},
            ],
        },
    }


def test_it_is_one_screen_of_plain_text(summary: dict[str, Any]) -> None:
    lines = report(summary).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= WIDTH
    assert "\x1b" not in "".join(lines)
    assert all(line == line.rstrip() for line in lines)


def test_many_tensors_leave_it_one_screen(summary: dict[str, Any]) -> None:
    summary["tensors"] *= 30
    text = report(summary)
    assert len(text.splitlines()) <= 40
    assert "and 54 more" in text


def test_colour_changes_nothing_but_escapes(summary: dict[str, Any]) -> None:
    coloured = report(summary, color=True)
    assert "\x1b" in coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in plain.splitlines()] == report(summary).splitlines()


def test_it_says_what_a_reader_asks_for(summary: dict[str, Any]) -> None:
    text = report(summary)
    assert "matmul on trn2" in text
    assert "simulated" in text
    assert "launch 13.5 µs" in text
    assert "kernel 300 µs" in text
    assert "MFU 72.8 % of 78.6" in text
    assert "MBU 38.0 % of 368" in text
    assert "compute bound, 78.6 TFLOPS attainable; 72.8 % reached" in text
    assert "read 33.6 MB at 112 GB/s" in text
    assert "a_t bfloat16[2048, 2048]" in text
    assert "matmul_0.py:40" in text
    assert "SBUF 100 KiB of 224 KiB" in text
    assert "data from DMA 50.0 µs (line 64)" in text
    assert re.search(r"^tensor +█+▒+·+ +70.0 % +16.7 % +13.3 % +data from DMA 13.3 %$", text, re.MULTILINE)


def test_it_says_what_loads_were_doing_and_what_the_path_is(summary: dict[str, Any]) -> None:
    summary["engines"]["tensor"]["causes_ps"] = {"dma_issue": 30_000_000, "dma_latency": 10_000_000}
    for line in summary["lines"]:
        line["waits"] = [{"cause": "dma_bandwidth", "stall_ps": 50_000_000, "place": None}]
    summary["critical_path"] = [{"share": 0.75, "instruction": "nc_matmul", "line": 41}] * 9
    text = report(summary)
    assert "data from DMA 13.3 % (most issue)" in text
    assert "DMA bandwidth 50.0 µs (line 64)" in text
    assert re.search(r"^Path +75.0 % nc_matmul in line 41, 75.0 % nc_matmul in line 41, 75.0 %", text, re.MULTILINE)
    assert len(text.splitlines()) <= 40


def test_the_dma_engines_are_one_row(summary: dict[str, Any]) -> None:
    rows = [line for line in report(summary).splitlines() if line.startswith("dma")]
    assert len(rows) == 1
    assert rows[0].startswith("dma ×16")
    assert "data from DMA 1.7 %; each 1.7–6.7 %" in rows[0]


def test_it_says_what_the_time_rests_on(summary: dict[str, Any]) -> None:
    text = " ".join(report(summary).split())
    assert "busy time rests on: 85.6 % documented, 12.0 % measured, 2.4 % fitted figures; above all" in text
    assert "above all tensor.clock_ghz, dma.load_gb_per_s, vector.single_cycles_per_element" in text
    assert "assumed" not in text
    summary["provenance"] = {"standings": dict.fromkeys(("documented", "measured"), 0.0), "figures": []}
    assert "no engine was busy" in report(summary)


def test_a_time_without_a_launch(summary: dict[str, Any]) -> None:
    alone = summary | {"launch_ps": 0, "total_ps": summary["makespan_ps"]}
    assert re.search(r"^Time +\S+ .s without a launch; shares below", report(alone), re.MULTILINE)


def test_a_kernel_without_traffic_or_time_has_a_report(summary: dict[str, Any]) -> None:
    empty = copy.deepcopy(summary)
    empty |= {
        "makespan_ps": 0,
        "total_ps": empty["launch_ps"],
        "flops": 0,
        "mfu": 0.0,
        "mbu": 0.0,
        "lines": [],
    }
    empty["engines"] = {name: engine(0, {}, 0) for name in ENGINES}
    empty["roofline"] |= {"intensity_flop_per_byte": None, "attainable_tflop_per_s": 0.0}
    assert "no HBM traffic" in report(empty)


@pytest.mark.parametrize(
    ("ps", "text"),
    [
        (0, "0 ns"),
        (417, "417 ps"),
        (1_000, "1.00 ns"),
        (9_994, "9.99 ns"),
        (13_500_000, "13.5 µs"),
        (2 * 10**12, "2.00 s"),
    ],
)
def test_times(ps: int, text: str) -> None:
    assert units.time(ps) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (999, "999 B"), (33_554_432, "33.6 MB"), (17_179_869_184, "17.2 GB")]
)
def test_counts(value: int, text: str) -> None:
    assert units.decimal(value, "B") == text


@pytest.mark.parametrize(("size", "text"), [(24 * 2**20, "24 MiB"), (1536, "1.50 KiB"), (10, "10 B")])
def test_sizes(size: int, text: str) -> None:
    assert units.binary(size) == text


@pytest.mark.parametrize(("fraction", "text"), [(0, "0.0 %"), (0.0001, "<0.1 %"), (0.5, "50.0 %"), (1, "100.0 %")])
def test_percentages(fraction: float, text: str) -> None:
    assert units.percent(fraction) == text


def test_the_limit_is_an_engine_that_is_busy_or_none(summary: dict[str, Any]) -> None:
    makespan = summary["makespan_ps"]
    for engine in summary["engines"].values():
        engine["busy_ps"] = makespan // 2
    assert "Limit     no engine:" in report(summary)
    summary["engines"]["vector"]["busy_ps"] = makespan * 9 // 10
    assert "Limit     vector, busy 90.0 % of the time" in report(summary)


def test_without_multiplication_nothing_is_called_memory_bound(summary: dict[str, Any]) -> None:
    summary["flops"] = 0
    assert "no matrix multiplication;" in report(summary)
    assert "memory bound" not in report(summary)


def test_the_line_waited_for_goes_below_where_the_row_is_too_long(summary: dict[str, Any]) -> None:
    line = summary["lines"][0]
    line.update(stall_reason="throttle", stall_ps=8_870_000, waits_for={"file": line["file"], "line": 161})
    rows = report(summary).splitlines()
    first = next(index for index, row in enumerate(rows) if row.startswith("matmul_0.py:40"))
    assert rows[first].endswith("its full clock 8.87 µs")
    assert rows[first + 1] == " " * rows[first].index("its full clock") + "(line 161)"
    assert rows[first + 2].startswith("    nisa.nc_matmul(")


def test_a_last_column_goes_on_below_itself_wherever_it_is_too_long(summary: dict[str, Any]) -> None:
    """Numbers stay with their units, and nothing reaches beyond the width or the margin; of engines and lines."""
    makespan = summary["makespan_ps"]
    for number, (name, engine) in enumerate(summary["engines"].items()):
        if name.startswith("dma"):
            engine["busy_ps"] = makespan * number // 64
            engine["stall_ps"] = {"buffer": makespan // 4, "data_dma": 0}
            engine["causes_ps"] = {"sbuf_space": makespan // 4}
    line = summary["lines"][0]
    line.update(stall_reason="data_engine", stall_ps=8_870_000, waits_for={"file": line["file"], "line": 161_161})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("neurosim.report.text.words", lambda reason: "a number of reasons that nobody would count")
        text = report(summary)
    rows = text.splitlines()
    assert max(map(len, rows)) <= WIDTH
    for start, last, column in (
        ("dma ×16", "%", "mostly waits for"),
        ("matmul_0.py:40", "(line 161161)", "mostly waits for"),
    ):
        first = next(index for index, row in enumerate(rows) if row.startswith(start))
        margin = next(row for row in rows if column in row).index(column)
        blank = " " * margin
        below = list(itertools.takewhile(lambda row, blank=blank: row.startswith(blank), rows[first + 1 :]))
        assert below
        assert below[-1].endswith(last)
        assert not any(re.search(r"\d$", row) for row in (rows[first], *below))
