"""A timeline as a trace that https://ui.perfetto.dev opens: Chrome's JSON, written event by event.

Each core is a process and each engine a track. The tensor engine has two: a LoadStationary runs behind the MATMUL
before it, and slices that overlap in part cannot nest. MATMULs that stream at the same time, on tiles of the array,
have tracks of their own behind all others. Each DMA queue is an asynchronous track whose slices last from
trigger to completion.

Counters beside the tracks say what was in SBUF and PSUM, what went through HBM, and how busy the tensor engine was with
what counts (``trace/counters.py``). Arrows lead from the op that made a value to each that reads it
(``trace/arrows.py``).

Viewers keep whole nanoseconds, and round start and duration each by itself. So both are cut to whole nanoseconds
here, the duration as the difference of the cut ends: what does not overlap stays so under any rounding, and order
is kept. The exact picoseconds are in the arguments ``start_ps`` and ``end_ps``.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from types import NoneType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import neurosim
from neurosim.chip import REPLACED, Chip
from neurosim.errors import ConfigurationError
from neurosim.program import Program
from neurosim.report.queues import queues_of
from neurosim.report.trace.arrows import Arrows
from neurosim.report.trace.counters import counters
from neurosim.report.trace.filling import HEX, SEPARATOR, THOUSANDTHS, Forms, hole
from neurosim.report.trace.texts import Text, Texts
from neurosim.timing.passes import unchanged
from neurosim.timing.timeline import ENGINES, REASONS, Ints, Op, Timeline
from neurosim.writing import compressed, replacing

SCHEMA: Final = "neurosim.trace/1"
"""Changes when a track, an event or an argument changes its meaning or disappears."""

DMA: Final = "dma"
"""Name of all DMA engines and queues together, in ``TraceOptions.engines``."""

LOADS: Final = "tensor (load stationary)"
"""Name of the tensor engine's second track."""

_CHUNK: Final = 8192
SPACES: Final = ("sbuf", "psum")
"""Names of the space in use in both memories, in ``TraceOptions.engines``."""

_TRACKS_PER_CORE: Final = 1000
_TRANSFER: Final = int(Op.TRANSFER)
_END_PS: Final = 1 << 62
_KINDS: Final = tuple(op.name.lower() for op in Op)
_SUFFIXES: Final = tuple({Op.TABLE_LOAD: ": table", Op.ACCUMULATOR_READ: ": accumulators"}.get(op, "") for op in Op)


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """What of a timeline goes into a trace; by default all of it.

    Attributes:
        first_ps, last_ps: only what overlaps this time; slices keep their whole length.
        engines: only these tracks, by the timeline's names of units; ``dma`` is all DMA engines and the queues,
            ``sbuf`` and ``psum`` are the space in use there. HBM's traffic goes with ``dma``, MFU with ``tensor``.
        lines: only what these kernel lines caused, wherever they stand in the call stack: ``matmul.py:61``, or
            ``matmul.py`` for a whole file.
    """

    first_ps: int = 0
    last_ps: int | None = None
    engines: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


def write_trace(
    path: str | Path,
    program: Program,
    timelines: Mapping[int, Timeline],
    chip: Chip,
    *,
    kernel_name: str = "kernel",
    options: TraceOptions | None = None,
) -> None:
    """Write a trace; compressed where the name ends in ``.gz``. An interrupt leaves no file.

    Args:
        path: the file.
        program: the record.
        timelines: by core.
        chip: what was timed.
        kernel_name: for the title.
        options: what to leave out.

    Raises:
        ConfigurationError: the file cannot be written, or an option names what is not there.
    """
    options = options or TraceOptions()
    _check(options, program, timelines)
    compiled = next((timeline.compiled for timeline in timelines.values()), unchanged(program))
    texts, arrows = Texts(program), Arrows(compiled)
    metadata = _metadata(timelines, chip, kernel_name, options) | {"nki_version": str(program.nki_version)}
    opening = json.dumps({"metadata": metadata, "displayTimeUnit": "ns"})
    with replacing(path) as raw, compressed(raw, str(path).endswith(".gz")) as file:
        file.write(f'{opening[:-1]}, "traceEvents": [\n'.encode())
        cut = len(SEPARATOR)  # before the first event
        for core in sorted(timelines):
            title = f"core {core}: {kernel_name} on {chip.name}"
            for lines in _Core(program, timelines[core], options, texts, arrows).events(title):
                file.write(lines[cut:])
                cut = 0
                del lines  # before the next ones are made
        for lines in arrows.lines(_TRACKS_PER_CORE):
            file.write(lines)
        file.write(b"\n]}\n")


def _check(options: TraceOptions, program: Program, timelines: Mapping[int, Timeline]) -> None:
    """Refuse options that would leave out everything."""
    if not isinstance(options.first_ps, int) or not isinstance(options.last_ps, (int, NoneType)):
        raise ConfigurationError(
            f"trace: a time from {options.first_ps!r} to {options.last_ps!r} ps is not made of ints",
            advice="give whole picoseconds",
        )
    last_ps = _END_PS if options.last_ps is None else options.last_ps
    if not 0 <= options.first_ps < last_ps <= _END_PS:
        raise ConfigurationError(
            f"trace: there is no time from {options.first_ps} to {options.last_ps} ps",
            advice="begin at 0 or later, and end after that; a trace ends before 2**62 ps",
        )
    units = next((timeline.units for timeline in timelines.values()), ())
    check_engines(options.engines, units)
    check_lines(options.lines, program)


def check_engines(names: Sequence[str], units: Sequence[str]) -> None:
    """Refuse names of tracks that no trace of these units has.

    Raises:
        ConfigurationError: there is no such track.
    """
    tracks = (*units, DMA, *SPACES)
    for name in names:
        if name not in tracks:
            known = ", ".join(tracks)
            raise ConfigurationError(
                f"trace: there is no engine {name!r}", numbers=(f"known: {known}",), advice="name some of these"
            )


def check_lines(lines: Sequence[str], program: Program) -> None:
    """Refuse lines that no instruction of a program comes from.

    Raises:
        ConfigurationError: there is none.
    """
    for line in lines:
        if not any(frame.is_at(line) for stack in program.stacks for frame in stack):
            raise ConfigurationError(f"trace: no instruction comes from {line}", advice="write FILE or FILE:LINE")


def _metadata(timelines: Mapping[int, Timeline], chip: Chip, kernel_name: str, options: TraceOptions) -> dict[str, Any]:
    changed = {path: figure.value for path, figure in chip.figures.items() if figure.source == REPLACED}
    return {
        "schema": SCHEMA,
        "neurosim": neurosim.__version__,
        "kernel": kernel_name,
        "chip": chip.name,
        "generation": chip.generation,
        "chip_changes": changed,
        "schedule": next(iter(timelines.values())).schedule,
        "throttle": next(iter(timelines.values())).throttle,
        "options": asdict(options),
        "makespan_ps": {f"core {core}": timelines[core].makespan_ps for core in sorted(timelines)},
        "launch_ps": {f"core {core}": timelines[core].launch_ps for core in sorted(timelines)},
        "note": "simulated, not measured; time 0 is the start of the kernel's body, after its launch",
    }


class _Core:
    """Turns one core's timeline into events, each a line of JSON after a comma."""

    def __init__(
        self, program: Program, timeline: Timeline, options: TraceOptions, texts: Texts, arrows: Arrows
    ) -> None:
        self._program = program
        self._timeline = timeline
        self._options = options
        self._texts = texts
        self._arrows = arrows
        # Viewers keep process and thread 0 to themselves, and a thread with its process's number for the main one.
        self._process = _TRACKS_PER_CORE * (timeline.core + 1)
        self._stacks = np.array(program.stack_ids, dtype=np.int64)
        lines = options.lines
        self._from_lines = np.array(
            [not lines or any(frame.is_at(line) for frame in stack for line in lines) for stack in program.stacks], bool
        )
        self._beside = _beside(timeline.ops)
        sides = [f"{ENGINES[0]} ({side + 1})" for side in range(1, int(self._beside.max(initial=0)) + 1)]
        names = [timeline.units[0], LOADS, *timeline.units[1:], *sides]
        self._sides = frozenset(sides)
        self._threads = {name: self._process + number for number, name in enumerate(names, 1)}

    def events(self, title: str) -> Iterator[bytes | memoryview]:
        """Yield events, some at a time: tracks, counters, what happens on engines, what happens in queues."""
        yield "".join(SEPARATOR + line for line in self._tracks(title)).encode()
        yield from self._counters()
        yield from self._slices()
        if self._is_shown(DMA):
            yield from self._queues()

    def _is_shown(self, unit: str) -> bool:
        engines = self._options.engines
        return not engines or unit in engines or (unit.startswith(DMA) and DMA in engines)

    def _tracks(self, title: str) -> list[str]:
        """Name the tracks and give each a mark, without which viewers hide those that stay empty."""
        pid = self._process
        lines = [_meta("process_name", pid, pid, title), _meta("process_sort_index", pid, pid, self._timeline.core)]
        for name, thread in self._threads.items():
            if self._is_shown(ENGINES[0] if name == LOADS or name in self._sides else name):
                lines.append(_meta("thread_name", pid, thread, name))
                lines.append(_meta("thread_sort_index", pid, thread, thread))
                at = f'"ts":{_us(self._options.first_ps)},"pid":{pid},"tid":{thread}'
                lines.append(f'{{"name":"begin","cat":"track","ph":"i","s":"t",{at}}}')
        return lines

    def _counters(self) -> Iterator[memoryview]:
        """Yield what happened over time, each value where it differs from the one before."""
        for counter in counters(self._program, self._timeline, self._options.first_ps, self._options.last_ps):
            if self._is_shown(counter.unit):
                value = np.rint(counter.values * 1000).astype(np.int64)
                changes = np.flatnonzero(np.diff(value, prepend=-1))
                form = (
                    f'{SEPARATOR}{{"name":{json.dumps(counter.name)},"cat":"counter","ph":"C","pid":{self._process},'
                    f'"ts":{hole(0, THOUSANDTHS)},"args":{{"value":{hole(1, THOUSANDTHS)}}}}}'
                )
                columns = (counter.times_ps[changes] // 1000, value[changes])
                yield Forms([form]).fill(np.zeros(len(changes), np.int64), columns)

    def _wanted(self, records: Ints, start_ps: Ints, end_ps: Ints) -> NDArray[np.bool_]:
        """Return which events the options leave in."""
        first, last = self._options.first_ps, self._options.last_ps
        wanted = self._from_lines[self._stacks[records]] & ((end_ps > first) | (start_ps >= first))
        return wanted if last is None else wanted & (start_ps < last)

    def _slices(self) -> Iterator[memoryview]:
        """Yield what the engines do."""
        timeline = self._timeline
        shown = np.array([self._is_shown(name) for name in timeline.units], dtype=bool)
        threads = np.array([self._threads[name] for name in timeline.units], dtype=np.int64)
        for begin in range(0, len(timeline.ops), _CHUNK):
            ops = timeline.ops[begin : begin + _CHUNK]
            wanted = shown[ops["unit"]] & self._wanted(ops["record"], ops["start_ps"], ops["end_ps"])
            ops, beside = ops[wanted], self._beside[begin : begin + _CHUNK][wanted]
            thread = np.where(ops["kind"] == Op.LOAD_STATIONARY, self._threads[LOADS], threads[ops["unit"]])
            thread = np.where(beside > 0, self._process + len(self._threads) - len(self._sides) + beside, thread)
            if len(ops):
                self._arrows.drawn(ops, thread)
                yield self._lines(ops, thread)

    def _lines(self, ops: NDArray[Any], thread: Ints) -> memoryview:
        """Return a slice per op, from a form for each kind of text among them."""
        # A DMA engine waits for data to move; the record waited before, on the engine that triggers it.
        waited = np.where(ops["kind"] == Op.TRANSFER, -1, self._timeline.waited_for[ops["record"]])
        reason = np.where(ops["stall_ps"] > 0, ops["reason"], -1)
        parts = (
            self._texts.number[ops["record"]],
            thread - self._process,
            ops["kind"],
            reason + 1,
            (reason >= 0) & (waited >= 0),
            ops["held_ps"] > 0,
        )
        sizes = (_TRACKS_PER_CORE, len(_KINDS), len(REASONS) + 1, 2, 2)
        key = parts[0].astype(np.int64)
        for part, size in zip(parts[1:], sizes, strict=True):
            key = key * size + part
        keys, form = np.unique(key, return_inverse=True)
        forms = []
        for rest in keys.tolist():
            fields, text = [], rest
            for size in reversed(sizes):
                text, field = divmod(text, size)
                fields.append(field)
            forms.append(self._slice(self._texts[text], *reversed(fields)))
        start_ns = ops["start_ps"] // 1000
        columns = (start_ns, ops["end_ps"] // 1000 - start_ns, ops["record"], ops["start_ps"], ops["end_ps"])
        return Forms(forms).fill(form.reshape(-1), (*columns, ops["busy_ps"], ops["stall_ps"], waited, ops["held_ps"]))

    def _slice(self, text: Text, track: int, kind: int, reason: int, has_cause: int, is_held: int) -> str:
        """Return the form of a slice; its columns are those of :meth:`_lines`."""
        wait = ""
        if reason:
            wait = f'"wait":"{REASONS[reason - 1]}","wait_ps":{hole(6)},'
        if has_cause:
            wait += f'"wait_for_record":{hole(7)},'
        if is_held:
            wait += f'"{"bandwidth" if kind == _TRANSFER else "throttle"}_wait_ps":{hole(8)},'
        return (
            f'{SEPARATOR}{{"name":"{text.name}{_SUFFIXES[kind]}","cat":"{_KINDS[kind]}","ph":"X","pid":{self._process},'
            f'"tid":{self._process + track},"ts":{hole(0, THOUSANDTHS)},"dur":{hole(1, THOUSANDTHS)},'
            f'"args":{{"record":{hole(2)},"start_ps":{hole(3)},"end_ps":{hole(4)},"busy_ps":{hole(5)},{wait}'
            f"{text.short if kind == _TRANSFER else text.full}}}}}"
        )

    def _queues(self) -> Iterator[bytes | memoryview]:
        """Yield what is in the DMA queues, from trigger to completion, queue by queue."""
        timeline, lanes = self._timeline, count(1)
        names, numbers = queues_of(self._program, timeline)
        for number, queue in enumerate(names):
            records = timeline.records[numbers[timeline.records] == number]
            records = records[np.argsort(timeline.start_ps[records], kind="stable")]
            records = records[self._wanted(records, timeline.start_ps[records], timeline.complete_ps[records])]
            free: list[tuple[int, int]] = []  # (time, lane), as slices of one lane must not overlap
            for begin in range(0, len(records), _CHUNK):
                part = records[begin : begin + _CHUNK]
                columns = (timeline.start_ps[part], timeline.complete_ps[part])
                lane_of, fresh = [], []
                for start, end in zip(*(column.tolist() for column in columns), strict=True):
                    fresh.append(not free or free[0][0] > start)
                    lane = next(lanes) if fresh[-1] else heapq.heappop(free)[1]
                    heapq.heappush(free, (end, lane))
                    lane_of.append(lane)
                yield self._queued(queue, part, np.array(lane_of), np.array(fresh))

    def _queued(self, queue: str, records: Ints, lane: Ints, fresh: NDArray[np.bool_]) -> memoryview:
        """Return the begin and the end of DMAs, and before the first of each lane what names the lane's track.

        A viewer names a lane's track after its first event, and joins tracks of one name.
        """
        start_ps, end_ps = self._timeline.start_ps[records], self._timeline.complete_ps[records]
        numbers, text = np.unique(self._texts.number[records], return_inverse=True)
        forms = [self._async("n", queue)]
        for number in numbers.tolist():
            found = self._texts[number]
            args = f',"args":{{"record":{hole(2)},"start_ps":{hole(3)},"end_ps":{hole(4)},{found.full}}}'
            forms += [self._async("b", found.name, args), self._async("e", found.name)]
        begin = 1 + 2 * text.reshape(-1)
        form = np.stack([np.zeros_like(begin), begin, begin + 1], axis=1)
        at_ps = np.stack([np.minimum(start_ps, self._options.first_ps), start_ps, end_ps], axis=1)
        shown = np.stack([fresh, np.ones_like(fresh), np.ones_like(fresh)], axis=1).reshape(-1)
        columns = (lane, records, start_ps, end_ps)
        lane, records, start_ps, end_ps = (np.repeat(column, 3)[shown] for column in columns)
        return Forms(forms).fill(
            form.reshape(-1)[shown], (at_ps.reshape(-1)[shown] // 1000, lane, records, start_ps, end_ps)
        )

    def _async(self, phase: str, name: str, args: str = "") -> str:
        return (
            f'{SEPARATOR}{{"name":"{name}","cat":"queue","ph":"{phase}","id2":{{"local":"{hole(1, HEX)}"}},'
            f'"pid":{self._process},"tid":{self._process},"ts":{hole(0, THOUSANDTHS)}{args}}}'
        )


def _beside(ops: NDArray[Any]) -> Ints:
    """Return, by op, how many tracks after the engine's own it stands: 0, but for MATMULs beside others on tiles."""
    beside = np.zeros(len(ops), dtype=np.int64)
    streams = np.flatnonzero(ops["kind"] == Op.MATMUL)  # all on one engine, in order of their start
    starts, ends = ops["start_ps"][streams], ops["end_ps"][streams]
    if (starts[1:] >= np.maximum.accumulate(ends)[:-1]).all():
        return beside
    reached: list[int] = []
    for op, start, end in zip(streams.tolist(), starts.tolist(), ends.tolist(), strict=True):
        side = next((side for side, until in enumerate(reached) if until <= start), len(reached))
        reached[side : side + 1] = [end]
        beside[op] = side
    return beside


def _us(ps: int) -> str:
    """Picoseconds as whole nanoseconds, written in the microseconds of Chrome's format."""
    return f"{ps // 1_000_000}.{ps // 1000 % 1000:03}"


def _meta(what: str, process: int, thread: int, value: str | int) -> str:
    """Return an event that says something of a process or thread."""
    key = "name" if isinstance(value, str) else "sort_index"
    return json.dumps({"name": what, "ph": "M", "pid": process, "tid": thread, "args": {key: value}})
