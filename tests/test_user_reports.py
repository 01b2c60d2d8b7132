"""What went wrong elsewhere: docs/user_reports.md names tests for each report; those that stood nowhere are here."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.analysis.dependences import Dependence, dependences
from neurosim.errors import CapacityExceeded

TESTS = Path(__file__).resolve().parent
DOCUMENT = TESTS.parent / "docs" / "user_reports.md"
X = np.arange(64 * 16, dtype=np.float32).reshape(64, 16)


def rows() -> list[list[str]]:
    """Return the cells of the document's rows, headings left out."""
    lines = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "| Held by |" not in line]


def test_every_report_names_tests_that_exist() -> None:
    table = rows()
    assert len(table) > 110
    functions: dict[str, set[str]] = {}
    missing = []
    for symptom, *_, held in table:
        named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", held)
        if not named or len(named) != held.count("`") // 2:
            missing.append(f"{symptom}: {held}")
        for file, test in named:
            path = TESTS / file
            if file not in functions:
                tree = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else ast.Module([], [])
                functions[file] = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            if test not in functions[file]:
                missing.append(f"{file}::{test}")
    assert missing == []


def test_every_row_has_a_symptom_an_answer_and_a_source_by_name() -> None:
    for row in rows():
        assert len(row) == 4
        symptom, source, here, _ = row
        assert symptom
        assert here
        assert not source or re.search(r"\w+#\d+|NKI|guide|source|Explorer|plans|Pallas", source), row


@pytest.mark.parametrize("chip", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("memory", ["sbuf", "psum"])
def test_each_chip_has_its_own_limit(chip: str, memory: str) -> None:
    found = neurosim.load_chip(chip)
    limit = found.sbuf.partition_bytes if memory == "sbuf" else found.psum.banks * found.psum.bank_bytes

    def kernel(size: int) -> None:
        tiles = [nl.ndarray((128, part), nl.uint8, getattr(nl, memory)) for part in (limit // 2, size - limit // 2)]
        for tile in tiles:
            nisa.memset(dst=tile, value=0)
        for tile in tiles:
            nisa.tensor_copy(dst=tile[:, 0:1], src=tile[:, 1:2])

    usage = neurosim.profile(kernel, chip)(limit).summary()[memory]
    assert usage["peak_partition_bytes"] == usage["capacity_partition_bytes"] == limit
    with pytest.raises(CapacityExceeded, match=chip):
        neurosim.simulate(kernel, chip)(limit + 1)


def test_an_activation_that_reduces_nothing_leaves_sums_alone() -> None:
    """By default ``reduce_cmd`` is idle: a sum that was begun goes on behind two activations without one."""

    def kernel(x: Any, between: bool) -> Any:
        tile, other, total = nl.load(x), nl.load(x), nl.ndarray((64, 1), nl.float32)
        command = nisa.reduce_cmd
        nisa.activation(dst=tile, op=nl.copy, data=tile, reduce_op=nl.add, reduce_cmd=command.reset_reduce)
        if between:
            nisa.activation(dst=other, op=nl.square, data=other)
            nisa.activation(dst=other, op=nl.square, data=other)
        nisa.activation(dst=tile, op=nl.copy, data=tile, reduce_op=nl.add, reduce_res=total, reduce_cmd=command.reduce)
        out = nl.ndarray((64, 1), nl.float32, nl.shared_hbm)
        nl.store(out, total)
        return out

    for between in (False, True):
        found = neurosim.simulate(kernel)(X, between).outputs
        np.testing.assert_array_equal(found, 2 * X.sum(axis=1, keepdims=True))


def test_a_kernel_with_a_barrier_runs_again() -> None:
    @nki.jit
    def kernel(x: Any) -> Any:
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        core = nl.program_id(0)
        half = slice(32 * core, 32 * core + 32)
        nl.store(out[half], nl.load(x[half]))
        nisa.core_barrier(out, (0, 1))
        other = slice(32 * (1 - core), 32 * (1 - core) + 32)
        nl.load(out[other])
        return out

    first, again = (neurosim.profile(kernel[2], replay=False)(X) for _ in "ab")
    np.testing.assert_array_equal(first.outputs, X)
    np.testing.assert_array_equal(again.outputs, X)
    assert first.program.listing() == again.program.listing()
    assert first.timeline.makespan_ps == again.timeline.makespan_ps


def test_two_stores_to_one_row_keep_their_order_on_two_queues() -> None:
    def kernel(x: Any) -> Any:
        out = nl.ndarray((8, 16), x.dtype, nl.shared_hbm)
        one, two = nl.load(x[0:8]), nl.load(x[8:16])
        nisa.dma_copy(dst=out, src=one, engine=nisa.engine.scalar, dge_mode=nisa.dge_mode.hwdge)
        nisa.dma_copy(dst=out, src=two, dge_mode=nisa.dge_mode.swdge)
        return out

    result = neurosim.profile(kernel)(X)
    np.testing.assert_array_equal(result.outputs, X[8:16])
    first, second = len(result.program) - 2, len(result.program) - 1
    engines = {result.program.record(record).signature.engine.name for record in (first, second)}
    assert engines == {"scalar", "gpsimd"}
    assert (first, Dependence.WAW) in dependences(result.program).of(second)
    assert result.timeline.start_ps[second] >= result.timeline.complete_ps[first]


def test_a_report_is_the_same_however_long_it_took() -> None:
    def kernel(x: Any) -> None:
        nl.store(x, nl.load(x))

    first, again = (neurosim.profile(kernel, replay=False)(X.copy()) for _ in "ab")
    assert first.report() == again.report()
    assert first.summary() == again.summary()
    assert "simulated, not measured" in first.report().splitlines()[0]


@pytest.mark.parametrize("loop", [nl.affine_range, nl.sequential_range, nl.static_range])
def test_numbers_of_loops_do_not_wrap(loop: Any) -> None:
    (number,) = loop(np.int32(2**31 - 2), np.int32(2**31 - 1))
    assert type(number) is int
    assert (number * number, loop(np.int64(3))[-1]) == ((2**31 - 2) ** 2, 2)


@pytest.mark.parametrize("kind", [int, np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, "register"])
def test_every_kind_of_integer_is_the_same_place(kind: Any) -> None:
    def kernel(x: Any, index: Any) -> Any:
        out = nl.ndarray((4, 16), x.dtype, nl.shared_hbm)
        if kind == "register":
            register = nisa.register_alloc()
            nisa.register_load(register, nl.load(index))
            nl.store(out, nl.load(x[nl.ds(register, 4)]))
        else:
            start, size = kind(8), kind(4)
            tile = nl.load(x[start : start + size])
            assert nl.load(x[nl.ds(start, size)]).shape == tile.shape
            nl.store(out, tile)
        return out

    found = neurosim.simulate(kernel)(X, np.array([[8]], np.int32)).outputs
    np.testing.assert_array_equal(found, X[8:12])


@pytest.mark.parametrize("step", [32767, 32768, 46208, 100_000])
def test_steps_as_long_as_a_partition(step: int) -> None:
    def kernel() -> Any:
        tile = nl.ndarray((1, 2 * step), nl.uint8)
        nisa.memset(tile, value=1)
        nisa.memset(tile[:, ::step], value=7)
        out = nl.ndarray((1, 2 * step), nl.uint8, nl.shared_hbm)
        nl.store(out, tile)
        return out

    found = neurosim.simulate(kernel)().outputs
    assert np.flatnonzero(found[0] == 7).tolist() == [0, step]
