"""In which mode an instruction passes through Vector's lanes: how many of its elements in a cycle, by design.

The rates are figures of the chip (``laws.py``); a mode is a property of the instruction and of a generation's formats.
Source: AWS Neuron SDK, ``nki/guides/architecture/trainium2_arch.rst:215-237``; measurements for what that leaves open.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final

from neurosim.chip import Chip
from neurosim.engines import Memory
from neurosim.work import Lanewise, Stream


class VectorMode(Enum):
    """How an instruction passes through Vector: one element per lane and cycle, or a performance mode.

    On generations without performance modes the figures of all of them are the same.
    """

    single = "single"
    double = "double"
    quad = "quad"
    widening = "widening"


_SINGLE_SOURCE: Final = frozenset({"copy", "tensor_scalar"})
_FAST: Final = {"quantize_mx": VectorMode.quad, "exponential": VectorMode.quad}
"""Documented as four elements per lane and cycle, whatever the operands."""


def vector_mode(work: Lanewise, chip: Chip) -> VectorMode:
    """Return the mode of an instruction on Vector."""
    if work.law in _SINGLE_SOURCE:
        return _single_source(work, chip)
    if work.law == "tensor_tensor" and is_half(work, chip) and not from_psum(work):
        return VectorMode.double
    return _FAST.get(work.law, VectorMode.single)


def _single_source(work: Lanewise, chip: Chip) -> VectorMode:
    """Copy and tensor_scalar: as documented for 16-bit floats, as measured for the rest."""
    psum = psum_count(work)
    if is_half(work, chip):
        adjacent = is_adjacent(work)
        if psum == 0 and adjacent:
            return VectorMode.quad
        if psum == 0 or (psum == 1 and adjacent):
            return VectorMode.double
    if psum:
        return VectorMode.single
    return VectorMode.widening if _is_widening(work) else VectorMode.double


def _is_widening(work: Lanewise) -> bool:
    """Measured for bfloat16 to float32; assumed for any input that is narrower than the output."""
    if work.output is None:
        return False
    size_bytes = work.output.dtype.size_bytes
    return any(stream.dtype.size_bytes < size_bytes for stream in work.inputs)


def streams(work: Lanewise) -> Iterator[Stream]:
    """Yield the operands that stream, the output last."""
    yield from work.inputs
    if work.output is not None:
        yield work.output


def psum_count(work: Lanewise) -> int:
    """Return how many of the operands are in PSUM."""
    return sum(stream.memory is Memory.psum for stream in streams(work))


def from_psum(work: Lanewise) -> bool:
    """Whether an input is in PSUM."""
    return any(stream.memory is Memory.psum for stream in work.inputs)


def to_psum(work: Lanewise) -> bool:
    """Whether the output is in PSUM."""
    return work.output is not None and work.output.memory is Memory.psum


def is_half(work: Lanewise, chip: Chip) -> bool:
    """Whether all operands have formats that take part in the performance modes: bfloat16, float16, float8 on trn3."""
    return all(stream.dtype in chip.vector.fast_formats for stream in streams(work))


def is_adjacent(work: Lanewise) -> bool:
    """Whether neighbours along the most minor free axis are adjacent in all operands; rows may lie apart."""
    return all(stream.step_bytes == stream.dtype.size_bytes for stream in streams(work))


def is_dense(work: Lanewise) -> bool:
    """Whether all operands' free elements are adjacent."""
    return all(stream.contiguous for stream in streams(work))
