"""Operands whose neighbours lie 16 bytes or more apart: memory has half its rate for them, whichever engine asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nki.isa as nisa
import nki.language as nl
import pytest

import neurosim
from neurosim.timing import Op, Timeline

N = 128


def tile(dtype: Any, every: int = 1, buffer: Any = nl.sbuf, *, is_written: bool = True) -> Any:
    """Return [128, N] elements, each ``every`` elements from the next."""
    made = nl.ndarray((128, N * every), dtype=dtype, buffer=buffer)
    if is_written:
        nisa.memset(dst=made, value=0)
    return made[:, ::every] if every > 1 else made


def timeline(body: Callable[[], None], chip: str) -> Timeline:
    """Return when a kernel's instructions run, in its own order and at the full clock."""

    def kernel(x: Any) -> Any:
        body()
        return x

    argument = neurosim.spec((1, 1), "float32")
    return neurosim.profile(kernel, chip, values=False, schedule="program", throttle=False)(argument).timeline


def product(dtype: Any, stationary: int = 1, moving: int = 1, result: int = 1) -> Callable[[], None]:
    """One nc_matmul of N columns, each operand strided as asked."""

    def body() -> None:
        dst = tile(nl.float32, result, nl.psum, is_written=False)
        nisa.nc_matmul(dst=dst, stationary=tile(dtype, stationary), moving=tile(dtype, moving))

    return body


def transposed(dtype: Any, data: int = 1, result: int = 1) -> Callable[[], None]:
    """One nc_transpose on the tensor engine."""

    def body() -> None:
        dst = tile(dtype, result, nl.psum, is_written=False)
        nisa.nc_transpose(dst=dst, data=tile(dtype, data), engine=nisa.engine.tensor)

    return body


def busy_ps(found: Timeline, op: Op) -> int:
    """Return how long a kind of operation was at work."""
    return int(found.ops[found.ops["kind"] == op]["busy_ps"].sum())


def latency_ps(found: Timeline) -> int:
    """Return what the last instruction takes, from its start to its result."""
    return int(found.complete_ps[-1] - found.start_ps[-1])


@pytest.mark.parametrize("chip", ["trn1", "trn2"])
@pytest.mark.parametrize("strided", [{"moving": 8}, {"result": 4}, {"moving": 8, "result": 4}], ids=str)
def test_products_pass_at_half_the_rate(chip: str, strided: dict[str, int], chips: Any) -> None:
    """Whether the array waits for columns or for places, and no longer where it waits for both."""
    slower = (chips[chip].sbuf.strided_slowdown - 1) * N / chips[chip].tensor.clock_ghz * 1000
    found, dense = (timeline(product(nl.bfloat16, **each), chip) for each in (strided, {}))
    assert busy_ps(found, Op.MATMUL) - busy_ps(dense, Op.MATMUL) == pytest.approx(slower, abs=1)


def test_neighbours_closer_than_16_bytes_pass_at_the_full_rate() -> None:
    found, dense = (timeline(product(nl.bfloat16, **each), "trn2") for each in ({"moving": 4, "result": 3}, {}))
    assert latency_ps(found) == latency_ps(dense)


@pytest.mark.parametrize("kernel", [product, transposed])
def test_fast_loads_take_twice_as_long(kernel: Any, chips: Any) -> None:
    """A LoadStationary that takes four columns in a cycle waits for memory."""
    chip = chips["trn2"]
    slower = (chip.sbuf.strided_slowdown - 1) * chip.tensor.fast_load_cycles / chip.tensor.clock_ghz * 1000
    found, dense = (latency_ps(timeline(kernel(nl.bfloat16, each), "trn2")) for each in (8, 1))
    assert found - dense == pytest.approx(slower, abs=1)


@pytest.mark.parametrize("kernel", [product, transposed])
def test_loads_of_single_columns_hide_the_stride(kernel: Any) -> None:
    """VOY's transposes of every 4th to 32nd float32 take 488 ns in place of 479, and follow each other as others do."""
    found, dense = (latency_ps(timeline(kernel(nl.float32, each), "trn2")) for each in (4, 1))
    assert found == dense


@pytest.mark.parametrize("chip", ["trn1", "trn2"])
def test_gpsimd_passes_at_half_the_rate(chip: str, chips: Any) -> None:
    def iota(every: int) -> Callable[[], None]:
        def body() -> None:
            dst = tile(nl.int32, every, is_written=False)
            nisa.iota(dst=dst, pattern=[[1, N]], offset=0, channel_multiplier=1)

        return body

    figures = chips[chip]
    slower = (figures.sbuf.strided_slowdown - 1) * N / figures.gpsimd.clock_ghz * 1000
    found, dense = (latency_ps(timeline(iota(every), chip)) for every in (4, 1))
    assert found - dense == pytest.approx(slower, abs=1)
