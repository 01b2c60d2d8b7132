"""The eight largest values of each partition, where eight values stand, and replacing them.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``max8``, ``nc_find_index8``, ``nc_match_replace8`` (NKI 0.6);
what is compared, and how NaN and zeros behave, is *assumed*: see ``neurosim.numerics.search``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from neurosim import dtypes
from neurosim.chip import Chip
from neurosim.datapath.rules import (
    Broken,
    axes_within,
    elements_within,
    fits_float32,
    is_number,
    result_dtype_in,
    same_elements,
    same_partitions,
)
from neurosim.datapath.streams import stream
from neurosim.engines import Engine, Memory
from neurosim.errors import UnknownBehavior
from neurosim.execution.holes import rowwise_holes
from neurosim.execution.lanes import Lanes
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit
from neurosim.numerics import search
from neurosim.work import Lanewise, Work

EIGHT: Final = search.COUNT
MOST: Final = 16384
"""Elements per partition that these instructions search."""
_INDEX: Final = (dtypes.uint32, dtypes.uint16)
_SLICE: Final = "slice eight columns"
_PARTS: Final = "search it in parts"


class Max8(Instruction, mnemonic="max8", engines=(Engine.vector,)):
    """dst [P, 8] = the eight largest elements of each partition, descending, compared as float32.

    As in every maximum here a NaN is the largest of all, and +0 comes before -0.
    """

    dst: Tile = Out(Memory.sbuf, Memory.psum)
    src: Tile = In(Memory.sbuf, Memory.psum)
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Equal partitions, eight results in a 2-D tile, 8 to 16384 elements in at most three axes."""
        yield same_partitions("dst", self.dst, "src", self.src)
        yield elements_within("dst", self.dst, EIGHT, EIGHT, _SLICE)
        yield axes_within("dst", self.dst, 2)
        yield elements_within("src", self.src, EIGHT, MOST, _PARTS)
        yield axes_within("src", self.src, 3)

    def execute(self, lanes: Lanes) -> None:
        """Widen, sort, round."""
        lanes.put(self.dst, search.largest(lanes.f32(self.src)))

    def holes(self, holes: Holes) -> Holes:
        """Any element may be among the largest."""
        return {"dst": rowwise_holes(self.dst, holes.values())}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream in."""
        return (Lanewise("max8", self.src.free_elements, (stream(self.src),), stream(self.dst)),)


class NcFindIndex8(Instruction, mnemonic="nc_find_index8", engines=(Engine.vector,)):
    """dst [P, 8] = where each of ``vals`` stands first in its partition of data, counted along all free axes.

    Equal ``vals`` find one occurrence after the other, in the order of their columns. A value that is not there, or
    has no further occurrence, gives all ones. Both sides are compared as float32.
    """

    dst: Tile = Out(Memory.sbuf, Memory.psum)
    data: Tile = In(Memory.sbuf, Memory.psum)
    vals: Tile = In(Memory.sbuf, Memory.psum)
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Equal partitions, eight values, eight unsigned results, 8 to 16384 elements."""
        yield same_partitions("dst", self.dst, "data", self.data)
        yield same_partitions("data", self.data, "vals", self.vals)
        yield elements_within("dst", self.dst, EIGHT, EIGHT, _SLICE)
        yield axes_within("dst", self.dst, 2)
        yield result_dtype_in("dst", self.dst, _INDEX)
        yield elements_within("vals", self.vals, EIGHT, EIGHT, _SLICE)
        yield axes_within("vals", self.vals, 3)
        yield elements_within("data", self.data, EIGHT, MOST, _PARTS)
        yield axes_within("data", self.data, 3)

    def execute(self, lanes: Lanes) -> None:
        """Widen and search; -1 is all ones in either index dtype."""
        places = search.find(lanes.f32(self.data), lanes.f32(self.vals), descending=False)
        lanes.put_bits(self.dst, places.astype(self.dst.dtype.numpy))

    def holes(self, holes: Holes) -> Holes:
        """Any element may be the first occurrence."""
        return {"dst": rowwise_holes(self.dst, holes.values())}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream in; the eight values come first, as a per-partition operand does."""
        inputs = (stream(self.data),)
        return (Lanewise("find_index8", self.data.free_elements, inputs, stream(self.dst), pointers=1),)


class NcMatchReplace8(Instruction, mnemonic="nc_match_replace8", engines=(Engine.vector,)):
    """dst = data with one occurrence of each of ``vals`` replaced by ``imm``; ``dst_idx`` [P, 8] = where they were.

    Equal ``vals`` are paired with occurrences from the last column to the first: the first occurrence goes to the
    last of the equal columns. *Assumed*: data passes once, so that an element that was replaced is not found again
    even where ``imm`` is one of ``vals``. A value that is not there changes nothing; what ``dst_idx`` has for it is
    not documented, and asking for it raises UnknownBehavior.
    """

    dst: Tile = Out(Memory.sbuf, Memory.psum)
    data: Tile = In(Memory.sbuf, Memory.psum)
    vals: Tile = In(Memory.sbuf, Memory.psum)
    imm: float
    dst_idx: Tile | None = Out(Memory.sbuf, Memory.psum, default=None)
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Equal extents, eight values, eight unsigned indices, at most 16384 elements, a number."""
        yield same_elements("dst", self.dst, "data", self.data)
        yield same_partitions("data", self.data, "vals", self.vals)
        yield elements_within("data", self.data, EIGHT, MOST, _PARTS)
        yield elements_within("vals", self.vals, EIGHT, EIGHT, _SLICE)
        yield axes_within("vals", self.vals, 3)
        if not is_number(self.imm):
            yield Broken(f"imm {self.imm!r} is not a number", advice="pass a Python number")
        yield fits_float32("imm", self.imm)
        if self.dst_idx is not None:
            yield same_elements("dst_idx", self.dst_idx, "vals", self.vals)
            yield result_dtype_in("dst_idx", self.dst_idx, _INDEX)

    def execute(self, lanes: Lanes) -> None:
        """Widen, search, replace, round."""
        data = lanes.f32(self.data)
        places = search.find(data, lanes.f32(self.vals), descending=True)
        values = lanes.room(self.dst, self.data) if self.dst_idx is None else None  # dst stays what it is at an error
        if values is None:
            values = data.copy()
        elif values is not data:
            values[...] = data
        missing = search.replace(values, places, self.imm)
        if self.dst_idx is not None and missing:
            row, slot = np.argwhere(places == search.NOT_FOUND)[0]
            raise UnknownBehavior(
                f"nc_match_replace8: vals[{row}, {slot}] is not in data, and dst_idx asks where it is",
                numbers=(f"{missing} of {places.size} values are not in data",),
                advice="find indices with nisa.nc_find_index8, which gives all ones for them",
            )
        lanes.put(self.dst, values)
        if self.dst_idx is not None:
            lanes.put_bits(self.dst_idx, places.astype(self.dst_idx.dtype.numpy))

    def holes(self, holes: Holes) -> Holes:
        """Any element may be an occurrence, so a hole reaches all of its partition."""
        spread = {"dst": rowwise_holes(self.dst, holes.values())}
        if self.dst_idx is not None:
            spread["dst_idx"] = rowwise_holes(self.dst_idx, holes.values())
        return spread

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream in, one out; the eight values come first, as a per-partition operand does."""
        inputs = (stream(self.data),)
        return (Lanewise("match_replace8", self.data.free_elements, inputs, stream(self.dst), pointers=1),)


max8 = emit(Max8)
nc_find_index8 = emit(NcFindIndex8)
nc_match_replace8 = emit(NcMatchReplace8)
