"""Advice: each rule speaks where a kernel is as it should not be, with the figure, and not of its twin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import neurosim
from neurosim.advice import RULES, Advice, Case, advice
from neurosim.result import Result

import nki  # isort: skip (importing neurosim makes it importable)
import nki.isa as nisa  # isort: skip
import nki.language as nl  # isort: skip


def loaded(source: Any, dtype: Any = None) -> Any:
    tile = nl.ndarray(source.shape, dtype=dtype or source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def stored(tile: Any) -> Any:
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def sums(a: Any, width: int) -> Any:
    """Add 1 to a tile, so many elements at a time."""
    tile = loaded(a)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    for start in range(0, a.shape[1], width):
        part = slice(start, start + width)
        nisa.tensor_scalar(dst=out[:, part], data=tile[:, part], op0=nl.add, operand0=1.0)
    return stored(out)


@nki.jit
def narrow_sums(a: Any) -> Any:
    return sums(a, 16)


@nki.jit
def wide_sums(a: Any) -> Any:
    return sums(a, 2048)


@nki.jit
def copied_by_columns(a: Any) -> Any:
    """Two elements of each row: 8 bytes side by side."""
    out = nl.ndarray((128, 64, 2), dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 64, 2), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a.reshape((128, 64, 64))[:, :, 0:2])
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def copied_by_rows(a: Any) -> Any:
    return stored(loaded(a[:, 0:2048]))


def multiplied(a: Any, b: Any, times: int) -> Any:
    a_tile, b_tile = loaded(a), loaded(b)
    product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    for index in range(times):
        nisa.nc_matmul(dst=product, stationary=a_tile, moving=b_tile, accumulate=index > 0)
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=out, src=product)
    return stored(out)


@nki.jit
def product(a: Any, b: Any) -> Any:
    return multiplied(a, b, 16)


@nki.jit
def long_product(a: Any, b: Any) -> Any:
    return multiplied(a, b, 600)


@nki.jit
def loaded_again(a: Any) -> Any:
    out = nl.ndarray((128, 2048), dtype=a.dtype, buffer=nl.sbuf)
    for index in range(4):
        tile = loaded(a)
        nisa.tensor_scalar(dst=out[:, 512 * index : 512 * (index + 1)], data=tile, op0=nl.add, operand0=float(index))
    return stored(out)


@nki.jit
def loaded_once(a: Any) -> Any:
    tile = loaded(a)
    out = nl.ndarray((128, 2048), dtype=a.dtype, buffer=nl.sbuf)
    for index in range(4):
        nisa.tensor_scalar(dst=out[:, 512 * index : 512 * (index + 1)], data=tile, op0=nl.add, operand0=float(index))
    return stored(out)


def reciprocals(a: Any, engines: tuple[Any, ...]) -> Any:
    tile = loaded(a)
    for index in range(24):
        nisa.tensor_copy(dst=tile, src=tile, engine=engines[index % len(engines)])
    return stored(tile)


@nki.jit
def on_vector(a: Any) -> Any:
    return reciprocals(a, (nisa.vector_engine,))


@nki.jit
def on_both(a: Any) -> Any:
    return reciprocals(a, (nisa.vector_engine, nisa.scalar_engine))


def streamed(a: Any, buffers: int) -> Any:
    """Reduce tiles that share some buffers."""
    tiles = [nl.ndarray((128, 512), dtype=a.dtype, buffer=nl.sbuf) for _ in range(buffers)]
    out = nl.ndarray((128, 16), dtype=a.dtype, buffer=nl.sbuf)
    for index in range(16):
        tile = tiles[index % buffers]
        nisa.dma_copy(dst=tile, src=a[:, 512 * index : 512 * (index + 1)])
        nisa.tensor_reduce(dst=out[:, index : index + 1], op=nl.add, data=tile, axis=1)
    return stored(out)


@nki.jit
def one_buffer(a: Any) -> Any:
    return streamed(a, 1)


@nki.jit
def many_buffers(a: Any) -> Any:
    return streamed(a, 16)


@nki.jit
def transposed_by_the_array(a: Any) -> Any:
    tile = loaded(a)
    out = nl.ndarray((128, 512), dtype=a.dtype, buffer=nl.sbuf)
    for start in range(0, 512, 128):
        turned = nl.ndarray((128, 128), dtype=a.dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=turned, data=tile[:, start : start + 128])
        nisa.tensor_copy(dst=out[:, start : start + 128], src=turned)
    return stored(out)


@nki.jit
def transposed_by_a_dma(a: Any) -> Any:
    tile = nl.ndarray((128, 512), dtype=a.dtype, buffer=nl.sbuf)
    for start in range(0, 512, 128):
        nisa.dma_transpose(dst=tile[:, start : start + 128], src=a[:, start : start + 128])
    return stored(tile)


def scaled(a: Any, partitions: int) -> Any:
    tile = loaded(a[0:partitions, :])
    for _ in range(4):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    return stored(tile)


@nki.jit
def on_few_partitions(a: Any) -> Any:
    return scaled(a, 32)


@nki.jit
def on_all_partitions(a: Any) -> Any:
    return scaled(a, 128)


def copied_in(a: Any, width: int) -> Any:
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    for start in range(0, a.shape[1], width):
        nisa.dma_copy(dst=tile[:, start : start + width], src=a[:, start : start + width])
    return stored(tile)


@nki.jit
def many_loads(a: Any) -> Any:
    return copied_in(a, 128)


@nki.jit
def one_load(a: Any) -> Any:
    return copied_in(a, 2048)


def activated(a: Any, functions: tuple[Any, ...]) -> Any:
    tile = loaded(a)
    for function in functions:
        nisa.activation(dst=tile, op=function, data=tile)
    return stored(tile)


@nki.jit
def taking_turns(a: Any) -> Any:
    return activated(a, (nl.exp, nl.tanh) * 4)


@nki.jit
def one_after_the_other(a: Any) -> Any:
    return activated(a, (nl.exp,) * 4 + (nl.tanh,) * 4)


WIDE, HALF = neurosim.spec((128, 2048), "float32"), neurosim.spec((128, 128), "bfloat16")
A, B = neurosim.spec((128, 128), "float32"), neurosim.spec((128, 512), "float32")
HALF_B = neurosim.spec((128, 512), "bfloat16")

PAIRS: dict[str, tuple[tuple[Any, tuple[Any, ...]], tuple[Any, tuple[Any, ...]]]] = {
    "short_free_dimension": ((narrow_sums, (WIDE,)), (wide_sums, (WIDE,))),
    "small_descriptors": (
        (copied_by_columns, (neurosim.spec((128, 4096), "float32"),)),
        (copied_by_rows, (neurosim.spec((128, 4096), "float32"),)),
    ),
    "float32_matmul": ((product, (A, B)), (product, (HALF, HALF_B))),
    "cold_tensor_engine": ((product, (HALF, HALF_B)), (long_product, (HALF, HALF_B))),
    "reloaded_tensor": ((loaded_again, (B,)), (loaded_once, (B,))),
    "unbalanced_engines": ((on_vector, (WIDE,)), (on_both, (WIDE,))),
    "single_buffer": (
        (one_buffer, (neurosim.spec((128, 8192), "float32"),)),
        (many_buffers, (neurosim.spec((128, 8192), "float32"),)),
    ),
    "transposes_on_the_tensor_engine": (
        (transposed_by_the_array, (HALF_B,)),
        (transposed_by_a_dma, (HALF_B,)),
    ),
    "few_partitions": ((on_few_partitions, (WIDE,)), (on_all_partitions, (WIDE,))),
    "dma_issue": ((many_loads, (WIDE,)), (one_load, (WIDE,))),
    "table_loads": ((taking_turns, (WIDE,)), (one_after_the_other, (WIDE,))),
}
"""By rule: a kernel of which it speaks and one of which it does not, with their arguments."""

ORDER = {"schedule": "program"}  # the compiler's order may mend what a rule is about


def run(kernel: Callable[..., Any], arguments: tuple[Any, ...]) -> Result:
    return neurosim.simulate(kernel, "trn2", values=False, **ORDER)(*arguments)


def spoken(result: Result) -> dict[str, Advice]:
    case = Case(result.program, result.timelines)
    return {each.rule: each for rule in RULES for each in rule(case)}


@pytest.mark.parametrize("rule", PAIRS)
def test_a_rule_speaks_of_one_kernel_and_not_of_its_twin(rule: str) -> None:
    bad, good = (run(*each) for each in PAIRS[rule])
    found = spoken(bad).get(rule)
    assert found is not None, f"{rule} says nothing; others: {sorted(spoken(bad))}"
    assert rule not in spoken(good)
    assert found.figures
    assert found.threshold
    assert found.text.endswith(".")
    assert all(place.line > 0 and place.file.endswith("test_advice.py") for place in found.places)
    assert found.places, "no line is named"


def test_the_tile_that_is_waited_for_is_named() -> None:
    assert (
        " for old contents of tiles, before test_advice.py:"
        in spoken(run(*PAIRS["single_buffer"][0]))["single_buffer"].text
    )


def test_every_rule_has_its_pair() -> None:
    names = {
        each.rule
        for kernel, arguments in (pair[0] for pair in PAIRS.values())
        for each in spoken(run(kernel, arguments)).values()
    }
    assert names <= set(PAIRS)
    assert len(PAIRS) == len(RULES)


def test_figures_are_in_the_words() -> None:
    found = spoken(run(*PAIRS["small_descriptors"][0]))["small_descriptors"]
    assert found.figures["descriptor_bytes"] < 256
    assert f"{found.figures['descriptors']} descriptors" in found.text
    again = spoken(run(*PAIRS["reloaded_tensor"][0]))["reloaded_tensor"]
    assert again.figures["loaded_bytes"] == 4 * 128 * 512 * 4
    assert again.figures["distinct_bytes"] == 128 * 512 * 4
    assert again.figures["tensor"] == "a"
    assert "4.00 times" in again.text


def test_advice_comes_by_what_it_gains_and_only_if_there_is_something_to_be_had() -> None:
    result = run(product, (A, B))
    found = result.advice()
    gains = [each.gain_ps or 0 for each in found]
    assert gains == sorted(gains, reverse=True)
    assert found[0].gain_ps is not None
    for each in found:
        if each.gain_ps is not None:
            assert result.what_if(**each.changes).gain_ps == each.gain_ps
            assert each.gain_ps >= 0.01 * result.timeline.makespan_ps
    asked = {each.rule for each in advice(result.program, result.timelines, result.chip)}
    assert asked >= {each.rule for each in found}


def test_a_kernel_with_nothing_on_the_chip_gets_no_advice() -> None:
    @nki.jit
    def copied(a: Any) -> Any:
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=a)
        return out

    result = neurosim.simulate(copied, "trn2")(np.zeros((128, 2048), np.float32))
    assert spoken(result) == {}


@nki.jit
def with_a_tail(a: Any) -> Any:
    """Tiles of 128 rows, and one of the 44 that are left."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for start in range(0, a.shape[0], 128):
        rows = min(128, a.shape[0] - start)
        tile = nl.ndarray((rows, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[start : start + rows])
        for _ in range(4):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=out[start : start + rows], src=tile)
    return out


def test_rows_that_are_left_over_are_no_few_partitions() -> None:
    assert "few_partitions" not in spoken(run(with_a_tail, (neurosim.spec((172, 2048), "float32"),)))
    assert "few_partitions" in spoken(run(with_a_tail, (neurosim.spec((44, 2048), "float32"),)))


def test_only_small_dmas_are_told_to_move_more() -> None:
    small, large = run(many_loads, (WIDE,)), run(large_loads, (neurosim.spec((128, 16384), "float32"),))
    assert "Move more bytes" in spoken(small)["dma_issue"].text
    assert "Move more bytes" not in spoken(large)["dma_issue"].text


@nki.jit
def large_loads(a: Any) -> Any:
    return copied_in(a, 256)


def test_advice_and_what_ifs_print_as_words() -> None:
    result = run(*PAIRS["float32_matmul"][0])
    first = result.advice()[0]
    assert str(first).startswith(first.text)
    assert str(first).endswith(" shorter.")
    assert repr(first) == f"Advice({first.rule}: {first})"
    found = result.what_if(dma_bandwidth=2)
    assert " µs would be " in str(found)
    assert repr(found) == f"WhatIf({found})"
