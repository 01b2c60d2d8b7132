"""Published times of single instructions, one row each, against the instruction itself, recorded and timed alone."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import nki.isa as nisa
import nki.language as nl
import pytest

import neurosim

TOLERANCE = 0.05
ROWS = tomllib.loads((Path(__file__).parents[1] / "data" / "instruction_times.toml").read_text(encoding="utf-8"))["row"]
KEYS = {"name", "chip", "cold", "call", "operands", "options", "what", "ns", "slope", "cycles", "at", "source"}
OPERAND = re.compile(r"(\w+) (sbuf|psum) (?:(\d+)x)?(N|\d+)(?:/(\d+))?")


def tile(text: str, n: int, *, is_written: bool) -> Any:
    """Return an operand, as the data file spells it."""
    found = OPERAND.fullmatch(text)
    assert found, text
    dtype, memory, partitions, size, every = found.groups()
    free = n if size == "N" else int(size)
    step = int(every or 1)
    made = nl.ndarray((int(partitions or 128), free * step), dtype=getattr(nl, dtype), buffer=getattr(nl, memory))
    if is_written:
        nisa.memset(dst=made, value=0)
    return made[:, ::step] if every else made


def option(value: Any, n: int) -> Any:
    if value == "PATTERN":
        return [[1, n]]
    if isinstance(value, str):
        group, _, member = value.rpartition(".")
        return getattr(getattr(nisa, group), member) if group else getattr(nl, value)
    return value


def issue(row: dict[str, Any], n: int) -> None:
    """Issue the row's instruction several times, each into tiles of its own, from the same sources."""
    written = {"dst", "reduce_res"}
    sources = {name: tile(text, n, is_written=True) for name, text in row["operands"].items() if name not in written}
    results = [
        {name: tile(text, n, is_written=False) for name, text in row["operands"].items() if name in written}
        for _ in range(4 if row["call"] == "nc_matmul" else 2)  # a stream of matmuls takes longer to begin
    ]
    options = {name: option(value, n) for name, value in row.get("options", {}).items()}
    for result in results:
        getattr(nisa, row["call"])(**result, **sources, **options)


def model_ns(row: dict[str, Any], n: int) -> float:
    def kernel(x: Any) -> Any:
        issue(row, n)
        return x

    chip = row.get("chip", "trn2")
    options = {"schedule": "program", "throttle": row.get("cold", False)}
    result = neurosim.profile(kernel, chip, values=False, **options)(neurosim.spec((1, 1), "float32"))
    program = result.program
    calls = [program.signatures[number].instruction for number in program.signature_ids]
    issued = [index for index, call in enumerate(calls) if call == row["call"]]
    start_ps, complete_ps = result.timeline.start_ps, result.timeline.complete_ps
    if row["what"] == "ii":
        return (start_ps[issued[-1]] - start_ps[issued[-2]]) / 1000
    return (complete_ps[issued[0]] - start_ps[issued[0]]) / 1000


def bounds_ns(row: dict[str, Any], n: int) -> list[float]:
    if "cycles" in row:
        chip = neurosim.load_chip(row.get("chip", "trn2"))
        engine = {"activation": chip.scalar, "nc_matmul": chip.tensor}.get(row["call"], chip.vector)
        return [row["cycles"] * n / engine.clock_ghz] * 2
    slopes = row.get("slope", (0, 0))
    return [fixed + slope * n for fixed, slope in zip(row["ns"], slopes, strict=True)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_row(row: dict[str, Any]) -> None:
    assert set(row) <= KEYS
    for n in row["at"]:
        low, high = bounds_ns(row, n)
        model = model_ns(row, n)
        assert low * (1 - TOLERANCE) <= model <= high * (1 + TOLERANCE), f"N = {n}: {model:.1f} ns, not {low} to {high}"


def test_names_are_unique_and_both_questions_are_asked() -> None:
    names = [row["name"] for row in ROWS]
    assert len(set(names)) == len(names)
    assert {row["what"] for row in ROWS} == {"dur", "ii"}
    assert all(row["source"] for row in ROWS)
