"""Calls of an instruction that its declaration does not take: an older spelling, or an error in words."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from inspect import BoundArguments
from typing import Any, Final

from neurosim import dtypes
from neurosim.errors import IllegalCall, IllegalOperand, NeurosimError, SimulatorBug
from neurosim.execution import seen
from neurosim.kernel import Kernel, warn
from neurosim.spelling import meant

_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+>")


class _LeftOut:
    def __repr__(self) -> str:
        return "…"


_LEFT_OUT: Final = _LeftOut()


class OlderSpellingWarning(UserWarning):
    """A call gives a parameter that NKI has taken away, and what it says is not what happens."""


def made_of_older_call(cls: Any, mnemonic: str, error: TypeError, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return the instruction for a call that says ``dtype=`` next to ``dst=``, as NKI before 0.2 asked for it.

    NKI 0.2 took the parameter away, since ``dst`` has a dtype; kernels in use still give it. An engine writes what
    ``dst`` is: another dtype than that one warns.
    Source: AWS Neuron SDK, ``release-notes/components/nki.rst``, "changes to existing APIs".
    """
    names = [field.name for field in dataclasses.fields(cls)]
    if "dtype" not in kwargs or "dtype" in names or "dst" not in names:
        raise bad_call(cls, mnemonic, error, kwargs)
    rest = {name: value for name, value in kwargs.items() if name != "dtype"}
    try:
        instruction = cls(*args, **rest)
    except TypeError as other:
        raise bad_call(cls, mnemonic, other, rest) from None
    given, target = dtypes.of(kwargs["dtype"]), getattr(instruction.dst, "dtype", None)
    if given is None or target is None:
        raise IllegalOperand(
            f"{mnemonic}: dtype={kwargs['dtype']!r}, and dst is {target}",
            advice="leave dtype out: the result has dst's",
        )
    if given != target:
        text = f"{mnemonic}: dtype={given} is not what dst is; the result is {target}, as dst says"
        warn(text, OlderSpellingWarning)
    return instruction


def bad_call(cls: Any, mnemonic: str, error: Exception, kwargs: dict[str, Any]) -> IllegalCall:
    """Return the error for a call that Python refused: what it lacks, or the operand that was meant."""
    names = [field.name for field in dataclasses.fields(cls)]
    for name in kwargs:
        if name not in names:
            hint = meant(name, names) or f"it takes {', '.join(names)}"
            return IllegalCall(f"{mnemonic}: no operand {name!r}", advice=hint)
    text = str(error).split("() ", 1)[-1]
    return IllegalCall(f"{mnemonic}: {text}", advice=f"it takes {', '.join(names)}")


def bound(name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> BoundArguments:
    """Return a kernel's arguments by parameter.

    Raises:
        IllegalCall: one is missing, unknown or too many.
    """
    signature = inspect.signature(function)
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        takes = f"it takes {_parameters(signature)}"
        unknown = next((entry for entry in kwargs if entry not in signature.parameters), None)
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
        if unknown is None or takes_any:
            raise IllegalCall(f"{name}: {error}", advice=takes) from None
        hint = meant(unknown, signature.parameters)
        raise IllegalCall(
            f"{name} has no parameter {unknown!r}", numbers=(takes,) if hint else (), advice=hint or takes
        ) from None


def _parameters(signature: inspect.Signature) -> str:
    """Return parameters without annotations, as `nl.ndarray` is a function with an address; so may a default be."""
    parameters = []
    for parameter in signature.parameters.values():
        default = _LEFT_OUT if _ADDRESS.search(repr(parameter.default)) else parameter.default
        parameters.append(parameter.replace(annotation=parameter.empty, default=default))
    return str(inspect.Signature(parameters))


def placed(mnemonic: str, kernel: Kernel, error: NeurosimError) -> NeurosimError:
    """Return an error with its line; a kernel that catches it may go another way, for these values alone."""
    seen.note(f"{mnemonic} raised an error, which the kernel caught")
    return error.at(kernel.where())


def bug(mnemonic: str, kernel: Kernel, error: Exception) -> SimulatorBug:
    """Return the error for what went wrong in the simulator itself."""
    seen.note(f"{mnemonic} raised an error, which the kernel caught")
    return SimulatorBug(
        f"{mnemonic}: {type(error).__name__}: {error}",
        where=kernel.where(),
        advice="this is neurosim's mistake, not the kernel's: please report it with these lines",
    )


def kept(value: Any) -> Any:
    """Return a value with its lists copied, so that what is done to them later does not change it."""
    if isinstance(value, dict):
        return {name: kept(entry) for name, entry in value.items()}
    return type(value)(map(kept, value)) if type(value) in (list, tuple) else value


def label_of(instruction: Any) -> str | None:
    """Return the ``name=`` of an instruction, which labels it in traces.

    Raises:
        IllegalOperand: no string.
    """
    label: str | None = instruction.name
    if label is not None and not isinstance(label, str):
        raise IllegalOperand(f"{instruction.mnemonic}: name={label!r} is not a string", advice="names label traces")
    return label
