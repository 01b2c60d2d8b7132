"""Reusable rules for ``op=`` parameters: which operators of the ALU an instruction takes.

Source: AWS Neuron SDK, ``nki.api.shared.rst``, "Supported Math Operators for NKI ISA".
"""

from __future__ import annotations

from typing import Any

from neurosim.chip import Chip
from neurosim.datapath.operators import Operator
from neurosim.datapath.rules import Broken, operator_exists
from neurosim.numerics import alu


def known(op: Any) -> alu.AluOp | None:
    """Return what the ALU knows about an operator, or None where ``op`` is none of its operators."""
    return alu.ALU.get(op.name) if isinstance(op, Operator) else None


def arithmetic(name: str, op: Any, chip: Chip) -> Broken | None:
    """The operator is an arithmetic one of two sides, and the generation has it."""
    found = known(op)
    if found is None or found.kind != "arithmetic":
        return Broken(
            f"{name}={op!r} is not an arithmetic operator of two sides",
            (),
            "see nl.add, nl.subtract, nl.multiply, nl.maximum, nl.less, …; bit operators run in tensor_scalar",
        )
    return operator_exists(found.name, chip)


def one_of(name: str, op: Any, allowed: tuple[str, ...]) -> Broken | None:
    """The operator is one of a few."""
    if isinstance(op, Operator) and op.name in allowed:
        return None
    return Broken(
        f"{name}={op!r}; it must be {' or '.join(f'nl.{entry}' for entry in allowed)}",
    )
