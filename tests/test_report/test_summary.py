"""The summary: its sums hold, JSON takes it, and its figures are those one can work out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import neurosim
from neurosim.report.text import report
from neurosim.shell.loading import load_kernel, packaged_kernel


def summarised(file: str, kernel: str, *arrays: Any, **options: Any) -> dict[str, Any]:
    function = load_kernel(f"{packaged_kernel(file)}:{kernel}")
    return neurosim.profile(function, chip="trn2")(*arrays, **options).summary()


@pytest.fixture(scope="module")
def matmul() -> dict[str, Any]:
    a_t, b = (np.ones((256, 512), ml_dtypes.bfloat16) for _ in range(2))
    return summarised("matmul.py", "matmul", a_t, b)


@pytest.fixture(scope="module")
def attention() -> dict[str, Any]:
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal((256, 64), dtype=np.float32) for _ in range(3)]
    return summarised("attention.py", "attention", *arrays, causal=True)


@pytest.fixture(params=["matmul", "attention"])
def summary(request: pytest.FixtureRequest) -> dict[str, Any]:
    return request.getfixturevalue(request.param)


def test_json_takes_it_and_gives_it_back(summary: dict[str, Any]) -> None:
    assert json.loads(json.dumps(summary)) == summary


def test_each_engine_accounts_for_the_whole_makespan(summary: dict[str, Any]) -> None:
    assert len(summary["engines"]) == 5 + 16
    for account in summary["engines"].values():
        parts = (account["busy_ps"], *account["stall_ps"].values(), account["idle_ps"])
        assert min(parts) >= 0
        assert sum(parts) == summary["makespan_ps"]


def test_the_lines_of_an_engine_add_up_to_its_busy_time(summary: dict[str, Any]) -> None:
    for name in ("tensor", "vector", "scalar", "gpsimd", "sync"):
        lines = [line["busy_ps"] for line in summary["lines"] if line["engine"] == name]
        assert sum(lines) == summary["engines"][name]["busy_ps"]
    engines = [account["busy_ps"] for name, account in summary["engines"].items() if name.startswith("dma")]
    assert sum(line["busy_ps"] for line in summary["lines"] if line["engine"] == "dma") == sum(engines)


def test_lines_show_their_source_and_come_costliest_first(summary: dict[str, Any]) -> None:
    shares = [line["share"] for line in summary["lines"]]
    assert shares == sorted(shares, reverse=True)
    for line in summary["lines"]:
        assert line["instruction"] in line["source"]
        assert line["file"].endswith(".py")


def test_utilisations_are_fractions(summary: dict[str, Any]) -> None:
    roof = summary["roofline"]
    assert 0 < summary["mfu"] <= 1
    assert 0 < summary["mbu"] <= 1
    assert 0 < roof["achieved_tflop_per_s"] <= roof["attainable_tflop_per_s"] <= roof["peak_tflop_per_s"]
    assert roof["least_ps"] <= summary["makespan_ps"]
    assert summary["total_ps"] == summary["launch_ps"] + summary["makespan_ps"]


def test_a_matmul_has_the_figures_of_its_size(matmul: dict[str, Any]) -> None:
    flops, read, written = 2 * 256 * 512 * 512, 2 * 256 * 512 * 2, 512 * 512 * 2
    assert matmul["flops"] == flops
    assert matmul["flops_by_dtype"] == {"bfloat16": flops}
    assert (matmul["hbm"]["read_bytes"], matmul["hbm"]["written_bytes"]) == (read, written)
    assert matmul["hbm"]["read_gb_per_s"] == pytest.approx(read / matmul["makespan_ps"] * 1e3)
    assert matmul["mfu"] == pytest.approx(flops / (matmul["makespan_ps"] * 78.6432))
    assert matmul["mbu"] == pytest.approx((read + written) * 1e3 / (matmul["makespan_ps"] * 716))
    roof = matmul["roofline"]
    assert roof["intensity_flop_per_byte"] == flops / (read + written)
    assert roof["peak_tflop_per_s"] == pytest.approx(78.6432)
    assert roof["bound"] == "memory"
    assert roof["attainable_tflop_per_s"] == pytest.approx(
        roof["intensity_flop_per_byte"] * roof["bandwidth_gb_per_s"] / 1e3
    )
    assert 368 < roof["bandwidth_gb_per_s"] < 435.2  # loads and stores have different rates


def test_float32_is_measured_against_its_own_peak() -> None:
    ones = np.ones((128, 128), np.float32)
    summary = summarised("matmul.py", "matmul", ones, ones)
    assert summary["flops_by_dtype"] == {"float32": 2 * 128**3}
    assert summary["roofline"]["peak_tflop_per_s"] == pytest.approx(78.6432 / 4)


def test_inputs_and_outputs_are_listed(matmul: dict[str, Any]) -> None:
    rows = [(tensor["role"], tensor["shape"], tensor["dtype"]) for tensor in matmul["tensors"]]
    assert rows == [
        ("input", [256, 512], "bfloat16"),
        ("input", [256, 512], "bfloat16"),
        ("output", [512, 512], "bfloat16"),
    ]


def test_waits_name_what_was_waited_for(matmul: dict[str, Any]) -> None:
    vector = matmul["engines"]["vector"]
    assert vector["waits_for_ps"]["tensor"] == vector["stall_ps"]["data_engine"]
    tensor = matmul["engines"]["tensor"]
    assert sum(tensor["waits_for_ps"].values()) <= sum(tensor["stall_ps"].values())
    copies = [line for line in matmul["lines"] if line["instruction"] == "tensor_copy"]
    (line,) = [line for line in copies if line["engine"] == "vector"]
    assert line["waits_for"]["instruction"] == "nc_matmul"
    assert line["waits_for"]["engine"] == "tensor"


def test_a_kernel_that_multiplies_nothing_has_a_roof_of_memory(tmp_path: Path) -> None:
    source = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def copy(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""
    (tmp_path / "copy.py").write_text(source, encoding="utf-8")
    kernel = load_kernel(f"{tmp_path / 'copy.py'}:copy")
    summary = neurosim.profile(kernel, chip="trn2")(np.ones((128, 4096), np.float32)).summary()
    roof = summary["roofline"]
    assert summary["flops"] == summary["mfu"] == roof["intensity_flop_per_byte"] == 0
    assert roof["bound"] == "memory"
    size_bytes = 128 * 4096 * 4
    assert roof["least_ps"] == pytest.approx(size_bytes * 1e3 / 368 + size_bytes * 1e3 / 435.2, rel=1e-6)
    assert "no matrix multiplication;" in report(summary)


def test_space_is_what_was_live(matmul: dict[str, Any]) -> None:
    assert 0 < matmul["psum"]["peak_partition_bytes"] <= matmul["psum"]["capacity_partition_bytes"] == 16384
    assert matmul["sbuf"]["capacity_partition_bytes"] == 224 * 1024
    assert 0 < matmul["sbuf"]["filled"] <= 1
