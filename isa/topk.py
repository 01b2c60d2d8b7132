"""The K largest of up to 65535 elements and where they are, on GpSimd.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``topk`` (NKI 0.6). Where the results lie:
``nki/library/api/sparse-attention-indexer-mx-bf16score.rst``, whose description of the instruction's output is followed
here; the text of ``topk`` itself only says that the results are ``[par_dim, k]`` and ascending.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from neurosim import dtypes
from neurosim.chip import Chip
from neurosim.datapath.rules import Broken, dtype_in, is_whole, result_dtype_in, same_elements, same_partitions
from neurosim.datapath.streams import stream
from neurosim.engines import Engine, Memory
from neurosim.execution.lanes import Lanes
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit
from neurosim.memory import Mask
from neurosim.numerics import search
from neurosim.work import Lanewise, Work

CORE: Final = 16
"""Partitions that one GpSimd core is tied to, and that a snake goes through."""
_N: Final = (8, 65535)
_MOST_RESULTS: Final = 32767
Indices = npt.NDArray[np.intp]


@lru_cache(maxsize=16)
def _places(groups: int, count: int) -> tuple[Indices, Indices, Mask]:
    """Return, for the elements of a tile of results [16 · groups, count], three arrays. To be read only.

    Which of all results stands there, group after group (where none does, any); the first partition of its group
    [16 · groups, 1]; and whether a result stands there.
    """
    partition, column = np.ogrid[: CORE * groups, :count]
    number = partition % CORE + CORE * column
    written = number < count
    group = partition // CORE
    return np.where(written, number + count * group, 0), CORE * group, written


class Topk(Instruction, mnemonic="topk", engines=(Engine.gpsimd,)):
    """val_dst, idx_dst = the K largest of n elements of each group of 16 partitions and their places, ascending.

    Element i of a group lies in partition i mod 16, column i div 16 of ``src``; only the first ``n`` are looked at.
    K is the number of columns of ``val_dst``. Result j lies in partition j mod 16, column j div 16 as well, so that
    further columns are not written (*assumed* of these). Places count elements of the snake. *Assumed*: of equal
    elements the first is taken first and comes last; a NaN is the largest, and +0 comes after -0, as in ``max8``.
    """

    leaves_out: ClassVar[str] = (
        "result j of 16 partitions lies in partition j mod 16, column j div 16; further columns stay as they are"
    )

    val_dst: Tile = Out(Memory.sbuf)
    idx_dst: Tile = Out(Memory.sbuf)
    src: Tile = In(Memory.sbuf)
    n: int
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Whole groups of partitions, bfloat16 with uint32 places, 8 to 65535 elements, no more results than these."""
        yield same_partitions("val_dst", self.val_dst, "src", self.src)
        yield same_elements("val_dst", self.val_dst, "idx_dst", self.idx_dst)
        yield dtype_in("src", self.src, (dtypes.bfloat16,))
        yield result_dtype_in("val_dst", self.val_dst, (dtypes.bfloat16,))
        yield result_dtype_in("idx_dst", self.idx_dst, (dtypes.uint32,))
        if self.src.partitions % CORE:
            yield Broken(
                f"src has {self.src.partitions} partitions; it must be a multiple of {CORE}",
                advice="give each GpSimd core its 16 partitions",
            )
        count: Any = self.n
        low, high = _N
        if not is_whole(count) or not low <= int(count) <= high:
            yield Broken(f"n {count!r} is not an int from {low} to {high}", advice="pass how many elements to look at")
            return
        count = int(count)
        there, results = CORE * self.src.free_elements, self.val_dst.free_elements
        if count > there:
            yield Broken(
                f"n is {count}; 16 partitions of src hold {there}",
                (f"src  {self.src.describe()}",),
                advice="give src more columns, or look at fewer",
            )
        if results > min(count, _MOST_RESULTS):
            what = f"val_dst asks for {results} results; at most {min(count, _MOST_RESULTS)} can be had"
            yield Broken(
                what,
                (f"n        {count}", f"val_dst  {self.val_dst.describe()}"),
                advice="make val_dst and idx_dst narrower",
            )

    def _groups(self, lanes: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return elements [P, columns] as snakes [groups, 16 · columns]."""
        by_core = lanes.reshape(len(lanes) // CORE, CORE, -1)
        return by_core.transpose(0, 2, 1).reshape(len(by_core), -1)

    def _places(self) -> tuple[Indices, Indices, Mask]:
        return _places(self.val_dst.partitions // CORE, self.val_dst.free_elements)

    def execute(self, lanes: Lanes) -> None:
        """Widen to compare, move bits."""
        compared = self._groups(lanes.f32(self.src))[:, : self.n]
        found = search.highest(compared, self.val_dst.free_elements)
        number, first, written = self._places()
        places = found.reshape(-1)[number]
        columns, partitions = np.divmod(places, CORE)
        partitions += first
        lanes.move(self.val_dst, lambda source: source[partitions, columns], self.src, where=written)
        lanes.put_bits(self.idx_dst, places.astype(np.uint32), where=written)

    def written(self) -> Holes:
        """K places of each group."""
        _, _, written = self._places()
        return {"val_dst": written, "idx_dst": written}

    def holes(self, holes: Holes) -> Holes:
        """A hole among the n elements reaches all results of its group."""
        used = self._groups(holes["src"].reshape(self.src.partitions, -1))[:, : self.n]
        rows = np.repeat(used.any(axis=1), CORE)[:, None]
        mask = np.broadcast_to(rows, (self.val_dst.partitions, self.val_dst.free_elements))
        return {"val_dst": mask, "idx_dst": mask}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """N elements in, K results out."""
        results = self.val_dst.free_elements
        return (Lanewise("topk", self.n, (stream(self.src),), stream(self.val_dst), results=results),)


topk = emit(Topk)
