"""The summary as a type: what each field means, and in which unit.

The unit is part of the name: ``_ps`` picoseconds (integers), ``_bytes``, ``_gb_per_s`` (10⁹ bytes),
``_tflop_per_s`` (10¹² operations), ``_flop_per_byte``. Fractions run from 0 to 1. Simulated time only: how
long the simulator itself took is never part of a summary.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

SCHEMA = "neurosim.summary/1"
"""Changes when a field changes its meaning or disappears; new fields do not change it."""


class TensorSummary(TypedDict):
    """A kernel's input or output."""

    name: str
    role: str
    shape: list[int]
    dtype: str


class EngineSummary(TypedDict):
    """One engine's account: ``busy + Σ stalls + idle`` is the kernel's makespan.

    ``stall_ps`` is by reason. ``waits_for_ps`` looks at the same stalls, as far as another instruction decided
    their end, by the engine of that instruction; a transfer's is ``dma``. ``causes_ps`` is all of it by cause
    (:data:`neurosim.timing.causes.CAUSES`), which is finer, and adds up to the makespan as well.
    """

    busy_ps: int
    stall_ps: dict[str, int]
    waits_for_ps: dict[str, int]
    causes_ps: dict[str, int]
    idle_ps: int


class HbmSummary(TypedDict):
    """Traffic with HBM. Rates are averages over the makespan; the peak is what MBU is a share of."""

    read_bytes: int
    written_bytes: int
    read_gb_per_s: float
    written_gb_per_s: float
    peak_gb_per_s: float


class RooflineSummary(TypedDict):
    """Where the kernel stands under the roof. Intensity is None for a kernel that moves nothing.

    ``bandwidth_gb_per_s`` is what the DMA engines and HBM let through at best for this kernel's mix of loads and
    stores; ``peak_tflop_per_s`` is the tensor engine's peak for this kernel's mix of dtypes. ``least_ps`` is the
    time of a kernel on the roof: the longer of moving all bytes and multiplying everything at these rates.
    """

    intensity_flop_per_byte: float | None
    bandwidth_gb_per_s: float
    ridge_flop_per_byte: float
    attainable_tflop_per_s: float
    achieved_tflop_per_s: float
    peak_tflop_per_s: float
    least_ps: int
    bound: Literal["memory", "compute"]


class SpaceSummary(TypedDict):
    """An on-chip memory at its fullest moment in program order.

    Bytes are per partition, which is what runs out; ``filled`` is the share of all partitions' bytes.
    """

    peak_partition_bytes: int
    capacity_partition_bytes: int
    filled: float


class PlaceSummary(TypedDict):
    """An instruction on a kernel line."""

    file: str
    line: int
    instruction: str
    engine: str


class WaitSummary(TypedDict):
    """For how long engines waited for one cause, and for which instruction, None where none is known."""

    cause: str
    stall_ps: int
    place: PlaceSummary | None


class LineSummary(TypedDict):
    """What one instruction on one kernel line cost on one engine.

    ``busy_ps`` summed over the lines of an engine is that engine's ``busy_ps``; the DMA engines are one
    engine here, ``dma``, with their times added up. ``share`` is the fraction of the makespan that the engine was
    busy with the line, averaged over the DMA engines. ``stall_ps`` is how long the engine waited just before
    these instructions, for all reasons; ``stall_reason`` is the one that cost most, and ``waits_for`` the
    instruction whose end decided most of the wait, where one did. ``causes_ps`` is busy time and waits by cause, and
    ``waits`` the longest of the waits with what they were for.
    """

    file: str
    line: int
    function: str
    source: str
    instruction: str
    engine: str
    count: int
    busy_ps: int
    share: float
    stall_ps: int
    stall_reason: str | None
    waits_for: PlaceSummary | None
    causes_ps: dict[str, int]
    waits: list[WaitSummary]


class LoopSummary(TypedDict):
    """A loop of the kernel: ``engines_ps`` has the time of each engine by cause, in and before the loop's ops.

    An instruction in nested loops counts in each of them; the DMA engines are one engine, ``dma``.
    """

    file: str
    line: int
    source: str
    count: int
    engines_ps: dict[str, dict[str, int]]


class PathSummary(TypedDict):
    """An instruction on a kernel line, as a part of the critical path.

    ``duration_ps`` is how long the kernel waited for it alone: over all lines it adds up to the makespan, of which
    ``share`` is a fraction; ``count`` instructions are on the path. ``causes_ps`` cuts it by cause: what its
    transfers did, and ``work`` on the other engines.
    """

    file: str
    line: int
    instruction: str
    engine: str
    source: str
    count: int
    duration_ps: int
    share: float
    causes_ps: dict[str, int]


class WhatIfSummary(TypedDict):
    """What the kernel would take with some changes: the record timed again. ``gain_share`` is of the makespan."""

    text: str
    changes: dict[str, Any]
    before_ps: int
    after_ps: int
    gain_ps: int
    gain_share: float


class AdviceSummary(TypedDict):
    """A piece of advice: ``figures`` triggered its ``rule``, since they are beyond ``threshold``.

    ``what_if`` are the changes that say what is to be had, ``gain_ps`` what they gain at most, None where there is no
    such change.
    """

    rule: str
    text: str
    figures: dict[str, Any]
    threshold: str
    places: list[str]
    what_if: dict[str, Any]
    gain_ps: int | None
    gain_share: float | None


class InfluenceSummary(TypedDict):
    """What one figure of the device file has to do with the busy time: ``share`` is a fraction of it."""

    figure: str
    standing: str
    share: float


class ProvenanceSummary(TypedDict):
    """On what the busy time rests, the DMA engines counted as one engine.

    The busy time of each instruction is shared out among the figures that it is computed from, in proportion to how
    strongly each moves it. ``standings`` adds the shares up by standing, from best to worst; ``figures`` has those
    that matter most.
    """

    standings: dict[str, float]
    figures: list[InfluenceSummary]


class LeftOutSummary(TypedDict):
    """What a compiler leaves out, as it is on the chip already.

    ``loads``, and the bytes that they would read from HBM; ``products`` of arithmetic, of kernels of NKI 0.1.
    """

    loads: int
    read_bytes: int
    products: NotRequired[int]


class CoreSummary(TypedDict):
    """One core of a launch. Its ``makespan_ps`` ends with its last completion, and its engines' accounts with it."""

    core: int
    instructions: int
    left_out: LeftOutSummary
    makespan_ps: int
    engines: dict[str, EngineSummary]
    hbm: HbmSummary
    flops: int
    sbuf: SpaceSummary
    psum: SpaceSummary


class Answers(TypedDict, total=False):
    """What is in a summary only where it is asked for.

    ``what_if`` has the answers to questions, ``what_ifs`` those that are worth asking of any kernel by gain, and
    ``advice`` what could be better.
    """

    what_if: list[WhatIfSummary]
    what_ifs: list[WhatIfSummary]
    advice: list[AdviceSummary]


class Summary(Answers):
    """One run of one kernel, or one core's part in it.

    Of several cores, ``core`` is the one that ends last: the makespan, ``engines``, ``lines`` and
    ``provenance`` are its own.
    ``instructions``, ``left_out``, ``hbm``, ``flops``, ``mfu``, ``mbu`` and ``roofline`` are of all cores together,
    over that makespan, with all their engines and the HBM that they share; ``sbuf`` and ``psum`` are those of the
    fullest core. ``cores`` has the part of each. ``schedule`` is the one that engines followed: ``compiler``,
    ``reorder`` or ``program``; ``instructions`` are those that were executed, without the ``left_out`` ones;
    ``throttle`` says whether the tensor engine was throttled until it was busy enough, on chips that do so.
    ``critical_path`` is the kernel's, through all cores. ``what_if``, ``what_ifs`` and ``advice`` are those of
    :class:`Answers`.
    """

    schema: str
    neurosim: str
    kernel: str
    chip: str
    nki_version: str
    schedule: str
    throttle: bool
    core: int
    cores: list[CoreSummary]
    tensors: list[TensorSummary]
    notes: dict[str, str]
    instructions: int
    left_out: LeftOutSummary
    launch_ps: int
    makespan_ps: int
    total_ps: int
    engines: dict[str, EngineSummary]
    hbm: HbmSummary
    flops: int
    flops_by_dtype: dict[str, int]
    mfu: float
    mbu: float
    roofline: RooflineSummary
    sbuf: SpaceSummary
    psum: SpaceSummary
    lines: list[LineSummary]
    loops: list[LoopSummary]
    critical_path: list[PathSummary]
    provenance: ProvenanceSummary
