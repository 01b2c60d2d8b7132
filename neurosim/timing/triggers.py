"""Which engine triggers a DMA, where the kernel leaves that to the compiler; see ``docs/engine_choice.md``.

A DMA's engine changes no value, so that the record's choice is a default. A compiler's schedule knows more, such as
which tensors in HBM the caller gives or gets and which the kernel has for itself: the addresses of those are known
when the kernel is loaded only, so software makes their descriptors; those of its own are known beforehand. The
compiler of NKI 0.1 was seen to let hardware make these, triggered by Sync for loads and by Scalar for stores, in all
eight instruction traces of allenkchau/trainium-kernel-fusion@d709ddf.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from neurosim.analysis.dependences import Operands
from neurosim.engines import DESCRIPTOR_TRIGGERS, usual_trigger
from neurosim.program import Program, Signature, present
from neurosim.timing.placement import Placement
from neurosim.work import Transfer

Bools = NDArray[np.bool_]

_CALLERS: Final = ("input", "output")
"""Roles of tensors that the caller gives or gets."""


def triggered(program: Program, placement: Placement) -> Placement:
    """Return a placement in which DMAs of the kernel's own tensors in HBM are triggered as a compiler would."""
    left_open = np.array([_is_open(signature) for signature in placement.signatures], dtype=bool)
    if not left_open.any():
        return placement
    own, callers = _hbm(program)
    if not own.any():
        return placement
    operands = Operands.of(program)
    chosen = left_open[placement.numbers]
    chosen &= _touches(operands, own, len(program)) & ~_touches(operands, callers, len(program))
    signatures, numbers = list(placement.signatures), placement.numbers.copy()
    for number in present(numbers[chosen]).tolist():
        hardware = _by_hardware(signatures[number])
        if hardware != signatures[number]:
            numbers[chosen & (placement.numbers == number)] = len(signatures)
            signatures.append(hardware)
    return Placement(signatures, numbers)


def _is_open(signature: Signature) -> bool:
    """Whether the kernel leaves a DMA's engine open, and descriptors are made while it runs."""
    return (
        signature.engines.issuperset(DESCRIPTOR_TRIGGERS)
        and len(signature.work) == 1
        and isinstance(signature.work[0], Transfer)
        and signature.work[0].generation != "none"
    )


def _by_hardware(signature: Signature) -> Signature:
    (work,) = signature.work
    assert isinstance(work, Transfer)  # _is_open
    return replace(signature, engine=usual_trigger(work.source), work=(replace(work, generation="hwdge"),))


def _hbm(program: Program) -> tuple[Bools, Bools]:
    """Return, by storage, whether it is in HBM and the kernel's own, and whether it is there and the caller's."""
    in_hbm = program.storages.column(lambda info: info.memory.is_hbm, bool)
    callers = program.storages.column(lambda info: info.role in _CALLERS, bool)
    return in_hbm & ~callers, in_hbm & callers


def _touches(operands: Operands, storages: Bools, records: int) -> Bools:
    """Return, by record, whether it has an operand in one of these storages."""
    found = np.zeros(records, dtype=bool)
    found[operands.record[storages[operands.storage]]] = True
    return found
