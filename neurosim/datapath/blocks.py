"""Blocks of MX: where the scale of each block of 32 values lies.

A block is 8 partitions × 1 packed element of 4 values. The scales of a quadrant (32 partitions) of data are 4 rows of
the same quadrant of the scale tile, at an offset of 0, 4, 8 or 12; what lies between is not touched, so that up to
four tiles of scales share one allocation.

Source: AWS Neuron SDK, ``nki/deep-dives/mxfp-matmul.rst``, "Scale Tensor" and "Packing Scale Values";
``nki/guides/architecture/trainium3_arch.rst``, "Quad-MXFP8/MXFP4 Matmul Performance".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from neurosim import dtypes
from neurosim.datapath.rules import Broken, Shown
from neurosim.view import NkiTensor

QUADRANT: Final = 32
"""Partitions whose scales lie together."""
HEIGHT: Final = 8
"""Partitions of a block."""
SCALES: Final = (dtypes.float8_e8m0fnu, dtypes.uint8)
"""Formats of scales; uint8 holds the codes of the other."""
_ROWS: Final = QUADRANT // HEIGHT
_OFFSETS: Final = (0, 4, 8, 12)


def block_rules(name: str, data: NkiTensor) -> Iterator[Broken | None]:
    """The operand consists of whole blocks in whole quadrants."""
    if data.partitions % QUADRANT:
        yield Broken(
            f"{name} has {data.partitions} partitions; blocks need a multiple of {QUADRANT}",
            (f"{name}  {data.describe()}",),
            "pad it with zeros to whole quadrants",
        )


def scale_rules(name: str, scale: NkiTensor, data_name: str, data: NkiTensor, elements: int) -> Iterator[Broken | None]:
    """The scale tile has the right format, lies in the quadrants of its data, and reaches all of them."""
    numbers = (Shown(name, scale), Shown(data_name, data))
    if scale.dtype not in SCALES:
        yield Broken(
            f"{name} is {scale.dtype}; it must be {' or '.join(SCALES)}",
            numbers,
            advice="make the scales with nisa.quantize_mx, or view their bytes as nl.uint8",
        )
    if scale.free_elements != elements:
        yield Broken(
            f"{name} has {scale.free_elements} elements per partition; {data_name} has {elements} blocks",
            numbers,
            "give it one scale for each packed element of a partition",
        )
    start, quadrant = scale.start_partition, scale.start_partition // QUADRANT
    if quadrant != data.start_partition // QUADRANT or start % QUADRANT not in _OFFSETS:
        first = data.start_partition // QUADRANT * QUADRANT
        yield Broken(
            f"{name} begins at partition {start}; the scales of {data_name} begin at "
            + ", ".join(str(first + offset) for offset in _OFFSETS),
            numbers,
            "scales lie in the quadrant of their blocks",
        )
    needed = data.partitions - QUADRANT + _ROWS
    step = scale.steps[scale.partition_axis]
    if scale.partitions < needed or step != 1:
        yield Broken(
            f"{name} has {scale.partitions} partitions{'' if step == 1 else f', each {step}-th'}; "
            f"the scales of {data.partitions} partitions are spread over {needed}",
            numbers,
            f"allocate it with the partitions of {data_name}: each quadrant of {QUADRANT} holds 4 rows of scales",
        )


@lru_cache(maxsize=16)
def scale_rows(partitions: int) -> npt.NDArray[np.intp]:
    """Return the rows of a scale tile that hold the scales of so many partitions of data, block after block.

    To be read only, as is a mask.
    """
    blocks = np.arange(partitions // HEIGHT)
    return blocks // _ROWS * QUADRANT + blocks % _ROWS


def scale_mask(scale: NkiTensor, partitions: int) -> npt.NDArray[np.bool_]:
    """Return which elements of a scale tile [partitions, elements] are scales."""
    return _scale_mask(scale.partitions, scale.free_elements, partitions)


@lru_cache(maxsize=16)
def _scale_mask(rows: int, elements: int, partitions: int) -> npt.NDArray[np.bool_]:
    mask = np.zeros((rows, elements), np.bool_)
    mask[scale_rows(partitions)] = True
    return mask


def spread(blocks: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return one row per partition of the data from one row per block."""
    return blocks.repeat(HEIGHT, axis=0)
