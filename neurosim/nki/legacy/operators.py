"""Operators as legacy kernels name them: ``nl.add``, ``np.add``, ``np.max``, ``nl.sum`` … all say one operation.

Source: NKI 0.1 documentation, "Supported Math Operators for NKI ISA", "Supported Activation Functions for NKI ISA".
"""

from __future__ import annotations

from typing import Any, Final

from neurosim.datapath.operators import Operator
from neurosim.errors import IllegalOperand
from neurosim.numerics.act import ACTIVATIONS
from neurosim.numerics.alu import ALU

_OTHER_NAMES: Final = {
    "sum": "add",
    "prod": "multiply",
    "max": "maximum",
    "amax": "maximum",
    "min": "minimum",
    "amin": "minimum",
    "absolute": "abs",
    "true_divide": "divide",
    "bitwise_not": "invert",
    "pow": "power",
    "float_power": "power",
    "all": "logical_and",
    "any": "logical_or",
}


def operator(op: Any, call: str) -> Operator:
    """Return the operator that ``op`` names.

    Raises:
        IllegalOperand: nothing that NKI has as an operator.
    """
    if isinstance(op, Operator):
        return op
    name = getattr(op, "__name__", None)
    if isinstance(op, str):
        name = op
    if isinstance(name, str):
        name = _OTHER_NAMES.get(name, name)
        if name in ALU or name in ACTIVATIONS:
            return Operator(name)
    raise IllegalOperand(f"{call}: op={op!r} is no operator of NKI", advice="see nl.add, nl.maximum, nl.exp, np.add, …")


def optional_operator(op: Any, call: str) -> Operator | None:
    """Return the operator that ``op`` names, or None for None."""
    return None if op is None else operator(op, call)
