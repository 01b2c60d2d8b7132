"""How operands look to a datapath and to the DMA engines: work items made from access patterns."""

from __future__ import annotations

import math

from neurosim.rules import merged_axes
from neurosim.view import NkiTensor
from neurosim.work import Stream, Transfer


def stream(tensor: NkiTensor) -> Stream:
    """Return an operand as a lane-wise engine sees it."""
    axes = merged_axes(tensor)
    step = axes[-1][0] if axes else 1
    return Stream(tensor.dtype, tensor.buffer, abs(step) * tensor.dtype.size_bytes, len(axes) <= 1 and step == 1)


def run_elements(tensor: NkiTensor) -> int:
    """Return how many elements lie side by side in memory before the pattern jumps (or changes partition)."""
    axes = merged_axes(tensor)
    if tensor.partition_axis > 0 and len(tensor.shape) - 1 == tensor.partition_axis:
        return 1
    return axes[-1][1] if axes and axes[-1][0] == 1 else 1


def transfer(target: NkiTensor, source: NkiTensor, generation: str, descriptor_max_bytes: int) -> Transfer:
    """Return the DMA that moves ``source`` to ``target``.

    A descriptor is a run of elements that is dense on both sides, cut at ``descriptor_max_bytes``. A casting DMA
    costs the wider side (measured: hardware facts A.5, "Cast DMA costs max(read, write) bytes").
    """
    size = max(source.dtype.size_bytes, target.dtype.size_bytes)
    run = math.gcd(run_elements(source), run_elements(target))
    pieces = -(-run * size // descriptor_max_bytes)
    return Transfer(
        descriptors=source.size // run * pieces,
        descriptor_bytes=-(-run * size // pieces),
        read_bytes=source.size_bytes,
        written_bytes=target.size_bytes,
        source=source.buffer,
        target=target.buffer,
        generation=generation,
    )
