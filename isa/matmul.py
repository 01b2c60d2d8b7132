"""Matrix multiplication on the tensor engine.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``nc_matmul``; four passes of float32: measured on trn2
(allenkchau/trainium-kernel-fusion at d709ddf, instruction profiles). ``perf_mode`` is taken as the text
``"double_row"`` too, as nki-library writes it.

*Assumed*: tfloat32 takes one pass, as its documented peak rate is bfloat16's; in double_row the two products of a cell
join its sum one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from neurosim import dtypes
from neurosim.chip import Chip
from neurosim.datapath.modes import Mode
from neurosim.datapath.rules import Broken, Shown, dtype_in, result_dtype_in, within_bank
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
    transpose,
    transpose_dtype_rule,
)
from neurosim.engines import Engine, Memory
from neurosim.errors import UnknownBehavior
from neurosim.execution.lanes import Lanes, Sums
from neurosim.instruction import Accumulate, Holes, In, Instruction, Tile, emit
from neurosim.memory import MATMUL
from neurosim.numerics import matmul
from neurosim.work import Matmul, Work

EIGHT_BITS: Final = (dtypes.float8_e4m3, dtypes.float8_e5m2)
GATHERED: Final = (dtypes.float16, dtypes.bfloat16, *EIGHT_BITS, dtypes.float8_e4m3fn)
"""Formats of operands that offsets choose."""
WIDE: Final = (dtypes.float32, dtypes.tfloat32)


class MatmulPerfMode(Mode):
    """Performance mode of a matmul."""

    none = "none"
    double_row = "double_row"


class NcMatmul(Instruction, mnemonic="nc_matmul", engines=(Engine.tensor,)):
    """dst[M, N] (+)= stationary[K, M].T @ moving[K, N]: operands in SBUF, result in PSUM, accumulated in float32.

    ``accumulate=False`` overwrites, ``True`` adds to what a matmul wrote, ``None`` adds where a matmul wrote and
    overwrites elsewhere. ``is_transpose`` moves the bits of ``stationary``, with an identity as ``moving``.
    ``tile_position`` and ``tile_size`` choose a part of the array, and parts work side by side. ``double_row`` takes
    8-bit operands [K, 2, M] and [K, 2, N], in the time of K rows.
    """

    state_written = MATMUL

    dst: Tile = Accumulate(Memory.psum, indirect=True)
    stationary: Tile = In(Memory.sbuf, indirect=True)
    moving: Tile = In(Memory.sbuf, indirect=True)
    is_stationary_onezero: bool = False
    is_moving_onezero: bool = False
    is_transpose: bool = False
    accumulate: bool | None = None
    tile_position: Any = ()
    tile_size: Any = ()
    perf_mode: MatmulPerfMode = MatmulPerfMode.none
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Shapes within the array and a PSUM bank, dtypes that go together."""
        yield accumulate_rule(self.accumulate)
        if self.perf_mode not in (*MatmulPerfMode, *(mode.value for mode in MatmulPerfMode)):
            yield Broken(f"perf_mode={self.perf_mode!r} is not a nisa.matmul_perf_mode", (), "none or double_row")
        yield from tiling_rules(self.tile_position, self.tile_size, chip)
        if self._is_double():
            yield from self._double_rules(chip)
        yield from self._shape_rules(chip)
        yield from self._indirection_rules()
        if self.is_transpose:
            yield transpose_dtype_rule(self.dst, "stationary", self.stationary, chip)
            if self.accumulate:
                yield Broken("accumulate=True with is_transpose", (), "a transpose overwrites")
        else:
            yield from self._dtype_rules(chip)

    def _indirection_rules(self) -> Iterator[Broken | None]:
        """What the array gathers; *assumed*: the manual's list of dtypes is about what it reads, not about dst."""
        for name, tile in (("stationary", self.stationary), ("moving", self.moving)):
            if tile.is_indirect():
                yield dtype_in(name, tile, GATHERED)
        if self.is_transpose and self.moving.is_indirect():
            yield Broken("moving is chosen by offsets, with is_transpose", (), "gather it with nisa.tensor_copy first")
        yield no_tile_with_indirection(self.tile_position, self.dst, self.stationary, self.moving)

    def _dtype_rules(self, chip: Chip) -> Iterator[Broken | None]:
        floats = (*EIGHT_BITS, dtypes.bfloat16, dtypes.float16, *WIDE)
        pair = (self.stationary, self.moving)
        for label, tile in zip(("stationary", "moving"), pair, strict=True):
            yield dtype_in(label, tile, floats if chip.generation < 4 else (*floats, dtypes.float8_e4m3fn))
        numbers = (Shown("stationary", self.stationary), Shown("moving", self.moving, width=10))
        formats = f"stationary is {self.stationary.dtype} and moving is {self.moving.dtype}"
        if len({tile.dtype in WIDE for tile in pair}) > 1:
            wide = next(tile.dtype for tile in pair if tile.dtype in WIDE)
            yield Broken(
                f"{formats}; {wide} goes with {' and '.join(WIDE) if wide != dtypes.float32 else wide} only",
                numbers,
                "cast the narrower one to float32, or both to bfloat16, with nisa.tensor_copy",
            )
        if {tile.dtype for tile in pair} == {dtypes.float8_e4m3, dtypes.float8_e4m3fn}:
            yield Broken(f"{formats}; the two cannot be mixed", numbers, "give both one of the formats")
        yield result_dtype_in(
            "dst", self.dst, (dtypes.float32,) if chip.generation < 4 else (dtypes.float32, dtypes.bfloat16)
        )

    def _double_rules(self, chip: Chip) -> Iterator[Broken | None]:
        if chip.generation < 3:
            yield Broken("perf_mode double_row needs NeuronCore-v3 (trn2)", (f"chip {chip.name}",), "leave it out")
        if self.is_transpose:
            yield Broken("is_transpose with perf_mode double_row", (), "a transpose takes no perf_mode")
        tile = array_tile(self.tile_position, self.tile_size, chip)
        if tile is not None and tile.columns != chip.tensor.columns:
            yield Broken(f"column tiling (tile_size={tile[2:]}) with perf_mode double_row", (), "tile rows only")
        for label, operand in (("stationary", self.stationary), ("moving", self.moving)):
            yield dtype_in(label, operand, EIGHT_BITS if chip.generation < 4 else (*EIGHT_BITS, dtypes.float8_e4m3fn))
            if operand.ndim < 3 or operand.shape[1] != 2:
                yield Broken(
                    f"{label} is {list(operand.shape)}; with double_row its first free axis must be 2",
                    (f"{label}  {operand.describe()}",),
                    "half of K lies on the partitions, and that axis has the two halves: [K / 2, 2, columns]",
                )

    def _shape_rules(self, chip: Chip) -> Iterator[Broken | None]:
        rows, columns, moving = self._sizes()
        numbers = (
            Shown("stationary", self.stationary),
            Shown("moving", self.moving, width=10),
            Shown("dst", self.dst, width=10),
        )
        if rows != self.moving.partitions:
            yield Broken(
                f"stationary has {rows} rows (K) and moving has {self.moving.partitions}",
                numbers,
                advice="both carry K in their partitions: give them equally many",
            )
        if columns > chip.tensor.columns:
            yield Broken(
                f"stationary has {columns} columns; the array is {chip.tensor.columns} wide",
                numbers,
                f"split the columns into tiles of at most {chip.tensor.columns}",
            )
        yield fits_tile(array_tile(self.tile_position, self.tile_size, chip), self.stationary, columns)
        bank = chip.psum.bank_bytes // self.dst.dtype.size_bytes
        if chip.generation < 4 and moving > bank:
            yield Broken(
                f"moving has {moving} columns; one PSUM bank holds {bank} {self.dst.dtype}",
                numbers,
                f"split the columns into tiles of at most {bank} (nl.tile_size.gemm_moving_fmax)",
            )
        elif (self.dst.partitions, self.dst.free_elements) != (columns, moving):
            yield Broken(
                f"dst is {self.dst.partitions} × {self.dst.free_elements}; the product is {columns} × {moving}",
                numbers,
                "dst has the columns of stationary as partitions and the columns of moving as free axis",
            )
        elif chip.generation < 4:
            yield within_bank("dst", self.dst, chip.psum.bank_bytes)

    def place(self, chip: Chip) -> tuple[Engine, frozenset[Engine]]:
        """The tensor engine; where several passes would each write bfloat16 sums, it is unknown what they give."""
        if self.dst.dtype == dtypes.bfloat16 and not self.is_transpose and self._passes() > 1:
            raise UnknownBehavior(
                "nc_matmul: float32 operands take four passes, and no public text says whether each rounds in "
                "bfloat16 PSUM",
                numbers=(f"dst  {self.dst.describe()}",),
                advice="give dst float32 and convert as you copy it to SBUF, or cast the operands to bfloat16",
            )
        return super().place(chip)

    def admit(self, lanes: Lanes) -> None:
        """Sums begin with a matmul."""
        if not self.is_transpose:
            admit_sum("nc_matmul", self.dst, self.accumulate, lanes)

    def execute(self, lanes: Lanes) -> None:
        """Multiply into PSUM according to what it holds."""
        if self.is_transpose:
            self._transpose(lanes)
            return
        if self.is_stationary_onezero or self.is_moving_onezero:
            self._check_onezeros(lanes)
        stationary, moving, passes = self._rows(lanes, self.stationary), self._rows(lanes, self.moving), self._passes()

        def compute(psum: Sums, overwrite: bool) -> None:
            matmul.matmul_into(psum, *stationary, *moving, passes, overwrite)

        sum_into("nc_matmul", self.dst, self.accumulate, lanes, compute)

    def _rows(self, lanes: Lanes, tile: Tile) -> tuple[Any, dtypes.DType]:
        """Return an operand as [K, columns], and its format; in double_row K counts a partition's halves in turn."""
        elements, dtype = lanes.matrix(tile)
        if isinstance(elements, matmul.Rows) or not self._is_double():
            return elements, dtype
        return elements.reshape(2 * tile.partitions, -1), dtype

    def _check_onezeros(self, lanes: Lanes) -> None:
        for name, hint in (("stationary", self.is_stationary_onezero), ("moving", self.is_moving_onezero)):
            if not hint or getattr(self, name).dtype != dtypes.float32:
                continue
            values = lanes.f32(getattr(self, name))
            if not ((values == 0) | (values == 1)).all():
                raise UnknownBehavior(
                    f"nc_matmul: is_{name}_onezero=True, and {name} holds other values than 0 and 1",
                    advice="the hint makes the engine drop half of the float32: leave it out",
                )

    def _transpose(self, lanes: Lanes) -> None:
        identity = lanes.f32(self.moving)
        if identity.shape[0] != identity.shape[1] or not (identity == np.eye(len(identity))).all():
            raise UnknownBehavior(
                "nc_matmul: is_transpose=True needs an identity matrix as moving",
                numbers=(f"moving  {self.moving.describe()}",),
                advice="use nisa.nc_transpose, which needs none",
            )
        transpose(lanes, self.dst, self.stationary)

    def _is_double(self) -> bool:
        return self.perf_mode in (MatmulPerfMode.double_row, "double_row")

    def _sizes(self) -> tuple[int, int, int]:
        """Return rows of the array, and the columns of stationary and of moving."""
        depth = 2 if self._is_double() else 1
        return self.stationary.partitions, self.stationary.free_elements // depth, self.moving.free_elements // depth

    def _passes(self) -> int:
        wide = dtypes.float32 in (self.stationary.dtype, self.moving.dtype)
        if self.is_transpose:
            return 2 if wide and not self.is_moving_onezero else 1
        return 4 if wide else 1

    def written(self) -> Holes:
        """All of dst, holes that a sum meets apart."""
        added = None if self.is_transpose else added_to(self.dst, self.accumulate)
        return {} if added is None else {"dst": added}

    def holes(self, holes: Holes) -> Holes:
        """A hole in a stationary column reaches a row of dst, one in a moving column a column of dst."""
        _, columns, moving = self._sizes()
        rows, others = (
            np.any(holes.get(name, np.zeros(extent, np.bool_)).reshape(-1, extent), axis=0)
            for name, extent in (("stationary", columns), ("moving", moving))
        )
        return {"dst": product_holes(self.dst, rows, others)}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """LoadStationary and the passes; a one-zero hint halves the passes of float32."""
        rows, columns, moving = self._sizes()
        passes, depth = self._passes(), 2 if self._is_double() else 1
        loads = 2 if passes == 4 and not self.is_stationary_onezero else 1
        if passes == 4:
            passes //= 2 ** (self.is_stationary_onezero + self.is_moving_onezero)
        flops = 0 if self.is_transpose else 2 * depth * rows * columns * moving
        dtype = max(self.stationary.dtype, self.moving.dtype, key=lambda dtype: dtype.size_bytes)
        tile = array_tile(self.tile_position, self.tile_size, chip) or (0, 0, 0, 0)
        step, *steps = (stream(operand).step_bytes for operand in (self.moving, self.stationary, self.dst))
        shape = (rows, columns, moving)
        return (Matmul(*shape, dtype, passes, loads, self.is_transpose, flops, step, depth, *tile, *steps),)


nc_matmul = emit(NcMatmul)
