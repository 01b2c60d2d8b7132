"""DMA: what a transfer costs; when it moves is in ``events/movement.py``.

A transfer goes through five stages; the numbers are trn2's:

1. **Trigger**: an engine executes the DMA instruction (90 ns), once its queue takes it. A queue is a triggering
   engine and a kind of descriptor generation; it takes one DMA per 600 ns (hardware) or 590 ns (software, and 4.5 ns
   for each descriptor beyond 128), and at most four that are not complete. Static rings are queues of their own, one
   for each tensor in HBM, and move one DMA after the other: a ring takes the next when this one's descriptors have had
   their time, and 390 ns more.
2. **First data** comes 590 to 1000 ns after the trigger.
3. **Movement**: each DMA engine serves 8 partitions and takes the transfers one after the other. It needs
   4.5 ns + bytes / (27.2 GB/s) per descriptor; while it reads HBM it does not exceed 23 GB/s, the achievable rate.
   (On trn1 the first rate is the one that stores were seen to reach, 17.8 GB/s; there is no hardware generation.)
   All of them share the bandwidth of HBM, in order of arrival. A transpose takes longer by the part of a copy's
   throughput that it reaches: 0.9 from HBM, 0.5 from SBUF, half of that for elements of 4 bytes.
4. **Payload latency**: the last byte has arrived no earlier than 293 ns + 1.305 · bytes / (368 GB/s) after the
   first (stores: 162 ns + 0.963 · bytes / (368 GB/s)). It is a latency: transfers overlap in it.
5. **Semaphore**: the completion is visible 315 ns (load) or 355 ns (store) later.

Which measurements this meets and which it does not, with the reason, is in ``tests/test_timing/``: the payload
law, all end-to-end times, the issue intervals and the single-engine loads and stores fit within 5 %; the
efficiency curve below 2 KiB per partition and descriptors of 2 KiB and more in loads do not.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from neurosim.chip import Chip, Dma
from neurosim.errors import SimulatorBug
from neurosim.program import Pattern
from neurosim.timing.laws import nanoseconds
from neurosim.work import Transfer

GENERATIONS: Final = ("hwdge", "swdge", "none")
"""Who makes the descriptors: hardware, GpSimd's software, or nobody (a ring that is ready)."""


class TransferCost(NamedTuple):
    """What a DMA costs, in picoseconds.

    Attributes:
        trigger_ps: how long the triggering engine is held.
        interval_ps: after which its queue takes the next DMA.
        first_data_ps: from the end of the trigger to the start of movement.
        shares: (DMA engine, time that its descriptors take), engines ascending.
        level: whether all engines move equally much.
        turns: whether the first engine may be any; then transfers take turns.
        hbm_ps: time that the bytes take at the bandwidth of HBM.
        payload_ps: least time from first to last byte.
        semaphore_ps: from the last byte to the visible completion.
    """

    trigger_ps: int
    interval_ps: int
    first_data_ps: int
    shares: tuple[tuple[int, int], ...]
    level: bool
    turns: bool
    hbm_ps: int
    payload_ps: int
    semaphore_ps: int


def transfer_cost(work: Transfer, patterns: tuple[Pattern, ...], chip: Chip) -> TransferCost:
    """Return the cost of a DMA. The on-chip operand's partitions say which engines move it."""
    dma = chip.dma
    if work.generation not in GENERATIONS or work.descriptors < 1:
        raise SimulatorBug(
            f"timing: a DMA with {work.descriptors} descriptors and generation {work.generation!r}",
            numbers=("generations: " + ", ".join(GENERATIONS),),
        )
    is_load = work.source.is_hbm
    counts = _spread(work.descriptors, patterns, chip)
    shares = tuple((engine, _move_ps(work, count, is_load, dma)) for engine, count in counts)
    payload_bytes = work.descriptors * work.descriptor_bytes
    hbm_bytes = work.read_bytes * work.source.is_hbm + work.written_bytes * work.target.is_hbm
    fixed, ratio, semaphore = (
        (dma.load_payload_ns, dma.load_payload_ratio, dma.load_semaphore_ns)
        if is_load
        else (dma.store_payload_ns, dma.store_payload_ratio, dma.store_semaphore_ns)
    )
    return TransferCost(
        trigger_ps=nanoseconds(dma.trigger_ns),
        interval_ps=_interval_ps(work, shares, dma),
        first_data_ps=_first_data_ps(work, dma),
        shares=shares,
        level=len(shares) == dma.engines and len({ps for _, ps in shares}) == 1,
        turns=not any(pattern.memory.is_on_chip for pattern in patterns),
        hbm_ps=nanoseconds(hbm_bytes / chip.hbm.bandwidth_gb_per_s),
        payload_ps=nanoseconds(fixed + ratio * payload_bytes / (dma.engines * dma.load_gb_per_s)),
        semaphore_ps=nanoseconds(semaphore),
    )


def _move_ps(work: Transfer, descriptors: int, is_load: bool, dma: Dma) -> int:
    size_bytes = descriptors * work.descriptor_bytes
    move_ns = descriptors * dma.descriptor_ns + size_bytes / dma.engine_gb_per_s
    if is_load:
        move_ns = max(move_ns, size_bytes / dma.load_gb_per_s)
    return nanoseconds(move_ns / _transpose_ratio(work, is_load, dma))


def _transpose_ratio(work: Transfer, is_load: bool, dma: Dma) -> float:
    """Return which part of a copy's throughput a transpose reaches, 1 for a copy."""
    if not work.transpose_bytes:
        return 1.0
    ratio = dma.transpose_load_ratio if is_load else dma.transpose_sbuf_ratio
    return ratio if work.transpose_bytes <= 2 else ratio * dma.transpose_wide_ratio


def _interval_ps(work: Transfer, shares: tuple[tuple[int, int], ...], dma: Dma) -> int:
    if work.generation == "hwdge":
        return nanoseconds(dma.hwdge_interval_ns)
    if work.generation == "none":
        return max((ps for _, ps in shares), default=0) + nanoseconds(dma.static_gap_ns)
    more = max(work.descriptors - dma.swdge_free_descriptors, 0)
    return nanoseconds(dma.swdge_interval_ns + more * dma.swdge_descriptor_ns)


def _first_data_ps(work: Transfer, dma: Dma) -> int:
    if work.generation == "hwdge":
        return nanoseconds(dma.hwdge_first_data_ns)
    if work.generation == "none":
        return nanoseconds(dma.static_first_data_ns)
    return nanoseconds(dma.swdge_load_first_data_ns if work.source.is_hbm else dma.swdge_store_first_data_ns)


def _spread(descriptors: int, patterns: tuple[Pattern, ...], chip: Chip) -> list[tuple[int, int]]:
    """Return how many descriptors each engine gets: by partition, or evenly where both sides are in HBM."""
    engines = chip.dma.engines
    on_chip = next((pattern for pattern in patterns if pattern.memory.is_on_chip), None)
    if on_chip is None:
        even, odd = divmod(descriptors, engines)
        return [(engine, even + (engine < odd)) for engine in range(min(engines, descriptors))]
    extent = on_chip.shape[on_chip.partition_axis]
    step = on_chip.steps[on_chip.partition_axis]
    counts = [0] * engines
    for index in range(extent):
        partition = on_chip.start_partition + index * step
        # whole descriptors per partition, the remainder spread over the partitions
        count = descriptors * (index + 1) // extent - descriptors * index // extent
        counts[partition * engines // chip.partitions] += count
    return [(engine, count) for engine, count in enumerate(counts) if count]
