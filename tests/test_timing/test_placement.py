"""What Vector and Scalar do alike is timed where less is to be done."""

from __future__ import annotations

from dataclasses import replace

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.analysis import dependences, lifetimes
from neurosim.engines import Engine
from neurosim.timing import time
from neurosim.timing.placement import REACH, placed, recorded

BOTH = frozenset({Engine.vector, Engine.scalar})


def share(builder, law="copy"):
    """Let the record say that this instruction gives the same bits on Scalar."""
    program = builder.program
    program.signatures = [replace(s, engines=BOTH) if s.instruction == law else s for s in program.signatures]


def engines(placement, law="copy"):
    signatures = [placement.signatures[number] for number in placement.numbers]
    return [signature.engine.name for signature in signatures if signature.instruction == law]


def test_equal_work_is_shared_out(builder, trn2):
    for _ in range(20):
        builder.lanes("copy", builder.tile(512), builder.psum(512))
    share(builder)
    found = engines(placed(builder.program, trn2))
    assert found[:2] == ["scalar", "vector"]  # Scalar's copies out of PSUM are the shorter ones
    assert 10 <= found.count("scalar") <= 12


@pytest.mark.parametrize(
    ("law", "engine", "other"), [("reduce", "vector", "scalar"), ("activation", "scalar", "vector")]
)
def test_who_has_work_of_its_own_gets_less_of_it(builder, trn2, law, engine, other):
    for _ in range(8):
        builder.lanes("copy", builder.tile(512), builder.psum(512))
    for _ in range(16):
        builder.lanes(law, builder.tile(512), builder.tile(512), engine=Engine[engine])
    share(builder)
    assert engines(placed(builder.program, trn2)) == [other] * 8


def test_work_far_away_does_not_count(builder, trn2):
    for _ in range(REACH):
        builder.lanes("copy", builder.tile(64), builder.psum(64))
    for _ in range(REACH):
        builder.lanes("reduce", builder.tile(64), builder.tile(64))
    share(builder)
    near = engines(placed(builder.program, trn2))
    assert 0.4 < near.count("scalar") / REACH < 0.7


def test_cores_are_balanced_apart(builder, trn2):
    for core in (0, 1):
        for _ in range(4):
            builder.lanes("copy", builder.tile(512), builder.psum(512), core=core)
    for _ in range(8):
        builder.lanes("reduce", builder.tile(512), builder.tile(512), core=0)
    share(builder)
    assert engines(placed(builder.program, trn2))[:4] == ["scalar"] * 4
    assert engines(placed(builder.program, trn2))[4:].count("vector") == 2


def test_all_trips_of_a_loop_on_the_device_use_the_same_engines(trn2):
    """Its body is one piece of code, though sixteen trips of unequal work would balance better apart."""

    def kernel():
        out = nl.ndarray((128, 64), nl.float32, nl.shared_hbm)
        total = nl.ones((128, 64), nl.float32)

        def body(_):
            for _ in range(3):
                nisa.tensor_scalar(dst=total, data=total, op0=nl.multiply, operand0=1.0)

        nl.fori_loop(0, 16, body)
        nisa.dma_copy(dst=out, src=total)
        return out

    program = neurosim.simulate(kernel)().program
    found = engines(placed(program, trn2), "tensor_scalar")
    assert len(found) == 48
    assert set(found[:3]) == {"vector", "scalar"}
    assert found == 16 * found[:3]


def test_only_the_compilers_schedule_moves_anything(builder, trn2):
    for _ in range(6):
        builder.lanes("copy", builder.tile(512), builder.psum(512))
    assert engines(placed(builder.program, trn2)) == ["vector"] * 6  # nothing is shared
    share(builder)
    busy = {schedule: time(builder.program, trn2, schedule=schedule)[0].busy_ps for schedule in ("program", "compiler")}
    assert busy["program"]["scalar"] == 0
    assert busy["compiler"]["scalar"] > 0
    assert engines(recorded(builder.program)) == ["vector"] * 6


def test_a_program_is_analysed_once(builder, trn2, monkeypatch):
    """Whatever is moved: dependences and lifetimes are the recorded program's, and a changed chip finds them there."""
    for _ in range(6):
        builder.lanes("copy", builder.tile(512), builder.psum(512))
    share(builder)
    before = time(builder.program, trn2)[0]
    assert before.busy_ps["scalar"] > 0
    for module in (dependences, lifetimes):
        monkeypatch.setattr(module, "_compute", None)
    assert time(builder.program, trn2.replace(vector__clock_ghz=0.5))[0].makespan_ps > before.makespan_ps


def many_copies(x, engine=nisa.engine.unknown):
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    result = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    for start in range(0, x.shape[1], 64):
        nisa.tensor_scalar(dst=result[:, start : start + 64], data=tile[:, start : start + 64],
                           op0=nl.multiply, operand0=3.0, op1=nl.add, operand1=1.0, engine=engine)  # fmt: skip
    nisa.dma_copy(dst=out, src=result)
    return out


@pytest.mark.parametrize("chip", ["trn1", "trn2", "trn3"])
def test_a_kernel_that_leaves_the_engine_open_uses_both(chip):
    x = np.random.default_rng(0).standard_normal((128, 1024)).astype(np.float32)
    open_, named = (
        neurosim.profile(many_copies, chip)(x, engine) for engine in (nisa.engine.unknown, nisa.engine.vector)
    )
    assert open_.outputs.tobytes() == named.outputs.tobytes()
    assert named.timeline.busy_ps["scalar"] == 0
    shares = [open_.timeline.busy_ps[name] for name in ("vector", "scalar")]
    assert min(shares) > 0.7 * max(shares)
    lines = open_.summary()["lines"]
    assert {line["engine"] for line in lines if line["instruction"] == "tensor_scalar"} == {"vector", "scalar"}
    figures = {each["figure"].partition(".")[0] for each in open_.summary()["provenance"]["figures"]}
    assert figures >= {"vector", "scalar"}
