"""Gathering elements of SBUF by index tiles, on GpSimd.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``local_gather`` and ``nc_n_gather``; the cost of the former:
the same file of SDK 2.26. An index out of bounds is undefined behavior there and raises here.
"""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from neurosim import dtypes
from neurosim.chip import Chip
from neurosim.datapath.rules import Broken, Shown, dtype_in, is_whole, same_dtype, same_elements, same_partitions
from neurosim.datapath.streams import stream
from neurosim.engines import Engine, Memory
from neurosim.errors import OutOfBounds
from neurosim.execution.lanes import Lanes
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit
from neurosim.work import Lanewise, Work

CORE: Final = 16
"""Partitions that one GpSimd core is tied to."""
MOST_INDICES: Final = 4096
"""Indices per core that ``local_gather`` takes."""
RUNS: Final = (1, 2, 4, 8, 16, 32)
"""Contiguous elements per index."""
GROUP: Final = 512
"""Elements of one of the ISA instructions that ``nc_n_gather`` becomes."""


def _first_outside(places: npt.NDArray[np.int64], run: int, limit: int) -> tuple[int, int] | None:
    """Return the row and column of the first index from which ``run`` elements leave a partition's ``limit``."""
    outside = np.argwhere(places + run > limit)
    return (int(outside[0, 0]), int(outside[0, 1])) if outside.size else None


def _out_of_bounds(what: str, index: int, run: int, limit: int) -> OutOfBounds:
    reach = f"{run} elements from there are" if run > 1 else "that is"
    return OutOfBounds(
        f"{what} is {index}: {reach} out of bounds",
        numbers=(f"the partition has {limit} elements, 0 to {limit - 1}",),
        advice="indices count elements of the flattened free axes",
    )


class LocalGather(Instruction, mnemonic="local_gather", engines=(Engine.gpsimd,)):
    """dst[p] = ``num_elem_per_idx`` elements of src_buffer[p] from each index of p's group of 16 partitions.

    Each group of 16 partitions belongs to one GpSimd core, which reads its slice of ``index`` along partitions first
    and takes the first ``num_valid_indices`` of them (all by default) for all of its partitions. An index counts
    elements of the flattened free axes of ``src_buffer``. Bits move as they are.
    """

    chooses = True
    dst: Tile = Out(Memory.sbuf)
    src_buffer: Tile = In(Memory.sbuf)
    index: Tile = In(Memory.sbuf, strict=True)
    num_elem_per_idx: int = 1
    num_valid_indices: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        self._places: npt.NDArray[np.int64] | None = None  # per element of dst, once the indices' values are known

    def _count(self) -> int:
        return CORE * self.index.free_elements if self.num_valid_indices is None else int(self.num_valid_indices)

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Whole groups of partitions, uint16 indices, one dtype, and as many elements as the indices give."""
        yield same_partitions("src_buffer", self.src_buffer, "index", self.index)
        yield same_partitions("dst", self.dst, "src_buffer", self.src_buffer)
        yield same_dtype("dst", self.dst, "src_buffer", self.src_buffer)
        yield dtype_in("index", self.index, (dtypes.uint16,))
        if self.index.partitions % CORE:
            yield Broken(
                f"index has {self.index.partitions} partitions; it must be a multiple of {CORE}",
                advice="give each GpSimd core its 16 partitions",
            )
        run: Any = self.num_elem_per_idx
        if not is_whole(run) or run not in RUNS:
            yield Broken(f"num_elem_per_idx {run!r} is not one of {', '.join(map(str, RUNS))}")
        yield from self._count_rules()

    def _count_rules(self) -> Iterator[Broken | None]:
        given: Any = self.num_valid_indices
        there = CORE * self.index.free_elements
        numbers = (Shown("dst", self.dst, width=5), Shown("index", self.index))
        if given is not None and (not isinstance(given, Integral) or not 1 <= int(given) <= there):
            yield Broken(
                f"num_valid_indices {given!r}; index has {there} per core",
                numbers,
                advice="pass an int from 1 to that, or leave it out for all",
            )
            return
        count, run = self._count(), self.num_elem_per_idx
        if count > MOST_INDICES:
            yield Broken(f"{count} indices per core; at most {MOST_INDICES}", numbers, "gather in parts")
        if self.dst.free_elements != count * run:
            yield Broken(
                f"dst has {self.dst.free_elements} elements per partition; {count} indices of {run} elements give "
                f"{count * run}",
                numbers,
                "pass num_valid_indices and num_elem_per_idx, and size dst to their product",
            )

    def execute(self, lanes: Lanes) -> None:
        """Flatten each core's indices, check them, move bits."""
        rows, run = self.index.partitions, self.num_elem_per_idx
        by_core = lanes.bits(self.index).reshape(rows // CORE, CORE, -1).transpose(0, 2, 1)
        starts = by_core.reshape(rows // CORE, -1)[:, : self._count()].astype(np.int64)
        limit = self.src_buffer.free_elements
        outside = _first_outside(starts, run, limit)
        if outside is not None:
            core, number = outside
            what = f"local_gather: index[{core * CORE + number % CORE}, {number // CORE}]"
            raise _out_of_bounds(what, int(starts[outside]), run, limit)
        places = (starts[:, :, None] + np.arange(run)).reshape(rows // CORE, -1)
        chosen = self._places = np.repeat(places, CORE, axis=0)
        lanes.move(self.dst, lambda source: np.take_along_axis(source, chosen, axis=1), self.src_buffer)

    def holes(self, holes: Holes) -> Holes:
        """Holes are gathered too; without values, one anywhere in a partition reaches all of it."""
        return {"dst": _gathered(holes["src_buffer"], self._places, self.dst)}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream out; how fast depends on the elements per index."""
        elements = self._count() * self.num_elem_per_idx
        inputs = (stream(self.src_buffer),)
        return (Lanewise("local_gather", elements, inputs, stream(self.dst), run_elements=self.num_elem_per_idx),)


class NcNGather(Instruction, mnemonic="nc_n_gather", engines=(Engine.gpsimd,)):
    """dst[p, i] = data[p, indices[p, i]], over flattened free axes. Bits move as they are."""

    chooses = True
    dst: Tile = Out(Memory.sbuf)
    data: Tile = In(Memory.sbuf)
    indices: Tile = In(Memory.sbuf, strict=True)
    name: str | None = None

    def __post_init__(self) -> None:
        self._places: npt.NDArray[np.int64] | None = None  # per element of dst, once the indices' values are known

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """An index for each element of dst, one dtype."""
        yield same_elements("dst", self.dst, "indices", self.indices)
        yield same_partitions("dst", self.dst, "data", self.data)
        yield same_dtype("dst", self.dst, "data", self.data)
        yield dtype_in("indices", self.indices, (dtypes.uint32,))

    def execute(self, lanes: Lanes) -> None:
        """Check the indices, move bits."""
        places = self._places = lanes.bits(self.indices).astype(np.int64)
        outside = _first_outside(places, 1, self.data.free_elements)
        if outside is not None:
            what = f"nc_n_gather: indices[{outside[0]}, {outside[1]}]"
            raise _out_of_bounds(what, int(places[outside]), 1, self.data.free_elements)
        lanes.move(self.dst, lambda source: np.take_along_axis(source, places, axis=1), self.data)

    def holes(self, holes: Holes) -> Holes:
        """Holes are gathered too; without values, one anywhere in a partition reaches all of it."""
        return {"dst": _gathered(holes["data"], self._places, self.dst)}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """As many ISA instructions as groups of 512 elements (*assumed*: of dst)."""
        total, inputs = self.dst.free_elements, (stream(self.data), stream(self.indices))
        groups = [min(GROUP, total - begin) for begin in range(0, total, GROUP)]
        return tuple(Lanewise("n_gather", elements, inputs, stream(self.dst)) for elements in groups)


def _gathered(source: npt.NDArray[np.bool_], places: npt.NDArray[np.int64] | None, target: Tile) -> Any:
    mask = source.reshape(target.partitions, -1)
    if places is None:
        return np.repeat(mask.any(axis=1), target.free_elements)
    return np.take_along_axis(mask, places, axis=1)


local_gather = emit(LocalGather)
nc_n_gather = emit(NcNGather)
