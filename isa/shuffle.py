"""Moving data between the partitions of a quadrant.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``nc_stream_shuffle``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from numbers import Integral
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from neurosim.chip import Chip
from neurosim.datapath.rules import Broken, Shown, same_dtype
from neurosim.datapath.streams import stream
from neurosim.engines import Engine, Memory
from neurosim.execution.lanes import Lanes
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit
from neurosim.memory import Mask
from neurosim.work import Lanewise, Work

QUADRANT: Final = 32
"""Partitions that exchange data."""
KEEP: Final = 255
"""Mask entry that leaves a partition of dst as it is."""


Places = npt.NDArray[np.int64]


@lru_cache(maxsize=64)
def _sources(mask: tuple[int, ...], partitions: int) -> Places:
    """Return the partition of src for each of dst, -1 where it stays. To be read only, as what follows."""
    entries = np.array(mask, np.int64)[np.arange(partitions) % QUADRANT]
    return np.where(entries == KEEP, -1, entries + np.arange(partitions) // QUADRANT * QUADRANT)


@lru_cache(maxsize=64)
def _moved(mask: tuple[int, ...], partitions: int, elements: int) -> Mask:
    """Return which elements of dst do not stay."""
    return np.repeat(_sources(mask, partitions)[:, None] >= 0, elements, axis=1)


class NcStreamShuffle(Instruction, mnemonic="nc_stream_shuffle", engines=(Engine.vector,)):
    """Partition i of each quadrant of dst = partition ``shuffle_mask[i]`` of the same quadrant of src, bit for bit.

    Quadrants are 32 partitions, counted from where each tile begins. 255 leaves the partition of dst as it is, also
    unwritten. dst and src may be one tile, and may have different numbers of partitions: entries beyond those of dst
    are not used.
    """

    dst: Tile = Out(Memory.sbuf, Memory.psum)
    src: Tile = In(Memory.sbuf, Memory.psum)
    shuffle_mask: Any
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """One dtype, equal free extents, 32 entries that src has, start partitions that the larger tile allows."""
        numbers = (Shown("dst", self.dst), Shown("src", self.src))
        yield same_dtype("dst", self.dst, "src", self.src)
        if self.dst.free_elements != self.src.free_elements:
            yield Broken(
                f"dst has {self.dst.free_elements} elements per partition and src has {self.src.free_elements}",
                numbers,
                "slice the larger one",
            )
        mask = self.shuffle_mask
        entries = mask if isinstance(mask, (list, tuple)) else ()
        if len(entries) != QUADRANT or not all(isinstance(entry, Integral) for entry in entries):
            yield Broken(
                f"shuffle_mask {mask!r} is not a list of {QUADRANT} ints",
                advice="give for each partition of dst the one of src, within 32 partitions",
            )
            return
        wrong = [entry for entry in entries if entry != KEEP and not 0 <= entry < QUADRANT]
        if wrong:
            yield Broken(
                f"shuffle_mask has {wrong[0]}; entries are 0 to {QUADRANT - 1}, or {KEEP} to keep dst",
                advice="a quadrant is shuffled within itself; move data between quadrants by nisa.dma_copy",
            )
        sources = self._sources()
        beyond = np.flatnonzero(sources >= self.src.partitions)
        if beyond.size:
            yield Broken(
                f"partition {beyond[0]} of dst comes from partition {sources[beyond[0]]} of src, "
                f"which has {self.src.partitions}",
                numbers,
                f"use {KEEP} where dst keeps its data, or one call per quadrant",
            )
        yield from self._start_rules(chip, numbers)

    def _start_rules(self, chip: Chip, numbers: tuple[object, ...]) -> Iterator[Broken | None]:
        active = -(-max(self.dst.partitions, self.src.partitions) // QUADRANT) * QUADRANT
        step = chip.partitions if active > 2 * QUADRANT else active
        for name, tile in (("dst", self.dst), ("src", self.src)):
            if tile.start_partition % step:
                allowed = "/".join(str(begin) for begin in range(0, chip.partitions, step))
                yield Broken(
                    f"{name} begins at partition {tile.start_partition}; {active} partitions take part",
                    (*numbers, f"then both tiles begin at partition {allowed}"),
                    "shuffle quadrant by quadrant",
                )

    def _sources(self) -> Places:
        """Return the partition of src that each partition of dst comes from, -1 where dst stays."""
        return _sources(tuple(self.shuffle_mask), self.dst.partitions)

    def _moved(self) -> Mask:
        """Return which elements of dst do not stay."""
        return _moved(tuple(self.shuffle_mask), self.dst.partitions, self.dst.free_elements)

    def execute(self, lanes: Lanes) -> None:
        """Move bits."""
        sources = self._sources()
        lanes.move(self.dst, lambda source: source[np.maximum(sources, 0)], self.src, where=self._moved())

    def written(self) -> Holes:
        """Partitions that do not stay."""
        return {"dst": self._moved()}

    def holes(self, holes: Holes) -> Holes:
        """Holes move along."""
        source = holes["src"].reshape(self.src.partitions, -1)
        return {"dst": source[np.maximum(self._sources(), 0)]}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """Loading the mask; one stream in, one out."""
        passing = Lanewise("stream_shuffle", self.src.free_elements, (stream(self.src),), stream(self.dst))
        return Lanewise("mask_load", 0, (), None), passing


nc_stream_shuffle = emit(NcStreamShuffle)
