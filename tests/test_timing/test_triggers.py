"""Which engine triggers a DMA that the kernel leaves open: as recorded, and as a compiler's schedule has it."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
import pytest

import neurosim
from neurosim.engines import Engine
from neurosim.report.queues import queues_of
from neurosim.timing import Op
from neurosim.timing.placement import recorded
from neurosim.timing.triggers import triggered

X = neurosim.spec((128, 512), "float32")


def through_hbm(x: Any, **options: Any) -> Any:
    """Load, store to a tensor of the kernel's own, load that again, store the result."""
    tile, own, again = (
        nl.ndarray(x.shape, dtype=x.dtype, buffer=buffer) for buffer in (nl.sbuf, nl.private_hbm, nl.sbuf)
    )
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for dst, src in ((tile, x), (own, tile), (again, own), (result, again)):
        nisa.dma_copy(dst=dst, src=src, **options)
    return result


def triggers(result: Any) -> list[str]:
    """The engine that triggers each DMA, in program order."""
    ops = result.timeline.ops
    chosen = ops[ops["kind"] == Op.TRIGGER]
    return [result.timeline.units[op["unit"]] for op in chosen[chosen["record"].argsort()]]


def timed(kernel: Any, chip: str = "trn2", schedule: str = "compiler", **options: Any) -> Any:
    return neurosim.profile(kernel, chip, values=False, schedule=schedule)(X, **options)


@pytest.mark.parametrize("chip", ["trn2", "trn3"])
def test_own_tensors_are_hardwares(chip):
    assert triggers(timed(through_hbm, chip)) == ["sync", "scalar", "sync", "gpsimd"]


def test_in_program_order_the_record_decides():
    assert triggers(timed(through_hbm, schedule="program")) == ["sync", "gpsimd", "sync", "gpsimd"]


def test_static_rings_stay():
    assert triggers(timed(through_hbm, "trn1")) == triggers(timed(through_hbm, "trn1", "program"))
    assert triggers(timed(through_hbm, dge_mode=nisa.dge_mode.none)) == ["sync"] * 4


def test_what_the_kernel_says_holds():
    software = timed(through_hbm, dge_mode=nisa.dge_mode.swdge)
    assert triggers(software) == ["gpsimd"] * 4
    hardware = {"dge_mode": nisa.dge_mode.hwdge}
    assert triggers(timed(through_hbm, engine=nisa.engine.sync, **hardware)) == ["sync"] * 4
    assert triggers(timed(through_hbm, engine=nisa.engine.scalar, **hardware)) == ["scalar"] * 4
    assert triggers(timed(through_hbm, **hardware)) == ["sync", "scalar", "sync", "sync"]  # no engine is named


def test_what_converts_is_softwares():
    def kernel(x: Any) -> Any:
        tile = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.sbuf)
        own = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.private_hbm)
        nisa.dma_copy(dst=tile, src=x)
        nisa.dma_copy(dst=own, src=tile)
        return x

    assert triggers(timed(kernel)) == ["gpsimd", "gpsimd"]
    assert triggers(timed(kernel, "trn1")) == ["sync", "gpsimd"]


def test_queues_of_reports_are_those_that_were_chosen():
    result = timed(through_hbm)
    names, numbers = queues_of(result.program, result.timeline)
    assert names == ["queue scalar hwdge", "queue gpsimd swdge", "queue sync hwdge"]
    assert [names[number] for number in numbers[numbers >= 0]] == [names[number] for number in (2, 0, 2, 1)]


def test_nothing_changes_without_own_tensors(builder):
    builder.dma(builder.tile(), builder.hbm(), Engine.sync)
    before = recorded(builder.program)
    assert triggered(builder.program, before) is before
