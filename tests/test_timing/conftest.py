"""Programs built by hand, record by record, so that each expected picosecond can be worked out on paper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from neurosim import dtypes
from neurosim.chip import Chip, load
from neurosim.engines import Engine, Memory
from neurosim.program import Access, Pattern, Program, Signature, StorageInfo
from neurosim.timing import Timeline, time
from neurosim.work import AccumulatorRead, Lanewise, Matmul, Stream, Transfer, Work

DEVICES = Path(__file__).resolve().parents[2] / "isa" / "devices"
READ, WRITE, ACCUMULATE = Access.READ, Access.WRITE, Access.ACCUMULATE


class Tile:
    """A whole tensor: its storage and its pattern."""

    def __init__(self, storage: int, pattern: Pattern) -> None:
        self.storage = storage
        self.pattern = pattern

    @property
    def elements(self) -> int:
        return self.pattern.shape[1]

    def stream(self) -> Stream:
        size = self.pattern.dtype.size_bytes
        return Stream(self.pattern.dtype, self.pattern.memory, size, True)


class Builder:
    """Makes a program. Tiles are 128 partitions by ``elements``; every operand is a whole tile."""

    def __init__(self, generation: int = 3) -> None:
        self.program = Program("trn2", generation)
        self.program.stacks.append(())
        self._signatures: dict[Signature, int] = {}

    def tile(
        self,
        elements: int = 512,
        dtype: str = "float32",
        memory: Memory = Memory.sbuf,
        partitions: int = 128,
        start_partition: int = 0,
    ) -> Tile:
        format_ = dtypes.of(dtype)
        assert format_ is not None
        row_bytes = elements * format_.size_bytes
        on_chip = memory.is_on_chip
        size_bytes = row_bytes if on_chip else row_bytes * partitions
        role = "tile" if on_chip else "input"
        info = StorageInfo("t", memory, (partitions, elements), format_, 128 * on_chip, size_bytes, 0, role)
        self.program.storages.append(info)
        steps = (1, 1) if on_chip else (elements, 1)
        axis = 0 if on_chip else -1
        shape = (partitions, elements)
        pattern = Pattern("t", READ, memory, format_, shape, steps, axis, start_partition, row_bytes * on_chip)
        return Tile(len(self.program.storages) - 1, pattern)

    def record(
        self,
        instruction: str,
        engine: Engine,
        work: tuple[Work, ...],
        reads: tuple[Tile, ...],
        writes: tuple[Tile, ...],
        access: Access = WRITE,
        core: int = 0,
    ) -> int:
        patterns = [replace(tile.pattern, access=access, role="dst") for tile in writes]
        patterns += [replace(tile.pattern, role="data") for tile in reads]
        signature = Signature(instruction, tuple(patterns), (), engine, frozenset({engine}), work)
        number = self._signatures.get(signature)
        if number is None:
            number = self._signatures[signature] = len(self.program.signatures)
            self.program.signatures.append(signature)
        slots = [value for tile in (*writes, *reads) for value in (tile.storage, 0)]
        return self.program.append(number, slots, 0, core)

    def lanes(
        self,
        law: str,
        dst: Tile,
        *data: Tile,
        engine: Engine = Engine.vector,
        table: str | None = None,
        pointers: int = 0,
        elements: int | None = None,
        step_bytes: int | None = None,
        accumulator: Tile | None = None,
        run_elements: int = 1,
        results: int = 0,
        quick: bool = False,
        core: int = 0,
    ) -> int:
        """A lane-wise instruction; ``step_bytes`` makes its first input strided."""
        inputs = [tile.stream() for tile in data]
        if step_bytes is not None:
            inputs[0] = replace(inputs[0], step_bytes=step_bytes, contiguous=False)
        count = dst.elements if elements is None else elements
        passing = Lanewise(law, count, tuple(inputs), dst.stream(), pointers, table, run_elements, results, quick)
        work: tuple[Work, ...] = (passing,)
        writes = (dst,)
        if accumulator is not None:
            work, writes = (*work, AccumulatorRead(128)), (dst, accumulator)
        return self.record(law, engine, work, data, writes, core=core)

    def matmul(
        self,
        dst: Tile,
        stationary: Tile,
        moving: Tile,
        *,
        accumulate: bool = False,
        transpose: bool = False,
        hint: bool = False,
        step_bytes: int = 0,
    ) -> int:
        """A product, or a transpose, whose ``hint`` says that ``moving`` holds ones and zeros."""
        dtype = moving.pattern.dtype
        full = dtype == "float32" and not transpose
        passes, loads = (4, 2) if full else (1, 1)
        if transpose and dtype == "float32" and not hint:
            passes = 2
        rows, columns, free = moving.pattern.shape[0], stationary.elements, moving.elements
        flops = 0 if transpose else 2 * rows * columns * free
        work = Matmul(rows, columns, free, dtype, passes, loads, transpose, flops, step_bytes)
        access = ACCUMULATE if accumulate else WRITE
        return self.record("nc_matmul", Engine.tensor, (work,), (stationary, moving), (dst,), access)

    def dma(
        self,
        dst: Tile,
        src: Tile,
        engine: Engine = Engine.sync,
        generation: str | None = None,
        runs: int = 1,
        transpose_bytes: int = 0,
        core: int = 0,
    ) -> int:
        """A copy (or transpose) with ``runs`` descriptors per partition."""
        if generation is None:
            generation = "swdge" if engine is Engine.gpsimd else "hwdge"
        size_bytes = src.pattern.size_bytes
        descriptors = src.pattern.shape[0] * runs
        source, target = src.pattern.memory, dst.pattern.memory
        run_bytes = size_bytes // descriptors
        work = Transfer(descriptors, run_bytes, size_bytes, size_bytes, source, target, generation, transpose_bytes)
        return self.record("dma_copy", engine, (work,), (src,), (dst,), core=core)

    def hbm(self, elements: int = 512, dtype: str = "float32", partitions: int = 128) -> Tile:
        return self.tile(elements, dtype, Memory.hbm, partitions)

    def psum(self, elements: int = 512, dtype: str = "float32") -> Tile:
        return self.tile(elements, dtype, Memory.psum)

    def time(self, chip: Chip, schedule: str = "program", throttle: bool = False) -> Timeline:
        (timeline,) = time(self.program, chip, schedule=schedule, throttle=throttle).values()
        return timeline


@pytest.fixture(scope="session")
def chips() -> dict[str, Chip]:
    """All chips, by name."""
    return {path.stem: load(path) for path in DEVICES.glob("*.toml")}


@pytest.fixture(scope="session")
def trn2(chips: dict[str, Chip]) -> Chip:
    return chips["trn2"]


@pytest.fixture
def builder() -> Builder:
    return Builder()


@pytest.fixture(scope="session")
def new_builder() -> Any:
    """The class, for tests that need many programs."""
    return Builder
