"""Changes to a recorded program, for times of what it could be: instructions that cost nothing, narrower operands.

An edit changes times alone: values are those of the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neurosim import dtypes
from neurosim.dtypes import DType
from neurosim.errors import ConfigurationError
from neurosim.program import Program, Signature
from neurosim.work import Control, Matmul

_WIDE_BYTES: Final = 4


@dataclass(frozen=True, eq=False)
class Edit:
    """What is timed in place of the record.

    Attributes:
        gone: by record, whether it takes no time and no engine: who waits for its result has it as soon as what it
            needs itself is there. None for no record.
        operands: the format in which the tensor engine multiplies what was recorded as 4-byte floats, None to leave it.
        overwrites: whether a write waits until others have written or read what it overwrites; without, every tile has
            as many buffers as it needs.
        earliest_ps: by record, when it may start at the earliest; None for no such limit.
    """

    gone: NDArray[np.bool_] | None = field(default=None)
    operands: DType | None = None
    overwrites: bool = True
    earliest_ps: NDArray[np.int64] | None = field(default=None)

    def of(self, records: NDArray[np.int64]) -> Edit:
        """Return the edit of these records alone, in their order."""
        gone = None if self.gone is None else self.gone[records]
        earliest = None if self.earliest_ps is None else self.earliest_ps[records]
        return replace(self, gone=gone, earliest_ps=earliest)

    def signature(self, signature: Signature) -> Signature:
        """Return a signature with the operands of its multiplication in the edit's format."""
        if self.operands is None or not any(is_wide(work) for work in signature.work):
            return signature
        return replace(signature, work=tuple(_narrowed(work, self.operands) for work in signature.work))


def _narrowed(work: Any, operands: DType) -> Any:
    return replace(work, dtype=operands, passes=1, loads=1) if is_wide(work) else work


UNCHANGED: Final = Edit()
"""The record as it is."""


def is_wide(work: Any) -> bool:
    """Return whether work is a multiplication of 4-byte floats in several passes."""
    return isinstance(work, Matmul) and not work.transpose and work.dtype.size_bytes == _WIDE_BYTES and work.passes > 1


def has_wide_matmuls(program: Program) -> bool:
    """Return whether a program multiplies 4-byte floats in several passes."""
    return any(is_wide(work) for signature in program.signatures for work in signature.work)


def operands_of(name: Any) -> DType:
    """Return the format that a matmul what-if names.

    Raises:
        ConfigurationError: it is none that the tensor engine multiplies in one pass.
    """
    known = ("bfloat16", "float16")
    found = dtypes.of(name) if name in known else None
    if found is None:
        raise ConfigurationError(f"what_if: matmul={name!r}", advice=f"give {' or '.join(map(repr, known))}")
    return found


def removable(program: Program, records: Iterable[int]) -> NDArray[np.bool_]:
    """Return, by record of the program, whether it is one of these and can cost nothing.

    Heads of loops on the device and meetings of cores order everything around them, so that they stay.
    """
    fixed = np.array([any(isinstance(work, Control) for work in each.work) for each in program.signatures], dtype=bool)
    gone = np.zeros(len(program), dtype=bool)
    chosen = np.fromiter(records, dtype=np.int64)
    gone[chosen] = True
    if len(chosen):
        gone &= ~fixed[np.array(program.signature_ids, dtype=np.int64)]
    for first, count in program.meetings:
        gone[first : first + count] = False
    return gone
