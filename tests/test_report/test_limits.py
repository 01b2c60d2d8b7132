"""What limits a kernel, as the summary, the terminal and the command line have it."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

import neurosim
from neurosim.errors import ConfigurationError
from neurosim.report.limits import plain
from neurosim.report.screen import WIDTH
from neurosim.result import Result
from neurosim.shell.loading import load_kernel, packaged_kernel
from neurosim.shell.question_options import answer, parsed


@pytest.fixture(scope="module")
def result() -> Result:
    kernel = load_kernel(f"{packaged_kernel('matmul.py')}:matmul")
    return neurosim.simulate(kernel, "trn2")(*(np.ones((256, 512), np.float32) for _ in range(2)))


def test_the_lines_of_the_critical_path_add_up_to_the_makespan(result: Result) -> None:
    summary = result.summary()
    path = summary["critical_path"]
    assert sum(line["duration_ps"] for line in path) == summary["makespan_ps"]
    assert sum(line["share"] for line in path) == pytest.approx(1)
    assert [line["duration_ps"] for line in path] == sorted((line["duration_ps"] for line in path), reverse=True)
    for line in path:
        assert sum(line["causes_ps"].values()) == line["duration_ps"]
        assert line["instruction"] in line["source"]
        assert 0 < line["count"] <= summary["instructions"]


def test_two_cores_have_one_critical_path() -> None:
    kernel = load_kernel(f"{packaged_kernel('sharded_rmsnorm.py')}:sharded_rmsnorm")
    arrays = np.ones((256, 64), np.float32), np.ones(64, np.float32)
    summary = neurosim.simulate(kernel, "trn2")[2](*arrays).summary()
    assert sum(line["duration_ps"] for line in summary["critical_path"]) == summary["makespan_ps"]


def test_answers_are_printed_and_put_into_the_summary(result: Result) -> None:
    summary = result.summary()
    changes = parsed(["dma_bandwidth=2", "sbuf_space=inf, throttle=off"])
    assert changes == [{"dma_bandwidth": 2}, {"sbuf_space": math.inf, "throttle": False}]
    text = answer(result, summary, advice=True, what_if=changes, color=False)
    assert max(map(len, text.splitlines())) <= WIDTH
    for title in ("What if\n", "Critical path\n", "What if (each timed by itself)\n", "Advice\n"):
        assert title in text
    assert "bfloat16 operands of matmuls in place of float32" in text
    assert json.loads(json.dumps(summary)) == summary
    assert [row["text"] for row in summary["what_if"]] == ["dma_bandwidth=2", "sbuf_space=inf, throttle=False"]
    assert summary["what_if"][1]["changes"] == {"sbuf_space": "inf", "throttle": False}
    for row in (*summary["what_if"], *summary["what_ifs"]):
        assert row["before_ps"] - row["after_ps"] == row["gain_ps"]
        assert row["before_ps"] == summary["makespan_ps"]
    rules = {row["rule"]: row for row in summary["advice"]}
    assert rules["float32_matmul"]["figures"]["passes"] == 4
    assert rules["float32_matmul"]["what_if"] == {"matmul": "bfloat16"}
    assert rules["float32_matmul"]["gain_ps"] == result.what_if(matmul="bfloat16").gain_ps


def test_without_questions_nothing_is_said(result: Result) -> None:
    summary = result.summary()
    assert answer(result, summary, advice=False, what_if=[], color=False) == ""
    assert not {"what_if", "what_ifs", "advice"} & summary.keys()


@pytest.mark.parametrize("text", ["", "dma_bandwidth", "=2", "dma_bandwidth=", "dma_bandwidth=2,,throttle=off"])
def test_what_is_no_change_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is no change"):
        parsed([text])


def test_a_change_is_made_once() -> None:
    with pytest.raises(ConfigurationError, match="dma_latency is there twice"):
        parsed(["dma_latency=0,dma_latency=2"])


@pytest.mark.parametrize(
    ("value", "expected"), [(math.inf, "inf"), (2, 2), (True, True), ("a.py:3", "a.py:3"), (range(2), [0, 1])]
)
def test_values_are_what_json_knows(value: Any, expected: Any) -> None:
    assert plain(value) == expected
