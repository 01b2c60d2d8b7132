"""The restrictions, each with where NKI's documentation states it and what to write instead."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

_GUIDE = "nki/get-started/nki-language-guide.rst"
_MIGRATION = "nki/migration/index.rst"
_LOOPS = "nki/deep-dives/nki-dynamic-loops.rst"


class Restriction(Enum):
    """One restriction: why the compiler rejects it, where that is documented, what to write instead."""

    identity = (
        "the compiler has no identity: it evaluates values, not Python objects",
        f"{_MIGRATION}, on 'is' and 'is not' (NKI 0.3)",
        "compare with == or !=, with None too",
    )
    keyword_only = (
        "the compiler takes no keyword-only parameters of a kernel",
        f"{_MIGRATION}, on the '*' separator (NKI 0.3)",
        "drop the *, and put parameters with defaults last",
    )
    list_argument = (
        "a kernel is cached by its arguments, and lists cannot be a key",
        f"{_MIGRATION}, on list arguments (NKI 0.3)",
        "pass a tuple",
    )
    class_base = (
        "only classes that inherit from NKIObject and nothing else (or from Enum) are brought in",
        f"{_GUIDE}, 'Class Support'",
        "inherit from nl.NKIObject alone",
    )
    dict_key = (
        "dictionaries have strings as keys",
        f"{_GUIDE}, 'NKI Values'; {_MIGRATION}, NKI 0.2",
        'make the key a string, as f"{row},{column}", or use a list',
    )
    output_memory = (
        "what a kernel returns must be in nl.shared_hbm",
        f"{_MIGRATION}, on output tensors (NKI 0.3)",
        "allocate it with buffer=nl.shared_hbm",
    )
    inner_jit = (
        "a kernel that is called by another one is compiled as a part of it",
        f"{_MIGRATION}, on decorators of sub-kernels (NKI 0.2)",
        "take nki.jit off the inner function, and call nki.jit(function)(…) where it is launched alone",
    )
    jit_option = (
        "nki.jit does not take this option any more",
        f"{_MIGRATION}, on nki.jit (NKI 0.3)",
        "leave it out; NEURON_PLATFORM_TARGET_OVERRIDE chooses the chip, and the arguments the framework",
    )
    loop_in_no_reorder = (
        "loops that run on the device cannot stand in a no_reorder block",
        f"{_LOOPS}, on no_reorder; {_MIGRATION}, NKI 0.6",
        "put nl.no_reorder() into the body of the loop",
    )
    loop_step = (
        "the step of a loop on the device is part of the instruction",
        f"{_LOOPS}, on parameters; {_MIGRATION}, NKI 0.6",
        "give a positive int",
    )
    loop_variable = (
        "the variable of a loop on the device is a register, whose value no Python expression has",
        f"{_LOOPS}, on lowering; {_MIGRATION}, NKI 0.6",
        "use it as scalar_offset= of .ap(), or compute with instructions",
    )
    loop_result = (
        "the body of nl.fori_loop returns nothing",
        f"{_MIGRATION}, on migrated loops (NKI 0.6)",
        "keep what the iterations pass on in a tensor that is allocated before the loop",
    )
    outer_state = (
        "kernels are cached by their arguments and must not depend on or change anything else",
        f"{_GUIDE}, 'Kernel Caching'",
        "pass it as an argument, and return what changes",
    )
    value = (
        "values are None, bools, 32-bit ints and floats, strings and tensors, in tuples, lists and dictionaries",
        f"{_GUIDE}, 'NKI Values'",
        "use one of these",
    )
    control_flow = (
        "control flow is if, for over ranges, lists and tuples, while, and nl.no_reorder",
        f"{_GUIDE}, 'Control Flow'",
        "decide with if and assert",
    )
    tensor_attribute = (
        "a tensor has it in neurosim, where its elements are known while the kernel runs, and not in NKI",
        "NKI API reference, nki.language.NkiTensor",
        "use what NKI documents of tensors: shape, dtype, buffer, strides, views; compute with instructions",
    )
    legacy = (
        "the old namespace inside kernels is an error since NKI 0.4",
        f"{_MIGRATION}, on neuronxcc.nki (NKI 0.4)",
        "import nki, nki.isa and nki.language",
    )
    unlisted = (
        "the language guide does not list it among what kernels may use",
        f"{_GUIDE}",
        "write it out with functions, loops and lists to be sure",
    )

    def __init__(self, why: str, source: str, instead: str) -> None:
        self.why = why
        self.source = source
        self.instead = instead


@dataclass(frozen=True, slots=True)
class Finding:
    """One place in a kernel that the compiler rejects.

    Attributes:
        path, line, column: where, counted from 1.
        function: the function or class it is in.
        what: what stands there.
        restriction: what it breaks.
    """

    path: Path
    line: int
    column: int
    function: str
    what: str
    restriction: Restriction

    def __str__(self) -> str:
        return (
            f"{self.path}:{self.line}:{self.column}  in {self.function}: {self.what}\n"
            f"  why      {self.restriction.why}\n"
            f"  source   AWS Neuron SDK, {self.restriction.source}\n"
            f"  instead  {self.restriction.instead}"
        )
