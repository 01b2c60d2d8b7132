"""DMA: moving tensors between HBM and SBUF.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``dma_copy``.
"""

from __future__ import annotations

from collections.abc import Iterator

from neurosim.chip import Chip
from neurosim.datapath.modes import DgeMode, OobMode, member
from neurosim.datapath.rules import Broken, same_format, to_one_size
from neurosim.datapath.streams import transfer
from neurosim.engines import DESCRIPTOR_TRIGGERS, HBM, Engine, Memory
from neurosim.errors import Unsupported
from neurosim.execution.lanes import Lanes
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit
from neurosim.versions import NKI_0_3
from neurosim.views.indirect import IndirectTensor
from neurosim.work import Work

_WHO_TRIGGERS = (
    "pass engine=nisa.engine.sync or engine=nisa.engine.scalar with dge_mode=nisa.dge_mode.hwdge; GpSimd triggers "
    "without engine=: with dge_mode=nisa.dge_mode.swdge, and whatever converts or gathers"
)


class DmaCopy(Instruction, mnemonic="dma_copy", engines=(Engine.sync, Engine.scalar, Engine.gpsimd)):
    """Copy ``src`` to ``dst`` with the DMA engines; any shapes with equal numbers of elements, HBM or SBUF.

    Equal dtypes move bits. Different ones go through float32: ``src.dtype`` to float32, float32 to ``dst.dtype``.
    Views with a scalar or vector offset gather and scatter. ``oob_mode`` speaks of their indices: out of bounds they
    raise OutOfBounds, or with ``skip`` their rows are not moved. Static patterns are checked when the view is made.

    Nothing is repeated by itself. The view ``x.broadcast(axis, n)`` repeats an axis of extent 1 ``n`` times, without a
    copy: ``src=row.broadcast(0, 128)`` with ``row`` [1, n] in HBM fills 128 partitions with it. On chip that works
    along free axes alone, as engines do not move data between partitions. ``engine=`` chooses between Sync and
    Scalar as triggers of ``dge_mode.hwdge``; GpSimd triggers ``dge_mode.swdge``.
    """

    is_dma = True
    takes_packed = True

    dst: Tile = Out(Memory.sbuf, *HBM, dynamic=True)
    src: Tile = In(Memory.sbuf, *HBM, dynamic=True)
    priority: int | None = None
    oob_mode: OobMode = OobMode.error
    dge_mode: DgeMode = DgeMode.unknown
    engine: Engine = Engine.unknown
    name: str | None = None

    def __post_init__(self) -> None:
        """Take modes by number, too."""
        self.oob_mode, self.dge_mode = member(OobMode, self.oob_mode), member(DgeMode, self.dge_mode)

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Equal element counts; modes that the generation has."""
        if self.dst.size != self.src.size:
            yield Broken(
                f"dst has {self.dst.size} elements and src has {self.src.size}",
                (f"dst  {self.dst.describe()}", f"src  {self.src.describe()}"),
                to_one_size(self.dst, self.src),
            )
        yield same_format("dst", self.dst, "src", self.src)
        if self.priority is not None:
            if chip.generation < 4:
                yield Broken("priority= needs NeuronCore-v4 (trn3)", (f"chip {chip.name}",), "leave it out")
            if self.priority not in (0, 1, 2, 3):
                yield Broken(f"priority {self.priority!r}", (), "levels are 0 (highest) to 3")
        for label, value, kind in (
            ("oob_mode", self.oob_mode, OobMode),
            ("dge_mode", self.dge_mode, DgeMode),
        ):
            if not isinstance(value, kind):
                yield Broken(
                    f"{label}={value!r} is not a nisa.{label}",
                    advice=f"pass one of nisa.{label}: " + ", ".join(entry.name for entry in kind),
                )
        yield from self._trigger_rules(chip)
        if self.dge_mode is DgeMode.hwdge and chip.generation < 3:
            yield Broken("dge_mode.hwdge needs NeuronCore-v3 (trn2)", (f"chip {chip.name}",), "use dge_mode.swdge")
        if self.dge_mode is DgeMode.hwdge and self.dst.dtype != self.src.dtype:
            yield Broken(
                f"dge_mode.hwdge with {self.src.dtype} to {self.dst.dtype}: bytes move as they are",
                (f"dst  {self.dst.describe()}", f"src  {self.src.describe()}"),
                "view one as the other's dtype with .view(), or leave dge_mode out to convert",
            )
        yield from self._dynamic_rules()

    def _trigger_rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Check that ``engine=`` names who triggers hardware descriptors, and nothing else: one message says which."""
        if self.engine is Engine.unknown:
            return
        asked = (
            f"engine=nisa.engine.{self.engine.name}" if isinstance(self.engine, Engine) else f"engine={self.engine!r}"
        )
        if chip.generation < 3:
            yield Broken(
                f"{asked} needs hardware descriptors, which NeuronCore-v3 (trn2) is the first to have",
                (f"chip {chip.name}",),
                "leave engine= out: GpSimd triggers with dge_mode=nisa.dge_mode.swdge",
            )
        if self.engine not in DESCRIPTOR_TRIGGERS:
            yield Broken(f"{asked} cannot trigger hardware descriptors, which engine= is for", (), _WHO_TRIGGERS)
        if self.dge_mode is not DgeMode.hwdge:
            yield Broken(f"{asked} without dge_mode.hwdge", (), _WHO_TRIGGERS)

    def _dynamic_rules(self) -> Iterator[Broken | None]:
        if self.dge_mode is DgeMode.none and (self.dst.is_indirect() or self.src.is_indirect()):
            yield Broken("dge_mode.none with an address that is known at run time only", (), "use dge_mode.swdge")
        if self.dst.is_indirect() and self.src.is_indirect():
            yield Broken(
                "dst and src both have a place that is known at run time only",
                (f"dst  {self.dst.describe()}", f"src  {self.src.describe()}"),
                "copy through an SBUF tile: gather first, then scatter",
            )
        for tile in (self.dst, self.src):
            if isinstance(tile, IndirectTensor) and tile.index.free_elements != 1:
                yield Broken(
                    f"the index has {tile.index.free_elements} columns; it must have one",
                    (f"index  {tile.index.describe()}",),
                    "only dma_transpose takes more",
                )
        if self._gathers() and self.dge_mode is DgeMode.hwdge:
            yield Broken("dge_mode.hwdge with one index per row", (), "only dge_mode.swdge gathers and scatters")

    def _gathers(self) -> bool:
        return any(isinstance(tile, IndirectTensor) and tile.per_lane for tile in (self.dst, self.src))

    def skips_out_of_bounds(self) -> bool:
        """Whether ``oob_mode`` says so."""
        return self.oob_mode is OobMode.skip

    def place(self, chip: Chip) -> tuple[Engine, frozenset[Engine]]:
        """Return the triggering engine.

        Rule (assumed): software descriptors come from GpSimd, hardware and static ones from Sync; stores are
        triggered by GpSimd, so that a store that waits for its data holds up no load. The compiler of NKI 0.1 left all
        to software on trn2: two loads and a store take three times GpSimd's 0.59 µs in each step of vector_add
        (xaviergonzalez/asst4-trainium2, writeup.md:44, 90). Hardware moves bytes as they are, one run after the other,
        so that what converts or gathers is software's.
        """
        if self.priority is not None:
            raise Unsupported(
                f"{self.mnemonic}: priority={self.priority} is not built yet: no figure of the levels is public",
                advice="leave it out: it changes no value",
            )
        if self.engine is not Engine.unknown:
            return self.engine, frozenset({self.engine})
        is_store = self.dst.buffer.is_hbm and not self.src.buffer.is_hbm
        is_new = chip.generation >= 3
        converts = self.dst.dtype != self.src.dtype and is_new and self.dge_mode is DgeMode.unknown
        if self.dge_mode is DgeMode.swdge or self._gathers() or converts:
            return Engine.gpsimd, frozenset({Engine.gpsimd})
        if self.dge_mode is DgeMode.hwdge:
            return Engine.sync, frozenset(DESCRIPTOR_TRIGGERS)
        is_old = self.nki_version < NKI_0_3 and is_new
        if self.dge_mode is DgeMode.unknown and (is_store or is_old):
            return Engine.gpsimd, frozenset(self.engines)
        return Engine.sync, frozenset(self.engines)

    def execute(self, lanes: Lanes) -> None:
        """Move the elements in the order of both patterns."""
        lanes.transfer(self.dst, self.src, where=self.written().get("dst"))

    def written(self) -> Holes:
        """Rows of src whose index is out of bounds are not moved, and a copy onto itself writes nothing anew."""
        if self._is_in_place():
            mask = self.src.allocation.storage.unwritten(self.src)
            return {} if mask is None else {"dst": ~mask}
        chosen = self.src.chosen() if isinstance(self.src, IndirectTensor) else None
        return {} if chosen is None else {"dst": chosen.reshape(self.dst.shape)}

    def _is_in_place(self) -> bool:
        """Whether every element is moved onto itself, as kernels do to wait for all DMAs."""
        if self.dst.allocation is not self.src.allocation or self.dst.is_indirect():
            return False
        return (self.dst.key, self.dst.offset_bytes) == (self.src.key, self.src.offset_bytes)

    def holes(self, holes: Holes) -> Holes:
        """Element i of dst depends on element i of src."""
        return {"dst": holes["src"].reshape(self.dst.shape)}

    def moved(self) -> Tile | None:
        """``src``, where nothing is converted."""
        return self.src if self.src.dtype == self.dst.dtype else None

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One transfer. NeuronCore-v2 has rings that are ready for all whose addresses are known beforehand."""
        generation = "swdge" if engine is Engine.gpsimd else "hwdge"
        known = self.dge_mode is DgeMode.unknown and not (self.dst.is_indirect() or self.src.is_indirect())
        if self.dge_mode is DgeMode.none or (chip.generation < 3 and (known or engine is not Engine.gpsimd)):
            generation = "none"
        return (transfer(self.dst, self.src, generation, chip.dma.descriptor_max_bytes),)


dma_copy = emit(DmaCopy)
