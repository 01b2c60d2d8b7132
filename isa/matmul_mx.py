"""Multiplication of microscaled (MX) matrices on the tensor engine.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``nc_matmul_mx``; ``nki/guides/architecture/
trainium3_arch.rst``, "Quad-MXFP8/MXFP4 Matmul Performance"; where scales lie: :mod:`neurosim.datapath.blocks`.

*Assumed*, since no order of sums is public: each value is multiplied by its scale first, which float32 holds exactly
(but for products beyond its range); then each output takes the products in order, partition by partition, and the
four of a partition from the lowest bits of the packed element on. A scale of 0xFF makes its block NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from neurosim import dtypes
from neurosim.chip import Chip
from neurosim.datapath.blocks import block_rules, scale_rows, scale_rules
from neurosim.datapath.rules import Broken, Shown, access_rules, dtype_in, pattern_depth, result_dtype_in
from neurosim.datapath.streams import stream
from neurosim.datapath.systolic import (
    accumulate_rule,
    added_to,
    admit_sum,
    array_tile,
    fits_tile,
    no_tile_with_indirection,
    product_holes,
    sum_into,
    tiling_rules,
)
from neurosim.engines import Engine, Memory
from neurosim.execution.lanes import Float32s, Lanes, Sums
from neurosim.instruction import Accumulate, Holes, In, Instruction, Tile, emit
from neurosim.memory import MATMUL
from neurosim.numerics import matmul, mx
from neurosim.views.indirection import ColumnTensor
from neurosim.work import Matmul, Work


class NcMatmulMx(Instruction, mnemonic="nc_matmul_mx", engines=(Engine.tensor,)):
    """dst[M, N] (+)= stationary[K, M].T @ moving[K, N], each block of 32 values times its scale.

    A packed element holds four values of the contraction, so K is four times the partitions, in the time of as many
    rows of bfloat16. ``accumulate`` is that of ``nc_matmul``; ``tile_position`` and ``tile_size`` choose rows of the
    array.
    """

    state_written = MATMUL
    takes_packed = True

    dst: Tile = Accumulate(Memory.psum, indirect=True)
    stationary: Tile = In(Memory.sbuf, indirect=True)
    moving: Tile = In(Memory.sbuf, indirect=True)
    stationary_scale: Tile = In(Memory.sbuf, indirect=True)
    moving_scale: Tile = In(Memory.sbuf, indirect=True)
    tile_position: Any = None
    tile_size: Any = None
    accumulate: bool | None = None
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Packed operands in whole blocks, their scales, shapes within the array and PSUM."""
        if chip.generation < 4:
            yield Broken(
                "it needs NeuronCore-v4 (trn3)", (f"chip {chip.name}",), advice="run it on trn3, or use nisa.nc_matmul"
            )
        yield accumulate_rule(self.accumulate)
        yield from tiling_rules(self.tile_position, self.tile_size, chip, by_columns=False)
        yield result_dtype_in("dst", self.dst, (dtypes.float32, dtypes.bfloat16))
        for name, data, scale in self._pairs():
            yield dtype_in(name, data, dtypes.PACKED)
            yield from block_rules(name, data)
            yield from scale_rules(f"{name}_scale", scale, name, data, data.free_elements)
            yield _same_index(name, data, scale)
        yield from self._shape_rules(chip)
        yield no_tile_with_indirection(self.tile_position, self.dst, self.stationary, self.moving)

    def _shape_rules(self, chip: Chip) -> Iterator[Broken | None]:
        rows, columns, moving = self.stationary.partitions, self.stationary.free_elements, self.moving.free_elements
        numbers = (
            Shown("stationary", self.stationary),
            Shown("moving", self.moving, width=10),
            Shown("dst", self.dst, width=10),
        )
        if rows != self.moving.partitions:
            yield Broken(
                f"stationary has {rows} partitions and moving has {self.moving.partitions}",
                numbers,
                advice="both carry K in their partitions: give them equally many",
            )
        if columns > chip.tensor.columns or columns % 2:
            yield Broken(
                f"stationary has {columns} columns; they must be even, and at most {chip.tensor.columns}",
                numbers,
                advice="split the columns into tiles of that size, or pad them to an even number",
            )
        yield fits_tile(array_tile(self.tile_position, self.tile_size, chip), self.stationary, columns)
        if (self.dst.partitions, self.dst.free_elements) != (columns, moving):
            yield Broken(
                f"dst is {self.dst.partitions} × {self.dst.free_elements}; the product is {columns} × {moving}",
                numbers,
                "dst has the columns of stationary as partitions and the columns of moving as free axis",
            )

    def access(self, name: str, tensor: Tile, chip: Chip) -> Iterator[Broken | None]:
        """Scales begin where :func:`scale_rules` says."""
        if name in ("stationary_scale", "moving_scale"):
            yield pattern_depth(name, tensor)
        else:
            yield from access_rules(name, tensor, chip)

    def admit(self, lanes: Lanes) -> None:
        """Sums begin with a matmul."""
        admit_sum("nc_matmul_mx", self.dst, self.accumulate, lanes)

    def execute(self, lanes: Lanes) -> None:
        """Unpack, scale, and multiply into PSUM according to what it holds."""
        stationary, moving = (_values(lanes, data, scale) for _, data, scale in self._pairs())

        def compute(psum: Sums, overwrite: bool) -> None:
            matmul.matmul_into(psum, stationary, dtypes.float32, moving, dtypes.float32, 1, overwrite)

        sum_into("nc_matmul_mx", self.dst, self.accumulate, lanes, compute)

    def _pairs(self) -> tuple[tuple[str, Tile, Tile], ...]:
        return (
            ("stationary", self.stationary, self.stationary_scale),
            ("moving", self.moving, self.moving_scale),
        )

    def written(self) -> Holes:
        """All of dst, holes that a sum meets apart."""
        added = added_to(self.dst, self.accumulate)
        return {} if added is None else {"dst": added}

    def holes(self, holes: Holes) -> Holes:
        """A hole of an operand or its scales reaches a row or a column of dst; what is no scale reaches nothing."""
        reached = []
        for name, data, _ in self._pairs():
            mask = np.zeros(data.free_elements, np.bool_)
            if name in holes:
                mask |= holes[name].reshape(data.partitions, -1).any(axis=0)
            if f"{name}_scale" in holes:
                scales = holes[f"{name}_scale"].reshape(-1, data.free_elements)
                mask |= scales[scale_rows(data.partitions)].any(axis=0)
            reached.append(mask)
        return {"dst": product_holes(self.dst, reached[0], reached[1])}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One LoadStationary and one pass of rows that add up four products at once."""
        shape = (self.stationary.partitions, self.stationary.free_elements, self.moving.free_elements)
        depth = self.stationary.dtype.lanes
        dtype = max(self.stationary.dtype, self.moving.dtype, key=lambda dtype: dtype.size_bytes)
        tile = array_tile(self.tile_position, self.tile_size, chip) or (0, 0, 0, 0)
        flops = 2 * depth * shape[0] * shape[1] * shape[2]
        step, *steps = (stream(operand).step_bytes for operand in (self.moving, self.stationary, self.dst))
        return (Matmul(*shape, dtype, 1, 1, False, flops, step, depth, *tile, *steps),)


def _values(lanes: Lanes, data: Tile, scale: Tile) -> Float32s:
    """Return an operand as [K, columns], scaled; K counts the values of an element, then partitions."""
    codes = lanes.bits(scale)[scale_rows(data.partitions)].view(np.uint8)
    return mx.dequantize(lanes.bits(data), data.dtype, codes)


def _same_index(name: str, data: Tile, scale: Tile) -> Broken | None:
    """Data and scales are one logical tensor: offsets choose from both, or from neither."""
    if not data.is_indirect() and not scale.is_indirect():
        return None
    if isinstance(data, ColumnTensor) and isinstance(scale, ColumnTensor):
        one, other = data.index, scale.index
        if one.allocation is other.allocation and (one.offset, one.key) == (other.offset, other.key):
            return None
    return Broken(
        f"{name} and {name}_scale are not chosen by the same offsets",
        (f"{name}  {data.describe()}", f"{name}_scale  {scale.describe()}"),
        "call .indirect() with one index on both of them",
    )


nc_matmul_mx = emit(NcMatmulMx)
