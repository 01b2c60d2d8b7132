"""What an instruction asks of an engine: streams, passes, descriptors. No chip, no clock, no values.

An instruction's ``work`` returns these; ``timing.laws`` turns them into picoseconds with a chip's figures.
"""

from __future__ import annotations

from dataclasses import dataclass

from neurosim.dtypes import DType
from neurosim.engines import Memory


@dataclass(frozen=True, slots=True)
class Stream:
    """One operand as a data path sees it.

    Attributes:
        dtype: the format in memory.
        memory: where it lives.
        step_bytes: distance between neighbours along the most minor free axis, in bytes; 0 repeats one element.
        contiguous: whether all free elements of a partition are adjacent.
    """

    dtype: DType
    memory: Memory
    step_bytes: int
    contiguous: bool


@dataclass(frozen=True, slots=True)
class Lanewise:
    """A stream of elements through the lanes of Vector, Scalar or GpSimd.

    Attributes:
        law: which law of the chip holds: ``copy``, ``tensor_scalar``, ``tensor_tensor``, ``reduce``,
            ``reciprocal``, ``memset``, ``transpose``, ``activation``, ``iota``, ``affine_select``, ``scan``, ….
        elements: free elements per partition that pass.
        inputs: tensor operands that stream.
        output: the destination, None where only registers are written.
        pointers: per-partition operands ([P, 1] tiles) fetched before the stream begins.
        table: activation function whose table must be loaded, None for none.
        run_elements: elements that lie side by side for each index, where the law gathers.
        results: elements that come out, where the law counts them apart from those that go in.
        quick: whether the operator is one that the manual lets pass faster on 16-bit floats.
    """

    law: str
    elements: int
    inputs: tuple[Stream, ...]
    output: Stream | None
    pointers: int = 0
    table: str | None = None
    run_elements: int = 1
    results: int = 0
    quick: bool = False


@dataclass(frozen=True, slots=True)
class AccumulatorRead:
    """Reading an engine's accumulator registers out into a [P, 1] tile."""

    partitions: int


@dataclass(frozen=True, slots=True)
class Matmul:
    """LoadStationary and its MATMULs on the 128 × 128 array.

    Attributes:
        rows: rows of the array, partitions of both operands.
        columns: free size of the stationary operand, M.
        moving: free size of the moving operand, N.
        dtype: format of the operands (the wider of the two).
        passes: times that the moving operand streams through: 1, or 4 for float32. Of a transpose of 4-byte elements,
            1 where the kernel says that moving holds ones and zeros alone, else 2; how many these are is the chip's.
        loads: LoadStationary instructions: 1, or 2 for float32 (high and low halves).
        transpose: whether the array only moves bits.
        flops: floating-point operations that count as useful: 2·K·M·N with the depth in K, 0 for a transpose.
        moving_step_bytes: distance between neighbours along the moving operand's most minor free axis, in bytes.
        depth: products that a cell adds up at once: 2 for 8-bit operands in double_row, 4 for MX, else 1.
        tile_row, tile_column, tile_rows, tile_columns: the part of the array that works, all 0 for the whole of it.
        stationary_step_bytes, result_step_bytes: as ``moving_step_bytes``, of the stationary operand and in PSUM.
    """

    rows: int
    columns: int
    moving: int
    dtype: DType
    passes: int
    loads: int
    transpose: bool
    flops: int
    moving_step_bytes: int = 0
    depth: int = 1
    tile_row: int = 0
    tile_column: int = 0
    tile_rows: int = 0
    tile_columns: int = 0
    stationary_step_bytes: int = 0
    result_step_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Transfer:
    """A DMA: one trigger, its descriptors, one semaphore.

    Attributes:
        descriptors: number of contiguous runs that are moved one by one.
        descriptor_bytes: bytes of one run, on the wider side when the DMA casts.
        read_bytes, written_bytes: payload on each side.
        source, target: the memories.
        generation: ``hwdge``, ``swdge`` or ``none`` (static ring): who makes the descriptors.
        transpose_bytes: size of an element where the DMA transposes, 0 where it copies.
    """

    descriptors: int
    descriptor_bytes: int
    read_bytes: int
    written_bytes: int
    source: Memory
    target: Memory
    generation: str
    transpose_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Handshake:
    """Meeting another core: semaphores, and the bytes that go through GpSimd's own DMA with them, if any."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class Control:
    """What an engine's sequencer does by itself, with its scalar registers: no data path takes part.

    Attributes:
        law: ``move``, ``load``, ``store`` (of a register), or ``turn`` (the head of a loop on the device).
        memory: where a loaded or stored scalar lives, ``state`` for the others.
        meets: whether all engines wait here for each other, and for all DMAs.
    """

    law: str
    memory: Memory = Memory.state
    meets: bool = False


Work = Lanewise | AccumulatorRead | Matmul | Transfer | Handshake | Control
