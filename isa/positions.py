"""Where nonzero elements are, and where segments begin and end, on GpSimd.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``nonzero_with_count`` and ``sequence_bounds``; the values of
the latter: ``nki/test/test_nki_isa_sequence_bounds.py``. Their time is not documented: 150 cycles and one per element,
as other instructions of GpSimd (*assumed*).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import numpy as np

from neurosim import dtypes
from neurosim.chip import Chip
from neurosim.datapath.rules import Broken, Shown, dtype_in, is_whole, result_dtype_in, same_partitions
from neurosim.datapath.streams import stream
from neurosim.engines import Engine, Memory
from neurosim.errors import UnknownBehavior
from neurosim.execution.holes import rowwise_holes
from neurosim.execution.lanes import Lanes
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit
from neurosim.memory import Mask
from neurosim.numerics import convert
from neurosim.work import Lanewise, Work

CORE: Final = 16
"""Partitions that one GpSimd core is tied to; it reads and writes the first of them here."""
_WORDS: Final = (dtypes.float32, dtypes.int32)
_LIMITS: Final = (-(2**31), 2**31 - 1)


@lru_cache(maxsize=16)
def _first_of_cores(partitions: int, elements: int) -> Mask:
    """Return which elements lie in the first partition of a core; to be read only."""
    return np.repeat(np.arange(partitions)[:, None] % CORE == 0, elements, axis=1)


class NonzeroWithCount(Instruction, mnemonic="nonzero_with_count", engines=(Engine.gpsimd,)):
    """dst[p] = the places of nonzero elements of src[p], then padding, and their number last, for p = 0, 16, 32, ….

    Places count along all free axes, from ``index_offset`` on; ``padding_val`` fills up to the number of elements. The
    other partitions are neither read nor written. A NaN is not zero, and -0 is.
    """

    dst: Tile = Out(Memory.sbuf)
    src: Tile = In(Memory.sbuf)
    index_offset: int = 0
    padding_val: int = -1
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """NeuronCore-v3; one element more in dst, 32-bit formats, int32 numbers."""
        if chip.generation < 3:
            yield Broken("needs NeuronCore-v3 (trn2)", (f"chip {chip.name}",), "count with tensor_tensor_scan")
        yield same_partitions("dst", self.dst, "src", self.src)
        count = self.src.free_elements
        if self.dst.free_elements != count + 1:
            numbers = (f"dst  {self.dst.describe()}", f"src  {self.src.describe()}")
            what = f"dst has {self.dst.free_elements} elements per partition; src and a count need {count + 1}"
            yield Broken(what, numbers, advice="give dst one column more than src")
        yield dtype_in("src", self.src, _WORDS)
        yield result_dtype_in("dst", self.dst, (dtypes.int32,))
        yield self._is_int32("index_offset", self.index_offset, count)
        yield self._is_int32("padding_val", self.padding_val, 1)

    @staticmethod
    def _is_int32(name: str, value: Any, count: int) -> Broken | None:
        low, high = _LIMITS
        if is_whole(value) and low <= int(value) and int(value) + count - 1 <= high:
            return None
        return Broken(
            f"{name} {value!r}: it, and {count - 1} more, must fit int32",
            advice="pass an int that leaves room for all positions",
        )

    def execute(self, lanes: Lanes) -> None:
        """Look for what is not zero, row by row."""
        rows = lanes.bits(self.src)[::CORE]
        result = np.zeros((self.dst.partitions, self.dst.free_elements), np.int32)
        for row, values in enumerate(rows):
            places = np.flatnonzero(values)
            found = result[row * CORE]
            found[:-1] = self.padding_val
            found[: len(places)] = places + int(self.index_offset)
            found[-1] = len(places)
        lanes.put_bits(self.dst, result, where=self._written())

    def _written(self) -> Mask:
        return _first_of_cores(self.dst.partitions, self.dst.free_elements)

    def written(self) -> Holes:
        """The first partition of each core."""
        return {"dst": self._written()}

    def holes(self, holes: Holes) -> Holes:
        """A hole moves all that comes after it."""
        return {"dst": rowwise_holes(self.dst, holes.values())}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream in, one out."""
        return (Lanewise("nonzero", self.src.free_elements, (stream(self.src),), stream(self.dst)),)


class SequenceBounds(Instruction, mnemonic="sequence_bounds", engines=(Engine.gpsimd,)):
    """dst[0, 0, i], dst[0, 1, i] = where the segment of element i begins, and the place after its end.

    A segment is a run of equal ``segment_ids``. Elements with ID 0 are padding: they have n and -1, for n elements. IDs
    that are no whole numbers from 0 have no documented bounds, and raise.
    """

    dst: Tile = Out(Memory.sbuf)
    segment_ids: Tile = In(Memory.sbuf)
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """One partition, two results for each element, float32 or int32."""
        numbers = (Shown("dst", self.dst, width=11), Shown("segment_ids", self.segment_ids))
        if self.segment_ids.partitions != 1:
            yield Broken(
                f"segment_ids has {self.segment_ids.partitions} partitions; it must have 1",
                numbers,
                advice="slice one partition, as in ids[0:1]",
            )
        yield same_partitions("dst", self.dst, "segment_ids", self.segment_ids)
        count = self.segment_ids.free_elements
        if self.dst.free_elements != 2 * count:
            what = f"dst has {self.dst.free_elements} elements; a start and an end of {count} are {2 * count}"
            yield Broken(what, numbers, f"give it the shape (1, 2, {count})")
        yield dtype_in("segment_ids", self.segment_ids, _WORDS)
        yield result_dtype_in("dst", self.dst, _WORDS)

    def execute(self, lanes: Lanes) -> None:
        """Cut where neighbours differ; number the cuts."""
        ids = lanes.bits(self.segment_ids)[0]
        wrong = np.flatnonzero((ids < 0) | (ids != np.trunc(ids)) | ~np.isfinite(ids))
        if wrong.size:
            raise UnknownBehavior(
                f"sequence_bounds: segment_ids[0, {wrong[0]}] is {ids[wrong[0]]}",
                numbers=(f"segment_ids  {self.segment_ids.describe()}",),
                advice="IDs are whole numbers from 0, and 0 is padding",
            )
        count = len(ids)
        cuts = np.flatnonzero(ids[1:] != ids[:-1]) + 1
        begins, ends = np.concatenate([[0], cuts]), np.concatenate([cuts, [count]])
        lengths = ends - begins
        bounds = np.stack([np.repeat(begins, lengths), np.repeat(ends, lengths)]).astype(np.int32)
        bounds[:, ids == 0] = [[count], [-1]]
        lanes.put_bits(self.dst, convert.cast(bounds.reshape(1, -1), dtypes.int32, self.dst.dtype))

    def holes(self, holes: Holes) -> Holes:
        """Any element may begin or end any segment."""
        return {"dst": rowwise_holes(self.dst, holes.values())}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream in, one out."""
        inputs = (stream(self.segment_ids),)
        return (Lanewise("sequence_bounds", self.segment_ids.free_elements, inputs, stream(self.dst)),)


nonzero_with_count = emit(NonzeroWithCount)
sequence_bounds = emit(SequenceBounds)
