"""What holds for every instruction, tried on the calls that follow from its declaration.

The calls come from ``neurosim.manual.calls``: derived, or from ``isa/manual/examples.toml`` where a derived one is not
legal. Nothing here names an instruction, so a new one is tested as it stands.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from neurosim.devices import load_chip
from neurosim.errors import IllegalOperand
from neurosim.execution.fine_lanes import FineLanes
from neurosim.instruction import Instruction
from neurosim.manual import refusals, trials
from neurosim.manual.calls import Tile, declaration, documented, examples, operands
from neurosim.manual.trials import Placing
from neurosim.memory import WRITTEN
from neurosim.nki import _catalogue, isa
from neurosim.program import Access
from neurosim.shadow import Shadow

NAMES = tuple(_catalogue.instructions())
LAYOUTS = tuple(layout for layout in trials.LAYOUTS if layout != "whole")


def chip_of(generation):
    """Return the packaged chip of a generation, or trn2 with that generation's rules where there is none yet."""
    found = trials.chips().get(generation)
    return found or load_chip("trn2").replace(chip__generation=generation)


CHIPS = tuple(chip_of(generation) for generation in (3, 2, 4))


@cache
def calls(name, chip):
    """Return an instruction's legal calls that its generation has."""
    made = [(call, trials.attempt(call, chip)) for call in examples(name).calls]
    return [call for call, outcome in made if outcome.error is None]


def test_every_instruction_is_found():
    """A class that has a name of NKI, and was emitted under that name, and is in the face."""
    classes, found = [Instruction], set()
    while classes:
        cls = classes.pop()
        classes += cls.__subclasses__()
        if cls.mnemonic and cls.__module__.startswith("isa."):
            found.add(cls.mnemonic)
    assert found == set(NAMES)
    for name in NAMES:
        assert getattr(isa, name) is _catalogue.instructions()[name]
        assert declaration(name).mnemonic == name == _catalogue.instructions()[name].__name__


def test_the_examples_name_instructions_only():
    assert set(documented()) <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_instruction_has_a_legal_call(name):
    """Where the derived call is none, ``isa/manual/examples.toml`` gives one; each of them works somewhere."""
    for call in examples(name).calls:
        outcomes = [trials.attempt(call, chip, values=True) for chip in CHIPS]
        assert any(outcome.error is None for outcome in outcomes), f"{call}: {outcomes[0].error}"


@pytest.mark.parametrize("name", NAMES)
def test_views_give_the_bits_of_whole_tensors(name):
    """All operands at once, and each of them alone, as views with an offset, with steps, with a third axis."""
    tried = 0
    for chip in CHIPS:
        for call in calls(name, chip):
            tiles = [operand for operand, value in call.operands.items() if isinstance(value, Tile)]
            plain = trials.attempt(call, chip, values=True)
            for layout in LAYOUTS:
                if layout == "folded" and examples(name).shaped:
                    continue
                for chosen in (layout, *(f"{tile}:{layout}" for tile in tiles)):
                    view = trials.attempt(call, chip, values=True, placing=Placing(layout=chosen))
                    if isinstance(view.error, IllegalOperand):
                        assert view.broken, f"{call}, {chosen}: {view.error}"  # a rule says that such views are refused
                        continue
                    assert view.outputs == plain.outputs, f"{call} with {chosen}"
                    assert view.registers == plain.registers, f"{call} with {chosen}"
                    tried += 1
    assert tried >= 2 * len(LAYOUTS)


def inputs(call):
    """Return the operands that a call reads from a tensor of a known place."""
    for name, operand in operands(call.mnemonic).items():
        tile = call.operands.get(name)
        if operand is not None and operand.access is Access.READ and isinstance(tile, Tile) and not tile.how:
            yield name, tile


@pytest.mark.parametrize("name", NAMES)
def test_the_record_is_the_same_without_values(name):
    for chip in CHIPS:
        for call in calls(name, chip):
            with_values, without = (trials.attempt(call, chip, values=values, timed=True) for values in (True, False))
            assert with_values.signature == without.signature, call
            assert with_values.time_ps == without.time_ps, call


@pytest.mark.parametrize("name", NAMES)
def test_the_bytes_are_the_same_where_wider_values_lie_beside_them(name):
    """Of inputs that have no wider values, results round to the same bytes."""
    for chip in CHIPS:
        for call in calls(name, chip):
            for layout in ("whole", "stepped", "folded"):
                placing = Placing(layout=layout)
                plain = trials.attempt(call, chip, values=True, placing=placing)
                wider = trials.attempt(call, chip, values=True, placing=placing, lanes=FineLanes)
                assert (wider.outputs, wider.registers) == (plain.outputs, plain.registers), call


@pytest.mark.parametrize("name", NAMES)
def test_an_instruction_in_float64_gives_what_it_gives_but_for_rounding(name):
    """Beside the real run, which is as ever; on inputs that have no error of their own."""
    for chip in CHIPS:
        for call in calls(name, chip):
            for layout in ("whole", "stepped"):
                placing, shadow = Placing(layout=layout), Shadow()
                plain = trials.attempt(call, chip, values=True, placing=placing)
                beside = trials.attempt(call, chip, values=True, placing=placing, lanes=shadow.beside(None))
                assert (beside.outputs, beside.registers) == (plain.outputs, plain.registers), call
                for (_, instruction, dtype), tally in shadow.tallies.items():
                    assert instruction == name
                    assert tally.inherited == 0.0, call
                    assert tally.born_ulp <= 2.0 or tally.born <= 1e-12 * tally.size, (call, dtype, tally)
                    assert tally.not_finite == 0, call


@pytest.mark.parametrize("name", NAMES)
def test_results_in_place_are_those_out_of_place(name):
    """Where a result and an input may be one tensor, the result is the same, or the call is refused."""
    for call in calls(name, CHIPS[0]):
        apart = trials.attempt(call, CHIPS[0], values=True)
        for output in apart.outputs:
            for operand, tile in inputs(call):
                target = call.operands[output]
                if (tile.shape, tile.dtype, tile.memory) == (target.shape, target.dtype, target.memory):
                    placing = Placing(same=f"{output}={operand}")
                    together = trials.attempt(call, CHIPS[0], values=True, placing=placing)
                    if together.error is None:
                        states = apart.outputs[output][1]  # what a predicate leaves out keeps the input's value
                        pair = [elements(outcome.outputs[output][0], states) for outcome in (together, apart)]
                        assert pair[0] == pair[1], f"{call} with {output} in place of {operand}"


@pytest.mark.parametrize("name", NAMES)
def test_what_counts_as_written_depends_on_written_bytes_alone(name):
    """Of an operand with holes, other bytes in the holes change no element that is written afterwards."""
    for call in calls(name, CHIPS[0]):
        for operand, tile in inputs(call):
            if math.prod(tile.shape) > 1:
                found = [
                    trials.attempt(call, CHIPS[0], values=True, placing=Placing(unwritten=operand, garbage=garbage))
                    for garbage in (1, 2, 3)
                ]
                if all(outcome.error is None for outcome in found):
                    for output in found[0].outputs:
                        assert len({outcome.outputs[output][1] for outcome in found}) == 1, call
                        results = {elements(*outcome.outputs[output]) for outcome in found}
                        assert len(results) == 1, f"{call}: holes of {operand} reach {output}"


def elements(data, states):
    """Return the bytes of the elements that ``states`` says are written."""
    mask = np.frombuffer(states, np.uint8) >= WRITTEN
    return np.frombuffer(data, np.uint8).reshape(mask.size, -1)[mask].tobytes()


def parameters():
    for name in NAMES:
        for parameter, operand in operands(name).items():
            required = operand is not None and not operand.number and not operand.optional
            if not required:
                yield name, parameter
        yield name, "name"


def effect(plain, before, call, chip):
    """Return what a call does that a plain one does not: nothing, something (also an error at run time), or a refusal.

    ``before`` is what the plain one does. Times cost most, and are asked for where all else is the same.
    """
    after = trials.attempt(call, chip, values=True)
    if isinstance(after.error, IllegalOperand):
        return "refused"
    if any(getattr(before, part) != getattr(after, part) for part in ("error", "outputs", "registers", "signature")):
        return "something"
    times = [trials.attempt(each, chip, values=True, timed=True).time_ps for each in (plain, call)]
    return "something" if times[0] != times[1] else "nothing"


def matters(name, parameter, chip):
    """Return whether some value of a parameter changes something, or all but one are refused."""
    found = set()
    for call in calls(name, chip):
        before = trials.attempt(call, chip, values=True)
        changed = [call.but(**{parameter: value}) for value in other_values(call, parameter)]
        found |= {effect(call, before, other, chip) for other in changed}
    return "something" in found or "nothing" not in found


@pytest.mark.parametrize(("name", "parameter"), tuple(parameters()))
def test_every_parameter_matters(name, parameter):
    """In each generation; none is taken and ignored, unless the examples say why."""
    everywhere = all(matters(name, parameter, chip) for chip in CHIPS)
    if parameter in examples(name).ignored:
        assert not everywhere, f"{name}: {parameter}= has an effect now, so its entry under ignored can go"
    else:
        assert everywhere, f"{name} takes {parameter}= and ignores it"


def other_values(call, parameter):
    """Yield values of the parameter's own kind that the call does not have: a refusal of nonsense proves nothing."""
    operand = operands(call.mnemonic).get(parameter)
    value = call.operands.get(parameter, refusals.default_of(call.mnemonic, parameter))
    if parameter == "name":
        yield "a label"
    elif operand is not None:
        rows = next(tile.shape[0] for tile in call.operands.values() if isinstance(tile, Tile))
        yield from (other for other in (Tile((rows, 1)), 3.0, 4, None) if other != value)
        yield from (
            call.operands[other]
            for other, declared in operands(call.mnemonic).items()
            if declared is not None and declared.access is Access.READ and isinstance(call.operands.get(other), Tile)
        )
    else:
        yield from (other for other in refusals.candidates(value, parameter, call.mnemonic) if of_kind(other, value))


def of_kind(other, value):
    if other == value or other == -1:  # -1 counts from the end, and may be the same axis
        return False
    if value is None or isinstance(value, (list, tuple)):
        return isinstance(other, (bool, int, float, list, tuple))
    return type(other) is type(value)


@pytest.fixture(scope="module")
def refused():
    """Calls that break a rule, by rule. Nothing that is tried raises anything but the errors it should."""
    found = {}
    for chip in CHIPS:
        for name in NAMES:
            found = {**refusals.refusals(name, chip), **found}
    return found


def test_every_rule_has_a_call_that_breaks_it(refused):
    """Add the missing ones to ``isa/manual/examples.toml`` as ``[[NAME.refused]]``."""
    assert [str(rule) for rule in refusals.rules() if rule not in refused] == []


def test_a_broken_rule_says_what_is_wrong(refused):
    for refusal in refused.values():
        error = refusal.error
        assert error.what.startswith(f"{refusal.call.mnemonic}: "), refusal.rule
        assert len(error.what) > len(refusal.call.mnemonic) + 8, refusal.rule
        assert error.advice[0].islower() or error.advice.startswith(("NKI", "Tensor", "Scalar"))


def test_calls_written_down_as_refused_are():
    for name in NAMES:
        for call in examples(name).refused:
            assert any(isinstance(trials.attempt(call, chip).error, IllegalOperand) for chip in CHIPS), call


def broken_by(monkeypatch, cls, method, wrong, test, *arguments):
    """Return whether ``test`` fails when a method of an instruction is wrong."""
    monkeypatch.setattr(cls, method, wrong)
    with pytest.raises(AssertionError):
        test(*arguments)


def test_an_ignored_parameter_is_found(monkeypatch):
    cls = declaration("scalar_tensor_tensor")
    right = cls.execute

    def wrong(self, lanes):
        self.reverse1 = False
        right(self, lanes)

    broken_by(monkeypatch, cls, "execute", wrong, test_every_parameter_matters, "scalar_tensor_tensor", "reverse1")


def test_a_hole_that_is_lost_is_found(monkeypatch):
    cls = declaration("tensor_tensor_scan")
    test = test_what_counts_as_written_depends_on_written_bytes_alone
    broken_by(monkeypatch, cls, "holes", lambda self, holes: {}, test, "tensor_tensor_scan")


def test_a_view_that_is_taken_for_a_whole_tensor_is_found(monkeypatch):
    cls = declaration("reciprocal")

    def wrong(self, lanes):
        whole = lanes.f32(self.data)
        flat = self.dst.allocation.storage.buffer.view(np.float32)
        flat[: whole.size] = 1 / whole.reshape(-1)

    broken_by(monkeypatch, cls, "execute", wrong, test_views_give_the_bits_of_whole_tensors, "reciprocal")


def test_a_wrong_result_in_place_is_found(monkeypatch):
    cls = declaration("tensor_tensor")
    right = cls.execute

    def wrong(self, lanes):
        lanes.put(self.dst, np.zeros((self.dst.partitions, self.dst.free_elements), np.float32))
        right(self, lanes)

    broken_by(monkeypatch, cls, "execute", wrong, test_results_in_place_are_those_out_of_place, "tensor_tensor")
