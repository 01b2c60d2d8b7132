"""Reports of a long program: a trace that the viewer opens and adds up the same, and a page that is not too large."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import neurosim
from neurosim.shell.loading import load_module

CASES = Path(__file__).parents[2] / "benchmarks" / "costs" / "cases.py"
RECORDS = 100_000

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result() -> neurosim.Result:
    found: neurosim.Result = load_module(CASES).long_program(RECORDS)
    assert len(found.program) >= RECORDS
    return found


def test_the_viewer_opens_a_long_trace(
    result: neurosim.Result, processor: Callable[[Path], Any], tmp_path: Path
) -> None:
    result.perfetto(tmp_path / "trace.json.gz")
    with processor(tmp_path / "trace.json.gz") as opened:
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
        (count,) = opened.query("select count(*) as n from flow")
        assert count.n > RECORDS


def test_a_long_page_is_below_20_mb(result: neurosim.Result, tmp_path: Path) -> None:
    result.html(tmp_path / "page.html")
    assert 1_000_000 < (tmp_path / "page.html").stat().st_size < 20_000_000
