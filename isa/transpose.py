"""Transposes between the partition axis and the free axis.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``nc_transpose``; before NeuronCore-v3:
``nki/guides/architecture/trainium2_arch.rst``, "Built-in Transpose Support".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from neurosim.chip import Chip
from neurosim.datapath.rules import Broken, Shown, same_dtype, within_bank
from neurosim.datapath.streams import stream
from neurosim.datapath.systolic import multiplies_to_transpose, transpose, transpose_dtype_rule
from neurosim.engines import Engine, Memory
from neurosim.execution.lanes import Lanes
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit
from neurosim.versions import NKI_0_3
from neurosim.work import Lanewise, Matmul, Work

VECTOR_LIMIT = 32
"""Rows and columns that Vector transposes at once (``nc_transpose``, "Tile size")."""


class NcTranspose(Instruction, mnemonic="nc_transpose", engines=(Engine.tensor, Engine.vector)):
    """dst[F, P] = data[P, F].T, bit for bit: Tensor from SBUF to PSUM up to 128 × 128, Vector up to 32 × 32.

    Before NeuronCore-v3 the tensor engine's transpose is a matmul with an identity: NaN and Inf spread along a row of
    dst, -0 becomes +0, and dst may be float32 where data is narrower.
    """

    takes_packed = True

    dst: Tile = Out(Memory.sbuf, Memory.psum)
    data: Tile = In(Memory.sbuf, Memory.psum)
    engine: Engine = Engine.unknown
    name: str | None = None

    def _asked(self) -> Engine:
        """Return the engine that counts: NKI 0.3 passed over ``engine=``."""
        return Engine.unknown if self.nki_version == NKI_0_3 else self.engine

    def _fits_tensor(self) -> bool:
        return self.data.buffer is Memory.sbuf and self.dst.buffer is Memory.psum

    def _on_tensor(self) -> bool:
        return self._asked() is not Engine.vector and self._fits_tensor()

    def _fits_vector(self) -> bool:
        return max(self.data.partitions, self.data.free_elements) <= VECTOR_LIMIT

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Exchanged extents, one dtype, an engine that reaches the memories."""
        numbers = (Shown("dst", self.dst, width=4), Shown("data", self.data))
        rows, columns = self.data.partitions, self.data.free_elements
        if self._on_tensor():
            yield transpose_dtype_rule(self.dst, "data", self.data, chip)
        else:
            yield same_dtype("dst", self.dst, "data", self.data)
        if columns > chip.tensor.columns:
            yield Broken(
                f"data has {columns} columns; at most {chip.tensor.columns} become partitions",
                numbers,
                f"split it into tiles of at most {chip.tensor.columns} columns",
            )
        elif (self.dst.partitions, self.dst.free_elements) != (columns, rows):
            yield Broken(
                f"dst is {self.dst.partitions} × {self.dst.free_elements}; the transpose is {columns} × {rows}",
                numbers,
                advice=f"give dst {columns} partitions of {rows} elements",
            )
        if chip.generation < 4 and self._on_tensor():
            yield within_bank("dst", self.dst, chip.psum.bank_bytes)
        if self._asked() is Engine.tensor and not self._fits_tensor():
            yield Broken("Tensor transposes from SBUF to PSUM", numbers, "allocate dst with buffer=nl.psum")
        elif self._asked() is Engine.vector and not self._fits_vector():
            yield Broken(
                f"Vector transposes at most {VECTOR_LIMIT} × {VECTOR_LIMIT}",
                numbers,
                "use Tensor, or smaller tiles",
            )
        elif self._asked() is Engine.unknown and not self._fits_tensor() and not self._fits_vector():
            yield Broken(
                f"dst is in {self.dst.buffer.label} and data is {rows} × {columns}: no engine does that",
                numbers,
                f"Tensor writes PSUM; Vector transposes at most {VECTOR_LIMIT} × {VECTOR_LIMIT}",
            )

    def place(self, chip: Chip) -> tuple[Engine, frozenset[Engine]]:
        """Tensor where it reaches, else Vector."""
        if self._asked() is not Engine.unknown:
            return super().place(chip)
        if self._fits_tensor() and multiplies_to_transpose(chip):
            return Engine.tensor, frozenset({Engine.tensor})
        fits = {Engine.tensor: self._fits_tensor(), Engine.vector: self._fits_vector()}
        engines = [engine for engine in self.engines if fits[engine]]
        return engines[0], frozenset(engines)

    def execute(self, lanes: Lanes) -> None:
        """Move bits, or multiply by ones and zeros."""
        if lanes.engine is Engine.tensor:
            transpose(lanes, self.dst, self.data)
        else:
            lanes.move(self.dst, np.transpose, self.data)

    def holes(self, holes: Holes) -> Holes:
        """Holes are transposed too."""
        return {"dst": holes["data"].reshape(self.data.partitions, -1).T.reshape(self.dst.shape)}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """A pass through the array with an identity, or a stream through Vector."""
        if engine is Engine.tensor:
            rows, columns = self.data.partitions, self.data.free_elements
            passes = 2 if self.data.dtype.size_bytes == 4 else 1
            moved = Matmul(rows, columns, rows, self.data.dtype, passes, loads=1, transpose=True, flops=0)
            steps = [stream(operand).step_bytes for operand in (self.data, self.dst)]
            return (replace(moved, stationary_step_bytes=steps[0], result_step_bytes=steps[1]),)
        return (Lanewise("transpose", self.data.free_elements, (stream(self.data),), stream(self.dst)),)


nc_transpose = emit(NcTranspose)
