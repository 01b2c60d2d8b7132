"""Transposes on the way through the DMA engines.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``dma_transpose``; ``nki/deep-dives/nki-dge.rst``;
``nki/guides/architecture/trainium2_arch.rst``, "DMA Transpose".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from neurosim.chip import Chip
from neurosim.datapath.modes import DgeMode, OobMode, member
from neurosim.datapath.rules import Broken, Shown, same_dtype
from neurosim.dtypes import uint32
from neurosim.engines import HBM, Engine, Memory
from neurosim.errors import Unsupported
from neurosim.execution.lanes import Lanes, turned
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit
from neurosim.versions import NKI_0_4, NKI_0_6
from neurosim.views.indirect import IndirectTensor
from neurosim.work import Transfer, Work

AXES: Final = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
"""The permutation for each number of axes."""
BLOCK: Final = 16
"""Rows that the 16 DMA engines exchange at a time."""
_HWDGE_ROWS: Final = (1, 2, 4, 8, 16)
_COLUMNS: Final = 128
"""Elements of the last axis that hardware descriptors needed before NKI 0.6."""


class DmaTranspose(Instruction, mnemonic="dma_transpose", engines=(Engine.sync, Engine.gpsimd)):
    """dst = src with its first and last axes exchanged, bit for bit: (1, 0), (2, 1, 0) or (3, 1, 2, 0) by rank.

    ``src`` is in HBM or SBUF and has elements of 2 or 4 bytes; ``dst`` is in SBUF and has exactly the transposed
    shape, so that rows have at most 128 elements. The one permutation of a rank may be given as ``axes``. A source
    with one index per row is gathered first (an index of several columns counts column after column); ``oob_mode``
    speaks of the indices of dynamic sources. With ``dge_mode.unknown`` hardware descriptors are made where their rules
    hold, else the ring is static, and Sync triggers either (*assumed*); GpSimd gathers. Before NKI 0.4 dst may lack
    axes of extent 1; before 0.6 hardware descriptors take 16 rows of 128 only.
    """

    is_dma = True

    dst: Tile = Out(Memory.sbuf)
    src: Tile = In(Memory.sbuf, *HBM, dynamic=True)
    axes: Any = None
    priority: int | None = None
    dge_mode: DgeMode = DgeMode.unknown
    oob_mode: OobMode = OobMode.error
    name: str | None = None

    def __post_init__(self) -> None:
        """Take modes by number, too."""
        self.oob_mode, self.dge_mode = member(OobMode, self.oob_mode), member(DgeMode, self.dge_mode)

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """One dtype of 2 or 4 bytes, the transposed shape, modes that the generation has."""
        numbers = (Shown("dst", self.dst), Shown("src", self.src))
        yield same_dtype("dst", self.dst, "src", self.src)
        if self.src.dtype.size_bytes not in (2, 4):
            yield Broken(
                f"src is {self.src.dtype}; the DMA transposes elements of 2 or 4 bytes",
                numbers,
                advice="view it as a dtype of 2 or 4 bytes, or use nisa.nc_transpose",
            )
        order = AXES.get(self.src.ndim)
        if order is None:
            yield Broken(f"src has {self.src.ndim} axes; it may have 2, 3 or 4", numbers, advice="reshape it")
            return
        given = self.axes
        if given is not None and (not isinstance(given, (tuple, list)) or tuple(given) != order):
            yield Broken(f"axes={given!r}; for {self.src.ndim} axes it is {order}", numbers, advice="leave axes out")
        shape = tuple(self.src.shape[axis] for axis in order)
        if self.dst.shape != shape and not self._padded(shape):
            yield Broken(
                f"dst has shape {self.dst.shape}; the transpose has {shape}", numbers, advice="give dst that shape"
            )
        yield from self._mode_rules(chip, numbers)

    def _padded(self, shape: tuple[int, ...]) -> bool:
        """Whether dst lacks axes of extent 1 only, which NKI added before 0.4."""
        fewer = self.nki_version < NKI_0_4 and self.dst.ndim < len(shape)
        return fewer and [extent for extent in self.dst.shape if extent > 1] == [part for part in shape if part > 1]

    def _mode_rules(self, chip: Chip, numbers: tuple[object, ...]) -> Iterator[Broken | None]:
        if self.priority is not None:
            if chip.generation < 4:
                yield Broken("priority= needs NeuronCore-v4 (trn3)", (f"chip {chip.name}",), "leave it out")
            if self.priority not in (0, 1, 2, 3):
                yield Broken(f"priority {self.priority!r}", (), "levels are 0 (highest) to 3")
        for label, value, kind in (("oob_mode", self.oob_mode, OobMode), ("dge_mode", self.dge_mode, DgeMode)):
            if not isinstance(value, kind):
                yield Broken(
                    f"{label}={value!r} is not a nisa.{label}",
                    advice=f"pass one of nisa.{label}: " + ", ".join(entry.name for entry in kind),
                )
        if self.skips_out_of_bounds() and not self.src.is_indirect():
            yield Broken("oob_mode.skip with a source whose place is known", numbers, "leave it out")
        if self._gathers():
            yield from self._gather_rules(chip, numbers)
        elif self.dge_mode is DgeMode.swdge and not self.src.is_indirect():
            what = "dge_mode.swdge: software descriptors transpose dynamic sources only"
            yield Broken(what, numbers, "use dge_mode.unknown or dge_mode.hwdge")
        if self.dge_mode is DgeMode.hwdge:
            if chip.generation < 3:
                yield Broken("dge_mode.hwdge needs NeuronCore-v3 (trn2)", (f"chip {chip.name}",), "leave it out")
            reason = self._not_in_hardware()
            if reason:
                yield Broken(f"dge_mode.hwdge: {reason}", numbers, "use dge_mode.unknown")

    def _gather_rules(self, chip: Chip, numbers: tuple[object, ...]) -> Iterator[Broken | None]:
        assert isinstance(self.src, IndirectTensor)
        shape, index = self.src.shape, self.src.index
        if chip.generation < 3:
            yield Broken(
                "a gathered source needs NeuronCore-v3 (trn2)",
                (f"chip {chip.name}",),
                advice="run it on trn2 or later, or gather with nisa.dma_copy first",
            )
        if self.dge_mode not in (DgeMode.unknown, DgeMode.swdge):
            yield Broken(f"{self.dge_mode} with one index per row", numbers, "only dge_mode.swdge gathers")
        if self.src.dtype.size_bytes != 2 or shape[0] % BLOCK:
            yield Broken(
                f"gathered rows are a multiple of {BLOCK}, of elements of 2 bytes",
                numbers,
                advice="gather a multiple of these, and view elements as a dtype of 2 bytes",
            )
        if index.dtype != uint32:
            yield Broken(
                f"the index is {index.dtype}; it must be uint32",
                (*numbers, f"index  {index.describe()}"),
                advice="make the index nl.uint32",
            )
        if index.partitions % BLOCK or (index.free_elements > 1 and index.partitions != chip.partitions):
            yield Broken(
                f"the index has {index.partitions} partitions of {index.free_elements}; they must be a "
                f"multiple of {BLOCK}, and {chip.partitions} where it has several columns",
                (*numbers, f"index  {index.describe()}"),
                advice="give it that shape",
            )
        if len(shape) == 4 and 1 not in shape[1:3]:
            yield Broken(
                "src has 4 axes; then one of the two in the middle has extent 1",
                numbers,
                advice="transpose in a loop over one of the two",
            )

    def _gathers(self) -> bool:
        return isinstance(self.src, IndirectTensor) and self.src.per_lane

    def _by_software(self) -> bool:
        return self._gathers() or self.dge_mode is DgeMode.swdge

    def skips_out_of_bounds(self) -> bool:
        """Whether ``oob_mode`` says so."""
        return self.oob_mode is OobMode.skip

    def _not_in_hardware(self) -> str:
        """Return which rule of hardware descriptors is broken, or nothing."""
        shape, rows = self.src.shape, self.src.shape[0]
        if self.src.dtype.size_bytes != 2:
            return f"src is {self.src.dtype}, not a dtype of 2 bytes"
        if self.nki_version < NKI_0_6 and (rows != BLOCK or shape[-1] != _COLUMNS):
            return f"src has {rows} rows of {shape[-1]}, not {BLOCK} of {_COLUMNS}, as before NKI 0.6"
        if len(shape) == 2 and rows != BLOCK:
            return f"src.shape[0] is {rows}, not {BLOCK}"
        if len(shape) > 2 and rows not in _HWDGE_ROWS:
            return f"src.shape[0] is {rows}, not 1, 2, 4, 8 or 16"
        if len(shape) > 2 and rows * shape[-2] % BLOCK:
            return f"src.shape[0] × src.shape[-2] is {rows} × {shape[-2]}, no multiple of {BLOCK}"
        return ""

    def place(self, chip: Chip) -> tuple[Engine, frozenset[Engine]]:
        """GpSimd makes the descriptors of gathered rows, or where it is asked to; Sync triggers the rest."""
        if self.priority is not None:
            raise Unsupported(
                f"{self.mnemonic}: priority={self.priority} is not built yet: no figure of the levels is public",
                advice="leave it out: it changes no value",
            )
        engine = Engine.gpsimd if self._by_software() else Engine.sync
        return engine, frozenset({engine})

    def execute(self, lanes: Lanes) -> None:
        """Move bits."""
        order = AXES[self.src.ndim]
        lanes.transfer(self.dst, self.src, lambda source: turned(source, order), self.written().get("dst"))

    def written(self) -> Holes:
        """Rows whose index is out of bounds are not moved."""
        chosen = self.src.chosen() if isinstance(self.src, IndirectTensor) else None
        return {} if chosen is None else {"dst": np.transpose(chosen, AXES[self.src.ndim])}

    def holes(self, holes: Holes) -> Holes:
        """Holes are transposed too."""
        return {"dst": np.transpose(holes["src"], AXES[self.src.ndim])}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One transfer, of blocks of 16 rows (*assumed*: 16 engines write [128, 16] tiles)."""
        generation = "none"
        if self._by_software():
            generation = "swdge"
        elif chip.generation >= 3 and self.dge_mode is not DgeMode.none and not self._not_in_hardware():
            generation = "hwdge"
        blocks = -(-self.src.size // self.src.shape[-1] // BLOCK)
        moved = Transfer(
            descriptors=blocks,
            descriptor_bytes=-(-self.src.size_bytes // blocks),
            read_bytes=self.src.size_bytes,
            written_bytes=self.dst.size_bytes,
            source=self.src.buffer,
            target=self.dst.buffer,
            generation=generation,
            transpose_bytes=self.src.dtype.size_bytes,
        )
        return (moved,)


dma_transpose = emit(DmaTranspose)
