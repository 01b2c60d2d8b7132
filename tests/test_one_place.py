"""One instruction, one place: what the class below declares is all that the simulator needs.

``weighted_difference`` is defined here, outside of the packages, and mentioned nowhere else. Checking, error text,
execution, written-ness, dependences, time, and its name in listing, report and trace follow from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.analysis.dependences import Dependence, dependences
from neurosim.chip import Chip
from neurosim.datapath.rules import Broken, column, not_both_in_psum, same_elements
from neurosim.datapath.streams import stream
from neurosim.engines import Engine, Memory
from neurosim.errors import IllegalCall, IllegalOperand, Uninitialized
from neurosim.execution.handle import NkiInstruction
from neurosim.execution.lanes import Lanes
from neurosim.instruction import In, Instruction, Out, Tile, emit
from neurosim.record.listing import listing
from neurosim.report.perfetto import write_trace
from neurosim.work import Lanewise, Work


class WeightedDifference(Instruction, mnemonic="weighted_difference", engines=(Engine.vector, Engine.gpsimd)):
    """dst = (data1 - data2) · weight, in float32; weight is a number or a [P, 1] tile."""

    dst: Tile = Out(Memory.sbuf, Memory.psum)
    data1: Tile = In(Memory.sbuf, Memory.psum)
    data2: Tile = In(Memory.sbuf, Memory.psum)
    weight: Tile | float = In(Memory.sbuf, number=True, default=1.0)
    squared: bool = False
    engine: Engine = Engine.unknown
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        yield same_elements("dst", self.dst, "data1", self.data1)
        yield same_elements("data1", self.data1, "data2", self.data2)
        yield not_both_in_psum("data1", self.data1, "data2", self.data2)
        yield column("weight", self.weight, self.data1, (nl.float32,))
        if not isinstance(self.squared, bool):
            yield Broken(f"squared={self.squared!r} is not a bool", (), "pass True or False")

    def execute(self, lanes: Lanes) -> None:
        difference = lanes.f32(self.data1) - lanes.f32(self.data2)
        if self.squared:
            difference = difference * difference
        lanes.put(self.dst, difference * np.float32(lanes.column(self.weight)))

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        inputs = (stream(self.data1), stream(self.data2))
        pointers = int(isinstance(self.weight, Tile))
        return (Lanewise("tensor_tensor", self.dst.free_elements, inputs, stream(self.dst), pointers=pointers),)


weighted_difference = emit(WeightedDifference)

F = np.float32
A = np.arange(32, dtype=F).reshape(4, 8)
B = np.full((4, 8), 3, F)
W = np.array([[1], [2], [0.5], [-1]], F)


def kernel(a, b, w, **options):
    x, y, weight = nl.load(a), nl.load(b), nl.load(w)
    result = nl.ndarray(x.shape, nl.bfloat16, nl.sbuf, name="result")
    weighted_difference(dst=result, data1=x, data2=y, weight=weight, name="toy", **options)
    nisa.tensor_scalar(dst=result, data=result, op0=nl.add, operand0=1.0)
    nisa.memset(dst=x, value=0.0)
    out = nl.ndarray(result.shape, result.dtype, nl.shared_hbm)
    nl.store(out, result)
    return out


@pytest.fixture(scope="module")
def result():
    return neurosim.profile(kernel)(A, B, W)


TOY = 3  # its record: after three loads


def test_execution(result):
    expected = ((A - B) * W).astype(nl.bfloat16).astype(F) + F(1)
    np.testing.assert_array_equal(result.outputs, expected.astype(nl.bfloat16))
    squared = neurosim.simulate(kernel)(A, B, W, squared=True).outputs
    expected = (np.square(A - B) * W).astype(nl.bfloat16).astype(F) + F(1)
    np.testing.assert_array_equal(squared, expected.astype(nl.bfloat16))


def test_the_record(result):
    record = result.program.record(TOY)
    assert record.signature.instruction == "weighted_difference"
    assert record.name == "toy"
    assert record.signature.engine is Engine.vector
    assert record.signature.engines == {Engine.vector, Engine.gpsimd}
    assert [pattern.role for pattern in record.signature.patterns] == ["dst", "data1", "data2", "weight"]
    assert dict(record.signature.parameters)["squared"] is False
    assert "weight" not in dict(record.signature.parameters)


def test_an_engine_may_be_asked_for():
    program = neurosim.simulate(kernel)(A, B, W, engine=nisa.engine.gpsimd).program
    assert program.record(TOY).signature.engines == {Engine.gpsimd}


def test_dependences(result):
    """It waits for the loads, the next instruction waits for it, and its input is not overwritten before it read."""
    found = dependences(result.program)
    assert {(record, kind) for record, kind in found.of(TOY) if kind is Dependence.RAW} == {
        (record, Dependence.RAW) for record in range(3)
    }
    assert (TOY, Dependence.RAW) in found.of(TOY + 1)
    assert (TOY, Dependence.WAR) in found.of(TOY + 2)


def test_time(result):
    """It is an op of its engine, after the loads and before what needs it, and longer for more elements."""
    timeline = result.timeline
    (op,) = timeline.ops[timeline.ops["record"] == TOY]
    assert timeline.units[op["unit"]] == "vector"
    assert op["end_ps"] > op["start_ps"] >= max(timeline.complete_ps[record] for record in range(3))
    assert timeline.complete_ps[TOY] <= timeline.complete_ps[TOY + 1]

    def busy(columns):
        def only():
            x, y = nl.ones((128, columns), nl.float32), nl.ones((128, columns), nl.float32)
            weighted_difference(x, x, y)

        timeline = neurosim.profile(only)().timeline
        return int(timeline.ops[timeline.ops["record"] == 2]["busy_ps"].sum())

    assert busy(4096) > 4 * busy(512) > 0


def test_names_in_listing_report_and_trace(result, tmp_path):
    assert "weighted_difference" in listing(result.program)
    line = listing(result.program).splitlines()[TOY + 1]
    assert "dst:=result bfloat16[4, 8] SBUF" in line
    assert "name='toy'" in line
    assert "test_one_place.py:" in line
    write_trace(tmp_path / "trace.json", result.program, result.timelines, result.chip)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    mine = [event for event in events if "weighted_difference" in json.dumps(event)]
    assert mine
    assert any("test_one_place.py:" in json.dumps(event) for event in mine)
    assert "weighted_difference(dst=result" in json.dumps(result.summary())


@pytest.mark.parametrize(
    ("body", "error", "what"),
    [
        (lambda t: weighted_difference(t, t[:, 0:4], t), IllegalOperand, "dst has 8 elements per partition and data1"),
        (lambda t: weighted_difference(t, t, t, weight=t), IllegalOperand, "weight has 4 partitions of 8 elements"),
        (lambda t: weighted_difference(t, t, 1.0), IllegalOperand, "data2 is 1.0 (float); it must be a tensor"),
        (
            lambda t: weighted_difference(t, t, t, weight="1"),
            IllegalOperand,
            "weight is '1' (str); it must be a tensor or",
        ),
        (lambda t: weighted_difference(t, t, t, squared=1), IllegalOperand, "squared=1 is not a bool"),
        (lambda t: weighted_difference(t, t, t, engine=nisa.engine.scalar), IllegalOperand, "cannot run on"),
        (lambda t: weighted_difference(t, t), IllegalCall, "missing 1 required positional argument: 'data2'"),
        (lambda t: weighted_difference(t, t, t, wieght=2.0), IllegalCall, "no operand 'wieght'"),
        (lambda t: weighted_difference(t[:, 0:1].broadcast(1, 8), t, t), IllegalOperand, "the same element twice"),
        (lambda t: weighted_difference(t, t, nl.ndarray(t.shape, t.dtype)), Uninitialized, "bytes that nobody wrote"),
    ],
)
def test_checking(body, error, what):
    def wrong():
        body(nl.ones((4, 8), nl.float32))

    with pytest.raises(error) as caught:
        neurosim.simulate(wrong)()
    assert caught.value.what.startswith("weighted_difference: ")
    assert what in caught.value.what
    assert "test_one_place.py:" in caught.value.where[0]


def test_a_misspelt_operand_is_corrected():
    with pytest.raises(IllegalCall, match=r"did you mean weight\?"):
        neurosim.simulate(lambda: weighted_difference(None, None, None, wieght=2.0))()


def test_wrong_memories():
    def wrong(a):
        weighted_difference(dst=nl.ones(a.shape, a.dtype), data1=a, data2=a)

    with pytest.raises(IllegalOperand, match="weighted_difference: data1 is in HBM; it must be in SBUF or PSUM"):
        neurosim.simulate(wrong)(A)


def test_holes_travel_through_it():
    def holey():
        tile = nl.ndarray((4, 8), nl.float32, name="partial")
        nisa.memset(dst=tile[:, 0:5], value=1.0)
        weighted_difference(tile, tile, nl.ones((4, 8), nl.float32))
        out = nl.ndarray((4, 8), nl.float32, nl.shared_hbm)
        nl.store(out, tile)
        return out

    with pytest.raises(Uninitialized) as caught:
        neurosim.simulate(holey)()
    assert "unwritten here: [0:4, 5:8] (12 of 32 elements)" in str(caught.value)
    assert "first read: data1 of weighted_difference" in str(caught.value)


def test_it_returns_a_handle():
    def handles():
        tile = nl.ones((4, 8), nl.float32)
        first = weighted_difference(tile, tile, tile)
        assert isinstance(first, NkiInstruction)
        weighted_difference(tile, tile, tile).depends_on(first)

    assert neurosim.simulate(handles)().program.edges == [(2, 1)]


def test_it_is_named_after_its_instruction():
    assert weighted_difference.__name__ == "weighted_difference"
    assert weighted_difference.__doc__ == WeightedDifference.__doc__


def test_nothing_else_knows_it():
    """No file of the packages mentions the instruction."""
    from pathlib import Path

    import isa

    for package in (neurosim, isa):
        for path in Path(package.__file__).parent.rglob("*"):
            if path.suffix in (".py", ".toml", ".md"):
                assert "weighted_difference" not in path.read_text()
