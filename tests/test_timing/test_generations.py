"""What the documents say about one generation and not about another, as ratios of times.

Sources: AWS Neuron SDK, trainium2_arch.rst:194-237 and trainium3_arch.rst:46-61, 145-150, 215-218.
"""

from __future__ import annotations

import numpy as np
import pytest

from neurosim.engines import Engine, Memory

SBUF, PSUM = Memory.sbuf, Memory.psum
MANY = 8192


def cycles(builder, chip, law, formats, engine=Engine.vector, memories=(SBUF, SBUF), **options):
    """Cycles per element of an instruction of one input."""
    source, dst = (builder.tile(MANY, dtype, memory) for dtype, memory in zip(formats, memories, strict=True))
    for _ in range(2):
        builder.lanes(law, builder.tile(MANY, dst.pattern.dtype, memories[1]), source, engine=engine, **options)
    clock_ghz = chip.vector.clock_ghz if engine is Engine.vector else chip.scalar.clock_ghz
    return np.diff(builder.time(chip).start_ps)[-1] / 1000 * clock_ghz / MANY


def per_chip(new_builder, chips, *args, **options):
    return [cycles(new_builder(chips[name].generation), chips[name], *args, **options) for name in TRAINIUM]


TRAINIUM = ("trn1", "trn2", "trn3")
F32, BF16, F8 = ("float32",) * 2, ("bfloat16",) * 2, ("float8_e4m3",) * 2


@pytest.mark.parametrize(
    ("law", "formats", "expected"),
    [
        ("copy", F32, (1, 0.5, 0.5)),
        ("copy", BF16, (1, 0.26, 0.26)),
        ("copy", F8, (1, 0.5, 0.26)),
        ("tensor_scalar", ("bfloat16", "float16"), (1, 0.26, 0.26)),
        ("tensor_scalar", ("float8_e5m2", "bfloat16"), (1, 0.77, 0.26)),
    ],
)
def test_vector_modes(new_builder, chips, law, formats, expected):
    assert per_chip(new_builder, chips, law, formats) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    ("memories", "step_bytes", "expected"),
    [((SBUF, SBUF), 2, 0.26), ((SBUF, SBUF), 4, 0.5), ((PSUM, SBUF), 2, 0.5), ((PSUM, SBUF), 4, 1)],
)
def test_rows_may_lie_apart_in_a_performance_mode_but_not_their_elements(
    builder, chips, memories, step_bytes, expected
):
    passed = cycles(builder, chips["trn2"], "copy", BF16, memories=memories, step_bytes=step_bytes)
    assert passed == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("law", ["copy", "tensor_scalar"])
def test_scalar_moves_two_elements_in_a_cycle_on_trn3(new_builder, chips, law):
    def moved(formats, **options):
        return per_chip(new_builder, chips, law, formats, engine=Engine.scalar, **options)

    assert moved(F32) == pytest.approx([1, 1, 1], rel=0.05)
    for formats in (BF16, F8):
        assert moved(formats) == pytest.approx([1, 1, 0.5], rel=0.05)
    assert moved(("bfloat16", "float32")) == pytest.approx([1, 1, 1], rel=0.05)
    assert moved(BF16, memories=(PSUM, SBUF)) == pytest.approx([1, 1, 0.5], rel=0.05)
    assert moved(BF16, memories=(PSUM, SBUF), step_bytes=4) == pytest.approx([1, 1, 1], rel=0.05)


def test_an_activation_does_not(new_builder, chips):
    for table in ("exp", "copy"):
        passed = per_chip(new_builder, chips, "activation", BF16, engine=Engine.scalar, table=table)
        assert passed == pytest.approx([1, 1, 1], rel=0.05)


def transposes_ns(new_builder, chip, dtype, hint=False):
    """From start to start of transposes, and from the start of one to its result."""
    builder = new_builder(chip.generation)
    tile = builder.tile(128, dtype)
    for _ in range(4):
        builder.matmul(builder.psum(128, dtype), tile, tile, transpose=True, hint=hint)
    timeline = builder.time(chip)
    return np.diff(timeline.start_ps)[-1] / 1000, (timeline.complete_ps[-1] - timeline.start_ps[-1]) / 1000


def test_transposes(new_builder, chips):
    """float32 passes twice, or since trn2 once if moving holds ones and zeros; on trn3, one runs behind the other."""
    hinted = {name: transposes_ns(new_builder, chips[name], "float32", hint=True) for name in TRAINIUM}
    held = {
        (name, dtype): transposes_ns(new_builder, chips[name], dtype)
        for name in TRAINIUM
        for dtype in ("float32", "bfloat16")
    }
    assert held["trn1", "float32"][0] == pytest.approx(2 * held["trn1", "bfloat16"][0], abs=0.01)
    assert held["trn2", "float32"][0] == pytest.approx(2 * held["trn2", "bfloat16"][0], abs=0.01)
    assert hinted["trn1"] == held["trn1", "float32"]
    assert hinted["trn2"][0] == pytest.approx(held["trn2", "bfloat16"][0])
    assert held["trn3", "bfloat16"][0] == pytest.approx(held["trn2", "bfloat16"][0] / 2, abs=0.01)
    assert held["trn3", "bfloat16"][1] == pytest.approx(held["trn2", "bfloat16"][1], abs=60)


@pytest.mark.parametrize("engine", [Engine.vector, Engine.scalar])
def test_an_engine_waits_for_itself_through_a_semaphore_on_trn1(new_builder, chips, engine):
    waits = []
    for name in TRAINIUM:
        builder = new_builder(chips[name].generation)
        tiles = [builder.tile(64) for _ in range(3)]
        builder.lanes("copy", tiles[1], tiles[0], engine=engine)
        builder.lanes("copy", tiles[2], tiles[1], engine=engine)
        timeline = builder.time(chips[name])
        waits.append(timeline.start_ps[1] - timeline.complete_ps[0])
    assert waits == [30_000, 0, 0]
