"""Python's operators on tensors: there are none, and each says which instruction to call."""

from __future__ import annotations

from numbers import Number
from typing import Any, Final, NoReturn

from neurosim.errors import IllegalOperand

_FUNCTIONS = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "divide",
    "**": "power",
    "<": "less",
    "<=": "less_equal",
    "==": "equal",
    "!=": "not_equal",
    ">": "greater",
    ">=": "greater_equal",
    "&": "bitwise_and",
    "|": "bitwise_or",
    "^": "bitwise_xor",
    "<<": "left_shift",
    ">>": "right_shift",
}

_COMPARISONS: Final = ("<", "<=", "==", "!=", ">", ">=")

BY_VALUE: Final = (
    "Python sees no values: choose by them with nl.where or nisa.tensor_copy_predicated; "
    "loaded into a register (nisa.register_load), one steers nl.fori_loop and nl.while_loop"
)
"""What to do where a kernel's Python asks for a value that the device alone knows."""


def refuse(sign: str, *operands: Any) -> NoReturn:
    """Raise IllegalOperand for an expression with ``sign`` that has a tensor in it."""
    own = next((operand.operator_advice for operand in operands if getattr(operand, "operator_advice", "")), "")
    name = _FUNCTIONS.get(sign)
    advice = f"call nisa.tensor_tensor or nisa.tensor_scalar with op=nl.{name}" if name else "call an instruction"
    if sign == "@":
        advice = "call nisa.nc_matmul"
    if sign in _COMPARISONS:
        advice = f"{advice}; {BY_VALUE}"
    words = ", ".join(operand.describe() if hasattr(operand, "describe") else repr(operand) for operand in operands)
    raise IllegalOperand(
        f"'{sign}' of {words}: {'registers' if own else 'tensors'} have no Python operators", advice=own or advice
    )


class NoOperators:
    """Base of tensors: every arithmetic and ordering operator refuses, in words."""

    __slots__ = ()

    operator_advice = ""
    """What to do instead, where that is not an instruction on tiles."""

    def __eq__(self, other: object) -> bool:
        """Whether it is the same tensor. One element and a number are refused: it would be taken for its value."""
        return self is other or self._is_number("==", other)

    def __ne__(self, other: object) -> bool:
        return self is not other and not self._is_number("!=", other)

    def _is_number(self, sign: str, other: object) -> bool:
        if isinstance(other, Number) and getattr(self, "size", 0) == 1:
            refuse(sign, self, other)
        return False

    __hash__ = object.__hash__


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
