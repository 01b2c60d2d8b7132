"""What other tools read: operations as CSV and Parquet, and a summary's JSON against its schema."""

from __future__ import annotations

import copy
import csv
import gzip
import io
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import ConfigurationError
from neurosim.report.json_schema import json_schema
from neurosim.report.limits import what_if_rows
from neurosim.report.operations import SCHEMA
from neurosim.shell.loading import load_kernel, packaged_kernel
from neurosim.timing.timeline import Op


@pytest.fixture(scope="module")
def result() -> neurosim.Result:
    kernel = load_kernel(f"{packaged_kernel('attention.py')}:attention")
    spec = neurosim.spec((512, 64), "bfloat16")
    return neurosim.simulate(kernel, chip="trn2", values=False)(spec, spec, spec, causal=True)


@pytest.fixture(scope="module")
def two_cores() -> neurosim.Result:
    kernel = load_kernel(f"{packaged_kernel('sharded_rmsnorm.py')}:sharded_rmsnorm")
    return neurosim.simulate(kernel)[2](np.ones((256, 64), np.float32), np.ones(64, np.float32))


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


# Operations


def test_the_columns_are_those_of_the_timeline(result: neurosim.Result) -> None:
    columns, ops = result.operations(), result.timeline.ops
    for name in ("record", "start_ps", "end_ps", "busy_ps", "stall_ps", "held_ps"):
        assert columns[name].tolist() == ops[name].tolist()
    assert [result.timeline.units.index(name) for name in columns["engine"]] == ops["unit"].tolist()
    assert [Op[name.upper()] for name in columns["kind"]] == ops["kind"].tolist()
    assert len({len(values) for values in columns.values()}) == 1
    for name in columns:
        assert not name.endswith(("_ns", "_us")), "times are in picoseconds, and say so"


def test_a_row_says_where_it_comes_from_and_what_it_waited_for(result: neurosim.Result) -> None:
    columns, found, waited = result.operations(), result.causes(), 0
    for row in range(0, len(columns["record"]), 7):
        record = result.program.record(int(columns["record"][row]))
        frames = result.program.where(record.index)
        assert (columns["file"][row], columns["line"][row]) == (frames[0].file, frames[0].line)
        assert columns["function"][row] == frames[0].function
        assert columns["called_from"][row].count(" < ") == max(len(frames) - 2, 0)
        assert columns["instruction"][row] == record.signature.instruction
        assert columns["operands"][row].count(" SBUF") + columns["operands"][row].count(" HBM") > 0
        if columns["stall_ps"][row]:
            assert columns["stall_reason"][row]
            assert columns["waited_for_record"][row] == found.main_waited_for[row]
            waited += columns["waited_for_record"][row] >= 0
        else:
            assert columns["stall_reason"][row] == columns["stall_cause"][row] == ""
            assert columns["waited_for_record"][row] == -1
    assert waited
    copies = columns["instruction"] == "dma_copy"
    assert set(columns["queue"][copies]) == {"queue sync hwdge", "queue gpsimd swdge"}
    assert set(columns["queue"][~copies]) == {""}


def test_stalls_by_reason_add_up_to_the_accounts(two_cores: neurosim.Result) -> None:
    columns = two_cores.operations()
    stalls: dict[tuple[int, str, str], int] = defaultdict(int)
    for part, reason in (("stall_ps", "stall_reason"), ("held_ps", "held_reason")):
        for row in np.flatnonzero(columns[part]).tolist():
            stalls[int(columns["core"][row]), columns["engine"][row], columns[reason][row]] += int(columns[part][row])
    for core, timeline in two_cores.timelines.items():
        for engine, account in timeline.engines.items():
            for reason, ps in account.stall_ps.items():
                assert stalls[core, engine, reason] == ps
            mine = (columns["core"] == core) & (columns["engine"] == engine)
            assert columns["busy_ps"][mine].sum() == account.busy_ps


def test_csv_holds_the_columns(two_cores: neurosim.Result, tmp_path: Path) -> None:
    two_cores.csv(tmp_path / "ops.csv")
    two_cores.csv(tmp_path / "ops.csv.gz")
    text = (tmp_path / "ops.csv").read_text(encoding="utf-8")
    assert gzip.decompress((tmp_path / "ops.csv.gz").read_bytes()).decode() == text
    columns, rows = two_cores.operations(), rows_of(text)
    assert list(rows[0]) == list(columns)
    for name, values in columns.items():
        expected = ["" if name == "waited_for_record" and value == -1 else str(value) for value in values.tolist()]
        assert [row[name] for row in rows] == expected
    assert {row["core"] for row in rows} == {"0", "1"}


def test_parquet_holds_the_columns_and_what_was_run(two_cores: neurosim.Result, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    two_cores.parquet(tmp_path / "ops.parquet")
    table = parquet.read_table(tmp_path / "ops.parquet")
    columns = two_cores.operations()
    assert table.column_names == list(columns)
    for name, values in columns.items():
        expected = [None if name == "waited_for_record" and value == -1 else value for value in values.tolist()]
        assert table[name].to_pylist() == expected
    about = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    assert about["schema"] == SCHEMA == "neurosim.operations/1"
    assert (about["kernel"], about["chip"], about["schedule"]) == ("sharded_rmsnorm", "trn2", "compiler")
    assert about["neurosim"] == neurosim.__version__


def test_a_name_with_commas_and_quotes_stays_one_field(tmp_path: Path) -> None:
    def kernel(x: Any) -> Any:
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x, name='a, "b"\n–')
        return out

    small = neurosim.simulate(kernel)(np.ones((1, 8), np.float32))
    small.csv(tmp_path / "ops.csv")
    rows = rows_of((tmp_path / "ops.csv").read_text(encoding="utf-8"))
    assert {row["name"] for row in rows} == {'a, "b"\n–'}
    assert {row["operands"] for row in rows} == {"dst float32[1, 8] HBM, src float32[1, 8] HBM"}


def test_words_where_a_file_cannot_be_written(
    two_cores: neurosim.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for write in (two_cores.csv, two_cores.parquet):
        with pytest.raises(ConfigurationError, match="cannot write"):
            write(tmp_path / "nowhere" / "ops")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigurationError, match=r"a Parquet file needs pyarrow") as caught:
        two_cores.parquet(tmp_path / "ops.parquet")
    assert "pip install 'neurosim-npu[parquet]'" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


# The summary's JSON


def test_summaries_are_what_the_schema_says(result: neurosim.Result, two_cores: neurosim.Result) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    check = jsonschema.Draft202012Validator(schema)
    for summary in (result.summary(), two_cores.summary(), two_cores.summary(core=1)):
        check.validate(json.loads(json.dumps(summary)))
    for damage in (
        lambda summary: summary.pop("makespan_ps"),
        lambda summary: summary.update(schema="neurosim.summary/0"),
        lambda summary: summary["engines"]["tensor"].update(busy_ps=0.5),
        lambda summary: summary["roofline"].update(bound="neither"),
        lambda summary: summary["lines"][0].pop("share"),
    ):
        broken = copy.deepcopy(result.summary())
        damage(broken)
        assert not check.is_valid(broken)


def test_the_schema_names_every_field_of_a_summary(result: neurosim.Result) -> None:
    """A field that the types forget would pass unseen, as readers are to pass over what they do not know."""
    schema = json_schema()

    def walk(value: Any, of: dict[str, Any]) -> None:
        for options in (of, *of.get("anyOf", ())):
            if "$ref" in options and isinstance(value, dict):
                of_type = schema["$defs"][options["$ref"].rpartition("/")[2]]
                fields = of_type["properties"]
                assert set(of_type["required"]) <= set(value) <= set(fields)
                for name, inner in value.items():
                    walk(inner, fields[name])
            elif isinstance(value, list) and "items" in options:
                for inner in value:
                    walk(inner, options["items"])
            elif isinstance(value, dict) and isinstance(options.get("additionalProperties"), dict):
                for inner in value.values():
                    walk(inner, options["additionalProperties"])

    answers = {"what_if": what_if_rows([result.what_if(dma_bandwidth=2)])}
    walk(result.summary() | result.limits() | answers, schema)
