"""Every error says what to do: read off the source, so that no message can be added without."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim import errors
from neurosim.devices import load_chip
from neurosim.errors import IllegalOperand, NeurosimError, SimulatorBug
from neurosim.manual.calls import examples
from neurosim.manual.trials import attempt
from neurosim.nki import _catalogue

ROOT = Path(__file__).resolve().parents[1]
FAMILY = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, NeurosimError) and kind is not SimulatorBug
}
"""Errors that somebody can do something about; a :class:`SimulatorBug` asks for a report by itself."""


def without_advice(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each error that is made without advice, or with empty advice.

    Broken rules (``Broken``) may be: an instruction that raises one then points to its own page of the manual.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FAMILY:
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            advice = given.get("advice")
            if None not in given and (advice is None or (isinstance(advice, ast.Constant) and not advice.value)):
                yield node.lineno, ast.unparse(node)


@pytest.mark.parametrize("package", ["neurosim", "isa"])
def test_every_error_says_what_to_do(package):
    files = sorted((ROOT / package).rglob("*.py"))
    assert len(files) > 20
    found = [
        f"{file.relative_to(ROOT)}:{line}  {text}"
        for file in files
        for line, text in without_advice(file.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


def test_what_is_missing_is_found():
    source = """
raise IllegalOperand("what")
raise OutOfBounds("what", numbers=("1",), advice="")
raise ConfigurationError("what", advice="do")
raise error.at(where)
raise IllegalOperand(*parts, **more)
"""
    assert [line for line, _ in without_advice(source)] == [2, 3]


def test_a_broken_rule_without_advice_points_to_its_page():
    def kernel(x):
        tile = nl.load(x)
        nisa.activation(dst=tile, op=nl.subtract, data=tile)

    with pytest.raises(IllegalOperand) as caught:
        neurosim.simulate(kernel)(np.ones((4, 4), np.float32))
    assert caught.value.advice == "see what it takes: neurosim isa activation"


def test_a_bug_of_ours_asks_for_a_report():
    assert str(SimulatorBug("timing: a law is missing")).splitlines()[-1].startswith("  this is a mistake of neurosim")
    assert SimulatorBug("x", advice="append one slot per pattern").advice == "append one slot per pattern"


class Thing:
    """Something that a kernel might pass by mistake, and which has no text of its own."""

    def method(self) -> None: ...


ODD = [Thing(), Thing, len, lambda: 1, Thing().method, np, nisa.engine.dma, nl.psum, nisa.dge_mode.none, [Thing()]]
SHOWN = re.compile(r"<[^<>]*(?: at 0x|: \d+>|class |object|function |module |method )")
"""How Python shows what has no text of its own, and members of enumerations."""


@pytest.mark.parametrize("mnemonic", sorted(_catalogue.instructions()))
def test_no_message_shows_what_python_says_of_objects(mnemonic):
    """Each operand and parameter in turn as something that it cannot be; addresses would be others in each run, too."""
    call, chip = examples(mnemonic).calls[0], load_chip("trn3")
    refused = 0
    for place, entry in enumerate(dataclasses.fields(_catalogue.instructions()[mnemonic].instruction)):
        for odd in (ODD[place % len(ODD)], ODD[(place + 3) % len(ODD)], ODD[(place + 6) % len(ODD)]):
            error = attempt(call.but(**{entry.name: odd}), chip).error
            refused += error is not None
            assert error is None or not SHOWN.search(str(error))
    assert refused


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
def test_objects_in_messages_have_names(odd):
    text = str(IllegalOperand(f"dst is {odd!r}", numbers=(f"of {odd!r}",), advice="a < b > c"))
    assert not SHOWN.search(text)
    assert text.endswith("a < b > c")


def test_enumerations_show_as_kernels_write_them():
    assert repr(nisa.engine.gpsimd) == "nisa.engine.gpsimd"
    assert repr(nl.shared_hbm) == "nl.shared_hbm"
    kinds = (nisa.dge_mode, nisa.oob_mode, nisa.reduce_cmd, nisa.dma_engine, nisa.matmul_perf_mode, nisa.engine)
    for member in (member for kind in kinds for member in kind):
        assert eval(repr(member), {"nisa": nisa}) is member
