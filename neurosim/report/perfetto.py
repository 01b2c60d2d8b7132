"""A timeline as a trace that https://ui.perfetto.dev opens: Chrome's JSON, written event by event.

Each core is a process and each engine a track. The tensor engine has two: a LoadStationary runs behind the MATMUL
before it, and slices that overlap in part cannot nest. MATMULs that stream at the same time, on tiles of the array,
have tracks of their own behind all others. Each DMA queue is an asynchronous track whose slices last from
trigger to completion.

Viewers keep whole nanoseconds, and round start and duration each by itself. So both are cut to whole nanoseconds
here, the duration as the difference of the cut ends: what does not overlap stays so under any rounding, and order
is kept. The exact picoseconds are in the arguments ``start_ps`` and ``end_ps``.
"""

from __future__ import annotations

import contextlib
import gzip
import heapq
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from types import NoneType
from typing import IO, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

import neurosim
from neurosim.chip import REPLACED, Chip
from neurosim.errors import ConfigurationError
from neurosim.listing import operand_text, parameters_text, place_text
from neurosim.program import Frame, Program
from neurosim.report.queues import in_order, queue_of
from neurosim.timing.timeline import ENGINES, REASONS, Ints, Op, Timeline
from neurosim.writing import replacing

SCHEMA: Final = "neurosim.trace/1"
"""Changes when a track, an event or an argument changes its meaning or disappears."""

DMA: Final = "dma"
"""Name of all DMA engines and queues together, in ``TraceOptions.engines``."""

LOADS: Final = "tensor (load stationary)"
"""Name of the tensor engine's second track."""

_CHUNK: Final = 8192
_TRACKS_PER_CORE: Final = 1000
_COMPRESSION: Final = 5
_TRANSFER: Final = int(Op.TRANSFER)
_KINDS: Final = tuple(op.name.lower() for op in Op)
_SUFFIXES: Final = tuple({Op.TABLE_LOAD: ": table", Op.ACCUMULATOR_READ: ": accumulators"}.get(op, "") for op in Op)


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """What of a timeline goes into a trace; by default all of it.

    Attributes:
        first_ps, last_ps: only what overlaps this time; slices keep their whole length.
        engines: only these tracks, by the timeline's names of units; ``dma`` is all DMA engines and the queues.
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
    texts = _Texts(program)
    metadata = _metadata(timelines, chip, kernel_name, options) | {"nki_version": str(program.nki_version)}
    opening = json.dumps({"metadata": metadata, "displayTimeUnit": "ns"})
    with replacing(path) as raw, _compressed(raw, str(path).endswith(".gz")) as file:
        file.write(f'{opening[:-1]}, "traceEvents": [\n'.encode())
        separator = b""
        for core in sorted(timelines):
            title = f"core {core}: {kernel_name} on {chip.name}"
            for lines in _Core(program, timelines[core], options, texts).events(title):
                file.write(separator + ",\n".join(lines).encode())
                separator = b",\n"
        file.write(b"\n]}\n")


@contextlib.contextmanager
def _compressed(file: IO[bytes], wanted: bool) -> Iterator[IO[bytes]]:
    """Wrap a file in gzip, without the time and the name that would make equal traces differ."""
    if not wanted:
        yield file
        return
    with gzip.GzipFile("", "wb", _COMPRESSION, file, mtime=0) as packed:
        yield packed  # type: ignore[misc]


def _check(options: TraceOptions, program: Program, timelines: Mapping[int, Timeline]) -> None:
    """Refuse options that would leave out everything."""
    if not all(isinstance(time_ps, (int, NoneType)) for time_ps in (options.first_ps, options.last_ps)):
        raise ConfigurationError(
            f"trace: a time from {options.first_ps!r} to {options.last_ps!r} ps is not made of ints"
        )
    if options.first_ps < 0 or (options.last_ps is not None and options.last_ps <= options.first_ps):
        raise ConfigurationError(f"trace: there is no time from {options.first_ps} to {options.last_ps} ps")
    units = next((timeline.units for timeline in timelines.values()), ())
    for name in options.engines:
        if name not in (*units, DMA):
            known = ", ".join((*units, DMA))
            raise ConfigurationError(f"trace: there is no engine {name!r}", numbers=(f"known: {known}",))
    for line in options.lines:
        if not any(_comes_from(stack, (line,)) for stack in program.stacks):
            raise ConfigurationError(f"trace: no instruction comes from {line}", advice="write FILE or FILE:LINE")


def _comes_from(stack: tuple[Frame, ...], lines: tuple[str, ...]) -> bool:
    """Whether a frame lies in one of the files or lines, named from as far up the path as one likes."""
    for frame in stack:
        for text in (frame.file, f"{frame.file}:{frame.line}"):
            if any(text == line or text.endswith("/" + line) for line in lines):
                return True
    return False


def _metadata(timelines: Mapping[int, Timeline], chip: Chip, kernel_name: str, options: TraceOptions) -> dict[str, Any]:
    changed = {path: figure.value for path, figure in chip.figures.items() if figure.source == REPLACED}
    return {
        "schema": SCHEMA,
        "neurosim": neurosim.__version__,
        "kernel": kernel_name,
        "chip": chip.name,
        "generation": chip.generation,
        "chip_changes": changed,
        "options": asdict(options),
        "makespan_ps": {f"core {core}": timelines[core].makespan_ps for core in sorted(timelines)},
        "launch_ps": {f"core {core}": timelines[core].launch_ps for core in sorted(timelines)},
        "note": "simulated, not measured; time 0 is the start of the kernel's body, after its launch",
    }


class _Text(NamedTuple):
    """What events say of their instruction, as JSON without the quotes and braces around it.

    Attributes:
        name: the instruction.
        short: arguments of a slice on a DMA engine, of which one DMA makes sixteen.
        full: arguments of all others.
    """

    name: str
    short: str
    full: str


class _Texts:
    """Texts by signature and call stack, made once for all records that share them."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._signatures, self._stacks = program.signature_ids, program.stack_ids
        self._found: dict[tuple[int, int], _Text] = {}

    def of(self, record: int) -> _Text:
        """Return the text of a record."""
        key = (self._signatures[record], self._stacks[record])
        return self._found.get(key) or self._make(*key)

    def name_of(self, record: int) -> str:
        """Return the name that the kernel gave a record, else its instruction."""
        given = self._program.names.get(record)
        return self.of(record).name if given is None else _bare(given)

    def _make(self, signature_id: int, stack_id: int) -> _Text:
        signature, stack = self._program.signatures[signature_id], self._program.stacks[stack_id]
        short: dict[str, Any] = {
            "instruction": signature.instruction,
            "where": place_text(stack),
            "operands": {pattern.role: operand_text(pattern) for pattern in signature.patterns},
        }
        more = {
            "parameters": parameters_text(signature),
            "called_from": " < ".join(place_text(stack[depth:]) for depth in range(1, len(stack))),
        }
        full = short | {name: text for name, text in more.items() if text}
        text = self._found[signature_id, stack_id] = _Text(_bare(signature.instruction), _bare(short), _bare(full))
        return text


def _bare(value: Any) -> str:
    return json.dumps(value)[1:-1]


class _Core:
    """Turns one core's timeline into events, each a line of JSON."""

    def __init__(self, program: Program, timeline: Timeline, options: TraceOptions, texts: _Texts) -> None:
        self._program = program
        self._timeline = timeline
        self._options = options
        self._texts = texts
        # Viewers keep process and thread 0 to themselves, and a thread with its process's number for the main one.
        self._process = _TRACKS_PER_CORE * (timeline.core + 1)
        self._signatures = np.array(program.signature_ids, dtype=np.int64)
        self._stacks = np.array(program.stack_ids, dtype=np.int64)
        self._from_lines = np.array([not options.lines or _comes_from(s, options.lines) for s in program.stacks], bool)
        self._beside = _beside(timeline.ops)
        sides = [f"{ENGINES[0]} ({side + 1})" for side in range(1, int(self._beside.max(initial=0)) + 1)]
        names = [timeline.units[0], LOADS, *timeline.units[1:], *sides]
        self._sides = frozenset(sides)
        self._threads = {name: self._process + number for number, name in enumerate(names, 1)}

    def events(self, title: str) -> Iterator[list[str]]:
        """Yield events, some at a time: the tracks, what happens on engines, what happens in queues."""
        yield self._tracks(title)
        yield from self._slices()
        if not self._options.engines or DMA in self._options.engines:
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

    def _wanted(self, records: Ints, start_ps: Ints, end_ps: Ints) -> NDArray[np.bool_]:
        """Return which events the options leave in."""
        first, last = self._options.first_ps, self._options.last_ps
        wanted = self._from_lines[self._stacks[records]] & ((end_ps > first) | (start_ps >= first))
        return wanted if last is None else wanted & (start_ps < last)

    def _slices(self) -> Iterator[list[str]]:
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
                yield self._lines(ops, thread)

    def _lines(self, ops: NDArray[Any], thread: Ints) -> list[str]:
        """Return a slice per op; the loop of the module, so numbers come from columns and the rest is made once."""
        start_ns, end_ns = ops["start_ps"] // 1000, ops["end_ps"] // 1000
        # A DMA engine waits for data to move; the record waited before, on the engine that triggers it.
        waited = np.where(ops["kind"] == Op.TRANSFER, -1, self._timeline.waited_for[ops["record"]])
        times = (start_ns // 1000, start_ns % 1000, (end_ns - start_ns) // 1000, (end_ns - start_ns) % 1000)
        columns = (*times, waited, thread)
        names, lines = self._program.names, []
        for (record, _, kind, reason, start, end, stall, held, busy), us, ns, long_us, long_ns, cause, tid in zip(
            ops.tolist(), *(column.tolist() for column in columns), strict=True
        ):
            text = self._texts.of(record)
            name = self._texts.name_of(record) if record in names else text.name
            wait = ""
            if stall:
                wait = f'"wait":"{REASONS[reason]}","wait_ps":{stall},'
                if cause >= 0:
                    wait += f'"wait_for_record":{cause},'
            if held:
                wait += f'"{"bandwidth" if kind == Op.TRANSFER else "throttle"}_wait_ps":{held},'
            lines.append(
                f'{{"name":"{name}{_SUFFIXES[kind]}","cat":"{_KINDS[kind]}","ph":"X","pid":{self._process},'
                f'"tid":{tid},"ts":{us}.{ns:03},"dur":{long_us}.{long_ns:03},"args":{{"record":{record},'
                f'"start_ps":{start},"end_ps":{end},"busy_ps":{busy},{wait}'
                f"{text.short if kind == _TRANSFER else text.full}}}}}"
            )
        return lines

    def _queues(self) -> Iterator[list[str]]:
        """Yield what is in the DMA queues, from trigger to completion, queue by queue."""
        timeline, lanes = self._timeline, count(1)
        queues = [queue_of(signature) for signature in self._program.signatures]
        for queue in in_order({queue for queue in queues if queue is not None}):
            members = np.array([other == queue for other in queues], dtype=bool)
            records = timeline.records[members[self._signatures[timeline.records]]]
            records = records[np.argsort(timeline.start_ps[records], kind="stable")]
            records = records[self._wanted(records, timeline.start_ps[records], timeline.complete_ps[records])]
            free: list[tuple[int, int]] = []  # (time, lane), as slices of one lane must not overlap
            for begin in range(0, len(records), _CHUNK):
                part = records[begin : begin + _CHUNK]
                columns = (part, timeline.start_ps[part], timeline.complete_ps[part])
                lines: list[str] = []
                for record, start, end in zip(*(column.tolist() for column in columns), strict=True):
                    if free and free[0][0] <= start:
                        lane = heapq.heappop(free)[1]
                    else:
                        lane = next(lanes)
                        # A viewer names a lane's track after its first event, and joins tracks of one name.
                        lines.append(self._async("n", lane, queue, min(start, self._options.first_ps)))
                    heapq.heappush(free, (end, lane))
                    lines += self._queued(lane, record, start, end)
                yield lines

    def _queued(self, lane: int, record: int, start_ps: int, end_ps: int) -> tuple[str, str]:
        """Return the begin and the end of one DMA."""
        name, about = self._texts.name_of(record), self._texts.of(record).full
        args = f',"args":{{"record":{record},"start_ps":{start_ps},"end_ps":{end_ps},{about}}}'
        return self._async("b", lane, name, start_ps, args), self._async("e", lane, name, end_ps)

    def _async(self, phase: str, lane: int, name: str, at_ps: int, args: str = "") -> str:
        return (
            f'{{"name":"{name}","cat":"queue","ph":"{phase}","id2":{{"local":"{lane:#x}"}},"pid":{self._process},'
            f'"tid":{self._process},"ts":{_us(at_ps)}{args}}}'
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
