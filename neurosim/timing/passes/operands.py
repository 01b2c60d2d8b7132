"""A program's operands as the passes see them: columns of numbers, one row per operand, in record order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from neurosim.analysis.dependences import Operands
from neurosim.analysis.regions import region_of
from neurosim.program import Access, Pattern, Program, Signature
from neurosim.work import Lanewise, Transfer

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

READ: Final = 0
"""Role of an operand that is read alone."""
WRITE: Final = 1
"""Role of one whose every element is written, whatever it was before."""
UPDATE: Final = 2
"""Role of one whose old contents matter: it is added to, or written in part (by predicate, at an index)."""

WHOLE_LAWS: Final = frozenset(
    {
        "copy",
        "tensor_scalar",
        "tensor_tensor",
        "scalar_tensor_tensor",
        "reduce",
        "reciprocal",
        "memset",
        "transpose",
        "activation",
        "exponential",
        "scan",
        "iota",
        "affine_select",
        "range_select",
        "bn_stats",
        "bn_aggr",
        "max8",
    }
)
"""Laws of instructions that write every element of their output, and do not read it first."""

_LARGEST: Final = 1 << 62
_INDEX: Final = "index of "
"""How the role of an operand begins that chooses the elements of another one."""


@dataclass(frozen=True, slots=True)
class Columns:
    """All operands of a program.

    Attributes:
        record, storage, offset: as in :class:`neurosim.analysis.dependences.Operands`.
        role: ``READ``, ``WRITE`` or ``UPDATE``.
        low, high: first byte of the storage's partitions that the operand reaches, and one past the last.
        first, last: first and last partition.
        solid: whether it covers every byte from low to high of every partition from first to last.
    """

    record: Ints
    storage: Ints
    offset: Ints
    role: Ints
    low: Ints
    high: Ints
    first: Ints
    last: Ints
    solid: Bools

    @staticmethod
    def of(program: Program) -> Columns:
        """Expand a program's operands."""
        operands = Operands.of(program)
        patterns = [(pattern, is_whole(sig)) for sig in program.signatures for pattern in sig.patterns]
        roles = np.array([_role(pattern, whole) for pattern, whole in patterns], dtype=np.int64)
        shapes = np.array([_shape(pattern) for pattern, _ in patterns], dtype=np.int64).reshape(-1, 5)
        start, span, first, last, solid = shapes[operands.pattern].T
        low = operands.offset + start
        role = roles[operands.pattern]
        return Columns(
            operands.record, operands.storage, operands.offset, role, low, low + span, first, last, solid > 0
        )


def free(program: Program, wanted: Callable[[Signature], bool]) -> Bools:
    """Return, by record, whether its signature is wanted, and neither a block nor an edge of the kernel holds it.

    Nor does a loop on the device: all trips are one code, and what holds in one of them may not hold in another.
    """
    signatures = np.array(program.signature_ids, dtype=np.int64)
    result: Bools = np.array([wanted(signature) for signature in program.signatures], dtype=bool)[signatures]
    for holders in (program.blocks, program.trip_ids):
        result &= np.array(holders, dtype=np.int64) < 0
    if program.edges:
        result[np.array(program.edges, dtype=np.int64).reshape(-1)] = False
    return result


def alike(program: Program) -> tuple[Ints, Ints]:
    """Return, by record, what two that do the same have in common: signature, core."""
    signatures, cores = (np.array(column, dtype=np.int64) for column in (program.signature_ids, program.cores))
    return signatures, cores


def named(*columns: Ints) -> Ints:
    """Return a number for each combination of values, from 0."""
    names, width = np.zeros(len(columns[0]), dtype=np.int64), 1
    for values in columns:
        least = int(values.min(initial=0))
        span = int(values.max(initial=0)) - least + 1
        if width * span >= _LARGEST:  # pairs would not be told apart any more
            names = np.unique(names, return_inverse=True)[1].astype(np.int64)
            values, width = np.unique(values, return_inverse=True)[1].astype(np.int64), len(names)
            least, span = 0, len(names)
        names, width = names * span + (values - least), width * span
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def is_whole(signature: Signature) -> bool:
    """Return whether an instruction writes every element of its outputs, and reads none of their old contents."""
    if any(pattern.role.startswith(_INDEX) for pattern in signature.patterns):
        return False
    if any(pattern.access is Access.ACCUMULATE for pattern in signature.patterns):
        return False
    return all(
        isinstance(item, Transfer) or (isinstance(item, Lanewise) and item.law in WHOLE_LAWS) for item in signature.work
    )


def _role(pattern: Pattern, whole: bool) -> int:
    if pattern.access is Access.READ:
        return READ
    return WRITE if whole and pattern.access is Access.WRITE else UPDATE


def _shape(pattern: Pattern) -> tuple[int, int, int, int, int]:
    """Return a pattern's first byte, its bytes up to the last, first and last partition, and whether it is solid."""
    found = region_of(pattern)
    if found is None:
        return 0, 0, 0, -1, 0
    region, low = found
    last = region.mask.bit_length() - 1
    first = (region.mask & -region.mask).bit_length() - 1
    solid = not region.axes and region.mask.bit_count() == last - first + 1
    return low, region.span, first, last, int(solid)
