"""From work to picoseconds: how long an engine is held, and when the result is there.

Every law has the form ``fixed + elements · cycles_per_element``, in cycles of the engine's clock:

- the **issue interval**: the engine takes its next instruction this long after it took this one;
- the **completion latency**: a dependent instruction can use the result this long after issue.

The number of partitions does not change a time (measured: [128, 512] and [1, 512] both take about 685 ns). The
figures, with their sources, are in the device file; an instruction without a law is an error, never a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal, NamedTuple

from neurosim.chip import Chip, Scalar
from neurosim.engines import Engine, Memory
from neurosim.errors import ConfigurationError, SimulatorBug
from neurosim.timing.modes import (
    VectorMode,
    from_psum,
    is_adjacent,
    is_dense,
    is_half,
    psum_count,
    streams,
    to_psum,
    vector_mode,
)
from neurosim.work import AccumulatorRead, Control, Handshake, Lanewise, Matmul, Stream

ARRAY_CUTS: Final = 4
"""Into how many parts the rows of the array, and its columns, can be cut at most."""

LaunchOverhead = bool | Literal["benchmark", "profile"]
"""Whose view of a launch is added: ``nki.benchmark``'s (also ``True``), a profile's total time's, or none's."""


class Cost(NamedTuple):
    """What one instruction costs on its engine, in picoseconds.

    Attributes:
        issue_ps: after which the engine takes its next instruction.
        latency_ps: after which the result is there.
        passing_ps: of the issue interval, how long elements pass: what else it holds is fixed.
    """

    issue_ps: int
    latency_ps: int
    passing_ps: int = 0


class MatmulCost(NamedTuple):
    """What an ``nc_matmul`` costs: ``pairs`` times a LoadStationary and a MATMUL.

    Attributes:
        pairs: LoadStationary instructions, each with its MATMUL.
        load_ps: how long a LoadStationary needs the array's spare weight registers.
        stream_ps: issue interval of one MATMUL.
        latency_ps: from a MATMUL's start to its result in PSUM.
        cells: numbers of the parts of the array that work, empty for the whole of it.
        busy_rows: rows of the array that multiply, those of a narrow tile in proportion: what a throttle looks at.
    """

    pairs: int
    load_ps: int
    stream_ps: int
    latency_ps: int
    cells: tuple[int, ...] = ()
    busy_rows: int = 0


class _Cycles(NamedTuple):
    issue: float
    latency: float
    passing: float = 0.0


_Law = Callable[[Lanewise, Chip], _Cycles]


def picoseconds(cycles: float, clock_ghz: float) -> int:
    """Cycles of a clock, to the nearest picosecond."""
    return round(cycles * 1000 / clock_ghz)


def nanoseconds(ns: float) -> int:
    """Nanoseconds, to the nearest picosecond."""
    return round(ns * 1000)


def lanewise_cost(work: Lanewise | AccumulatorRead | Handshake, engine: Engine, chip: Chip) -> Cost:
    """Return what a stream of elements, reading the accumulators, or meeting another core costs on an engine.

    Raises:
        SimulatorBug: this engine has no such law.
    """
    if isinstance(work, Handshake):
        return _handshake(work, chip)
    if isinstance(work, AccumulatorRead) and engine is Engine.scalar:
        cycles = _Cycles(chip.scalar.accumulator_issue_cycles, chip.scalar.accumulator_latency_cycles)
        return _cost(cycles, chip.scalar.clock_ghz)
    if isinstance(work, AccumulatorRead) and engine is Engine.vector:
        cycles = _Cycles(chip.vector.accumulator_issue_cycles, chip.vector.latency_cycles)
        return _cost(cycles, chip.vector.clock_ghz)
    name = work.law if isinstance(work, Lanewise) else "accumulator_read"
    law = LAWS.get(engine, {}).get(name)
    if law is None or isinstance(work, AccumulatorRead):
        known = (f"{other.name}: {', '.join(laws)}" for other, laws in LAWS.items())
        raise SimulatorBug(
            f"timing: the {engine.name} engine has no law {name!r}",
            numbers=("known laws", *known),
            advice="add the law to timing/laws.py, and its figures to the device file",
        )
    return _cost(law(work, chip), _clock_ghz(engine, chip))


def _handshake(work: Handshake, chip: Chip) -> Cost:
    """Both cores being there, the engine is held until all is done."""
    if not work.size_bytes:
        held = nanoseconds(chip.sync.core_barrier_ns)
    else:
        held = nanoseconds(chip.sync.core_swap_ns + work.size_bytes / chip.sync.core_swap_gb_per_s)
    return Cost(held, held)


def control_cost(work: Control, chip: Chip) -> Cost:
    """Return what a sequencer takes for a register or for the head of a loop, on whichever engine.

    Raises:
        SimulatorBug: there is no such law.
    """
    sequencer = chip.sequencer
    times = {
        ("move", Memory.state): sequencer.move_ns,
        ("load", Memory.sbuf): sequencer.sbuf_load_ns,
        ("load", Memory.hbm): sequencer.hbm_load_ns,
        ("store", Memory.sbuf): sequencer.sbuf_store_ns,
        ("store", Memory.hbm): sequencer.hbm_store_ns,
        ("turn", Memory.state): sequencer.turn_ns,
    }
    ns = times.get((work.law, Memory.hbm if work.memory.is_hbm else work.memory))
    if ns is None:
        raise SimulatorBug(f"timing: sequencers have no law {work.law!r} for {work.memory.label}")
    return Cost(nanoseconds(ns), nanoseconds(ns))


def matmul_cost(work: Matmul, chip: Chip) -> MatmulCost:
    """Return what an ``nc_matmul`` or an ``nc_matmul_mx`` costs at the full clock (2.4 GHz on trn2), not throttled.

    Rows that add several products in a cycle (double_row, MX) take no longer than others; neither does a tile.

    Where neighbours lie far apart, memory feeds the moving operand, or takes the result, at half its rate. It feeds
    LoadStationary as fast as the fastest one takes it, so that only this one is slower then: 4-byte elements that are
    loaded one by one were seen to hide it (Joejoedesu/voyager-compiler, transposes of every 1st to 32nd element).

    A transpose may run in the background of the next one, and then holds the array for a part of its stream only;
    4-byte elements pass more than once, fewer times where the kernel says that moving holds ones and zeros alone.
    """
    tensor, sbuf = chip.tensor, chip.sbuf
    columns = float(max(work.moving, min(tensor.minimum_cycles, work.columns)))
    if max(work.moving_step_bytes, work.result_step_bytes) >= sbuf.stride_bytes:
        columns *= sbuf.strided_slowdown
    passes = work.passes
    if work.transpose and work.dtype.size_bytes == 4:
        passes = tensor.wide_transpose_passes if passes > 1 else tensor.hinted_transpose_passes
    cycles = passes / work.loads * (columns + tensor.pass_overhead_cycles)
    latency = tensor.transpose_latency_cycles if work.transpose else tensor.latency_cycles
    held = cycles * tensor.transpose_hold_ratio if work.transpose else cycles
    is_narrow = work.dtype.size_bytes <= 2 or work.depth > 1  # several 8-bit values are loaded in the time of one
    load = tensor.fast_load_cycles if is_narrow else tensor.load_cycles
    if work.stationary_step_bytes >= sbuf.stride_bytes:
        load = max(load, tensor.fast_load_cycles * sbuf.strided_slowdown)
    clock = tensor.clock_ghz
    latency_ps = picoseconds(cycles, clock) + picoseconds(latency, clock)
    return MatmulCost(
        pairs=work.loads,
        load_ps=picoseconds(load, clock),
        stream_ps=picoseconds(held, clock),
        latency_ps=latency_ps,
        cells=_cells(work, chip),
        busy_rows=_busy_rows(work, chip),
    )


def _busy_rows(work: Matmul, chip: Chip) -> int:
    """Return how many rows of the array multiply; a transpose moves bits and multiplies nothing."""
    if work.transpose:
        return 0
    return work.rows * (work.tile_columns or chip.tensor.columns) // chip.tensor.columns


class Throttle(NamedTuple):
    """How the tensor engine is held to a lower clock until it has been busy enough.

    Attributes:
        window_ps: over which its activity is looked at, 0 for an engine that is not throttled.
        slow_ppm: how long work takes when throttled, in millionths of its time at the full clock.
        latency_ps: how much later a result comes beside that.
        up, down: activity (picoseconds times busy rows) in a window, from which on the clock is full after it, and
            below which it is lowered again.
    """

    window_ps: int
    slow_ppm: int
    latency_ps: int
    up: int
    down: int


def throttle_of(chip: Chip) -> Throttle:
    """Return the throttle of a chip."""
    tensor = chip.tensor
    window_ps = nanoseconds(tensor.throttle_window_ns)
    full = window_ps * tensor.rows
    return Throttle(
        window_ps=window_ps,
        slow_ppm=round(tensor.clock_ghz / tensor.throttled_clock_ghz * 10**6),
        latency_ps=nanoseconds(tensor.throttled_latency_ns),
        up=round(full * tensor.throttle_up_ratio),
        down=round(full * tensor.throttle_down_ratio),
    )


def _cells(work: Matmul, chip: Chip) -> tuple[int, ...]:
    """Return the parts of the array, of a fourth of its rows by a fourth of its columns, that a tile covers."""
    if work.tile_rows == 0:
        return ()
    height, width = chip.tensor.rows // ARRAY_CUTS, chip.tensor.columns // ARRAY_CUTS
    rows = range(work.tile_row // height, -(-(work.tile_row + work.tile_rows) // height))
    columns = range(work.tile_column // width, -(-(work.tile_column + work.tile_columns) // width))
    return tuple(ARRAY_CUTS * row + column for row in rows for column in columns)


def table_set(function: str | None, scalar: Scalar) -> str | None:
    """Return the name of the table that an activation function needs, None when it needs none.

    A set is named after its first function; a function in no set has a table of its own.
    """
    if function is None or function in scalar.resident_functions:
        return None
    return next((members[0] for members in scalar.table_sets if function in members), function)


def table_load_ps(chip: Chip) -> int:
    """How long the Scalar engine takes to load another activation table."""
    return picoseconds(chip.scalar.table_load_cycles, chip.scalar.clock_ghz)


def launch_overhead_ps(launch_overhead: LaunchOverhead, chip: Chip) -> int:
    """Return what a call costs beside the kernel's body.

    Raises:
        ConfigurationError: neither a bool nor one of ``"benchmark"`` and ``"profile"``.
    """
    launch = chip.launch
    times = {False: 0.0, True: launch.benchmark_ns, "benchmark": launch.benchmark_ns, "profile": launch.profile_ns}
    if not isinstance(launch_overhead, bool | str) or launch_overhead not in times:
        raise ConfigurationError(
            f"launch_overhead={launch_overhead!r}",
            numbers=(f"known: True or 'benchmark' ({launch.benchmark_ns:g} ns), 'profile' ({launch.profile_ns:g} ns)",),
            advice="or False to leave the launch out",
        )
    return nanoseconds(times[launch_overhead])


def _cost(cycles: _Cycles, clock_ghz: float) -> Cost:
    latency_ps = picoseconds(cycles.latency, clock_ghz)
    issue_ps = min(picoseconds(cycles.issue, clock_ghz), latency_ps)
    return Cost(issue_ps, latency_ps, min(picoseconds(cycles.passing, clock_ghz), issue_ps))


def _clock_ghz(engine: Engine, chip: Chip) -> float:
    if engine is Engine.vector:
        return chip.vector.clock_ghz
    return chip.scalar.clock_ghz if engine is Engine.scalar else chip.gpsimd.clock_ghz


def _strided(operands: Iterable[Stream], chip: Chip, rate: float, supply: float = 1.0) -> float:
    """Return cycles per element where neighbours in an operand may lie so far apart that memory's rate halves.

    Memory supplies the operands of an element in ``supply`` cycles; an instruction slower than that hides the stride.
    """
    sbuf = chip.sbuf
    if all(operand.step_bytes < sbuf.stride_bytes for operand in operands):
        return rate
    return max(rate, min(rate, supply) * sbuf.strided_slowdown)


# Vector


def _vector(work: Lanewise, chip: Chip, rate: float, latency: float | None = None, supply: float = 1.0) -> _Cycles:
    """A Vector instruction at ``rate`` cycles per element, whose operands memory supplies in ``supply`` cycles."""
    vector = chip.vector
    passing = work.elements * _strided(streams(work), chip, rate, supply)
    pointers = work.pointers * vector.pointer_cycles
    fixed = vector.latency_cycles if latency is None else latency
    return _Cycles(vector.issue_cycles + passing + pointers, fixed + passing + pointers, passing)


def _vector_single_source(work: Lanewise, chip: Chip) -> _Cycles:
    """Copy and tensor_scalar, by mode."""
    vector = chip.vector
    rates = {
        VectorMode.quad: vector.quad_cycles_per_element,
        VectorMode.double: vector.double_cycles_per_element,
        VectorMode.widening: vector.widening_cycles_per_element,
        VectorMode.single: vector.single_cycles_per_element,
    }
    return _vector(work, chip, rates[vector_mode(work, chip)])


def _vector_two_sources(work: Lanewise, chip: Chip) -> _Cycles:
    """tensor_tensor: a PSUM operand comes beside one from SBUF; two from SBUF share a port on some generations."""
    if vector_mode(work, chip) is VectorMode.single:
        return _vector_pair(work, chip)
    if work.quick and is_dense(work):
        return _vector(work, chip, chip.vector.double_cycles_per_element)
    rate = chip.vector.half_pair_cycles_per_element
    return _vector(work, chip, rate, supply=rate)


def _vector_pair(work: Lanewise, chip: Chip) -> _Cycles:
    """Two tiles, of any format."""
    if from_psum(work):
        return _vector_one_per_cycle(work, chip)
    rate = chip.vector.pair_cycles_per_element
    return _vector(work, chip, rate, supply=rate)


def _vector_reduce(work: Lanewise, chip: Chip) -> _Cycles:
    if work.quick and is_half(work, chip):
        return _vector(work, chip, chip.vector.half_reduce_cycles_per_element)
    return _vector_one_per_cycle(work, chip)


def _vector_one_per_cycle(work: Lanewise, chip: Chip) -> _Cycles:
    return _vector(work, chip, chip.vector.single_cycles_per_element)


def _vector_reciprocal(work: Lanewise, chip: Chip) -> _Cycles:
    return _vector(work, chip, chip.vector.reciprocal_cycles_per_element)


def _vector_bn_aggr(work: Lanewise, chip: Chip) -> _Cycles:
    return _vector(work, chip, chip.vector.bn_aggr_cycles_per_element)


def _vector_scan(work: Lanewise, chip: Chip) -> _Cycles:
    return _vector(work, chip, chip.vector.scan_cycles_per_element)


def _vector_predicated(work: Lanewise, chip: Chip) -> _Cycles:
    """A copy by predicate: documented as one element per cycle where a tile is in PSUM."""
    if from_psum(work):
        return _vector_one_per_cycle(work, chip)
    vector = chip.vector
    return _vector(work, chip, vector.predicated_cycles_per_element, supply=vector.pair_cycles_per_element)


def _vector_memset(work: Lanewise, chip: Chip) -> _Cycles:
    vector = chip.vector
    rate = vector.memset_cycles_per_element
    if work.quick and is_half(work, chip):
        rate = vector.half_zero_cycles_per_element
    return _vector(work, chip, rate, vector.memset_latency_cycles)


def _vector_quantize(work: Lanewise, chip: Chip) -> _Cycles:
    """Documented as four elements per partition and cycle, like the 4x performance mode."""
    return _vector(work, chip, chip.vector.quad_cycles_per_element)


def _vector_shuffle(work: Lanewise, chip: Chip) -> _Cycles:
    return _vector(work, chip, chip.vector.single_cycles_per_element, chip.vector.shuffle_latency_cycles)


def _vector_transpose(work: Lanewise, chip: Chip) -> _Cycles:
    return _vector(work, chip, chip.vector.single_cycles_per_element, chip.vector.transpose_latency_cycles)


def _vector_mask_load(work: Lanewise, chip: Chip) -> _Cycles:
    return _Cycles(chip.vector.mask_load_cycles, chip.vector.mask_load_cycles)


def _vector_random(work: Lanewise, chip: Chip) -> _Cycles:
    return _vector(work, chip, chip.vector.random_cycles_per_element)


def _vector_exponential(work: Lanewise, chip: Chip) -> _Cycles:
    return _vector(work, chip, chip.vector.exponential_cycles_per_element)


# Scalar


def _scalar(work: Lanewise, chip: Chip, issue: float, latency: float, rate: float, pointers: int) -> _Cycles:
    """A Scalar instruction. The next one begins while a strided output still passes, but not before it has passed."""
    fixed = pointers * chip.scalar.pointer_cycles
    reading = work.elements * _scalar_strided(work.inputs, chip, rate)
    passing = work.elements * _scalar_strided(tuple(streams(work)), chip, rate)
    return _Cycles(max(issue + fixed + reading, passing), latency + fixed + passing, passing)


def _scalar_strided(operands: tuple[Stream, ...], chip: Chip, rate: float) -> float:
    """Return cycles per element: twice as many from 16 bytes on, as elsewhere, and measured on top of that a ramp."""
    scalar = chip.scalar
    steps = max((operand.step_bytes // operand.dtype.size_bytes for operand in operands), default=0)
    ramp = max(steps - scalar.stride_free_elements, 0) if steps <= scalar.stride_limit_elements else 0
    return _strided(operands, chip, rate) + ramp * scalar.stride_cycles_per_element


def _scalar_move(work: Lanewise, chip: Chip) -> _Cycles:
    """tensor_copy and tensor_scalar: instructions of their own on trn3, with the conditions of Vector's 2x mode."""
    psum = psum_count(work)
    if is_half(work, chip) and (psum == 0 or (psum == 1 and is_adjacent(work))):
        return _scalar_copy(work, chip, chip.scalar.fast_cycles_per_element)
    return _scalar_copy(work, chip, chip.scalar.cycles_per_element)


def _scalar_copy(work: Lanewise, chip: Chip, rate: float) -> _Cycles:
    scalar = chip.scalar
    latency, issue = scalar.copy_latency_cycles, scalar.copy_issue_cycles
    if from_psum(work):
        latency, issue = scalar.copy_psum_latency_cycles, scalar.copy_psum_issue_cycles
    elif to_psum(work):
        latency = scalar.psum_write_latency_cycles
    return _scalar(work, chip, issue, latency, rate, work.pointers)


def _scalar_activation(work: Lanewise, chip: Chip) -> _Cycles:
    """An activation; its latency holds one pointer read already, the bias."""
    scalar = chip.scalar
    if work.table is None or work.table in scalar.resident_functions:
        return _scalar_copy(work, chip, scalar.cycles_per_element)
    more = max(work.pointers - 1, 0)
    if from_psum(work):
        rate = scalar.activation_psum_cycles_per_element
        if work.table == "silu":
            rate = scalar.silu_psum_cycles_per_element
        issue, latency = scalar.activation_psum_issue_cycles, scalar.activation_psum_latency_cycles
        return _scalar(work, chip, issue, latency, rate, more)
    latency = scalar.psum_write_latency_cycles if to_psum(work) else scalar.activation_latency_cycles
    issue = scalar.activation_issue_cycles
    return _scalar(work, chip, issue, latency, scalar.cycles_per_element, more)


# GpSimd


def _gpsimd(work: Lanewise, chip: Chip) -> _Cycles:
    """150 + N cycles, documented for iota and affine_select and assumed for the rest, and a drain."""
    return _gpsimd_at(work, chip, chip.gpsimd.cycles_per_element)


def _gpsimd_at(work: Lanewise, chip: Chip, rate: float) -> _Cycles:
    issue = chip.gpsimd.issue_cycles + work.elements * _strided(streams(work), chip, rate)
    return _Cycles(issue, issue + chip.gpsimd.drain_cycles)


def _gpsimd_local_gather(work: Lanewise, chip: Chip) -> _Cycles:
    """As documented: 150 + elements / C cycles, where C depends on the run of each index and the element's size."""
    gpsimd = chip.gpsimd
    run = work.run_elements
    unrolled = gpsimd.gather_unroll * run
    rate = (gpsimd.gather_overhead_cycles + unrolled) / unrolled / min(4 / work.inputs[0].dtype.size_bytes, run)
    issue = gpsimd.issue_cycles + work.elements / rate
    return _Cycles(issue, issue + gpsimd.drain_cycles)


def _gpsimd_random(work: Lanewise, chip: Chip) -> _Cycles:
    return _gpsimd_at(work, chip, chip.gpsimd.random_cycles_per_element)


def _gpsimd_partition_reduce(work: Lanewise, chip: Chip) -> _Cycles:
    """Every element of every partition in turn."""
    return _gpsimd_at(work, chip, chip.gpsimd.partition_reduce_cycles_per_element)


def _gpsimd_topk(work: Lanewise, chip: Chip) -> _Cycles:
    """As documented: 4 n + K cycles; each group of 16 partitions has a core of its own."""
    gpsimd = chip.gpsimd
    issue = work.elements * gpsimd.topk_cycles_per_element + work.results
    return _Cycles(issue, issue + gpsimd.drain_cycles)


def _gpsimd_memset(work: Lanewise, chip: Chip) -> _Cycles:
    gpsimd = chip.gpsimd
    cycles = gpsimd.memset_latency_cycles + work.elements * _strided(streams(work), chip, gpsimd.cycles_per_element)
    return _Cycles(cycles, cycles)


LAWS: Final[Mapping[Engine, Mapping[str, _Law]]] = {
    Engine.vector: {
        "copy": _vector_single_source,
        "tensor_scalar": _vector_single_source,
        "tensor_tensor": _vector_two_sources,
        "reduce": _vector_reduce,
        "reciprocal": _vector_reciprocal,
        "memset": _vector_memset,
        "transpose": _vector_transpose,
        "scan": _vector_scan,
        "copy_predicated": _vector_predicated,
        "stream_shuffle": _vector_shuffle,
        "mask_load": _vector_mask_load,
        "quantize_mx": _vector_quantize,
        # documented as one element per cycle (bn_stats, max8, find_index8, match_replace8, range_select), as two
        # tiles (scalar_tensor_tensor), or assumed: a predicate and a tile, a reduction of what passes
        "bn_stats": _vector_one_per_cycle,
        "bn_aggr": _vector_bn_aggr,
        "max8": _vector_one_per_cycle,
        "find_index8": _vector_one_per_cycle,
        "match_replace8": _vector_one_per_cycle,
        "range_select": _vector_one_per_cycle,
        "select_reduce": _vector_pair,
        "scalar_tensor_tensor": _vector_pair,
        "tensor_scalar_reduce": _vector_one_per_cycle,
        "dropout": _vector_one_per_cycle,
        "random": _vector_random,
        "random_state": _vector_one_per_cycle,
        "exponential": _vector_exponential,
    },
    Engine.scalar: {
        "copy": _scalar_move,
        "tensor_scalar": _scalar_move,
        "activation": _scalar_activation,
    },
    Engine.gpsimd: {
        "copy": _gpsimd,
        "tensor_scalar": _gpsimd,
        "tensor_tensor": _gpsimd,
        "iota": _gpsimd,
        "affine_select": _gpsimd,
        "local_gather": _gpsimd_local_gather,
        "n_gather": _gpsimd,
        "nonzero": _gpsimd,
        "sequence_bounds": _gpsimd,
        "topk": _gpsimd_topk,
        "memset": _gpsimd_memset,
        "random": _gpsimd_random,
        "random_state": _gpsimd,
        "partition_reduce": _gpsimd_partition_reduce,
    },
}
"""The laws that exist, by engine and name."""
