"""Two cores that meet: exchanging tiles, and waiting for each other.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``sendrecv`` and ``core_barrier``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from neurosim.chip import Chip
from neurosim.datapath.modes import DmaEngine
from neurosim.datapath.rules import Broken, Shown, is_whole
from neurosim.datapath.streams import transfer
from neurosim.engines import Engine, Memory
from neurosim.errors import IllegalOperand, UnknownBehavior
from neurosim.execution import fine
from neurosim.execution.meetings import Meeting, Visit, differ
from neurosim.instruction import Accumulate, In, Out, Tile, emit
from neurosim.kernel import Kernel
from neurosim.work import Handshake, Work

_SWAPPED_ELEMENTS = 256
"""Elements per partition that GpSimd's own DMA exchanges at once: 1024, 512, 256 bytes of 4, 2, 1-byte elements."""


class SendRecv(Meeting, mnemonic="sendrecv", engines=(Engine.gpsimd,)):
    """Send ``src`` to the other core's ``dst`` and receive the other's ``src``; both cores wait for each other.

    Bits are moved as they are. ``dma_engine.dma`` meets and then moves through the DMA engines; ``gpsimd_dma`` through
    the quick, narrow DMA of GpSimd. The cores meet where both issue a sendrecv with the same ``pipe_id``, and each has
    its tile when both have theirs. *Assumed:* GpSimd waits for the other core and triggers the transfer, as it is the
    engine that core_barrier runs on by default; the tile of one core has the shape and dtype of the other's.
    """

    is_dma = True
    takes_packed = True

    src: Tile = In(Memory.sbuf)
    dst: Tile = Out(Memory.sbuf)
    send_to_rank: int
    recv_from_rank: int
    pipe_id: int
    dma_engine: DmaEngine = DmaEngine.dma
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Equal tiles, ranks 0 or 1, what GpSimd's DMA holds."""
        numbers = (Shown("src", self.src), Shown("dst", self.dst))
        if chip.cores < 2:
            yield Broken(
                "needs NeuronCore-v3 (trn2), where two cores meet",
                (f"chip {chip.name}",),
                advice="run it on trn2 or later",
            )
        if self.src.dtype != self.dst.dtype:
            yield Broken("src and dst have different dtypes", numbers, "cast with nisa.tensor_copy first")
        if self.src.shape != self.dst.shape:
            yield Broken("src and dst have different shapes", numbers, "slice both to the same extents")
        for label, rank in (("send_to_rank", self.send_to_rank), ("recv_from_rank", self.recv_from_rank)):
            if not is_whole(rank) or rank not in (0, 1):
                yield Broken(f"{label}={rank!r} is no rank", (), "pass 0 or 1, such as 1 - nl.program_id(0)")
        if not is_whole(self.pipe_id):
            yield Broken(f"pipe_id={self.pipe_id!r} is not an int", advice="pass the same int on both cores")
        through: Any = self.dma_engine
        if not isinstance(through, DmaEngine):
            yield Broken(
                f"dma_engine={through!r} is not a nisa.dma_engine",
                advice="pass nisa.dma_engine.dma or nisa.dma_engine.gpsimd_dma",
            )
        if self.dma_engine is DmaEngine.gpsimd_dma and self.src.free_elements > _SWAPPED_ELEMENTS:
            yield Broken(
                f"gpsimd_dma with {self.src.free_elements} elements per partition",
                (f"the limit is {_SWAPPED_ELEMENTS}, whatever their size",),
                "split the tile, or use nisa.dma_engine.dma",
            )

    def members(self, kernel: Kernel) -> tuple[int, ...]:
        """Return both cores."""
        other = 1 - kernel.core
        if kernel.team is not None and (self.send_to_rank, self.recv_from_rank) != (other, other):
            raise UnknownBehavior(
                f"sendrecv on core {kernel.core}: send_to_rank={self.send_to_rank}, recv_from_rank="
                f"{self.recv_from_rank}; the manual speaks of an exchange with the other core",
                advice=f"pass {other} for both, such as 1 - nl.program_id(0)",
            )
        return (0, 1)

    def key(self) -> Hashable:
        """Return the pipe."""
        return int(self.pipe_id)

    def say(self) -> str:
        """Name the pipe."""
        return f"sendrecv(pipe_id={self.pipe_id})"

    def perform(self, visits: Sequence[Visit]) -> None:
        """Check that the tiles are alike, and exchange them with what is known of them."""
        tiles = [f"{visit.call.src.dtype}{list(visit.call.src.shape)}" for visit in visits]
        differ(visits, "tiles", tiles)
        differ(visits, "dma_engine", [visit.call.dma_engine for visit in visits])
        if visits[0].kernel.values:
            self.exchange([visit.call for visit in visits])
        for visit, other in zip(visits, reversed(visits), strict=True):
            visit.call._mark(visit.call.dst, other.holes.get("src"), other.origin)

    def exchange(self, calls: Sequence[SendRecv]) -> None:
        """Read both, then write both."""
        sent = [fine.copied(call.src) for call in calls]
        for call, tile in zip(calls, reversed(sent), strict=True):
            fine.paste(call.dst, tile)

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """A transfer once both have met, or a handshake that carries the tile."""
        if self.dma_engine is DmaEngine.gpsimd_dma:
            return (Handshake(self.src.size_bytes),)
        return (transfer(self.dst, self.src, "swdge", chip.dma.descriptor_max_bytes),)


class CoreBarrier(
    Meeting,
    mnemonic="core_barrier",
    engines=(Engine.gpsimd, Engine.vector, Engine.scalar, Engine.tensor, Engine.sync),
):
    """Wait until all ``cores`` are here: what they did to ``data`` before is done, and what they do to it after is not.

    ``engine`` waits; other engines go on with what does not touch ``data``. One core alone, as ``(0,)`` or ``0``, meets
    nobody. *Assumed:* SBUF tiles are taken as ``data``, too, as kernels of the vendor's library do it; they order the
    core's own instructions.
    """

    data: Tile = Accumulate(Memory.shared_hbm, Memory.sbuf, Memory.private_hbm)
    cores: tuple[int, ...] | list[int] | int
    engine: Engine = Engine.gpsimd
    name: str | None = None

    is_dma = True  # nothing of data passes through an engine

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Cores that there are; an engine."""
        if chip.cores < 2:
            yield Broken(
                "needs NeuronCore-v3 (trn2), where two cores meet",
                (f"chip {chip.name}",),
                advice="run it on trn2 or later",
            )
        if not all(map(is_whole, self._cores())) or self._cores() not in ((0, 1), (1, 0), (0,), (1,)):
            yield Broken(f"cores={self.cores!r}", (), "pass cores=(0, 1)")
        engine: Any = self.engine
        if not isinstance(engine, Engine):
            yield Broken(
                f"engine={engine!r} is not a nisa.engine", advice="pass one such as nisa.engine.gpsimd, or leave it out"
            )

    def _cores(self) -> tuple[int, ...]:
        return tuple(self.cores) if isinstance(self.cores, (tuple, list)) else (self.cores,)

    def members(self, kernel: Kernel) -> tuple[int, ...]:
        """Return the cores, ascending.

        Raises:
            IllegalOperand: this core is none of them, or the other does not see ``data``.
        """
        cores = tuple(sorted(self._cores()))
        if kernel.core not in cores:
            raise IllegalOperand(
                f"core_barrier(cores={self.cores!r}) on core {kernel.core}, which is not one of them",
                advice="a core that does not take part does not issue it",
            )
        if self.data.buffer is Memory.private_hbm and len(cores) > 1 and kernel.grid.cores > 1:
            raise IllegalOperand(
                "core_barrier: data is in private HBM, which the other core does not see",
                numbers=(f"data  {self.data.describe()}",),
                advice="allocate it with buffer=nl.shared_hbm",
            )
        return cores

    def key(self) -> Hashable:
        """Return the cores."""
        return tuple(sorted(self._cores()))

    def say(self) -> str:
        """Name the cores."""
        return f"core_barrier(cores={self.cores!r})"

    def perform(self, visits: Sequence[Visit]) -> None:
        """Check that all speak of the same data."""
        if len(visits) > 1 and any(visit.call.data.buffer is Memory.shared_hbm for visit in visits):
            tensors = [visit.call.data.allocation for visit in visits]
            if any(tensor.storage is not tensors[0].storage for tensor in tensors):
                differ(visits, "data", [f"{tensor.describe()} (storage {tensor.storage.id})" for tensor in tensors])

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """Semaphores, there and back."""
        return (Handshake(0),)


sendrecv = emit(SendRecv)
core_barrier = emit(CoreBarrier)
