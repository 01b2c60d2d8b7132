"""Matrix multiplication on the tensor engine.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``nc_matmul``; four passes of float32: measured, hardware
facts A.4.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

import numpy as np

from neurosim import dtypes
from neurosim.chip import Chip
from neurosim.engines import Engine, Memory
from neurosim.errors import IllegalOperand, Uninitialized, UnknownBehavior, Unsupported
from neurosim.holes import uninitialized
from neurosim.indirection import ColumnTensor
from neurosim.instruction import Accumulate, Holes, In, Instruction, Tile, emit
from neurosim.lanes import Lanes
from neurosim.memory import HOLE, MATMUL, UNWRITTEN, WRITTEN
from neurosim.numerics import matmul
from neurosim.rules import Broken, bounding_box, dtype_in, same_dtype, within_bank
from neurosim.streams import stream
from neurosim.work import Matmul, Work

FLOATS = (dtypes.float8_e4m3, dtypes.float8_e5m2, dtypes.bfloat16, dtypes.float16, dtypes.float32)


GATHERED = (dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3, dtypes.float8_e5m2, dtypes.float8_e4m3fn)
"""Formats of operands that offsets choose."""


class MatmulPerfMode(Enum):
    """Performance mode of a matmul."""

    none = "none"
    double_row = "double_row"


class NcMatmul(Instruction, mnemonic="nc_matmul", engines=(Engine.tensor,)):
    """dst[M, N] (+)= stationary[K, M].T @ moving[K, N]: operands in SBUF, result in PSUM, accumulated in float32.

    ``accumulate=False`` overwrites, ``True`` adds to what a matmul wrote, ``None`` adds where a matmul wrote and
    overwrites elsewhere. ``is_transpose`` moves the bits of ``stationary``, with an identity as ``moving``.
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
        if not (self.accumulate is None or (np.ndim(self.accumulate) == 0 and self.accumulate in (True, False))):
            yield Broken(f"accumulate={self.accumulate!r}", (), "pass None, True or False")
            return
        yield from self._shape_rules(chip)
        yield from self._indirection_rules()
        for label, tiling in (("tile_position", self.tile_position), ("tile_size", self.tile_size)):
            if not isinstance(tiling, (tuple, list)):
                yield Broken(f"{label}={tiling!r} is not a (rows, columns) pair", (), "leave it out")
        floats = FLOATS if chip.generation < 4 else (*FLOATS, dtypes.float8_e4m3fn)
        if not self.is_transpose:
            yield dtype_in("stationary", self.stationary, floats)
            yield dtype_in("moving", self.moving, floats)
            wide = [tile.dtype == dtypes.float32 for tile in (self.stationary, self.moving)]
            if any(wide) and not all(wide):
                yield Broken(
                    f"stationary is {self.stationary.dtype} and moving is {self.moving.dtype}; "
                    "float32 goes with float32 only",
                    (f"stationary  {self.stationary.describe()}", f"moving      {self.moving.describe()}"),
                    "cast the narrower one to float32, or both to bfloat16, with nisa.tensor_copy",
                )
            results = (dtypes.float32,) if chip.generation < 4 else (dtypes.float32, dtypes.bfloat16)
            yield dtype_in("dst", self.dst, results)
        else:
            yield same_dtype("dst", self.dst, "stationary", self.stationary)
            if self.accumulate:
                yield Broken("accumulate=True with is_transpose", (), "a transpose overwrites")

    def _indirection_rules(self) -> Iterator[Broken | None]:
        """What the array gathers; *assumed*: the manual's list of dtypes is about what it reads, not about dst."""
        for name, tile in (("stationary", self.stationary), ("moving", self.moving)):
            if tile.is_indirect():
                yield dtype_in(name, tile, GATHERED)
        if self.is_transpose and self.moving.is_indirect():
            yield Broken("moving is chosen by offsets, with is_transpose", (), "gather it with nisa.tensor_copy first")
        indirect = any(tile.is_indirect() for tile in (self.dst, self.stationary, self.moving))
        if indirect and tuple(self.tile_position) not in ((), (0, 0)):
            yield Broken(f"tile_position {self.tile_position} with tensor indirection", (), "leave it out")

    def _shape_rules(self, chip: Chip) -> Iterator[Broken | None]:
        rows, columns, moving = self._sizes()
        numbers = (
            f"stationary  {self.stationary.describe()}",
            f"moving      {self.moving.describe()}",
            f"dst         {self.dst.describe()}",
        )
        if rows != self.moving.partitions:
            yield Broken(f"stationary has {rows} rows (K) and moving has {self.moving.partitions}", numbers)
        if columns > chip.tensor.columns:
            yield Broken(
                f"stationary has {columns} columns; the array is {chip.tensor.columns} wide",
                numbers,
                f"split the columns into tiles of at most {chip.tensor.columns}",
            )
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
        """The tensor engine; modes that are not built, and bfloat16 sums, are refused here."""
        tiling = (tuple(self.tile_position), tuple(self.tile_size))
        if tiling not in (((), ()), ((0, 0), (128, 128))):
            raise Unsupported(
                f"nc_matmul: row and column tiling (tile_position={tiling[0]}, tile_size={tiling[1]}) is not built yet",
                advice="leave both out: the whole array is used",
            )
        if self.perf_mode is not MatmulPerfMode.none:
            if self.perf_mode is not MatmulPerfMode.double_row:
                raise IllegalOperand(f"nc_matmul: perf_mode={self.perf_mode!r} is not a nisa.matmul_perf_mode")
            raise Unsupported("nc_matmul: perf_mode double_row is not built yet", advice="leave perf_mode out")
        if self.dst.dtype != dtypes.float32 and not self.is_transpose:
            raise Unsupported(
                f"nc_matmul: sums in {self.dst.dtype} PSUM are not built yet: no public text says when they round",
                numbers=(f"dst  {self.dst.describe()}",),
                advice="give dst float32, and convert as you copy it to SBUF",
            )
        return super().place(chip)

    def admit(self, lanes: Lanes) -> None:
        """Refuse ``accumulate=True`` where no matmul wrote, and None where a matmul wrote what depends on a hole."""
        if self.accumulate and lanes.where_written(self.dst) != MATMUL:
            self._refuse_accumulate(lanes)
        elif self.accumulate is None and not self.is_transpose:
            origin = self.dst.allocation.storage.travelled(self.dst)
            if origin is not None:
                hole = bounding_box(lanes.states(self.dst) == HOLE)
                raise uninitialized(f"nc_matmul: accumulating onto dst {self.dst.describe()}", hole, origin)

    def execute(self, lanes: Lanes) -> None:
        """Multiply into PSUM according to what it holds."""
        if self.is_transpose:
            self._transpose(lanes)
            return
        for name, hint in (("stationary", self.is_stationary_onezero), ("moving", self.is_moving_onezero)):
            if hint and getattr(self, name).dtype == dtypes.float32:
                self._check_onezero(lanes, name)
        overwrite = self._overwrites(lanes)
        psum = self.dst.array()
        if isinstance(self.dst, ColumnTensor) and not overwrite and self.dst.repeats():
            raise UnknownBehavior(
                "nc_matmul: adding twice to one place of dst, which offsets choose",
                numbers=(f"dst  {self.dst.describe()}",),
                advice="give each offset once, or accumulate=False",
            )
        values = psum if psum.ndim == 2 and not self.dst.is_indirect() else np.ascontiguousarray(self.dst.lanes())
        stationary, moving = self.stationary, self.moving
        matmul.matmul_into(
            values,
            lanes.bits(stationary),
            stationary.dtype,
            lanes.bits(moving),
            moving.dtype,
            self._passes(),
            overwrite,
        )
        if values is not psum:
            lanes.put_bits(self.dst, values)

    def _overwrites(self, lanes: Lanes) -> bool:
        """Decide between overwriting and adding, from what wrote the destination."""
        if self.accumulate is not None and not self.accumulate:
            return True
        state = lanes.where_written(self.dst)
        if state == MATMUL or self.accumulate:
            return False
        if state == UNWRITTEN:
            return True
        self._refuse_foreign(lanes)
        # where no matmul wrote, adding to zero is overwriting: a pass sums from +0, so it never is -0
        zeros = np.zeros((self.dst.partitions, self.dst.free_elements), self.dst.dtype.numpy)
        lanes.put_bits(self.dst, zeros, where=np.not_equal(lanes.states(self.dst), MATMUL))
        return False

    def _refuse_accumulate(self, lanes: Lanes) -> None:
        states = lanes.states(self.dst)
        if (states < WRITTEN).any():
            raise Uninitialized(
                "nc_matmul: accumulate=True onto PSUM that nobody wrote",
                numbers=(f"dst  {self.dst.describe()}", f"unwritten: {bounding_box(states < WRITTEN)}"),
                advice="begin with accumulate=False, e.g. accumulate=(k > 0), or leave accumulate out",
            )
        if (states == WRITTEN).any() and lanes.chip.generation < 4:
            raise UnknownBehavior(
                "nc_matmul: accumulate=True onto PSUM that another instruction than a matmul wrote",
                numbers=(
                    f"dst  {self.dst.describe()}",
                    f"written otherwise: {bounding_box(states == WRITTEN)}",
                ),
                advice="the manual calls this undefined before NeuronCore-v4: begin with accumulate=False",
            )

    def _refuse_foreign(self, lanes: Lanes) -> None:
        foreign = (lanes.states(self.dst) == WRITTEN) & (self.dst.array() != 0)
        if foreign.any():
            raise UnknownBehavior(
                "nc_matmul: accumulate=None onto values that another instruction than a matmul wrote",
                numbers=(f"dst  {self.dst.describe()}", f"written otherwise: {bounding_box(foreign)}"),
                advice="say accumulate=False to overwrite them, or use a new PSUM tile",
            )

    def _check_onezero(self, lanes: Lanes, name: str) -> None:
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
        lanes.put_bits(self.dst, lanes.bits(self.stationary).T)

    def _sizes(self) -> tuple[int, int, int]:
        """Return K, and the columns of stationary and of moving."""
        return self.stationary.partitions, self.stationary.free_elements, self.moving.free_elements

    def _passes(self) -> int:
        return 4 if self.stationary.dtype == dtypes.float32 and not self.is_transpose else 1

    def holes(self, holes: Holes) -> Holes:
        """A hole in a stationary column reaches a row of dst, one in a moving column a column of dst."""
        mask = np.zeros((self.dst.partitions, self.dst.free_elements), np.bool_)
        if "stationary" in holes:
            mask |= holes["stationary"].reshape(self.stationary.partitions, -1).any(axis=0).reshape(-1, 1)
        if "moving" in holes:
            mask |= holes["moving"].reshape(self.moving.partitions, -1).any(axis=0)
        return {"dst": mask.reshape(self.dst.shape)}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """LoadStationary and the passes; a one-zero hint halves the passes of float32."""
        rows, columns, moving = self._sizes()
        passes = self._passes()
        if passes == 4:
            passes //= 2 ** (self.is_stationary_onezero + self.is_moving_onezero)
        flops = 0 if self.is_transpose else 2 * rows * columns * moving
        loads = 2 if self._passes() == 4 and not self.is_stationary_onezero else 1
        dtype = max(self.stationary.dtype, self.moving.dtype, key=lambda dtype: dtype.size_bytes)
        step_bytes = stream(self.moving).step_bytes
        return (Matmul(rows, columns, moving, dtype, passes, loads, self.is_transpose, flops, step_bytes),)


nc_matmul = emit(NcMatmul)
