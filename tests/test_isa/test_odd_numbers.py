"""What is no sensible operand is refused in words, whatever it is and whatever it is given for; a bool is no number."""

from __future__ import annotations

import re

import numpy as np
import pytest

import neurosim
from neurosim.errors import SimulatorBug
from neurosim.manual import calls, trials

CHIP = neurosim.load_chip("trn2")
ODD = (
    10**400,
    -(10**40),
    2**63,
    "",
    b"x",
    {1},
    {"a": 1},
    1j,
    np.array(3.0),
    np.array([None]),
    len,
    ...,
    [],
    [[1, [2]]],
)
BOOLS = {
    "local_gather": "num_elem_per_idx",
    "range_select": "range_start",
    "tensor_reduce": "axis",
    "iota": "offset",
    "topk": "n",
}


def outcome(call):
    return trials.attempt(call, CHIP, values=True).error


@pytest.mark.parametrize("mnemonic", calls.documented())
def test_odd_operands_have_their_words(mnemonic):
    call, *_ = calls.examples(mnemonic).calls
    for name in calls.operands(mnemonic):
        for value in ODD:
            assert not isinstance(outcome(call.but(**{name: value})), SimulatorBug), (name, value)


@pytest.mark.parametrize("mnemonic", BOOLS)
def test_a_bool_is_no_number(mnemonic):
    call, *_ = calls.examples(mnemonic).calls
    assert outcome(call) is None
    assert re.search(rf"{BOOLS[mnemonic]}\b.*\bTrue\b", str(outcome(call.but(**{BOOLS[mnemonic]: True}))))


@pytest.mark.parametrize("value", [-(10**40), 10**400])
def test_a_number_that_float32_lacks_replaces_nothing(value):
    call, *_ = calls.examples("nc_match_replace8").calls
    assert "does not fit float32" in str(outcome(call.but(imm=value)))
