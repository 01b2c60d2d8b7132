"""Elements that depend on bytes which nobody wrote: how they spread, and the error when they reach what matters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from neurosim.errors import Uninitialized
from neurosim.memory import WRITTEN, Allocation, HoleOrigin, Mask, Storage
from neurosim.plane import Plane
from neurosim.view import NkiTensor
from neurosim.views.indirect import IndirectTensor

Holes = dict[str, Mask]
"""Per operand, which of its elements are holes."""


def uninitialized(what: str, hole: str, origin: HoleOrigin, *, travelled: bool, cores: int) -> Uninitialized:
    """Return the error for unwritten bytes that reached something that matters.

    Args:
        what: what they reached.
        hole: which of its elements depend on them.
        origin: where they were read first.
        travelled: whether that was an earlier read, of another tensor, which is then what there is to mend.
        cores: how many the launch has.
    """
    begins = f"{origin.tensor}: bytes that nobody wrote are read by {origin.instruction}, and reach {what}"
    of_cores = "; of two cores, the one that reads what the other writes waits for it first (nisa.core_barrier)"
    return Uninitialized(
        begins if travelled else f"{what}: bytes that nobody wrote are read",
        numbers=(
            f"unwritten here: {hole}",
            f"first read: {origin.operand} of {origin.instruction} at {first_line(origin.where)}, "
            f"{origin.hole} of {origin.tensor}",
            f"allocated at {first_line(origin.allocated)}",
            *filter(None, (origin.partly,)),
        ),
        advice="write all of it first (nisa.memset, nisa.dma_copy), or read only the part that was written"
        + (of_cores if cores > 1 else ""),
    )


def check_owners(
    mnemonic: str, name: str, tensor: NkiTensor, plane: Plane, addressed: Mapping[int, Allocation], strict: bool
) -> None:
    """Check that what is read was not last written through another tensor at the same addresses.

    Some elements may be left of an older tensor unless the operand is ``strict``: to this one nobody wrote them.

    Raises:
        Uninitialized: a newer tensor overwrote some, or an older one wrote what may not be unwritten.
    """
    allocation = tensor.allocation
    owners = plane.foreign_owners(tensor)
    if owners is None:
        return
    last = int(owners.max())
    if last < allocation.index and not strict and not owners.all():
        return
    other = addressed[last]
    what = "was overwritten through" if last > allocation.index else "was not written since"
    raise Uninitialized(
        f"{mnemonic}: {name} {tensor.describe()} {what} {other.describe()}",
        numbers=(
            f"{allocation.label} allocated at {first_line(allocation.where)}",
            f"{other.label} allocated at {first_line(other.where)}",
        ),
        advice="the two share addresses: read before the other is written, or move one of them",
    )


def partly_written(storage: Storage) -> str:
    """Return what the last instruction did that wrote a part of a result into ``storage``; empty if none did."""
    if storage.partly is None:
        return ""
    instruction, which, count, size = storage.partly
    return f"{instruction} wrote {count} of {size} elements of it" + (f": {which}" if which else "")


def lanewise_holes(target: NkiTensor, masks: Any) -> Mask:
    """Return the holes of ``target`` [its shape] when each element depends on the same lane of each operand.

    Operands with one element per partition reach the whole partition; anything else that does not match does too.
    """
    rows = target.partitions
    result = np.zeros((rows, target.free_elements), np.bool_)
    for mask in masks:
        if mask.shape[0] == rows and mask.size == result.size:
            result |= mask.reshape(rows, -1)
        elif mask.shape[0] == rows:
            result |= mask.reshape(rows, -1).any(axis=1, keepdims=True)
        else:
            result |= bool(mask.any())
    return result.reshape(target.shape)


def rowwise_holes(target: NkiTensor, masks: Iterable[Mask]) -> Mask:
    """Return the holes of ``target`` [its shape] when each element depends on all of its partition."""
    rows = np.zeros((target.partitions, 1), np.bool_)
    for mask in masks:
        rows |= mask.reshape(target.partitions, -1).any(axis=1, keepdims=True)
    return np.repeat(rows, target.free_elements, axis=1).reshape(target.shape)


def mark_copies(target: NkiTensor, source: NkiTensor, only: Mask | None) -> None:
    """Set the states of bytes that were copied: written, or as unwritten as they were, byte by byte.

    With ``only`` (the target's shape), others keep their state.
    """
    storage, states = target.allocation.storage, source.allocation.storage.byte_states(source)
    reach = target.reach if isinstance(target, IndirectTensor) else target
    under, copies = storage.copies(reach, states.reshape(*target.shape, -1))
    if isinstance(target, IndirectTensor):
        target.mark(WRITTEN, None, only)  # of a plane, also who wrote it
        target.assign(under, copies, only)
    else:
        np.copyto(under, copies, where=True if only is None else only[..., None])
        if isinstance(storage, Plane):
            storage.own(target, only)


def first_line(where: tuple[str, ...]) -> str:
    """Return the innermost line of a call stack."""
    return where[0] if where else "an unknown place"
