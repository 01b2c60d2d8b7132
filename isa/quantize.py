"""Quantization to the formats of microscaling (MX), on Vector.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``quantize_mx``; the scale before NKI 0.5: ``release-notes/
components/nki.rst``, NKI 0.5.0, "Improvements", and OCP Microscaling Formats (MX) 1.0, 6.3; where scales lie:
:mod:`neurosim.datapath.blocks`.

*Assumed*: values round to nearest even, and saturate, which only the scale before NKI 0.5 lets happen; a scale below
2**-127 is 2**-127.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from neurosim import dtypes
from neurosim.chip import Chip
from neurosim.datapath.blocks import block_rules, scale_mask, scale_rows, scale_rules, spread
from neurosim.datapath.rules import Broken, access_rules, bounding_box, dtype_in, pattern_depth, result_dtype_in
from neurosim.datapath.streams import stream
from neurosim.engines import Engine, Memory
from neurosim.errors import UnknownBehavior
from neurosim.execution.lanes import Lanes
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit
from neurosim.memory import WRITTEN
from neurosim.numerics import mx
from neurosim.versions import NKI_0_5
from neurosim.work import Lanewise, Work

PACK: Final = 4
"""Values in an element of a packed format."""


class QuantizeMx(Instruction, mnemonic="quantize_mx", engines=(Engine.vector,)):
    """dst, dst_scale = src in blocks of 8 partitions × 4 values that share a scale, a power of two.

    The scale is 2 ** (floor(log2 of the block's largest magnitude) - E), where E is the largest exponent of the
    format (8 for float8_e4m3fn, 15 for float8_e5m2) less 1, and before NKI 0.5 E itself. Four rows of ``dst_scale``
    in each quadrant of 32 partitions are written, and nothing else of it.
    """

    takes_packed = True

    dst: Tile = Out(Memory.sbuf)
    src: Tile = In(Memory.sbuf)
    dst_scale: Tile = Out(Memory.sbuf)
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """16-bit floats into packed 8-bit ones, whole blocks, and a place for each scale."""
        if chip.generation < 4:
            yield Broken("it needs NeuronCore-v4 (trn3)", (f"chip {chip.name}",), advice="run it on trn3")
        yield dtype_in("src", self.src, (dtypes.float16, dtypes.bfloat16))
        yield result_dtype_in("dst", self.dst, (dtypes.float8_e4m3fn_x4, dtypes.float8_e5m2_x4))
        yield from block_rules("src", self.src)
        rows, elements = self.src.partitions, self.src.free_elements
        if (self.dst.partitions, PACK * self.dst.free_elements) != (rows, elements):
            yield Broken(
                f"dst is {self.dst.partitions} × {self.dst.free_elements} and src is {rows} × {elements}",
                (f"dst  {self.dst.describe()}", f"src  {self.src.describe()}"),
                f"dst has the partitions of src, and an element for each {PACK} of a partition of src",
            )
        yield from scale_rules("dst_scale", self.dst_scale, "src", self.src, elements // PACK)

    def access(self, name: str, tensor: Tile, chip: Chip) -> Iterator[Broken | None]:
        """Scales begin where :func:`scale_rules` says."""
        if name == "dst_scale":
            yield pattern_depth(name, tensor)
        else:
            yield from access_rules(name, tensor, chip)

    def execute(self, lanes: Lanes) -> None:
        """Find the scales, divide, round, pack."""
        values = lanes.f32(self.src)
        self._check_finite(lanes, ~np.isfinite(values))
        scales = mx.block_scales(values, self.dst.dtype, doubled=self.nki_version >= NKI_0_5)
        lanes.put_bits(self.dst, mx.quantize(values, spread(scales), self.dst.dtype))
        spaced = np.zeros((self.dst_scale.partitions, self.dst_scale.free_elements), np.uint8)
        spaced[scale_rows(self.src.partitions)] = scales
        lanes.put_bits(self.dst_scale, spaced, where=scale_mask(self.dst_scale, self.src.partitions))

    def _check_finite(self, lanes: Lanes, bad: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> None:
        if bad.any():
            bad &= (lanes.states(self.src) >= WRITTEN).reshape(bad.shape)  # what nobody wrote may be anything
        if bad.any():
            raise UnknownBehavior(
                "quantize_mx: src holds Inf or NaN, and the manual does not say what scale its block gets",
                numbers=(f"src  {self.src.describe()}", f"not finite: {bounding_box(bad)}"),
                advice="clip src to finite values first, e.g. with nisa.tensor_scalar and nl.minimum",
            )

    def written(self) -> Holes:
        """The rows of scales."""
        mask = scale_mask(self.dst_scale, self.src.partitions)
        return {"dst_scale": mask.reshape(self.dst_scale.shape)}

    def holes(self, holes: Holes) -> Holes:
        """A hole reaches the scale of its block, and with it all of the block."""
        mask = np.asarray(holes["src"].reshape(self.src.partitions // 8, 8, -1, PACK).any(axis=(1, 3)))
        spaced = np.zeros((self.dst_scale.partitions, self.dst_scale.free_elements), np.bool_)
        spaced[scale_rows(self.src.partitions)] = mask
        return {"dst": spread(mask).reshape(self.dst.shape), "dst_scale": spaced.reshape(self.dst_scale.shape)}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream in, one out."""
        return (Lanewise("quantize_mx", self.src.free_elements, (stream(self.src),), stream(self.dst)),)


quantize_mx = emit(QuantizeMx)
