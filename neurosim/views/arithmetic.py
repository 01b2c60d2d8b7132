"""Python's operators on tensors: there are none, and each says which instruction to call."""

from __future__ import annotations

from typing import Any, NoReturn

from neurosim.errors import IllegalOperand

_FUNCTIONS = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "divide",
    "**": "power",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
    "&": "bitwise_and",
    "|": "bitwise_or",
    "^": "bitwise_xor",
    "<<": "left_shift",
    ">>": "right_shift",
}


def refuse(sign: str, *operands: Any) -> NoReturn:
    """Raise IllegalOperand for an expression with ``sign`` that has a tensor in it."""
    own = next((operand.operator_advice for operand in operands if getattr(operand, "operator_advice", "")), "")
    name = _FUNCTIONS.get(sign)
    advice = f"call nisa.tensor_tensor or nisa.tensor_scalar with op=nl.{name}" if name else "call an instruction"
    if sign == "@":
        advice = "call nisa.nc_matmul"
    words = ", ".join(operand.describe() if hasattr(operand, "describe") else repr(operand) for operand in operands)
    raise IllegalOperand(
        f"'{sign}' of {words}: {'registers' if own else 'tensors'} have no Python operators", advice=own or advice
    )


class NoOperators:
    """Base of tensors: every arithmetic and ordering operator refuses, in words."""

    __slots__ = ()

    operator_advice = ""
    """What to do instead, where that is not an instruction on tiles."""


def _binary(sign: str) -> Any:
    return lambda self, other: refuse(sign, self, other)


def _unary(sign: str) -> Any:
    return lambda self: refuse(sign, self)


for _sign, _name in {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul",
    "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift",
}.items():  # fmt: skip
    for _prefix in ("", "r", "i"):
        setattr(NoOperators, f"__{_prefix}{_name}__", _binary(_sign))
for _sign, _name in {"<": "lt", "<=": "le", ">": "gt", ">=": "ge"}.items():
    setattr(NoOperators, f"__{_name}__", _binary(_sign))
for _sign, _name in {"-": "neg", "+": "pos", "~": "invert", "abs": "abs"}.items():
    setattr(NoOperators, f"__{_name}__", _unary(_sign))
