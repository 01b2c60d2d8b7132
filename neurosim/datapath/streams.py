"""How operands look to a datapath and to the DMA engines: work items made from access patterns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from neurosim.datapath.rules import merged_axes
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
    costs the wider side (measured: allenkchau/trainium-kernel-fusion at d709ddf, descriptors of casting DMAs).
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


def sum_transfer(target: NkiTensor, sources: Sequence[NkiTensor], generation: str, most_bytes: int) -> Transfer:
    """Return the DMA that reads all ``sources``, one by one, into one ``target``.

    Where some of them are in HBM, ``read_bytes`` counts these.
    """
    parts = [transfer(target, source, generation, most_bytes) for source in sources]
    first = next((part for part in parts if part.source.is_hbm), parts[0])
    descriptors = sum(part.descriptors for part in parts)
    moved_bytes = sum(part.descriptors * part.descriptor_bytes for part in parts)
    return replace(
        first,
        descriptors=descriptors,
        descriptor_bytes=-(-moved_bytes // descriptors),
        read_bytes=sum(part.read_bytes for part in parts if part.source.is_hbm == first.source.is_hbm),
    )
