"""Sums in the DMA engines, and adding to rows that an index chooses.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``dma_compute``; ``trainium3_arch.rst``, "SBUF Read-Add-Write".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from neurosim.chip import Chip
from neurosim.datapath.modes import OobMode
from neurosim.datapath.opcodes import one_of
from neurosim.datapath.operators import Operator
from neurosim.datapath.rules import Broken, Shown, is_number, mode
from neurosim.datapath.streams import sum_transfer
from neurosim.dtypes import bfloat16, float32
from neurosim.engines import HBM, Engine, Memory
from neurosim.errors import UnknownBehavior
from neurosim.execution.lanes import Lanes
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit
from neurosim.numerics import alu
from neurosim.views.indirect import IndirectTensor, same_place
from neurosim.work import Work

MOST: Final = 16
"""Sources of one instruction."""


class DmaCompute(Instruction, mnemonic="dma_compute", engines=(Engine.sync, Engine.gpsimd)):
    """dst = the sum of ``srcs``, element by element: widened to float32, added, and rounded once to dst's dtype.

    Sources are added from the first to the last (*assumed*), and all are read before anything is written
    (*assumed*). ``reduce_op`` is ``nl.add`` and every scale 1.0, as NKI has no others. With one index per row it adds
    in place: ``dst`` is a scattered view in HBM that is one of two sources, or a tile in SBUF that is one of two
    sources beside a gathered view. Two rows with one index have no documented sum, and raise.
    """

    is_dma = True

    dst: Tile = Out(Memory.sbuf, *HBM, dynamic=True)
    srcs: Any = In(Memory.sbuf, *HBM, dynamic=True, several=True)
    reduce_op: Operator
    scales: Any = None
    unique_indices: bool = True
    oob_mode: OobMode = OobMode.error
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """1 to 16 sources of as many elements as dst, a plain sum, and what adding in place needs."""
        if not isinstance(self.srcs, list) or not 1 <= len(self.srcs) <= MOST:
            yield Broken(f"srcs is no list of 1 to {MOST} tensors", (), "pass srcs=[…]; add more in a second call")
            return
        numbers = self._numbers()
        for place, src in enumerate(self.srcs):
            if src.size != self.dst.size:
                yield Broken(
                    f"srcs[{place}] has {src.size} elements and dst has {self.dst.size}",
                    numbers,
                    advice="give all sources as many elements as dst",
                )
        yield one_of("reduce_op", self.reduce_op, ("add",))
        if self.scales is not None and not self._are_ones(self.scales):
            yield Broken(f"scales={self.scales!r}; it must be 1.0 for each source", (), "scale with nisa.tensor_scalar")
        if not self.unique_indices:
            yield Broken("unique_indices=False is not supported by NKI yet", (), "leave it out")
        yield mode("oob_mode", self.oob_mode, OobMode)
        if self._dynamic():
            yield from self._in_place_rules(numbers)
        elif self.skips_out_of_bounds():
            yield Broken("oob_mode.skip with places that are known", numbers, "leave it out")

    def _in_place_rules(self, numbers: tuple[object, ...]) -> Iterator[Broken | None]:
        if not all(tile.per_lane and tile.index.free_elements == 1 for tile in self._dynamic()):
            yield Broken("an index that is no column with one per row", numbers, "pass vector_offset=, of shape (P, 1)")
        if len(self.srcs) != 2:
            yield Broken(
                f"{len(self.srcs)} sources with one index per row; it must be 2",
                numbers,
                advice="add rows to dst: srcs=[rows, dst]",
            )
            return
        others = [src for src in self.srcs if not same_place(self.dst, src)]
        if len(others) != 1:
            yield Broken(
                "dst is not one of srcs; with one index per row it is added to in place",
                numbers,
                advice="pass dst itself as one of srcs",
            )
            return
        (other,) = others
        pair = (self.dst.is_indirect(), self.dst.buffer.is_hbm, other.is_indirect(), other.buffer.is_hbm)
        if pair not in ((True, True, False, False), (False, False, True, True)):
            what = "rows of HBM are added to from a tile in SBUF, and a tile in SBUF from rows of HBM"
            yield Broken(what, numbers, "copy through another tile with nisa.dma_copy")

    def _numbers(self) -> tuple[Shown, ...]:
        sources = (Shown(f"srcs[{place}]", src) for place, src in enumerate(self.srcs))
        return Shown("dst", self.dst, width=7), *sources

    def _are_ones(self, scales: Any) -> bool:
        is_list = isinstance(scales, (list, tuple)) and len(scales) == len(self.srcs)
        return is_list and all(is_number(scale) and scale == 1 for scale in scales)

    def _dynamic(self) -> list[IndirectTensor]:
        return [tile for tile in (self.dst, *self.srcs) if isinstance(tile, IndirectTensor)]

    def skips_out_of_bounds(self) -> bool:
        """Whether ``oob_mode`` says so."""
        return self.oob_mode is OobMode.skip

    def place(self, chip: Chip) -> tuple[Engine, frozenset[Engine]]:
        """GpSimd makes the descriptors of rows; a static ring is triggered as ``dma_copy``'s (*assumed*)."""
        stores = self.dst.buffer.is_hbm and not any(src.buffer.is_hbm for src in self.srcs)
        if self._dynamic():
            return Engine.gpsimd, frozenset({Engine.gpsimd})
        return Engine.gpsimd if stores else Engine.sync, frozenset(self.engines)

    def execute(self, lanes: Lanes) -> None:
        """Widen, add, round."""
        total, *others = (lanes.flat(src) for src in self.srcs)
        for other in others:
            total = alu.binary("add", total, other)
        if isinstance(self.dst, IndirectTensor):
            repeated = self.dst.repeated()
            if repeated is not None:
                raise UnknownBehavior(
                    f"dma_compute: two rows of dst have index {repeated}",
                    numbers=tuple(map(str, self._numbers())),
                    advice="NKI wants unique indices here: add rows with one index together first",
                )
        lanes.put_flat(self.dst, total, self.written().get("dst"))

    def written(self) -> Holes:
        """Rows whose index is out of bounds are left as they are."""
        chosen = [src.chosen() for src in self.srcs if isinstance(src, IndirectTensor)]
        if self.dst.is_indirect() or not chosen or chosen[0] is None:
            return {}
        return {"dst": chosen[0].reshape(self.dst.shape)}

    def holes(self, holes: Holes) -> Holes:
        """Element i of dst depends on element i of each source."""
        mask = np.zeros(self.dst.shape, np.bool_)
        for hole in holes.values():
            mask |= hole.reshape(self.dst.shape)
        return {"dst": mask}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One transfer, into which each source is read: two of them take twice as long as a copy, as documented.

        On trn3 a tile of SBUF in bfloat16 or float32 that is added to in place is not read (*assumed* of this
        instruction; the feature is documented).
        """
        one_format = {tile.dtype for tile in self.srcs} == {self.dst.dtype} <= {bfloat16, float32}
        sources = self.srcs
        if chip.generation >= 4 and self.dst.buffer is Memory.sbuf and len(sources) == 2 and one_format:
            sources = [src for src in sources if not same_place(self.dst, src)] or sources[:1]
        generation = "swdge" if self._dynamic() else "none"
        return (sum_transfer(self.dst, sources, generation, chip.dma.descriptor_max_bytes),)


dma_compute = emit(DmaCompute)
